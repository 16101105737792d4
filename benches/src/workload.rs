//! The loops that are timed.
//!
//! Every allocator gets a copy of the same loop, compiled for it, in a function of its own. A workload keeps its tables
//! on the system's heap and prepares them outside the time.

mod burst;
mod churn;
mod growth;
mod hand_over;
mod interleaved;
mod larson;
mod limit;
mod mixed;
mod pair;
mod scope;
mod zeroed;

use std::time::{Duration, Instant};

use crate::Contestant;

pub use burst::{Burst, FreeOrder};
pub use churn::{Churn, FreedBy};
pub use growth::Growth;
pub use hand_over::HandOver;
pub use interleaved::Interleaved;
pub use larson::Larson;
pub use limit::{BelowLimit, Refusal};
pub use mixed::{Mixed, Sweep};
pub use pair::{Pair, PairOnTwoThreads};
pub use scope::ScopeSwitch;
pub use zeroed::Zeroed;

/// Something to time. What one repetition allocates it frees before it returns.
pub trait Workload: 'static {
    /// How many operations one repetition times.
    fn operations(&self) -> u64;

    /// One repetition: the time of all its operations.
    fn repeat<A: Contestant>(&mut self) -> Duration;
}

/// The time of so many operations, after a twentieth of them to warm up.
fn timed(operations: u64, run: impl Fn(u64)) -> Duration {
    run(operations / 20);
    let start = Instant::now();
    run(operations);
    start.elapsed()
}
