//! Many objects of one size are allocated, then all freed.

use std::time::{Duration, Instant};

use super::Workload;
use crate::random::Random;
use crate::{shim, Contestant};

/// The order in which a burst is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeOrder {
    /// As they were allocated.
    Fifo,
    /// At random, the same for every allocator.
    Random,
}

/// A burst of one size. An operation is an allocation and a free.
#[derive(Clone, Debug)]
pub struct Burst {
    size: usize,
    order: Vec<u32>,
    objects: Vec<*mut u8>,
    bursts: u64,
}

impl Burst {
    /// `bursts` of them, of `count` objects each.
    pub fn new(size: usize, count: u32, order: FreeOrder, bursts: u64) -> Self {
        let mut frees: Vec<u32> = (0..count).collect();
        if order == FreeOrder::Random {
            Random::new(1).shuffle(&mut frees);
        }
        Burst { size, order: frees, objects: Vec::with_capacity(count as usize), bursts }
    }

    #[inline(never)]
    fn burst<A: Contestant>(&mut self) {
        for _ in 0..self.order.len() {
            // SAFETY: no size is 0.
            self.objects.push(unsafe { shim::obtain::<A>(self.size) });
        }
        for &index in &self.order {
            // SAFETY: the order names each object once, and all of them are forgotten below.
            unsafe { shim::release::<A>(self.objects[index as usize], self.size) };
        }
        self.objects.clear();
    }
}

impl Workload for Burst {
    fn operations(&self) -> u64 {
        self.bursts * self.order.len() as u64
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        for _ in 0..self.bursts / 20 + 1 {
            self.burst::<A>();
        }
        let start = Instant::now();
        for _ in 0..self.bursts {
            self.burst::<A>();
        }
        start.elapsed()
    }
}
