//! Limits in one thread: what fits, what is forced, refused or only counted, who is stopped, and what the error says.
//! Threads at a limit: `limits_threads.rs`; panics there: `limits_panic.rs`; absurd limits: `bad_input.rs`.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/limited.rs"]
mod limited;

use allotment::{checkpoint, checkpoint_or_unwind, fallible, Allotment, MemoryExceeded, Mode, Tenant};
use case::{charge, exact, in_child};
use limited::{counts, fill, forced, strict, Counts};

#[global_allocator]
static A: Allotment = Allotment::new();

const NOTHING: Counts = Counts { high: 0, max: 0, refused: 0, forced: 0, overdraft_bytes: 0, stopped: 0 };

#[test]
fn a_limit_holds_exactly_what_fits() {
    for size in [1, 64, 100, 1000, 5000, 65_536, 65_537, 300_000] {
        for count in [1, 2, 33, 120] {
            for spare in [0, charge(size) - 1] {
                let max = count * charge(size) + spare;
                let tenant = Tenant::builder("exact").max(max).build().unwrap();
                let mut list = fill(&tenant, size);
                assert_eq!(list.len(), count, "{size} B, {spare} spare");
                assert!((count * charge(size)..=max).contains(&tenant.peak()), "{} of {max}", tenant.peak());
                assert_eq!(tenant.settle(), count * charge(size));
                list.pop();
                list.extend(fill(&tenant, size));
                assert_eq!(list.len(), count, "{size} B, {spare} spare, freed one");
                assert_eq!(counts(&tenant).0, Counts { refused: 2, ..NOTHING });
                assert!(!tenant.is_stopped());
                drop(list);
                assert_eq!(tenant.settle(), 0);
            }
        }
    }
    allotment::verify().unwrap();
}

#[test]
fn past_max_is_forced_counted_and_stops() {
    let one = charge(64);
    let tenant = Tenant::builder("wild").max(100 * one).build().unwrap();
    let neighbour = Tenant::builder("calm").max(100 * one).build().unwrap();
    let mut held = fill(&tenant, 64);
    assert_eq!(held.len(), 100);
    assert!(tenant.in_scope(checkpoint).is_ok());
    let more = forced(&tenant, 64, 7);
    assert!(tenant.is_stopped());
    let expected = Counts { max: 7, refused: 1, forced: 7, overdraft_bytes: 7 * one as u64, stopped: 1, ..NOTHING };
    // Each of the seven passes the limit from where the one before it has left it.
    assert_eq!(counts(&tenant), (expected, expected));

    let error = tenant.in_scope(checkpoint).unwrap_err();
    assert_eq!((&*error.tenant, &*error.asked), ("wild", "wild"));
    assert_eq!((error.usage, error.limit, &error.children[..]), (107 * one, Some(100 * one), &[][..]));
    let text = error.to_string();
    for part in ["wild", &(107 * one).to_string(), &(100 * one).to_string()] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(checkpoint(), Ok(()));
    assert_eq!(neighbour.in_scope(checkpoint), Ok(()));
    assert!(!neighbour.is_stopped() && !Tenant::root().is_stopped());

    // Sticky: freeing does not clear it, `resume` does.
    drop(more);
    held.truncate(50);
    assert_eq!(tenant.settle(), 50 * one);
    assert!(tenant.is_stopped() && tenant.in_scope(checkpoint).is_err());
    assert!(tenant.resume());
    assert!(!tenant.is_stopped() && tenant.in_scope(checkpoint).is_ok());
    held.extend(forced(&tenant, 64, 50));
    assert!(!tenant.is_stopped(), "all of this fits");
    held.extend(forced(&tenant, 64, 1));
    assert!(tenant.is_stopped());
    assert!(!tenant.resume(), "still past the limit");
    assert!(!tenant.is_stopped());
    held.extend(forced(&tenant, 64, 1));
    assert!(tenant.is_stopped(), "its next charge stops it again");
    assert_eq!(counts(&tenant).0.stopped, 3);
    drop(held);
    exact(&tenant, 0);
    assert!(tenant.resume());
}

#[test]
fn b22_code_that_knows_no_limit_runs_past_it() {
    let tenant = Tenant::builder("unaware").max(20_000).build().unwrap();
    let neighbour = Tenant::builder("serving").max(1 << 20).build().unwrap();
    tenant.in_scope(|| {
        let mut numbers = Vec::new();
        while !tenant.is_stopped() {
            numbers.push(numbers.len());
        }
        // Each of these aborts the process where null is returned.
        let thread = std::thread::Builder::new().name("of the tenant".into()).spawn(|| vec![0_u8; 50_000].len());
        assert_eq!(thread.unwrap().join().unwrap(), 50_000);
        assert!(std::env::var("ALLOTMENT_TEST_NO_SUCH").is_err());
        assert_eq!(std::io::Error::other("one").to_string(), "one");
        assert!(format!("{numbers:?}").len() > 4000);
        assert!(std::fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap().count() > 3);
        assert_eq!(neighbour.in_scope(|| (checkpoint(), vec![1_u8; 500_000].len())), (Ok(()), 500_000));
        assert!(checkpoint().is_err());
    });
    assert_eq!(counts(&neighbour).0, NOTHING);
    exact(&neighbour, 0);
    exact(&tenant, 0);
}

#[test]
fn try_reserve_in_fallible_fails_and_loses_nothing() {
    let tenant = Tenant::builder("careful").max(100_000).build().unwrap();
    let mut rows: Vec<u32> = Vec::new();
    let mut text = String::new();
    tenant.in_scope(|| {
        fallible(|| rows.try_reserve_exact(10_000)).unwrap();
        rows.extend(0..10_000);
        assert!(fallible(|| rows.try_reserve_exact(20_000)).is_err());
        assert!(fallible(|| text.try_reserve_exact(90_000)).is_err());
        assert_eq!((rows.capacity(), text.capacity()), (10_000, 0));
        fallible(|| text.try_reserve_exact(50_000)).unwrap();
        // The strict limit ends with the closure and does not leak into threads.
        let inside = || tenant.in_scope(|| Vec::<u8>::new().try_reserve_exact(40_000));
        assert!(fallible(inside).is_err(), "entering a tenant inside stays strict");
        fallible(|| fallible(|| ()));
        assert_eq!(checkpoint(), Ok(()));
        text.reserve_exact(90_000);
        assert!(checkpoint().is_err(), "outside of it the charge is forced");
    });
    assert!(rows.iter().copied().eq(0..10_000));
    assert_eq!(counts(&tenant).0.refused, 3);
    assert_eq!(tenant.settle(), charge(40_000) + charge(text.capacity()));
    drop((rows, text));
    exact(&tenant, 0);
}

#[test]
fn try_in_scope_ends_stopped_work_and_passes_other_panics() {
    let tenant = Tenant::builder("worker").max(50_000).build().unwrap();
    let grow = || -> Result<usize, MemoryExceeded> {
        tenant.try_in_scope(|| {
            let mut list: Vec<Box<[u8]>> = Vec::new();
            loop {
                list.push(vec![0; 300].into());
                checkpoint_or_unwind();
            }
        })
    };
    let error = grow().unwrap_err();
    assert_eq!((&*error.tenant, error.limit), ("worker", Some(50_000)));
    assert!(error.usage > 50_000, "the figures are of the moment it was stopped: {}", error.usage);
    assert_eq!(Tenant::current(), Tenant::root());
    exact(&tenant, 0);

    // It returned: `Ok`, stopped or not.
    assert_eq!(tenant.try_in_scope(|| tenant.is_stopped()), Ok(true));
    assert_eq!(tenant.try_in_scope(|| checkpoint().is_err()), Ok(true));
    let composed = tenant.try_in_scope(|| -> Result<(), MemoryExceeded> {
        checkpoint()?;
        panic!("the tenant is stopped");
    });
    assert_eq!(composed.unwrap().unwrap_err().tenant, "worker");
    assert!(tenant.resume());
    assert_eq!(tenant.try_in_scope(checkpoint_or_unwind), Ok(()));

    // The innermost catches, and leaves each scope where it was.
    let inner = Tenant::builder("inner").parent(&tenant).build().unwrap();
    inner.stop();
    let outcome = tenant.try_in_scope(|| {
        let inside = inner.try_in_scope(|| tenant.in_scope(|| inner.in_scope(checkpoint_or_unwind)));
        assert_eq!((inside.unwrap_err().tenant, Tenant::current()), ("inner".to_owned(), tenant.clone()));
        checkpoint_or_unwind();
        "went on"
    });
    assert_eq!(outcome, Ok("went on"));

    let panicked = std::panic::catch_unwind(|| tenant.try_in_scope(|| std::panic::panic_any("my own")));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"my own"));
    assert_eq!(Tenant::current(), Tenant::root());
    exact(&tenant, 0);
}

#[test]
fn a_parents_limit_stops_the_child_that_met_it_and_names_the_largest() {
    let one = charge(1000);
    let parent = Tenant::builder("parent").max(100 * one).build().unwrap();
    let middle = Tenant::builder("middle").parent(&parent).build().unwrap();
    let asking = Tenant::builder("asking").parent(&middle).max(90 * one).build().unwrap();
    let children: Vec<Tenant> =
        (1..=6).map(|n| Tenant::builder(&format!("child {n}")).parent(&parent).build().unwrap()).collect();
    // In an order that is not that of creation.
    let held: Vec<_> = [3, 6, 1, 5, 2, 4].iter().flat_map(|&n| forced(&children[n - 1], 1000, 3 * n)).collect();
    let mut mine = fill(&asking, 1000);
    assert_eq!(mine.len(), 100 - 3 * 21);
    assert_eq!((counts(&parent).0.refused, counts(&asking).0.refused), (1, 0));
    mine.extend(forced(&asking, 1000, 1));

    let error = asking.in_scope(checkpoint).unwrap_err();
    assert_eq!((&*error.tenant, &*error.asked), ("parent", "asking"));
    assert_eq!((error.usage, error.limit), (101 * one, Some(100 * one)));
    assert_eq!(error.children[0], ("middle".to_owned(), 38 * one), "the largest first");
    let names: Vec<&str> = error.children.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["middle", "child 6", "child 5", "child 4", "child 3"]);
    assert!(error.children.iter().zip([38, 18, 15, 12, 9]).all(|((_, usage), n)| *usage >= n * one));
    assert!(error.to_string().contains("asking") && error.to_string().contains("child 6"), "{error}");

    // Who asked is stopped; whose limit it was, and its other children, are not.
    assert!(asking.is_stopped() && !middle.is_stopped() && !parent.is_stopped());
    assert!(children.iter().all(|child| !child.is_stopped() && child.in_scope(checkpoint).is_ok()));
    assert_eq!(counts(&asking).0, Counts { stopped: 1, ..NOTHING });
    let at_parent = Counts { max: 1, refused: 1, forced: 1, overdraft_bytes: one as u64, ..NOTHING };
    assert_eq!(counts(&parent), (at_parent, Counts { stopped: 1, ..at_parent }));
    assert_eq!(counts(&middle), (NOTHING, Counts { stopped: 1, ..NOTHING }));

    // Its own limit, nearer than the parent's.
    drop(held);
    assert!(asking.resume());
    mine.extend(fill(&asking, 1000));
    assert_eq!(mine.len(), 90);
    mine.extend(forced(&asking, 1000, 1));
    let error = asking.in_scope(checkpoint).unwrap_err();
    assert_eq!((&*error.tenant, error.limit, error.usage), ("asking", Some(90 * one), 91 * one));
    drop(mine);
    exact(&parent, 0);
}

#[test]
fn b28_a_refused_charge_changes_nothing_at_any_level() {
    let mut chain: Vec<Tenant> = Vec::new();
    for depth in 0..4 {
        let name = format!("depth {depth}");
        let builder = Tenant::builder(&name);
        chain.push(match chain.last() {
            Some(parent) => builder.parent(parent).build().unwrap(),
            None => builder.build().unwrap(),
        });
    }
    let deepest = &chain[3];
    let held: Vec<_> = chain.iter().flat_map(|tenant| forced(tenant, 100, 20)).collect();
    let charges: Vec<_> = chain.iter().map(|tenant| tenant.try_charge(10_000).unwrap()).collect();
    let figures = || -> Vec<(usize, usize, bool, Counts, Counts)> {
        let of = |tenant: &Tenant| {
            let (local, all) = counts(tenant);
            let but = |counts| Counts { refused: 0, ..counts };
            (tenant.usage(), tenant.peak(), tenant.is_stopped(), but(local), but(all))
        };
        chain.iter().map(of).collect()
    };
    let refused =
        || -> Vec<(u64, u64)> { chain.iter().map(counts).map(|(local, all)| (local.refused, all.refused)).collect() };
    const ATTEMPTS: u64 = 100_000;
    for level in 0..4 {
        chain[0].settle();
        chain[level].set_max(chain[level].usage() + 500);
        let (before, before_refused) = (figures(), refused());
        for attempt in 0..ATTEMPTS {
            if attempt % 2 == 0 {
                let error = deepest.try_charge(501).expect_err("one byte too many");
                assert_eq!((&*error.tenant, &*error.asked), (chain[level].name(), "depth 3"));
            } else {
                assert!(strict(deepest, 1000).is_none());
            }
            assert_eq!(figures(), before, "limit at depth {level}, attempt {attempt}");
        }
        for (depth, (now, before)) in refused().into_iter().zip(before_refused).enumerate() {
            let (local, all) = (if depth == level { ATTEMPTS } else { 0 }, if depth <= level { ATTEMPTS } else { 0 });
            assert_eq!((now.0 - before.0, now.1 - before.1), (local, all), "limit at depth {level}, depth {depth}");
        }
        // What does fit is not refused because of what did not.
        assert_eq!(deepest.try_charge(500).unwrap().bytes(), 500);
        chain[level].set_max(None);
    }
    assert_eq!(chain[0].settle(), 80 * charge(100) + 40_000);
    drop((held, charges));
    exact(&chain[0], 0);
}

#[test]
fn an_exhausted_overdraft_refuses_and_is_exact() {
    let one = charge(500);
    let tenant = Tenant::builder("overdrawn").max(10 * one).overdraft(5 * one + one - 1).build().unwrap();
    assert_eq!(tenant.overdraft(), Some(6 * one - 1));
    let new = || tenant.in_scope(|| case::Object::new(case::layout(500, 1), 1));
    let mut held: Vec<_> = std::iter::from_fn(new).take(1000).collect();
    assert_eq!(held.len(), 15);
    assert!(tenant.is_stopped());
    assert!(tenant.in_scope(|| Vec::<u8>::new().try_reserve(500)).is_err(), "not in `fallible`, and null all the same");
    let expected = Counts { max: 7, refused: 2, forced: 5, overdraft_bytes: 5 * one as u64, stopped: 1, ..NOTHING };
    assert_eq!(counts(&tenant).0, expected);
    assert_eq!(tenant.settle(), 15 * one);
    held.pop();
    held.extend(new());
    assert_eq!(held.len(), 15, "there is room for one again");
    tenant.set_overdraft(7 * one);
    held.extend(std::iter::from_fn(new).take(1000));
    assert_eq!(held.len(), 17);
    tenant.set_overdraft(None);
    assert_eq!(tenant.overdraft(), None);
    held.extend((0..50).filter_map(|_| new()));
    assert_eq!(held.len(), 67);

    // None at all: strict everywhere. And an ancestor's binds too.
    let child = Tenant::builder("child").parent(&tenant).max(0).overdraft(0).build().unwrap();
    assert!(child.in_scope(|| case::Object::new(case::layout(500, 1), 1)).is_none());
    child.set_overdraft(None);
    child.set_max(None);
    tenant.set_overdraft(60 * one);
    assert_eq!(forced(&child, 500, 3).len(), 3);
    let filled: Vec<_> =
        std::iter::from_fn(|| child.in_scope(|| case::Object::new(case::layout(500, 1), 1))).take(1000).collect();
    assert_eq!(filled.len(), 3);
    drop((held, filled));
    exact(&tenant, 0);
}

#[test]
fn measure_counts_and_never_stops() {
    let one = charge(200);
    let parent = Tenant::builder("measured parent").max(30 * one).mode(Mode::Measure).build().unwrap();
    let tenant = Tenant::builder("measured").parent(&parent).max(10 * one).mode(Mode::Measure).build().unwrap();
    assert_eq!((tenant.mode(), tenant.stats().mode), (Mode::Measure, Mode::Measure));
    let mut held = forced(&tenant, 200, 14);
    held.extend(strict(&tenant, 200));
    assert_eq!(held.len(), 15, "a strict charge is not refused either");
    let charge = tenant.try_charge(one).unwrap();
    assert!(!tenant.is_stopped() && tenant.in_scope(checkpoint).is_ok());
    let counted = Counts { max: 6, forced: 6, overdraft_bytes: 6 * one as u64, ..NOTHING };
    assert_eq!(counts(&tenant).0, counted);
    assert_eq!(counts(&parent), (NOTHING, counted));
    drop(charge);

    // A limit that is enforced binds below one that is not.
    let enforced = Tenant::builder("enforced").parent(&parent).max(20 * one).build().unwrap();
    held.extend(fill(&enforced, 200));
    assert_eq!(held.len(), 35);
    assert_eq!(counts(&parent).0, Counts { max: 5, forced: 5, overdraft_bytes: 5 * one as u64, ..NOTHING });
    held.extend(forced(&enforced, 200, 1));
    assert!(enforced.is_stopped() && !parent.is_stopped());
    assert_eq!(enforced.in_scope(checkpoint).unwrap_err().tenant, "enforced");

    tenant.set_mode(Mode::Enforce);
    assert!(!tenant.is_stopped(), "nothing was charged since");
    assert!(strict(&tenant, 200).is_none());
    held.extend(forced(&tenant, 200, 1));
    assert!(tenant.is_stopped());
    drop(held);
    exact(&parent, 0);
}

#[test]
fn a_changed_limit_is_effective_at_once() {
    let one = charge(64);
    let tenant = Tenant::new("changing").unwrap();
    // Churn, so that CPUs hold cached objects and stocks of the tenant.
    let mut held = forced(&tenant, 64, 1000);
    drop(forced(&tenant, 64, 1000));
    held.truncate(400);
    tenant.set_max(400 * one);
    assert_eq!(tenant.max(), Some(400 * one));
    assert_eq!(tenant.usage(), 400 * one, "what lay unused has been taken back");
    assert!(strict(&tenant, 64).is_none(), "cached objects are no way round the limit");
    tenant.set_max(400 * one + one);
    held.extend(fill(&tenant, 64));
    assert_eq!(held.len(), 401);

    // Below usage: nobody is stopped by that alone.
    tenant.set_max(100 * one);
    assert!(!tenant.is_stopped() && strict(&tenant, 64).is_none() && tenant.try_charge(1).is_err());
    held.truncate(200);
    assert!(strict(&tenant, 64).is_none(), "still above");
    held.extend(forced(&tenant, 64, 1));
    assert!(tenant.is_stopped() && !tenant.resume());
    held.extend(forced(&tenant, 64, 1));
    assert!(tenant.is_stopped());
    tenant.set_max(1000 * one);
    assert!(tenant.is_stopped(), "a higher limit does not resume it");
    assert!(tenant.resume());
    held.extend(fill(&tenant, 64));
    assert_eq!(held.len(), 1000);
    assert!(!tenant.is_stopped());
    tenant.set_max(None);
    assert_eq!(tenant.max(), None);
    held.extend(forced(&tenant, 64, 5000));
    assert!(!tenant.is_stopped());
    drop(held);
    exact(&tenant, 0);
}

#[test]
fn peak_and_high_are_exact_for_exact_charges() {
    let parent = Tenant::builder("p").high(2500).build().unwrap();
    let tenant = Tenant::builder("t").parent(&parent).high(1000).max(10_000).build().unwrap();
    let first = tenant.try_charge(1000).unwrap();
    assert_eq!(counts(&tenant).0.high, 0, "not above it");
    let second = tenant.try_charge(1).unwrap();
    let third = tenant.try_charge(1500).unwrap();
    assert_eq!((counts(&tenant).0.high, tenant.peak()), (1, 2501));
    assert_eq!((counts(&parent).0.high, counts(&parent).1.high), (1, 2));
    drop((second, third));
    let again = tenant.try_charge(1).unwrap();
    assert_eq!(counts(&tenant).0.high, 2, "it fell to it and rose past it again");
    assert!(!tenant.is_stopped() && tenant.in_scope(checkpoint).is_ok());
    assert!(tenant.try_charge(9000).is_err());
    assert_eq!((tenant.peak(), parent.peak()), (2501, 2501), "a refused charge is no peak");
    tenant.reset_peak();
    assert_eq!((tenant.peak(), parent.peak(), tenant.stats().peak), (1001, 2501, 1001));
    drop(first);
    assert_eq!(tenant.peak(), 1001);
    tenant.set_high(None);
    assert_eq!((tenant.high(), tenant.stats().high), (None, None));
    let big = tenant.try_charge(9999).unwrap();
    assert_eq!((counts(&tenant).0.high, tenant.peak()), (2, 10_000));
    drop((again, big));

    let objects = forced(&tenant, 1000, 5);
    tenant.settle();
    tenant.reset_peak();
    drop(objects);
    assert_eq!((tenant.settle(), tenant.peak()), (0, 5 * charge(1000)));
    exact(&parent, 0);
}

#[test]
fn stop_and_resume_by_request() {
    let parent = Tenant::new("halted").unwrap();
    let tenant = Tenant::builder("below").parent(&parent).build().unwrap();
    parent.stop();
    parent.stop();
    assert_eq!(counts(&parent).0, Counts { stopped: 1, ..NOTHING });
    assert!(parent.is_stopped() && tenant.is_stopped() && tenant.stats().stopped);
    let error = tenant.in_scope(checkpoint).unwrap_err();
    assert_eq!((&*error.tenant, &*error.asked, error.limit), ("halted", "below", None));
    assert!(tenant.resume(), "it is within its limits");
    assert!(tenant.is_stopped(), "its parent is stopped still");
    // Stopped tenants' allocations succeed.
    assert_eq!(tenant.in_scope(|| vec![1_u8; 100_000].len() + strict(&tenant, 10).map_or(0, |_| 1)), 100_001);
    assert!(tenant.try_charge(1).is_ok());
    assert!(parent.resume());
    assert!(!tenant.is_stopped() && tenant.in_scope(checkpoint).is_ok());

    // A stopped child leaves its parent alone, and its end ends the stop.
    tenant.stop();
    assert!(!parent.is_stopped() && parent.in_scope(checkpoint).is_ok());
    let object = tenant.in_scope(|| Box::new(1_u64));
    drop(tenant);
    assert!(!parent.is_stopped());
    assert_eq!(Tenant::owner_of(&*object), Some(parent.clone()));
    drop(object);
    exact(&parent, 0);
}

/// A ceiling for the process: not forced, and no tenant is stopped for it.
#[test]
fn roots_max_refuses() {
    in_child("roots_max_refuses", 30, || {
        let root = Tenant::root();
        let tenant = Tenant::new("under the ceiling").unwrap();
        // Not to the last byte: the test harness' own thread may need some.
        root.set_max(root.settle() + (8 << 20) + 500_000);
        let new = || tenant.in_scope(|| case::Object::new(case::layout(1 << 20, 1), 1));
        let held: Vec<_> = std::iter::from_fn(new).take(100).collect();
        assert!((6..=8).contains(&held.len()), "{} objects", held.len());
        assert!(Vec::<u8>::new().try_reserve_exact(2 << 20).is_err(), "in root too");
        assert!(tenant.in_scope(|| Vec::<u8>::new().try_reserve_exact(2 << 20)).is_err());
        assert_eq!(tenant.try_charge(2 << 20).unwrap_err().tenant, "root");
        assert!(root.usage() <= root.max().unwrap() && root.peak() <= root.max().unwrap());
        let at_root = counts(&root).0;
        assert_eq!((at_root.refused, at_root.forced, at_root.stopped), (4, 0, 0));
        assert!(!tenant.is_stopped() && !root.is_stopped());
        assert_eq!(counts(&tenant).1, NOTHING);
        drop(held);
        exact(&tenant, 0);
        assert_eq!(tenant.in_scope(|| Vec::<u8>::new().try_reserve_exact(5 << 20)), Ok(()));
        root.set_max(None);
        assert_eq!(tenant.in_scope(|| Vec::<u8>::new().try_reserve_exact(50 << 20)), Ok(()));
        exact(&tenant, 0);
    });
}

#[test]
fn stopping_root_stops_all() {
    in_child("stopping_root_stops_all", 30, || {
        let tenant = Tenant::new("one of all").unwrap();
        Tenant::root().stop();
        assert!(tenant.is_stopped() && checkpoint().is_err());
        let error = tenant.try_in_scope(checkpoint_or_unwind).unwrap_err();
        assert_eq!((&*error.tenant, error.limit), ("root", None));
        assert!(Tenant::root().resume());
        assert!(!tenant.is_stopped() && checkpoint().is_ok());
    });
}
