//! Where a stopped tenant's work ends: checkpoints, and the unwinding that `try_in_scope` catches.

use core::any::Any;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use super::error::MemoryExceeded;
use super::{registry, Tenant};
use crate::charge::limit;
use crate::charge::scope;
use crate::heap::tag::Tag;

/// How many children an error names.
const CHILDREN: usize = 5;

/// What a typed unwind carries.
struct Stop(MemoryExceeded);

/// A safe point: an error when the tenant in scope, or an ancestor, is stopped.
///
/// O(1) while no tenant is stopped, else O(depth) and, when it is this one, the making of the error.
///
/// # Errors
/// The tenant in scope counts as stopped.
///
/// ```
/// # let tenant = allotment::Tenant::new("checked").unwrap();
/// fn work() -> Result<(), allotment::MemoryExceeded> {
///     for _ in 0..100 {
///         // ... allocate something ...
///         allotment::checkpoint()?;
///     }
///     Ok(())
/// }
/// assert!(tenant.in_scope(work).is_ok());
/// tenant.stop();
/// assert!(tenant.in_scope(work).is_err());
/// ```
pub fn checkpoint() -> Result<(), MemoryExceeded> {
    check_id(scope::current().tenant())
}

/// A safe point that unwinds when the tenant in scope is stopped. [`Tenant::try_in_scope`] and
/// [`InTenant::try_in_tenant`](crate::InTenant::try_in_tenant) catch it; nothing else should. No panic hook runs and
/// no message is printed: uncaught, it ends its thread silently. In a thread of its own use
/// `Tenant::current().try_in_scope(..)`. While the thread already unwinds it does nothing: a second unwind would abort.
///
/// Not available where panics abort (`panic = "abort"`): there use [`checkpoint`]. A `catch_unwind` of your own
/// between here and there gets the payload and must resume it.
///
/// ```
/// # let tenant = allotment::Tenant::new("unwound").unwrap();
/// tenant.stop();
/// let outcome = tenant.try_in_scope(|| {
///     allotment::checkpoint_or_unwind();
///     unreachable!("the tenant is stopped");
/// });
/// assert!(outcome.is_err());
/// ```
#[cfg(panic = "unwind")]
pub fn checkpoint_or_unwind() {
    if let Err(stopped) = checkpoint() {
        if !std::thread::panicking() {
            let _root = scope::enter_root();
            resume_unwind(Box::new(Stop(stopped)));
        }
    }
}

/// Runs `f` with strict limits: an allocation that would pass a limit of the tenant in scope returns null instead of
/// being forced. For code that can take it: `try_reserve`, `Box::try_new` and the like.
///
/// An *infallible* allocation that is refused inside makes std abort the process, as with any allocator at its limit; one
/// that std makes while it formats a backtrace that is no panic's (`Backtrace::force_capture().to_string()`) makes it
/// wait for itself for ever, with `RUST_BACKTRACE=1`. Keep the closure small. A refusal is counted and stops nobody. While the thread panics nothing is refused.
///
/// ```
/// use allotment::{Allotment, Tenant};
/// #[global_allocator]
/// static ALLOTMENT: Allotment = Allotment::new();
///
/// let tenant = Tenant::builder("careful").max(100_000).build()?;
/// let mut rows: Vec<u8> = Vec::new();
/// tenant.in_scope(|| {
///     assert!(allotment::fallible(|| rows.try_reserve(1_000_000)).is_err());
///     assert!(allotment::fallible(|| rows.try_reserve(10_000)).is_ok());
/// });
/// assert!(!tenant.is_stopped());
/// # Ok::<(), allotment::CreateError>(())
/// ```
pub fn fallible<R>(f: impl FnOnce() -> R) -> R {
    let _strict = scope::enter_strict();
    f()
}

/// An error when the tenant counts as stopped.
pub(super) fn check(tenant: &Tenant) -> Result<(), MemoryExceeded> {
    check_id(tenant.tag())
}

fn check_id(id: Tag) -> Result<(), MemoryExceeded> {
    match limit::stopped_by(id) {
        None => Ok(()),
        Some((stopped, Tag::NONE)) => Err(MemoryExceeded { limit: None, by_request: true, ..exceeded(stopped, id) }),
        Some((_, hit)) => Err(exceeded(hit, id)),
    }
}

/// The error, made outside of the tenant: its memory is root's.
#[cold]
pub(super) fn exceeded(limit: Tag, asked: Tag) -> MemoryExceeded {
    let _root = scope::enter_root();
    // The one whose limit was met may have retired since; then its nearest living ancestor stands for it.
    let at = Tenant::living(limit);
    let mut children: Vec<(String, usize)> =
        at.children().iter().map(|child| (child.name().to_owned(), child.usage())).collect();
    children.sort_by_key(|child| core::cmp::Reverse(child.1));
    children.truncate(CHILDREN);
    MemoryExceeded {
        tenant: at.name().to_owned(),
        asked: Tenant::living(asked).name().to_owned(),
        usage: at.usage(),
        limit: at.max(),
        by_request: false,
        children,
    }
}

impl Tenant {
    /// Runs `f` as this tenant. `Ok` when it returned, stopped or not; `Err` when a
    /// [`checkpoint_or_unwind`] inside ended it because the tenant (or an ancestor) is stopped. Other panics pass
    /// through. `checkpoint()?` composes inside by returning an inner `Result`.
    ///
    /// Values that `f` changed through references are as they were at the unwind, as after any caught panic.
    ///
    /// # Errors
    /// See above.
    pub fn try_in_scope<R>(&self, f: impl FnOnce() -> R) -> Result<R, MemoryExceeded> {
        match catch_unwind(AssertUnwindSafe(|| self.in_scope(f))) {
            Ok(done) => Ok(done),
            Err(payload) => Err(stop_of(payload)),
        }
    }

    /// Stops the tenant and, with it, its descendants: their work ends at the next checkpoint. Stopping root stops
    /// all.
    pub fn stop(&self) {
        limit::stop(self.tag(), Tag::NONE);
    }

    /// Whether this tenant or an ancestor is stopped. Freeing memory does not end that; [`resume`](Tenant::resume)
    /// does.
    pub fn is_stopped(&self) -> bool {
        limit::is_stopped(self.tag())
    }

    /// Lets the tenant run again. The result speaks of limits only, whether this tenant runs is
    /// [`is_stopped`](Tenant::is_stopped)'s to say: whether it and its ancestors are now within their limits. If not, it is stopped
    /// again by its next charge past one. An ancestor that is stopped itself stays so.
    pub fn resume(&self) -> bool {
        limit::forget_stop(registry::node(self.tag()));
        limit::drain(self.tag(), false);
        registry::chain(self.tag()).all(|level| {
            let counter = &registry::node(level).counter;
            counter.usage() <= counter.max()
        })
    }
}

/// The error a payload carries; any other payload unwinds on.
fn stop_of(payload: Box<dyn Any + Send>) -> MemoryExceeded {
    match payload.downcast::<Stop>() {
        Ok(stop) => stop.0,
        Err(other) => resume_unwind(other),
    }
}
