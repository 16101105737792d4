//! The situations with jemalloc, freeing by size, as the global allocator. It knows no tenants.

#![no_main]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_char, c_int};

/// jemalloc.
struct Jemalloc;

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

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// C's `main`.
///
/// # Safety
/// It is the C library's to call.
#[no_mangle]
pub unsafe extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { allotment_fast_path::main(argc, argv, Some("jemalloc")) }
}
