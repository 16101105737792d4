//! The inverted index of one tenant: word -> documents, with ranked answers.
//!
//! Nothing in here knows about tenants, except that reading a document passes checkpoints: places
//! where a stopped tenant's work may end because nothing is half done. Filing a finished [`Entry`]
//! passes none, so an index is never left in the middle of a change.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::wire::{Answer, Document, Hit};

/// How many words are read between two checkpoints.
const WORDS_PER_CHECKPOINT: usize = 256;
const EXCERPT_CHARS: usize = 80;

/// A document that has been read and is ready to be filed.
pub struct Entry {
    id: Box<str>,
    title: Box<str>,
    text: Box<str>,
    counts: HashMap<Box<str>, u32>,
}

impl Entry {
    /// Counts the document's words. Unwinds to `Tenant::try_in_scope` when the tenant is stopped;
    /// what was counted so far is then dropped on the way.
    pub fn read(document: Document) -> Entry {
        let mut counts: HashMap<Box<str>, u32> = HashMap::new();
        let mut word = String::new();
        for (position, original) in words(&document.text).enumerate() {
            if position.is_multiple_of(WORDS_PER_CHECKPOINT) {
                allotment::checkpoint_or_unwind();
            }
            word.clear();
            word.push_str(original);
            word.make_ascii_lowercase();
            match counts.get_mut(word.as_str()) {
                Some(count) => *count += 1,
                None => {
                    counts.insert(word.as_str().into(), 1);
                }
            }
        }
        Entry { id: document.id.into(), title: document.title.into(), text: document.text.into(), counts }
    }
}

/// Documents live in slots, words have numbers; both are small so that postings are.
#[derive(Default)]
pub struct Index {
    numbers: HashMap<Box<str>, u32>,
    /// By word number: where the word occurs.
    postings: Vec<Vec<Posting>>,
    slots: HashMap<Box<str>, u32>,
    /// By slot; `None` is a slot in `vacant`.
    documents: Vec<Option<Filed>>,
    vacant: Vec<u32>,
}

struct Posting {
    slot: u32,
    count: u32,
}

struct Filed {
    id: Box<str>,
    title: Box<str>,
    text: Box<str>,
    /// The numbers of its words, to find its postings again when it goes.
    words: Box<[u32]>,
}

impl Index {
    /// Adds a document, in the place of an older one with the same id.
    pub fn file(&mut self, entry: Entry) {
        self.remove(&entry.id);
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.documents.push(None);
            (self.documents.len() - 1) as u32
        });
        let mut words = Vec::with_capacity(entry.counts.len());
        for (word, count) in entry.counts {
            let next = self.postings.len() as u32;
            let number = *self.numbers.entry(word).or_insert(next);
            if number == next {
                self.postings.push(Vec::new());
            }
            self.postings[number as usize].push(Posting { slot, count });
            words.push(number);
        }
        self.slots.insert(entry.id.clone(), slot);
        self.documents[slot as usize] =
            Some(Filed { id: entry.id, title: entry.title, text: entry.text, words: words.into() });
    }

    fn remove(&mut self, id: &str) {
        let Some(slot) = self.slots.remove(id) else {
            return;
        };
        let Some(gone) = self.documents[slot as usize].take() else {
            return;
        };
        for number in gone.words {
            self.postings[number as usize].retain(|posting| posting.slot != slot);
        }
        self.vacant.push(slot);
    }

    /// The best `limit` documents for these words. Equal scores are ordered by id.
    pub fn search(&self, words: &[String], limit: usize) -> Answer {
        let mut matches: HashMap<u32, (f64, u32)> = HashMap::new();
        for word in words {
            let Some(&number) = self.numbers.get(word.to_ascii_lowercase().as_str()) else {
                continue;
            };
            let postings = &self.postings[number as usize];
            for posting in postings {
                let (score, occurrences) = matches.entry(posting.slot).or_default();
                *score += weight(posting.count, postings.len(), self.slots.len());
                *occurrences += posting.count;
            }
        }
        let mut ranked: Vec<(f64, u32, &Filed)> = matches
            .iter()
            .filter_map(|(&slot, &(score, occurrences))| {
                let document = self.documents[slot as usize].as_ref()?;
                Some((score, occurrences, document))
            })
            .collect();
        ranked.sort_by(|a, b| rank((a.0, &a.2.id), (b.0, &b.2.id)));
        ranked.truncate(limit);
        let hits = ranked.into_iter().map(|(score, occurrences, document)| Hit {
            id: document.id.to_string(),
            title: document.title.to_string(),
            score,
            occurrences,
            excerpt: excerpt(&document.text, words),
        });
        Answer { total: matches.len(), hits: hits.collect() }
    }
}

/// What one word adds to a document's score: more for frequent use in the document, less for a
/// word that many documents hold.
pub fn weight(count: u32, holders: usize, documents: usize) -> f64 {
    (1.0 + f64::from(count).ln()) * (1.0 + documents as f64 / holders as f64).ln()
}

/// Best score first, then by id.
pub fn rank(a: (f64, &str), b: (f64, &str)) -> Ordering {
    b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1))
}

/// A word is a longest run of letters and digits; ASCII case does not matter.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn excerpt(text: &str, asked: &[String]) -> String {
    let holds = |line: &&str| words(line).any(|w| asked.iter().any(|a| a.eq_ignore_ascii_case(w)));
    let line = text.lines().find(holds).unwrap_or_default();
    line.trim().chars().take(EXCERPT_CHARS).collect()
}
