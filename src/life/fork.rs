//! Fork: the child gets a heap at rest.
//!
//! `pthread_atfork` handlers stop the world before the fork and start it again on both sides, so that in the child
//! no lock is held by a thread that does not exist there, and no object or charge is half moved: its accounts are
//! exact (hazard B15). The locks of the back end are leaves that are held with a slot or the gate, which the stop
//! excludes; those that reporting takes without either are held too.
//!
//! Not covered: `vfork` and raw `clone` without the handlers. The child of such a call may only `exec` or exit, as
//! POSIX says.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::heap::{arena, huge, page_heap};
use crate::percpu::world::{self, Stopped};
use crate::tenant::registry;

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// The stop that a fork under way holds.
struct Stop(UnsafeCell<Option<Stopped>>);

// SAFETY: written by the forking thread while it holds the stop, which excludes other forking threads' handlers.
unsafe impl Sync for Stop {}

static STOP: Stop = Stop(UnsafeCell::new(None));

/// Registers the handlers, once.
#[cold]
pub(crate) fn register() {
    // relaxed (both): only who comes first matters
    if REGISTERED.load(Ordering::Relaxed) || REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    // A failure (no memory) means that a fork with other threads inside may leave the child's heap locked; there is
    // nobody to tell at this point, and the next fork is as likely to fail for lack of memory.
    // SAFETY: the handlers are functions of this crate and valid for ever.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
}

extern "C" fn before() {
    let stopped = world::stop();
    if stopped.is_some() {
        registry::hold();
        page_heap::hold();
        huge::hold();
        arena::hold();
        // SAFETY: the stop is held, see `Stop`.
        unsafe { *STOP.0.get() = stopped };
    }
}

extern "C" fn after_in_child() {
    // SAFETY: as in `after`.
    if unsafe { (*STOP.0.get()).is_some() } {
        world::after_fork();
    }
    after();
}

extern "C" fn after() {
    // SAFETY: as in `before`; when the stop failed there is nothing here.
    let stopped = unsafe { (*STOP.0.get()).take() };
    if stopped.is_some() {
        arena::release();
        huge::release();
        page_heap::release();
        registry::release();
    }
}
