//! The one place that chooses between real atomics and loom's.
//!
//! Every protocol that `loom-tests` models (counters, slots, the gate, handles, the pool of ids) takes its atomics from
//! here, so that the model checks the very code that ships. Under `--cfg loom` nothing else of the crate is
//! compiled.

pub(crate) mod backoff;
pub mod owner_lock;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicI32, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI32, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A constructor that is `const` with real atomics and plain under loom, whose atomics cannot be built in a
/// constant.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        $(#[$meta])* #[cfg(not(loom))] $vis const fn $name($($arg: $ty),*) -> $ret $body
        $(#[$meta])* #[cfg(loom)] $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_unless_loom;

/// Equations that must hold whatever callers do: if one does not, memory is corrupt and going on would spread it.
#[inline]
pub(crate) fn invariant(holds: bool, message: &'static str) {
    if !holds {
        #[cfg(not(loom))]
        crate::life::reentry::die(message);
        #[cfg(loom)]
        panic!("{message}");
    }
}

/// A cell whose users exclude one another by a lock of their own. Under loom, a use that is not ordered after the
/// last one by another thread fails the model.
pub(crate) struct Exclusive<T> {
    #[cfg(not(loom))]
    cell: core::cell::UnsafeCell<T>,
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<T>,
}

impl<T> Exclusive<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new(value: T) -> Self {
        Exclusive { cell: core::cell::UnsafeCell::new(value) }
    }
    #[cfg(loom)]
    pub(crate) fn new(value: T) -> Self {
        Exclusive { cell: loom::cell::UnsafeCell::new(value) }
    }

    /// # Safety
    /// No other use of the cell overlaps with this one.
    #[inline]
    pub(crate) unsafe fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(not(loom))]
        return f(self.cell.get());
        #[cfg(loom)]
        self.cell.with_mut(f)
    }
}
