//! Two threads replace random objects of one shared table, as in Larson and Krishnan's benchmark: each frees what either
//! has allocated.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::Workload;
use crate::helper::together;
use crate::random::Random;
use crate::{shim, Contestant};

/// Live objects.
const OBJECTS: usize = 4_096;

struct Slot {
    /// Of every object that is ever here.
    size: usize,
    object: AtomicPtr<u8>,
}

/// Replacements in a table of objects of 16 to 1,024 bytes. An operation is a replacement by one of the threads.
pub struct Larson {
    table: Arc<[Slot]>,
    replacements: usize,
}

impl Larson {
    /// That many replacements by each thread.
    pub fn new(replacements: usize) -> Self {
        let mut random = Random::new(4);
        let slot = |_| Slot { size: 16 + random.below(1_009), object: AtomicPtr::new(ptr::null_mut()) };
        Larson { table: (0..OBJECTS).map(slot).collect(), replacements }
    }
}

/// Acquire and release hand over the object with its slot.
fn put<A: Contestant>(slot: &Slot, object: *mut u8) {
    let old = slot.object.swap(object, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: the swap made it ours alone; the slot says its size.
        unsafe { shim::release::<A>(old, slot.size) };
    }
}

#[inline(never)]
fn replace<A: Contestant>(table: &[Slot], replacements: usize, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..replacements {
        let slot = &table[random.below(table.len())];
        // SAFETY: no size is 0.
        put::<A>(slot, unsafe { shim::obtain::<A>(slot.size) });
    }
}

impl Workload for Larson {
    fn operations(&self) -> u64 {
        self.replacements as u64
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        let &mut Larson { ref table, replacements } = self;
        // Fills the table.
        for slot in table.iter() {
            // SAFETY: no size is 0.
            put::<A>(slot, unsafe { shim::obtain::<A>(slot.size) });
        }
        let run = |replacements| {
            let theirs = Arc::clone(table);
            let there = move || A::in_scope(|| replace::<A>(&theirs, replacements, 5));
            together(there, || replace::<A>(table, replacements, 6))
        };
        run(replacements / 10);
        let time = run(replacements);
        table.iter().for_each(|slot| put::<A>(slot, ptr::null_mut()));
        time
    }
}
