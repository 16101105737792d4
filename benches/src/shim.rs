//! Where a loop meets an allocator. A Rust program calls `__rust_alloc` and its like, which are functions of their own
//! and call the global allocator's methods; these here are the same for an allocator that is not installed. So no
//! allocator is inlined into the loop that is timed, and each pays the same call.

use std::alloc::Layout;
use std::hint::black_box;

use crate::Contestant;

/// As `__rust_alloc`.
///
/// # Safety
/// As `GlobalAlloc::alloc` with that layout.
#[inline(never)]
pub unsafe fn alloc<A: Contestant>(size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { A::ALLOCATOR.alloc(Layout::from_size_align_unchecked(size, align)) }
}

/// As `__rust_dealloc`.
///
/// # Safety
/// As `GlobalAlloc::dealloc` with that layout.
#[inline(never)]
pub unsafe fn dealloc<A: Contestant>(object: *mut u8, size: usize, align: usize) {
    // SAFETY: the caller's promise.
    unsafe { A::ALLOCATOR.dealloc(object, Layout::from_size_align_unchecked(size, align)) }
}

/// As `__rust_alloc_zeroed`.
///
/// # Safety
/// As `GlobalAlloc::alloc_zeroed` with that layout.
#[inline(never)]
pub unsafe fn alloc_zeroed<A: Contestant>(size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { A::ALLOCATOR.alloc_zeroed(Layout::from_size_align_unchecked(size, align)) }
}

/// As `__rust_realloc`.
///
/// # Safety
/// As `GlobalAlloc::realloc` with that layout and size.
#[inline(never)]
pub unsafe fn realloc<A: Contestant>(object: *mut u8, size: usize, align: usize, new_size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { A::ALLOCATOR.realloc(object, Layout::from_size_align_unchecked(size, align), new_size) }
}

/// The alignment of every object here.
pub const ALIGN: usize = 8;

/// An object with its first byte written, as a program does at least.
///
/// # Safety
/// The size is not zero.
///
/// # Panics
/// There is no memory.
#[inline(always)]
pub unsafe fn obtain<A: Contestant>(size: usize) -> *mut u8 {
    // SAFETY: the size is the caller's promise, the alignment a power of two.
    let object = black_box(unsafe { alloc::<A>(size, ALIGN) });
    assert!(!object.is_null());
    // SAFETY: it has a first byte, and nobody else knows it.
    unsafe { object.write(1) };
    object
}

/// Frees what [`obtain`] gave.
///
/// # Safety
/// It came from `obtain` of the same allocator with that size, and is not used again.
#[inline(always)]
pub unsafe fn release<A: Contestant>(object: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { dealloc::<A>(black_box(object), size, ALIGN) }
}
