//! The simplest accounting there is: one counter for the process.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{unaccounted, Mimalloc};

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// mimalloc behind one shared counter of live bytes: no tenants, no limits.
#[derive(Clone, Copy, Debug)]
pub struct Counted;

unaccounted!(Counted, "mimalloc + atomic");

// SAFETY: mimalloc's, unchanged. Relaxed: the counter orders nothing.
unsafe impl GlobalAlloc for Counted {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { Mimalloc.alloc(layout) }
    }
    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { Mimalloc.dealloc(object, layout) }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { Mimalloc.alloc_zeroed(layout) }
    }
    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size, Ordering::Relaxed);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { Mimalloc.realloc(object, layout, size) }
    }
}
