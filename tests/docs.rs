//! What the documents say of the repository is so: every file they name exists, and the README holds the two commands
//! that the gate runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between backticks and looks like a path: a known folder in front, or a known ending.
fn paths_in(text: &str) -> BTreeSet<String> {
    let folders =
        ["src/", "heap/", "charge/", "percpu/", "tenant/", "life/", "tests/", "examples/", "ci/", "loom-tests/"];
    let endings = [".rs", ".md", ".toml", ".sh", ".txt"];
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| !word.contains(char::is_whitespace))
        .filter(|word| endings.iter().any(|ending| word.ends_with(ending)))
        .filter(|word| folders.iter().any(|folder| word.starts_with(folder)) || !word.contains('/'))
        .map(str::to_owned)
        .collect()
}

/// As named, or below `src` (modules name each other from there), or beside the file that names it.
fn exists(named: &str, by: &str) -> bool {
    let beside = Path::new(by).parent().unwrap_or(Path::new(""));
    [PathBuf::from(named), Path::new("src").join(named), beside.join(named)]
        .iter()
        .any(|path| root().join(path).exists())
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = folder.join(entry.unwrap().file_name());
        if root().join(&path).is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path.to_str().unwrap().to_owned());
        }
    }
}

#[test]
fn every_file_that_documents_name_exists() {
    let mut documents = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned(), "loom-tests/README.md".to_owned()];
    sources(Path::new("src"), &mut documents);
    let mut named = 0;
    for document in &documents {
        // Code fences would turn the backticks' order round.
        let text = read(document).replace("```", "");
        for path in paths_in(&text) {
            named += 1;
            assert!(exists(&path, document), "{document} names {path}, which does not exist");
        }
    }
    assert!(named > 50, "only {named} paths found: the search is broken");
}

#[test]
fn both_paths_name_their_files_in_order() {
    for (document, least) in [("src/heap.rs", 10), ("src/charge.rs", 6), ("src/lib.rs", 10)] {
        assert!(paths_in(&read(document).replace("```", "")).len() >= least, "{document} does not tell its path");
    }
}

#[test]
fn the_readme_has_exactly_two_commands_and_the_gate_runs_them() {
    let readme = read("README.md");
    let commands: Vec<&str> =
        readme.split("```sh\n").skip(1).flat_map(|block| block.split("```").next().unwrap().lines()).collect();
    assert_eq!(commands, ["cargo run --release --example noisy_neighbour", "cargo test"]);
    let gate = read(".ci/run");
    assert!(gate.lines().any(|line| line == "cargo test"), "the gate does not run the README's test command");
    assert!(read("ci/examples.sh").contains("noisy_neighbour"), "the gate does not run the README's example");
}

#[test]
fn every_gate_is_called() {
    let run = read(".ci/run");
    for entry in std::fs::read_dir(root().join("ci")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // A table is its script's, by name.
        let gate = name.strip_suffix(".sh").or(name.strip_suffix(".tsv"));
        let gate = gate.unwrap_or_else(|| panic!("ci/{name} is neither a script nor a table"));
        assert!(root().join(format!("ci/{gate}.sh")).exists(), "ci/{name} belongs to no script");
        let named = run.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == gate);
        assert!(named, ".ci/run does not call ci/{name}");
    }
}
