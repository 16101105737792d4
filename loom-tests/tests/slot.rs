//! Entering a slot against a remote drain, and the gate against a stop: see `src/percpu/slot.rs`, `src/percpu/gate.rs`.
#![cfg(loom)]
#![allow(missing_docs)]

use allotment::model::counter::{try_charge, Rule};
use allotment::model::drain::drain_stock;
use allotment::model::gate::Gate;
use allotment::model::slot::{Slot, SlotData};
use allotment::model::transfer::{credit, pay};
use allotment_loom_tests::{shared_slot, slot_data, stopped, stopped_claimed, Cpu, SmallTree, LEFT, PARENT};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::Arc;
use loom::thread;

/// What is done on a slot's content.
type Operation<'a> = &'a mut dyn FnMut(&mut SlotData);
/// Does it alone, or not at all.
type Enter = fn(&Slot, Operation<'_>) -> bool;
/// Does it with the slot at a stop by the thread of that token.
type Stop = fn(&Slot, usize, Operation<'_>);

/// Objects of 10 bytes are allocated and one freed, while another thread drains. A busy slot means going without.
fn operations_against_a_drain(objects: usize, slot: Slot, enter: Enter, stop: Stop) {
    let tree = Arc::new(SmallTree::new());
    let slot = Arc::new(slot);
    let (other_tree, other_slot) = (tree.clone(), slot.clone());
    let drainer =
        thread::spawn(move || stop(&other_slot, 2, &mut |data| drain_stock(&*other_tree, &mut data.stock, LEFT)));
    let mut live = 0;
    for _ in 0..objects {
        if !enter(&slot, &mut |data| pay(&*tree, &mut data.stock, LEFT, 10, Rule::Max).unwrap()) {
            try_charge(&*tree, LEFT, 10, Rule::Max).unwrap();
        }
        live += 10;
        assert!(tree.usage(LEFT) >= live, "usage below the live truth");
    }
    if enter(&slot, &mut |data| credit(&*tree, &mut data.stock, LEFT, 10)) {
        live -= 10;
    }
    drainer.join().unwrap();
    stop(&slot, 1, &mut |data| {
        assert_eq!(tree.usage(LEFT), live + data.stock.bytes(LEFT));
        drain_stock(&*tree, &mut data.stock, LEFT);
    });
    assert_eq!((tree.usage(LEFT), tree.usage(PARENT)), (live, live));
    assert!(tree.is_valid());
}

#[test]
fn an_operation_and_a_drain_exclude_one_another_and_lose_nothing() {
    loom::model(|| {
        operations_against_a_drain(
            2,
            shared_slot(slot_data()),
            |slot, operation| slot.try_enter_shared(1).map(|mut held| operation(held.data())).is_some(),
            |slot, token, f| stopped(slot, token, || {}, f),
        );
    });
}

#[test]
fn an_owner_and_a_drain_exclude_one_another_and_lose_nothing() {
    loom::model(|| {
        let slot = shared_slot(slot_data());
        assert!(slot.try_claim(1));
        operations_against_a_drain(
            1,
            slot,
            |slot, operation| slot.try_enter_claimed().map(|mut held| operation(held.data())).is_some(),
            |slot, token, f| stopped_claimed(slot, token, f),
        );
    });
}

#[test]
fn a_claimed_slot_goes_from_owner_to_owner_with_its_content() {
    loom::model(|| {
        let tree = SmallTree::new();
        let slot = Arc::new(shared_slot(slot_data()));
        try_charge(&tree, LEFT, 20, Rule::Max).unwrap();
        let claim = |token| {
            let slot = slot.clone();
            move || {
                if slot.try_claim(token) {
                    slot.try_enter_claimed().unwrap().data().stock.put(LEFT, 10, || 100);
                    slot.disclaim();
                    return 10;
                }
                0
            }
        };
        let other = thread::spawn(claim(2));
        let put = claim(1)() + other.join().unwrap();
        assert!(put >= 10, "neither of two got a free slot");
        assert!(slot.try_claim(3));
        assert_eq!(slot.try_enter_claimed().unwrap().data().stock.bytes(LEFT), put);
    });
}

#[test]
fn sequences_and_a_stop_exclude_one_another() {
    loom::model(|| {
        let tree = SmallTree::new();
        let cpu = Arc::new(Cpu::new(3, slot_data()));
        try_charge(&tree, LEFT, 30, Rule::Max).unwrap();
        let other = cpu.clone();
        // Another thread on the same CPU: one step without entering, and one operation inside.
        let sequences = thread::spawn(move || {
            let mut put = 0;
            put += other.try_step(2, |data| data.stock.put(LEFT, 10, || 100)).map_or(0, |excess| 10 - excess);
            if other.try_enter(2) {
                assert!(other.try_step(2, |_| ()).is_none(), "a step on a slot that is entered");
                other.slot.entered_of_cpu().data().stock.put(LEFT, 10, || 100);
                put += 10;
            }
            put
        });
        let seen = stopped(&cpu.slot, 1, || cpu.fence(1), |data| data.stock.bytes(LEFT));
        let put = sequences.join().unwrap();
        assert!(seen <= put);
        assert_eq!(stopped(&cpu.slot, 1, || cpu.fence(1), |data| data.stock.bytes(LEFT)), put);
        assert!(cpu.try_step(1, |_| ()).is_some(), "the slot stays shut");
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
