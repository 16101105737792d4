//! What the benches share: the allocators that are compared, the loops that are timed, and the reports.
//!
//! A [`Workload`] is one loop; a [`Cell`] is one workload for each [`Contestant`]; a bench target makes cells, groups
//! them, and hands them to [`bench::run`], which times them in interleaved rounds and prints the tables.

pub mod args;
pub mod bars;
pub mod bench;
pub mod cell;
pub mod contestant;
pub mod helper;
pub mod machine;
pub mod modes;
pub mod random;
pub mod report;
pub mod rounds;
pub mod shim;
pub mod summary;
pub mod tenants;
pub mod workload;

pub use bars::Bar;
pub use cell::Cell;
pub use contestant::{Contestant, Counted, Jemalloc, Mimalloc, Ours, System};
pub use workload::Workload;
