//! A tenant at its limit. Peers have none.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::time::{Duration, Instant};

use allotment::{fallible, Allotment, Tenant};

use super::{Pair, Workload};
use crate::tenants::{at_depth, limited};
use crate::Contestant;

const SIZE: usize = 64;
const MAX: usize = 1 << 20;

fn layout() -> Layout {
    Layout::new::<[u64; SIZE / 8]>()
}

/// A tenant three levels deep, and the objects that fill it.
struct Full {
    tenant: Tenant,
    objects: Vec<*mut u8>,
}

impl Full {
    fn new() -> Self {
        let tenant = limited("full", Some(at_depth(2)), MAX);
        let mut objects = Vec::with_capacity(MAX / SIZE);
        tenant.in_scope(|| {
            fallible(|| loop {
                // SAFETY: the size is not 0.
                let object = unsafe { Allotment.alloc(layout()) };
                if object.is_null() {
                    break;
                }
                assert!(objects.len() < objects.capacity(), "the limit holds");
                objects.push(object);
            });
        });
        Full { tenant, objects }
    }

    fn free_one(&mut self) {
        let object = self.objects.pop().expect("a full tenant has objects");
        // SAFETY: it came from here with this layout and is forgotten.
        unsafe { Allotment.dealloc(object, layout()) };
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        while !self.objects.is_empty() {
            self.free_one();
        }
    }
}

/// An allocation that the limit refuses: null, inside `fallible`. An operation is one attempt.
pub struct Refusal {
    /// Attempts in one repetition.
    pub attempts: u64,
}

impl Workload for Refusal {
    fn operations(&self) -> u64 {
        self.attempts
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        let full = Full::new();
        full.tenant.in_scope(|| {
            fallible(|| {
                let start = Instant::now();
                for _ in 0..self.attempts {
                    // SAFETY: the size is not 0.
                    assert!(black_box(unsafe { Allotment.alloc(layout()) }).is_null());
                }
                start.elapsed()
            })
        })
    }
}

/// Pairs of a tenant that has room for two objects more. For peers it is the plain pair.
pub struct BelowLimit {
    /// The pairs; their objects are those that fill the tenant.
    pairs: Pair,
}

impl BelowLimit {
    /// That many pairs.
    pub fn new(pairs: u64) -> Self {
        BelowLimit { pairs: Pair { size: SIZE, pairs } }
    }
}

impl Workload for BelowLimit {
    fn operations(&self) -> u64 {
        self.pairs.pairs
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        if A::NAME != "allotment" {
            return self.pairs.repeat::<A>();
        }
        let mut full = Full::new();
        full.free_one();
        full.free_one();
        let time = full.tenant.in_scope(|| self.pairs.repeat::<A>());
        assert!(!full.tenant.is_stopped(), "there was room");
        time
    }
}
