//! Interleaved rounds: in each, every allocator of a cell runs once, and each round another one begins. What slows the
//! machine for a while slows all of them.

use crate::summary::Summary;
use crate::Cell;

/// A cell's figures.
#[derive(Debug)]
pub struct Row {
    /// The table it is in.
    pub group: &'static str,
    /// Its name there.
    pub name: String,
    /// How many operations one repetition timed.
    pub operations: u64,
    /// How many repetitions each allocator had.
    pub rounds: usize,
    /// The allocators in the order of their columns, with their times.
    pub times: Vec<(&'static str, Summary)>,
}

impl Row {
    /// The median of one allocator, in nanoseconds for an operation.
    pub fn median(&self, allocator: &str) -> Option<f64> {
        self.times.iter().find(|(name, _)| *name == allocator).map(|(_, times)| times.median)
    }

    /// Our median by another's.
    pub fn ratio(&self, allocator: &str) -> Option<f64> {
        Some(self.median("allotment")? / self.median(allocator)?)
    }
}

/// Times a cell. One round more than asked for is run first and not counted.
pub fn measure(mut cell: Cell, rounds: usize) -> Row {
    let count = cell.entries.len();
    let mut times: Vec<Vec<f64>> = vec![Vec::with_capacity(rounds); count];
    for round in 0..=rounds {
        for turn in 0..count {
            let entry = (round + turn) % count;
            let time = (cell.entries[entry].repeat)();
            if round > 0 {
                times[entry].push(time.as_nanos() as f64 / cell.operations as f64);
            }
        }
    }
    let times = cell.entries.iter().zip(times).map(|(entry, times)| (entry.allocator, Summary::of(times))).collect();
    Row { group: cell.group, name: cell.name, operations: cell.operations, rounds, times }
}
