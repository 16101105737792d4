//! A lock that knows who holds it.
//!
//! A signal handler that allocates while its own thread is inside the allocator would wait for itself for ever
//! (hazard B17). The lock word is the holder's token (the address of a thread-local), so that this case is told
//! apart from contention without any cost on the uncontended path.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | free |
//! | token | held by the thread with that token |

use super::backoff::Backoff;
use super::{const_unless_loom, AtomicUsize, Ordering};

/// The caller already holds the lock it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

/// See the module.
pub struct OwnerLock {
    owner_shared: AtomicUsize,
}

impl OwnerLock {
    const_unless_loom! {
        /// A free lock.
        pub fn new() -> Self {
            OwnerLock { owner_shared: AtomicUsize::new(0) }
        }
    }

    /// Takes the lock if it is free. `token` is not 0.
    #[inline]
    pub fn try_lock(&self, token: usize) -> bool {
        // pairs: owner_lock::unlock - everything the last holder wrote under the lock
        let taken = self.owner_shared.compare_exchange(0, token, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Waits for the lock; an error when the caller itself holds it.
    pub fn lock(&self, token: usize) -> Result<(), Reentered> {
        let mut backoff = Backoff::new();
        while !self.try_lock(token) {
            if self.is_held_by(token) {
                return Err(Reentered);
            }
            backoff.wait();
        }
        Ok(())
    }

    /// Whether nobody holds it, at this moment.
    #[cfg_attr(all(not(loom), not(allotment_portable), target_arch = "x86_64"), allow(dead_code))]
    #[inline(always)]
    pub fn is_free(&self) -> bool {
        // pairs: owner_lock::unlock - everything the last holder wrote under the lock
        self.owner_shared.load(Ordering::Acquire) == 0
    }

    /// Whether the thread with that token holds it.
    #[inline]
    pub fn is_held_by(&self, token: usize) -> bool {
        // relaxed: only the thread itself ever stores its token, so it cannot miss its own store
        self.owner_shared.load(Ordering::Relaxed) == token
    }

    /// Gives the lock back. Only its holder may call this.
    #[inline]
    pub fn unlock(&self) {
        #[cfg(allotment_tooth = "unlock_relaxed")]
        // relaxed: the tooth; loom-tests must notice
        self.owner_shared.store(0, Ordering::Relaxed);
        #[cfg(not(allotment_tooth = "unlock_relaxed"))]
        // pairs: owner_lock::try_lock - what this holder wrote becomes the next one's
        self.owner_shared.store(0, Ordering::Release);
    }
}
