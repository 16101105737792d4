//! Misuse, and what happens.
//!
//! Each case runs in a process of its own (this program, started with the name of the case), so
//! that one which aborts is only a line here. The exit status is non-zero if any case ends in
//! another way than is documented.
//!
//! ```text
//! cargo run --example break_it                                  # checks wrong frees as well
//! cargo run --release --features hardened --example break_it    # so does this
//! cargo run --release --example break_it                        # this does not: they are skipped
//! ```

use std::alloc::{alloc, dealloc, GlobalAlloc, Layout, System};
use std::env;
use std::hint::black_box;
use std::io;
use std::mem;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::{Command, ExitCode, ExitStatus, Output};
use std::thread;

use allotment::{checkpoint, checkpoint_or_unwind, fallible, Allotment, CreateError, Tenant};

#[global_allocator]
static ALLOCATOR: Allotment = Allotment::new();

/// Builds that find wrong frees. In others a wrong free is undefined behaviour.
const FREES_ARE_CHECKED: bool = cfg!(any(debug_assertions, feature = "hardened"));
const STD_OUT_OF_MEMORY: &str = "memory allocation of";

struct Case {
    name: &'static str,
    documented: &'static str,
    run: fn(),
    ending: Ending,
}

#[derive(Clone, Copy)]
enum Ending {
    /// All of the case's assertions hold.
    Well,
    /// Aborts, having said this.
    Abort(&'static str),
    /// The same, in a build that checks frees.
    AbortIfChecked(&'static str),
}

use Ending::{Abort, AbortIfChecked, Well};

const CASES: [Case; 18] = [
    Case {
        name: "double-free",
        documented: "a message with the address, then abort",
        run: double_free,
        ending: AbortIfChecked("allotment: double free"),
    },
    Case {
        name: "foreign-free",
        documented: "a message with the address, then abort",
        run: foreign_free,
        ending: AbortIfChecked("not from this allocator"),
    },
    Case {
        name: "wrong-layout-free",
        documented: "a message with the address, then abort",
        run: wrong_layout_free,
        ending: AbortIfChecked("with a layout of another size class"),
    },
    Case {
        name: "infallible-inside-fallible",
        documented: "null at the limit, on which std aborts",
        run: infallible_inside_fallible,
        ending: Abort(STD_OUT_OF_MEMORY),
    },
    Case {
        name: "overdraft-used-up",
        documented: "null once max and overdraft are gone, on which std aborts",
        run: overdraft_used_up,
        ending: Abort(STD_OUT_OF_MEMORY),
    },
    Case {
        name: "no-checkpoint",
        documented: "charges past max are forced and counted, never null",
        run: no_checkpoint,
        ending: Well,
    },
    Case {
        name: "forgotten-guard",
        documented: "safe: the thread goes on billing that tenant",
        run: forgotten_guard,
        ending: Well,
    },
    Case {
        name: "handle-dropped-too-early",
        documented: "live objects go to the parent, at once",
        run: handle_dropped_too_early,
        ending: Well,
    },
    Case {
        name: "max-zero",
        documented: "a tenant that is stopped by its first allocation",
        run: max_zero,
        ending: Well,
    },
    Case {
        name: "max-below-usage",
        documented: "allowed: nothing is taken away, nothing more is given",
        run: max_below_usage,
        ending: Well,
    },
    Case {
        name: "resume-above-max",
        documented: "false, and the next allocation stops the tenant again",
        run: resume_above_max,
        ending: Well,
    },
    Case { name: "high-above-max", documented: "CreateError::HighAboveMax", run: high_above_max, ending: Well },
    Case {
        name: "bad-names",
        documented: "CreateError::EmptyName, CreateError::NameTooLong",
        run: bad_names,
        ending: Well,
    },
    Case { name: "endless-nesting", documented: "CreateError::TooDeep", run: endless_nesting, ending: Well },
    Case {
        name: "stop-by-hand",
        documented: "the next checkpoint ends the work, until resume()",
        run: stop_by_hand,
        ending: Well,
    },
    Case {
        name: "unwind-that-nobody-catches",
        documented: "ends the thread as a panic does, without a message",
        run: unwind_that_nobody_catches,
        ending: Well,
    },
    Case {
        name: "panic-in-scope",
        documented: "passes through, and the outer scope is back",
        run: panic_in_scope,
        ending: Well,
    },
    Case {
        name: "not-on-the-heap",
        documented: "owned by nobody, cannot be adopted",
        run: not_on_the_heap,
        ending: Well,
    },
];

fn main() -> io::Result<ExitCode> {
    let Some(name) = env::args().nth(1) else {
        return run_all();
    };
    match CASES.iter().find(|case| case.name == name) {
        Some(case) => (case.run)(),
        None => {
            eprintln!("no case is called {name:?}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_all() -> io::Result<ExitCode> {
    let mut surprises = 0;
    for case in &CASES {
        println!("{}: {}", case.name, case.documented);
        if matches!(case.ending, AbortIfChecked(_)) && !FREES_ARE_CHECKED {
            println!("  skipped: undefined in this build (needs debug assertions or `hardened`)");
            continue;
        }
        let output = Command::new(env::current_exe()?).arg(case.name).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().find(|line| !line.is_empty()).unwrap_or("nothing said");
        if as_documented(case.ending, &output) {
            println!("  as documented ({}; {said})", output.status);
        } else {
            surprises += 1;
            println!("  NOT as documented ({}):", output.status);
            println!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    if surprises == 0 {
        println!("\neverything as documented");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("\n{surprises} of {} cases not as documented", CASES.len());
        Ok(ExitCode::FAILURE)
    }
}

fn as_documented(ending: Ending, output: &Output) -> bool {
    match ending {
        Well => output.status.success(),
        Abort(message) | AbortIfChecked(message) => {
            aborted(output.status) && String::from_utf8_lossy(&output.stderr).contains(message)
        }
    }
}

#[cfg(unix)]
fn aborted(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(libc::SIGABRT)
}

#[cfg(not(unix))]
fn aborted(status: ExitStatus) -> bool {
    !status.success()
}

fn tenant(max: usize) -> Tenant {
    Tenant::builder("acme").max(max).build().expect("a short name and only one limit are good")
}

fn double_free() {
    let layout = Layout::new::<[u64; 6]>();
    // SAFETY: none. The second `dealloc` is the misuse; `black_box` hides it from the compiler.
    unsafe {
        let block = black_box(alloc(layout));
        dealloc(block, layout);
        dealloc(black_box(block), layout);
    }
}

fn foreign_free() {
    let layout = Layout::new::<[u64; 6]>();
    // SAFETY: none. The block is another allocator's.
    unsafe { dealloc(black_box(System.alloc(layout)), layout) };
}

fn wrong_layout_free() {
    // SAFETY: none. The block is freed with a layout that it was not allocated with.
    unsafe {
        let block = black_box(alloc(Layout::new::<[u64; 6]>()));
        dealloc(block, Layout::new::<[u64; 600]>());
    }
}

fn infallible_inside_fallible() {
    let tenant = tenant(64 << 10);
    tenant.in_scope(|| {
        fallible(|| {
            let mut tried: Vec<u8> = Vec::new();
            assert!(tried.try_reserve_exact(1 << 20).is_err(), "an error to handle");
            assert!(!Tenant::current().is_stopped(), "a refusal stops nobody");
            let reserved: Vec<u8> = Vec::with_capacity(1 << 20);
            black_box(reserved);
        })
    });
}

fn overdraft_used_up() {
    let tenant = Tenant::builder("acme")
        .max(64 << 10)
        .overdraft(64 << 10)
        .build()
        .expect("a short name and these limits are good");
    tenant.in_scope(|| {
        let hoard: Vec<_> = (0..1000).map(|_| Box::new([0u8; 1000])).collect();
        black_box(hoard);
    });
}

fn no_checkpoint() {
    let tenant = tenant(64 << 10);
    let hoard = tenant.in_scope(|| (0..1000).map(|_| Box::new([1u8; 1000])).collect::<Vec<_>>());
    assert_eq!(hoard.len(), 1000, "every allocation was granted");
    assert!(tenant.settle() > 1_000_000);
    assert!(tenant.is_stopped());
    assert!(tenant.events().local.forced > 0);
    drop(hoard);
    assert_eq!(tenant.settle(), 0);
    assert!(tenant.is_stopped(), "freeing does not clear it");
    assert!(tenant.resume());
}

fn forgotten_guard() {
    let tenant = tenant(1 << 20);
    mem::forget(tenant.enter());
    let object = Box::new(1u8);
    assert_eq!(Tenant::owner_of(&*object), Some(tenant.clone()));
    let elsewhere = thread::spawn(|| Tenant::current() == Tenant::root());
    assert!(elsewhere.join().is_ok_and(|root| root), "other threads do not notice");
    let outside = Tenant::root().in_scope(|| Box::new(2u8));
    assert_eq!(Tenant::owner_of(&*outside), Some(Tenant::root()), "the way out");
}

fn handle_dropped_too_early() {
    let parent = tenant(1 << 20);
    let child = Tenant::builder("branch").parent(&parent).build().expect("a good child");
    let object = child.in_scope(|| Box::new([0u8; 100]));
    assert_eq!(Tenant::owner_of(&*object), Some(child.clone()));
    drop(child);
    assert_eq!(Tenant::owner_of(&*object), Some(parent.clone()));
    assert_eq!(parent.children(), []);
    assert!(parent.settle() >= 100);
    drop(object);
    assert_eq!(parent.settle(), 0);
}

fn max_zero() {
    let tenant = tenant(0);
    tenant.in_scope(|| {
        assert!(checkpoint().is_ok(), "nothing held is not past nothing allowed");
        let refused = fallible(|| Vec::<u8>::new().try_reserve(1));
        assert!(refused.is_err());
        let object = black_box(Box::new(1u8));
        let exceeded = checkpoint().expect_err("past the limit");
        assert_eq!((exceeded.tenant.as_str(), exceeded.limit), ("acme", Some(0)));
        drop(object);
    });
    assert_eq!(tenant.settle(), 0);
}

fn max_below_usage() {
    let tenant = tenant(1 << 20);
    let mut held = tenant.in_scope(|| vec![7u8; 300_000]);
    tenant.set_max(100_000);
    assert_eq!(held.iter().filter(|&&byte| byte == 7).count(), 300_000);
    assert!(tenant.usage() >= 300_000);
    let more = tenant.in_scope(|| fallible(|| held.try_reserve_exact(300_000)));
    assert!(more.is_err());
    drop(held);
    assert_eq!(tenant.settle(), 0);
    tenant.set_max(None);
    assert_eq!(tenant.max(), None);
}

fn resume_above_max() {
    let tenant = tenant(64 << 10);
    let held = tenant.in_scope(|| vec![0u8; 300_000]);
    assert!(tenant.is_stopped());
    assert!(!tenant.resume(), "not within its limit");
    let stopped = tenant.try_in_scope(|| {
        black_box(Box::new([0u8; 5000]));
        checkpoint_or_unwind();
    });
    assert!(stopped.is_err());
    drop(held);
    assert!(tenant.resume());
}

fn high_above_max() {
    let error = Tenant::builder("acme").high(2000).max(1000).build();
    let expected = CreateError::HighAboveMax { high: 2000, max: 1000 };
    assert_eq!(error, Err(expected));
}

fn bad_names() {
    assert_eq!(Tenant::new(""), Err(CreateError::EmptyName));
    let enormous = "x".repeat(1 << 20);
    let error = Tenant::new(&enormous);
    assert_eq!(error, Err(CreateError::NameTooLong { len: 1 << 20, max: 255 }));
    let longest = Tenant::new(&enormous[..255]).expect("as long as can be");
    assert_eq!(longest.name().len(), 255);
    let namesake = Tenant::new(longest.name()).expect("names need not be unique");
    assert_ne!(longest, namesake);
}

fn endless_nesting() {
    let mut line = vec![Tenant::root()];
    let error = loop {
        let parent = &line[line.len() - 1];
        match Tenant::builder("deeper").parent(parent).build() {
            Ok(child) => line.push(child),
            Err(error) => break error,
        }
        assert!(line.len() < 1000, "it never ends");
    };
    assert!(matches!(error, CreateError::TooDeep { .. }), "{error}");
}

fn stop_by_hand() {
    let tenant = Tenant::new("acme").expect("a short name is good");
    tenant.stop();
    let exceeded = tenant.in_scope(checkpoint).expect_err("stopped");
    assert_eq!(exceeded.limit, None, "there is none");
    assert!(tenant.try_in_scope(checkpoint_or_unwind).is_err());
    assert_eq!(tenant.try_in_scope(|| 42).ok(), Some(42), "no checkpoint, no end");
    assert!(tenant.in_scope(checkpoint).is_err(), "until it is resumed");
    assert!(tenant.resume());
    assert!(tenant.in_scope(checkpoint).is_ok());
}

fn unwind_that_nobody_catches() {
    let tenant = tenant(1 << 20);
    tenant.stop();
    let thread = {
        let tenant = tenant.clone();
        thread::spawn(move || tenant.in_scope(checkpoint_or_unwind))
    };
    assert!(thread.join().is_err());
}

fn panic_in_scope() {
    let tenant = tenant(1 << 20);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        tenant.try_in_scope(|| {
            let _held = vec![0u8; 100_000];
            panic!("this message is meant to be seen");
        })
    }));
    assert!(outcome.is_err());
    assert_eq!(Tenant::current(), Tenant::root());
    assert_eq!(tenant.settle(), 0, "the panic was billed to root");
}

fn not_on_the_heap() {
    static WORDS: [u64; 4] = [1, 2, 3, 4];
    let tenant = tenant(1 << 20);
    let local = [0u64; 4];
    assert_eq!(Tenant::owner_of(&WORDS), None);
    assert_eq!(Tenant::owner_of(&local), None);
    assert!(!tenant.adopt(&local));
    assert_eq!(tenant.settle(), 0);
    let object = Box::new(local);
    assert!(tenant.adopt(&*object));
    assert_eq!(Tenant::owner_of(&*object), Some(tenant));
}
