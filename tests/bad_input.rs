//! Bad input: each is a typed error or a documented outcome, and leaves nothing behind.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/limited.rs"]
mod limited;

use std::sync::Barrier;

use allotment::{Allotment, CreateError, Tenant};
use case::{charge, exact};
use limited::{forced, strict};

#[global_allocator]
static A: Allotment = Allotment::new();

#[test]
fn zero_and_absurd_limits() {
    let nothing = Tenant::builder("nothing").max(0).high(0).build().unwrap();
    assert_eq!((nothing.max(), nothing.high()), (Some(0), Some(0)));
    assert_eq!(nothing.in_scope(Vec::<u8>::new).capacity(), 0);
    assert_eq!(nothing.in_scope(|| Box::new(())), Box::new(()));
    assert_eq!(nothing.try_charge(0).unwrap().bytes(), 0);
    assert!(!nothing.is_stopped());
    assert_eq!(nothing.try_charge(1).unwrap_err().limit, Some(0));
    assert!(strict(&nothing, 1).is_none());
    let object = forced(&nothing, 1, 1);
    assert!(nothing.is_stopped());
    drop(object);
    exact(&nothing, 0);
    assert!(nothing.resume());

    let huge = [1 << 47, 1 << 62, isize::MAX as usize, usize::MAX - 1, usize::MAX];
    for max in huge {
        let tenant = Tenant::builder("absurd").max(max).high(max).overdraft(max).build().unwrap();
        let objects = (forced(&tenant, 100_000, 3), forced(&tenant, 10, 3), fill_some(&tenant));
        let charge = tenant.try_charge(1 << 40).unwrap();
        for bytes in huge {
            assert!(tenant.try_charge(bytes).is_err(), "{bytes} bytes");
            assert!(strict(&tenant, bytes.min(isize::MAX as usize - 8192)).is_none());
        }
        assert_eq!(tenant.stats().external, 1 << 40);
        let unlimited = max == usize::MAX;
        assert_eq!(tenant.max(), (!unlimited).then_some(max));
        assert!(!tenant.is_stopped());
        drop((objects, charge));
        exact(&tenant, 0);
    }
}

/// Objects of many sizes, none of which may be refused.
fn fill_some(tenant: &Tenant) -> Vec<case::Object> {
    (1..2000).step_by(37).map(|size| strict(tenant, size).expect("far from any limit")).collect()
}

#[test]
fn bad_input_is_a_typed_error_and_leaves_nothing() {
    let parent = Tenant::new("strict parent").unwrap();
    let build = |name: &str| Tenant::builder(name).parent(&parent).build();
    assert_eq!(build(""), Err(CreateError::EmptyName));
    assert_eq!(build(&"x".repeat(256)), Err(CreateError::NameTooLong { len: 256, max: 255 }));
    assert_eq!(build(&"ä".repeat(128)), Err(CreateError::NameTooLong { len: 256, max: 255 }));
    assert_eq!(build(&"x".repeat(20 << 20)), Err(CreateError::NameTooLong { len: 20 << 20, max: 255 }));
    assert_eq!(Tenant::new(""), Err(CreateError::EmptyName));
    let crossed = Tenant::builder("crossed").parent(&parent).high(101).max(100).build();
    assert_eq!(crossed, Err(CreateError::HighAboveMax { high: 101, max: 100 }));
    assert_eq!((parent.children(), parent.stats().children), (vec![], 0));
    for error in [build("").unwrap_err(), crossed.unwrap_err(), CreateError::OutOfIds, CreateError::OutOfMemory] {
        assert!(error.to_string().len() > 10 && std::error::Error::source(&error).is_none());
    }

    for name in ["x".repeat(255), "ä".repeat(127), " \n\0 ".to_owned(), "root".to_owned()] {
        let tenant = build(&name).unwrap();
        assert_eq!(tenant.name(), name);
        assert_ne!(tenant, Tenant::root());
    }
    let equal = Tenant::builder("equal").parent(&parent).high(100).max(100).build().unwrap();
    // At run time `high` may pass `max`: only the builder knows what is meant.
    equal.set_high(200);
    assert_eq!((equal.high(), equal.max()), (Some(200), Some(100)));

    let mut chain = vec![parent.clone()];
    while chain.len() < 32 {
        let below = chain[chain.len() - 1].clone();
        chain.push(Tenant::builder("nested").parent(&below).build().unwrap());
    }
    let too_deep = Tenant::builder("too deep").parent(&chain[31]).build();
    assert_eq!(too_deep, Err(CreateError::TooDeep { max: 32 }));
    let objects = forced(&chain[31], 100, 10);
    assert!(chain.iter().all(|tenant| tenant.settle() == 10 * charge(100)));
    drop(objects);
    chain.truncate(1);
    drop(equal);
    exact(&parent, 0);
    assert_eq!((parent.children(), parent.stats().children), (vec![], 0));
}

/// The builder's handle and the last one are dropped at the same time.
#[test]
fn a_parent_retires_while_a_child_is_created() {
    let above = Tenant::new("above").unwrap();
    for round in 0..2000 {
        let parent = Tenant::builder("parent").parent(&above).build().unwrap();
        let object = parent.in_scope(|| Box::new(round));
        let builder = Tenant::builder("child").parent(&parent);
        let start = Barrier::new(2);
        let child = std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                drop(parent);
            });
            start.wait();
            let child = builder.build().unwrap();
            drop(builder);
            child
        });
        let parent = child.parent().expect("a child keeps its parent");
        assert_eq!((parent.name(), parent.parent()), ("parent", Some(above.clone())));
        assert_eq!(Tenant::owner_of(&*object), Some(parent.clone()));
        drop(parent);
        drop(child);
        assert_eq!(Tenant::owner_of(&*object), Some(above.clone()));
    }
    exact(&above, 0);
    assert_eq!((above.children(), above.stats().children), (vec![], 0));
}
