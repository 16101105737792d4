//! The one place that chooses between real atomics and loom's.
//!
//! Every protocol that `loom-tests` models (counters, slots, the gate, handles, the pool of ids) takes its atomics from
//! here, so that the model checks the very code that ships. Under `--cfg loom` nothing else of the crate is
//! compiled.

pub(crate) mod backoff;
pub(crate) mod owner_lock;

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

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
