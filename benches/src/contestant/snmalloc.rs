//! snmalloc, through the entries it has for Rust.

use std::alloc::{GlobalAlloc, Layout};

use super::unaccounted;

/// snmalloc, with sized deallocation.
#[derive(Clone, Copy, Debug)]
pub struct Snmalloc;

unaccounted!(Snmalloc, "snmalloc");

// SAFETY: these entries are made for `GlobalAlloc`; layouts are passed on.
unsafe impl GlobalAlloc for Snmalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: a valid layout.
        unsafe { snmalloc_sys::sn_rust_alloc(layout.align(), layout.size()) }.cast()
    }
    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise: it came from `alloc` with this layout.
        unsafe { snmalloc_sys::sn_rust_dealloc(object.cast(), layout.align(), layout.size()) };
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: a valid layout.
        unsafe { snmalloc_sys::sn_rust_alloc_zeroed(layout.align(), layout.size()) }.cast()
    }
    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise: it came from `alloc` with this layout.
        unsafe { snmalloc_sys::sn_rust_realloc(object.cast(), layout.align(), layout.size(), size) }.cast()
    }
}
