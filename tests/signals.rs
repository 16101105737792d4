//! Signals that land inside the allocator (hazard B17): handlers that read are always right; handlers that allocate, stop
//! the world or end a tenant, as they must not, are served or end the process with a message, and never hang.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
#[path = "common/churn.rs"]
mod churn;
mod common;

use std::alloc::GlobalAlloc;
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::os::unix::process::ExitStatusExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use allotment::{Allotment, Tenant};
use case::{exact, in_child, layout};
use churn::{churn, Work};

#[global_allocator]
static A: Allotment = Allotment::new();

static WATCHED: OnceLock<Tenant> = OnceLock::new();
static SIGNALS: AtomicUsize = AtomicUsize::new(0);
static IMPOSSIBLE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn reads_only(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    if WATCHED.get().is_some_and(|tenant| tenant.usage() > 1 << 40) {
        IMPOSSIBLE.fetch_add(1, Ordering::Relaxed);
    }
}

/// Forbidden, but happens.
extern "C" fn allocates(_: libc::c_int) {
    let count = SIGNALS.fetch_add(1, Ordering::Relaxed);
    let size = [24, 700, 5000, 100_000][count % 4];
    let layout = layout(size, 8);
    // SAFETY: not of size 0; written within its bounds and freed with its layout.
    unsafe {
        let object = A.alloc(layout);
        if !object.is_null() {
            object.write_bytes(1, size);
            A.dealloc(object, layout);
        }
    }
}

extern "C" fn allocates_little(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let layout = layout(24, 8);
    // SAFETY: not of size 0, and freed with its layout.
    unsafe {
        let object = A.alloc(layout);
        if !object.is_null() {
            A.dealloc(object, layout);
        }
    }
}

/// Runs 4 threads that allocate under a storm of SIGPROF, from the profiling timer and sent to each thread in turn.
fn storm(handler: extern "C" fn(libc::c_int), at_least: usize, work: Work, reports: bool) {
    let tenant = WATCHED.get_or_init(|| Tenant::new("watched").unwrap());
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    let tick = libc::timeval { tv_sec: 0, tv_usec: 100 };
    let timer = libc::itimerval { it_interval: tick, it_value: tick };
    // SAFETY: both structures are live; the handler is a function of this binary.
    unsafe {
        assert_eq!(libc::sigaction(libc::SIGPROF, &action, null_mut()), 0);
        assert_eq!(libc::setitimer(libc::ITIMER_PROF, &timer, null_mut()), 0);
    }
    // This thread stops the world; the signals are for those that allocate.
    let block = |how| {
        // SAFETY: `set` is live; all-zero is a valid set.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, libc::SIGPROF);
            assert_eq!(libc::pthread_sigmask(how, &set, null_mut()), 0);
        }
    };
    let stop = AtomicBool::new(false);
    let leave = std::sync::Barrier::new(5);
    let threads: Mutex<Vec<libc::pthread_t>> = Mutex::new(Vec::with_capacity(4));
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let (stop, threads, leave) = (&stop, &threads, &leave);
            scope.spawn(move || {
                // SAFETY: takes no argument.
                threads.lock().unwrap().push(unsafe { libc::pthread_self() });
                churn(tenant, seed, work, stop);
                leave.wait(); // not before the last signal to this thread
            });
        }
        block(libc::SIG_BLOCK);
        let begin = Instant::now();
        let few = || SIGNALS.load(Ordering::Relaxed) < at_least;
        let within = |seconds| begin.elapsed() < Duration::from_secs(seconds);
        // On a busy machine for longer.
        while within(1) || (few() && within(6)) {
            for &thread in &*threads.lock().unwrap() {
                // SAFETY: the thread waits for us before it ends.
                unsafe { libc::pthread_kill(thread, libc::SIGPROF) };
            }
            if reports {
                // Stops the world, which must not wait for a thread that waits for it.
                black_box(allotment::stats());
                black_box(tenant.settle());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        stop.store(true, Ordering::Relaxed);
        leave.wait();
    });
    let off = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: as above.
    unsafe {
        libc::setitimer(libc::ITIMER_PROF, &libc::itimerval { it_interval: off, it_value: off }, null_mut());
        libc::signal(libc::SIGPROF, libc::SIG_IGN);
    }
    block(libc::SIG_UNBLOCK);
    assert!(SIGNALS.load(Ordering::Relaxed) > at_least / 20);
    exact(tenant, 0);
}

#[test]
fn b17_signals_that_only_read() {
    in_child("b17_signals_that_only_read", 40, || {
        storm(reads_only, 5_000, Work::Objects, true);
        assert_eq!(IMPOSSIBLE.load(Ordering::Relaxed), 0);
    });
}

/// Served, or a clean end with our message; never a hang, never another death.
fn allocating_handler(test: &str, handler: extern "C" fn(libc::c_int), work: Work, reports: bool) {
    if case::is_child() {
        return storm(handler, 2_000, work, reports);
    }
    for _ in 0..3 {
        let child = case::child(test, 20);
        let served = child.status.is_some_and(|status| status.success()) && child.stdout.contains("1 passed");
        let ended = child.status.is_some_and(|status| status.signal() == Some(libc::SIGABRT))
            && child.stderr.contains("allotment: re-entered from a signal handler");
        assert!(served || ended, "{:?}\n{}\n{}", child.status, child.stdout, child.stderr);
    }
}

#[test]
fn b17_signals_that_allocate() {
    allocating_handler("b17_signals_that_allocate", allocates, Work::Objects, false);
}

#[test]
fn b17_signals_that_allocate_amid_reports() {
    allocating_handler("b17_signals_that_allocate_amid_reports", allocates, Work::Objects, true);
}

/// The handler finds its thread inside an operation but with no lock held, while another thread stops the world: that
/// one waits for the operation, which waits for the handler, which must not wait for the world to go on.
#[test]
fn b17_signals_that_allocate_inside_system_calls() {
    let test = "b17_signals_that_allocate_inside_system_calls";
    allocating_handler(test, allocates_little, Work::Mappings, true);
}

/// Stops the world, though its own thread may be inside while another one stops it.
extern "C" fn settles(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    if let Some(tenant) = WATCHED.get() {
        tenant.settle();
    }
}

#[test]
fn b17_signals_that_stop_the_world() {
    allocating_handler("b17_signals_that_stop_the_world", settles, Work::Objects, true);
}

/// Tenants whose only handles a signal handler drops.
static ENDING: OnceLock<Vec<ManuallyDrop<Tenant>>> = OnceLock::new();

/// Ends a tenant, which takes its stocks from every slot, though its own thread may be inside one.
extern "C" fn ends_a_tenant(_: libc::c_int) {
    let count = SIGNALS.fetch_add(1, Ordering::Relaxed);
    if let Some(tenant) = ENDING.get().and_then(|tenants| tenants.get(count)) {
        // SAFETY: each count is seen by one handler only, and the list never drops its tenants.
        drop(unsafe { std::ptr::read(&raw const **tenant) });
    }
}

#[test]
fn b17_signals_that_end_tenants() {
    if case::is_child() {
        let tenants = (0..20_000).map(|_| ManuallyDrop::new(Tenant::new("ending").unwrap())).collect();
        assert!(ENDING.set(tenants).is_ok());
    }
    allocating_handler("b17_signals_that_end_tenants", ends_a_tenant, Work::Objects, true);
}
