//! Hierarchical charge: see `src/charge/counter.rs`.
#![cfg(loom)]
#![allow(missing_docs)]

use allotment::model::counter::{contended, try_charge, uncharge, Refused, Rule, Tree};
use allotment_loom_tests::{SmallTree, LEFT, PARENT, RIGHT, ROOT};
use loom::sync::Arc;
use loom::thread;

/// A charge as `charge/limit.rs` makes it: a refusal counts only when no charge under way was the cause.
fn charge_to_verdict(tree: &SmallTree, id: allotment::model::tag::Tag, bytes: usize) -> bool {
    loop {
        match try_charge(tree, id, bytes, Rule::Max) {
            Ok(()) => return true,
            Err(Refused::Over(level)) if contended(tree, level, bytes, Rule::Max) => thread::yield_now(),
            Err(_) => return false,
        }
    }
}

#[test]
fn two_children_race_to_their_parents_limit() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        tree.counter(PARENT).set_max(10);
        let other = tree.clone();
        let right = thread::spawn(move || try_charge(&*other, RIGHT, 7, Rule::Max).is_ok());
        let left = try_charge(&*tree, LEFT, 7, Rule::Max).is_ok();
        let right = right.join().unwrap();
        // With plain attempts both may be refused by each other's reservation, never may both pass.
        assert!(!(left && right), "the limit was passed");
        assert_eq!(tree.usage(LEFT), if left { 7 } else { 0 });
        assert_eq!(tree.usage(RIGHT), if right { 7 } else { 0 });
        assert_eq!(tree.usage(PARENT), tree.usage(LEFT) + tree.usage(RIGHT));
        assert_eq!(tree.usage(ROOT), tree.usage(PARENT));
        assert!(tree.counter(PARENT).peak() <= 10);
        assert!(tree.is_valid(), "a refused charge left something behind");
    });
}

#[test]
fn with_verdicts_exactly_one_of_two_that_cannot_both_fit_passes() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        tree.counter(PARENT).set_max(10);
        let other = tree.clone();
        let right = thread::spawn(move || charge_to_verdict(&other, RIGHT, 7));
        let left = charge_to_verdict(&tree, LEFT, 7);
        assert!(left ^ right.join().unwrap());
        assert!(tree.is_valid());
    });
}

/// A large charge that root refuses must not make a small one at the same tenant fail, nor be seen by a reader.
#[test]
fn a_refused_charge_is_never_visible_and_never_refuses_another() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        tree.counter(LEFT).set_max(10);
        tree.counter(PARENT).set_max(5);
        let other = tree.clone();
        let large = thread::spawn(move || try_charge(&*other, LEFT, 8, Rule::Max));
        let small = charge_to_verdict(&tree, LEFT, 3);
        assert!(tree.usage(LEFT) <= 3, "bytes that nobody got were visible");
        assert!(small, "refused because of a charge that was itself refused");
        assert!(large.join().unwrap().is_err());
        assert_eq!(tree.usage(LEFT), 3);
        assert_eq!(tree.counter(LEFT).peak(), 3);
        assert!(tree.is_valid());
    });
}

#[test]
fn b27_two_attempts_over_the_limit_are_both_refused() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        tree.counter(PARENT).set_max(10);
        try_charge(&*tree, LEFT, 9, Rule::Max).unwrap();
        let other = tree.clone();
        let right = thread::spawn(move || charge_to_verdict(&other, RIGHT, 2));
        assert!(!charge_to_verdict(&tree, LEFT, 2));
        assert!(!right.join().unwrap());
        assert_eq!((tree.usage(LEFT), tree.usage(RIGHT), tree.usage(PARENT)), (9, 0, 9));
        assert!(tree.is_valid());
    });
}

#[test]
fn usage_covers_the_live_truth_while_charges_come_and_go() {
    loom::model(|| {
        let tree = Arc::new(SmallTree::new());
        try_charge(&*tree, LEFT, 4, Rule::Max).unwrap();
        let other = tree.clone();
        let freeing = thread::spawn(move || uncharge(&*other, LEFT, 4, None));
        try_charge(&*tree, LEFT, 2, Rule::Max).unwrap();
        assert!(tree.usage(LEFT) >= 2 && tree.usage(PARENT) >= 2);
        freeing.join().unwrap();
        assert_eq!((tree.usage(LEFT), tree.usage(ROOT)), (2, 2));
        assert!(tree.is_valid());
    });
}
