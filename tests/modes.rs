//! What holds in every mode of entering slots (`src/percpu/mode.rs`), one process for each.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/mode.rs"]
mod mode;

use std::alloc::GlobalAlloc;
use std::hint::black_box;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use allotment::{Allotment, Tenant};
use case::{charge, is_child, layout};
use mode::{as_asked, child_with};

#[global_allocator]
static A: Allotment = Allotment::new();

/// In the child: runs the body, in the mode that was asked for. In the parent: runs one child in that mode.
fn in_mode(mode: &str, test: &str, seconds: u64, body: impl FnOnce()) {
    if is_child() {
        as_asked();
        return body();
    }
    child_with(test, &[("ALLOTMENT_MODE", mode)], seconds);
}

// ------------------------------------------------------------------------- a fork beside a thread that is turned away

/// A fork is to find the other thread after so many instructions of an allocation; 0: this fork is not looked at.
static AFTER: AtomicUsize = AtomicUsize::new(0);
/// Instructions of the allocation so far.
static DONE: AtomicUsize = AtomicUsize::new(0);
/// The world is stopped for a fork: the other thread is to allocate.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// It stands where it is to be found.
static THERE: AtomicBool = AtomicBool::new(false);
/// It has been found.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Allocations that it has ended.
static SERVED: AtomicUsize = AtomicUsize::new(0);

/// No lock, no allocation: for handlers.
fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::hint::spin_loop();
    }
}

/// Runs when the allocator has stopped the world for a fork: handlers run last to first, and this is the first of all.
extern "C" fn world_is_stopped() {
    if AFTER.load(Ordering::SeqCst) != 0 {
        STOPPED.store(true, Ordering::SeqCst);
        wait_until(|| THERE.load(Ordering::SeqCst));
    }
}

/// Runs in the parent while the world is stopped still.
extern "C" fn world_is_copied() {
    FORKED.store(true, Ordering::SeqCst);
}

extern "C" fn before_main() {
    // SAFETY: functions of this binary. Nothing has allocated yet, so that the allocator's handlers come later.
    let registered = unsafe { libc::pthread_atfork(Some(world_is_stopped), Some(world_is_copied), None) };
    if registered != 0 {
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
}

#[used]
#[link_section = ".init_array"]
static BEFORE_MAIN: extern "C" fn() = before_main;

const TRAP_FLAG: i64 = 0x100;

/// Runs behind every instruction of the allocation.
extern "C" fn stepped(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if DONE.fetch_add(1, Ordering::SeqCst) + 1 == AFTER.load(Ordering::SeqCst) {
        THERE.store(true, Ordering::SeqCst);
        wait_until(|| FORKED.load(Ordering::SeqCst));
        // SAFETY: the context of this signal; its thread goes on without being stepped.
        unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG };
    }
}

/// Has the kernel forget this thread's restartable sequences, which begin again for ever when stepped through: it is like
/// one made by raw `clone`.
fn without_sequences() {
    extern "C" {
        static __rseq_offset: isize;
        static __rseq_size: u32;
    }
    // SAFETY: libc's constants; word 0 of the thread control block is its own address; 32 and the signature are what libc
    // has registered with, 1 is `RSEQ_FLAG_UNREGISTER`.
    unsafe {
        if __rseq_size == 0 {
            return;
        }
        let pointer: usize;
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer);
        let area: *mut u8 = with_exposed_provenance_mut(pointer.wrapping_add_signed(__rseq_offset));
        assert_eq!(libc::syscall(libc::SYS_rseq, area, 32, 1, 0x5305_3053_u32), 0, "libc registers otherwise here");
    }
}

/// Allocates and frees one object, in single steps from here to where it is to be found.
fn stepped_pair() {
    // SAFETY: sets the trap flag; not of size 0, and freed with its layout.
    unsafe {
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
        let object = A.alloc(layout(64, 8));
        A.dealloc(object, layout(64, 8));
    }
}

/// The life of the forked child, which must not wait for a thread that it does not have.
fn forked_child(tenant: &Tenant, held: usize) -> ! {
    // SAFETY: alarm takes no pointer; its signal ends a child that hangs. `_exit` runs nothing.
    unsafe {
        libc::alarm(1);
        let exact = tenant.settle() == held && allotment::verify().is_ok();
        let more = tenant.in_scope(|| black_box(vec![1_u8; 100]));
        let exact = exact && tenant.settle() == held + charge(100);
        drop(more);
        libc::_exit(i32::from(!(exact && tenant.settle() == held)))
    }
}

/// A thread whose allocation is turned away by the stop for a fork leaves nothing in the child of its attempt, wherever it
/// stands when memory is copied: every instruction of the attempt in turn.
fn fork_amid_a_failed_entry() {
    /// The first attempts, by each way in, and the next; in the build at hand. Unoptimised, what must not be found takes
    /// ten instructions and more.
    const STEPS: (usize, usize) = if cfg!(debug_assertions) { (2500, 5) } else { (350, 1) };
    // SAFETY: all-zero is a valid sigaction; the handler is a function of this binary.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stepped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, null_mut()), 0);
    }
    let tenant = Tenant::new("forks").unwrap();
    let held = tenant.in_scope(|| black_box(vec![1_u8; 1000]));
    let ended = AtomicBool::new(false);
    let mut hung = Vec::with_capacity(16);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            without_sequences();
            drop(black_box(Box::new([1_u8; 64]))); // has a slot if it gets one
            SERVED.fetch_add(1, Ordering::SeqCst);
            while !ended.load(Ordering::SeqCst) {
                if STOPPED.swap(false, Ordering::SeqCst) {
                    stepped_pair();
                    SERVED.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::yield_now();
            }
        });
        wait_until(|| SERVED.load(Ordering::SeqCst) == 1);
        for (number, steps) in (1..=STEPS.0).step_by(STEPS.1).enumerate() {
            DONE.store(0, Ordering::SeqCst);
            THERE.store(false, Ordering::SeqCst);
            FORKED.store(false, Ordering::SeqCst);
            AFTER.store(steps, Ordering::SeqCst);
            // SAFETY: the child uses the allocator, which is what is tested, and ends by `_exit`.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                forked_child(&tenant, charge(1000));
            }
            let mut status = 0;
            // SAFETY: `status` is live; `pid` is our own child.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            AFTER.store(0, Ordering::SeqCst);
            wait_until(|| SERVED.load(Ordering::SeqCst) == number + 2);
            if status != 0 {
                hung.push((steps, status));
            }
            if hung.len() == hung.capacity() {
                break;
            }
        }
        ended.store(true, Ordering::SeqCst);
    });
    drop(held);
    assert!(hung.is_empty(), "instructions done and the child's wait status: {hung:?}");
    case::exact(&tenant, 0);
}

#[test]
fn b15_fork_amid_a_failed_entry_rseq() {
    in_mode("rseq", "b15_fork_amid_a_failed_entry_rseq", 60, fork_amid_a_failed_entry);
}

#[test]
fn b15_fork_amid_a_failed_entry_threads() {
    in_mode("threads", "b15_fork_amid_a_failed_entry_threads", 60, fork_amid_a_failed_entry);
}

#[test]
fn b15_fork_amid_a_failed_entry_locked() {
    in_mode("locked", "b15_fork_amid_a_failed_entry_locked", 60, fork_amid_a_failed_entry);
}
