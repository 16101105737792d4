//! allotment, in the scope of a tenant at a given depth.

use std::alloc::{GlobalAlloc, Layout};

use allotment::{Allotment, Tenant};

use crate::tenants;
use crate::Contestant;

/// allotment, `DEPTH` levels below root; 0 is root, that is, no scope at all. Every level has a limit.
#[derive(Clone, Copy, Debug)]
pub struct Ours<const DEPTH: usize>;

impl<const DEPTH: usize> Contestant for Ours<DEPTH> {
    const ALLOCATOR: Self = Ours;
    const NAME: &'static str = "allotment";
    type Tenant = &'static Tenant;

    fn tenants(count: usize) -> Vec<&'static Tenant> {
        tenants::requests(count)
    }
    #[inline(always)]
    fn as_tenant<R>(tenant: &'static Tenant, f: impl FnOnce() -> R) -> R {
        tenant.in_scope(f)
    }
    fn in_scope<R>(f: impl FnOnce() -> R) -> R {
        match DEPTH {
            0 => f(),
            _ => tenants::at_depth(DEPTH).in_scope(f),
        }
    }
}

// SAFETY: `Allotment`'s, unchanged.
unsafe impl<const DEPTH: usize> GlobalAlloc for Ours<DEPTH> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { Allotment.alloc(layout) }
    }
    #[inline(always)]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Allotment.dealloc(object, layout) }
    }
    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { Allotment.alloc_zeroed(layout) }
    }
    #[inline(always)]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { Allotment.realloc(object, layout, size) }
    }
}
