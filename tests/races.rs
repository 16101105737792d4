//! Two things at once that once went wrong together: a limit removed beside a refusal, an id reused under a scope that
//! was left entered, a guard that outlives `fallible`, a stop beside the end of a tenant.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;

use std::alloc::GlobalAlloc;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use allotment::{fallible, Allotment, Tenant};
use case::{exact, in_child, layout, Object};

#[global_allocator]
static A: Allotment = Allotment::new();

/// Runs `other` on this thread for two seconds while `work` repeats on another one.
fn beside(work: impl Fn() + Sync, mut other: impl FnMut()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        });
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            other();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Raising the limit of a tenant that is at it: what was refused a moment ago is tried again, and is not null.
#[test]
fn b22_a_limit_removed_beside_a_refusal_refuses_nobody() {
    in_child("b22_a_limit_removed_beside_a_refusal_refuses_nobody", 30, || {
        let tenant = Tenant::builder("raised").max(100_000).build().unwrap();
        let work = || {
            for size in [200_000, 20_000] {
                assert!(tenant.in_scope(|| Object::new(layout(size, 8), 1)).is_some(), "null outside of `fallible`");
            }
            tenant.resume();
        };
        beside(work, || {
            tenant.set_max(None);
            tenant.set_max(100_000);
        });
        exact(&tenant, 0);
    });
}

/// A thread goes on in a forgotten scope while its id is given to tenants elsewhere in the tree: each charge is one
/// tenant's and its ancestors', whoever that is by then.
#[test]
fn b14_a_forgotten_scope_and_its_reused_id_keep_all_accounts_exact() {
    in_child("b14_a_forgotten_scope_and_its_reused_id_keep_all_accounts_exact", 30, || {
        let mut parents = ["left", "right"].map(|name| Tenant::new(name).unwrap());
        let forgotten = Tenant::new("forgotten").unwrap();
        let id = forgotten.id();
        let stop = AtomicBool::new(false);
        let mut reused = 0;
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::mem::forget(forgotten.enter());
                drop(forgotten);
                while !stop.load(Ordering::Relaxed) {
                    // A large object: nothing of it is cached, so that the id is free between two of them.
                    // SAFETY: not of size 0, and freed with its layout.
                    unsafe {
                        let object = black_box(A.alloc(layout(70_000, 8)));
                        assert!(!object.is_null());
                        A.dealloc(object, layout(70_000, 8));
                    }
                }
            });
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(3) {
                // New tenants until one has the id, or all ids ever used are taken: those freed last come first, and the
                // one in question, whose object may still hold it, must not stay below the others.
                let mut children = Vec::new();
                for _ in 0..allotment::stats().ids {
                    children.push(Tenant::builder("in its place").parent(&parents[0]).build().unwrap());
                    if children.last().is_some_and(|child| child.id() == id) {
                        reused += 1;
                        break;
                    }
                }
                parents.reverse();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(reused > 100, "the id was given out again {reused} times only");
        for parent in &parents {
            exact(parent, 0);
        }
    });
}

/// A guard that was made inside `fallible` and dropped outside takes its tenant with it, not the strictness.
#[test]
fn b22_a_guard_that_outlives_fallible_leaves_no_strictness() {
    in_child("b22_a_guard_that_outlives_fallible_leaves_no_strictness", 30, || {
        let tenant = Tenant::builder("not strict").max(100_000).build().unwrap();
        let other = Tenant::new("entered inside").unwrap();
        let guard = fallible(|| other.enter());
        assert_eq!(Tenant::current(), other);
        let here = Object::new(layout(1000, 8), 1).unwrap();
        // SAFETY: the object is live and was written.
        assert_eq!(Tenant::owner_of(unsafe { &*here.start }), Some(other.clone()));
        drop(guard);
        assert_eq!(Tenant::current(), Tenant::root());
        assert!(tenant.in_scope(|| Object::new(layout(200_000, 8), 1)).is_some(), "null outside of `fallible`");
        assert!(tenant.is_stopped());
    });
}

/// The last handle goes while another thread's growth of the tenant's object is judged by its limit.
#[test]
fn b22_the_end_of_a_tenant_beside_a_refusal_refuses_nobody() {
    in_child("b22_the_end_of_a_tenant_beside_a_refusal_refuses_nobody", 30, || {
        let parent = Tenant::new("survives").unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(2) {
            let tenant = Tenant::builder("ends").parent(&parent).max(100_000).build().unwrap();
            let mut object = tenant.in_scope(|| Object::new(layout(90_000, 8), 3)).unwrap();
            std::thread::scope(|threads| {
                threads.spawn(move || drop(tenant));
                assert!(object.resize(190_000), "null outside of `fallible`");
            });
        }
        exact(&parent, 0);
    });
}
