//! The contract of `GlobalAlloc`, under a shadow map.
//!
//! `Allotment` is called directly and is not this binary's global allocator: the map that knows every live object
//! (address, size, tenant) lives on the system's heap, where no fault of ours can reach it.

mod model;

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use allotment::{fallible, purge, verify, Allotment, Tenant};
use model::{charge, check, fill, slot, slot_sizes, MAX_SMALL};

const HEAP: Allotment = Allotment::new();

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// A small generator of reproducible numbers (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

/// An object as its holder knows it.
#[derive(Clone, Copy, Debug)]
struct Object {
    address: usize,
    layout: Layout,
    seed: u8,
    tenant: usize,
}

/// Every live object, and what each tenant must have been charged for them.
#[derive(Default)]
struct Shadow {
    live: BTreeMap<usize, Object>,
    charged: BTreeMap<usize, usize>,
}

impl Shadow {
    /// Notes a fresh object: after the allocator returned it.
    fn insert(&mut self, object: Object) {
        let end = object.address + object.layout.size().max(1);
        if let Some((_, before)) = self.live.range(..=object.address).next_back() {
            let before_end = before.address + before.layout.size().max(1);
            assert!(before_end <= object.address, "{object:x?} overlaps {before:x?}");
        }
        if let Some((_, after)) = self.live.range(object.address..).next() {
            assert!(end <= after.address, "{object:x?} overlaps {after:x?}");
        }
        *self.charged.entry(object.tenant).or_default() += charge(object.layout);
        self.live.insert(object.address, object);
    }

    /// Forgets an object: before the allocator gets it back.
    fn remove(&mut self, object: &Object) {
        self.live.remove(&object.address).expect("an object of the map");
        *self.charged.get_mut(&object.tenant).unwrap() -= charge(object.layout);
    }

    /// What these tenants hold together.
    fn truth(&self, tenants: &[usize]) -> usize {
        tenants.iter().map(|tenant| self.charged.get(tenant).copied().unwrap_or(0)).sum()
    }
}

/// Allocates in the current scope, checks the address and writes the pattern; `None`: null.
fn allocate(layout: Layout, seed: u8, tenant: usize) -> Option<Object> {
    // SAFETY: a size of zero, which `GlobalAlloc` leaves undefined, is defined by Allotment as the smallest object.
    let pointer = unsafe { HEAP.alloc(layout) };
    if pointer.is_null() {
        return None;
    }
    assert_eq!(pointer.align_offset(layout.align()), 0, "{layout:?} at {pointer:p}");
    // SAFETY: fresh memory of that size.
    unsafe { fill(pointer, layout.size(), seed) };
    Some(Object { address: pointer as usize, layout, seed, tenant })
}

fn release(object: &Object) {
    // SAFETY: the object came from `allocate` or `resize` with this layout and pattern, and is not used again.
    unsafe {
        check(object.address as *const u8, object.layout.size(), object.layout.size(), object.seed);
        HEAP.dealloc(object.address as *mut u8, object.layout);
    }
}

/// Reallocates and checks address and contents; `None`: null, the old object is untouched.
fn resize(object: &Object, size: usize) -> Option<Object> {
    let new = layout(size, object.layout.align());
    let old_size = object.layout.size();
    // SAFETY: the object is live and came with this layout; `layout` accepted the new size at the same alignment.
    let pointer = unsafe { HEAP.realloc(object.address as *mut u8, object.layout, size) };
    if pointer.is_null() {
        // SAFETY: a refused realloc leaves the old object alone.
        unsafe { check(object.address as *const u8, old_size, old_size, object.seed) };
        return None;
    }
    assert_eq!(pointer.align_offset(new.align()), 0, "{new:?} at {pointer:p}");
    if slot(object.layout).is_some() && slot(object.layout) == slot(new) {
        assert_eq!(pointer as usize, object.address, "moved within its own slot");
    }
    // SAFETY: the new object is ours, at least `size` bytes; its first bytes came from the old one.
    unsafe {
        check(pointer, old_size, old_size.min(size), object.seed);
        fill(pointer, size, object.seed);
    }
    Some(Object { address: pointer as usize, layout: new, ..*object })
}

#[test]
fn this_binary_does_not_run_on_the_heap_it_tests() {
    let _some = Box::new(1);
    assert!(!Allotment::is_installed());
}

#[test]
fn b04_every_size_at_every_alignment() {
    let tenant = Tenant::new("b04").unwrap();
    let mut numbers = Numbers::new(4);
    for shift in 0..=30 {
        let align = 1_usize << shift;
        let mut sizes = vec![0, 1, align - 1, align, align + 1, 2 * align, 3 * align, 3 * align + 1];
        if align <= MAX_SMALL {
            sizes.extend(slot_sizes().into_iter().flat_map(|size| [size - 1, size, size + 1]));
            sizes.extend((0..16).map(|_| numbers.below(3 * align + 2)));
        }
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let layout = layout(size, align);
            let mut shadow = Shadow::default();
            let objects: Vec<Object> = (1..=3)
                .map(|seed| {
                    let object = tenant.in_scope(|| allocate(layout, seed, 0));
                    let object = object.unwrap_or_else(|| panic!("{layout:?} gave null"));
                    shadow.insert(object);
                    object
                })
                .collect();
            assert_eq!(tenant.settle(), shadow.truth(&[0]), "{layout:?}");
            objects.iter().for_each(release);
        }
        assert_eq!(tenant.settle(), 0, "alignment {align}");
    }
    verify().unwrap();
}

#[test]
fn b04_alignment_above_size_and_of_a_mebibyte() {
    let tenant = Tenant::new("b04 by name").unwrap();
    for (size, align) in [(1, 16), (8, 4096), (256, 256), (4096, 4096), (100, 1 << 20), (2 << 20, 2 << 20)] {
        let object = tenant.in_scope(|| allocate(layout(size, align), 7, 0)).unwrap();
        assert_eq!(object.address % align, 0);
        assert_eq!(tenant.settle(), charge(object.layout));
        release(&object);
    }
    assert_eq!(tenant.settle(), 0);
}

#[test]
fn b05_realloc_keeps_contents_alignment_and_owner() {
    const SIZES: [usize; 15] =
        [1, 16, 17, 100, 128, 129, 1000, 4096, 40_000, 65_536, 65_537, 100_000, 300_000, 1 << 20, (3 << 20) + 1];
    let owner = Tenant::new("b05 owner").unwrap();
    let other = Tenant::new("b05 other").unwrap();
    for align in [1, 8, 16, 32, 64, 256, 4096, 32_768, 65_536, 1 << 20] {
        for old in SIZES {
            for new in SIZES {
                let object = owner.in_scope(|| allocate(layout(old, align), 5, 0)).unwrap();
                let grown = other.in_scope(|| resize(&object, new)).unwrap();
                // SAFETY: the object is live and has at least one byte.
                let first = unsafe { &*(grown.address as *const u8) };
                assert_eq!(Tenant::owner_of(first), Some(owner.clone()), "{old} -> {new} at {align}");
                assert_eq!(owner.settle(), charge(grown.layout), "{old} -> {new} at {align}");
                assert_eq!(other.settle(), 0, "{old} -> {new} at {align}");
                release(&grown);
            }
        }
    }
    assert_eq!(owner.settle(), 0);
    verify().unwrap();
}

#[test]
fn b06_zeroed_memory_is_zero() {
    const LARGE: [usize; 5] = [MAX_SMALL + 1, 100_000, 1 << 20, (2 << 20) + 4096, 5 << 20];
    let tenant = Tenant::new("b06").unwrap();
    let zeros = vec![0_u8; 5 << 20];
    let dirty_and_free = |size: usize, count: usize| {
        for _ in 0..count {
            let objects: Vec<usize> = (0..count)
                .map(|_| {
                    // SAFETY: a non-zero size; the bytes written are the object's.
                    unsafe {
                        let object = HEAP.alloc(layout(size, 8));
                        assert!(!object.is_null());
                        object.write_bytes(0xAA, size);
                        object as usize
                    }
                })
                .collect();
            // SAFETY: each is live, with this layout, and freed once.
            objects.into_iter().for_each(|object| unsafe { HEAP.dealloc(object as *mut u8, layout(size, 8)) });
        }
    };
    let expect_zeros = |size: usize, count: usize| {
        let layout = layout(size, 8);
        let objects: Vec<*mut u8> = (0..count)
            .map(|_| {
                // SAFETY: a non-zero size; the object has `size` bytes, all initialised.
                unsafe {
                    let object = HEAP.alloc_zeroed(layout);
                    assert!(!object.is_null());
                    let bytes = std::slice::from_raw_parts(object, size);
                    let dirty = bytes.iter().zip(&zeros).position(|(found, zero)| found != zero);
                    assert!(bytes == &zeros[..size], "{size} bytes are not zero from {dirty:?}");
                    object.write_bytes(0x55, size);
                    object
                }
            })
            .collect();
        // SAFETY: each is live, with this layout, and freed once.
        objects.into_iter().for_each(|object| unsafe { HEAP.dealloc(object, layout) });
    };
    for size in slot_sizes().into_iter().chain(LARGE) {
        let count = if size <= MAX_SMALL { 5 } else { 2 };
        tenant.in_scope(|| {
            dirty_and_free(size, count);
            expect_zeros(size, count);
            dirty_and_free(size, count);
            purge();
            expect_zeros(size, count + 1);
        });
        // Freed by a thread that never allocated, then wanted here.
        std::thread::scope(|scope| {
            scope.spawn(|| dirty_and_free(size, count)).join().unwrap();
            scope.spawn(purge).join().unwrap();
        });
        tenant.in_scope(|| expect_zeros(size, count));
    }
    assert_eq!(tenant.settle(), 0);
}

#[test]
fn b07_sizes_near_the_top_give_null_and_charge_nothing() {
    let unlimited = Tenant::new("b07").unwrap();
    let limited = Tenant::builder("b07 limited").max(1 << 20).build().unwrap();
    for tenant in [&unlimited, &limited] {
        let small = tenant.in_scope(|| allocate(layout(100, 1), 1, 0)).unwrap();
        let large = tenant.in_scope(|| allocate(layout(100_000, 1), 2, 0)).unwrap();
        let held = charge(small.layout) + charge(large.layout);
        assert_eq!(tenant.settle(), held);
        tenant.reset_peak();
        let peak = tenant.peak();
        let nothing_happened = |what: &dyn std::fmt::Debug| {
            assert_eq!(tenant.settle(), held, "{what:?}");
            assert_eq!(tenant.peak(), peak, "{what:?}");
        };
        for shift in 0..=62 {
            let align = 1_usize << shift;
            let top = isize::MAX as usize - (align - 1);
            let below = [0, 1, 7, 15, 4095, 8191, 8192, 65_535, 1 << 20, 1 << 30].map(|k| top.saturating_sub(k));
            let powers = (47..=62).map(|power| 1_usize << power).filter(|size| *size <= top);
            for size in below.into_iter().chain(powers).filter(|size| *size >= 1 << 47) {
                let layout = layout(size, align);
                // SAFETY: a valid layout of non-zero size.
                tenant.in_scope(|| unsafe {
                    assert!(HEAP.alloc(layout).is_null(), "{layout:?}");
                    assert!(HEAP.alloc_zeroed(layout).is_null(), "{layout:?}");
                    assert!(fallible(|| HEAP.alloc(layout)).is_null(), "{layout:?}");
                });
                if align == 1 {
                    for object in [&small, &large] {
                        assert!(tenant.in_scope(|| resize(object, size)).is_none());
                        assert!(fallible(|| resize(object, size)).is_none());
                    }
                }
                nothing_happened(&layout);
            }
        }
        release(&small);
        release(&large);
        assert_eq!(tenant.settle(), 0);
    }
    verify().unwrap();
}

#[test]
fn b29_a_resize_is_charged_as_its_new_size() {
    let tenant = Tenant::new("b29").unwrap();
    for (old, new) in [(100, 112), (20, 32), (5000, 5120), (65_000, 65_536)] {
        let object = tenant.in_scope(|| allocate(layout(old, 1), 3, 0)).unwrap();
        assert_eq!(tenant.settle(), charge(object.layout));
        tenant.reset_peak();
        let grown = resize(&object, new).unwrap();
        assert_eq!((tenant.settle(), tenant.peak()), (charge(grown.layout), charge(grown.layout)), "{old} -> {new}");
        release(&grown);
    }
    for (old, new) in
        [(100, 200), (200, 100), (60_000, 70_000), (70_000, 60_000), (1 << 20, 9 << 20), (9 << 20, 1 << 20)]
    {
        let object = tenant.in_scope(|| allocate(layout(old, 1), 3, 0)).unwrap();
        assert_eq!(tenant.settle(), charge(object.layout));
        tenant.reset_peak();
        let moved = resize(&object, new).unwrap();
        assert_eq!(tenant.settle(), charge(moved.layout), "{old} -> {new}");
        release(&moved);
        assert_eq!(tenant.settle(), 0);
    }
}

/// One thread's share of a round: allocate, resize and free, often what other threads allocated.
fn churn(tenants: &[Tenant], limited: usize, shadow: &Mutex<Shadow>, pool: &Mutex<Vec<Object>>, seed: u64) {
    let mut numbers = Numbers::new(seed);
    for step in 0..4000 {
        let size = match numbers.below(100) {
            0 => numbers.below(300_000),
            1..=10 => numbers.below(20_000),
            _ => numbers.below(600),
        };
        match numbers.below(10) {
            0..=4 => {
                let tenant = numbers.below(tenants.len());
                let alignments = if numbers.below(50) == 0 { 17 } else { 5 };
                let align = 1 << numbers.below(alignments);
                let allocate = || allocate(layout(size, align), step as u8, tenant);
                let object = tenants[tenant].in_scope(|| {
                    if tenant == limited {
                        fallible(allocate)
                    } else {
                        Some(allocate().expect("no limit, so no null"))
                    }
                });
                if let Some(object) = object {
                    shadow.lock().unwrap().insert(object);
                    pool.lock().unwrap().push(object);
                }
            }
            action => {
                let mut all = pool.lock().unwrap();
                if all.is_empty() {
                    continue;
                }
                let index = numbers.below(all.len());
                let object = all.swap_remove(index);
                drop(all);
                shadow.lock().unwrap().remove(&object);
                if action < 9 {
                    release(&object);
                    continue;
                }
                let resized =
                    if object.tenant == limited { fallible(|| resize(&object, size)) } else { resize(&object, size) };
                assert!(object.tenant == limited || resized.is_some());
                let object = resized.unwrap_or(object);
                shadow.lock().unwrap().insert(object);
                pool.lock().unwrap().push(object);
            }
        }
    }
}

#[test]
fn eight_threads_free_each_others_objects() {
    const LIMIT: usize = 300_000;
    let parent = Tenant::new("parent").unwrap();
    let child = Tenant::builder("child").parent(&parent).build().unwrap();
    let limited = Tenant::builder("limited").parent(&child).max(LIMIT).build().unwrap();
    let plain = Tenant::new("plain").unwrap();
    let tenants = [parent, child, limited, plain];
    // Which of them each one's usage includes.
    let subtrees: [&[usize]; 4] = [&[0, 1, 2], &[1, 2], &[2], &[3]];
    let shadow = Mutex::new(Shadow::default());
    let pool = Mutex::new(Vec::new());
    for round in 0..4 {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let observer = scope.spawn(|| {
                let mut looks = 0;
                while !done.load(Ordering::Relaxed) {
                    // Nothing leaves the map, and so the heap, while the lock is held.
                    let shadow = shadow.lock().unwrap();
                    for (tenant, subtree) in tenants.iter().zip(subtrees) {
                        let (usage, truth) = (tenant.usage(), shadow.truth(subtree));
                        assert!(usage >= truth, "{}: shows {usage}, holds {truth}", tenant.name());
                    }
                    assert!(tenants[2].usage() <= LIMIT);
                    looks += 1;
                    drop(shadow);
                    std::thread::yield_now();
                }
                assert!(looks > 0);
            });
            let (tenants, shadow, pool) = (&tenants, &shadow, &pool);
            let workers: Vec<_> =
                (0..8).map(|worker| scope.spawn(move || churn(tenants, 2, shadow, pool, round * 8 + worker))).collect();
            let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            done.store(true, Ordering::Relaxed);
            observer.join().unwrap();
            results.into_iter().for_each(|result| result.unwrap());
        });
        let shadow = shadow.lock().unwrap();
        assert!(shadow.live.len() > 100);
        for (tenant, subtree) in tenants.iter().zip(subtrees) {
            assert_eq!(tenant.settle(), shadow.truth(subtree), "{}", tenant.name());
            let walked: usize = tenant.size_classes().iter().map(|class| class.bytes).sum();
            assert_eq!(walked, shadow.truth(subtree), "{}", tenant.name());
        }
        verify().unwrap();
    }
    assert!(tenants[2].events().local.refused > 0, "the limit was never met");
    assert!(!tenants[2].is_stopped(), "a refusal in a fallible scope stops nobody");
    pool.into_inner().unwrap().iter().for_each(release);
    for tenant in &tenants {
        assert_eq!(tenant.settle(), 0, "{}", tenant.name());
    }
    verify().unwrap();
}

/// A free or a resize between a call that failed and the program's look at `errno` does not change it, whatever the
/// system said to ours.
#[test]
fn errno_is_the_programs() {
    const MINE: i32 = 4711;
    // SAFETY: the location of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    for size in [100_usize, 70_000, 3 << 20, 30 << 20] {
        let old = Layout::from_size_align(size, 8).unwrap();
        // SAFETY: not of size 0; resized and freed with its layout. The wall behind it, which makes the system refuse to
        // extend its mapping, takes no address that is in use. `errno` is this thread's.
        unsafe {
            let object = Allotment.alloc(old);
            assert!(!object.is_null());
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let behind = object.wrapping_add(size.next_multiple_of(8192)).cast();
            let access = libc::PROT_READ;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let wall = libc::mmap(behind, page, access, flags, -1, 0);
            *errno = MINE;
            let moved = Allotment.realloc(object, old, 2 * size);
            assert_eq!(*errno, MINE, "after a resize of {size} B");
            assert!(!moved.is_null());
            Allotment.dealloc(moved, Layout::from_size_align(2 * size, 8).unwrap());
            assert_eq!(*errno, MINE, "after a free of {size} B");
            if wall != libc::MAP_FAILED {
                assert_eq!(libc::munmap(wall, page), 0);
            }
        }
    }
}
