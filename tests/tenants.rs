//! The tree of tenants: handles, nesting, and who owns what once a tenant has retired.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Barrier, Mutex};

use allotment::{Allotment, ClassUsage, CreateError, Tenant};
use case::{charge, exact, in_child, layout, Object, Rng};

#[global_allocator]
static A: Allotment = Allotment::new();

/// Small, of several classes, large in a segment and huge.
const SIZES: [usize; 6] = [1, 64, 700, 65_536, 70_000, 5 << 20];

fn below(parent: &Tenant, name: &str) -> Tenant {
    Tenant::builder(name).parent(parent).build().unwrap()
}

/// A chain of `depth` tenants, each the child of the one before.
fn chain(top: &Tenant, depth: usize) -> Vec<Tenant> {
    let mut chain: Vec<Tenant> = Vec::new();
    for level in 0..depth {
        chain.push(below(chain.last().unwrap_or(top), &format!("level {level}")));
    }
    chain
}

/// One object of each size; the list is the caller's.
fn objects(tenant: &Tenant) -> Vec<Object> {
    SIZES.iter().map(|&size| tenant.in_scope(|| Object::new(layout(size, 1), 7)).unwrap()).collect()
}

fn charges() -> usize {
    SIZES.iter().map(|&size| charge(size)).sum()
}

fn owner(object: &Object) -> Tenant {
    // SAFETY: the object is live and its bytes are written.
    Tenant::owner_of(unsafe { std::slice::from_raw_parts(object.start, object.layout.size()) }).unwrap()
}

#[test]
fn a_handle_is_an_identity() {
    let top = Tenant::new("top").unwrap();
    let (one, two) = (below(&top, "equal"), below(&top, "equal"));
    assert_eq!((one.name(), two.name(), Tenant::root().name()), ("equal", "equal", "root"));
    assert!(one != two && one.id() != two.id() && one == one.clone() && one.id() == one.clone().id());
    assert_eq!(format!("{one:?}"), format!("Tenant {{ id: {}, name: \"equal\" }}", one.id()));
    let mut map = HashMap::from([(one.clone(), 1), (two.clone(), 2)]);
    assert_eq!((map[&one.clone()], map.insert(two.clone(), 3)), (1, Some(2)));

    assert_eq!((Tenant::root().id(), Tenant::root().parent(), top.parent()), (0, None, Some(Tenant::root())));
    assert_eq!((one.parent(), one.children()), (Some(top.clone()), vec![]));
    assert_eq!(HashSet::from_iter(top.children()), HashSet::from([one.clone(), two.clone()]));
    assert!(Tenant::root().children().contains(&top) && !Tenant::root().children().contains(&one));
    let all = allotment::tenants();
    assert_eq!(all[0], Tenant::root());
    assert!([&top, &one, &two].iter().all(|tenant| all.iter().filter(|found| found == tenant).count() == 1));

    // Only the last of several handles ends it.
    drop((map, two, all));
    let weak = one.id();
    let clones = vec![one.clone(); 1000];
    drop(one);
    assert!(top.children() == [clones[999].clone()] && clones[0].id() == weak);
    drop(clones);
    assert_eq!((top.children(), top.stats().children), (vec![], 0));
    assert!(allotment::tenants().iter().all(|tenant| tenant.name() != "equal"));
    assert_eq!(size_of::<Tenant>(), 2);
}

#[test]
fn scopes_nest_and_every_thread_has_its_own() {
    let top = Tenant::new("scopes").unwrap();
    let (one, two) = (below(&top, "one"), below(&top, "two"));
    let guard = one.enter();
    assert_eq!(Tenant::current(), one);
    let panicked = std::panic::catch_unwind(|| two.in_scope(|| std::panic::resume_unwind(Box::new(Tenant::current()))));
    assert_eq!(*panicked.unwrap_err().downcast::<Tenant>().unwrap(), two);
    two.in_scope(|| {
        assert_eq!((Tenant::current(), top.in_scope(Tenant::current)), (two.clone(), top.clone()));
        assert_eq!(std::thread::spawn(Tenant::current).join().unwrap(), Tenant::root());
        assert_eq!(allotment::thread::spawn(Tenant::current).join().unwrap(), two);
        Tenant::root().in_scope(|| assert_eq!(Tenant::current(), Tenant::root()));
    });
    assert_eq!(Tenant::current(), one);
    drop(guard);
    assert_eq!(Tenant::current(), Tenant::root());
}

#[test]
fn b32_a_retired_tenants_objects_are_its_parents_at_once() {
    let top = Tenant::new("b32").unwrap();
    let [middle, leaf] = <[Tenant; 2]>::try_from(chain(&top, 2)).unwrap();
    let kept = objects(&leaf);
    let cached = objects(&leaf);
    drop(cached);
    let other = objects(&middle);
    let rows = leaf.size_classes();
    let row = |size, bytes| (size, 1, bytes);
    let expected = [row(16, 18), row(64, 66), row(768, 770), row(65_536, 65_538), (0, 2, 73_728 + (5 << 20))];
    let plain = |rows: &[ClassUsage]| rows.iter().map(|row| (row.size, row.objects, row.bytes)).collect::<Vec<_>>();
    assert_eq!(plain(&rows), expected);
    assert!(kept.iter().all(|object| owner(object) == leaf));
    let before = (middle.settle(), plain(&middle.size_classes()));
    assert_eq!(before.0, 2 * charges());

    drop(leaf);
    assert!(kept.iter().all(|object| owner(object) == middle));
    assert_eq!((middle.usage(), plain(&middle.size_classes())), (before.0, before.1.clone()));
    assert_eq!((middle.children(), middle.stats().children), (vec![], 1), "retired, with objects");
    assert!(!allotment::tenants().iter().any(|tenant| tenant.parent().as_ref() == Some(&middle)));
    exact(&middle, 2 * charges());
    drop(other);
    exact(&middle, charges());
    assert_eq!(plain(&middle.size_classes()), expected);

    drop(middle);
    assert!(kept.iter().all(|object| owner(object) == top));
    assert_eq!((top.settle(), plain(&top.size_classes()), top.stats().children), (charges(), expected.to_vec(), 1));
    drop(kept);
    exact(&top, 0);
    assert_eq!((top.size_classes(), top.stats().children), (vec![], 0));
}

#[test]
fn growing_and_stopping_after_retirement() {
    let parent = Tenant::new("heir").unwrap();
    let leaf = Tenant::builder("gone").parent(&parent).max(100).build().unwrap();
    let mut list = leaf.in_scope(|| vec![1_u8; 300]);
    assert!(leaf.is_stopped());
    let peak = (leaf.peak(), charge(300));
    assert_eq!(peak.0, peak.1);
    drop(leaf);
    assert!(!parent.is_stopped());
    for size in [900, 5000, 90_000, 6 << 20, 7 << 20, 80_000, 70] {
        if size > list.len() {
            list.resize(size, 1);
        } else {
            list.truncate(size);
            list.shrink_to_fit();
        }
        assert_eq!(Tenant::owner_of(&list[..]), Some(parent.clone()), "{size}");
        exact(&parent, charge(list.capacity()));
    }
    assert!(list.len() == 70 && list.iter().all(|&byte| byte == 1));
    drop(list);
    exact(&parent, 0);
    assert_eq!(parent.stats().children, 0);
}

#[test]
fn a_child_keeps_its_parent_living() {
    let top = Tenant::new("kept").unwrap();
    let [parent, child] = <[Tenant; 2]>::try_from(chain(&top, 2)).unwrap();
    let held = objects(&parent);
    let id = parent.id();
    drop(parent);
    let parent = child.parent().unwrap();
    assert_eq!((parent.id(), parent.name(), top.children()), (id, "level 0", vec![parent.clone()]));
    drop(parent);
    assert_eq!(owner(&held[0]).id(), id);
    // A builder and a charge hold one too, a guard and a thread's scope borrow theirs.
    let builder = Tenant::builder("grandchild").parent(&child);
    drop(child);
    assert_eq!(owner(&held[0]).id(), id);
    let grandchild = builder.build().unwrap();
    drop(builder);
    let charge = grandchild.try_charge(1000).unwrap();
    drop(grandchild);
    assert_eq!((charge.tenant().name(), charge.tenant().usage(), owner(&held[0]).id()), ("grandchild", 1000, id));
    assert_eq!(top.settle(), charges() + 1000);
    std::thread::spawn(|| drop(charge)).join().unwrap();
    assert_eq!((owner(&held[0]), top.settle()), (top.clone(), charges()));
    drop(held);
    exact(&top, 0);
    assert_eq!(top.stats().children, 0);
}

/// All orders of 0, 1, 2, 3.
fn orders() -> Vec<[usize; 4]> {
    let all = (0..256).map(|n| [n & 3, n >> 2 & 3, n >> 4 & 3, n >> 6]);
    all.filter(|order| order.iter().collect::<HashSet<_>>().len() == 4).collect()
}

#[test]
fn b13_every_order_of_ends_leaves_nothing() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Free {
        Last,
        AfterItsHandle,
        BeforeItsHandle,
    }
    // Two threads that only free, in no scope and in one that is not concerned.
    let other = Tenant::new("b13 frees").unwrap();
    let (free, frees) = mpsc::channel::<Vec<Object>>();
    let (done, freed) = mpsc::channel();
    let frees = Mutex::new(frees);
    let free_until_closed = |scope: &Tenant| {
        while let Ok(objects) = { frees.lock().unwrap().recv() } {
            scope.in_scope(|| drop(objects));
            done.send(()).unwrap();
        }
    };
    let top = Tenant::new("b13").unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| free_until_closed(&Tenant::root()));
        threads.spawn(|| free_until_closed(&other));
        let free = free;
        let free_away = |objects: Vec<Object>| {
            free.send(objects).unwrap();
            freed.recv().unwrap();
        };
        assert_eq!(orders().len(), 24);
        for order in orders() {
            for when in [Free::Last, Free::AfterItsHandle, Free::BeforeItsHandle] {
                let mut handles: Vec<Option<Tenant>> = chain(&top, 4).into_iter().map(Some).collect();
                let ids: Vec<u16> = handles.iter().flatten().map(Tenant::id).collect();
                let mut held: Vec<Vec<Object>> = handles.iter().flatten().map(objects).collect();
                for level in order {
                    if when == Free::BeforeItsHandle {
                        free_away(std::mem::take(&mut held[level]));
                    }
                    handles[level] = None;
                    if when == Free::AfterItsHandle {
                        free_away(std::mem::take(&mut held[level]));
                    }
                    // A level lives while it or one below it has a handle.
                    let living = handles.iter().rposition(Option::is_some);
                    for (level, object) in
                        held.iter().enumerate().flat_map(|(n, held)| held.iter().map(move |o| (n, o)))
                    {
                        let heir = living.map_or(top.id(), |deepest| ids[level.min(deepest)]);
                        assert_eq!(owner(object).id(), heir, "{order:?} {when:?} level {level}");
                    }
                    let left: usize = held.iter().filter(|held| !held.is_empty()).count();
                    assert_eq!(top.settle(), left * charges(), "{order:?} {when:?} level {level}");
                }
                held.into_iter().for_each(&free_away);
                exact(&top, 0);
                assert_eq!((top.stats().children, top.children()), (0, vec![]), "{order:?} {when:?}");
            }
        }
    });
    exact(&other, 0);
}

/// What a forgotten guard leaves behind: the scope of a tenant that has retired, then of whoever has its id.
#[test]
fn a_forgotten_guard_is_harmless() {
    in_child("a_forgotten_guard_is_harmless", 30, || {
        let top = Tenant::new("top").unwrap();
        let gone = below(&top, "gone");
        let id = gone.id();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::mem::forget(gone.enter());
                let mut held = vec![Box::new([0_u8; 100])];
                assert_eq!(Tenant::owner_of(&held[0][..]), Some(gone.clone()));
                drop(gone);
                assert_eq!(Tenant::current(), top);
                held.push(Box::new([0_u8; 100]));
                let large = vec![0_u8; 100_000];
                assert_eq!(Tenant::owner_of(&held[1][..]), Some(top.clone()));
                assert_eq!(Tenant::owner_of(&large[..]), Some(top.clone()));
                assert!(allotment::checkpoint().is_ok());
                drop((held, large));
                exact(&top, 0);

                let next = below(&top, "next");
                assert_eq!(next.id(), id, "nothing carries it, so it is given again");
                let object = black_box(Box::new([1_u8; 100]));
                assert_eq!(top.settle(), charge(100));
                next.in_scope(|| drop(black_box(vec![1; 1000])));
                allotment::verify().unwrap();
                drop(object);
                exact(&top, 0);
                next.stop();
                drop(next);
                assert!(allotment::checkpoint().is_ok());
                exact(&top, 0);
            });
        });
        assert_eq!(Tenant::current(), Tenant::root(), "a thread's scope is its own");
        assert_eq!((top.stats().children, top.children()), (0, vec![]));
    });
}

/// Guards dropped in the order of their making leave a scope whose tenant may retire.
#[test]
fn guards_dropped_in_the_wrong_order_are_harmless() {
    // Alone, as above: the scope of a tenant that has retired is that of whoever has its id next.
    in_child("guards_dropped_in_the_wrong_order_are_harmless", 30, || {
        let top = Tenant::new("order").unwrap();
        let (one, two) = (below(&top, "one"), below(&top, "two"));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let (first, second) = (one.enter(), two.enter());
                drop(first);
                assert_eq!(Tenant::current(), Tenant::root());
                drop(second);
                assert_eq!(Tenant::current(), one);
                drop((one, two));
                let object = Box::new(5_u64);
                assert_eq!((Tenant::current(), Tenant::owner_of(&*object)), (top.clone(), Some(top.clone())));
            });
        });
        exact(&top, 0);
        assert_eq!(top.stats().children, 0);
    });
}

#[test]
fn b13_created_dropped_and_freed_by_eight_threads_while_verified() {
    const ROUNDS: usize = 150;
    let top = Tenant::new("eight").unwrap();
    let (stop, verified) = (AtomicBool::new(false), AtomicUsize::new(0));
    let common: Mutex<Vec<Object>> = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        let workers: Vec<_> = (1..=8_u64)
            .map(|seed| {
                let (top, common) = (&top, &common);
                threads.spawn(move || {
                    let mut rng = Rng(seed);
                    for round in 0..ROUNDS {
                        let tenant = below(top, "short");
                        let child = below(&tenant, "shorter");
                        let mut mine: Vec<Object> = (0..20 + rng.below(30))
                            .map(|_| {
                                let size = [16, 64, 200, 3000, 70_000][rng.below(5)];
                                let payer = if rng.below(3) == 0 { &child } else { &tenant };
                                payer.in_scope(|| Object::new(layout(size, 1), 3)).unwrap()
                            })
                            .collect();
                        let others = {
                            let mut common = common.lock().unwrap();
                            let others = common.len() / 2;
                            let others = common.split_off(others);
                            common.extend(mine.drain(..10));
                            others
                        };
                        // Their owners may have retired meanwhile, or do so just now.
                        if round % 2 == 0 {
                            drop(tenant);
                            drop(others);
                        } else {
                            child.in_scope(|| drop(others));
                        }
                        drop(child);
                        drop(mine);
                    }
                })
            })
            .collect();
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                allotment::verify().unwrap();
                verified.fetch_add(1, Ordering::Relaxed);
            }
        });
        let panicked = workers.into_iter().map(std::thread::ScopedJoinHandle::join).filter(Result::is_err).count();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(panicked, 0);
    });
    assert!(verified.into_inner() > 10);
    drop(common);
    exact(&top, 0);
    assert_eq!((top.stats().children, top.children()), (0, vec![]));
}

#[test]
fn one_tenants_handles_end_on_eight_threads_at_once() {
    let top = Tenant::new("race").unwrap();
    for round in 0..200 {
        let tenant = below(&top, "shared");
        let barrier = Barrier::new(8);
        std::thread::scope(|threads| {
            for thread in 0..8 {
                let (handle, barrier) = (tenant.clone(), &barrier);
                threads.spawn(move || {
                    let object = handle.in_scope(|| black_box(Box::new([thread; 40])));
                    barrier.wait();
                    // Below a parent that retires at this moment if this thread is slow: the builder's handle counts.
                    let child = (thread % 3 == 0).then(|| below(&handle, "late"));
                    drop(handle);
                    drop(object);
                    drop(child);
                });
            }
            drop(tenant);
        });
        assert_eq!(top.settle(), 0, "round {round}");
        assert_eq!((top.stats().children, top.children()), (0, vec![]), "round {round}");
    }
    allotment::verify().unwrap();
}

#[test]
fn a_parent_at_the_greatest_depth_has_no_children() {
    let top = Tenant::new("1").unwrap();
    let deepest = chain(&top, 31).pop().unwrap();
    for _ in 0..1000 {
        let refused = Tenant::builder("33").parent(&deepest).build();
        assert_eq!(refused, Err(CreateError::TooDeep { max: 32 }));
    }
    let held = objects(&deepest);
    assert_eq!(std::iter::successors(Some(deepest.clone()), Tenant::parent).count(), 33, "with root");
    drop(deepest);
    assert!(held.iter().all(|object| owner(object) == top), "the handle that was left");
    exact(&top, charges());
    drop(held);
    exact(&top, 0);
    assert_eq!(top.stats().children, 0);
}
