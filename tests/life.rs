//! What happens to a process and its threads: before `main`, after thread-local teardown, fork, exit
//! (hazards B01, B15, B23, B37, B42). Signals: `tests/signals.rs`.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
#[path = "common/churn.rs"]
mod churn;
mod common;

use std::cell::RefCell;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use allotment::{Allotment, Tenant};
use case::{charge, exact, in_child, layout, Object};
use churn::{churn, Work};

#[global_allocator]
static A: Allotment = Allotment::new();

/// For handlers of any kind, where a panic would not be seen: says so and ends the process at once.
fn demand(holds: bool, what: &str) {
    if !holds {
        say(what);
        // SAFETY: ends the process without running anything.
        unsafe { libc::_exit(99) };
    }
}

fn say(what: &str) {
    for text in [what, "\n"] {
        // SAFETY: pointer and length of a live string.
        unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
    }
}

// ------------------------------------------------------------------------------------------------- before main

type Held = (Box<[u8; 1000]>, Vec<u8>);

struct Early {
    tenant: Tenant,
    held: Mutex<Option<Held>>,
    of_thread: Mutex<Option<Vec<u8>>>,
}

static EARLY: OnceLock<Early> = OnceLock::new();

/// Runs before `main` in every process of this test binary.
extern "C" fn before_main() {
    let tenant = Tenant::new("early").expect("a tenant before main");
    let held = tenant.in_scope(|| (Box::new([1; 1000]), vec![2; 100_000]));
    let of_thread = {
        let tenant = tenant.clone();
        std::thread::spawn(move || tenant.in_scope(|| vec![3; 5000])).join().expect("a thread before main")
    };
    demand(tenant.settle() == charge(1000) + charge(100_000) + charge(5000), "early: not exact before main");
    demand(allotment::verify().is_ok(), "early: no proof before main");
    let early = Early { tenant, held: Mutex::new(Some(held)), of_thread: Mutex::new(Some(of_thread)) };
    demand(EARLY.set(early).is_ok(), "early: twice");
    // SAFETY: a function of this binary, which is never unloaded.
    demand(unsafe { libc::atexit(at_exit) } == 0, "early: no atexit");
}

#[used]
#[link_section = ".init_array"]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn at_exit() {
    let Some(early) = EARLY.get() else { return demand(false, "early: never ran") };
    demand(early.held.lock().is_ok_and(|mut held| held.take().is_some()), "early: nothing to free");
    demand(early.tenant.settle() == charge(5000), "early: not exact in the atexit handler");
    let late = early.tenant.in_scope(|| vec![4_u8; 300]);
    demand(early.tenant.settle() == charge(5000) + charge(300), "early: no allocation in the atexit handler");
    drop(late);
    if case::is_child() {
        say("early: exact at exit");
    }
}

/// After the atexit handlers.
extern "C" fn last_of_all() {
    let Some(early) = EARLY.get() else { return };
    demand(early.of_thread.lock().is_ok_and(|mut held| held.take().is_some()), "early: nothing left to free");
    demand(early.tenant.settle() == 0, "early: not zero in the last destructor");
    demand(allotment::verify().is_ok(), "early: no proof in the last destructor");
    if case::is_child() {
        say("early: zero in the last destructor");
    }
}

#[used]
#[link_section = ".fini_array"]
static LAST_OF_ALL: extern "C" fn() = last_of_all;

#[test]
fn b23_before_main_and_after_exit() {
    let child = in_child("b23_before_main_and_after_exit", 20, || {
        let early = EARLY.get().expect("init_array ran");
        exact(&early.tenant, charge(1000) + charge(100_000) + charge(5000));
    });
    if let Some(child) = child {
        let order = ["1 passed", "early: exact at exit\n", "early: zero in the last destructor\n"]
            .map(|line| child.stdout.find(line).unwrap_or_else(|| panic!("no {line:?} in {}", child.stdout)));
        assert!(order.is_sorted());
    }
}

// ------------------------------------------------------------------------------------- after thread-local teardown

static LATE_DROPS: AtomicUsize = AtomicUsize::new(0);
static KEY_ROUNDS: AtomicUsize = AtomicUsize::new(0);
static LATE: OnceLock<Tenant> = OnceLock::new();

fn late() -> &'static Tenant {
    LATE.get_or_init(|| Tenant::new("late").expect("a tenant"))
}

struct AllocatesInDrop(Vec<u8>);

impl Drop for AllocatesInDrop {
    fn drop(&mut self) {
        late().in_scope(|| {
            for size in 1..=1000 {
                // Mostly small ones; each 100th is large.
                let size = if size % 100 == 0 { size * 700 } else { size * 3 };
                let mut object = black_box(Vec::<u8>::with_capacity(size));
                object.push(self.0[0]);
            }
            self.0 = vec![0; 64];
        });
        LATE_DROPS.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    static DROPS: RefCell<Option<AllocatesInDrop>> = const { RefCell::new(None) };
}

/// What a foreign key's value is: how many more times to arm it, and memory from the round before.
type Armed = (libc::pthread_key_t, usize, Vec<u8>);

extern "C" fn key_round(value: *mut libc::c_void) {
    // SAFETY: `arm` made it from a box, and the key has let go of it.
    let (key, rounds, memory) = *unsafe { Box::from_raw(value.cast::<Armed>()) };
    demand(memory == vec![rounds as u8; 100 * rounds], "late: memory of the last round changed");
    KEY_ROUNDS.fetch_add(1, Ordering::Relaxed);
    if rounds > 1 {
        arm(key, rounds - 1);
    }
}

fn arm(key: libc::pthread_key_t, rounds: usize) {
    let armed: Box<Armed> = late().in_scope(|| Box::new((key, rounds, vec![rounds as u8; 100 * rounds])));
    // SAFETY: a live key of ours; its destructor takes the box back.
    demand(unsafe { libc::pthread_setspecific(key, Box::into_raw(armed).cast()) } == 0, "late: key not armed");
}

#[test]
fn b01_after_thread_local_teardown() {
    const THREADS: usize = 2_000;
    in_child("b01_after_thread_local_teardown", 60, || {
        let mut key = 0;
        // SAFETY: `key` is live; the destructor is a function of this binary.
        assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(key_round)) }, 0);
        let mut metadata = 0;
        for round in 0..4 {
            for _ in 0..THREADS / 4 / 4 {
                std::thread::scope(|scope| {
                    for _ in 0..4 {
                        scope.spawn(|| {
                            arm(key, 4);
                            let value = late().in_scope(|| AllocatesInDrop(vec![7; 10]));
                            DROPS.with_borrow_mut(|slot| *slot = Some(value));
                        });
                    }
                });
            }
            // A scoped thread counts as done before its destructors have run.
            let done = THREADS / 4 / 4 * 4 * (round + 1);
            while KEY_ROUNDS.load(Ordering::Relaxed) < 4 * done {
                std::thread::yield_now();
            }
            let used = allotment::stats().metadata_used;
            if round == 1 {
                metadata = used;
            }
            assert!(round < 2 || used <= metadata + warm_up(), "{metadata} B of metadata became {used}");
        }
        // The last round's frees come after its count.
        let end = Instant::now() + Duration::from_secs(5);
        while late().settle() != 0 && Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(LATE_DROPS.load(Ordering::Relaxed), THREADS);
        assert_eq!(KEY_ROUNDS.load(Ordering::Relaxed), 4 * THREADS);
        exact(late(), 0);
    });
}

/// Blocks of magazines that may still be made after a warm-up, when a busy machine brings another slot or class into
/// use: two per class and slot and sixteen per class in the depot, of 512 B. For each of 20,000 threads that is less
/// than the smallest record.
fn warm_up() -> usize {
    44 * (2 * allotment::stats().slots + 16) * 512
}

#[test]
fn b42_many_short_threads() {
    const THREADS: usize = 20_000;
    in_child("b42_many_short_threads", 60, || {
        let tenant = Tenant::new("short threads").unwrap();
        let mut metadata = 0;
        let mut survivors = Tenant::root().in_scope(|| Vec::with_capacity(THREADS / 1000));
        for number in 0..THREADS {
            let thread = {
                let tenant = tenant.clone();
                std::thread::spawn(move || {
                    tenant.in_scope(|| {
                        let objects: Vec<Box<[u8; 100]>> = (0..20).map(|n| Box::new([n; 100])).collect();
                        black_box(objects).pop()
                    })
                })
            };
            let survivor = thread.join().unwrap();
            if number % 1000 == 0 {
                survivors.push(survivor);
            }
            if number == THREADS / 10 {
                metadata = allotment::stats().metadata_used;
            }
        }
        exact(&tenant, survivors.len() * charge(100));
        let used = allotment::stats().metadata_used;
        assert!(used <= metadata + warm_up(), "{metadata} B of metadata became {used}");
        survivors.clear();
        exact(&tenant, 0);
    });
}

// ------------------------------------------------------------------------------------------------------------ fork

/// The life of a forked child. It may not panic: the harness's output lock may be held by nobody.
fn forked_child(mine: &Tenant, held: usize) -> ! {
    // SAFETY: alarm takes no pointer; its signal ends a child that hangs.
    unsafe { libc::alarm(10) };
    demand(mine.settle() == held, "fork: the tenant is not as it was");
    demand(allotment::verify().is_ok(), "fork: no proof in the child");
    let fresh = Tenant::builder("after fork").parent(mine).build();
    let Ok(fresh) = fresh else {
        say("fork: no new tenant");
        // SAFETY: as in `demand`.
        unsafe { libc::_exit(98) };
    };
    let objects = fresh.in_scope(|| {
        let sizes = [10, 100, 1000, 10_000, 100_000, 1_000_000, 6_000_000];
        sizes.map(|size| (size, Object::new(layout(size, 8), 5)))
    });
    demand(objects.iter().all(|(_, object)| object.is_some()), "fork: no memory");
    let bytes: usize = objects.iter().map(|&(size, _)| charge(size)).sum();
    demand(fresh.settle() == bytes && mine.settle() == held + bytes, "fork: not exact in the child");
    drop(objects);
    // Room of the threads that are no more is usable too, and new threads run.
    let tenant = fresh.clone();
    let of_thread = std::thread::spawn(move || tenant.in_scope(|| vec![1_u8; 2000])).join();
    demand(fresh.settle() == charge(2000), "fork: a thread in the child");
    drop(of_thread);
    demand(fresh.settle() == 0 && mine.settle() == held, "fork: not zero in the child");
    allotment::purge();
    demand(allotment::verify().is_ok(), "fork: no proof at the end of the child");
    // SAFETY: ends the child without the harness's atexit handlers.
    unsafe { libc::_exit(0) }
}

#[test]
fn b15_fork_amid_threads() {
    in_child("b15_fork_amid_threads", 80, || {
        let mine = Tenant::new("forks").unwrap();
        let tenants: Vec<Tenant> = (0..4).map(|n| Tenant::new(&format!("churns {n}")).unwrap()).collect();
        let held = mine.in_scope(|| (vec![1_u8; 5000], vec![2_u8; 500_000], Box::new([3_u8; 40])));
        let bytes = charge(5000) + charge(500_000) + charge(40);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (seed, tenant) in tenants.iter().enumerate() {
                let stop = &stop;
                scope.spawn(move || churn(tenant, seed as u64 + 1, Work::Tenants, stop));
            }
            for number in 0..100 {
                // SAFETY: the child uses the allocator, which is what is tested, and ends by `_exit`.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    forked_child(&mine, bytes);
                }
                assert!(pid > 0);
                let mut status = 0;
                // SAFETY: `status` is live; `pid` is our own child.
                assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
                stop.store(status != 0, Ordering::Relaxed);
                assert_eq!(status, 0, "child {number}: {:?}", std::process::ExitStatus::from_raw(status));
                assert_eq!(mine.settle(), bytes);
            }
            stop.store(true, Ordering::Relaxed);
        });
        exact(&mine, bytes);
        drop(held);
        exact(&mine, 0);
        tenants.iter().for_each(|tenant| exact(tenant, 0));
    });
}

// -------------------------------------------------------------------------------------------------- exit and panic

extern "C" fn proof_at_exit() {
    let tenant = Tenant::new("at exit").expect("a tenant");
    let object = tenant.in_scope(|| vec![1_u8; 10_000]);
    demand(tenant.settle() == charge(10_000), "exit: not exact");
    demand(allotment::verify().is_ok(), "exit: no proof");
    drop(object);
    demand(tenant.settle() == 0, "exit: not zero");
    say("exit: exact");
}

#[test]
fn b37_exit_while_threads_run() {
    if case::is_child() {
        let tenant: &'static Tenant = Box::leak(Box::new(Tenant::new("runs on").unwrap()));
        static NEVER: AtomicBool = AtomicBool::new(false);
        // SAFETY: a function of this binary.
        assert_eq!(unsafe { libc::atexit(proof_at_exit) }, 0);
        for seed in 1..=8 {
            std::thread::spawn(move || {
                churn(tenant, seed, if seed % 2 == 0 { Work::Tenants } else { Work::Objects }, &NEVER)
            });
        }
        std::thread::sleep(Duration::from_millis(100));
        std::process::exit(17);
    }
    for _ in 0..5 {
        let child = case::child("b37_exit_while_threads_run", 20);
        assert_eq!(child.status.and_then(|status| status.code()), Some(17), "{}\n{}", child.stdout, child.stderr);
        for line in ["exit: exact\n", "early: exact at exit\n", "early: zero in the last destructor\n"] {
            assert!(child.stdout.contains(line), "no {line:?} in {}", child.stdout);
        }
    }
}

#[test]
fn b37_panics_in_scopes() {
    in_child("b37_panics_in_scopes", 20, || {
        std::panic::set_hook(Box::new(|_| {}));
        let outer = Tenant::new("outer").unwrap();
        let inner = Tenant::builder("inner").parent(&outer).build().unwrap();
        for round in 0..200_usize {
            let kept = Mutex::new(Vec::with_capacity(1));
            let work = || {
                let _outer = outer.enter();
                let objects: Vec<Vec<u8>> = (0..50).map(|n| vec![n; 10 * round + 1]).collect();
                inner.in_scope(|| {
                    let more = vec![7_u8; 100_000];
                    kept.lock().unwrap().push(vec![9_u8; 500]);
                    if objects.len() == 50 {
                        panic!("with a payload: {round}, {}", more.len());
                    }
                });
            };
            let payload = if round % 2 == 0 {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_err()
            } else {
                std::thread::scope(|scope| scope.spawn(work).join().unwrap_err())
            };
            assert_eq!(payload.downcast_ref::<String>().unwrap(), &format!("with a payload: {round}, 100000"));
            assert_eq!(Tenant::current(), Tenant::root());
            drop(payload);
            exact(&inner, charge(500));
            exact(&outer, charge(500));
            drop(kept);
            exact(&outer, 0);
        }
    });
}
