//! A byte vector grows by doubling.

use std::time::{Duration, Instant};

use super::Workload;
use crate::{shim, Contestant};

const FIRST: usize = 8;
const LAST: usize = 1 << 20;
/// What a program has written since the last growth is one byte for each page at least.
const PAGE: usize = 4096;

/// From 8 bytes to 1 MiB, each step through `realloc`, its new half written; then freed. An operation is a whole
/// vector.
#[derive(Clone, Debug)]
pub struct Growth {
    /// Vectors in one repetition.
    pub vectors: u64,
}

#[inline(never)]
fn grow<A: Contestant>() {
    // SAFETY: no size is 0; each step passes on the object and the size of the step before; what is written is its own.
    unsafe {
        let mut size = FIRST;
        let mut bytes = shim::obtain::<A>(size);
        while size < LAST {
            bytes = shim::realloc::<A>(bytes, size, shim::ALIGN, 2 * size);
            assert!(!bytes.is_null());
            for offset in (size..2 * size).step_by(PAGE) {
                bytes.add(offset).write(1);
            }
            size *= 2;
        }
        shim::release::<A>(bytes, size);
    }
}

impl Workload for Growth {
    fn operations(&self) -> u64 {
        self.vectors
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        grow::<A>();
        let start = Instant::now();
        for _ in 0..self.vectors {
            grow::<A>();
        }
        start.elapsed()
    }
}
