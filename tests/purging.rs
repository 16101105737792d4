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
