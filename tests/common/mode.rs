//! A case in a child process of its own, in a mode of entering CPU slots.

#![allow(dead_code)] // each test binary uses a part

use std::time::Duration;

use crate::case::CASE;
use crate::common::run_child;

/// All there are.
pub const MODES: [&str; 3] = ["rseq", "threads", "locked"];

/// Runs the test named `test` in a child with that environment, and demands that it passes in time; what it printed.
/// The test's body must ask `is_child` first.
pub fn child_with(test: &str, env: &[(&str, &str)], seconds: u64) -> String {
    let mut all = vec![(CASE, "1"), ("RUST_BACKTRACE", "0"), ("MALLOC_ARENA_MAX", "1")];
    all.extend(env);
    let child = run_child(test, &all, Duration::from_secs(seconds));
    let passed = child.status.is_some_and(|status| status.success()) && child.stdout.contains("1 passed");
    assert!(passed, "{test} with {env:?}: {:?}\n{}\n{}", child.status, child.stdout, child.stderr);
    child.stdout
}

/// [`child_with`] in each mode.
pub fn in_each_mode(test: &str, seconds: u64) -> Vec<String> {
    MODES.iter().map(|mode| child_with(test, &[("ALLOTMENT_MODE", mode)], seconds)).collect()
}

/// In such a child: demands that the mode is the one asked for.
pub fn as_asked() {
    assert_eq!(allotment::stats().mode, std::env::var("ALLOTMENT_MODE").unwrap_or_default());
}
