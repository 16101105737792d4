//! Real text to post, cut into documents.

use std::env;
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde::Deserialize;
use walkdir::{DirEntry, WalkDir};

use crate::wire::Document;

const DOCUMENT_BYTES: usize = 4 << 10;
const FILE_BYTES: u64 = 1 << 20;
/// Bounds the length of the example, whatever directory it is given.
const CORPUS_BYTES: usize = 6 << 20;
/// So that the largest dependency is not all there is to read.
const PACKAGE_BYTES: usize = 128 << 10;
/// With fewer documents every tenant posts all of them.
const DOCUMENTS_WORTH_SHARING: usize = 60;

#[derive(Default)]
pub struct Corpus {
    documents: Vec<Document>,
    bytes: usize,
    origin: String,
}

impl fmt::Display for Corpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = indicatif::HumanBytes(self.bytes as u64);
        let count = self.documents.len();
        write!(f, "{size} of text in {count} documents: {}", self.origin)
    }
}

impl Corpus {
    /// All text files below `directory`.
    pub fn of_directory(directory: &Path) -> Result<Corpus, Box<dyn Error>> {
        let mut corpus = Corpus { origin: directory.display().to_string(), ..Corpus::default() };
        corpus.read_directory(directory, "", CORPUS_BYTES)?;
        corpus.not_empty()
    }

    /// This repository's sources, lock file and documentation, what `cargo metadata` says about
    /// it, and the sources of the packages that it names.
    pub fn of_this_repository() -> Result<Corpus, Box<dyn Error>> {
        let root =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let mut corpus = Corpus::default();
        corpus.read_directory(&root, "", CORPUS_BYTES)?;
        corpus.origin = "this repository".to_string();

        // Whoever runs the program without cargo at hand has the repository's own text.
        if let Some(json) = cargo_metadata(&root) {
            let room = CORPUS_BYTES.saturating_sub(corpus.bytes);
            corpus.cut("cargo metadata", &json[..boundary(&json, room)]);
            corpus.origin += ", cargo metadata";
            let metadata: Metadata = serde_json::from_str(&json)?;
            let mut packages = 0;
            for package in metadata.packages {
                let Some(directory) = package.manifest_path.parent() else {
                    continue;
                };
                if directory.starts_with(&root) {
                    continue;
                }
                let room = PACKAGE_BYTES.min(CORPUS_BYTES.saturating_sub(corpus.bytes));
                if room == 0 {
                    break;
                }
                // Cargo unpacks only what the build needs; the others have no sources to read.
                if corpus.read_directory(directory, &package.name, room).is_ok() {
                    packages += 1;
                }
            }
            if packages > 0 {
                corpus.origin += &format!(", {packages} dependencies");
            }
        }
        corpus.not_empty()
    }

    /// Every `of`-th document, from `number` on: or all of them, when there are few.
    pub fn share(&self, number: usize, of: usize) -> Arc<[Document]> {
        if self.documents.len() < DOCUMENTS_WORTH_SHARING {
            return self.documents.clone().into();
        }
        let mine = self.documents.iter().skip(number).step_by(of);
        mine.cloned().collect()
    }

    fn not_empty(self) -> Result<Corpus, Box<dyn Error>> {
        if self.documents.is_empty() {
            return Err(format!("no text found in {}", self.origin).into());
        }
        Ok(self)
    }

    /// Takes text files below `directory` until `room` bytes have been read. A file that cannot
    /// be read or is not UTF-8 is passed over; a directory that cannot be read is an error.
    fn read_directory(&mut self, directory: &Path, prefix: &str, room: usize) -> Result<(), Box<dyn Error>> {
        fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let enough = self.bytes + room;
        let files = WalkDir::new(directory)
            .sort_by_file_name()
            .into_iter()
            .filter_entry(is_source)
            .flatten()
            .filter(|entry| entry.file_type().is_file());
        for file in files {
            if self.bytes >= enough {
                break;
            }
            if file.metadata().map_or(true, |m| m.len() > FILE_BYTES) {
                continue;
            }
            let Ok(text) = fs::read_to_string(file.path()) else {
                continue;
            };
            let path = file.path().strip_prefix(directory).unwrap_or(file.path());
            let title = Path::new(prefix).join(path).display().to_string();
            self.cut(&title, &text[..boundary(&text, enough - self.bytes)]);
        }
        Ok(())
    }

    /// Cuts text into documents, each ending at a line's or at least a word's end.
    fn cut(&mut self, title: &str, mut text: &str) {
        let mut part = 1;
        while !text.is_empty() {
            let most = boundary(text, DOCUMENT_BYTES);
            let at = match &text[..most] {
                all if all.len() == text.len() => most,
                head => match head.rfind('\n').or_else(|| head.rfind([' ', ','])) {
                    Some(end) => end + 1,
                    None => most,
                },
            };
            let (document, rest) = text.split_at(at);
            self.bytes += document.len();
            self.documents.push(Document {
                id: format!("{title}#{part}"),
                title: title.to_string(),
                text: document.to_string(),
            });
            part += 1;
            text = rest;
        }
    }
}

/// The longest prefix of at most `most` bytes that ends between two characters; never empty
/// unless `text` is or `most` is less than a character.
fn boundary(text: &str, most: usize) -> usize {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// Neither hidden (`.git`) nor made by a build.
fn is_source(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    entry.depth() == 0 || !(name.starts_with('.') || name == "target")
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

/// Offline, so that it is fast and works everywhere. A machine that has built only what it needed
/// lacks packages of other platforms and other workspace members: then without dependencies.
fn cargo_metadata(root: &Path) -> Option<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ask = |arguments: &[&str]| {
        let output = Command::new(&cargo).args(arguments).current_dir(root).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then_some(text)
    };
    let version = ask(&["-vV"])?;
    let host = version.lines().find_map(|l| l.strip_prefix("host: "))?;
    let metadata = ["metadata", "--offline", "--format-version=1"];
    ask(&[&metadata[..], &["--filter-platform", host]].concat())
        .or_else(|| ask(&[&metadata[..], &["--no-deps"]].concat()))
}
