//! Several threads at one limit: it is never passed unforced, nobody is refused what would fit, and what is freed by
//! another thread is its owner's again.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/limited.rs"]
mod limited;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use allotment::{Allotment, Tenant};
use case::{charge, exact, layout, Object, Rng};
use limited::{counts, fill, forced, strict, Counts};

#[global_allocator]
static A: Allotment = Allotment::new();

const THREADS: usize = 4;

fn scaled(debug: usize, release: usize) -> usize {
    if cfg!(debug_assertions) {
        debug
    } else {
        release
    }
}

/// Sets the flag when dropped, also while unwinding: a scope waits for its threads then.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `sample` again and again on a thread of its own while `work` runs; how many times it was.
fn sampled(sample: impl FnMut() + Send, work: impl FnOnce()) -> usize {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        let mut sample = sample;
        let sampler = scope.spawn(move || {
            let mut times = 0;
            while !done.load(Ordering::Acquire) {
                sample();
                times += 1;
            }
            times
        });
        let end = Stop(done);
        work();
        drop(end);
        sampler.join().expect("every sample is right")
    })
}

/// Threads with children of one parent, whose limit is the one that binds for all but the first.
#[test]
fn b26_threads_never_pass_max_unforced() {
    for (max, sizes) in [(100_000, [16, 64, 700]), (1 << 20, [64, 3000, 65_536]), (8 << 20, [64, 65_536, 300_000])] {
        let parent = Tenant::builder("shared").max(max).build().unwrap();
        let children: Vec<Tenant> = (0..THREADS)
            .map(|n| {
                let builder = Tenant::builder("sharing").parent(&parent);
                if n == 0 { builder.max(max / 3) } else { builder }.build().unwrap()
            })
            .collect();
        let times = sampled(
            || {
                let (usage, own) = (parent.usage(), children[0].usage());
                assert!(usage <= max, "{usage} of {max}");
                assert!(own <= max / 3, "{own} of {}", max / 3);
            },
            || {
                thread::scope(|scope| {
                    for (n, child) in children.iter().enumerate() {
                        scope.spawn(move || {
                            let mut rng = Rng(n as u64 + 1);
                            let mut held = Vec::new();
                            for _ in 0..scaled(6000, 200_000) {
                                match strict(child, sizes[rng.below(sizes.len())]) {
                                    Some(object) => held.push(object),
                                    None => held.truncate(rng.below(held.len() + 1)),
                                }
                            }
                        });
                    }
                });
            },
        );
        assert!(times > 100, "{times} samples");
        assert!(parent.peak() <= max && parent.peak() > max / 2, "{} of {max}", parent.peak());
        assert!(children[0].peak() <= max / 3);
        let (local, all) = counts(&parent);
        assert_eq!(Counts { refused: 0, ..all }, Counts::default(), "nothing was forced and nobody stopped");
        assert!(local.refused > 0 && all.refused > local.refused, "both limits were met: {local:?} {all:?}");
        exact(&parent, 0);
    }
}

/// A verdict is final only when nothing charged to the tenant lies unused anywhere: together the threads get exactly as
/// many objects as fit.
#[test]
fn b26_threads_fill_a_limit_to_the_last_object() {
    for round in 0..scaled(30, 200) {
        let size = [64, 16, 400, 5000, 65_536][round % 5];
        let count = if size > 4000 { 101 } else { 3001 };
        let max = count * charge(size) + charge(size) - 1;
        let parent = Tenant::builder("full").max(max).build().unwrap();
        let children: Vec<Tenant> =
            (0..THREADS).map(|_| Tenant::builder("filling").parent(&parent).build().unwrap()).collect();
        let start = Barrier::new(THREADS);
        let held: Vec<Vec<Object>> = thread::scope(|scope| {
            let start = &start;
            let fillers: Vec<_> = children
                .iter()
                .map(|child| {
                    scope.spawn(move || {
                        start.wait();
                        // Cached objects and stocks on the way, which must not be missing at the end.
                        drop(forced(child, size, 5));
                        fill(child, size)
                    })
                })
                .collect();
            fillers.into_iter().map(|filler| filler.join().unwrap()).collect()
        });
        // A thread that was refused while another still held its first five is refused rightly: it asks again.
        let late = fill(&children[0], size);
        let got: usize = held.iter().map(Vec::len).sum::<usize>() + late.len();
        assert_eq!(got, count, "{size} B in round {round}");
        drop((held, late));
        assert_eq!(parent.settle(), 0);
    }
    allotment::verify().unwrap();
}

/// A charge that an ancestor refuses is for a moment reserved below it. Nobody sees it there, and it makes no other
/// charge fail that fits. With many levels in between the moment is a long one.
#[test]
fn b27_a_failed_charge_makes_no_other_fail() {
    let parent = Tenant::builder("outer limit").max(500_000).build().unwrap();
    let mut child = parent.clone();
    for _ in 0..25 {
        child = Tenant::builder("inner limit").parent(&child).build().unwrap();
    }
    child.set_max(900_000);
    let held = parent.try_charge(200_000).unwrap();
    let attempts = scaled(60_000, 600_000);
    sampled(
        || {
            assert!([0, 100_000].contains(&child.usage()), "a refused charge was seen: {}", child.usage());
            assert!([200_000, 300_000].contains(&parent.usage()), "a refused charge was seen: {}", parent.usage());
        },
        || {
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..attempts {
                            assert!(strict(&child, 850_000).is_none());
                        }
                    });
                }
                for attempt in 0..attempts {
                    let charge = child.try_charge(100_000);
                    assert!(charge.is_ok(), "attempt {attempt}: {charge:?}");
                }
            });
        },
    );
    assert_eq!((parent.peak(), child.peak()), (300_000, 100_000));
    let (at_parent, all) = counts(&parent);
    assert_eq!(all, Counts { refused: 2 * attempts as u64, ..Counts::default() });
    assert!(at_parent.refused > 0);
    drop(held);
    exact(&parent, 0);
}

#[test]
fn set_max_binds_at_once_on_all_threads() {
    let tenant = Tenant::new("squeezed").unwrap();
    let (high, low) = (2_000_000, 500_000);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..2 {
            let (tenant, stop) = (&tenant, &stop);
            scope.spawn(move || {
                let mut rng = Rng(n + 7);
                let mut held = Vec::new();
                while !stop.load(Ordering::Acquire) {
                    match strict(tenant, [64, 1000, 9000][rng.below(3)]) {
                        Some(object) if rng.below(3) > 0 => held.push(object),
                        Some(_) => {}
                        None => held.truncate(rng.below(held.len() + 1)),
                    }
                }
            });
        }
        let end = Stop(&stop);
        for round in 0..scaled(40, 200) {
            let deadline = Instant::now() + Duration::from_secs(30);
            tenant.set_max(high);
            while tenant.usage() < 2 * low {
                assert!(Instant::now() < deadline, "nobody uses the higher limit");
                thread::yield_now();
            }
            tenant.set_max(low);
            let (mut last, mut below) = (tenant.usage(), 0);
            while below < 1000 {
                assert!(Instant::now() < deadline, "nobody comes down to the lower limit");
                let now = tenant.usage();
                assert!(now <= last.max(low), "round {round}: usage rose from {last} to {now}, past {low}");
                (last, below) = (now, below + usize::from(now <= low));
                if now > low {
                    thread::yield_now();
                }
            }
        }
        drop(end);
    });
    assert_eq!(Counts { refused: 0, ..counts(&tenant).0 }, Counts::default(), "nothing was forced and nobody stopped");
    assert!(counts(&tenant).0.refused > 0);
    exact(&tenant, 0);
}

/// A producer in one tenant, consumers in another and in none: the producer's usage is at every moment at least what is
/// alive, and above it by no more than `stats()` says.
#[test]
fn b34_cross_thread_frees_credit_the_owner() {
    const SIZE: usize = 200;
    let (maker, taker) = (Tenant::new("maker").unwrap(), Tenant::new("taker").unwrap());
    let objects = scaled(200_000, 3_000_000);
    // Counted before and after the allocation, and before and after the free.
    let [begun, born, dying, dead] = [const { AtomicUsize::new(0) }; 4];
    let producers = 2;
    // An allocation under way may hold half a magazine beside what `slack_bound` counts.
    let bound = allotment::stats().slack_bound + producers * 32 * charge(SIZE);
    let times = sampled(
        || {
            let (born, dead) = (born.load(Ordering::SeqCst), dead.load(Ordering::SeqCst));
            let usage = maker.usage();
            let (begun, dying) = (begun.load(Ordering::SeqCst), dying.load(Ordering::SeqCst));
            let least = born.saturating_sub(dying) * charge(SIZE);
            let most = (begun - dead) * charge(SIZE);
            assert!(usage >= least, "{usage} shown, {least} alive");
            assert!(usage <= most + bound, "{usage} shown, {most} alive and {bound} of slack");
            assert_eq!(taker.usage(), 0);
        },
        || {
            thread::scope(|scope| {
                for produced in 0..producers {
                    // Bounded, so that its queue is made here, in root; it is sent and received in root as well.
                    let (sender, receiver) = mpsc::sync_channel::<Object>(500);
                    let (maker, taker, begun, born, dying, dead) = (&maker, &taker, &begun, &born, &dying, &dead);
                    scope.spawn(move || {
                        for n in 0..objects / producers {
                            begun.fetch_add(1, Ordering::SeqCst);
                            let object = maker.in_scope(|| Object::new(layout(SIZE, 8), n as u8).unwrap());
                            born.fetch_add(1, Ordering::SeqCst);
                            sender.send(object).unwrap();
                        }
                    });
                    scope.spawn(move || {
                        for object in receiver {
                            dying.fetch_add(1, Ordering::SeqCst);
                            if produced == 0 {
                                taker.in_scope(|| drop(object));
                            } else {
                                drop(object);
                            }
                            dead.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                }
            });
        },
    );
    assert!(times > 1000, "{times} samples");
    assert_eq!(dead.into_inner(), objects / producers * producers);
    exact(&maker, 0);
    assert_eq!((taker.settle(), taker.peak()), (0, 0), "who frees pays nothing");
}

/// Threads that change tenants with every operation, at and below their limits, with frees anywhere.
#[test]
fn interleaved_tenants_stay_exact() {
    let tenants: Vec<Tenant> = [None, Some(300_000), Some(1 << 20)]
        .iter()
        .map(|&max| {
            let tenant = Tenant::new("interleaved").unwrap();
            tenant.set_max(max);
            tenant
        })
        .collect();
    // What is alive, by tenant, on all threads.
    let alive = [const { AtomicUsize::new(0) }; 3];
    for round in 0..5 {
        let left: Vec<Vec<(usize, Object)>> = thread::scope(|scope| {
            let (tenants, alive) = (&tenants, &alive);
            let threads: Vec<_> = (0..THREADS)
                .map(|n| {
                    scope.spawn(move || {
                        let mut rng = Rng((round * THREADS + n + 1) as u64);
                        let mut held: Vec<(usize, Object)> = Vec::new();
                        for _ in 0..scaled(6000, 100_000) {
                            let (at, size) = (rng.below(3), [24, 64, 1000, 30_000][rng.below(4)]);
                            if let Some(object) = strict(&tenants[at], size) {
                                alive[at].fetch_add(charge(size), Ordering::Relaxed);
                                held.push((at, object));
                            }
                            if held.len() > 40 || rng.below(3) == 0 && !held.is_empty() {
                                let (at, object) = held.swap_remove(rng.below(held.len()));
                                alive[at].fetch_sub(charge(object.layout.size()), Ordering::Relaxed);
                                tenants[rng.below(3)].in_scope(|| drop(object));
                            }
                        }
                        held
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (tenant, alive) in tenants.iter().zip(&alive) {
            exact(tenant, alive.load(Ordering::Relaxed));
        }
        for (at, object) in left.into_iter().flatten() {
            alive[at].fetch_sub(charge(object.layout.size()), Ordering::Relaxed);
        }
    }
    tenants.iter().for_each(|tenant| exact(tenant, 0));
    assert!(tenants[1].peak() <= 300_000 && counts(&tenants[1]).0.refused > 0);
}
