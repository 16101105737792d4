//! A second opinion on the service's answers.
//!
//! A neighbour asks only for a few words, and counts those in each document itself, by scanning
//! the text. So it knows the right answer to each of its questions without an index.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::index::{rank, weight};
use crate::wire::{Answer, Document};

const WORDS: usize = 12;
const SHORTEST: usize = 3;

pub struct Oracle {
    words: Vec<String>,
    /// By document id: how often each of the words occurs.
    counts: BTreeMap<String, Vec<u32>>,
}

impl Oracle {
    /// Chooses words of these documents, from frequent ones to rare ones.
    pub fn new(documents: &[Document]) -> Oracle {
        let mut holders: HashMap<String, usize> = HashMap::new();
        for document in documents {
            let distinct: HashSet<String> = document
                .text
                .split(|c: char| !c.is_alphanumeric())
                .filter(|word| word.len() >= SHORTEST)
                .map(str::to_ascii_lowercase)
                .collect();
            for word in distinct {
                *holders.entry(word).or_default() += 1;
            }
        }
        let mut ranked: Vec<(String, usize)> = holders.into_iter().collect();
        ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        // Most words of a text occur once: doubling steps still meet the frequent ones.
        let steps = (0..).map(|step| (1 << step) - 1);
        let words =
            steps.map_while(|place: usize| ranked.get(place)).take(WORDS).map(|(word, _)| word.clone()).collect();
        Oracle { words, counts: BTreeMap::new() }
    }

    /// The words of the `number`-th question: one or two, in ever new combinations.
    pub fn question(&self, number: usize) -> Vec<usize> {
        let words = self.words.len();
        if words == 0 {
            return Vec::new();
        }
        let first = number % words;
        let second = (number / words) % words;
        if first == second {
            vec![first]
        } else {
            vec![first, second]
        }
    }

    pub fn spell(&self, question: &[usize]) -> Vec<String> {
        question.iter().map(|&w| self.words[w].clone()).collect()
    }

    /// Remembers a document that the service has filed.
    pub fn learn(&mut self, document: &Document) {
        let text = document.text.to_ascii_lowercase();
        let counts = self.words.iter().map(|word| occurrences(&text, word));
        self.counts.insert(document.id.clone(), counts.collect());
    }

    /// Says what is wrong with an answer, if anything is.
    pub fn judge(&self, question: &[usize], limit: usize, answer: &Answer) -> Result<(), String> {
        let mut right: Vec<(f64, &str, u32)> = Vec::new();
        let holders: Vec<usize> =
            question.iter().map(|&word| self.counts.values().filter(|c| c[word] > 0).count()).collect();
        for (id, counts) in &self.counts {
            let (mut score, mut sum) = (0.0, 0);
            for (&word, &holders) in question.iter().zip(&holders) {
                if counts[word] > 0 {
                    score += weight(counts[word], holders, self.counts.len());
                    sum += counts[word];
                }
            }
            if sum > 0 {
                right.push((score, id, sum));
            }
        }
        let asked = self.spell(question).join(" ");
        if answer.total != right.len() {
            let (got, want) = (answer.total, right.len());
            return Err(format!("{asked:?}: {got} documents instead of {want}"));
        }
        right.sort_by(|a, b| rank((a.0, a.1), (b.0, b.1)));
        right.truncate(limit);
        let got = answer.hits.iter().map(|hit| (hit.id.as_str(), hit.occurrences));
        if !got.eq(right.iter().map(|&(_, id, sum)| (id, sum))) {
            return Err(format!("{asked:?}: other documents than counted, or another order"));
        }
        Ok(())
    }
}

/// How often `word` occurs in `text` with no letter or digit on either side.
fn occurrences(text: &str, word: &str) -> u32 {
    let found = text.match_indices(word).filter(|(start, _)| {
        let before = text[..*start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    });
    found.count() as u32
}
