//! Futures as tenants: in scope in every poll and in the drop, on whatever thread, and nowhere else (hazard B40).

#![allow(missing_docs)]

#[path = "common/case.rs"]
mod case;
mod common;
#[path = "common/limited.rs"]
mod limited;

use std::future::{pending, Future};
use std::hint::black_box;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use allotment::{checkpoint, checkpoint_or_unwind, Allotment, InTenant, Tenant};
use case::{charge, exact};
use limited::forced;

#[global_allocator]
static A: Allotment = Allotment::new();

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Pending once.
async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Tells by its drop in which scope that was.
struct Leaver<'a>(&'a Tenant, &'a AtomicUsize);

impl Drop for Leaver<'_> {
    fn drop(&mut self) {
        assert_eq!(Tenant::current(), *self.0);
        let text = format!("allocated while dropped: {:?}", self.0);
        // While the thread unwinds root may be billed.
        assert!(Tenant::owner_of(&*text).as_ref() == Some(self.0) || std::thread::panicking());
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn b40_interleaved_futures_pay_for_themselves() {
    let tenants: Vec<Tenant> = (0..3).map(|n| Tenant::new(&format!("future {n}")).unwrap()).collect();
    let step = |tenant: Tenant, size: usize| async move {
        let mut made = Vec::new();
        for _ in 0..10 {
            assert_eq!(Tenant::current(), tenant);
            made.push(vec![1_u8; size].into_boxed_slice());
            pause().await;
        }
        assert_eq!(made.capacity(), 16);
        made
    };
    let mut futures: Vec<_> = tenants
        .iter()
        .enumerate()
        .map(|(n, tenant)| Box::pin(step(tenant.clone(), 100 * (n + 1)).in_tenant(tenant)))
        .collect();
    for round in 1..=10 {
        for future in &mut futures {
            assert!(poll(future.as_mut()).is_pending());
            assert_eq!(Tenant::current(), Tenant::root());
        }
        for (n, tenant) in tenants.iter().enumerate() {
            let list = charge(16 * if round <= 4 { 4 } else { 8 << usize::from(round > 8) });
            assert_eq!(tenant.settle(), round * charge(100 * (n + 1)) + list, "round {round}");
        }
    }
    let done: Vec<Poll<_>> = futures.iter_mut().map(|future| poll(future.as_mut())).collect();
    drop(futures);
    for (n, (tenant, done)) in tenants.iter().zip(done).enumerate() {
        let Poll::Ready(made) = done else { panic!("ten pauses") };
        exact(tenant, 10 * charge(100 * (n + 1)) + charge(16 * 16));
        drop(made);
        exact(tenant, 0);
    }
}

#[test]
fn an_inner_tenant_pays_and_the_outer_scope_comes_back() {
    let (outer, inner) = (Tenant::new("outer").unwrap(), Tenant::new("inner").unwrap());
    let future = async {
        let first = Box::new(1_u64);
        let second = async {
            pause().await;
            (Tenant::current(), Box::new(2_u64))
        };
        let (scope, second) = second.in_tenant(&inner).await;
        assert_eq!((scope, Tenant::current()), (inner.clone(), outer.clone()));
        let entered = inner.in_scope(|| Box::new(3_u64));
        pause().await;
        assert_eq!(Tenant::current(), outer);
        (first, second, entered)
    };
    let mut future = pin!(future.in_tenant(&outer));
    assert!(poll(future.as_mut()).is_pending());
    // Polled inside a third tenant: that is not who pays.
    let third = Tenant::new("third").unwrap();
    third.in_scope(|| assert!(poll(future.as_mut()).is_pending()));
    let Poll::Ready(made) = third.in_scope(|| poll(future.as_mut())) else { panic!("two pauses") };
    assert_eq!((outer.settle(), inner.settle(), third.settle()), (charge(8), 2 * charge(8), 0));
    drop(made);
    exact(&outer, 0);
    exact(&inner, 0);
}

#[test]
fn dropped_unfinished_inside_its_tenant() {
    let (tenant, left) = (Tenant::new("left").unwrap(), AtomicUsize::new(0));
    let unfinished = || async {
        let _leaver = (Leaver(&tenant, &left), vec![0_u8; 5000]);
        pending::<()>().await;
    };
    for drops in 0..2 {
        let mut plain = Box::pin(unfinished().in_tenant(&tenant));
        let mut stoppable = Box::pin(unfinished().try_in_tenant(&tenant));
        assert!(poll(plain.as_mut()).is_pending() && poll(stoppable.as_mut()).is_pending());
        assert_eq!(tenant.settle(), 2 * charge(5000));
        assert_eq!(left.load(Ordering::SeqCst), 2 * drops);
        std::thread::scope(|scope| {
            scope.spawn(|| drop((plain, stoppable)));
        });
        exact(&tenant, 0);
    }
    assert_eq!(left.into_inner(), 4);
}

#[test]
fn a_future_holds_its_tenant() {
    let parent = Tenant::new("holding").unwrap();
    let tenant = Tenant::builder("held").parent(&parent).build().unwrap();
    let id = tenant.id();
    let mut future = Box::pin(async { vec![Tenant::current().id()] }.in_tenant(&tenant));
    drop(tenant);
    assert_eq!(parent.children().iter().map(Tenant::id).collect::<Vec<_>>(), [id]);
    let Poll::Ready(ids) = poll(future.as_mut()) else { panic!("nothing to wait for") };
    assert_eq!(ids, [id]);
    drop(future);
    assert_eq!(parent.children(), []);
    assert_eq!(Tenant::owner_of(&ids[..]), Some(parent.clone()));
    drop(ids);
    exact(&parent, 0);
}

#[test]
fn a_plain_future_of_a_stopped_tenant_runs_on() {
    let tenant = Tenant::new("attributed").unwrap();
    tenant.stop();
    let mut future = pin!(async { (checkpoint().is_err(), vec![1_u8; 9]) }.in_tenant(&tenant));
    let Poll::Ready((stopped, bytes)) = poll(future.as_mut()) else { panic!("nothing to wait for") };
    assert!(stopped && Tenant::owner_of(&bytes[..]) == Some(tenant));
}

#[test]
fn a_stop_ends_a_future_before_after_and_within_a_poll() {
    let (tenant, left) = (Tenant::builder("ended").max(100_000).build().unwrap(), AtomicUsize::new(0));
    let polls = AtomicUsize::new(0);
    let work = |wild: bool, unwinds: bool| {
        let (leaver, polls) = (Leaver(&tenant, &left), &polls);
        async move {
            let _leaver = leaver;
            let mut held = Vec::new();
            loop {
                polls.fetch_add(1, Ordering::SeqCst);
                held.push(vec![0_u8; if wild { 300_000 } else { 1000 }]);
                if unwinds {
                    checkpoint_or_unwind();
                }
                pause().await;
            }
        }
    };
    let ended = |polled: Poll<Result<(), _>>, polls_expected, left_expected| {
        let Poll::Ready(Err(error)) = polled else { panic!("the tenant is stopped") };
        assert_eq!(polls.load(Ordering::SeqCst), polls_expected);
        assert_eq!(left.load(Ordering::SeqCst), left_expected, "dropped before the output is seen");
        assert_eq!(Tenant::current(), Tenant::root());
        exact(&tenant, 0);
        assert!(tenant.resume());
        error
    };

    // Before the first poll, and before a later one.
    let mut future = Box::pin(work(false, false).try_in_tenant(&tenant));
    tenant.stop();
    assert_eq!(ended(poll(future.as_mut()), 0, 1).limit, None);
    let mut future = Box::pin(work(false, false).try_in_tenant(&tenant));
    assert!(poll(future.as_mut()).is_pending() && poll(future.as_mut()).is_pending());
    tenant.stop();
    assert_eq!(ended(poll(future.as_mut()), 2, 2).limit, None);
    // In the poll that passes the limit.
    let mut future = Box::pin(work(true, false).try_in_tenant(&tenant));
    let error = ended(poll(future.as_mut()), 3, 3);
    assert_eq!((error.limit, error.usage > 300_000, &*error.tenant), (Some(100_000), true, "ended"));
    // In its midst.
    let mut future = Box::pin(work(true, true).try_in_tenant(&tenant));
    let error = ended(poll(future.as_mut()), 4, 4);
    assert_eq!((error.limit, error.usage > 300_000), (Some(100_000), true));
    // By an ancestor.
    let child = Tenant::builder("of the ended").parent(&tenant).build().unwrap();
    let mut future = Box::pin(async { pending::<()>().await }.try_in_tenant(&child));
    assert!(poll(future.as_mut()).is_pending());
    tenant.stop();
    let Poll::Ready(Err(error)) = poll(future.as_mut()) else { panic!("its parent is stopped") };
    assert_eq!((&*error.tenant, &*error.asked), ("ended", "of the ended"));
    assert!(tenant.resume());
}

#[test]
fn what_is_done_is_done_and_panics_pass_through() {
    let tenant = Tenant::builder("done").max(1000).build().unwrap();
    let mut future = pin!(async { black_box(vec![1_u8; 5000]).len() }.try_in_tenant(&tenant));
    assert_eq!(poll(future.as_mut()), Poll::Ready(Ok(5000)), "finished in the poll in which it was stopped");
    assert!(tenant.is_stopped() && tenant.resume());

    let mut future = Box::pin(async { std::panic::panic_any(41) }.try_in_tenant(&tenant));
    let panicked = catch_unwind(AssertUnwindSafe(|| poll::<dyn Future<Output = Result<(), _>>>(future.as_mut())));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&41));
    assert_eq!(Tenant::current(), Tenant::root());
    drop(future);
    exact(&tenant, 0);
}

/// Every poll on another thread than the one before, which polls another tenant's future before and after.
#[test]
fn b40_futures_wander_between_threads() {
    let tenants: Vec<Tenant> = (0..3).map(|n| Tenant::new(&format!("wanderer {n}")).unwrap()).collect();
    let work = |tenant: Tenant| async move {
        let mut made: Vec<(std::thread::ThreadId, Vec<u8>)> = Vec::with_capacity(60);
        for step in 0..60 {
            assert_eq!(Tenant::current(), tenant);
            made.push((std::thread::current().id(), vec![1; 10 + step]));
            pause().await;
        }
        made
    };
    let mut futures: Vec<_> =
        (0..12).map(|n| Box::pin(work(tenants[n % 3].clone()).in_tenant(&tenants[n % 3]))).collect();
    let start = std::sync::Barrier::new(3);
    for _ in 0..60 {
        futures.rotate_left(1);
        std::thread::scope(|scope| {
            for share in futures.chunks_mut(4) {
                scope.spawn(|| {
                    start.wait();
                    share.iter_mut().for_each(|future| assert!(poll(future.as_mut()).is_pending()));
                });
            }
        });
    }
    let each: usize = (0..60).map(|step| charge(10 + step)).sum::<usize>() + charge(60 * 32);
    for tenant in &tenants {
        exact(tenant, 4 * each);
    }
    for mut future in futures {
        let Poll::Ready(made) = poll(future.as_mut()) else { panic!("sixty pauses") };
        assert!(made.windows(2).all(|pair| pair[0].0 != pair[1].0), "threads of scopes are new each time");
    }
    for tenant in &tenants {
        exact(tenant, 0);
    }
}

/// The same by a runtime that steals tasks.
#[test]
fn b40_tasks_of_a_runtime_pay_for_themselves() {
    let tenants: Vec<Tenant> = (0..4).map(|n| Tenant::new(&format!("task {n}")).unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    let steps = 50;
    let made: Vec<Vec<Vec<u8>>> = runtime.block_on(async {
        let tasks: Vec<_> = (0..80)
            .map(|n| {
                let tenant = tenants[n % 4].clone();
                let work = async move {
                    let mut made = Vec::with_capacity(steps);
                    for step in 0..steps {
                        assert_eq!(Tenant::current(), tenant);
                        made.push(vec![n as u8; 10 + step]);
                        tokio::task::yield_now().await;
                    }
                    made
                };
                tokio::spawn(work.in_tenant(&tenants[n % 4]))
            })
            .collect();
        let mut made = Vec::new();
        for task in tasks {
            made.push(task.await.unwrap());
        }
        // A task spawned by a tenant's future starts in root.
        let spawned = async { tokio::spawn(async { Tenant::current() }).await }.in_tenant(&tenants[0]).await;
        assert_eq!(spawned.unwrap(), Tenant::root());
        made
    });
    drop(runtime);
    let each: usize = (0..steps).map(|step| charge(10 + step)).sum::<usize>() + charge(24 * steps);
    for tenant in &tenants {
        exact(tenant, 20 * each);
    }
    drop(made);
    for tenant in &tenants {
        exact(tenant, 0);
    }
}

/// A limit in a service: the wild tenant's tasks end with the error, the others' with their results.
#[test]
fn stopped_tasks_end_and_others_finish() {
    let wild = Tenant::builder("wild").max(2 << 20).build().unwrap();
    let calm = Tenant::builder("calm").max(64 << 20).build().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let work = |size: usize| async move {
        let mut held = Vec::new();
        for _ in 0..200 {
            held.push(vec![1_u8; size]);
            tokio::task::yield_now().await;
        }
        held.len()
    };
    let held = forced(&calm, 100, 10);
    let (stopped, finished) = runtime.block_on(async {
        let spawn = |n| {
            let (tenant, size) = if n % 2 == 0 { (&wild, 20_000) } else { (&calm, 2000) };
            tokio::spawn(work(size).try_in_tenant(tenant))
        };
        let tasks: Vec<_> = (0..20).map(spawn).collect();
        let (mut stopped, mut finished) = (0, 0);
        for task in tasks {
            match task.await.unwrap() {
                Ok(len) => finished += usize::from(len == 200),
                Err(error) => stopped += usize::from(error.tenant == "wild"),
            }
        }
        (stopped, finished)
    });
    drop(runtime);
    assert_eq!((stopped, finished), (10, 10));
    assert!(wild.is_stopped() && !calm.is_stopped());
    exact(&wild, 0);
    exact(&calm, 10 * charge(100));
    drop(held);
    exact(&calm, 0);
}
