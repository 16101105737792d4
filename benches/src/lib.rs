//! The allocators that are compared, each called the way a Rust program calls it: through `GlobalAlloc`, in one
//! process.

use std::alloc::{GlobalAlloc, Layout};

/// mimalloc v3, called directly.
pub struct Mimalloc;

// SAFETY: mimalloc keeps malloc's contract; sizes and alignments are passed on.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
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
}

/// jemalloc, with sized deallocation.
pub struct Jemalloc;

// SAFETY: jemalloc keeps malloc's contract; sizes and alignments are passed on.
unsafe impl GlobalAlloc for Jemalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            // SAFETY: any size may be asked for.
            return unsafe { tikv_jemalloc_sys::malloc(layout.size()) }.cast();
        }
        // SAFETY: as above; the flag says the alignment.
        unsafe { tikv_jemalloc_sys::mallocx(layout.size(), layout.align().trailing_zeros() as i32) }.cast()
    }
    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        let flags = if layout.align() <= 16 { 0 } else { layout.align().trailing_zeros() as i32 };
        // SAFETY: the caller's promise: it came from `alloc` with this layout.
        unsafe { tikv_jemalloc_sys::sdallocx(object.cast(), layout.size(), flags) }
    }
}
