//! One line of a table: a workload, and every allocator that runs it.

use std::time::Duration;

#[cfg(feature = "snmalloc")]
use crate::contestant::Snmalloc;
use crate::{Contestant, Jemalloc, Mimalloc, Ours, System, Workload};

/// One allocator in a cell.
pub struct Entry {
    /// The allocator.
    pub allocator: &'static str,
    /// Runs the workload once and times it.
    pub repeat: Box<dyn FnMut() -> Duration>,
}

/// A workload for several allocators.
pub struct Cell {
    /// The table it is in.
    pub group: &'static str,
    /// Its name there.
    pub name: String,
    /// How many operations one repetition times.
    pub operations: u64,
    /// The allocators that run it.
    pub entries: Vec<Entry>,
}

impl Cell {
    /// A cell that nobody runs yet.
    pub fn empty(group: &'static str, name: impl ToString) -> Self {
        Cell { group, name: name.to_string(), operations: 1, entries: Vec::new() }
    }

    /// A workload for all: ours three levels deep, and the peers.
    pub fn of_all<W: Workload>(group: &'static str, name: impl ToString, workload: impl Fn() -> W) -> Self {
        Cell::empty(group, name).with::<Ours<3>, W>(workload()).with_peers(workload)
    }

    /// One more allocator, with a workload of its own.
    pub fn with<A: Contestant, W: Workload>(mut self, mut workload: W) -> Self {
        self.operations = workload.operations();
        let repeat = Box::new(move || A::in_scope(|| workload.repeat::<A>()));
        self.entries.push(Entry { allocator: A::NAME, repeat });
        self
    }

    /// The allocators that account for nothing.
    pub fn with_peers<W: Workload>(self, workload: impl Fn() -> W) -> Self {
        let cell = self.with::<Mimalloc, W>(workload()).with::<Jemalloc, W>(workload());
        #[cfg(feature = "snmalloc")]
        let cell = cell.with::<Snmalloc, W>(workload());
        cell.with::<System, W>(workload())
    }
}
