//! How many handles a tenant has.
//!
//! | count | meaning |
//! |---|---|
//! | `n > 0` | living: `n` handles, one of them per living child |
//! | 0 | retired or free: final, until the id is given to a new tenant |

use crate::sync::{const_unless_loom, AtomicUsize, Ordering};

/// See the module.
pub struct Handles {
    count_shared: AtomicUsize,
}

impl Handles {
    const_unless_loom! {
        /// With so many handles.
        pub fn new(count: usize) -> Self {
            Handles { count_shared: AtomicUsize::new(count) }
        }
    }

    /// The first handle of a new tenant. The caller owns the id.
    pub fn reset(&self) {
        // pairs: `try_acquire` - the new tenant's record, for one who finds the id in a list
        self.count_shared.store(1, Ordering::Release);
    }

    /// One more, by someone who has one.
    #[inline]
    pub fn acquire(&self) {
        // relaxed: as in `Arc::clone`: the handle at hand keeps the tenant alive
        self.count_shared.fetch_add(1, Ordering::Relaxed);
    }

    /// One more, if the tenant is living.
    pub fn try_acquire(&self) -> bool {
        // relaxed: only the exchange below takes effect
        let mut count = self.count_shared.load(Ordering::Relaxed);
        #[cfg(allotment_tooth = "acquire_two_steps")]
        if count != 0 {
            // relaxed: the tooth: the check and the addition are two steps
            self.count_shared.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        while count != 0 {
            // pairs: `reset` - the tenant's record
            match self.count_shared.compare_exchange_weak(count, count + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => count = now,
            }
        }
        false
    }

    /// Whether the tenant is living.
    pub fn is_living(&self) -> bool {
        // pairs: `reset` - the tenant's record
        self.count_shared.load(Ordering::Acquire) != 0
    }

    /// One less; whether it was the last, so that the caller retires the tenant.
    pub fn release(&self) -> bool {
        // pairs: itself - what other handles' users did comes before the retirement
        self.count_shared.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
