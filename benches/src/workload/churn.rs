//! Threads that live for a few allocations.

use std::thread;
use std::time::{Duration, Instant};

use super::Workload;
use crate::{shim, Contestant};

/// The most objects a thread allocates.
const MOST: usize = 256;

/// Who frees what a thread has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedBy {
    /// The thread itself, before it ends.
    Itself,
    /// Its parent, after it has ended.
    Parent,
}

/// Threads are spawned and joined, `at_once` of them at a time. An operation is one thread.
#[derive(Clone, Debug)]
pub struct Churn {
    /// Objects that each allocates, of 16 to 1,024 bytes.
    pub objects: usize,
    /// Who frees them.
    pub freed_by: FreedBy,
    /// Threads that live together.
    pub at_once: usize,
    /// How often so many are started.
    pub times: u64,
}

/// What a thread hands to its parent.
struct Objects(Vec<*mut u8>);

// SAFETY: objects of a `GlobalAlloc` may be used and freed by any thread; these have one owner at a time.
unsafe impl Send for Objects {}

fn size(index: usize) -> usize {
    16 << (index % 7)
}

fn release_all<A: Contestant>(objects: &mut Objects) {
    for (index, object) in objects.0.drain(..).enumerate() {
        // SAFETY: the object with that index has that size; it is forgotten.
        unsafe { shim::release::<A>(object, size(index)) };
    }
}

impl Churn {
    /// What each thread does, with a buffer that the parent made.
    #[inline(never)]
    fn thread<A: Contestant>(&self, mut objects: Objects) -> Objects {
        A::in_scope(|| {
            for index in 0..self.objects {
                // SAFETY: no size is 0.
                objects.0.push(unsafe { shim::obtain::<A>(size(index)) });
            }
            if self.freed_by == FreedBy::Itself {
                release_all::<A>(&mut objects);
            }
        });
        objects
    }

    #[inline(never)]
    fn threads<A: Contestant>(&self, buffers: &mut Vec<Objects>) {
        thread::scope(|scope| {
            let threads: Vec<_> =
                buffers.drain(..).map(|objects| scope.spawn(move || self.thread::<A>(objects))).collect();
            buffers.extend(threads.into_iter().map(|thread| thread.join().expect("a thread")));
        });
        buffers.iter_mut().for_each(release_all::<A>);
    }
}

impl Workload for Churn {
    fn operations(&self) -> u64 {
        self.at_once as u64 * self.times
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        assert!(self.objects <= MOST);
        let mut buffers: Vec<Objects> = (0..self.at_once).map(|_| Objects(Vec::with_capacity(MOST))).collect();
        self.threads::<A>(&mut buffers);
        let start = Instant::now();
        for _ in 0..self.times {
            self.threads::<A>(&mut buffers);
        }
        start.elapsed()
    }
}
