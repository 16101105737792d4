//! A system that fails, keeps bytes, or has large pages (hazards B06, B07, B19, B20, B24), by way of the faulty twin.

#![cfg(feature = "testing")]
#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;

use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashSet;
use std::hint::black_box;
use std::sync::atomic::Ordering;

use allotment::testing::{replace, Faulty, Os, PurgeFault};
use allotment::{Allotment, Tenant};
use case::{charge, exact, in_child, layout, visit_every_cpu, Object, Rng};

#[global_allocator]
static A: Allotment = Allotment::new();

// Called by name: an optimiser may take calls of `std::alloc::alloc` whose memory is not looked at for granted.

/// # Safety
/// As `GlobalAlloc::alloc`.
unsafe fn alloc(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's promise.
    black_box(unsafe { Allotment.alloc(black_box(layout)) })
}

/// # Safety
/// As `GlobalAlloc::alloc_zeroed`.
unsafe fn alloc_zeroed(layout: Layout) -> *mut u8 {
    // SAFETY: the caller's promise.
    black_box(unsafe { Allotment.alloc_zeroed(black_box(layout)) })
}

/// # Safety
/// As `GlobalAlloc::dealloc`.
unsafe fn dealloc(object: *mut u8, layout: Layout) {
    // SAFETY: the caller's promise.
    unsafe { Allotment.dealloc(black_box(object), layout) }
}

/// # Safety
/// As `GlobalAlloc::realloc`.
unsafe fn realloc(object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    black_box(unsafe { Allotment.realloc(black_box(object), layout, size) })
}

const MIB: usize = 1 << 20;

static FAULTY: Faulty = Faulty::of_unix();
static OS: &dyn Os = &FAULTY;

/// A case in a process of its own, on the faulty system.
fn faulty(test: &str, body: impl FnOnce(&Tenant)) {
    in_child(test, 60, || {
        replace(&OS);
        let tenant = Tenant::new("on a faulty system").unwrap();
        body(&tenant);
        FAULTY.allow_maps(None);
        exact(&tenant, 0);
    });
}

fn maps() -> u64 {
    FAULTY.maps.load(Ordering::Relaxed)
}

fn purges() -> u64 {
    FAULTY.purges.load(Ordering::Relaxed)
}

/// Every size class, and large and huge sizes.
fn sizes() -> Vec<usize> {
    let mut sizes: Vec<usize> = (1..=8).map(|n| n * 16).collect();
    while let Some(&last) = sizes.last().filter(|&&last| last < 65536) {
        let step = (1 << last.ilog2()) / 4;
        sizes.push(last + step);
    }
    assert!(sizes.iter().all(|&size| charge(size) == size + 2));
    sizes.extend([65537, 100_000, MIB, 2 * MIB, 2 * MIB + 1, 5 * MIB]);
    sizes
}

fn charges(objects: &[Object]) -> usize {
    objects.iter().map(|object| charge(object.layout.size())).sum()
}

// ------------------------------------------------------------------------------------------------- zeroed memory

/// Objects of one size full of 0xAA, freed and purged, then zeroed ones in their place.
/// `used`: the units that held such bytes so far.
fn zeroed_after_purge(tenant: &Tenant, size: usize, lock: bool, used: &mut HashSet<usize>) {
    let layout = layout(size, 8);
    let count = (300_000 / size).clamp(2, 2000);
    tenant.in_scope(|| {
        let mut objects = Tenant::root().in_scope(|| Vec::with_capacity(count));
        for _ in 0..count {
            // SAFETY: not of size 0, filled within its bounds.
            unsafe {
                let object = alloc(layout);
                object.write_bytes(0xAA, size);
                objects.push(object);
            }
        }
        exact(tenant, count * charge(size));
        let locked = objects[0].map_addr(|address| address & !4095);
        if lock {
            // SAFETY: at most 3 pages that hold our first object, mapped.
            assert_eq!(unsafe { libc::mlock(locked.cast(), size.min(8192)) }, 0, "the limit on locked memory");
        }
        Tenant::root().in_scope(|| {
            used.extend(objects.iter().flat_map(|object| object.addr() / 8192..(object.addr() + size).div_ceil(8192)));
        });
        for &object in &objects {
            // SAFETY: live, and of this layout.
            unsafe { dealloc(object, layout) };
        }
        allotment::purge();
        exact(tenant, 0);
        let mut in_place = 0;
        for object in &mut objects {
            // SAFETY: not of size 0, read within its bounds.
            unsafe {
                *object = alloc_zeroed(layout);
                let bytes = std::slice::from_raw_parts(*object, size);
                assert!(bytes.iter().all(|&byte| byte == 0), "{size} B are not zero");
            }
            in_place += usize::from(used.contains(&(object.addr() / 8192)));
        }
        // Or the test would prove nothing. A segment or mapping that went back may come from elsewhere.
        assert!(in_place > 0 || size > 2 * MIB, "{size} B: none in used memory");
        exact(tenant, count * charge(size));
        if lock {
            // SAFETY: as above; the page is still mapped, or the call fails, which does no harm.
            unsafe { libc::munlock(locked.cast(), size.min(8192)) };
        }
        for &object in &objects {
            // SAFETY: live, and of this layout.
            unsafe { dealloc(object, layout) };
        }
    });
    exact(tenant, 0);
}

/// Keeps a segment from being unmapped as a whole, and leaves room in it.
fn hold_segment() -> Vec<u8> {
    vec![1_u8; 200_000]
}

fn zeroed(test: &str, fault: PurgeFault, lock: bool) {
    faulty(test, |tenant| {
        let held = hold_segment();
        FAULTY.set_purge(fault);
        let before = purges();
        let mut used = HashSet::new();
        for size in sizes() {
            zeroed_after_purge(tenant, size, lock && size >= 4096, &mut used);
        }
        assert!(purges() > before + 10);
        drop(held);
    });
}

#[test]
fn b06_purge_that_works() {
    zeroed("b06_purge_that_works", PurgeFault::None, false);
}

#[test]
fn b06_purge_that_keeps_bytes() {
    zeroed("b06_purge_that_keeps_bytes", PurgeFault::KeepsBytes, false);
}

#[test]
fn b06_purge_that_fails() {
    zeroed("b06_purge_that_fails", PurgeFault::Fails, false);
}

#[test]
fn b06_locked_pages() {
    zeroed("b06_locked_pages", PurgeFault::None, true);
}

#[test]
fn b06_unmap_that_fails_and_purge_that_keeps_bytes() {
    faulty("b06_unmap_that_fails_and_purge_that_keeps_bytes", |tenant| {
        FAULTY.fail_unmap(true);
        FAULTY.set_purge(PurgeFault::KeepsBytes);
        let mut used = HashSet::new();
        for size in [3 * MIB, 5 * MIB, 9 * MIB] {
            zeroed_after_purge(tenant, size, false, &mut used);
        }
    });
}

// ----------------------------------------------------------------------------------------------- refused requests

#[test]
fn b19_unmap_that_fails() {
    faulty("b19_unmap_that_fails", |tenant| {
        visit_every_cpu();
        let _scope = tenant.enter();
        FAULTY.fail_unmap(true);
        let mut rng = Rng(7);
        // One of the largest size that will be asked for serves all that follow.
        drop(Object::new(layout(9 * MIB, 8), 1));
        allotment::purge();
        let before = maps();
        for round in 0..1000 {
            let size = 5 * MIB + rng.below(4 * MIB);
            let object = Object::new(layout(size, 8), round as u8).expect("memory");
            assert_eq!(tenant.settle(), charge(size));
            drop(object);
            // Out of the cache of warm ones, which would serve those of its size only.
            allotment::purge();
        }
        assert_eq!(maps(), before, "a kept mapping is used again");
        assert_eq!(allotment::stats().kept, charge(9 * MIB));
        exact(tenant, 0);

        // Up and down: the tail that stays is there when it is wanted again.
        let mut object = Object::new(layout(6 * MIB, 8), 3).expect("memory");
        assert!(object.resize(40 * MIB));
        let before = maps();
        for _ in 0..1000 {
            let size = 5 * MIB + rng.below(35 * MIB);
            assert!(object.resize(size));
            assert_eq!(tenant.settle(), charge(size));
        }
        assert!(maps() <= before + 1, "{} mappings for 1000 resizes", maps() - before);
        let size = object.layout.size();
        exact(tenant, charge(size));
        drop(object);
        exact(tenant, 0);

        // Segments stay too and serve on.
        let fill = || {
            let objects: Vec<Object> = (0..40).filter_map(|seed| Object::new(layout(MIB, 8), seed)).collect();
            assert_eq!(objects.len(), 40);
        };
        fill();
        let before = maps();
        for _ in 0..20 {
            fill();
            allotment::purge();
            assert_eq!(tenant.settle(), 0);
        }
        assert_eq!(maps(), before);
        exact(tenant, 0);
        FAULTY.fail_unmap(false);
        let (mapped, kept) = (allotment::stats().mapped, allotment::stats().kept);
        assert!(kept > 0);
        allotment::purge();
        assert_eq!(allotment::stats().kept, 0);
        assert!(allotment::stats().mapped < mapped - kept, "gone when the system lets go");
    });
}

/// Allocates and resizes all over the sizes. What is refused stays as it was; the rest is as it should be.
fn work(objects: &mut Vec<Object>, refused: &mut usize) {
    for (seed, size) in [16, 64, 1000, 8192, 65536, 100_000, MIB, 2 * MIB, 3 * MIB, 9 * MIB, 24].into_iter().enumerate()
    {
        for align in [8, 4096, 4 * MIB] {
            // A small object of a large alignment has another class; the large ones are charged by size.
            if align > 8 && size <= 65536 {
                continue;
            }
            for _ in 0..4 {
                match Object::new(layout(size, align), seed as u8) {
                    Some(object) => objects.push(object),
                    None => *refused += 1,
                }
            }
        }
    }
    for (number, object) in objects.iter_mut().enumerate() {
        let size = [70_000, 3 * MIB, 20, 6 * MIB][number % 4];
        let align = object.layout.align();
        if align == 8 || size > 65536 {
            *refused += usize::from(!object.resize(size));
        }
    }
}

#[test]
fn b20_map_that_fails_at_the_nth_call() {
    faulty("b20_map_that_fails_at_the_nth_call", |tenant| {
        let mut objects = Vec::with_capacity(1000);
        let mut total = 0;
        for n in 0..50 {
            allotment::purge();
            let before = maps();
            FAULTY.allow_maps(Some(n));
            let mut refused = 0;
            tenant.in_scope(|| work(&mut objects, &mut refused));
            assert_eq!(refused > 0, maps() > before + u64::from(n), "n = {n}: {refused} refused");
            assert_eq!(tenant.settle(), charges(&objects), "n = {n}");
            FAULTY.allow_maps(None);
            exact(tenant, charges(&objects));
            total += refused;
            objects.clear();
            exact(tenant, 0);
            assert!(!tenant.is_stopped());
        }
        assert!(total > 100, "{total} refused");
    });
}

#[test]
fn b20_try_reserve_says_so() {
    faulty("b20_try_reserve_says_so", |tenant| {
        let _scope = tenant.enter();
        let mut vec = vec![5_u8; 3 * MIB];
        FAULTY.allow_maps(Some(0));
        FAULTY.fail_grow(true);
        let answer = vec.try_reserve_exact(50 * MIB).is_err();
        let settled = tenant.settle();
        FAULTY.allow_maps(None);
        assert!(answer);
        assert_eq!(settled, charge(3 * MIB));
        assert!(vec.iter().all(|&byte| byte == 5));
        assert_eq!(vec.try_reserve_exact(50 * MIB), Ok(()));
        exact(tenant, charge(53 * MIB));
        assert!(vec.iter().all(|&byte| byte == 5));
    });
}

#[test]
fn b20_grow_that_fails() {
    faulty("b20_grow_that_fails", |tenant| {
        let _scope = tenant.enter();
        FAULTY.fail_grow(true);
        let mut rng = Rng(11);
        let mut object = Object::new(layout(3 * MIB, 8), 9).expect("memory");
        for round in 0..200 {
            let size = 70_000 + rng.below(12 * MIB);
            // Without growth in place and without a map nothing can grow beyond a segment; it stays as it was.
            FAULTY.allow_maps((round % 3 == 0).then_some(0));
            let old = object.layout.size();
            let done = object.resize(size);
            FAULTY.allow_maps(None);
            assert!(done || (round % 3 == 0 && size > old));
            let size = object.layout.size();
            assert_eq!(tenant.settle(), charge(size));
        }
        let size = object.layout.size();
        exact(tenant, charge(size));
    });
}

#[test]
fn b07_sizes_near_the_end() {
    faulty("b07_sizes_near_the_end", |tenant| {
        const END: usize = isize::MAX as usize;
        let limited = Tenant::builder("limited").parent(tenant).max(MIB).build().unwrap();
        let kept = tenant.in_scope(|| Object::new(layout(5 * MIB, 8), 1).expect("memory"));
        for who in [tenant, &limited] {
            let before = (tenant.settle(), maps());
            who.in_scope(|| {
                for k in (0..64).chain((6..13).flat_map(|bit| [(1 << bit) - 1, 1 << bit])).filter(|&k| k < 8191) {
                    let size = END - k;
                    for align in [1, 8, 4096].into_iter().filter(|align| size <= END - (align - 1)) {
                        let huge = layout(size, align);
                        // SAFETY: not of size 0. `kept` is live and stays so when its growth is refused.
                        unsafe {
                            assert!(alloc(huge).is_null(), "{huge:?}");
                            assert!(alloc_zeroed(huge).is_null(), "{huge:?}");
                            if align <= 8 {
                                assert!(realloc(kept.start, kept.layout, size & !7).is_null(), "{huge:?}");
                            }
                        }
                    }
                }
            });
            assert_eq!((tenant.settle(), maps()), before, "charged nothing and asked the system for nothing");
            assert!(!who.is_stopped());
        }
        exact(tenant, charge(5 * MIB));
        drop(kept);
    });
}

/// Sizes that can be rounded: the system may be asked, and says no.
#[test]
fn b28_what_the_system_refuses_leaves_no_trace() {
    faulty("b28_what_the_system_refuses_leaves_no_trace", |tenant| {
        const END: usize = isize::MAX as usize;
        const GIB: usize = 1 << 30;
        let kept = tenant.in_scope(|| Object::new(layout(5 * MIB, 8), 1).expect("memory"));
        let before = (tenant.settle(), tenant.peak(), tenant.events(), tenant.is_stopped());
        let sizes = [
            (END - 8191, 1),
            (END / 2, 8),
            (1 << 47, 4096),
            ((1 << 47) - GIB, 4096),
            (END - GIB + 1, GIB),
            (1, 2 * GIB),
        ];
        for (size, align) in sizes {
            // SAFETY: not of size 0.
            tenant.in_scope(|| assert!(unsafe { alloc(layout(size, align)) }.is_null(), "{size} {align}"));
            let after = (tenant.settle(), tenant.peak(), tenant.events(), tenant.is_stopped());
            assert_eq!(after, before, "{size} {align}");
        }
        // The same where there is a map to be had in principle, but not now.
        FAULTY.allow_maps(Some(0));
        // SAFETY: not of size 0.
        let refused = tenant.in_scope(|| unsafe { alloc(layout(50 * MIB, 8)) }.is_null());
        FAULTY.allow_maps(None);
        assert!(refused);
        assert_eq!((tenant.settle(), tenant.peak(), tenant.events(), tenant.is_stopped()), before);
        exact(tenant, charge(5 * MIB));
        drop(kept);
    });
}

// ---------------------------------------------------------------------------------------------------------- decay

#[test]
fn decay_purges_what_is_old() {
    faulty("decay_purges_what_is_old", |tenant| {
        let _scope = tenant.enter();
        allotment::purge();
        let touch = |count| (0..count).for_each(|_| drop(Object::new(layout(70_000, 8), 1)));
        let objects: Vec<Object> = (0..64).filter_map(|seed| Object::new(layout(MIB, 8), seed)).collect();
        touch(32);
        let (dirty, count) = (allotment::stats().dirty, purges());
        drop(objects);
        assert_eq!(allotment::stats().dirty, dirty + 64 * MIB);
        touch(64);
        assert_eq!(purges(), count, "nothing is old yet");
        for _ in 0..12 {
            FAULTY.advance_clock(1_300);
            touch(16);
        }
        assert!(purges() > count);
        assert!(allotment::stats().dirty < dirty + 8 * MIB, "{} B dirty", allotment::stats().dirty);
        // What went back is usable.
        let again: Vec<Object> = (0..64).filter_map(|seed| Object::new(layout(MIB, 8), seed)).collect();
        assert_eq!(again.len(), 64);
        drop(again);
        allotment::purge();
        assert_eq!(allotment::stats().dirty, 0);
    });
}

// ---------------------------------------------------------------------------------------------------- large pages

fn with_pages(test: &str, page: usize) {
    in_child(test, 60, || {
        FAULTY.pretend_page_size(page);
        replace(&OS);
        let tenant = Tenant::new("large pages").unwrap();
        let mut rng = Rng(page as u64);
        let mut objects: Vec<Object> = Vec::with_capacity(512);
        let mut charged = 0;
        let count = purges();
        for step in 0..8_000 {
            let size = |rng: &mut Rng| match rng.below(50) {
                0 => 1 + rng.below(7 * MIB),
                1..=5 => 65_537 + rng.below(400_000),
                _ => {
                    let end = 1 << (4 + rng.below(13));
                    1 + rng.below(end)
                }
            };
            let wanted = size(&mut rng);
            match rng.below(8) {
                0..=3 if objects.len() < 512 => {
                    let object = tenant.in_scope(|| Object::new(layout(wanted, 8), step as u8));
                    charged += charge(wanted);
                    objects.push(object.expect("memory"));
                }
                4 | 5 if !objects.is_empty() => {
                    let at = rng.below(objects.len());
                    charged -= charge(objects[at].layout.size());
                    assert!(objects[at].resize(wanted));
                    charged += charge(wanted);
                }
                _ if !objects.is_empty() => {
                    let at = rng.below(objects.len());
                    charged -= charge(objects[at].layout.size());
                    drop(objects.swap_remove(at));
                }
                _ => {}
            }
            if step % 400 == 399 {
                allotment::purge();
                exact(&tenant, charged);
            }
        }
        assert_eq!(charged, charges(&objects));
        assert!(purges() > count);
        // A large span and a huge object whose addresses go back.
        let span =
            tenant.in_scope(|| (0..32).filter_map(|seed| Object::new(layout(2 * MIB, 8), seed)).collect::<Vec<_>>());
        let huge = tenant.in_scope(|| Object::new(layout(16 * MIB, 8), 1).expect("memory"));
        let addresses: Vec<*mut u8> = span.iter().chain([&huge]).map(|object| object.start).collect();
        for &address in &addresses {
            // SAFETY: a live object of at least a byte.
            assert_eq!(Tenant::owner_of(unsafe { &*address }), Some(tenant.clone()));
        }
        let mapped = allotment::stats().mapped;
        drop((span, huge));
        objects.clear();
        allotment::purge();
        exact(&tenant, 0);
        assert!(allotment::stats().mapped < mapped - 48 * MIB, "{mapped} -> {}", allotment::stats().mapped);
        not_taken_for_ours(&addresses);
        exact(&tenant, 0);
    });
}

/// Maps foreign pages at the addresses that are free by now.
fn not_taken_for_ours(addresses: &[*mut u8]) {
    let mut foreign = 0;
    for &address in addresses {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: replaces no mapping.
        let page = unsafe { libc::mmap(address.cast(), 65536, access, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            continue;
        }
        // SAFETY: mapped just now, at this address.
        assert_eq!(Tenant::owner_of(unsafe { &*page.cast::<[u8; 100]>() }), None);
        foreign += 1;
        // SAFETY: our own mapping, used no more.
        unsafe { libc::munmap(page, 65536) };
    }
    assert!(foreign > addresses.len() / 2, "{foreign} of {} addresses were given back", addresses.len());
    assert_eq!(Tenant::owner_of(&FOREIGN), None);
}

static FOREIGN: u64 = 1;

#[test]
fn b24_pages_of_the_system() {
    with_pages("b24_pages_of_the_system", 4096);
}

#[test]
fn b24_pages_of_16_kib() {
    with_pages("b24_pages_of_16_kib", 16 << 10);
}

#[test]
fn b24_pages_of_64_kib() {
    with_pages("b24_pages_of_64_kib", 64 << 10);
}

/// A relocated object's old addresses are nobody's.
#[test]
fn moved_pages_leave_nothing_behind() {
    faulty("moved_pages_leave_nothing_behind", |tenant| {
        let _scope = tenant.enter();
        let mut object = Object::new(layout(8 * MIB, 8), 1).expect("memory");
        let mut old = Vec::with_capacity(64);
        for round in 0..64 {
            // In the way of growth, so that the pages have to move.
            let end = object.start.wrapping_add(object.layout.size());
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: replaces no mapping.
            let wall = unsafe { libc::mmap(end.cast(), 4096, libc::PROT_NONE, flags, -1, 0) };
            old.push(object.start);
            assert!(object.resize((9 + round) * MIB));
            let size = object.layout.size();
            assert_eq!(tenant.settle(), charge(size) + charge(64 * 8));
            if wall != libc::MAP_FAILED {
                // SAFETY: our own mapping, used by nobody.
                unsafe { libc::munmap(wall, 4096) };
            }
        }
        old.retain(|&start| start != object.start);
        assert!(old.len() > 32);
        drop(object);
        not_taken_for_ours(&old);
    });
}

/// The layouts of this file are what the charges assume.
#[test]
fn charges_are_by_class() {
    in_child("charges_are_by_class", 20, || {
        let tenant = Tenant::new("classes").unwrap();
        for size in sizes().into_iter().flat_map(|size| [size - 1, size, size + 1]) {
            let layout: Layout = layout(size, 8);
            let object = tenant.in_scope(|| Object::new(layout, 1));
            assert_eq!(tenant.settle(), charge(size), "{size}");
            drop(object);
            assert_eq!(tenant.settle(), 0);
        }
    });
}
