//! mimalloc v3, with the options it has by default.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;

use super::unaccounted;

/// mimalloc, called directly. Where a plain `malloc` gives the alignment, plain `malloc` is called: the crate
/// `mimalloc` would take the slower aligned entry.
#[derive(Clone, Copy, Debug)]
pub struct Mimalloc;

unaccounted!(Mimalloc, "mimalloc");

extern "C" {
    fn mi_version() -> c_int;
}

/// Its version as it says itself: 30302 is 3.3.2.
pub fn version() -> i32 {
    // SAFETY: a constant of the library, which is linked in.
    unsafe { mi_version() }
}

/// Objects of at least their alignment are aligned to 16 without being asked.
#[inline]
pub(super) fn plain(layout: Layout) -> bool {
    layout.align() <= 16 && layout.align() <= layout.size()
}

// SAFETY: mimalloc keeps malloc's contract; sizes and alignments are passed on.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if plain(layout) {
            // SAFETY: any size may be asked for.
            return unsafe { libmimalloc_sys::mi_malloc(layout.size()) }.cast();
        }
        // SAFETY: as above; the alignment is a power of two.
        unsafe { libmimalloc_sys::mi_malloc_aligned(layout.size(), layout.align()) }.cast()
    }
    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, _layout: Layout) {
        // SAFETY: the caller's promise: it came from `alloc`.
        unsafe { libmimalloc_sys::mi_free(object.cast()) }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if plain(layout) {
            // SAFETY: any size may be asked for.
            return unsafe { libmimalloc_sys::mi_zalloc(layout.size()) }.cast();
        }
        // SAFETY: as above; the alignment is a power of two.
        unsafe { libmimalloc_sys::mi_zalloc_aligned(layout.size(), layout.align()) }.cast()
    }
    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= 16 && layout.align() <= size {
            // SAFETY: the caller's promise: it came from `alloc`.
            return unsafe { libmimalloc_sys::mi_realloc(object.cast(), size) }.cast();
        }
        // SAFETY: as above; the alignment is the object's own.
        unsafe { libmimalloc_sys::mi_realloc_aligned(object.cast(), size, layout.align()) }.cast()
    }
}
