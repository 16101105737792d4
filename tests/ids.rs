//! Ids of tenants run out, come back, and stay few. Each case has a process of its own: it wants all the ids there are.

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

use allotment::{Allotment, CreateError, Tenant};
use case::{charge, exact, in_child, layout, visit_every_cpu, Object};

#[global_allocator]
static A: Allotment = Allotment::new();

/// Root has one of the 65,535.
const OTHERS: usize = 65_534;

fn create_all(name: &str, parent: &Tenant) -> Vec<Tenant> {
    let mut tenants = Vec::with_capacity(OTHERS);
    loop {
        match Tenant::builder(name).parent(parent).build() {
            Ok(tenant) => tenants.push(tenant),
            Err(error) => {
                assert_eq!(error, CreateError::OutOfIds);
                return tenants;
            }
        }
    }
}

fn object(tenant: &Tenant) -> Object {
    tenant.in_scope(|| Object::new(layout(40, 1), tenant.id() as u8)).unwrap()
}

fn ids(tenants: &[Tenant]) -> HashSet<u16> {
    tenants.iter().map(Tenant::id).collect()
}

#[test]
fn b14_ids_run_out_with_an_error_and_come_back() {
    in_child("b14_ids_run_out_with_an_error_and_come_back", 60, || {
        let root = Tenant::root();
        let mut tenants = create_all("one of many", &root);
        assert_eq!((tenants.len(), ids(&tenants).len()), (OTHERS, OTHERS));
        assert_eq!((allotment::tenants().len(), root.children().len()), (OTHERS + 1, OTHERS));
        assert!(tenants.iter().all(|tenant| (1..=OTHERS as u16).contains(&tenant.id())));
        exact(&tenants[OTHERS - 1], 0);

        // A failure costs nothing, and all tenants work.
        let before = root.settle();
        for _ in 0..100 {
            assert_eq!(Tenant::new("one too many"), Err(CreateError::OutOfIds));
        }
        assert_eq!(root.settle(), before);
        let held: Vec<Object> = tenants.iter().step_by(1000).map(object).collect();
        assert!(tenants.iter().step_by(1000).all(|tenant| tenant.settle() == charge(40)));
        drop(held);

        // Drop one, create one: also when its last bytes lie in a cache, and when it is not the last one created.
        for place in [OTHERS - 1, 0, 777, 30_000] {
            drop(object(&tenants[place]));
            let id = tenants.swap_remove(place).id();
            tenants.push(Tenant::new("instead").unwrap());
            assert_eq!((tenants[OTHERS - 1].id(), tenants[OTHERS - 1].usage()), (id, 0));
            assert_eq!(Tenant::new("one too many"), Err(CreateError::OutOfIds));
        }
        let child = Tenant::builder("child").parent(&tenants[5]).build();
        assert_eq!(child, Err(CreateError::OutOfIds));
        let events = tenants[OTHERS - 1].events();
        assert_eq!(events, Default::default(), "an id given again has no past");
        drop(tenants);
        assert_eq!((allotment::tenants(), root.stats().children), (vec![root.clone()], 0));
        allotment::verify().unwrap();
    });
}

#[test]
fn b14_ids_of_live_objects_are_not_given_again() {
    const KEPT: usize = 1000;
    in_child("b14_ids_of_live_objects_are_not_given_again", 60, || {
        let top = Tenant::new("top").unwrap();
        let tenants = create_all("first", &top);
        assert_eq!(tenants.len(), OTHERS - 1);
        let keepers: Vec<&Tenant> = tenants.iter().step_by(65).take(KEPT).collect();
        let kept: Vec<Object> = keepers.iter().map(|tenant| object(tenant)).collect();
        let kept_ids: HashSet<u16> = keepers.iter().map(|tenant| tenant.id()).collect();
        assert_eq!(kept_ids.len(), KEPT);
        drop(tenants);
        assert_eq!((top.children(), top.stats().children), (vec![], KEPT));
        exact(&top, KEPT * charge(40));

        let tenants = create_all("second", &top);
        assert_eq!(tenants.len(), OTHERS - 1 - KEPT);
        assert!(ids(&tenants).is_disjoint(&kept_ids));
        assert!(tenants.iter().step_by(5000).all(|tenant| tenant.settle() == 0));
        for object in &kept {
            // SAFETY: the object is live and its bytes are written.
            assert_eq!(Tenant::owner_of(unsafe { &*object.start }), Some(top.clone()));
        }
        assert_eq!(top.stats().children, OTHERS - 1);

        drop(kept);
        let rest = create_all("third", &top);
        assert_eq!(ids(&rest), kept_ids, "the drain before a failure found them in the caches");
        exact(&top, 0);
        drop((tenants, rest));
        assert_eq!(top.stats().children, 0);
        allotment::verify().unwrap();
    });
}

/// 200,000 tenants one after another, each of which leaves an object for a thousand others' time.
#[test]
fn b14_the_registry_stays_flat() {
    const RING: usize = 1000;
    const CYCLES: usize = 200_000;
    in_child("b14_the_registry_stays_flat", 120, || {
        visit_every_cpu();
        let top = Tenant::new("top").unwrap();
        let mut ring: VecDeque<Object> = VecDeque::with_capacity(RING + 1);
        let mut flat = None;
        for cycle in 0..CYCLES {
            let tenant = Tenant::builder("passing").parent(&top).build().unwrap();
            ring.push_back(object(&tenant));
            drop(tenant);
            if ring.len() > RING {
                ring.pop_front();
            }
            if cycle % 20_000 == 19_999 {
                let stats = allotment::stats();
                let now = (stats.ids, stats.metadata, stats.metadata_used, stats.stock_mapped);
                assert_eq!(*flat.get_or_insert(now), now, "after {cycle} cycles");
                // Nor do the retired leave anything charged that is neither alive nor within the bound.
                let slack = top.usage() - RING * charge(40);
                assert!(slack <= stats.slack_bound, "{slack} bytes after {cycle} cycles");
                assert!(stats.ids <= 2 * RING, "{} ids after {cycle} cycles", stats.ids);
                assert_eq!(top.settle(), RING * charge(40));
                assert_eq!(top.stats().children, RING);
            }
        }
        drop(ring);
        exact(&top, 0);
        assert_eq!((top.stats().children, top.children()), (0, vec![]));
    });
}

/// The same with each tenant served by two of four threads, one after the other.
#[test]
fn b14_the_registry_stays_flat_under_threads() {
    const RING: usize = 1000;
    const THREADS: usize = 4;
    const CYCLES: usize = 25_000;
    in_child("b14_the_registry_stays_flat_under_threads", 120, || {
        let top = Tenant::new("top").unwrap();
        let ring: Mutex<VecDeque<Object>> = Mutex::new(VecDeque::with_capacity(2 * RING));
        let handed: Mutex<Vec<Tenant>> = Mutex::new(Vec::with_capacity(THREADS));
        let cycle = || {
            let tenant = Tenant::builder("passing").parent(&top).build().unwrap();
            let first = object(&tenant);
            let other = {
                let mut handed = handed.lock().unwrap();
                handed.push(tenant);
                handed.swap_remove(0)
            };
            let second = object(&other);
            drop(other);
            let (first, second) = {
                let mut ring = ring.lock().unwrap();
                ring.extend([first, second]);
                if ring.len() > RING {
                    (ring.pop_front(), ring.pop_front())
                } else {
                    (None, None)
                }
            };
            drop((first, second));
        };
        for round in 0..4 {
            std::thread::scope(|threads| {
                (0..THREADS).for_each(|_| _ = threads.spawn(|| (0..CYCLES / 4).for_each(|_| cycle())));
            });
            let stats = allotment::stats();
            let slack = top.usage() - RING * charge(40);
            assert!(slack <= stats.slack_bound, "{slack} bytes after round {round}");
            assert!(stats.ids <= 2 * RING, "{} ids after round {round}", stats.ids);
            assert_eq!(top.settle(), RING * charge(40));
        }
        drop((ring, handed));
        exact(&top, 0);
        assert_eq!((top.stats().children, top.children()), (0, vec![]));
    });
}

/// The same nested: a retired chain is given back from its end.
#[test]
fn b14_ids_of_retired_chains_come_back() {
    in_child("b14_ids_of_retired_chains_come_back", 60, || {
        let top = Tenant::new("top").unwrap();
        let mut most = 0;
        for round in 0..2000 {
            let mut chain = vec![top.clone()];
            while chain.len() < 32 {
                let parent = chain[chain.len() - 1].clone();
                chain.push(Tenant::builder("link").parent(&parent).build().unwrap());
            }
            let last = object(&chain[31]);
            drop(chain);
            assert_eq!(top.stats().children, 1, "the end of the chain holds all of it");
            drop(last);
            assert_eq!((top.settle(), top.stats().children), (0, 0));
            if round == 0 {
                most = allotment::stats().ids;
            }
        }
        assert_eq!(most, 33);
        assert_eq!(allotment::stats().ids, most);
    });
}
