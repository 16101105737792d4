//! Charges for memory that is not on the heap.

use core::sync::atomic::Ordering;

use super::registry::{self, Registry};
use super::Tenant;
use crate::charge::counter::uncharge;
use crate::percpu::world;

/// Bytes charged to a tenant for memory outside the heap: a mapping, a device's memory, a file's pages. Given back
/// when dropped. Exact to the byte. Made by [`Tenant::try_charge`].
///
/// ```
/// let tenant = allotment::Tenant::builder("mapper").max(1 << 20).build()?;
/// let charge = tenant.try_charge(600_000)?;
/// assert_eq!(tenant.usage(), 600_000);
/// assert!(tenant.try_charge(600_000).is_err());
/// drop(charge);
/// assert_eq!(tenant.usage(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the bytes are given back as soon as the charge is dropped"]
pub struct Charge {
    tenant: Tenant,
    bytes: usize,
}

impl Charge {
    pub(super) fn new(tenant: Tenant, bytes: usize) -> Charge {
        // relaxed: a part of the counter, for show; `verify` reads it with the world stopped
        registry::node(tenant.tag()).external_shared.fetch_add(bytes, Ordering::Relaxed);
        Charge { tenant, bytes }
    }

    /// How many bytes are charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Who is charged.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let _inside = world::enter_shared();
        // relaxed: as in `new`
        registry::node(self.tenant.tag()).external_shared.fetch_sub(self.bytes, Ordering::Relaxed);
        uncharge(&Registry, self.tenant.tag(), self.bytes, None);
    }
}
