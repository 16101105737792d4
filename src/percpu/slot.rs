//! A CPU slot: every class's magazines and the stocks, behind a try-lock.
//!
//! The lock word lies in static memory for all slots that could ever be, so that stopping the world need not know
//! which exist; the content is made when a slot is first entered.

use core::ptr::NonNull;

use crate::charge::stock::Stock;
use crate::heap::magazine::Magazines;
use crate::heap::size_class::{CLASSES, INFO};
use crate::sync::owner_lock::{OwnerLock, Reentered};
use crate::sync::Exclusive;

/// What a slot holds.
pub struct SlotData {
    /// By class.
    pub magazines: [Magazines; CLASSES],
    /// By tenant.
    pub stock: Stock,
}

impl SlotData {
    /// Empty magazines without blocks, and that stock.
    pub fn new(stock: Stock) -> Self {
        let mut class = 0;
        let magazines = [(); CLASSES].map(|()| {
            class += 1;
            Magazines::new(u16::from(INFO[class - 1].magazine))
        });
        SlotData { magazines, stock }
    }
}

/// See the module.
pub struct Slot {
    lock: OwnerLock,
    /// Null until the slot is first entered.
    data: Exclusive<*mut SlotData>,
}

// SAFETY: `data` is reached with the lock held only; its content is plain memory that may change threads.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

impl Slot {
    crate::sync::const_unless_loom! {
        /// A free slot without content.
        pub fn new() -> Self {
            Slot { lock: OwnerLock::new(), data: Exclusive::new(core::ptr::null_mut()) }
        }
    }

    /// Enters the slot if it is free.
    #[inline]
    pub fn try_enter(&self, token: usize) -> Option<Held<'_>> {
        self.lock.try_lock(token).then(|| Held { slot: self })
    }

    /// Waits for the slot, for a drain; an error when the caller itself is inside.
    pub fn wait(&self, token: usize) -> Result<(), Reentered> {
        self.lock.lock(token)
    }

    /// Whether that thread is inside. Reliable for the calling thread's own token only.
    pub fn is_held_by(&self, token: usize) -> bool {
        self.lock.is_held_by(token)
    }

    /// Ends a [`wait`](Slot::wait) of the same thread.
    pub fn leave(&self) {
        self.lock.unlock();
    }

    /// The content, while the caller holds the slot.
    ///
    /// # Safety
    /// The calling thread holds the slot and no other reference to the content.
    #[allow(clippy::mut_from_ref)] // the lock, not the borrow, makes it unique
    pub unsafe fn data(&self) -> Option<&mut SlotData> {
        // SAFETY: the caller's promise; the pointer is null or to content that lives for ever.
        unsafe { self.data.with_mut(|data| (*data).as_mut()) }
    }

    /// Gives the slot its content.
    ///
    /// # Safety
    /// The calling thread holds the slot, which has none; `data` lives for ever and is the slot's alone.
    pub unsafe fn provide(&self, data: NonNull<SlotData>) {
        // SAFETY: the caller's promise.
        unsafe { self.data.with_mut(|slot| *slot = data.as_ptr()) };
    }
}

/// A slot that is entered; left when dropped.
pub struct Held<'a> {
    slot: &'a Slot,
}

impl Held<'_> {
    /// The content, if the slot has any yet.
    #[inline]
    pub fn data(&mut self) -> Option<&mut SlotData> {
        // SAFETY: this guard holds the slot and is borrowed mutably.
        unsafe { self.slot.data() }
    }

    /// The slot.
    pub fn slot(&self) -> &Slot {
        self.slot
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.lock.unlock();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_failed_entry_leaves_the_slot_to_its_holder() {
        let slot = Slot::new();
        let held = slot.try_enter(1).expect("a free slot");
        assert!(slot.try_enter(2).is_none());
        assert!(slot.try_enter(3).is_none(), "the failed entry has freed the slot");
        assert_eq!(slot.wait(1), Err(Reentered));
        drop(held);
        assert!(slot.try_enter(2).is_some());
    }
}
