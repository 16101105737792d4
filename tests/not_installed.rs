//! A program that does not install the allocator: tenants work, and everything they report is zero but for external
//! charges and for what is allocated on `Allotment` by name.

#![allow(missing_docs)]

use std::alloc::{GlobalAlloc, Layout};
use std::future::Future;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use allotment::{Allotment, InTenant, Tenant};

/// Held by tests that use the heap or count what is on it.
static HEAP: Mutex<()> = Mutex::new(());

/// Some allocations of every kind, alive together.
fn work() -> (Vec<String>, Vec<u8>, Box<[u64]>) {
    ((0..2000).map(|n| n.to_string()).collect(), vec![7; 3 << 20], vec![1; 500].into_boxed_slice())
}

fn assert_idle(tenant: &Tenant) {
    assert_eq!((tenant.usage(), tenant.settle(), tenant.peak()), (0, 0, 0));
    assert_eq!(tenant.size_classes(), []);
    assert_eq!(tenant.events(), allotment::Events::default());
    let stats = tenant.stats();
    assert_eq!((stats.current, stats.peak, stats.external, stats.stopped), (0, 0, 0, false));
}

#[test]
fn it_says_so() {
    assert!(!Allotment::is_installed());
}

#[test]
fn nothing_on_the_heap_has_an_owner() {
    let tenant = Tenant::new("owner").unwrap();
    let (strings, bytes, _) = tenant.in_scope(work);
    assert_eq!(Tenant::owner_of(&strings[..]), None);
    assert_eq!(Tenant::owner_of(&*strings[0]), None);
    assert_eq!(Tenant::owner_of(&bytes[..]), None);
    assert!(!tenant.adopt(&bytes[..]));
    assert_idle(&tenant);
}

#[test]
fn tenants_work_and_report_zero() {
    let _heap = HEAP.lock().unwrap();
    let parent = Tenant::new("parent").unwrap();
    let child = Tenant::builder("child").parent(&parent).build().unwrap();
    assert_eq!((child.name(), child.parent(), parent.children()), ("child", Some(parent.clone()), vec![child.clone()]));
    assert!(allotment::tenants().contains(&child));
    assert_eq!(Tenant::current(), Tenant::root());
    let alive = child.in_scope(|| {
        assert_eq!(Tenant::current(), child);
        parent.in_scope(|| assert_eq!(Tenant::current(), parent));
        assert_eq!(Tenant::current(), child);
        let thread = allotment::thread::spawn(|| (Tenant::current(), work()));
        (thread.join().unwrap(), work())
    });
    assert_eq!(alive.0 .0, child);
    assert_eq!(Tenant::current(), Tenant::root());
    assert_idle(&child);
    assert_idle(&parent);
    assert_eq!(parent.stats().children, 1);
    let verified = allotment::verify().unwrap();
    assert_eq!((verified.objects, verified.bytes, verified.cached_objects, verified.stock_bytes), (0, 0, 0, 0));
    drop(alive); // with a handle of the child
    drop(child);
    assert_eq!((parent.children(), parent.stats().children), (vec![], 0));
    allotment::verify().unwrap();
}

#[test]
fn limits_are_never_hit() {
    let parent = Tenant::builder("full parent").max(1).build().unwrap();
    let tenant = Tenant::builder("full").parent(&parent).max(0).high(0).overdraft(0).build().unwrap();
    let done = tenant.try_in_scope(|| {
        let alive = work();
        allotment::checkpoint().unwrap();
        allotment::checkpoint_or_unwind();
        let mut more: Vec<u8> = Vec::new();
        allotment::fallible(|| more.try_reserve_exact(1 << 20)).unwrap();
        (alive.0.len(), more.capacity())
    });
    assert_eq!(done.unwrap(), (2000, 1 << 20));
    assert_idle(&tenant);
    assert_idle(&parent);
}

#[test]
fn external_charges_are_exact() {
    let parent = Tenant::builder("charged parent").max(1000).build().unwrap();
    let tenant = Tenant::builder("charged").parent(&parent).max(800).build().unwrap();
    let first = tenant.try_charge(500).unwrap();
    assert_eq!((first.bytes(), first.tenant()), (500, &tenant));
    assert_eq!((tenant.settle(), parent.settle()), (500, 500));

    let over = tenant.try_charge(301).unwrap_err();
    assert_eq!((&*over.tenant, &*over.asked, over.usage, over.limit), ("charged", "charged", 500, Some(800)));
    assert_eq!((tenant.usage(), parent.usage(), tenant.peak()), (500, 500, 500));
    let second = tenant.try_charge(300).unwrap();
    assert_eq!((tenant.usage(), parent.usage()), (800, 800));

    tenant.set_max(None);
    let over = tenant.try_charge(201).unwrap_err();
    assert_eq!((&*over.tenant, &*over.asked, over.usage, over.limit), ("charged parent", "charged", 800, Some(1000)));
    assert_eq!(over.children, [("charged".to_owned(), 800)]);
    let third = tenant.try_charge(200).unwrap();
    let none = tenant.try_charge(0).unwrap();
    assert_eq!((tenant.usage(), parent.usage()), (1000, 1000));
    assert_eq!((tenant.stats().external, parent.stats().external), (1000, 0));
    allotment::verify().unwrap();

    // A refusal changes nothing but the count of refusals.
    assert_eq!((tenant.events().local.refused, tenant.events().local.max), (1, 0));
    assert_eq!((parent.events().local.refused, parent.events().hierarchical.refused), (1, 2));
    assert!(!tenant.is_stopped() && !parent.is_stopped());
    drop((first, none));
    assert_eq!((tenant.usage(), parent.usage()), (500, 500));
    drop((second, third));
    assert_eq!((tenant.settle(), parent.settle(), tenant.peak(), parent.peak()), (0, 0, 1000, 1000));
}

#[test]
fn stop_and_resume() {
    let tenant = Tenant::builder("stopped").max(100).build().unwrap();
    let child = Tenant::builder("below").parent(&tenant).build().unwrap();
    tenant.stop();
    assert!(tenant.is_stopped() && child.is_stopped() && !Tenant::root().is_stopped());
    allotment::checkpoint().unwrap();
    let stopped = child.in_scope(allotment::checkpoint).unwrap_err();
    assert_eq!((&*stopped.tenant, &*stopped.asked, stopped.usage, stopped.limit), ("stopped", "below", 0, None));
    let unwound: Result<(), _> = child.try_in_scope(|| {
        let _alive = work();
        allotment::checkpoint_or_unwind();
        panic!("the tenant is stopped");
    });
    assert_eq!((unwound.unwrap_err().tenant, Tenant::current()), ("stopped".to_owned(), Tenant::root()));
    assert!(tenant.resume());
    assert!(!tenant.is_stopped() && !child.is_stopped());
    child.in_scope(allotment::checkpoint).unwrap();

    let charge = child.try_charge(100).unwrap();
    tenant.set_max(99);
    assert!(!tenant.is_stopped() && !tenant.resume());
    drop(charge);
    assert!(tenant.resume());
    assert_eq!(tenant.events().local.stopped, 1);
}

#[test]
fn futures_run_in_their_tenant() {
    let tenant = Tenant::new("future").unwrap();
    let context = &mut Context::from_waker(Waker::noop());
    let mut scoped = Box::pin(async { (Tenant::current(), work()) }.in_tenant(&tenant));
    let Poll::Ready((inside, alive)) = scoped.as_mut().poll(context) else { panic!("nothing to wait for") };
    assert_eq!((inside, Tenant::current()), (tenant.clone(), Tenant::root()));
    assert_idle(&tenant);
    drop(alive);

    let mut pending = Box::pin(std::future::pending::<()>().try_in_tenant(&tenant));
    assert!(pending.as_mut().poll(context).is_pending());
    tenant.stop();
    let Poll::Ready(Err(stopped)) = pending.as_mut().poll(context) else { panic!("the tenant is stopped") };
    assert_eq!((&*stopped.tenant, stopped.limit), ("future", None));
}

#[test]
fn objects_asked_for_by_name_are_accounted() {
    let _heap = HEAP.lock().unwrap();
    let tenant = Tenant::builder("by name").max(1 << 20).build().unwrap();
    let layout = Layout::from_size_align(1000, 8).unwrap();
    // SAFETY: the layout has a size.
    let object = tenant.in_scope(|| unsafe { Allotment.alloc(layout) });
    assert!(!object.is_null());
    // SAFETY: a live object of 1000 bytes; nobody else has it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(object, 1000) };
    bytes.fill(9);
    assert_eq!(Tenant::owner_of(bytes), Some(tenant.clone()));
    assert_eq!(tenant.settle(), 1024 + 2);
    let [class] = tenant.size_classes()[..] else { panic!("one class") };
    assert_eq!((class.size, class.objects, class.bytes), (1024, 1, 1026));
    let verified = allotment::verify().unwrap();
    assert_eq!((verified.objects, verified.bytes), (1, 1026));
    // SAFETY: allocated above with this layout, and no longer used.
    unsafe { Allotment.dealloc(object, layout) };
    assert_eq!(tenant.settle(), 0);
    allotment::purge();
    let verified = allotment::verify().unwrap();
    assert_eq!((verified.objects, verified.cached_objects, verified.slabs), (0, 0, 0));
}
