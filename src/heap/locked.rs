//! Data of the back end behind an [`OwnerLock`].
//!
//! The back end (bins, depot, page heap, arena) is reached with a CPU slot or the gate held and is locked for tens
//! of instructions. A thread that finds itself holding the lock it wants has been interrupted inside the allocator
//! and re-entered it from a signal handler: a clean abort, never a hang (hazard B17).

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use crate::life::reentry;
use crate::sync::owner_lock::OwnerLock;

/// A value behind a lock.
pub(crate) struct Locked<T> {
    lock: OwnerLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the lock only, by one thread at a time; `T: Send` lets it change threads.
unsafe impl<T: Send> Sync for Locked<T> {}

impl<T> Locked<T> {
    pub(crate) const fn new(value: T) -> Self {
        Locked { lock: OwnerLock::new(), value: UnsafeCell::new(value) }
    }

    /// Waits for the value.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.hold();
        Guard { locked: self }
    }

    /// Takes the lock without a guard, for fork: [`release`](Locked::release) gives it back.
    pub(crate) fn hold(&self) {
        if self.lock.lock(reentry::token()).is_err() {
            reentry::die("re-entered from a signal handler while the thread held a lock of the allocator");
        }
    }

    /// Ends a [`hold`](Locked::hold) of the same thread.
    pub(crate) fn release(&self) {
        self.lock.unlock();
    }
}

/// Holds the lock while it lives.
pub(crate) struct Guard<'a, T> {
    locked: &'a Locked<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread holds the lock.
        unsafe { &*self.locked.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard's thread holds the lock, and the guard is borrowed mutably.
        unsafe { &mut *self.locked.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.locked.lock.unlock();
    }
}
