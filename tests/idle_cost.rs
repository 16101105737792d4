//! What a tenant costs that does nothing. Alone in its binary: it reads what the whole process uses.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;

use allotment::{Allotment, Tenant};
use case::charge;

#[global_allocator]
static A: Allotment = Allotment::new();

const TENANTS: usize = 20_000;

/// Resident bytes of this process.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn an_idle_tenant_costs_less_than_512_bytes() {
    let name = |n: usize| format!("tenant {n:05}");
    let mut tenants = Vec::with_capacity(TENANTS);
    // The first few make what all share. Each has served a request.
    let create = |n| {
        let tenant = Tenant::new(&name(n)).unwrap();
        tenant.in_scope(|| drop(std::hint::black_box(vec![1_u8; 100])));
        tenant
    };
    tenants.extend((0..1000).map(create));
    let figures = || (Tenant::root().settle(), allotment::stats().metadata_used, resident());
    let (heap, metadata, resident) = figures();
    tenants.extend((1000..TENANTS).map(create));
    let (heap_now, metadata_now, resident_now) = figures();

    // Whole bytes: what the test harness' own thread allocates meanwhile is less than one for each.
    let each = |now: usize, before: usize| now.saturating_sub(before) / (TENANTS - 1000);
    assert_eq!(each(heap_now, heap), charge(name(0).len()), "on the heap: the name");
    let record = each(metadata_now, metadata);
    assert!((64..512).contains(&record), "{record} bytes of record each");
    let all = each(resident_now, resident);
    assert!(all < 512 + 2 * name(0).len(), "{all} resident bytes each");

    drop(tenants);
    assert_eq!(allotment::tenants(), [Tenant::root()]);
    allotment::verify().unwrap();
}
