//! An object is allocated and freed at once.

use std::time::Duration;

use super::{timed, Workload};
use crate::helper::together;
use crate::{shim, Contestant};

/// One size, one thread.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The object's size.
    pub size: usize,
    /// Pairs timed in one repetition.
    pub pairs: u64,
}

/// Not inlined, so that its code is the same for every allocator and every user.
#[inline(never)]
fn pairs<A: Contestant>(size: usize, pairs: u64) {
    for _ in 0..pairs {
        // SAFETY: no size is 0; the object is freed once.
        unsafe {
            let object = shim::obtain::<A>(size);
            shim::release::<A>(object, size);
        }
    }
}

impl Workload for Pair {
    fn operations(&self) -> u64 {
        self.pairs
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        timed(self.pairs, |count| pairs::<A>(self.size, count))
    }
}

/// The same on two threads at once, for one tenant. The time is that of a pair on one of them.
#[derive(Clone, Debug)]
pub struct PairOnTwoThreads(
    /// What each does.
    pub Pair,
);

impl Workload for PairOnTwoThreads {
    fn operations(&self) -> u64 {
        self.0.pairs
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        let Pair { size, pairs: count } = self.0;
        pairs::<A>(size, count / 20);
        together(move || A::in_scope(|| pairs::<A>(size, count)), || pairs::<A>(size, count))
    }
}
