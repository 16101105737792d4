//! Counts of what happened to a tenant, after cgroup v2's `memory.events` and `memory.events.local`.

use core::sync::atomic::{AtomicU64, Ordering};

/// What happened, counted since the tenant was created.
///
/// ```
/// # let tenant = allotment::Tenant::new("events").unwrap();
/// let events = tenant.events();
/// assert_eq!(events.local.refused, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCounts {
    /// Times usage rose past `high`.
    pub high: u64,
    /// Times a charge met `max` for good and went past it, by force or because the limit is only measured
    /// ([`Mode::Measure`](crate::Mode::Measure)). Refused charges are counted in `refused` and not here.
    pub max: u64,
    /// Charges refused: by a strict limit ([`fallible`](crate::fallible), [`try_charge`](crate::Tenant::try_charge)),
    /// an exhausted overdraft or root's `max`.
    pub refused: u64,
    /// Charges accepted past `max`, by force or because the limit is only measured.
    pub forced: u64,
    /// Bytes by which such charges passed `max`, summed over all of them (not the present excess).
    pub overdraft_bytes: u64,
    /// Times the tenant was stopped.
    pub stopped: u64,
}

/// A tenant's events: its own, and with all its descendants'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Events {
    /// At this tenant's own limits; `stopped` where the tenant that asked was stopped (cgroup: `memory.events.local`).
    pub local: EventCounts,
    /// At this tenant's limits and at those of all its descendants, living or retired (cgroup: `memory.events`).
    pub hierarchical: EventCounts,
}

/// Which event.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    High,
    Max,
    Refused,
    Forced,
    OverdraftBytes,
    Stopped,
}

const KINDS: usize = 6;

/// The counters in a tenant's record.
pub(crate) struct EventCounters {
    local: [AtomicU64; KINDS],
    hierarchical: [AtomicU64; KINDS],
}

// relaxed (whole file): tallies for show
impl EventCounters {
    pub(crate) const fn new() -> Self {
        EventCounters {
            local: [const { AtomicU64::new(0) }; KINDS],
            hierarchical: [const { AtomicU64::new(0) }; KINDS],
        }
    }

    pub(crate) fn reset(&self) {
        for counter in self.local.iter().chain(&self.hierarchical) {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_local(&self, event: Event, n: u64) {
        self.local[event as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn add_hierarchical(&self, event: Event, n: u64) {
        self.hierarchical[event as usize].fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Events {
        Events { local: read(&self.local), hierarchical: read(&self.hierarchical) }
    }
}

fn read(counters: &[AtomicU64; KINDS]) -> EventCounts {
    let of = |event: Event| counters[event as usize].load(Ordering::Relaxed);
    EventCounts {
        high: of(Event::High),
        max: of(Event::Max),
        refused: of(Event::Refused),
        forced: of(Event::Forced),
        overdraft_bytes: of(Event::OverdraftBytes),
        stopped: of(Event::Stopped),
    }
}
