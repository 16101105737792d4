//! What becomes of the figures: tables on the terminal, a chart and a file of tab-separated values, or Criterion's report.

pub mod chart;
pub mod criterion;
pub mod table;
pub mod tsv;

use std::fs;
use std::io;
use std::path::PathBuf;

/// `target/allotment-bench`, wherever the target directory is.
///
/// # Errors
/// It cannot be made.
pub fn directory() -> io::Result<PathBuf> {
    // target/release/deps/bench-hash
    let program = std::env::current_exe()?;
    let target =
        program.ancestors().nth(3).ok_or_else(|| io::Error::other("the bench is not in a target directory"))?;
    let directory = target.join("allotment-bench");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}
