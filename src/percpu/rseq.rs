//! Restartable sequences: the slot of the CPU that a thread runs on, without a locked instruction (Linux 4.18, hazard B10).
//!
//! A *sequence* is a short run of instructions that ends with one store. The kernel is told where it begins and ends;
//! if the thread is preempted, migrated or interrupted by a signal in between, it does not go on there but at the
//! *abort handler*, which starts it again. So a sequence whose store is executed has run undisturbed on one CPU, and
//! what it read of that CPU's slot still held when it wrote. Three sequences are all there is, in `rseq_x86_64.rs`:
//!
//! * `pop` takes an object that belongs to the tenant in scope already;
//! * `push` puts an object into its magazine;
//! * `enter` makes the calling thread the one user of the slot, for everything that takes more than one store. Others on
//!   that CPU go elsewhere meanwhile, should its thread be preempted.
//!
//! libc registers each thread with the kernel (glibc 2.35); we read the `cpu_id` of what it registered and write
//! `rseq_cs`, and nothing else. A thread that is not registered (made by raw `clone`) has a negative number there, which
//! opens no slot: it uses shared ones. What a sequence leaves in `rseq_cs` lies in this program's or library's own memory: a library with
//! allotment in it must not be unloaded, as with any allocator.
//!
//! A debugger that steps through a sequence instruction by instruction interrupts it each time, so that it begins again
//! for ever; set a breakpoint behind it, or step in mode `threads` or `locked` (`ALLOTMENT_MODE`).
//!
//! aarch64 is left to claimed and shared slots: its sequences could not be tested here.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[path = "rseq_x86_64.rs"]
mod arch;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
#[path = "rseq_none.rs"]
mod arch;

pub(crate) use arch::{cpu, enter, find, pop, push};

use core::sync::atomic::{AtomicIsize, Ordering};

/// Where libc's area for this process's threads lies, from the thread pointer; 0: not in use.
static AREA: AtomicIsize = AtomicIsize::new(0);

/// Where the area lies. Sequences find it in their slot: no slot is opened before the area is known.
pub(crate) fn area() -> isize {
    // relaxed: published with the mode
    AREA.load(Ordering::Relaxed)
}

/// Puts sequences to use, from now on. `false`: libc has registered nothing.
pub(crate) fn activate() -> bool {
    match find() {
        Some(area) => {
            // relaxed: see `area`
            AREA.store(area, Ordering::Relaxed);
            cpu().is_some()
        }
        None => false,
    }
}

/// For counting instructions under a simulator that knows no restartable sequences: has sequences use an area of our
/// own that says CPU 0. For one thread only.
#[cfg(feature = "testing")]
pub(crate) fn pretend() {
    arch::pretend();
}
