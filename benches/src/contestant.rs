//! The allocators that are compared, each called the way a Rust program calls it: through `GlobalAlloc`, in one
//! process. None of them is installed: the harness itself uses the system's.

mod counted;
mod jemalloc;
mod mimalloc;
mod ours;
#[cfg(feature = "snmalloc")]
mod snmalloc;

use std::alloc::GlobalAlloc;
pub use std::alloc::System;

pub use counted::Counted;
pub use jemalloc::{version as jemalloc_version, Jemalloc};
pub use mimalloc::{version as mimalloc_version, Mimalloc};
pub use ours::Ours;
#[cfg(feature = "snmalloc")]
pub use snmalloc::Snmalloc;

/// An allocator in the comparison, with what tenants mean to it: nothing, except to ours.
pub trait Contestant: GlobalAlloc + 'static {
    /// The allocator itself: a handle without state.
    const ALLOCATOR: Self;
    /// Its column.
    const NAME: &'static str;
    /// A tenant to allocate for; of size zero where there are none.
    type Tenant: Copy + Send + 'static;

    /// That many tenants, equal but for their number.
    fn tenants(count: usize) -> Vec<Self::Tenant>;

    /// Runs `f` in the scope of `tenant`.
    fn as_tenant<R>(tenant: Self::Tenant, f: impl FnOnce() -> R) -> R;

    /// Runs `f` where this allocator's figures are to be taken: for ours, in the scope of a tenant.
    fn in_scope<R>(f: impl FnOnce() -> R) -> R;
}

/// An allocator that knows no tenants.
macro_rules! unaccounted {
    ($allocator:ident, $name:literal) => {
        impl crate::Contestant for $allocator {
            const ALLOCATOR: Self = $allocator;
            const NAME: &'static str = $name;
            type Tenant = ();

            fn tenants(count: usize) -> Vec<()> {
                vec![(); count]
            }
            #[inline(always)]
            fn as_tenant<R>((): (), f: impl FnOnce() -> R) -> R {
                f()
            }
            fn in_scope<R>(f: impl FnOnce() -> R) -> R {
                f()
            }
        }
    };
}
pub(crate) use unaccounted;

unaccounted!(System, "system");
