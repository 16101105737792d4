//! The operating system, through `mmap` and its kin.

use core::ptr::NonNull;

use once_cell::race::OnceNonZeroUsize;

use super::{Os, Purged};
use crate::life::errno::KeepErrno;

/// The running kernel.
pub struct Unix;

static PAGE_SIZE: OnceNonZeroUsize = OnceNonZeroUsize::new();

fn map_anywhere(bytes: usize) -> Option<usize> {
    let _errno = KeepErrno::new();
    // No MAP_NORESERVE: with it the kernel grants what no machine could ever back.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory in use.
    let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start as usize)
}

fn unmap_range(start: usize, bytes: usize) -> bool {
    let _errno = KeepErrno::new();
    // SAFETY: callers own the range and use it no more.
    bytes == 0 || unsafe { libc::munmap(start as *mut libc::c_void, bytes) } == 0
}

// SAFETY: each method hands the kernel's own postconditions on; `map` trims to the alignment it promises.
unsafe impl Os for Unix {
    fn page_size(&self) -> usize {
        PAGE_SIZE
            .get_or_init(|| {
                // SAFETY: sysconf takes no pointer.
                let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
                core::num::NonZeroUsize::new(size as usize).unwrap_or(core::num::NonZeroUsize::MIN)
            })
            .get()
    }

    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let start = map_anywhere(bytes)?;
        if start.is_multiple_of(align) {
            return NonNull::new(start as *mut u8);
        }
        // Not aligned: map with room to spare and trim. A trim that fails (mapping count exhausted) only leaves
        // address space behind that nobody touches.
        unmap_range(start, bytes);
        let roomy = bytes.checked_add(align)?;
        let start = map_anywhere(roomy)?;
        let aligned = start.next_multiple_of(align);
        unmap_range(start, aligned - start);
        unmap_range(aligned + bytes, start + roomy - (aligned + bytes));
        NonNull::new(aligned as *mut u8)
    }

    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize) -> bool {
        unmap_range(start.as_ptr() as usize, bytes)
    }

    unsafe fn purge(&self, start: NonNull<u8>, bytes: usize) -> Purged {
        let _errno = KeepErrno::new();
        // SAFETY: the caller owns the range and reads nothing of it again.
        let done = unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
        if done == 0 {
            Purged::Returned
        } else {
            Purged::Kept
        }
    }

    #[cfg(target_os = "linux")]
    unsafe fn grow(&self, start: NonNull<u8>, old: usize, new: usize) -> bool {
        let _errno = KeepErrno::new();
        // SAFETY: the caller owns the mapping; without MREMAP_MAYMOVE it stays where it is.
        let moved = unsafe { libc::mremap(start.as_ptr().cast(), old, new, 0) };
        moved != libc::MAP_FAILED
    }
    #[cfg(not(target_os = "linux"))]
    unsafe fn grow(&self, _start: NonNull<u8>, _old: usize, _new: usize) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    unsafe fn relocate(&self, from: NonNull<u8>, old: usize, to: NonNull<u8>, new: usize) -> bool {
        let _errno = KeepErrno::new();
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the caller owns both ranges and nobody uses `to`, which the call replaces.
        let moved = unsafe { libc::mremap(from.as_ptr().cast(), old, new, flags, to.as_ptr()) };
        moved != libc::MAP_FAILED
    }
    #[cfg(not(target_os = "linux"))]
    unsafe fn relocate(&self, _from: NonNull<u8>, _old: usize, _to: NonNull<u8>, _new: usize) -> bool {
        false
    }

    fn clock_ms(&self) -> u64 {
        #[cfg(target_os = "linux")]
        const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
        #[cfg(not(target_os = "linux"))]
        const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `now` is a live timespec.
        unsafe { libc::clock_gettime(CLOCK, &mut now) };
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }
}
