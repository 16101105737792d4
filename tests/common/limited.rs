//! Objects against a limit, and events as values that can be compared.

#![allow(dead_code)] // each test binary uses a part

use allotment::{fallible, EventCounts, Tenant};

use crate::case::{layout, Object};

/// [`EventCounts`] as a value that a test can write down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub high: u64,
    pub max: u64,
    pub refused: u64,
    pub forced: u64,
    pub overdraft_bytes: u64,
    pub stopped: u64,
}

impl From<EventCounts> for Counts {
    fn from(counts: EventCounts) -> Counts {
        let EventCounts { high, max, refused, forced, overdraft_bytes, stopped, .. } = counts;
        Counts { high, max, refused, forced, overdraft_bytes, stopped }
    }
}

/// A tenant's events: local, hierarchical.
pub fn counts(tenant: &Tenant) -> (Counts, Counts) {
    let events = tenant.events();
    (events.local.into(), events.hierarchical.into())
}

/// One object within the limits, or `None`.
pub fn strict(tenant: &Tenant, size: usize) -> Option<Object> {
    tenant.in_scope(|| fallible(|| Object::new(layout(size, 1), size as u8)))
}

/// As many objects as the limits allow. The list is the caller's.
pub fn fill(tenant: &Tenant, size: usize) -> Vec<Object> {
    // A limit that does not bind is a failure, not the end of the machine.
    let most = (256 << 20) / size.max(64);
    let list: Vec<Object> = std::iter::from_fn(|| strict(tenant, size)).take(most).collect();
    assert!(list.len() < most, "no limit was met");
    list
}

/// So many objects, past the limits if need be. The list is the caller's.
pub fn forced(tenant: &Tenant, size: usize, count: usize) -> Vec<Object> {
    (0..count)
        .map(|n| tenant.in_scope(|| Object::new(layout(size, 1), n as u8)).expect("not refused outside `fallible`"))
        .collect()
}
