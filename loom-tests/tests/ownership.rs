//! Ownership transfer against drain: see `src/charge/transfer.rs`, `src/charge/drain.rs`.
#![cfg(loom)]
#![allow(missing_docs)]

use std::ptr::NonNull;

use allotment::model::counter::{try_charge, Rule};
use allotment::model::drain::{disown, drain_stock};
use allotment::model::size_class::Class;
use allotment::model::slot::{Slot, SlotData};
use allotment::model::stock::{Entry, Stock};
use allotment::model::tag::{get, set, Tag};
use allotment::model::transfer::transfer;
use allotment_loom_tests::{FakeSlab, SmallTree, LEFT, PARENT, RIGHT, ROOT};
use loom::sync::Arc;
use loom::thread;

const CLASS: Class = Class(3);

/// A slot with two cached objects, charged to and tagged with [`LEFT`].
fn slot_with_objects(tree: &SmallTree, slab: &FakeSlab) -> Slot {
    let slot = Slot::new();
    let entries = Box::leak(Box::new([Entry::default(); 4]));
    // SAFETY: the entries live for ever and are this stock's alone.
    let stock = unsafe { Stock::new(entries.as_mut_ptr(), entries.len()) };
    let mut data = SlotData::new(stock);
    let magazines = &mut data.magazines[usize::from(CLASS.0)];
    let blocks = Box::leak(Box::new([[std::ptr::null_mut(); 64]; 2]));
    let [loaded, previous] = blocks;
    // SAFETY: the blocks live for ever and are these magazines' alone.
    unsafe { magazines.provide(loaded.as_mut_ptr(), previous.as_mut_ptr()) };
    for place in 0..2 {
        let object = slab.object(CLASS, place);
        // SAFETY: a slot of a slab of the class.
        unsafe { set(CLASS, object, LEFT) };
        assert!(magazines.push(object));
    }
    try_charge(tree, LEFT, 2 * CLASS.charge(), Rule::Max).unwrap();
    let data = NonNull::from(Box::leak(Box::new(data)));
    let held = slot.try_enter(1).unwrap();
    // SAFETY: the slot is held and has no content yet.
    unsafe { held.slot().provide(data) };
    drop(held);
    slot
}

/// Drains `tenant` from the slot, which the caller holds.
fn drain(tree: &SmallTree, data: &mut SlotData, tenant: Tag) {
    drain_stock(tree, &mut data.stock, tenant);
    for objects in data.magazines[usize::from(CLASS.0)].contents() {
        // SAFETY: cached objects of the class; the slot is held.
        unsafe { disown(tree, CLASS, objects, tenant) };
    }
}

#[test]
fn a_transfer_and_a_drain_keep_every_account_exact() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        let slab = Arc::new(FakeSlab::new(CLASS));
        let slot = Arc::new(slot_with_objects(&tree, &slab));
        let (other_tree, other_slot) = (tree.clone(), slot.clone());
        let drainer = thread::spawn(move || {
            other_slot.wait(2).unwrap();
            // SAFETY: the slot is held since `wait`.
            let data = unsafe { other_slot.data() }.unwrap();
            drain(&other_tree, data, LEFT);
            // Nothing of LEFT is left in this slot, whoever was first.
            assert_eq!(other_tree.usage(LEFT), 0, "a drained tenant still has slack");
            other_slot.leave();
        });
        let mut live = 0;
        if let Some(mut held) = slot.try_enter(1) {
            let data = held.data().unwrap();
            let object = data.magazines[usize::from(CLASS.0)].pop().unwrap();
            // SAFETY: taken out of this slot's magazine just now.
            unsafe { transfer(&*tree, &mut data.stock, CLASS, object, RIGHT, Rule::Max) }.unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { get(CLASS, object) }, RIGHT);
            live = CLASS.charge();
            assert!(tree.usage(RIGHT) >= live, "usage below the live truth");
        }
        drainer.join().unwrap();
        slot.wait(1).unwrap();
        // SAFETY: the slot is held since `wait`.
        let data = unsafe { slot.data() }.unwrap();
        drain(&tree, data, PARENT);
        drain_stock(&*tree, &mut data.stock, RIGHT);
        drain_stock(&*tree, &mut data.stock, LEFT);
        drain_stock(&*tree, &mut data.stock, ROOT);
        let cached: usize = data.magazines[usize::from(CLASS.0)].contents().iter().map(|objects| objects.len()).sum();
        slot.leave();
        assert_eq!((tree.usage(LEFT), tree.usage(RIGHT), tree.usage(PARENT)), (0, live, live));
        assert_eq!(tree.usage(ROOT), live + cached * CLASS.charge());
        assert!(tree.is_valid());
    });
}
