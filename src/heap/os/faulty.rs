//! An operating system that fails on demand, for tests. It wraps another one.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use super::{Os, Purged};

/// See the module. All switches may be thrown while the heap runs.
pub struct Faulty {
    inner: &'static dyn Os,
    page_size: AtomicUsize,
    /// Calls of `map` that still succeed; negative: no end.
    maps_left: AtomicI64,
    unmap_fails: AtomicBool,
    purge: AtomicUsize,
    grow_fails: AtomicBool,
    /// Calls of `map` so far.
    pub maps: AtomicU64,
    /// Calls of `purge` so far.
    pub purges: AtomicU64,
    clock_skew: AtomicU64,
}

/// How [`Faulty`] answers a purge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum PurgeFault {
    /// As the system below does.
    None = 0,
    /// Says the pages went back and keeps the bytes (QEMU).
    KeepsBytes = 1,
    /// Fails (locked pages).
    Fails = 2,
}

// relaxed (whole file): switches and tallies of a test, which orders nothing by them
impl Faulty {
    /// A wrapper that does nothing out of the way yet.
    pub const fn new(inner: &'static dyn Os) -> Self {
        Faulty {
            inner,
            page_size: AtomicUsize::new(0),
            maps_left: AtomicI64::new(-1),
            unmap_fails: AtomicBool::new(false),
            purge: AtomicUsize::new(0),
            grow_fails: AtomicBool::new(false),
            maps: AtomicU64::new(0),
            purges: AtomicU64::new(0),
            clock_skew: AtomicU64::new(0),
        }
    }

    /// The wrapper of the running kernel.
    pub const fn of_unix() -> Self {
        Faulty::new(&super::unix::Unix)
    }

    /// Pretends a page size; at least the real one. To be set before the heap is used.
    pub fn pretend_page_size(&self, bytes: usize) {
        self.page_size.store(bytes, Ordering::Relaxed);
    }
    /// Lets `n` more calls of `map` succeed; `None`: all.
    pub fn allow_maps(&self, n: Option<u32>) {
        self.maps_left.store(n.map_or(-1, i64::from), Ordering::Relaxed);
    }
    /// Whether unmapping fails, as with an exhausted mapping count.
    pub fn fail_unmap(&self, fails: bool) {
        self.unmap_fails.store(fails, Ordering::Relaxed);
    }
    /// How purges fare.
    pub fn set_purge(&self, fault: PurgeFault) {
        self.purge.store(fault as usize, Ordering::Relaxed);
    }
    /// Whether growing and moving of mappings fails.
    pub fn fail_grow(&self, fails: bool) {
        self.grow_fails.store(fails, Ordering::Relaxed);
    }
    /// Puts the clock forward.
    pub fn advance_clock(&self, ms: u64) {
        self.clock_skew.fetch_add(ms, Ordering::Relaxed);
    }
}

// SAFETY: it passes calls on or refuses them, and each refusal is one the contract allows.
unsafe impl Os for Faulty {
    fn page_size(&self) -> usize {
        self.page_size.load(Ordering::Relaxed).max(self.inner.page_size())
    }

    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        self.maps.fetch_add(1, Ordering::Relaxed);
        if bytes == 0 || !bytes.is_multiple_of(self.page_size()) || align < self.page_size() {
            crate::life::reentry::die("the heap broke a precondition of Os::map");
        }
        let allowed = self
            .maps_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
                0 => None,
                left if left < 0 => Some(left),
                left => Some(left - 1),
            })
            .is_ok();
        if allowed {
            self.inner.map(bytes, align)
        } else {
            None
        }
    }

    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise, passed on.
        !self.unmap_fails.load(Ordering::Relaxed) && unsafe { self.inner.unmap(start, bytes) }
    }

    unsafe fn purge(&self, start: NonNull<u8>, bytes: usize) -> Purged {
        self.purges.fetch_add(1, Ordering::Relaxed);
        if !(start.as_ptr() as usize | bytes).is_multiple_of(self.page_size()) {
            crate::life::reentry::die("the heap broke a precondition of Os::purge");
        }
        match self.purge.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise, passed on.
            0 => unsafe { self.inner.purge(start, bytes) },
            1 => Purged::Returned,
            _ => Purged::Kept,
        }
    }

    unsafe fn grow(&self, start: NonNull<u8>, old: usize, new: usize) -> bool {
        // SAFETY: the caller's promise, passed on.
        !self.grow_fails.load(Ordering::Relaxed) && unsafe { self.inner.grow(start, old, new) }
    }

    unsafe fn relocate(&self, from: NonNull<u8>, old: usize, to: NonNull<u8>, new: usize) -> bool {
        // SAFETY: the caller's promise, passed on.
        !self.grow_fails.load(Ordering::Relaxed) && unsafe { self.inner.relocate(from, old, to, new) }
    }

    fn clock_ms(&self) -> u64 {
        self.inner.clock_ms() + self.clock_skew.load(Ordering::Relaxed)
    }
}
