//! Who owns an object, and what it is charged: through resizes, adoptions, foreign frees, and turns at one cache.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/limited.rs"]
mod limited;

use std::alloc::{alloc, alloc_zeroed, dealloc, GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::{mpsc, Arc};

use allotment::{fallible, Allotment, Tenant};
use case::{charge, exact, in_child, layout, Object, Rng};
use limited::{counts, forced, strict, Counts};

#[global_allocator]
static A: Allotment = Allotment::new();

static TABLE: [u64; 100] = [7; 100];

fn tenants<const N: usize>(name: &str) -> [Tenant; N] {
    std::array::from_fn(|_| Tenant::new(name).unwrap())
}

/// All size classes, then large and huge sizes.
fn sizes() -> Vec<usize> {
    let steps = (16..=128).step_by(16);
    let quarters = (7..16).flat_map(|log| (1..=4).map(move |n| (1 << log) + n * (1 << (log - 2))));
    let large = [65_537, 100_000, 1 << 20, (4 << 20) - 1, (4 << 20) + 1, 9 << 20];
    steps.chain(quarters).chain(large).collect()
}

fn bytes(object: &Object) -> &[u8] {
    // SAFETY: the object is live and of this size; its first and last byte are written, and only those are looked at.
    unsafe { std::slice::from_raw_parts(object.start, object.layout.size()) }
}

#[test]
fn owner_of_whatever_lies_in_a_block() {
    let [tenant, other] = tenants("owner");
    let mine = Some(tenant.clone());
    struct Record {
        head: u8,
        tail: [u16; 30],
        name: String,
    }
    for size in sizes() {
        let object = tenant.in_scope(|| Object::new(layout(size, 1), 1)).unwrap();
        // Every place near the ends and the joints, and a step through the middle.
        let near = |at: usize| at % 4096 < 3 || at % 4096 > 4092 || at < 70 || at + 70 > size;
        for at in (0..size).filter(|&at| near(at) || at % 61 == 0) {
            assert_eq!(Tenant::owner_of(&bytes(&object)[at]), mine, "byte {at} of {size}");
        }
        assert_eq!(Tenant::owner_of(&bytes(&object)[size / 2..]), mine);
    }
    other.in_scope(|| {
        let record = tenant.in_scope(|| Box::new(Record { head: 1, tail: [2; 30], name: String::from("text") }));
        assert_eq!(Tenant::owner_of(&*record), mine);
        assert_eq!(Tenant::owner_of(&record.tail[29]), mine);
        assert_eq!(Tenant::owner_of(&record.head), mine);
        assert_eq!(Tenant::owner_of(record.name.as_str()), mine);
        assert_eq!(Tenant::owner_of(&record), None, "the box itself lies on the stack");
        let shared: Arc<dyn std::fmt::Debug + Send + Sync> = tenant.in_scope(|| Arc::new(5_u32));
        assert_eq!(Tenant::owner_of(&*shared), mine);
        let list = tenant.in_scope(|| vec![1_u8; 10]);
        let list = Box::new([list]);
        assert_eq!(Tenant::owner_of(&list[..]), Some(other.clone()));
        assert_eq!(Tenant::owner_of(&list[0]), Some(other.clone()), "where the inner vector itself lies");
        assert_eq!(Tenant::owner_of(&list[0][..]), mine);
    });

    let local = [1_u64; 50];
    assert_eq!(Tenant::owner_of(&local), None);
    assert_eq!(Tenant::owner_of(&TABLE[50]), None);
    assert_eq!(Tenant::owner_of("text"), None);
    let empty =
        tenant.in_scope(|| (Box::new(()), Vec::<u64>::new(), Vec::<u8>::with_capacity(100), Box::<[u8]>::default()));
    assert_eq!(Tenant::owner_of(&*empty.0), None);
    assert_eq!(Tenant::owner_of(&empty.1[..]), None);
    assert_eq!(Tenant::owner_of(&empty.2[..]), None, "no size, so it lies in nothing");
    assert_eq!(Tenant::owner_of(&empty.3[..]), None);
    assert!(!tenant.adopt(&empty.2[..]) && !tenant.adopt(&local) && !tenant.adopt(&TABLE) && !tenant.adopt("text"));
    for size in [10, 5000, 300_000, 8 << 20] {
        let foreign = layout(size, 8);
        // SAFETY: the size is not 0; the object is written before it is looked at, and freed once.
        unsafe {
            let start = System.alloc(foreign);
            start.write(1);
            assert_eq!((Tenant::owner_of(&*start), tenant.adopt(&*start)), (None, false));
            System.dealloc(start, foreign);
        }
    }
    drop(empty);
    exact(&tenant, 0);
    exact(&other, 0);
}

#[test]
fn a_free_credits_the_owner_whoever_does_it() {
    let [owner, other] = tenants("credited");
    let (send, receive) = mpsc::channel::<Object>();
    let freeing = {
        let other = other.clone();
        std::thread::spawn(move || {
            for (turn, object) in receive.into_iter().enumerate() {
                match turn % 3 {
                    0 => drop(object),
                    1 => other.in_scope(|| drop(object)),
                    _ => other.in_scope(|| fallible(|| drop(object))),
                }
            }
        })
    };
    let mut owned = 0;
    let mut kept = Vec::new();
    for round in 0..6 {
        for size in sizes() {
            let object = owner.in_scope(|| Object::new(layout(size, 1), 5)).unwrap();
            if round == 5 {
                owned += charge(size);
                kept.push(object);
            } else {
                send.send(object).unwrap();
            }
        }
    }
    drop(send);
    freeing.join().unwrap();
    exact(&owner, owned);
    exact(&other, 0);
    other.in_scope(|| drop(kept));
    exact(&owner, 0);
    exact(&other, 0);
}

#[test]
fn realloc_keeps_the_owner_who_pays_for_growth() {
    let [owner, other] = tenants("resized");
    let steps = [1, 16, 17, 200, 1000, 60_000, 65_536, 65_537, 80_000, 500_000, 3 << 20, 5 << 20, 12 << 20, 20 << 20];
    for first in steps {
        for second in steps {
            let mut object = owner.in_scope(|| Object::new(layout(first, 8), 9)).unwrap();
            other.in_scope(|| assert!(object.resize(second)));
            assert_eq!(Tenant::owner_of(&bytes(&object)[0]), Some(owner.clone()), "{first} -> {second}");
            assert_eq!(owner.settle(), charge(second), "{first} -> {second}");
            assert_eq!(other.settle(), 0, "{first} -> {second}");
        }
    }
    exact(&owner, 0);

    // Refused growth: the object, the owner's account and the other's are as before.
    for (first, second) in [(100, 3000), (3000, 70_000), (70_000, 100_000), (3 << 20, 5 << 20), (5 << 20, 9 << 20)] {
        let owner = Tenant::builder("full").max(charge(second) - 1).build().unwrap();
        let mut object = strict(&owner, first).unwrap();
        let before = (owner.settle(), owner.peak());
        assert!(before.0 == charge(first) && !other.in_scope(|| fallible(|| object.resize(second))));
        assert_eq!(
            (owner.usage(), owner.peak(), owner.settle()),
            (before.0, before.1, before.0),
            "{first} -> {second}"
        );
        assert_eq!(counts(&owner).0, Counts { refused: 1, ..Counts::default() }, "{first} -> {second}");
        assert!(!owner.is_stopped() && other.settle() == 0);
        // Forced, it is the owner that is stopped and not who did it.
        other.in_scope(|| assert!(object.resize(second)));
        assert!(owner.is_stopped() && !other.is_stopped() && other.in_scope(allotment::checkpoint).is_ok());
        assert_eq!(owner.settle(), charge(second));
        drop(object);
        exact(&owner, 0);
    }
    exact(&other, 0);
}

#[test]
fn adoption_moves_one_block_and_its_charge() {
    let [top, other] = tenants("adopting");
    let [parent, sibling]: [Tenant; 2] =
        ["parent", "sibling"].map(|name| Tenant::builder(name).parent(&top).build().unwrap());
    let child = Tenant::builder("child").parent(&parent).build().unwrap();
    for size in sizes() {
        let one = charge(size);
        let object = child.in_scope(|| Object::new(layout(size, 1), 3)).unwrap();
        top.settle();
        top.reset_peak();
        let middle = &bytes(&object)[size / 2..];
        for (to, [in_top, in_parent, in_child, in_sibling, in_other]) in [
            (&child, [1, 1, 1, 0, 0]),
            (&parent, [1, 1, 0, 0, 0]),
            (&sibling, [1, 0, 0, 1, 0]),
            (&child, [1, 1, 1, 0, 0]),
            (&top, [1, 0, 0, 0, 0]),
            (&other, [0, 0, 0, 0, 1]),
            (&sibling, [1, 0, 0, 1, 0]),
        ] {
            assert!(to.adopt(middle));
            assert_eq!(Tenant::owner_of(&bytes(&object)[0]).as_ref(), Some(to));
            let found = [&top, &parent, &child, &sibling, &other].map(Tenant::settle);
            assert_eq!(found, [in_top, in_parent, in_child, in_sibling, in_other].map(|n| n * one), "{size} to {to:?}");
        }
        assert_eq!(top.peak(), one, "it was never charged twice");
        drop(object);
        exact(&top, 0);
    }
    // Of a vector of strings, only the vector.
    let list = other.in_scope(|| vec![String::from("text"); 10]);
    assert!(child.adopt(&list[..]));
    assert_eq!((child.settle(), other.settle()), (charge(240), 10 * charge(4)));
    drop(list);
    exact(&other, 0);
}

#[test]
fn adoption_at_a_limit_is_forced_and_inside_one_parent_is_free() {
    let parent = Tenant::builder("full").max(3 * charge(1000)).build().unwrap();
    let [one, two]: [Tenant; 2] = ["one", "two"].map(|name| Tenant::builder(name).parent(&parent).build().unwrap());
    let held = forced(&one, 1000, 3);
    for object in &held {
        assert!(two.adopt(bytes(object)));
        assert!(fallible(|| two.adopt(bytes(object))), "again, which changes nothing");
    }
    assert_eq!((one.settle(), two.settle(), parent.settle()), (0, 3 * charge(1000), 3 * charge(1000)));
    let calm = [&one, &two, &parent].map(|tenant| (tenant.is_stopped(), counts(tenant).1));
    assert_eq!(calm, [(false, Counts::default()); 3]);

    let small = Tenant::builder("small").max(charge(1000)).build().unwrap();
    assert!(small.adopt(bytes(&held[0])));
    assert!(!small.is_stopped());
    assert!(fallible(|| small.adopt(bytes(&held[1]))), "never refused, but forced");
    assert!(small.is_stopped() && !two.is_stopped());
    let one_past = Counts { max: 1, forced: 1, stopped: 1, overdraft_bytes: charge(1000) as u64, ..Counts::default() };
    assert_eq!(counts(&small).0, one_past);
    assert_eq!((small.settle(), two.settle()), (2 * charge(1000), charge(1000)));
    small.set_overdraft(0);
    assert!(small.adopt(bytes(&held[2])), "nor by an exhausted overdraft");
    assert_eq!((small.settle(), parent.settle()), (3 * charge(1000), 0));
    drop(held);
    exact(&small, 0);
    exact(&parent, 0);
}

#[test]
fn threads_adopting_one_block_move_its_charge_once_each() {
    let all: [Tenant; 4] = tenants("greedy");
    let object = all[0].in_scope(|| Object::new(layout(5000, 1), 1)).unwrap();
    let block = bytes(&object);
    std::thread::scope(|threads| {
        for tenant in &all {
            threads.spawn(move || (0..2000).for_each(|_| assert!(tenant.adopt(block))));
        }
    });
    let owner = Tenant::owner_of(&bytes(&object)[0]).unwrap();
    for tenant in &all {
        exact(tenant, if *tenant == owner { charge(5000) } else { 0 });
    }
    drop(object);
    exact(&owner, 0);
}

/// What one tenant frees the other allocates, from the same magazines; both are always within a byte of their limits.
#[test]
fn b31_tenants_taking_turns_are_never_refused_what_fits() {
    const EACH: usize = 40;
    for size in [8, 64, 500, 8000, 40_000, 200_000] {
        let both: [Tenant; 2] = std::array::from_fn(|n| {
            Tenant::builder(&format!("turn {n}")).max(EACH * charge(size) + charge(size) - 1).build().unwrap()
        });
        let mut held: [Vec<Object>; 2] = [vec![], vec![]];
        let mut rng = Rng(size as u64);
        let mut refused = [0, 0];
        for step in 0..2000 {
            let turn = step % 2;
            let list = &mut held[turn];
            for _ in 0..rng.below(8) {
                if !list.is_empty() {
                    list.swap_remove(rng.below(list.len()));
                }
            }
            for _ in 0..rng.below(9) {
                match strict(&both[turn], size) {
                    Some(object) => list.push(object),
                    None => {
                        assert_eq!(list.len(), EACH, "{size} B, step {step}: refused, though it fits");
                        refused[turn] += 1;
                    }
                }
            }
            assert!(list.len() <= EACH);
            if step % 100 == 0 {
                assert_eq!(both[turn].settle(), list.len() * charge(size));
            }
        }
        for turn in [0, 1] {
            assert!(refused[turn] > 10, "the limit was met");
            assert_eq!(counts(&both[turn]).0, Counts { refused: refused[turn], ..Counts::default() });
            exact(&both[turn], held[turn].len() * charge(size));
        }
        drop(held);
        assert_eq!(both.map(|tenant| tenant.settle()), [0, 0]);
    }
}

/// No refusal while bytes charged to the tenant lie unused on a CPU, whichever thread left them there.
#[test]
fn b31_what_another_thread_has_cached_is_no_reason_to_refuse() {
    // In a process of its own: nobody else may empty the caches.
    in_child("b31_what_another_thread_has_cached_is_no_reason_to_refuse", 30, || {
        const MAX: usize = 4 << 20;
        let tenant = Tenant::builder("fair").max(MAX).build().unwrap();
        let other = Tenant::new("beside").unwrap();
        let kept = strict(&tenant, 1000).unwrap();
        // In one request, and as many of a class. Filled to the last byte first, and to where nothing presses yet.
        for (size, filled) in
            [((MAX - charge(1000)) / 8192 * 8192, MAX), (3 << 20, MAX / 2), (65_536, MAX), (5000, MAX / 2)]
        {
            let before = counts(&tenant).0.refused;
            let frees = || {
                // Objects of every class, freed into this thread's caches.
                let mut held = Vec::new();
                for size in sizes().into_iter().filter(|&size| size <= 65_536).cycle() {
                    match strict(&tenant, size) {
                        Some(object) if tenant.usage() < filled => held.push(object),
                        _ => break,
                    }
                }
                drop(held);
                drop((0..100).map(|_| other.in_scope(|| black_box(Box::new(0_u64)))).collect::<Vec<_>>());
            };
            std::thread::scope(|threads| drop(threads.spawn(frees).join()));
            assert!(tenant.usage() > charge(1000), "some of it is still charged");
            assert_eq!(counts(&tenant).0.refused - before, u64::from(filled == MAX));
            let fits = (MAX - charge(1000)) / charge(size);
            let held: Vec<_> = (0..fits).filter_map(|_| strict(&tenant, size)).collect();
            assert!(fits > 0 && held.len() == fits, "{} of {fits} objects of {size} B", held.len());
            assert_eq!(counts(&tenant).0.refused - before, u64::from(filled == MAX), "{size} B");
            drop(held);
            tenant.settle();
            tenant.set_max(MAX);
        }
        assert!(!tenant.is_stopped());
        drop(kept);
        exact(&tenant, 0);
        exact(&other, 0);
    });
}

#[test]
fn errors_belong_to_root() {
    let parent = Tenant::builder("parent").max(1000).build().unwrap();
    let tenant = Tenant::builder("asking").parent(&parent).build().unwrap();
    let error = tenant.in_scope(|| tenant.try_charge(1001)).unwrap_err();
    let copies = [tenant.in_scope(|| fallible(|| tenant.try_charge(1001))).unwrap_err(), {
        tenant.stop();
        tenant.in_scope(allotment::checkpoint).unwrap_err()
    }];
    for error in copies.iter().chain([&error]) {
        assert_eq!(error.asked, "asking");
        for text in [&error.tenant, &error.asked] {
            assert_eq!(Tenant::owner_of(text.as_str()), Some(Tenant::root()));
        }
    }
    assert_eq!(Tenant::owner_of(&error.children[..]), Some(Tenant::root()));
    let list = tenant.in_scope(allotment::tenants);
    assert_eq!(Tenant::owner_of(&list[..]), Some(tenant.clone()), "an ordinary value of the caller's");
    drop(list);
    exact(&parent, 0);
}

#[test]
fn external_charges_are_exact_to_the_byte() {
    let parent = Tenant::builder("mapper").max(1000).build().unwrap();
    let tenant = Tenant::builder("part").parent(&parent).max(900).build().unwrap();
    let charges: Vec<_> = (1..=40).map(|bytes| tenant.try_charge(bytes).unwrap()).collect();
    assert_eq!((tenant.usage(), tenant.stats().external, parent.usage(), parent.stats().external), (820, 820, 820, 0));
    assert_eq!(tenant.try_charge(81).unwrap_err().tenant, "part");
    let rest = (tenant.try_charge(80).unwrap(), parent.try_charge(100).unwrap());
    let error = parent.try_charge(1).unwrap_err();
    assert_eq!(
        (&*error.tenant, error.usage, error.limit, &error.children[..]),
        ("mapper", 1000, Some(1000), &[("part".to_owned(), 900)][..])
    );
    assert!(!tenant.is_stopped() && tenant.try_charge(0).unwrap().bytes() == 0);
    assert_eq!(
        std::thread::spawn(move || charges.iter().map(|charge| charge.bytes()).sum::<usize>()).join().unwrap(),
        820
    );
    assert_eq!((tenant.usage(), parent.usage(), parent.peak()), (80, 180, 1000));
    drop(rest);
    exact(&parent, 0);
}

/// The charge by definition: the smallest class whose places are aligned well enough, else whole units.
fn charge_aligned(size: usize, align: usize) -> usize {
    let fits = |class: usize| class >= size.max(1) && 1 << class.trailing_zeros() >= align;
    let class = sizes().into_iter().filter(|&class| class <= 65_536).find(|&class| fits(class));
    class.map_or(size.next_multiple_of(8192), |class| class + 2)
}

#[test]
fn b04_alignments_are_charged_exactly() {
    let [tenant, _] = tenants("aligned");
    for log in 0..=30 {
        let align = 1_usize << log;
        let around = [1, 100, align - 1, align, align + 1, 2 * align + 1, 3 * align, 40_000, 65_536, 65_537, 150_000];
        for size in around.into_iter().filter(|&size| size > 0 && size <= 4 << 20) {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the size is not 0; the object's ends are written and read within it; it is freed once.
            unsafe {
                let start = tenant.in_scope(|| alloc(layout));
                assert!(!start.is_null() && start.addr().is_multiple_of(align), "{layout:?}");
                start.write(1);
                start.add(size - 1).write(1);
                assert_eq!(tenant.settle(), charge_aligned(size, align), "{layout:?}");
                assert_eq!(Tenant::owner_of(&*start.add(size - 1)), Some(tenant.clone()), "{layout:?}");
                dealloc(start, layout);
            }
            assert_eq!(tenant.settle(), 0, "{layout:?}");
        }
    }
    allotment::verify().unwrap();
}

#[test]
fn b06_zeroed_is_zero_and_charged_the_same() {
    let [tenant, other] = tenants("zeroed");
    for round in 0..3 {
        for size in sizes() {
            let layout = layout(size, 1);
            // Dirty memory of another tenant's first, which the caches hand on.
            let dirty: Vec<Object> = (0..3).map(|n| other.in_scope(|| Object::new(layout, !n)).unwrap()).collect();
            drop(dirty);
            // SAFETY: the size is not 0; the object is read within its bounds and freed once.
            unsafe {
                let start = tenant.in_scope(|| alloc_zeroed(layout));
                let zeros = std::slice::from_raw_parts(start, size);
                assert!(zeros.iter().all(|&byte| byte == 0), "{size} B, round {round}");
                assert_eq!((tenant.settle(), other.settle()), (charge(size), 0), "{size} B");
                start.write_bytes(0xA5, size);
                other.in_scope(|| dealloc(start, layout));
            }
            assert_eq!(tenant.settle(), 0);
        }
        allotment::purge();
    }
    allotment::verify().unwrap();
}
