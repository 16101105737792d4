//! Futures that run as a tenant.

use core::future::Future;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::error::MemoryExceeded;
use super::{stop, Tenant};

/// Runs a future as a tenant: the scope is entered in every `poll` and while the future is dropped, on whatever thread
/// that happens. Nothing is allocated per poll.
pub trait InTenant: Future + Sized {
    /// Attributes what the future allocates to `tenant`. It only attributes: a stopped tenant's future runs on; let
    /// it look at [`checkpoint`](crate::checkpoint). The future's own state is billed where it is boxed: to bill it to
    /// the tenant too, spawn it inside [`in_scope`](Tenant::in_scope).
    ///
    /// ```
    /// use allotment::{InTenant, Tenant};
    /// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
    /// #     let mut future = Box::pin(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop { if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) { return done } }
    /// # }
    /// let tenant = Tenant::new("async")?;
    /// let inside = block_on(async { Tenant::current() }.in_tenant(&tenant));
    /// assert_eq!(inside, tenant);
    /// # Ok::<(), allotment::CreateError>(())
    /// ```
    fn in_tenant(self, tenant: &Tenant) -> Scoped<Self> {
        Scoped { tenant: tenant.clone(), future: ManuallyDrop::new(self) }
    }

    /// As [`in_tenant`](InTenant::in_tenant); when the tenant is found stopped before or after a poll, or a
    /// [`checkpoint_or_unwind`](crate::checkpoint_or_unwind) inside unwinds, the future is dropped inside the tenant
    /// and the output is the error.
    ///
    /// A stop is noticed at the next poll; it does not itself wake the future.
    fn try_in_tenant(self, tenant: &Tenant) -> TryScoped<Self> {
        TryScoped { tenant: tenant.clone(), future: Some(self) }
    }
}

impl<F: Future> InTenant for F {}

/// A future that runs as a tenant; see [`InTenant::in_tenant`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Scoped<F> {
    tenant: Tenant,
    future: ManuallyDrop<F>,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned with `self`: never moved out, and dropped in place by `drop`.
        let (tenant, future) = unsafe {
            let this = self.get_unchecked_mut();
            (&this.tenant, Pin::new_unchecked(&mut *this.future))
        };
        let _entered = tenant.enter();
        future.poll(context)
    }
}

impl<F> Drop for Scoped<F> {
    fn drop(&mut self) {
        let _entered = self.tenant.enter();
        // SAFETY: dropped once, in place, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.future) };
    }
}

/// A future that runs as a tenant until that is stopped; see [`InTenant::try_in_tenant`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct TryScoped<F> {
    tenant: Tenant,
    /// `None` once it is done or was dropped for a stop.
    future: Option<F>,
}

impl<F: Future> Future for TryScoped<F> {
    type Output = Result<F::Output, MemoryExceeded>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned with `self`: it is polled in place and dropped in place by `set`.
        let (tenant, mut future) = unsafe {
            let this = self.get_unchecked_mut();
            (&this.tenant, Pin::new_unchecked(&mut this.future))
        };
        if let Err(stopped) = stop::check(tenant) {
            tenant.in_scope(|| future.set(None));
            return Poll::Ready(Err(stopped));
        }
        let Some(inner) = future.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = tenant.try_in_scope(|| inner.poll(context));
        let done = match polled {
            Ok(Poll::Ready(output)) => Ok(output),
            Ok(Poll::Pending) => match stop::check(tenant) {
                Ok(()) => return Poll::Pending,
                Err(stopped) => Err(stopped),
            },
            Err(stopped) => Err(stopped),
        };
        tenant.in_scope(|| future.set(None));
        Poll::Ready(done)
    }
}

impl<F> Drop for TryScoped<F> {
    fn drop(&mut self) {
        let _entered = self.tenant.enter();
        self.future = None;
    }
}
