//! The fence between a thread that enters its slot and one that stops it, all of whose cost the latter bears.
//!
//! Entering (often) and stopping (seldom) are Dekker's protocol: each side writes its own word, then reads the
//! other's, and at least one must see the other. That takes a full fence between the write and the read on both
//! sides, 6 ns and more on the entering one. `membarrier` (Linux 4.14) runs such a fence on every CPU that runs a
//! thread of this process, on behalf of the stopping side: then the entering side need only keep the compiler from
//! moving its read up ([`light`]). With its `RSEQ` form (Linux 5.10) it also ends every restartable sequence that is under
//! way anywhere.
//!
//! Loom knows no `membarrier`: in the models both sides are full fences, which is what the pair amounts to.

#[cfg(loom)]
use loom::sync::atomic::fence;

/// The entering side, between its write and its read.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn light() {
    // pairs: fence::heavy - which runs the rest of this fence from afar
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

/// The entering side, modelled.
#[cfg(loom)]
pub fn light() {
    // pairs: fence::heavy - Dekker's protocol
    fence(loom::sync::atomic::Ordering::SeqCst);
}

/// The stopping side, between its writes and its reads, modelled.
#[cfg(loom)]
pub fn heavy() {
    #[cfg(not(allotment_tooth = "no_heavy_fence"))]
    // pairs: fence::light - Dekker's protocol
    fence(loom::sync::atomic::Ordering::SeqCst);
}

/// Whose slots are to be stopped.
#[cfg(not(loom))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// Threads that enter slots of their own.
    Threads = 1 << 3,
    /// Restartable sequences.
    Sequences = 1 << 7,
}

// The commands of `include/uapi/linux/membarrier.h`; a registration's number is twice its command's.

/// Tells the kernel once that [`heavy`] will be used. `false`: it has no such fence.
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) fn register(against: Against) -> bool {
    let _errno = crate::life::errno::KeepErrno::new();
    // SAFETY: membarrier takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, 2 * against as libc::c_int, 0, 0) == 0 }
}

/// The stopping side, between its writes and its reads. `false`: the kernel refused (a filter of system calls was put in
/// place after the start), and nothing is known about the other side.
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) fn heavy(against: Against) -> bool {
    let _errno = crate::life::errno::KeepErrno::new();
    // SAFETY: membarrier takes no pointer.
    let fenced = || unsafe { libc::syscall(libc::SYS_membarrier, against as libc::c_int, 0, 0) == 0 };
    // pairs: fence::light - the compiler's half of the fence on this side; the system call is the other
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    // A child of `fork` may have to register again.
    let fenced = fenced() || (register(against) && fenced());
    // pairs: as above
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    fenced
}

/// There is no such fence here.
#[cfg(not(any(target_os = "linux", loom)))]
pub(crate) fn register(_: Against) -> bool {
    false
}

/// Never needed where [`register`] said no.
#[cfg(not(any(target_os = "linux", loom)))]
pub(crate) fn heavy(_: Against) -> bool {
    false
}
