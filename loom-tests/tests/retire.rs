//! Retirement against the last free against the reuse of the id: see `src/tenant/retire.rs`, `src/charge/counter.rs`,
//! `src/tenant/handles.rs`.
#![cfg(loom)]
#![allow(missing_docs)]

use allotment::model::counter::{try_charge, uncharge, Refused, Rule, Tree};
use allotment::model::handles::Handles;
use allotment_loom_tests::{SmallTree, LEFT, PARENT, RIGHT, ROOT};
use loom::sync::Arc;
use loom::thread;

/// What `tenant/retire.rs` does with the last handle of a tenant.
fn retire(tree: &SmallTree, id: allotment::model::tag::Tag) {
    if tree.counter(id).retire().is_free() {
        Tree::released(tree, id);
    }
}

#[test]
fn the_last_handle_and_the_last_free_release_the_id_exactly_once() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        try_charge(&*tree, LEFT, 5, Rule::Max).unwrap();
        let other = tree.clone();
        let freeing = thread::spawn(move || uncharge(&*other, LEFT, 5, None));
        retire(&tree, LEFT);
        freeing.join().unwrap();
        assert_eq!(tree.released(LEFT), 1, "an id was lost or given out twice");
        assert_eq!(tree.released(PARENT), 0);
        assert_eq!(tree.usage(ROOT), 0);
    });
}

#[test]
fn two_frees_and_a_retirement_release_once() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        try_charge(&*tree, LEFT, 5, Rule::Max).unwrap();
        let (one, two) = (tree.clone(), tree.clone());
        let one = thread::spawn(move || uncharge(&*one, LEFT, 2, None));
        let two = thread::spawn(move || uncharge(&*two, LEFT, 3, None));
        retire(&tree, LEFT);
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(tree.released(LEFT), 1);
    });
}

/// Once an id is released it may be given to a new tenant: nothing of the old one may touch it any more.
#[test]
fn a_released_id_is_free_to_be_used_again() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        try_charge(&*tree, LEFT, 5, Rule::Max).unwrap();
        let other = tree.clone();
        let freeing = thread::spawn(move || {
            uncharge(&*other, LEFT, 5, None);
            reuse(&other)
        });
        retire(&tree, LEFT);
        let here = reuse(&tree);
        let there = freeing.join().unwrap();
        assert!(here ^ there, "the id was given out twice, or nobody saw it released");
        assert_eq!(tree.usage(LEFT), 9, "the old tenant's operation hit the new one");
        assert!(!tree.counter(LEFT).word().is_retired());
        assert_eq!(tree.counter(LEFT).word().bytes(), 9);
    });
}

/// Creates a new tenant under the id if it is free, and charges it.
fn reuse(tree: &SmallTree) -> bool {
    if !tree.take_released(LEFT) {
        return false;
    }
    tree.counter(LEFT).reset();
    tree.counter(PARENT).add_child();
    try_charge(tree, LEFT, 9, Rule::Max).unwrap();
    true
}

#[test]
fn a_retired_parent_is_released_after_its_last_child() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        try_charge(&*tree, LEFT, 5, Rule::Max).unwrap();
        retire(&tree, RIGHT);
        retire(&tree, LEFT);
        let other = tree.clone();
        let freeing = thread::spawn(move || uncharge(&*other, LEFT, 5, None));
        retire(&tree, PARENT);
        freeing.join().unwrap();
        assert_eq!((tree.released(RIGHT), tree.released(LEFT), tree.released(PARENT)), (1, 1, 1));
        assert_eq!(tree.counter(ROOT).word().children(), 0);
    });
}

#[test]
fn a_charge_to_a_retiring_tenant_is_whole_or_nothing() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        let other = tree.clone();
        let charging = thread::spawn(move || {
            let charged = try_charge(&*other, LEFT, 5, Rule::Max);
            if charged.is_ok() {
                uncharge(&*other, LEFT, 5, None);
            } else {
                assert_eq!(charged, Err(Refused::Retired));
            }
        });
        retire(&tree, LEFT);
        charging.join().unwrap();
        assert_eq!(tree.released(LEFT), 1);
        assert_eq!((tree.usage(PARENT), tree.usage(ROOT)), (0, 0));
    });
}

#[test]
fn a_handle_is_acquired_from_a_living_tenant_or_not_at_all() {
    loom::model(|| {
        let handles = Arc::new(Handles::new(1));
        let other = handles.clone();
        let finder = thread::spawn(move || other.try_acquire() && other.release());
        let last_here = handles.release();
        let last_there = finder.join().unwrap();
        assert!(last_here ^ last_there, "retired twice or never");
        assert!(!handles.try_acquire(), "a retired tenant came back");
    });
}
