//! jemalloc, with the options it has by default (no background thread).

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_char, c_int, CStr};
use std::ptr;

use tikv_jemalloc_sys::{MALLOCX_ALIGN, MALLOCX_ZERO};

use super::unaccounted;

/// jemalloc, with sized deallocation.
#[derive(Clone, Copy, Debug)]
pub struct Jemalloc;

unaccounted!(Jemalloc, "jemalloc");

/// Its version as it says itself.
pub fn version() -> String {
    let mut version: *const c_char = ptr::null();
    let mut size = size_of_val(&version);
    // SAFETY: "version" reads a pointer to a string constant, of the size given.
    let read = unsafe {
        tikv_jemalloc_sys::mallctl(c"version".as_ptr(), (&raw mut version).cast(), &mut size, ptr::null_mut(), 0)
    };
    if read != 0 || version.is_null() {
        return "unknown".into();
    }
    // SAFETY: jemalloc's own constant.
    let text = unsafe { CStr::from_ptr(version) }.to_string_lossy();
    text.split('-').next().unwrap_or_default().to_owned()
}

/// The flags that ask for an alignment; none where jemalloc gives it anyway.
#[inline]
fn flags(size: usize, align: usize) -> c_int {
    if align <= 16 && align <= size {
        0
    } else {
        MALLOCX_ALIGN(align)
    }
}

// SAFETY: jemalloc keeps malloc's contract; sizes and alignments are passed on.
unsafe impl GlobalAlloc for Jemalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let flags = flags(layout.size(), layout.align());
        if flags == 0 {
            // SAFETY: any size may be asked for.
            return unsafe { tikv_jemalloc_sys::malloc(layout.size()) }.cast();
        }
        // SAFETY: the size is not zero; the flags say the alignment.
        unsafe { tikv_jemalloc_sys::mallocx(layout.size(), flags) }.cast()
    }
    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        let flags = flags(layout.size(), layout.align());
        // SAFETY: the caller's promise: it came from `alloc` with this layout.
        unsafe { tikv_jemalloc_sys::sdallocx(object.cast(), layout.size(), flags) }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let flags = flags(layout.size(), layout.align());
        if flags == 0 {
            // SAFETY: any size may be asked for.
            return unsafe { tikv_jemalloc_sys::calloc(1, layout.size()) }.cast();
        }
        // SAFETY: the size is not zero; the flags say the alignment.
        unsafe { tikv_jemalloc_sys::mallocx(layout.size(), flags | MALLOCX_ZERO) }.cast()
    }
    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let flags = flags(size, layout.align());
        // SAFETY: the caller's promise: it came from `alloc`, and the new size is not zero.
        unsafe { tikv_jemalloc_sys::rallocx(object.cast(), size, flags) }.cast()
    }
}
