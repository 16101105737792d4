//! Threads that allocate, free and create tenants at full speed, for tests of what happens to them meanwhile.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use allotment::Tenant;

use crate::case::{layout, Object, Rng};

#[allow(dead_code)] // each test binary uses a part
#[derive(Clone, Copy, PartialEq)]
pub enum Work {
    /// Objects of all sizes.
    Objects,
    /// The same, and short-lived tenants.
    Tenants,
    /// Nearly always in a system call: objects with mappings of their own.
    Mappings,
}

/// Allocates, frees and creates tenants until told to stop; everything is freed at the end.
pub fn churn(tenant: &Tenant, seed: u64, work: Work, stop: &AtomicBool) {
    let mut rng = Rng(seed);
    let mut objects: Vec<Object> = Vec::with_capacity(256);
    while !stop.load(Ordering::Relaxed) {
        if work == Work::Mappings {
            tenant.in_scope(|| {
                let mut object = black_box(Vec::<u8>::with_capacity(3 << 20));
                object.push(seed as u8);
            });
            continue;
        }
        let size = match rng.below(100) {
            0 => 1 + rng.below(5 << 20),
            1..=4 => 1 + rng.below(300_000),
            _ => 1 + rng.below(3000),
        };
        let at = rng.below(256);
        let object = tenant.in_scope(|| Object::new(layout(size, 8), seed as u8).expect("memory"));
        if at < objects.len() {
            objects[at] = object;
        } else {
            objects.push(object);
        }
        if work == Work::Tenants && rng.below(50) == 0 {
            let child = Tenant::builder("a child").parent(tenant).build().expect("a tenant");
            let inner = child.in_scope(|| vec![1_u8; 1000]);
            drop(child);
            drop(inner);
        }
    }
}
