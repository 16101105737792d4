//! What a user holds: tenants, and what can be asked of them.
//!
//! * `builder`: create; `retire`: the end; `registry`, `node`, `handles`: ids and records.
//! * `stop`: checkpoints; `future`: tenants across `await`; `external`: charges for other memory.
//! * `events`, `stats`, `verify`: what can be read; `error`: what can go wrong.

pub mod handles;

#[cfg(not(loom))]
pub(crate) mod builder;
#[cfg(not(loom))]
pub(crate) mod census;
#[cfg(not(loom))]
pub(crate) mod error;
#[cfg(not(loom))]
pub(crate) mod events;
#[cfg(not(loom))]
pub(crate) mod external;
#[cfg(not(loom))]
pub(crate) mod future;
#[cfg(not(loom))]
pub(crate) mod handle;
#[cfg(not(loom))]
pub(crate) mod node;
#[cfg(not(loom))]
pub(crate) mod owner;
#[cfg(not(loom))]
pub(crate) mod registry;
#[cfg(not(loom))]
pub(crate) mod retire;
#[cfg(not(loom))]
pub(crate) mod stats;
#[cfg(not(loom))]
pub(crate) mod stop;
#[cfg(not(loom))]
pub(crate) mod verify;

#[cfg(not(loom))]
pub use handle::Tenant;

/// What the crate exports.
#[cfg(not(loom))]
pub mod api {
    pub use super::builder::{Mode, TenantBuilder};
    pub use super::error::{CreateError, MemoryExceeded};
    pub use super::events::{EventCounts, Events};
    pub use super::external::Charge;
    pub use super::future::{InTenant, Scoped, TryScoped};
    pub use super::handle::{tenants, Entered, Tenant};
    pub use super::stats::{purge, stats, ClassUsage, HeapStats, TenantStats};
    #[cfg(panic = "unwind")]
    pub use super::stop::checkpoint_or_unwind;
    pub use super::stop::{checkpoint, fallible};
    pub use super::verify::{verify, Drift, Verified};
}
