//! Pressure: near a limit nothing is kept in reserve.
//!
//! A tenant that comes within [`margin`] of its `max` is *pressured*, and so are its descendants. Then credits go to the
//! counters instead of a stock, and nothing is charged ahead; and from the first drain on, frees uncharge at once instead of
//! leaving the charge with the cached object. So once a pressured subtree has been drained it has no slack and gets
//! none, and a refusal there is final without another drain: a tenant at its limit cannot make every CPU drain
//! again and again.
//!
//! A free does not ask whether anybody is pressured. A drain stops every slot, and has the tables of all slots send
//! frees the slow way from then on (`percpu/slot_data.rs`), where each costs a look at the tag. The first slow free that
//! finds no tenant pressured any more puts its slot's table back; whoever becomes pressured after that is not drained
//! yet, and will be before a refusal is final.
//!
//! | word | meaning |
//! |---|---|
//! | bit 0 | pressured |
//! | bit 1 | drained since it became so; never without bit 0 |
//! | bits 2..=31 | how many times pressure has ended: a verdict compares the whole word |

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::heap::tag::Tag;
use crate::tenant::registry;

const ON: u32 = 1;
const DRAINED: u32 = 2;
const EPOCH: u32 = 4;

/// Uncharges below the low mark before pressure ends, so that alternating large refused requests with small frees
/// pays for one drain in so many frees, not for one each.
const PATIENCE: u32 = 256;

/// Pressured tenants.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A tenant's pressure.
pub(crate) struct Pressure {
    word_shared: AtomicU32,
    patience_shared: AtomicU32,
}

/// How near to `max` pressure begins: an eighth of it, at most 4 MiB. It ends at twice the distance.
pub(crate) fn margin(max: usize) -> usize {
    (max / 8).min(4 << 20)
}

/// Whether any tenant at all is pressured: the one load that every free makes.
#[inline]
pub(crate) fn any() -> bool {
    // relaxed: set before the drain that relies on it, and the drain takes every slot's lock
    COUNT.load(Ordering::Relaxed) != 0
}

// relaxed (whole file): the world is stopped between raising pressure and relying on it; that orders everything
impl Pressure {
    pub(crate) const fn new() -> Self {
        Pressure { word_shared: AtomicU32::new(0), patience_shared: AtomicU32::new(0) }
    }

    fn word(&self) -> u32 {
        self.word_shared.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.word() & ON != 0
    }

    /// The word, when it is pressured and drained: as long as it is the same, the subtree has no slack.
    pub(crate) fn drained(&self) -> Option<u32> {
        let word = self.word();
        (word & DRAINED != 0).then_some(word)
    }

    /// Begins pressure.
    pub(crate) fn raise(&self) {
        let word = self.word();
        if word & ON != 0 {
            return;
        }
        // The count first: whoever sees the word must see the count.
        COUNT.fetch_add(1, Ordering::Relaxed);
        self.patience_shared.store(PATIENCE, Ordering::Relaxed);
        if self.word_shared.compare_exchange(word, word | ON, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes that the subtree was drained. The world is stopped since before the drain.
    pub(crate) fn mark_drained(&self) {
        let word = self.word();
        if word & ON != 0 {
            let _ = self.word_shared.compare_exchange(word, word | DRAINED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Ends pressure.
    pub(crate) fn clear(&self) {
        let word = self.word();
        let next = (word & !(ON | DRAINED)).wrapping_add(EPOCH);
        if word & ON != 0 && self.word_shared.compare_exchange(word, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// After an accepted charge.
    #[inline]
    pub(crate) fn rose(&self, max: usize, usage: usize) {
        if max != usize::MAX && usage > max - margin(max) {
            self.raise();
        }
    }

    /// After an uncharge.
    #[inline]
    pub(crate) fn fell(&self, max: usize, usage: usize) {
        if self.is_on() && usage < max - margin(max) * 2 {
            let left = self.patience_shared.load(Ordering::Relaxed);
            self.patience_shared.store(left.saturating_sub(1), Ordering::Relaxed);
            if left <= 1 {
                self.clear();
            }
        }
    }
}

/// Whether a tenant or one of its ancestors is pressured. O(1) while nobody is, else O(depth).
#[inline]
pub(crate) fn is_pressured(id: Tag) -> bool {
    any() && registry::chain(id).any(|level| registry::node(level).pressure.is_on())
}
