//! The gate counts operations that run without a slot, and can be closed.
//!
//! | word | meaning |
//! |---|---|
//! | `n` | open, `n` operations inside |
//! | `CLOSED + n` | closed, `n` operations still inside: the closer waits for 0 |
//!
//! One word for both, so that entering and closing cannot miss each other: an operation that adds itself sees the
//! closed bit in the same step, or is seen by the closer.

use crate::sync::backoff::Backoff;
use crate::sync::{const_unless_loom, AtomicUsize, Ordering};

const CLOSED: usize = 1 << (usize::BITS - 1);

/// See the module.
pub struct Gate {
    word_shared: AtomicUsize,
}

impl Gate {
    const_unless_loom! {
        /// An open gate.
        pub fn new() -> Self {
            Gate { word_shared: AtomicUsize::new(0) }
        }
    }

    /// Goes in unless the gate is closed.
    pub fn try_enter(&self) -> bool {
        // pairs: gate::open - what the closer changed while it was closed
        if self.word_shared.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
            return true;
        }
        self.leave();
        false
    }

    /// Goes in once more. Only for a thread that is inside: the closer waits for it in any case.
    pub fn enter_again(&self) {
        // relaxed: ordered by the entry that this thread made before
        self.word_shared.fetch_add(1, Ordering::Relaxed);
    }

    /// Comes out again.
    pub fn leave(&self) {
        // pairs: gate::close - what the operation did
        self.word_shared.fetch_sub(1, Ordering::Release);
    }

    /// Closes the gate and waits until everybody is out. One closer at a time.
    pub fn close(&self) {
        // pairs: gate::leave - operations that ended before the close
        self.word_shared.fetch_or(CLOSED, Ordering::AcqRel);
        #[cfg(not(allotment_tooth = "gate_no_wait"))]
        {
            let mut backoff = Backoff::new();
            // pairs: gate::leave - operations that end now
            while self.word_shared.load(Ordering::Acquire) != CLOSED {
                backoff.wait();
            }
        }
        #[cfg(allotment_tooth = "gate_no_wait")]
        let _ = Backoff::new();
    }

    /// In a fork's child, closed: nobody is here who was being turned away.
    pub(crate) fn forget_others(&self) {
        // relaxed: one thread
        self.word_shared.store(CLOSED, Ordering::Relaxed);
    }

    /// Opens it again.
    pub fn open(&self) {
        // pairs: gate::try_enter - as there
        self.word_shared.fetch_and(!CLOSED, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_turns_everybody_away_and_opens_again() {
        let gate = Gate::new();
        assert!(gate.try_enter());
        gate.leave();
        gate.close();
        assert!(!gate.try_enter());
        assert!(!gate.try_enter(), "a failed entry has counted itself in");
        gate.open();
        assert!(gate.try_enter());
        gate.enter_again();
        gate.leave();
        gate.leave();
        gate.close();
    }
}
