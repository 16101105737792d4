//! How slots are entered, decided once: when a thread of the process first allocates.
//!
//! | mode | slots | needs |
//! |---|---|---|
//! | `rseq` | one for each CPU | restartable sequences, registered by libc, and `membarrier` for them |
//! | `threads` | one for each thread, up to a limit; the other threads use shared ones | `membarrier` |
//! | `locked` | shared ones | nothing |
//!
//! The first that the system has is taken, unless the environment variable `ALLOTMENT_MODE` names another: then that
//! one, or if the system lacks it, the first below it. A value that names no mode is ignored. `stats().mode` tells.
//!
//! `rseq` comes before `threads` though a pair takes a few instructions more and no less time: what the slots cache
//! and hold in stock is bounded by the CPUs, whatever the number of threads.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};

use super::fence::{self, Against};
use super::{claim, rseq};
use crate::life::errno::KeepErrno;

/// A [`Mode`], or 0: not decided.
static MODE: AtomicU8 = AtomicU8::new(0);

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Mode {
    Rseq = 1,
    Threads,
    Locked,
}

impl Mode {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Rseq => "rseq",
            Mode::Threads => "threads",
            Mode::Locked => "locked",
        }
    }
}

/// The mode of this process.
#[inline]
pub(crate) fn get() -> Mode {
    // pairs: mode::decide - what it prepared
    match MODE.load(Ordering::Acquire) {
        1 => Mode::Rseq,
        2 => Mode::Threads,
        3 => Mode::Locked,
        _ => decide(),
    }
}

/// Two threads may decide at the same time; they decide the same.
#[cold]
fn decide() -> Mode {
    let _errno = KeepErrno::new();
    let wanted = wanted();
    let mode = if wanted <= Mode::Rseq && rseq::activate() && fence::register(Against::Sequences) {
        Mode::Rseq
    } else if wanted <= Mode::Threads && fence::register(Against::Threads) && claim::prepare() {
        Mode::Threads
    } else {
        Mode::Locked
    };
    // pairs: mode::get - registrations, and where the area lies
    MODE.store(mode as u8, Ordering::Release);
    mode
}

/// What the environment asks for, else the first.
///
/// `getenv` and not std's: that takes a lock and allocates. It reads what another thread may change with `setenv`; std's
/// `set_var` allocates before it does so, so that this has been read by then.
fn wanted() -> Mode {
    // SAFETY: the name is a C string; the value is one too, or null, and is looked at before anything else runs.
    let value = unsafe {
        let value = libc::getenv(c"ALLOTMENT_MODE".as_ptr());
        if value.is_null() {
            return Mode::Rseq;
        }
        CStr::from_ptr(value)
    };
    match value.to_bytes() {
        b"threads" => Mode::Threads,
        b"locked" => Mode::Locked,
        _ => Mode::Rseq,
    }
}

/// Has this process use sequences only; see [`rseq::pretend`].
#[cfg(feature = "testing")]
pub(crate) fn pretend_rseq() {
    get();
    rseq::pretend();
    claim::forget();
    // pairs: mode::get - as in `decide`
    MODE.store(Mode::Rseq as u8, Ordering::Release);
}
