//! Giving memory back while others allocate and free beside it.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use allotment::{Allotment, Tenant};
use case::{exact, in_child, layout, Object, Rng};

#[global_allocator]
static A: Allotment = Allotment::new();

/// A span that is purged is out of the page heap; its neighbours may be freed and merge meanwhile.
#[test]
fn b08_purging_beside_frees_keeps_every_byte() {
    in_child("b08_purging_beside_frees_keeps_every_byte", 60, || {
        const ROUNDS: usize = 6_000;
        let tenant = Tenant::new("purged").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    allotment::purge();
                }
            });
            let workers: Vec<_> = (1..=3_u64)
                .map(|seed| {
                    let tenant = &tenant;
                    threads.spawn(move || {
                        let mut rng = Rng(seed);
                        let mut held: Vec<Object> = Vec::new();
                        for _ in 0..ROUNDS {
                            if held.len() > 30 || (!held.is_empty() && rng.below(2) == 0) {
                                held.swap_remove(rng.below(held.len()));
                            } else {
                                let size = 65_537 + rng.below(300_000);
                                held.push(tenant.in_scope(|| Object::new(layout(size, 1), seed as u8)).unwrap());
                            }
                        }
                    })
                })
                .collect();
            let failed = workers.into_iter().map(std::thread::ScopedJoinHandle::join).filter(Result::is_err).count();
            done.store(true, Ordering::Relaxed);
            assert_eq!(failed, 0);
        });
        exact(&tenant, 0);
    });
}

/// Buffers of a few MiB come back with their pages while they are warm, up to a bound, and go back to the system when asked.
#[test]
fn freed_mappings_are_cached_within_a_bound() {
    in_child("freed_mappings_are_cached_within_a_bound", 60, || {
        const MIB: usize = 1 << 20;
        let tenant = Tenant::new("buffers").unwrap();
        let mapping = |size: usize| tenant.in_scope(|| std::hint::black_box(vec![7_u8; size]));
        let before = allotment::stats();
        let first = mapping(4 * MIB);
        let place = first.as_ptr();
        drop(first);
        let cached = allotment::stats();
        assert_eq!(cached.free_spans - before.free_spans, 4 * MIB);
        assert_eq!(cached.dirty - before.dirty, 4 * MIB);
        exact(&tenant, 0);
        let again = mapping(4 * MIB - 8192);
        assert!(std::ptr::eq(place, again.as_ptr()), "mapped anew");
        // SAFETY: the layout is not of size 0, and the object is freed with it.
        unsafe {
            use std::alloc::GlobalAlloc;
            drop(again);
            let zeroed = A.alloc_zeroed(layout(4 * MIB, 8));
            assert!(std::ptr::eq(place, zeroed), "mapped anew, so that it is zero anyway");
            assert!(std::slice::from_raw_parts(zeroed, 4 * MIB).iter().all(|&byte| byte == 0), "what was left in it");
            A.dealloc(zeroed, layout(4 * MIB, 8));
        }
        drop((0..10).map(|_| mapping(10 * MIB)).collect::<Vec<_>>());
        drop(mapping(100 * MIB));
        let full = allotment::stats();
        assert!((50 * MIB..=64 * MIB).contains(&(full.free_spans - before.free_spans)), "{full:?}");
        assert!(allotment::purge() >= 50 * MIB);
        assert!(allotment::stats().dirty <= before.dirty, "{:?}", allotment::stats());
        exact(&tenant, 0);
    });
}
