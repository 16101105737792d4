//! Too little of what the system gives: address space, mappings, commitment (hazards B19 and B20).

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;

use std::alloc::{alloc, dealloc};
use std::ptr::null_mut;

use allotment::{Allotment, Drift, Tenant};
use case::{charge, exact, in_child, layout, Object};

#[global_allocator]
static A: Allotment = Allotment::new();

const MIB: usize = 1 << 20;

fn limit_address_space(bytes: usize) {
    let limit = libc::rlimit { rlim_cur: bytes as u64, rlim_max: bytes as u64 };
    // SAFETY: `limit` is a live rlimit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Objects of one size, linked through themselves: fills memory without needing any other.
struct Chain {
    first: *mut *mut u8,
    size: usize,
    count: usize,
}

impl Chain {
    /// As many as there is memory for.
    fn fill(size: usize) -> Chain {
        let mut chain = Chain { first: null_mut(), size, count: 0 };
        loop {
            // SAFETY: the size is not 0.
            let object: *mut *mut u8 = unsafe { alloc(layout(size, 8)) }.cast();
            if object.is_null() {
                return chain;
            }
            // SAFETY: the object is ours, holds at least a pointer and is aligned for one.
            unsafe { object.write(chain.first.cast()) };
            chain.first = object;
            chain.count += 1;
        }
    }

    fn charge(&self) -> usize {
        self.count * charge(self.size)
    }

    /// Frees all; the count is what it was.
    fn free(mut self) -> usize {
        while !self.first.is_null() {
            let object = self.first;
            // SAFETY: the object is on the chain, hence live and ours, and begins with the next one's address.
            unsafe {
                self.first = object.read().cast();
                dealloc(object.cast(), layout(self.size, 8));
            }
        }
        self.count
    }
}

/// As [`exact`] where the count itself may lack memory, which it says.
#[track_caller]
fn exact_in_need(tenant: &Tenant, bytes: usize) {
    assert_eq!(tenant.settle(), bytes);
    let verified = allotment::verify();
    assert!(matches!(verified, Ok(_) | Err(Drift::OutOfMemory)), "{verified:?}");
}

/// One `Vec` of `bytes`, touched, freed.
fn one_vec(tenant: &Tenant, bytes: usize) {
    tenant.in_scope(|| {
        let mut vec = Vec::<u8>::new();
        assert_eq!(vec.try_reserve_exact(bytes), Ok(()), "{bytes} bytes");
        vec.spare_capacity_mut().iter_mut().step_by(4096).for_each(|byte| _ = byte.write(7));
        exact(tenant, charge(bytes));
    });
    exact(tenant, 0);
}

fn address_space(limit: usize, small: usize) {
    let tenant = Tenant::new("short of space").unwrap();
    limit_address_space(limit);
    one_vec(&tenant, 1000);

    // Beyond the limit: an error, nothing lost.
    tenant.in_scope(|| {
        let mut vec = vec![1_u8; 100];
        assert!(vec.try_reserve_exact(limit).is_err());
        assert!(vec.try_reserve_exact(isize::MAX as usize - 200).is_err());
        assert_eq!(vec, [1; 100]);
        exact(&tenant, charge(100));
    });
    exact(&tenant, 0);
    assert!(!tenant.is_stopped());

    // Small objects until nothing is left, then the same memory as one large object, and back.
    let mut counts = [0; 2];
    for count in &mut counts {
        let chain = tenant.in_scope(|| Chain::fill(small));
        exact_in_need(&tenant, chain.charge());
        *count = chain.free();
        exact_in_need(&tenant, 0);
        one_vec(&tenant, limit / 2);
    }
    assert!(counts[0] * small > limit / 2, "{} objects of {small} B in {limit}", counts[0]);
    // What is not given back (descriptors, magazine blocks) is there the second time.
    assert!(counts[1] >= counts[0], "{counts:?}");

    // The reverse: other sizes in the memory of each other.
    for size in [65536, 900, 100_000, 5000, 3 * MIB, 20 * MIB] {
        let t0 = std::time::Instant::now();
        let chain = tenant.in_scope(|| Chain::fill(size));
        let chain_count = chain.count;
        assert!(chain.charge() > limit / 2, "{} objects of {size} in {limit}", chain.count);
        exact_in_need(&tenant, chain.charge());
        let t1 = std::time::Instant::now();
        chain.free();
        eprintln!("{size} {} {:?} {:?}", chain_count, t1 - t0, t1.elapsed());
        exact_in_need(&tenant, 0);
    }

    // A failing growth keeps the object.
    tenant.in_scope(|| {
        let mut object = Object::new(layout(limit / 2, 1), 3).expect("half of the limit");
        assert!(!object.resize(limit));
        exact(&tenant, charge(limit / 2));
        assert!(object.resize(limit / 2 + 8 * MIB) || object.layout.size() == limit / 2);
        let size = object.layout.size();
        exact(&tenant, charge(size));
    });
    exact(&tenant, 0);
}

#[test]
fn b20_ulimit_256_mib() {
    in_child("b20_ulimit_256_mib", 60, || address_space(256 * MIB, 64));
}

#[test]
fn b20_ulimit_1_gib() {
    in_child("b20_ulimit_1_gib", 100, || address_space(1024 * MIB, 3000));
}

/// Every thread meets the end of memory, none is served wrongly or hangs.
#[test]
fn b20_ulimit_with_threads() {
    in_child("b20_ulimit_with_threads", 60, || {
        let tenants: Vec<Tenant> = (0..4).map(|n| Tenant::new(&format!("thread {n}")).unwrap()).collect();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for (n, tenant) in tenants.iter().enumerate() {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    if n == 0 {
                        limit_address_space(400 * MIB);
                    }
                    start.wait();
                    for size in [700, 3000, 100_000, 5 * MIB] {
                        let chain = tenant.in_scope(|| Chain::fill(size));
                        assert_eq!(tenant.settle(), chain.charge());
                        chain.free();
                        assert_eq!(tenant.settle(), 0);
                    }
                });
            }
        });
        tenants.iter().for_each(|tenant| exact(tenant, 0));
        one_vec(&tenants[0], 200 * MIB);
    });
}

/// Takes every mapping the process may have; gives them back when dropped.
struct AllMaps {
    start: *mut libc::c_void,
    bytes: usize,
    single: Vec<*mut libc::c_void>,
}

impl AllMaps {
    fn take() -> AllMaps {
        let max: usize =
            std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().expect("a number");
        let bytes = (max + 16) * 2 * 4096;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let mut single = Vec::with_capacity(64);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let mut splits = 0;
        for page in (1..2 * max).step_by(2) {
            // SAFETY: the page lies in our own mapping, which nobody uses.
            if unsafe { libc::mprotect(start.add(page * 4096), 4096, libc::PROT_READ) } != 0 {
                break;
            }
            splits += 1;
        }
        // An mprotect in the middle needs two more mappings; there may be room for one.
        for protection in [libc::PROT_READ, libc::PROT_EXEC].into_iter().cycle().take(64) {
            // SAFETY: as above.
            let page = unsafe { libc::mmap(null_mut(), 4096, protection, flags, -1, 0) };
            if page == libc::MAP_FAILED {
                assert!(splits > max / 4);
                return AllMaps { start, bytes, single };
            }
            single.push(page);
        }
        panic!("the mapping count has no end: {splits} splits of {max}");
    }
}

impl Drop for AllMaps {
    fn drop(&mut self) {
        // SAFETY: our own mappings, used by nobody.
        unsafe {
            libc::munmap(self.start, self.bytes);
            for &page in &self.single {
                libc::munmap(page, 4096);
            }
        }
    }
}

#[test]
fn b19_mapping_count_exhausted() {
    in_child("b19_mapping_count_exhausted", 60, || {
        let tenant = Tenant::new("short of maps").unwrap();
        let _scope = tenant.enter();
        // Lists are in root's books.
        let list = || Tenant::root().in_scope(|| Vec::<Object>::with_capacity(4096));
        let sizes = [24, 1000, 60_000, 200_000, 2 * MIB, 5 * MIB, 12 * MIB];
        let (mut before, mut during) = (list(), list());
        for size in sizes.into_iter().cycle().take(sizes.len() * 8) {
            before.push(Object::new(layout(size, 8), 1).expect("memory"));
        }
        let live = |list: &[Object]| list.iter().map(|object| charge(object.layout.size())).sum::<usize>();
        exact(&tenant, live(&before));

        let maps = Tenant::root().in_scope(AllMaps::take);
        // Every other object first: a mapping between two others that merged cannot be unmapped now.
        let mut odd = false;
        before.retain(|_| {
            odd = !odd;
            odd
        });
        assert_eq!(tenant.settle(), live(&before));
        for round in 0..10 {
            for size in sizes {
                during.extend(Object::new(layout(size, 8), round));
            }
            for object in &mut during {
                let size = object.layout.size();
                object.resize(size * 2);
                object.resize(size / 2 + 70_000);
            }
            exact_in_need(&tenant, live(&before) + live(&during));
            during.truncate(usize::from(round));
            allotment::purge();
            exact_in_need(&tenant, live(&before) + live(&during));
        }
        assert!(!during.is_empty(), "what was mapped before serves on");
        before.clear();
        during.clear();
        allotment::purge();
        exact_in_need(&tenant, 0);

        drop(maps);
        exact(&tenant, 0);
        for size in sizes.into_iter().chain([100 * MIB]) {
            during.push(Object::new(layout(size, 8), 9).expect("memory again"));
            assert!(during.last_mut().is_some_and(|object| object.resize(size * 3)));
        }
        exact(&tenant, live(&during));
        during.clear();
        exact(&tenant, 0);
        allotment::purge();
        exact(&tenant, 0);
        let maps = Tenant::root().in_scope(|| std::fs::read_to_string("/proc/self/maps").unwrap().lines().count());
        assert!(maps < 1000, "{maps} mappings left");
    });
}

/// Changes a setting of the whole machine, hence not run unless asked for: as root, with
/// `ALLOTMENT_TEST_OVERCOMMIT=1`, and nothing else running that needs memory.
#[test]
#[ignore = "changes /proc/sys/vm/overcommit_memory for the whole machine; needs root and ALLOTMENT_TEST_OVERCOMMIT=1"]
fn b20_overcommit_off() {
    const SETTING: &str = "/proc/sys/vm/overcommit_memory";
    struct Restore(String);
    impl Drop for Restore {
        fn drop(&mut self) {
            std::fs::write(SETTING, &self.0).expect("what could be written once");
        }
    }
    if std::env::var("ALLOTMENT_TEST_OVERCOMMIT").as_deref() != Ok("1") {
        return;
    }
    if case::is_child() {
        // A fresh process, so that its first mappings meet the setting too.
        let tenant = Tenant::new("no overcommit").unwrap();
        for size in [64, 3000, 100_000, 3 * MIB, 20 * MIB] {
            tenant.in_scope(|| {
                let objects: Vec<Object> = (0..20).filter_map(|seed| Object::new(layout(size, 8), seed)).collect();
                assert_eq!(objects.len(), 20, "{size}");
            });
            exact(&tenant, 0);
        }
        tenant.in_scope(|| assert!(Vec::<u8>::new().try_reserve_exact(1 << 46).is_err()));
        exact(&tenant, 0);
        allotment::purge();
        exact(&tenant, 0);
        return;
    }
    let restore = Restore(std::fs::read_to_string(SETTING).expect("linux"));
    std::fs::write(SETTING, "2").expect("needs root");
    let child = case::child("b20_overcommit_off", 30);
    drop(restore);
    assert!(child.status.is_some_and(|status| status.success()), "{}\n{}", child.stdout, child.stderr);
}
