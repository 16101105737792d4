//! `impl GlobalAlloc`: where a program's requests come in.

use core::alloc::{GlobalAlloc, Layout};

use crate::heap::{fast_path, request};

/// The allocator: one line installs it.
///
/// ```
/// use allotment::{Allotment, Tenant};
///
/// #[global_allocator]
/// static ALLOTMENT: Allotment = Allotment::new();
///
/// let tenant = Tenant::new("a tenant").unwrap();
/// let text = tenant.in_scope(|| vec![0_u8; 1000]);
/// assert_eq!(Tenant::owner_of(&text[..]), Some(tenant.clone()));
/// assert!(tenant.usage() >= 1000);
/// drop(text);
/// assert_eq!(tenant.settle(), 0);
/// ```
///
/// A unit value: all state is in statics, so every `Allotment` is a handle to the same heap, and its methods may be
/// called directly whether it is installed or not.
///
/// May not be relied on: which address or size class an object gets; that freed memory goes back to the system at
/// once; that an object is owned by the tenant in scope when it was *written* (it is the scope at its allocation).
#[derive(Clone, Copy, Debug, Default)]
pub struct Allotment;

impl Allotment {
    /// The allocator.
    pub const fn new() -> Self {
        Allotment
    }

    /// Whether it is this program's global allocator. If not, tenants work, and everything they report is zero but for
    /// external charges.
    ///
    /// ```
    /// // This example does not install it.
    /// assert!(!allotment::Allotment::is_installed());
    /// ```
    pub fn is_installed() -> bool {
        let probe = std::hint::black_box(Box::new(0_u8));
        crate::Tenant::owner_of(&*probe).is_some()
    }
}

// SAFETY: objects are slots or spans that no other live object overlaps (`heap`), at least as large and as aligned
// as their layout (`size_class`, `large`), and stay where they are until freed; nothing here unwinds.
unsafe impl GlobalAlloc for Allotment {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        fast_path::allocate(layout)
    }

    #[inline]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { fast_path::deallocate(object, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        request::allocate_zeroed(layout)
    }

    #[inline]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { request::reallocate(object, layout, size) }
    }
}
