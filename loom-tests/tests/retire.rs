//! Retirement against the last free against the reuse of the id: see `src/tenant/retire.rs`, `src/charge/counter.rs`,
//! `src/tenant/handles.rs`.
#![cfg(loom)]
#![allow(missing_docs)]

use allotment::model::counter::{try_charge, uncharge, Counter, Refused, Rule, Tree};
use allotment::model::handles::Handles;
use allotment::model::tag::Tag;
use allotment_loom_tests::{SmallTree, LEFT, PARENT, RIGHT, ROOT};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::Arc;
use loom::thread;

/// What `tenant/retire.rs` does with the last handle of a tenant.
fn retire(tree: &SmallTree, id: Tag) {
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

/// A free id, last of a tenant below [`LEFT`], whose next tenant is below [`RIGHT`].
struct MovedTree {
    small: SmallTree,
    moved: Counter,
    parent: AtomicUsize,
}

const MOVED: Tag = Tag(4);

impl Tree for MovedTree {
    fn counter(&self, id: Tag) -> &Counter {
        if id == MOVED {
            &self.moved
        } else {
            self.small.counter(id)
        }
    }
    fn parent(&self, id: Tag) -> Option<Tag> {
        if id == MOVED {
            // As in the real record: only the word orders it.
            Some(Tag(self.parent.load(Ordering::Relaxed) as u16))
        } else {
            self.small.parent(id)
        }
    }
    fn charged(&self, _id: Tag, _before: usize, _after: usize) {}
    fn uncharged(&self, _id: Tag, _after: usize) {}
    fn is_pressured(&self, _id: Tag) -> bool {
        false
    }
    fn released(&self, _id: Tag) {
        unreachable!("the new tenant lives");
    }
}

/// A thread whose forgotten scope still names a free id charges it while it is given to a tenant elsewhere in the tree.
#[test]
fn a_charge_to_a_reused_id_is_one_tenants_or_nobodys() {
    loom::model(|| {
        let tree = MovedTree { small: SmallTree::new(), moved: Counter::new(), parent: AtomicUsize::new(2) };
        assert!(tree.moved.retire().is_free());
        let tree = Arc::new(tree);
        let other = tree.clone();
        let stale = thread::spawn(move || {
            let charged = try_charge(&*other, MOVED, 5, Rule::Max).is_ok();
            if charged {
                assert_eq!((other.small.usage(LEFT), other.small.usage(RIGHT)), (0, 5), "charged to the wrong parent");
                uncharge(&*other, MOVED, 5, None);
            }
            charged
        });
        // What `tenant/registry.rs` does with the id: the record first, the word last.
        tree.parent.store(3, Ordering::Relaxed);
        tree.small.counter(RIGHT).add_child();
        tree.counter(MOVED).reset();
        let _ = stale.join().unwrap();
        assert_eq!((tree.small.usage(LEFT), tree.small.usage(RIGHT), tree.small.usage(ROOT)), (0, 0, 0));
        assert!(tree.small.is_valid() && tree.moved.is_valid());
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
