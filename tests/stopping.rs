//! Where stopped work ends: checkpoints in nested scopes, and what happens on the way out.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/limited.rs"]
mod limited;

use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;

use allotment::{checkpoint, checkpoint_or_unwind, fallible, Allotment, Mode, Tenant};
use case::{charge, exact, in_child, layout, Object};
use limited::{counts, forced, strict, Counts};

#[global_allocator]
static A: Allotment = Allotment::new();

fn below(parent: &Tenant, name: &str) -> Tenant {
    Tenant::builder(name).parent(parent).build().unwrap()
}

#[test]
fn a_checkpoint_asks_for_the_innermost_scope() {
    let (top, other) = (Tenant::new("top").unwrap(), Tenant::new("other").unwrap());
    let (middle, leaf) = (below(&top, "middle"), Tenant::builder("leaf").parent(&top).max(100).build().unwrap());
    let held = leaf.in_scope(|| {
        let held = black_box(vec![0_u8; 101]);
        assert_eq!(checkpoint().unwrap_err().tenant, "leaf");
        for (scope, stopped) in [(&top, false), (&middle, false), (&other, false), (&leaf, true)] {
            assert_eq!(scope.in_scope(checkpoint).is_err(), stopped, "{scope:?}");
            assert_eq!(scope.is_stopped(), stopped);
        }
        top.in_scope(|| middle.in_scope(|| leaf.in_scope(|| other.in_scope(checkpoint_or_unwind))));
        held
    });
    // An ancestor's stop is met below it, and nowhere else; the nearest is named.
    top.stop();
    for (scope, name) in [(&top, Some("top")), (&middle, Some("top")), (&leaf, Some("leaf")), (&other, None)] {
        let found = other.in_scope(|| scope.in_scope(checkpoint)).err();
        assert_eq!(found.as_ref().map(|error| &*error.tenant), name);
        assert!(found.is_none_or(|error| error.asked == scope.name()));
    }
    assert!(leaf.resume() != top.resume(), "the leaf is above its limit still");
    assert_eq!([&top, &middle, &leaf].map(|tenant| tenant.in_scope(checkpoint)), [Ok(()), Ok(()), Ok(())]);
    drop(held);
    exact(&top, 0);
}

#[test]
fn strictness_nests_with_scopes() {
    let tenants: [Tenant; 2] = ["one", "two"].map(|name| Tenant::builder(name).max(1000).build().unwrap());
    let [one, two] = &tenants;
    let fits = || Object::new(layout(1001, 1), 0).is_some();
    let seen = one.in_scope(|| {
        fallible(|| {
            let inner = two.in_scope(|| fallible(|| one.in_scope(|| fallible(fits))));
            // Left by `fallible` as by a scope: strict still; and a panic restores it as well.
            let after = two.in_scope(fits);
            let panicked = catch_unwind(|| two.in_scope(|| fallible(|| resume_unwind(Box::new(1)))));
            [inner, after, panicked.is_ok(), fits(), Tenant::current() != *one]
        })
    });
    assert_eq!(seen, [false; 5]);
    assert_eq!(tenants.each_ref().map(|tenant| counts(tenant).0.refused), [2, 1]);
    assert!(!one.is_stopped() && !two.is_stopped());
    // Outside of it, of a thread that one inside has started, and after the panic: forced.
    assert!(fallible(|| two.in_scope(|| allotment::thread::spawn(fits).join().unwrap())));
    assert!(one.in_scope(fits) && one.is_stopped() && two.is_stopped());
    tenants.iter().for_each(|tenant| exact(tenant, 0));
}

#[test]
fn measuring_below_an_enforcing_parent() {
    let one = charge(64);
    let parent = Tenant::builder("enforcing").max(10 * one).build().unwrap();
    let child = Tenant::builder("measuring").parent(&parent).max(2 * one).mode(Mode::Measure).build().unwrap();
    let mut held = forced(&child, 64, 10);
    assert!(!child.is_stopped());
    let measured = Counts { max: 8, forced: 8, overdraft_bytes: 8 * one as u64, ..Counts::default() };
    assert_eq!((counts(&child).0, counts(&parent).0), (measured, Counts::default()));
    assert!(strict(&child, 64).is_none(), "the parent's limit binds it");
    assert_eq!((counts(&parent).0.refused, child.is_stopped()), (1, false));
    held.extend(forced(&child, 64, 1));
    assert!(child.is_stopped() && !parent.is_stopped());
    assert_eq!(child.in_scope(checkpoint).unwrap_err().tenant, "enforcing");
    drop(held);
    exact(&parent, 0);
}

/// Allocates, frees, and passes checkpoints while the stack unwinds.
struct Untidy<'a>(&'a Tenant, &'a AtomicUsize, Vec<u8>);

impl Drop for Untidy<'_> {
    fn drop(&mut self) {
        checkpoint_or_unwind();
        let list = self.0.in_scope(|| {
            checkpoint_or_unwind();
            black_box(vec![1_u8; 3000])
        });
        assert!(self.0.in_scope(checkpoint).is_err() && list.len() == 3000);
        self.2 = format!("{:?}", self.2).into();
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_way_out_runs_destructors_and_no_panic_hook() {
    in_child("the_way_out_runs_destructors_and_no_panic_hook", 10, || {
        let hooks = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = hooks.clone();
        std::panic::set_hook(Box::new(move |_| _ = counted.fetch_add(1, Ordering::Relaxed)));
        let tenant = Tenant::builder("leaving").max(10_000).build().unwrap();
        let dropped = AtomicUsize::new(0);
        let outcome = tenant.try_in_scope(|| {
            let _untidy = [(); 5].map(|()| Untidy(&tenant, &dropped, vec![7; 500]));
            let list = black_box(vec![0_u8; 20_000]);
            checkpoint_or_unwind();
            list.len()
        });
        assert_eq!((&*outcome.unwrap_err().tenant, dropped.load(Ordering::Relaxed)), ("leaving", 5));
        assert_eq!(hooks.load(Ordering::Relaxed), 0);
        assert_eq!(Tenant::current(), Tenant::root());
        exact(&tenant, 0);

        // A `catch_unwind` between here and there sees the payload and hands it on.
        let outcome = tenant.try_in_scope(|| {
            let caught = catch_unwind(checkpoint_or_unwind).unwrap_err();
            assert!(!caught.is::<&str>() && !caught.is::<String>() && Tenant::current() == tenant);
            resume_unwind(caught)
        });
        assert_eq!(outcome.unwrap_err().tenant, "leaving");
        // An ordinary panic on the way out of a stopped tenant stays one.
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            tenant.try_in_scope(|| {
                let _untidy = Untidy(&tenant, &dropped, vec![7; 500]);
                panic!("an ordinary one");
            })
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"an ordinary one"));
        assert_eq!((dropped.into_inner(), hooks.load(Ordering::Relaxed)), (6, 1));
        exact(&tenant, 0);
    });
}

#[test]
fn all_threads_of_a_tenant_stop_and_start() {
    const THREADS: usize = 4;
    let top = Tenant::new("many").unwrap();
    let tenant = Tenant::builder("busy").parent(&top).max(200_000).build().unwrap();
    let neighbour = below(&top, "neighbour");
    let (barrier, ended) = (Barrier::new(THREADS + 1), AtomicUsize::new(0));
    for round in 1..=5 {
        std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| {
                    let outcome = tenant.try_in_scope(|| {
                        barrier.wait();
                        let mut kept = Vec::new();
                        loop {
                            kept.push(black_box(Box::new([1_u8; 200])));
                            checkpoint_or_unwind();
                        }
                    });
                    let error = outcome.unwrap_err();
                    assert_eq!((&*error.tenant, &*error.asked, error.limit), ("busy", "busy", Some(200_000)));
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            barrier.wait();
            let kept = neighbour.in_scope(|| (0..3000).map(|n| black_box(Box::new(n))).collect::<Vec<_>>());
            assert_eq!(neighbour.in_scope(checkpoint), Ok(()));
            drop(kept);
        });
        assert_eq!((ended.load(Ordering::Relaxed), counts(&tenant).0.stopped), (round * THREADS, round as u64));
        exact(&top, 0);
        assert!(tenant.is_stopped() && tenant.resume() && !tenant.is_stopped());
    }
    assert_eq!(counts(&neighbour).0, Counts::default());
}
