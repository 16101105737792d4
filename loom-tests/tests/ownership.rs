//! Ownership transfer against drain: see `src/charge/transfer.rs`, `src/charge/drain.rs`.
#![cfg(loom)]
#![allow(missing_docs)]

use allotment::model::counter::{try_charge, Rule};
use allotment::model::drain::{disown, drain_stock};
use allotment::model::size_class::Class;
use allotment::model::slot::{Slot, SlotData};
use allotment::model::tag::{get, set, Tag};
use allotment::model::transfer::transfer;
use allotment_loom_tests::{shared_slot, slot_data, stopped, FakeSlab, SmallTree, LEFT, PARENT, RIGHT, ROOT};
use loom::sync::Arc;
use loom::thread;

const CLASS: Class = Class(3);

/// A slot with two cached objects, charged to and tagged with [`LEFT`].
fn slot_with_objects(tree: &SmallTree, slab: &FakeSlab) -> Slot {
    let mut data = slot_data();
    let magazines = &mut data.magazines[usize::from(CLASS.0)];
    for place in 0..2 {
        let object = slab.object(CLASS, place);
        // SAFETY: a slot of a slab of the class.
        unsafe { set(CLASS, object, LEFT) };
        assert!(magazines.push(object));
    }
    try_charge(tree, LEFT, 2 * CLASS.charge(), Rule::Max).unwrap();
    shared_slot(data)
}

/// Drains `tenant` from the slot, which the caller holds.
fn drain(tree: &SmallTree, data: &mut SlotData, tenant: Tag) {
    drain_stock(tree, &mut data.stock, tenant);
    // SAFETY: cached objects of the class; the slot is held.
    unsafe { disown(tree, CLASS, data.magazines[usize::from(CLASS.0)].objects(), tenant) };
}

#[test]
fn a_transfer_and_a_drain_keep_every_account_exact() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        let slab = Arc::new(FakeSlab::new(CLASS));
        let slot = Arc::new(slot_with_objects(&tree, &slab));
        let (other_tree, other_slot) = (tree.clone(), slot.clone());
        let drainer = thread::spawn(move || {
            stopped(
                &other_slot,
                2,
                || {},
                |data| {
                    drain(&other_tree, data, LEFT);
                    // Nothing of LEFT is left in this slot, whoever was first.
                    assert_eq!(other_tree.usage(LEFT), 0, "a drained tenant still has slack");
                },
            );
        });
        let mut live = 0;
        if let Some(mut held) = slot.try_enter_shared(1) {
            let data = held.data();
            let object = data.magazines[usize::from(CLASS.0)].pop().unwrap();
            // SAFETY: taken out of this slot's magazine just now.
            unsafe { transfer(&*tree, &mut data.stock, CLASS, object, RIGHT, Rule::Max) }.unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { get(CLASS, object) }, RIGHT);
            live = CLASS.charge();
            assert!(tree.usage(RIGHT) >= live, "usage below the live truth");
        }
        drainer.join().unwrap();
        let cached = stopped(
            &slot,
            1,
            || {},
            |data| {
                drain(&tree, data, PARENT);
                for tenant in [RIGHT, LEFT, ROOT] {
                    drain_stock(&*tree, &mut data.stock, tenant);
                }
                data.magazines[usize::from(CLASS.0)].objects().len()
            },
        );
        assert_eq!((tree.usage(LEFT), tree.usage(RIGHT), tree.usage(PARENT)), (0, live, live));
        assert_eq!(tree.usage(ROOT), live + cached * CLASS.charge());
        assert!(tree.is_valid());
    });
}
