//! Many tenants on one thread, their objects freed at random.

use std::time::{Duration, Instant};

use super::Workload;
use crate::random::Random;
use crate::{shim, Contestant};

const SIZE: usize = 64;
/// Live objects.
const OBJECTS: usize = 4_096;
/// Steps of the schedule, which is run again and again.
const STEPS: usize = 16_384;

/// One replacement.
#[derive(Clone, Copy)]
struct Step {
    slot: u32,
    tenant: u32,
}

/// Each step frees a random object and allocates another for a random tenant, in its scope. Peers run the same
/// schedule without scopes. An operation is a step.
pub struct Interleaved {
    tenants: usize,
    schedule: Vec<Step>,
    objects: Vec<*mut u8>,
    passes: u64,
}

impl Interleaved {
    /// So many passes over the schedule.
    pub fn new(tenants: usize, passes: u64) -> Self {
        let mut random = Random::new(7);
        let step = |_| Step { slot: random.below(OBJECTS) as u32, tenant: random.below(tenants) as u32 };
        let schedule = (0..STEPS).map(step).collect();
        Interleaved { tenants, schedule, objects: Vec::with_capacity(OBJECTS), passes }
    }
}

#[inline(never)]
fn pass<A: Contestant>(tenants: &[A::Tenant], schedule: &[Step], objects: &mut [*mut u8]) {
    for step in schedule {
        let object = &mut objects[step.slot as usize];
        // SAFETY: every slot holds an object of this size; the freed one is replaced at once.
        unsafe {
            shim::release::<A>(*object, SIZE);
            *object = A::as_tenant(tenants[step.tenant as usize], || shim::obtain::<A>(SIZE));
        }
    }
}

impl Workload for Interleaved {
    fn operations(&self) -> u64 {
        self.passes * STEPS as u64
    }

    fn repeat<A: Contestant>(&mut self) -> Duration {
        let tenants = A::tenants(self.tenants);
        // SAFETY: the size is not 0.
        self.objects.extend((0..OBJECTS).map(|_| unsafe { shim::obtain::<A>(SIZE) }));
        pass::<A>(&tenants, &self.schedule, &mut self.objects);
        let start = Instant::now();
        for _ in 0..self.passes {
            pass::<A>(&tenants, &self.schedule, &mut self.objects);
        }
        let time = start.elapsed();
        for object in self.objects.drain(..) {
            // SAFETY: every slot holds an object of this size; it is forgotten.
            unsafe { shim::release::<A>(object, SIZE) };
        }
        time
    }
}
