//! Slots that threads claim for themselves.
//!
//! A thread that allocates for the first time claims a slot that nobody owns, with whatever its last owner left in it,
//! and gives it back when it ends. So there are as many as threads were ever alive at once, up to a limit, beyond which
//! threads use what the mode has for those without: the slot of the CPU they run on, or the shared ones. They ask
//! again when a slot has become free.
//!
//! The end of a thread is learned by a key of pthread's (its destructor runs after those of Rust's thread-locals, and
//! others may run after it: a thread goes on allocating and freeing, without a slot of its own). A thread that ends
//! otherwise, by raw `exit`, keeps its slot to itself for ever; what is in it is still within reach of every drain.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::slot::{Slot, NO_SLOT};
use super::topology;
use super::world;
use crate::life::reentry;
use crate::life::thread_words::{words, Claim};

/// The most slots that threads may claim.
pub(crate) const MAX_CLAIMS: usize = 256;
/// Slots for each CPU: a thread pool for computing and one for blocking, and some.
const PER_CPU: usize = 16;
/// Slots on a small machine.
const LEAST: usize = 64;

/// pthread's key plus 1; 0: there is none.
static KEY: AtomicU32 = AtomicU32::new(0);
/// Slots that threads own now.
static OWNED: AtomicUsize = AtomicUsize::new(0);

/// The most slots that threads claim here.
pub(crate) fn limit() -> usize {
    (topology::cpus() * PER_CPU).clamp(LEAST, MAX_CLAIMS)
}

/// Makes the key. `false`: the process has no more of them, or pthread's differ from what we know.
pub(crate) fn prepare() -> bool {
    // relaxed (whole fn): the key is read behind the mode, which is published after it
    if KEY.load(Ordering::Relaxed) != 0 {
        return true;
    }
    let mut key = 0;
    // SAFETY: the key is written to a live variable; the destructor is a function of this crate and valid for ever.
    if unsafe { libc::pthread_key_create(&mut key, Some(over)) } != 0 {
        return false;
    }
    // A second thread that is here too makes a second key, of which one is lost.
    // relaxed: as above
    KEY.store(key.wrapping_add(1), Ordering::Relaxed);
    true
}

/// A slot for the calling thread, which has none; it is the thread's first choice from now on. `None`: there is none now.
/// The caller is inside the gate.
pub(crate) fn claim(slots: &'static [Slot], high: &AtomicUsize) -> Option<&'static Slot> {
    let (token, limit) = (reentry::token(), limit());
    // relaxed: a guess
    if OWNED.load(Ordering::Relaxed) >= limit {
        return None;
    }
    let place = (0..limit).find(|&place| slots[place].try_claim(token))?;
    // pairs: Slots::existing - by the gate, which the stopper closes first
    high.fetch_max(place + 1, Ordering::Relaxed);
    let slot = &slots[place];
    // relaxed: read behind the mode, see `prepare`
    let key = KEY.load(Ordering::Relaxed).wrapping_sub(1);
    // SAFETY: the slot is the thread's; who stops it looks at its content when the gate is closed.
    let provided = unsafe { slot.data() }.is_provided() || world::provide(slot);
    // SAFETY: the key was made by `prepare`.
    let remembered = || unsafe { libc::pthread_setspecific(key, core::ptr::from_ref(slot).cast()) } == 0;
    if !(provided && remembered()) {
        slot.disclaim();
        return None;
    }
    // relaxed: a count for guesses
    OWNED.fetch_add(1, Ordering::Relaxed);
    words().slot.set(slot);
    words().claim.set(Claim::Held);
    Some(slot)
}

/// Whether asking again is worth it.
pub(crate) fn may_ask() -> bool {
    // relaxed: a guess
    OWNED.load(Ordering::Relaxed) < limit()
}

/// The calling thread ends.
extern "C" fn over(slot: *mut c_void) {
    if words().claim.replace(Claim::Over) == Claim::Held {
        words().slot.set(&raw const NO_SLOT);
        // relaxed: a count for guesses
        OWNED.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: the value that `claim` stored: a static slot.
        unsafe { &*slot.cast::<Slot>() }.disclaim();
    }
}

/// In a fork's child: the slots of threads that are not here are nobody's.
pub(crate) fn after_fork(slots: &'static [Slot]) {
    let token = reentry::token();
    let mut owned = 0;
    for slot in slots {
        match slot.owner() {
            0 => {}
            owner if owner == token => owned += 1,
            _ => {
                // It may have been on the way of being turned away, inside for a moment.
                slot.leave_claimed();
                slot.disclaim();
            }
        }
    }
    // relaxed: one thread
    OWNED.store(owned, Ordering::Relaxed);
}

/// Has the calling thread do without its slot from now on.
#[cfg(feature = "testing")]
pub(crate) fn forget() {
    words().claim.set(Claim::Over);
    words().slot.set(&raw const NO_SLOT);
}
