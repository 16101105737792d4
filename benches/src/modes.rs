//! allotment's modes against each other. A process has one mode, so the bench starts itself once more for each.

use std::env;
use std::error::Error;
use std::process::Command;

use crate::args::Args;
use crate::report::table::{markdown, time};
use crate::rounds::measure;
use crate::summary::Summary;
use crate::Cell;

const MODES: [&str; 3] = ["rseq", "threads", "locked"];
/// Each mode's process runs so often, in turn with the others'.
const PASSES: usize = 3;
/// Rounds in one process.
const ROUNDS: usize = 7;

/// The work of the process that [`compare`] starts: prints the mode it got, then a line for each cell.
pub fn report(cells: Vec<Cell>) {
    println!("{}", allotment::stats().mode);
    for cell in cells {
        let row = measure(cell, ROUNDS);
        println!("{}: {}\t{}", row.group, row.name, row.median("allotment").unwrap_or(f64::NAN));
    }
    allotment::verify().expect("the accounts are exact");
}

/// What one process printed: its mode, then names and times.
type Report = (String, Vec<(String, f64)>);

fn start(mode: &str) -> Result<Report, Box<dyn Error>> {
    let output = Command::new(env::current_exe()?).arg("--mode-cells").env("ALLOTMENT_MODE", mode).output()?;
    if !output.status.success() {
        return Err(format!("mode {mode}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut lines = text.lines();
    let got = lines.next().ok_or("no mode was reported")?.to_owned();
    let cell = |line: &str| {
        let (name, time) = line.split_once('\t').ok_or("a line without a time")?;
        Ok::<_, Box<dyn Error>>((name.to_owned(), time.parse()?))
    };
    Ok((got, lines.map(cell).collect::<Result<_, _>>()?))
}

/// Runs a process in each mode and prints a table: the median over its passes of each one's medians.
///
/// # Errors
/// A process cannot be started, or fails.
pub fn compare(args: &Args) -> Result<(), Box<dyn Error>> {
    if args.criterion || !args.filter.is_empty() {
        return Ok(());
    }
    let passes = if args.quick { 1 } else { PASSES };
    let mut reports: [Vec<Report>; MODES.len()] = Default::default();
    for _ in 0..passes {
        for (mode, reports) in MODES.iter().zip(&mut reports) {
            reports.push(start(mode)?);
        }
    }
    let mut head = vec![format!("ns, modes ({passes} processes each)")];
    for (mode, reports) in MODES.iter().zip(&reports) {
        let got = &reports[0].0;
        // Where the system lacks it, a process runs in another mode than it was told.
        head.push(if got == mode { got.clone() } else { format!("{mode}: not available, ran {got}") });
    }
    let names = reports[0][0].1.iter().map(|(name, _)| name);
    let lines = names.enumerate().map(|(cell, name)| {
        let mut line = vec![name.clone()];
        line.extend(reports.iter().map(|of_mode| {
            let times = of_mode.iter().map(|report| report.1[cell].1).collect();
            time(Summary::of(times).median)
        }));
        line
    });
    println!("\nallotment's modes\n{}", markdown(head, lines));
    Ok(())
}
