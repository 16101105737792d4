//! A scope is entered and left.

use std::hint::black_box;
use std::time::Duration;

use super::{timed, Workload};
use crate::Contestant;

/// One tenant's scope inside another's. Peers have none.
pub struct ScopeSwitch {
    /// Switches in one repetition.
    pub switches: u64,
}

#[inline(never)]
fn switch<A: Contestant>(tenant: A::Tenant, switches: u64) {
    for _ in 0..switches {
        A::as_tenant(black_box(tenant), || black_box(()));
    }
}

impl Workload for ScopeSwitch {
    fn operations(&self) -> u64 {
        self.switches
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        let tenant = A::tenants(1)[0];
        timed(self.switches, |count| switch::<A>(tenant, count))
    }
}
