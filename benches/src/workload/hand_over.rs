//! One thread allocates, the other frees.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;

use super::Workload;
use crate::helper::{together, wait_until};
use crate::{shim, Contestant};

/// Objects handed over at once, so that the queue costs little for each.
const BATCH: usize = 64;
/// Batches under way at most.
const DEPTH: usize = 16;

struct Batch([*mut u8; BATCH]);

// SAFETY: objects of a `GlobalAlloc` may be used and freed by any thread; a batch has one owner at a time.
unsafe impl Send for Batch {}

/// A producer and a consumer. The queue's memory is the system's, and allocated once. An operation is one object from
/// its allocation to its free.
pub struct HandOver {
    size: usize,
    batches: usize,
    /// Whether the consumer reads what the producer wrote.
    read: bool,
    queue: Arc<ArrayQueue<Batch>>,
}

impl HandOver {
    /// `batches` of 64 objects.
    pub fn new(size: usize, batches: usize, read: bool) -> Self {
        HandOver { size, batches, read, queue: Arc::new(ArrayQueue::new(DEPTH)) }
    }
}

#[inline(never)]
fn produce<A: Contestant>(queue: &ArrayQueue<Batch>, size: usize, batches: usize) {
    for _ in 0..batches {
        // SAFETY: no size is 0.
        let mut batch = Batch(std::array::from_fn(|_| unsafe { shim::obtain::<A>(size) }));
        loop {
            match queue.push(batch) {
                Ok(()) => break,
                Err(full) => batch = full,
            }
            wait_until(|| !queue.is_full());
        }
    }
}

#[inline(never)]
fn consume<A: Contestant>(queue: &ArrayQueue<Batch>, size: usize, batches: usize, read: bool) {
    for _ in 0..batches {
        let batch = loop {
            match queue.pop() {
                Some(batch) => break batch,
                None => wait_until(|| !queue.is_empty()),
            }
        };
        for object in batch.0 {
            // SAFETY: the producer gave it up, with its first byte written and with this size.
            unsafe {
                if read {
                    black_box(object.read());
                }
                shim::release::<A>(object, size);
            }
        }
    }
}

impl Workload for HandOver {
    fn operations(&self) -> u64 {
        (self.batches * BATCH) as u64
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        let &mut HandOver { size, batches, read, ref queue } = self;
        let run = |batches| {
            let theirs = Arc::clone(queue);
            let consumer = move || A::in_scope(|| consume::<A>(&theirs, size, batches, read));
            together(consumer, || produce::<A>(queue, size, batches))
        };
        run(batches / 10);
        run(batches)
    }
}
