//! Memory that must be zero, although it was used before.

use std::hint::black_box;
use std::time::Duration;

use super::{timed, Workload};
use crate::{shim, Contestant};

/// `alloc_zeroed`, then the object is written at both ends and freed.
#[derive(Clone, Debug)]
pub struct Zeroed {
    /// The object's size.
    pub size: usize,
    /// Pairs timed in one repetition.
    pub pairs: u64,
}

#[inline(never)]
fn pairs<A: Contestant>(size: usize, pairs: u64) {
    for _ in 0..pairs {
        // SAFETY: no size is 0; both bytes are the object's; it is freed once.
        unsafe {
            let object = black_box(shim::alloc_zeroed::<A>(size, shim::ALIGN));
            assert!(!object.is_null());
            object.write(1);
            object.add(size - 1).write(1);
            shim::release::<A>(object, size);
        }
    }
}

impl Workload for Zeroed {
    fn operations(&self) -> u64 {
        self.pairs
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        timed(self.pairs, |count| pairs::<A>(self.size, count))
    }
}
