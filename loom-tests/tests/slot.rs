//! Entering a slot against a remote drain, and the gate against a stop: see `src/percpu/slot.rs`, `src/percpu/gate.rs`.
#![cfg(loom)]
#![allow(missing_docs)]

use std::ptr::NonNull;

use allotment::model::counter::{try_charge, Rule};
use allotment::model::drain::drain_stock;
use allotment::model::gate::Gate;
use allotment::model::slot::{Slot, SlotData};
use allotment::model::stock::{Entry, Stock};
use allotment::model::transfer::{credit, pay};
use allotment_loom_tests::{SmallTree, LEFT, PARENT};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::Arc;
use loom::thread;

/// A slot whose stock has room for the tenants of [`SmallTree`]. Its memory lives as long as the test process.
fn slot() -> Slot {
    let slot = Slot::new();
    let entries = Box::leak(Box::new([Entry::default(); 4]));
    // SAFETY: the entries live for ever and are this stock's alone.
    let stock = unsafe { Stock::new(entries.as_mut_ptr(), entries.len()) };
    let data = NonNull::from(Box::leak(Box::new(SlotData::new(stock))));
    let held = slot.try_enter(1).unwrap();
    // SAFETY: the slot is held and has no content yet.
    unsafe { held.slot().provide(data) };
    drop(held);
    slot
}

#[test]
fn an_operation_and_a_drain_exclude_one_another_and_lose_nothing() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        let slot = Arc::new(slot());
        let (other_tree, other_slot) = (tree.clone(), slot.clone());
        let drainer = thread::spawn(move || {
            other_slot.wait(2).unwrap();
            // SAFETY: the slot is held since `wait`.
            let data = unsafe { other_slot.data() }.unwrap();
            drain_stock(&*other_tree, &mut data.stock, LEFT);
            other_slot.leave();
        });
        // Two objects of 10 bytes are allocated and one freed. A busy slot means going without.
        let mut live = 0;
        for _ in 0..2 {
            match slot.try_enter(1) {
                Some(mut held) => {
                    let data = held.data().unwrap();
                    pay(&*tree, &mut data.stock, LEFT, 10, Rule::Max).unwrap();
                }
                None => try_charge(&*tree, LEFT, 10, Rule::Max).unwrap(),
            }
            live += 10;
            assert!(tree.usage(LEFT) >= live, "usage below the live truth");
        }
        if let Some(mut held) = slot.try_enter(1) {
            credit(&*tree, &mut held.data().unwrap().stock, LEFT, 10);
            live -= 10;
        }
        drainer.join().unwrap();
        slot.wait(1).unwrap();
        // SAFETY: the slot is held since `wait`.
        let data = unsafe { slot.data() }.unwrap();
        assert_eq!(tree.usage(LEFT), live + data.stock.bytes(LEFT));
        drain_stock(&*tree, &mut data.stock, LEFT);
        slot.leave();
        assert_eq!((tree.usage(LEFT), tree.usage(PARENT)), (live, live));
        assert!(tree.is_valid());
    });
}

#[test]
fn a_closed_gate_has_nobody_inside() {
    loom::model(|| {
        let gate = Arc::new(Gate::new());
        let inside = Arc::new(AtomicUsize::new(0));
        let (other_gate, other_inside) = (gate.clone(), inside.clone());
        let operation = thread::spawn(move || {
            if other_gate.try_enter() {
                other_inside.store(1, Ordering::Relaxed);
                other_inside.store(0, Ordering::Relaxed);
                other_gate.leave();
            }
        });
        gate.close();
        assert_eq!(inside.load(Ordering::Relaxed), 0, "the world was stopped with an operation half done");
        gate.open();
        operation.join().unwrap();
        assert!(gate.try_enter());
    });
}
