//! The situations with allotment as the global allocator.

#![no_main]

use std::ffi::{c_char, c_int};

use allotment::Allotment;

#[global_allocator]
static ALLOCATOR: Allotment = Allotment::new();

/// C's `main`.
///
/// # Safety
/// It is the C library's to call.
#[no_mangle]
pub unsafe extern "C" fn main(argc: c_int, argv: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { allotment_fast_path::main(argc, argv, None) }
}
