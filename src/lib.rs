//! A drop-in global allocator for services that host many tenants in one process: every heap object has an owner,
//! every tenant exact usage and a limit, and one tenant that runs wild is stopped while the others are served.
//!
//! ```
//! use allotment::{Allotment, MemoryExceeded, Tenant};
//!
//! #[global_allocator]
//! static ALLOTMENT: Allotment = Allotment::new();
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenant = Tenant::builder("customer 17").max(1 << 20).build()?;
//!
//! let served: Result<usize, MemoryExceeded> = tenant.try_in_scope(|| {
//!     let mut rows = Vec::new();
//!     for row in 0..1_000_000_u64 {
//!         rows.push(row);
//!         allotment::checkpoint_or_unwind(); // a safe point: a stopped tenant's work ends here
//!     }
//!     rows.len()
//! });
//!
//! let stopped = served.unwrap_err();
//! assert_eq!(stopped.tenant, "customer 17");
//! assert_eq!(tenant.settle(), 0); // the unwinding dropped the rows
//! # Ok(())
//! # }
//! ```
//!
//! # The path of an allocation
//! 1. `src/global.rs`: `Layout` in, pointer out
//! 2. `src/heap/fast_path.rs`: a small object of this tenant's is at hand: done
//! 3. `src/heap/request.rs`, `src/heap/size_class.rs`: all other cases; which class, or large
//! 4. `src/percpu.rs`: enter a CPU slot
//! 5. `src/heap/cpu_cache.rs`, `src/heap/magazine.rs`, `src/heap/tag.rs`: pop an object, compare its tag
//! 6. `src/heap.rs`: what lies behind: depot, slabs, page heap, the system, and the way back
//!
//! # The path of a charge
//! 1. `src/charge/scope.rs`: who pays
//! 2. `src/charge/transfer.rs`: an object changes owners
//! 3. `src/charge/stock.rs`: bytes charged ahead
//! 4. `src/charge/counter.rs`: the tenant and its ancestors, or none
//! 5. `src/charge.rs`: what lies behind: limits, drains, pressure
//!
//! # What is charged
//! A small object (up to 64 KiB): its size class and two bytes of tag. A large one: whole units of 8 KiB. Both from
//! the class, so that what is charged at the allocation is what comes back at the free. An object belongs to the
//! tenant in scope when it was allocated, whatever thread or scope frees it; `realloc` keeps the owner.
//!
//! # What happens at a limit
//! Outside [`fallible`] a charge past `max` is *forced*: the allocation succeeds, the tenant is flagged *stopped*, and
//! its work ends at the next [`checkpoint`]. The process is never aborted for a tenant's limit. See [`Tenant`].

#![cfg_attr(loom, allow(dead_code, unused_imports, missing_docs, clippy::new_without_default))]

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!("allotment needs a 64-bit unix: counters and the address map use 47 and 48 bits of a word");

pub(crate) mod charge;
#[cfg(not(loom))]
mod global;
pub(crate) mod heap;
pub(crate) mod life;
pub(crate) mod percpu;
pub(crate) mod sync;
pub(crate) mod tenant;
#[cfg(not(loom))]
pub mod thread;

#[cfg(not(loom))]
pub use global::Allotment;
#[cfg(not(loom))]
pub use tenant::api::*;

/// The protocols, for `loom-tests`.
#[cfg(loom)]
#[doc(hidden)]
pub mod model {
    pub use crate::charge::counter;
    pub use crate::charge::drain;
    pub use crate::charge::stock;
    pub use crate::charge::transfer;
    pub use crate::heap::magazine;
    pub use crate::heap::size_class;
    pub use crate::heap::tag;
    pub use crate::percpu::fence;
    pub use crate::percpu::gate;
    pub use crate::percpu::slot;
    pub use crate::sync::owner_lock;
    pub use crate::tenant::handles;
}

/// Hooks for this crate's own tests. Not part of the API: no promise of any kind.
#[cfg(all(not(loom), feature = "testing"))]
#[doc(hidden)]
pub mod testing {
    /// Has this process's one thread count its instructions with sequences; see `ci/fast_path.sh`.
    pub fn pretend_rseq() {
        crate::percpu::mode::pretend_rseq();
    }
    pub use crate::heap::os::faulty::{Faulty, PurgeFault};
    pub use crate::heap::os::{replace, unix::Unix, Os, Purged};
}
