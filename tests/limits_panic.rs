//! Panics and std's failure path at a limit: nothing is refused to a thread that panics, root pays for it, and nothing
//! hangs. Each case runs in a process of its own, once with backtraces and once without, and is killed after ten
//! seconds.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/limited.rs"]
mod limited;

use std::any::Any;
use std::os::unix::process::ExitStatusExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use allotment::{checkpoint, checkpoint_or_unwind, fallible, Allotment, Tenant};
use case::{exact, is_child, layout, Object, CASE};
use common::{run_child, Child};
use limited::{counts, fill, forced, Counts};

#[global_allocator]
static A: Allotment = Allotment::new();

const MAX: usize = 1 << 20;

/// In the child: runs the body. In the parent: runs the child without backtraces and with them, and hands both to
/// `check`, the backtraces' last.
fn twice(test: &str, body: impl FnOnce(), check: impl Fn(&Child, bool)) {
    if is_child() {
        return body();
    }
    for backtrace in ["0", "1"] {
        let child = run_child(test, &[(CASE, "1"), ("RUST_BACKTRACE", backtrace)], Duration::from_secs(10));
        let said = format!("backtraces {backtrace}: {:?}\n{}\n{}", child.status, child.stdout, child.stderr);
        assert!(child.status.is_some(), "hung with {said}");
        println!("{said}");
        check(&child, backtrace == "1");
    }
}

fn passes(child: &Child, backtrace: bool) {
    assert!(child.status.is_some_and(|status| status.success()) && child.stdout.contains("1 passed"));
    assert_eq!(child.stderr.contains("stack backtrace:"), backtrace);
}

/// std gave up for lack of memory: it said so and aborted.
fn aborts(child: &Child, _: bool) {
    assert_eq!(child.status.and_then(|status| status.signal()), Some(libc::SIGABRT));
    assert!(child.stderr.contains("memory allocation of"), "{}", child.stderr);
}

fn message(payload: Box<dyn Any + Send>) -> String {
    payload.downcast_ref::<String>().cloned().unwrap_or_else(|| (*payload.downcast_ref::<&str>().unwrap()).to_owned())
}

fn panics(f: impl FnOnce()) -> String {
    message(catch_unwind(AssertUnwindSafe(f)).expect_err("it panics"))
}

/// Whether the panic of this process printed a backtrace.
fn with_backtrace() -> bool {
    std::env::var("RUST_BACKTRACE").unwrap() == "1"
}

/// Allocates with all its might when dropped, as code that unwinds may.
struct Unwound<'a> {
    tenant: &'a Tenant,
    grown: &'a mut Vec<u8>,
}

impl Drop for Unwound<'_> {
    fn drop(&mut self) {
        assert!(thread::panicking());
        let bytes = vec![1_u8; 3 * MAX];
        let small = Box::new(7);
        let text = format!("{:?}", self.tenant.stats());
        for owner in [Tenant::owner_of(&bytes[..]), Tenant::owner_of(&*small), Tenant::owner_of(&*text)] {
            assert_eq!(owner, Some(Tenant::root()), "a panic is billed to root");
        }
        assert_eq!(fallible(|| Vec::<u8>::new().try_reserve_exact(2 * MAX)), Ok(()), "not even strictly");
        assert_eq!(fallible(|| self.grown.try_reserve_exact(2 * MAX)), Ok(()));
        assert_eq!(Tenant::owner_of(&self.grown.spare_capacity_mut()[0]).as_ref(), Some(self.tenant));
        assert_eq!(self.tenant.try_charge(5).map(|charge| charge.bytes()).ok(), Some(5));
        // A second unwind would abort.
        checkpoint_or_unwind();
    }
}

#[test]
fn b55_panics_at_the_limit_are_never_refused() {
    let body = || {
        let (tenant, neighbour) =
            (Tenant::builder("full").max(MAX).build().unwrap(), Tenant::builder("serving").max(MAX).build().unwrap());
        let root_before = Tenant::root().settle();
        let (served, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        let wait_for_service = || {
            let before = served.load(Ordering::SeqCst);
            while served.load(Ordering::SeqCst) < before + 100 {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    assert_eq!(neighbour.in_scope(|| vec![[1_u64; 8]; 1000].len()), 1000);
                    served.fetch_add(1, Ordering::SeqCst);
                }
            });
            let mut held = fill(&tenant, 64);
            let refused = counts(&tenant).0.refused;
            let at_limit = |name: &str, panic: &dyn Fn()| {
                wait_for_service();
                assert_eq!(panics(|| tenant.in_scope(panic)), name);
                assert_eq!(Tenant::current(), Tenant::root());
                wait_for_service();
            };
            at_limit("full", &|| panic!("full"));
            at_limit("strict 7", &|| fallible(|| panic!("strict {}", "7")));
            assert!(tenant.peak() <= MAX && !tenant.is_stopped(), "the panic is not the tenant's");
            at_limit("index out of bounds: the len is 3 but the index is 5", &|| {
                fallible(|| [1, 2, 3].as_slice()[std::hint::black_box(5)]);
            });
            held.extend(forced(&tenant, 64, 3));
            assert!(tenant.is_stopped());
            at_limit("stopped", &|| panic!("stopped"));
            tenant.set_overdraft(0);
            at_limit("overdrawn", &|| panic!("overdrawn"));
            let unwrapped = "called `Result::unwrap()` on an `Err` value: ParseIntError { kind: InvalidDigit }";
            at_limit(unwrapped, &|| _ = "x".parse::<u32>().unwrap());

            tenant.set_overdraft(None);
            let mut grown = tenant.in_scope(|| vec![0_u8; 100_000]);
            tenant.set_overdraft(0);
            let unwinding = panics(|| {
                tenant.in_scope(|| {
                    let _unwound = Unwound { tenant: &tenant, grown: &mut grown };
                    panic!("unwinding");
                })
            });
            assert_eq!(unwinding, "unwinding");
            assert_eq!(counts(&tenant).0.refused, refused, "nothing was refused since");
            wait_for_service();
            done.store(true, Ordering::SeqCst);
        });
        assert_eq!(Counts { refused: 0, ..counts(&neighbour).0 }, Counts::default());
        exact(&neighbour, 0);
        // B54: the symbols that a first backtrace keeps for ever are root's.
        exact(&tenant, 0);
        let kept = Tenant::root().settle() - root_before;
        assert_eq!(kept > MAX, with_backtrace(), "{kept} bytes kept by root");
    };
    twice("b55_panics_at_the_limit_are_never_refused", body, |child, backtrace| {
        passes(child, backtrace);
        assert!(child.stderr.contains("overdrawn") && child.stderr.contains("unwinding"));
    });
}

/// Waits until every other thread, which is the test harness', sleeps: it would abort at a ceiling.
fn alone() {
    let me = std::fs::read_link("/proc/thread-self").unwrap();
    let state = |stat: String| stat.rsplit(") ").next().unwrap().starts_with('S');
    let others = || std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    while !others()
        .filter(|task| task.file_name() != me.file_name())
        .all(|task| std::fs::read_to_string(task.join("stat")).is_ok_and(state))
    {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn b55_panics_at_roots_ceiling_are_never_refused() {
    let body = || {
        let root = Tenant::root();
        let tenant = Tenant::builder("under it").max(MAX).build().unwrap();
        let held = fill(&tenant, 64);
        alone();
        root.set_max(root.settle());
        let caught = catch_unwind(AssertUnwindSafe(|| tenant.in_scope(|| panic!("no memory left: {}", 1))));
        root.set_max(None);
        // A refusal would have aborted.
        assert_eq!(message(caught.unwrap_err()), "no memory left: 1");
        drop(held);
        exact(&tenant, 0);
    };
    twice("b55_panics_at_roots_ceiling_are_never_refused", body, passes);
}

#[test]
fn b55_many_threads_panic_at_one_limit() {
    let body = || {
        let tenant = Tenant::builder("crowded").max(MAX).build().unwrap();
        let held = fill(&tenant, 1000);
        thread::scope(|scope| {
            for n in 0..4 {
                let tenant = &tenant;
                scope.spawn(move || {
                    for round in 0..5 {
                        let name = panics(|| tenant.in_scope(|| fallible(|| panic!("{n} in {round}"))));
                        assert_eq!(name, format!("{n} in {round}"));
                    }
                });
            }
        });
        assert!(tenant.peak() <= MAX && !tenant.is_stopped());
        drop(held);
        exact(&tenant, 0);
    };
    twice("b55_many_threads_panic_at_one_limit", body, passes);
}

/// A hook that reports on the tenants, as a service's would, from within the tenant that is full.
#[test]
fn b16_a_panic_hook_that_reports() {
    let body = || {
        static REPORTS: AtomicUsize = AtomicUsize::new(0);
        let tenant = Tenant::builder("reported").max(MAX).build().unwrap();
        let held = fill(&tenant, 100);
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text: Vec<String> = allotment::tenants().iter().map(|tenant| format!("{:?}", tenant.stats())).collect();
            let verified = allotment::verify().expect("exact in the middle of a panic");
            assert!(Tenant::current().settle() <= MAX);
            assert!(!allotment::stats().mode.is_empty() && allotment::purge() < usize::MAX);
            REPORTS.fetch_add(usize::from(text.join(" ").len() > 100 && verified.objects > 1000), Ordering::SeqCst);
            default(info);
        }));
        assert_eq!(panics(|| tenant.in_scope(|| fallible(|| panic!("hooked")))), "hooked");
        assert_eq!(REPORTS.load(Ordering::SeqCst), 1);

        // Ending stopped work is no panic: no hook runs.
        tenant.stop();
        let stopped = tenant.try_in_scope(|| {
            let _held = Box::new([0_u8; 100]);
            checkpoint_or_unwind();
        });
        assert_eq!(stopped.unwrap_err().tenant, "reported");
        assert_eq!(REPORTS.load(Ordering::SeqCst), 1);
        assert_eq!(tenant.in_scope(checkpoint).unwrap_err().limit, None);
        drop(std::panic::take_hook());
        drop(held);
        exact(&tenant, 0);
    };
    twice("b16_a_panic_hook_that_reports", body, passes);
}

/// What cannot take a refusal and gets one ends the process, with std's message and without hanging, as with any
/// allocator: in `fallible` ...
#[test]
fn b22_an_infallible_allocation_refused_by_fallible_aborts() {
    let body = || {
        let tenant = Tenant::builder("strict").max(MAX).build().unwrap();
        let _held = fill(&tenant, 64);
        tenant.in_scope(|| fallible(|| drop(std::hint::black_box(Box::new([0_u8; 64])))));
    };
    twice("b22_an_infallible_allocation_refused_by_fallible_aborts", body, aborts);
}

/// ... also when std's report of it comes only so far with what memory there is ...
#[test]
fn b55_an_abort_that_is_refused_memory_for_its_backtrace() {
    let body = || {
        let tenant = Tenant::builder("nearly full").max(8 * MAX).build().unwrap();
        tenant.in_scope(|| fallible(|| drop(std::hint::black_box(vec![0_u8; 9 * MAX]))));
    };
    twice("b55_an_abort_that_is_refused_memory_for_its_backtrace", body, aborts);
}

/// ... past an overdraft ...
#[test]
fn b22_an_infallible_allocation_past_the_overdraft_aborts() {
    let body = || {
        let tenant = Tenant::builder("overdrawn").max(MAX).overdraft(MAX).build().unwrap();
        let mut numbers = Vec::new();
        tenant.in_scope(|| (0..1 << 20).for_each(|n| numbers.push(n as u64)));
    };
    twice("b22_an_infallible_allocation_past_the_overdraft_aborts", body, aborts);
}

/// ... and at root's ceiling, with other threads running.
#[test]
fn b22_an_infallible_allocation_at_roots_ceiling_aborts() {
    let body = || {
        let tenant = Tenant::new("under it").unwrap();
        let other = thread::spawn(|| loop {
            let _object = Object::new(layout(64, 8), 1);
        });
        Tenant::root().set_max(Tenant::root().settle() + MAX);
        let bytes = tenant.in_scope(|| vec![1_u8; 2 * MAX]);
        drop((bytes, other));
    };
    twice("b22_an_infallible_allocation_at_roots_ceiling_aborts", body, aborts);
}
