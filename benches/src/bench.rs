//! What a bench target does with its cells.

use std::error::Error;
use std::fs;

use crate::args::Args;
use crate::bars::{self, Bar};
use crate::helper;
use crate::report::{self, chart, table, tsv};
use crate::rounds::{measure, Row};
use crate::{machine, Cell};

/// Counted rounds of a cell.
pub const ROUNDS: usize = 61;
/// With `--quick`.
pub const QUICK_ROUNDS: usize = 7;

/// With less, two threads took turns, and what is measured is the scheduler.
const ENOUGH_CPUS: f64 = 1.5;

/// Times the cells that are asked for and prints the tables, or has Criterion do it. Cells in the order of their groups.
///
/// # Panics
/// allotment's accounts are wrong afterwards.
///
/// # Errors
/// A report cannot be written.
pub fn run(name: &str, args: &Args, mut cells: Vec<Cell>, bars: &[Bar]) -> Result<(), Box<dyn Error>> {
    cells.retain(|cell| format!("{}: {}", cell.group, cell.name).contains(&args.filter));
    let rounds = if args.quick { QUICK_ROUNDS } else { ROUNDS };
    println!("{name}\n{}", machine::describe());
    if args.criterion {
        report::criterion::run(cells);
    } else {
        println!("medians of {rounds} interleaved rounds, nanoseconds for one operation");
        let load = machine::load();
        let rows: Vec<Row> = cells.into_iter().map(|cell| measure(cell, rounds)).collect();
        for group in rows.chunk_by(|a, b| a.group == b.group) {
            println!("\n{}\n{}", group[0].group, table::group(&group.iter().collect::<Vec<_>>()));
        }
        println!("\nload average {load} before, {} after", machine::load());
        if let Some(cpus) = helper::cpus_had() {
            let warning = if cpus < ENOUGH_CPUS { ": DO NOT USE the two-thread figures" } else { "" };
            println!("two threads had {cpus:.2} CPUs on average{warning}");
        }
        println!("\n{}\n", bars::worst_cells(&rows));
        if args.filter.is_empty() {
            println!("{}", bars::table(bars, &rows));
        } else {
            println!("the bars are for all cells: none with a filter");
        }
        let directory = report::directory()?;
        fs::write(directory.join(format!("{name}.tsv")), tsv::text(&rows))?;
        chart::draw(&directory.join(format!("{name}.svg")), name, &rows)?;
        println!("\nwritten: {name}.tsv and {name}.svg in {}", directory.display());
    }
    println!("{}", allotment::verify().expect("the accounts are exact"));
    Ok(())
}
