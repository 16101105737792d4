//! Threads that live for a few allocations: what their start and end cost with each allocator.

use std::error::Error;

use allotment_benches::args::Args;
use allotment_benches::workload::{Churn, FreedBy};
use allotment_benches::{bars, bench, Cell};

const ITSELF: &str = "spawn + join, the thread frees its objects";
const PARENT: &str = "spawn + join, the parent frees its objects";

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let churn = |objects, freed_by, at_once, times| move || Churn { objects, freed_by, at_once, times };
    // Nothing is allocated: how far equal things differ here.
    cells.push(Cell::of_all(ITSELF, "no object", churn(0, FreedBy::Itself, 1, 100)));
    cells.push(Cell::of_all(ITSELF, "8 objects", churn(8, FreedBy::Itself, 1, 100)));
    cells.push(Cell::of_all(ITSELF, "256 objects", churn(256, FreedBy::Itself, 1, 100)));
    cells.push(Cell::of_all(ITSELF, "8 objects, 16 threads at once", churn(8, FreedBy::Itself, 16, 6)));
    cells.push(Cell::of_all(PARENT, "8 objects", churn(8, FreedBy::Parent, 1, 100)));
    cells.push(Cell::of_all(PARENT, "256 objects", churn(256, FreedBy::Parent, 1, 100)));
    cells
}

fn main() -> Result<(), Box<dyn Error>> {
    bench::run("thread_churn", &Args::parse(), cells(), &[bars::WORST])
}
