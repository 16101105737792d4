//! Short bursts of mixed sizes, as a request makes them, with warm caches or after other work has used the caches.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::Workload;
use crate::machine::cache_bytes;
use crate::random::Random;
use crate::{shim, Contestant};

/// Objects in one burst.
const BURST: usize = 64;
const SIZES: std::ops::RangeInclusive<usize> = 16..=1_040;

/// What happens to the data caches between two bursts, outside the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Nothing.
    Nothing,
    /// Twice the size of the first level is written.
    L1,
    /// Twice the size of the second level is written.
    L2,
}

/// Bursts of mixed sizes, freed in random order. An operation is an allocation and a free.
#[derive(Clone, Debug)]
pub struct Mixed {
    /// Sizes of the bursts, one after the other.
    sizes: Vec<[usize; BURST]>,
    order: [usize; BURST],
    objects: [*mut u8; BURST],
    swept: Vec<u64>,
    bursts: usize,
}

impl Mixed {
    /// `bursts` of them.
    pub fn new(sweep: Sweep, bursts: usize) -> Self {
        let mut random = Random::new(2);
        let size = |_| SIZES.start() + random.below(SIZES.end() - SIZES.start() + 1);
        let flat: Vec<usize> = (0..16 * BURST).map(size).collect();
        let sizes = flat.chunks_exact(BURST).map(|burst| burst.try_into().expect("a whole burst")).collect();
        let mut order: [usize; BURST] = std::array::from_fn(|index| index);
        Random::new(3).shuffle(&mut order);
        let swept = match sweep {
            Sweep::Nothing => 0,
            Sweep::L1 => 2 * cache_bytes(1),
            Sweep::L2 => 2 * cache_bytes(2),
        };
        Mixed { sizes, order, objects: [std::ptr::null_mut(); BURST], swept: vec![0; swept / 8], bursts }
    }

    #[inline(never)]
    fn burst<A: Contestant>(&mut self, number: usize) {
        let sizes = &self.sizes[number % self.sizes.len()];
        for (object, &size) in self.objects.iter_mut().zip(sizes) {
            // SAFETY: no size is 0.
            *object = unsafe { shim::obtain::<A>(size) };
        }
        for &index in &self.order {
            // SAFETY: the order names each object once.
            unsafe { shim::release::<A>(self.objects[index], sizes[index]) };
        }
    }

    /// Writes one word in each line of 64 bytes.
    fn sweep(&mut self) {
        self.swept.iter_mut().step_by(8).for_each(|word| *word = word.wrapping_add(1));
        black_box(&mut self.swept);
    }
}

impl Workload for Mixed {
    fn operations(&self) -> u64 {
        (self.bursts * BURST) as u64
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        for number in 0..self.bursts / 20 + 1 {
            self.burst::<A>(number);
        }
        // With nothing to sweep the clock would be the only difference between bursts; it is read as often all the same.
        let mut time = Duration::ZERO;
        for number in 0..self.bursts {
            self.sweep();
            let start = Instant::now();
            self.burst::<A>(number);
            time += start.elapsed();
        }
        time
    }
}
