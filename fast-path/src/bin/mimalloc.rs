//! The situations with mimalloc v3, called directly, as the global allocator. It knows no tenants.

#![no_main]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_char, c_int};

/// mimalloc.
struct Mimalloc;

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

#[global_allocator]
static ALLOCATOR: Mimalloc = Mimalloc;

/// C's `main`.
///
/// # Safety
/// It is the C library's to call.
#[no_mangle]
pub unsafe extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { allotment_fast_path::main(argc, argv, Some("mimalloc")) }
}
