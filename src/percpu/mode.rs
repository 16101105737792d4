//! How slots are entered, decided once: when a thread of the process first allocates.
//!
//! | mode | claimed slots | CPUs' slots | needs |
//! |---|---|---|---|
//! | `threads+rseq` | for as many threads as may have one | for all other threads | both of the below |
//! | `threads` | as above; the other threads use shared slots | no | `membarrier` |
//! | `rseq` | no | for all threads | sequences registered by libc, and `membarrier` for them |
//! | `locked` | no | no | nothing |
//!
//! The first that the system has is taken, unless the environment variable `ALLOTMENT_MODE` names another: then that
//! one, or if the system lacks it, the first below it. A value that names no mode is ignored. `stats().mode` tells.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};

use super::fence::{self, Against};
use super::{claim, rseq};
use crate::life::errno::KeepErrno;

const CLAIMS: u8 = 1;
const SEQUENCES: u8 = 2;
const DECIDED: u8 = 4;

static MODE: AtomicU8 = AtomicU8::new(0);

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Mode(u8);

impl Mode {
    /// Whether threads may have slots of their own.
    pub(crate) fn has_claims(self) -> bool {
        self.0 & CLAIMS != 0
    }

    /// Whether CPUs have slots.
    pub(crate) fn has_sequences(self) -> bool {
        self.0 & SEQUENCES != 0
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match (self.has_claims(), self.has_sequences()) {
            (true, true) => "threads+rseq",
            (true, false) => "threads",
            (false, true) => "rseq",
            (false, false) => "locked",
        }
    }
}

/// The mode of this process.
pub(crate) fn get() -> Mode {
    // pairs: mode::decide - what it prepared
    match MODE.load(Ordering::Acquire) {
        0 => decide(),
        mode => Mode(mode),
    }
}

/// Two threads may decide at the same time; they decide the same.
#[cold]
fn decide() -> Mode {
    let _errno = KeepErrno::new();
    let wanted = wanted();
    let mut mode = DECIDED;
    if wanted & CLAIMS != 0 && fence::register(Against::Threads) && claim::prepare() {
        mode |= CLAIMS;
    }
    if wanted & SEQUENCES != 0 && fence::register(Against::Sequences) && rseq::activate() {
        mode |= SEQUENCES;
    }
    // pairs: mode::get - registrations, and where the area lies
    MODE.store(mode, Ordering::Release);
    Mode(mode)
}

/// What the environment asks for, else all there is.
///
/// `getenv` and not std's: that takes a lock and allocates. It reads what another thread may change with `setenv`; std's
/// `set_var` allocates before it does so, so that this has been read by then.
fn wanted() -> u8 {
    // SAFETY: the name is a C string; the value is one too, or null, and is looked at before anything else runs.
    let value = unsafe {
        let value = libc::getenv(c"ALLOTMENT_MODE".as_ptr());
        if value.is_null() {
            return CLAIMS | SEQUENCES;
        }
        CStr::from_ptr(value)
    };
    match value.to_bytes() {
        b"rseq" => SEQUENCES,
        b"threads" => CLAIMS,
        b"locked" => 0,
        _ => CLAIMS | SEQUENCES,
    }
}

/// Has this process use sequences only; see [`rseq::pretend`].
#[cfg(feature = "testing")]
pub(crate) fn pretend_rseq() {
    get();
    rseq::pretend();
    claim::forget();
    // pairs: mode::get - as in `decide`
    MODE.store(DECIDED | SEQUENCES, Ordering::Release);
}
