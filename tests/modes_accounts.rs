//! Whatever the mode of entering CPU slots: the same accounts, and a drain that reaches every cache.

#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/mode.rs"]
mod mode;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use allotment::{Allotment, Tenant};
use case::{charge, exact, is_child, Rng};
use mode::{as_asked, child_with, in_each_mode};

#[global_allocator]
static A: Allotment = Allotment::new();

/// What this system has.
#[test]
fn the_mode_is_the_best_there_is_or_the_one_asked_for() {
    const TEST: &str = "the_mode_is_the_best_there_is_or_the_one_asked_for";
    if is_child() {
        println!("mode={}", allotment::stats().mode);
        return;
    }
    let without_rseq = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    let mode = |env: &[(&str, &str)]| {
        let printed = child_with(TEST, env, 10);
        printed.split_once("mode=").and_then(|(_, rest)| rest.lines().next()).expect("a mode").to_owned()
    };
    let best = mode(&[("ALLOTMENT_MODE", "")]);
    for nonsense in ["nonsense", "RSEQ", "rseq ", "threads,locked"] {
        assert_eq!(mode(&[("ALLOTMENT_MODE", nonsense)]), best, "{nonsense:?}");
    }
    assert_eq!(mode(&[("ALLOTMENT_MODE", "rseq")]), best);
    assert_eq!(mode(&[("ALLOTMENT_MODE", "threads")]), "threads");
    assert_eq!(mode(&[("ALLOTMENT_MODE", "locked")]), "locked");
    assert_eq!(mode(&[("ALLOTMENT_MODE", ""), without_rseq]), "threads");
    assert_eq!(mode(&[("ALLOTMENT_MODE", "rseq"), without_rseq]), "threads", "the first below");
    assert_eq!(mode(&[("ALLOTMENT_MODE", "locked"), without_rseq]), "locked");
}

/// One trace on several threads, ended at known moments: every figure that is promised to be exact.
#[test]
fn every_mode_keeps_the_same_accounts() {
    if !is_child() {
        let accounts: Vec<Vec<String>> = in_each_mode("every_mode_keeps_the_same_accounts", 60)
            .iter()
            .map(|printed| printed.lines().filter(|line| line.contains("account")).map(str::to_owned).collect())
            .collect();
        assert!(accounts[0].len() > 20);
        assert_eq!(accounts[0], accounts[1]);
        assert_eq!(accounts[0], accounts[2]);
        return;
    }
    as_asked();
    let top = Tenant::builder("top").max(64 << 20).build().unwrap();
    let tenants = [8 << 20, 6 << 20, 4 << 20]
        .map(|max| Tenant::builder("below").parent(&top).max(max).high(max / 2).build().unwrap());
    let mut rng = Rng(3);
    let mut live: Vec<Vec<u8>> = Vec::new();
    for round in 0..8 {
        for _ in 0..4_000 {
            let owner = &tenants[rng.below(3)];
            let size = if rng.below(200) == 0 { 70_000 + rng.below(100_000) } else { 1 + rng.below(3_000) };
            owner.in_scope(|| live.push(vec![1; size]));
            if rng.below(3) != 0 {
                let freed = live.swap_remove(rng.below(live.len()));
                tenants[rng.below(3)].in_scope(|| drop(freed));
            }
            if rng.below(10) == 0 {
                let grown = rng.below(live.len());
                let size = live[grown].len() + rng.below(5_000);
                live[grown].resize(size, 2);
            }
        }
        // Half of it is freed by another thread, the way back into scopes it knows nothing of.
        let half = live.split_off(live.len() / 2);
        std::thread::spawn(move || drop(half)).join().unwrap();
        let adopted = &live[0];
        tenants[round % 3].adopt(adopted);
        let refused =
            tenants[2].in_scope(|| allotment::fallible(|| Vec::<u8>::new().try_reserve_exact(5 << 20)).is_err());
        let huge = tenants[0].in_scope(|| allotment::fallible(|| Vec::<u8>::new().try_reserve_exact(3 << 20)).is_ok());
        for tenant in tenants.iter().chain([&top]) {
            println!("account {round} {} {} {refused} {huge}", tenant.settle(), tenant.events().local.refused);
        }
    }
    drop(live);
    tenants.iter().chain([&top]).for_each(|tenant| exact(tenant, 0));
}

/// Threads that have objects of a tenant in their caches and then do nothing: a settle takes all of it back, and nothing
/// is refused for it.
#[test]
fn a_drain_reaches_the_caches_of_threads_that_sleep() {
    const MAX: usize = 2 << 20;
    if !is_child() {
        in_each_mode("a_drain_reaches_the_caches_of_threads_that_sleep", 30);
        return;
    }
    as_asked();
    let tenant = Tenant::builder("cached").max(MAX).build().unwrap();
    let (cached, over) = (Barrier::new(9), Barrier::new(9));
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                let objects = |size: usize| (0..600).map(|_| vec![1_u8; size]).collect::<Vec<_>>();
                for _ in 0..2 {
                    tenant.in_scope(|| drop(objects(96)));
                    cached.wait();
                    over.wait();
                }
            });
        }
        cached.wait();
        assert!(tenant.usage() > 0, "nothing is cached: this test tests nothing");
        exact(&tenant, 0);
        over.wait();
        cached.wait();
        assert!(tenant.usage() > 0);
        let all = tenant.in_scope(|| {
            allotment::fallible(|| {
                let mut all = Vec::<u8>::new();
                all.try_reserve_exact(MAX).map(|()| all)
            })
        });
        assert!(all.is_ok(), "refused while the rest was only cached");
        assert_eq!(tenant.usage(), MAX);
        drop(all);
        over.wait();
    });
    exact(&tenant, 0);
}

/// Once a tenant was refused something each free of its objects counts at once, whoever frees.
#[test]
fn a_pressured_tenants_frees_count_at_once() {
    if !is_child() {
        in_each_mode("a_pressured_tenants_frees_count_at_once", 30);
        return;
    }
    as_asked();
    const OBJECTS: usize = 1_000;
    let max = OBJECTS * charge(200);
    let tenant = Tenant::builder("full").max(max).build().unwrap();
    let mut objects: Vec<Vec<u8>> = Vec::with_capacity(OBJECTS);
    for _ in 0..OBJECTS {
        let object = tenant.in_scope(|| allotment::fallible(|| Vec::try_with_capacity_of(200)));
        objects.push(object.expect("there is room"));
    }
    assert_eq!(tenant.usage(), max);
    // From its first refusal on, before which it is drained.
    assert!(tenant.in_scope(|| allotment::fallible(|| Vec::<u8>::try_with_capacity_of(200))).is_none());
    for left in (OBJECTS - 100..OBJECTS).rev() {
        // In turn by a thread that has never allocated, which goes the slow way, and by this one.
        let freed = objects.pop();
        if left % 2 == 0 {
            std::thread::scope(|threads| threads.spawn(|| drop(freed)).join().unwrap());
        } else {
            drop(freed);
        }
        assert_eq!(tenant.usage(), left * charge(200));
    }
    drop(objects);
    exact(&tenant, 0);
}

trait TryWithCapacity: Sized {
    fn try_with_capacity_of(bytes: usize) -> Option<Self>;
}
impl TryWithCapacity for Vec<u8> {
    fn try_with_capacity_of(bytes: usize) -> Option<Self> {
        let mut vec = Vec::new();
        vec.try_reserve_exact(bytes).ok().map(|()| vec)
    }
}

/// Has the calling thread get a signal every 100 µs, until the timer is deleted. (The timers of `setitimer` that count CPU
/// time go by the kernel's tick, a few hundred a second, and the third is not for one thread.)
fn signals_for_this_thread(thread: libc::pid_t) -> libc::timer_t {
    let every = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
    let mut timer = std::ptr::null_mut();
    // SAFETY: an all-zero event is a valid one; all pointers are to live variables.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = thread;
        assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
        let times = libc::itimerspec { it_interval: every, it_value: every };
        assert_eq!(libc::timer_settime(timer, 0, &times, std::ptr::null_mut()), 0);
    }
    timer
}

/// 10,000 signals a second for each thread, and threads that are moved from one CPU to the next all the time.
#[test]
fn signals_and_migrations_leave_everything_exact() {
    if !is_child() {
        in_each_mode("signals_and_migrations_leave_everything_exact", 60);
        return;
    }
    as_asked();
    const WORKERS: usize = 3;
    const STORM: usize = 10_000;
    static SIGNALS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: libc::c_int) {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: all-zero is a valid sigaction; the handler only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()), 0);
    }
    let tenants: [Tenant; WORKERS] = std::array::from_fn(|_| Tenant::builder("w").max(64 << 20).build().unwrap());
    let ids: [AtomicI32; WORKERS] = Default::default();
    let ended = AtomicBool::new(false);
    let shelf: Mutex<Vec<(u8, Vec<u8>)>> = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for (place, tenant) in tenants.iter().enumerate() {
            let (ids, ended, shelf) = (&ids, &ended, &shelf);
            threads.spawn(move || {
                // SAFETY: gettid has no preconditions.
                let thread = unsafe { libc::gettid() };
                ids[place].store(thread, Ordering::SeqCst);
                let timer = signals_for_this_thread(thread);
                let mut rng = Rng(place as u64 + 1);
                let mut live: Vec<(u8, Vec<u8>)> = Vec::new();
                while !ended.load(Ordering::Relaxed) {
                    let mark = rng.below(256) as u8;
                    live.push((mark, tenant.in_scope(|| vec![mark; 1 + rng.below(1_500)])));
                    if live.len() > 200 {
                        let (mark, object) = live.swap_remove(rng.below(200));
                        assert!(object.iter().all(|&byte| byte == mark), "torn");
                        if rng.below(8) == 0 {
                            // Another worker frees it.
                            let mut shelf = shelf.lock().unwrap();
                            shelf.push((mark, object));
                            if shelf.len() > 50 {
                                let (mark, object) = shelf.swap_remove(rng.below(50));
                                assert!(object.iter().all(|&byte| byte == mark), "torn");
                            }
                        }
                    }
                }
                // SAFETY: made above, and deleted once.
                assert_eq!(unsafe { libc::timer_delete(timer) }, 0);
            });
        }
        // SAFETY: a set of zeros is valid.
        let mut all: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes the set.
        unsafe { assert_eq!(libc::sched_getaffinity(0, size_of_val(&all), &mut all), 0) };
        // SAFETY: reads the set.
        let cpus: Vec<usize> = (0..1024).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &all) }).collect();
        let start = Instant::now();
        for turn in 0.. {
            // On a busy machine for longer.
            let few = SIGNALS.load(Ordering::Relaxed) < STORM;
            if start.elapsed() > Duration::from_millis(if few { 10_000 } else { 1_500 }) {
                break;
            }
            for (place, id) in ids.iter().enumerate() {
                // SAFETY: reads a live set; a thread id of this process, or 0: this thread.
                unsafe {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(cpus[(turn + place) % cpus.len()], &mut set);
                    libc::sched_setaffinity(id.load(Ordering::SeqCst), size_of_val(&set), &set);
                }
            }
            if turn % 64 == 0 {
                // The world is stopped amid it.
                black_box(tenants[turn / 64 % WORKERS].settle());
            }
        }
        ended.store(true, Ordering::SeqCst);
    });
    let signals = SIGNALS.load(Ordering::Relaxed);
    println!("{signals} signals");
    assert!(signals >= STORM, "no storm: {signals} signals");
    drop(shelf.into_inner().unwrap());
    tenants.iter().for_each(|tenant| exact(tenant, 0));
}

/// More threads than slots, all of which free what others have allocated.
#[test]
fn four_hundred_threads_at_once_are_exact() {
    if !is_child() {
        in_each_mode("four_hundred_threads_at_once_are_exact", 60);
        return;
    }
    as_asked();
    const THREADS: usize = 400;
    let tenant = Tenant::new("many").unwrap();
    let shelves: Vec<Mutex<Vec<Vec<u8>>>> = (0..THREADS).map(|_| Mutex::default()).collect();
    let barrier = Barrier::new(THREADS + 1);
    std::thread::scope(|threads| {
        for place in 0..THREADS {
            let (tenant, shelves, barrier) = (&tenant, &shelves, &barrier);
            threads.spawn(move || {
                barrier.wait();
                let mine: Vec<Vec<u8>> = (0..50).map(|n| tenant.in_scope(|| vec![place as u8; 16 + 8 * n])).collect();
                *shelves[place].lock().unwrap() = mine;
                barrier.wait();
                barrier.wait();
                let theirs = std::mem::take(&mut *shelves[(place + 7) % THREADS].lock().unwrap());
                assert!(theirs.iter().flatten().all(|&byte| byte == ((place + 7) % THREADS) as u8), "torn");
                drop(theirs);
                barrier.wait();
            });
        }
        barrier.wait();
        barrier.wait();
        exact(&tenant, THREADS * (0..50).map(|n| charge(16 + 8 * n)).sum::<usize>());
        barrier.wait();
        barrier.wait();
        exact(&tenant, 0);
    });
}

/// Threads that come and go use the slots that are there.
#[test]
fn two_thousand_short_threads_make_no_slots() {
    if !is_child() {
        in_each_mode("two_thousand_short_threads_make_no_slots", 60);
        return;
    }
    as_asked();
    let tenant = Tenant::new("short").unwrap();
    let short = || std::thread::scope(|threads| drop(threads.spawn(|| tenant.in_scope(|| vec![1_u8; 100])).join()));
    (0..10).for_each(|_| short());
    let before = allotment::stats().slots;
    (0..2_000).for_each(|_| short());
    let (after, cpus) = (allotment::stats().slots, std::thread::available_parallelism().map_or(1, usize::from));
    assert!(after <= before + cpus, "{before} slots before, {after} after");
    exact(&tenant, 0);
}
