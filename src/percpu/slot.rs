//! A CPU slot: every class's magazines and the stocks, used by one operation at a time.
//!
//! There are three kinds, by who uses a slot (`percpu.rs`), and they are entered differently. Whoever wants it from
//! outside does the same for all: [`stop`](Slot::stop), a [fence](super::fence), and wait until its
//! [`standing`](Slot::standing) is idle.
//!
//! | kind | word | idle | entered by |
//! |---|---|---|---|
//! | shared | `stop` | 0 | any thread, taking the lock `stop` itself |
//! | claimed | `busy` | [`IDLE`] | its owner: store [`BUSY`], light fence, see that `stop` is free |
//! | a CPU's | `open` | the CPU's number | a restartable sequence on that CPU that sees `stop` free and stores its token |
//!
//! Besides, a restartable sequence that begins and ends with `open` being its CPU's number may do one store to a CPU's
//! slot without entering it: pop or push (`percpu/rseq_x86_64.rs`). [`shut`](Slot::shut) ends that.
//!
//! Slots lie in static memory, zeroed, for all that could ever be; what is in them is made when one is first entered.

pub use super::slot_data::{SlotData, ARRAY_POINTERS};
#[cfg(not(loom))]
use crate::heap::magazine::Magazines;
#[cfg(not(loom))]
use crate::heap::size_class::{Class, FAST_MAX};
use crate::sync::owner_lock::{OwnerLock, Reentered};
use crate::sync::{const_unless_loom, AtomicI32, AtomicIsize, AtomicU32, AtomicUsize, Exclusive, Ordering};

/// A claimed slot (or a shared one) that nobody has entered.
pub const IDLE: i32 = 0;
/// A CPU's slot: look at `open`. Negative, so that one comparison tells the three apart.
pub const OF_CPU: i32 = -1;
/// A claimed slot that its owner has entered; or no slot at all.
pub const BUSY: i32 = 1;

/// `open` of a CPU's slot that is shut from outside.
const SHUT: usize = usize::MAX;

/// See the module. The assembly knows the offsets of `stop`, `open`, the table of records and, by it, the records.
#[repr(C, align(128))]
pub struct Slot {
    /// Held by whoever stops the slot; of a shared slot by whoever has entered it.
    stop: OwnerLock,
    open_shared: AtomicUsize,
    busy_shared: AtomicI32,
    /// Of a CPU's slot: the CPU.
    number: AtomicU32,
    /// Of a CPU's slot: where in a thread's memory the kernel and sequences meet (`rseq.rs`).
    area: AtomicIsize,
    /// Of a claimed slot: the token of the thread whose it is; 0: nobody's.
    owner_shared: AtomicUsize,
    data: Exclusive<SlotData>,
}

/// Offset of the hot records in a slot.
#[cfg(not(loom))]
pub(super) const RECORDS: usize = core::mem::offset_of!(Slot, data) + core::mem::offset_of!(SlotData, magazines);
#[cfg(loom)]
pub(super) const RECORDS: usize = 0;
/// Offset of the magazines without room in a slot.
#[cfg(not(loom))]
pub(super) const NOWHERE: usize = core::mem::offset_of!(Slot, data) + core::mem::offset_of!(SlotData, nowhere);
#[cfg(loom)]
pub(super) const NOWHERE: usize = 0;
/// Offset in a slot of the table of records that objects are allocated from.
#[cfg(not(loom))]
pub(crate) const ALLOCS: usize = core::mem::offset_of!(Slot, data) + core::mem::offset_of!(SlotData, allocs);
/// Offset in a slot of the table of records that objects are freed to.
#[cfg(not(loom))]
pub(crate) const FREES: usize = core::mem::offset_of!(Slot, data) + core::mem::offset_of!(SlotData, frees);
/// Offset of `open` in a slot.
#[cfg(not(loom))]
pub(crate) const OPEN: usize = core::mem::offset_of!(Slot, open_shared);
/// Offset of `area` in a slot.
#[cfg(not(loom))]
pub(crate) const AREA: usize = core::mem::offset_of!(Slot, area);
/// Offset of `stop` in a slot.
#[cfg(not(loom))]
pub(crate) const STOP: usize = core::mem::offset_of!(Slot, stop);

#[cfg(not(loom))]
const _: () = assert!(
    RECORDS.is_multiple_of(32)
        && NOWHERE.is_multiple_of(8)
        && RECORDS / 8 + FAST_CLASSES * size_of::<Magazines>() / 8 <= 256,
    "the records that the fast path finds must be within reach of a byte"
);
/// Classes up to [`FAST_MAX`].
#[cfg(not(loom))]
const FAST_CLASSES: usize = match Class::of(FAST_MAX, 1) {
    Some(class) => class.0 as usize + 1,
    None => 0,
};

// SAFETY: `data` is reached by whoever has entered or stopped the slot only; its content is plain memory that may change
// threads.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

/// The slot of a thread that has none: always busy, and open to no CPU.
#[cfg(not(loom))]
pub(crate) static NO_SLOT: Slot = Slot {
    stop: OwnerLock::new(),
    open_shared: AtomicUsize::new(SHUT),
    busy_shared: AtomicI32::new(BUSY),
    number: AtomicU32::new(u32::MAX),
    area: AtomicIsize::new(0),
    owner_shared: AtomicUsize::new(0),
    data: Exclusive::new(SlotData::NONE),
};

/// See [`Slot::standing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody is inside, and nobody will be: it is the stopper's.
    Idle,
    /// An operation is inside and has to end first.
    Entered,
    /// An operation that was inside has left the slot open to sequences: it has to be [`shut`](Slot::shut) and fenced again.
    Open,
}

/// How a slot was entered.
#[derive(Clone, Copy)]
enum How {
    Shared,
    Claimed,
    OfCpu,
}

impl Slot {
    const_unless_loom! {
        /// A shared slot, or a claimed one that nobody owns; without content.
        pub fn new() -> Self {
            Slot {
                stop: OwnerLock::new(),
                open_shared: AtomicUsize::new(0),
                busy_shared: AtomicI32::new(IDLE),
                number: AtomicU32::new(0),
                area: AtomicIsize::new(0),
                owner_shared: AtomicUsize::new(0),
                data: Exclusive::new(SlotData::NONE),
            }
        }
    }

    /// Enters a shared slot if it is free.
    #[inline]
    pub fn try_enter_shared(&self, token: usize) -> Option<Held<'_>> {
        self.stop.try_lock(token).then(|| Held { slot: self, how: How::Shared })
    }

    /// The word that says how a thread may enter its slot.
    #[inline(always)]
    pub fn busy(&self) -> i32 {
        // relaxed: of a claimed slot only its owner writes it
        self.busy_shared.load(Ordering::Relaxed)
    }

    /// [`busy`](Slot::busy) of the thread's own first choice, read plainly, which the compiler makes part of a comparison.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn busy_of_own(&self) -> i32 {
        // SAFETY: nobody else writes it: a claimed slot is its owner's, a CPU's has its word since before any thread chose it,
        // and `NO_SLOT`'s is constant.
        unsafe { *self.busy_shared.as_ptr() }
    }

    /// Enters a claimed slot whose owner the caller is. `false`: a signal handler has interrupted its own thread in
    /// there, or the slot is being stopped.
    #[inline(always)]
    pub fn enter_claimed(&self) -> bool {
        self.busy() == IDLE && self.enter_idle()
    }

    /// [`enter_claimed`](Slot::enter_claimed), when [`busy`](Slot::busy) was seen to be [`IDLE`].
    #[inline(always)]
    pub fn enter_idle(&self) -> bool {
        // relaxed: the fence orders it before the look at `stop`
        self.busy_shared.store(BUSY, Ordering::Relaxed);
        super::fence::light();
        if self.is_not_stopped() {
            return true;
        }
        self.leave_claimed();
        false
    }

    /// A look at `stop` behind the light fence.
    #[cfg(any(loom, allotment_portable, not(target_arch = "x86_64")))]
    #[inline(always)]
    fn is_not_stopped(&self) -> bool {
        self.stop.is_free()
    }

    /// A look at `stop` behind the light fence: an acquiring load, as every load of the machine is, that is part of the
    /// comparison. The compiler makes two instructions of an atomic one.
    #[cfg(all(not(any(loom, allotment_portable)), target_arch = "x86_64"))]
    #[inline(always)]
    fn is_not_stopped(&self) -> bool {
        // SAFETY: reads a word that is there. What follows is not moved before it: it is taken to touch memory.
        unsafe {
            core::arch::asm!(
                "cmp qword ptr [{} + {}], 0",
                "jne {}",
                in(reg) self,
                const STOP,
                label { return false },
                options(nostack)
            );
        }
        true
    }

    /// Leaves a claimed slot.
    #[inline(always)]
    pub fn leave_claimed(&self) {
        // pairs: slot::standing - what the operation did
        self.busy_shared.store(IDLE, Ordering::Release);
    }

    /// [`enter_claimed`](Slot::enter_claimed) with a guard.
    #[inline]
    pub fn try_enter_claimed(&self) -> Option<Held<'_>> {
        self.enter_claimed().then(|| Held { slot: self, how: How::Claimed })
    }

    /// The guard of a CPU's slot that a restartable sequence has entered just now.
    #[inline]
    pub fn entered_of_cpu(&self) -> Held<'_> {
        Held { slot: self, how: How::OfCpu }
    }

    /// What a restartable sequence of the CPU sees first, as loom sees the assembly.
    #[cfg(loom)]
    pub fn is_open_to(&self, cpu: usize) -> bool {
        // pairs: slot::start, slot::leave_of_cpu - as there; every load of x86_64 acquires
        self.open_shared.load(Ordering::Acquire) == cpu
    }

    /// The restartable sequence that enters the slot, as loom sees the assembly.
    #[cfg(loom)]
    pub fn try_enter_of_cpu(&self, cpu: usize, token: usize) -> bool {
        let open = self.is_open_to(cpu) && self.stop.is_free();
        if open {
            // A store that may overwrite `SHUT`, as the assembly's may. Loom orders it after that only if it reads it.
            // relaxed: nobody reads the content by it
            self.open_shared.swap(token, Ordering::Relaxed);
        }
        open
    }

    /// Makes a zeroed slot that of a CPU.
    pub fn assign_to_cpu(&self, number: u32, area: isize) {
        // relaxed (all three): published below
        self.area.store(area, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.open_shared.store(number as usize, Ordering::Relaxed);
        // pairs: slot::is_of_cpu - the number and the content
        self.busy_shared.store(OF_CPU, Ordering::Release);
    }

    /// Whether it is a CPU's slot, and may be used as such.
    pub(crate) fn is_of_cpu(&self) -> bool {
        // pairs: slot::assign_to_cpu - as there
        self.busy_shared.load(Ordering::Acquire) == OF_CPU
    }

    fn number(&self) -> usize {
        // relaxed: set once, before the slot was open
        self.number.load(Ordering::Relaxed) as usize
    }

    fn leave_of_cpu(&self) {
        // pairs: slot::standing, and sequences on the CPU - what the operation did
        self.open_shared.store(self.number(), Ordering::Release);
    }

    /// Makes the calling thread the owner of a claimed slot that has none.
    pub fn try_claim(&self, token: usize) -> bool {
        // relaxed: a first look, to spare the others' caches
        self.owner_shared.load(Ordering::Relaxed) == 0
            // pairs: slot::disclaim - what the last owner left in the slot
            && self.owner_shared.compare_exchange(0, token, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Ends its ownership. The caller is the owner and outside, or in a fork's child the only thread.
    pub fn disclaim(&self) {
        #[cfg(allotment_tooth = "disclaim_relaxed")]
        // relaxed: the tooth; loom-tests must notice
        self.owner_shared.store(0, Ordering::Relaxed);
        #[cfg(not(allotment_tooth = "disclaim_relaxed"))]
        // pairs: slot::try_claim - what the owner did
        self.owner_shared.store(0, Ordering::Release);
    }

    /// The owner's token, or 0.
    pub(crate) fn owner(&self) -> usize {
        // relaxed: reliable for the calling thread's own token only
        self.owner_shared.load(Ordering::Relaxed)
    }

    /// Waits for the right to stop the slot, and keeps others out from now on; not those that are inside. An error
    /// when the caller itself is inside a shared slot, or has stopped the slot already.
    pub fn stop(&self, token: usize) -> Result<(), Reentered> {
        self.stop.lock(token)?;
        self.shut();
        Ok(())
    }

    /// Keeps further sequences out of a CPU's slot that is stopped, unless an operation is inside. Those under way are
    /// ended by the fence that has to follow.
    pub fn shut(&self) {
        if self.busy() == OF_CPU {
            let open = self.number();
            // pairs: slot::leave_of_cpu - what the last operation did
            // relaxed: a failure means that an operation is inside
            let _ = self.open_shared.compare_exchange(open, SHUT, Ordering::Acquire, Ordering::Relaxed);
        }
    }

    /// How a stopped slot stands to its users once the fence lies behind.
    pub fn standing(&self) -> Standing {
        if self.busy() == OF_CPU {
            // pairs: slot::leave_of_cpu - as there
            return match self.open_shared.load(Ordering::Acquire) {
                SHUT => Standing::Idle,
                open if open == self.number() => Standing::Open,
                _ => Standing::Entered,
            };
        }
        // pairs: slot::leave_claimed - as there
        match self.busy_shared.load(Ordering::Acquire) {
            IDLE => Standing::Idle,
            _ => Standing::Entered,
        }
    }

    /// Ends a [`stop`](Slot::stop) of the same thread.
    pub fn start(&self) {
        if self.busy() == OF_CPU {
            // An operation that is still inside, after a stop that was given up, opens the slot itself.
            // pairs: sequences on the CPU - what the stopper did
            // relaxed: as above
            let _ = self.open_shared.compare_exchange(SHUT, self.number(), Ordering::Release, Ordering::Relaxed);
        }
        self.stop.unlock();
    }

    /// Whether that thread is inside, or has stopped the slot. Reliable for the calling thread's own token only.
    pub fn is_held_by(&self, token: usize) -> bool {
        // relaxed: only the thread itself ever stores its token, so it cannot miss its own store
        let of_cpu = || self.open_shared.load(Ordering::Relaxed) == token;
        self.stop.is_held_by(token) || of_cpu() || (self.busy() == BUSY && self.owner() == token)
    }

    /// The content.
    ///
    /// # Safety
    /// The calling thread has entered or stopped the slot and holds no other reference to the content.
    #[allow(clippy::mut_from_ref)] // the entry, not the borrow, makes it unique
    #[inline(always)]
    pub unsafe fn data(&self) -> &mut SlotData {
        // SAFETY: the caller's promise.
        unsafe { self.data.with_mut(|data| &mut *data) }
    }

    /// The hot record that a table, [`ALLOCS`] or [`FREES`], has for `size` bytes.
    ///
    /// # Safety
    /// As [`data`](Slot::data); the slot is provided for, and `size` is at most [`FAST_MAX`].
    #[cfg(not(loom))]
    #[allow(clippy::mut_from_ref)] // as above
    #[inline(always)]
    pub(crate) unsafe fn record(&self, table: usize, size: usize) -> &mut Magazines {
        let start = core::ptr::from_ref(self).cast_mut().cast::<u8>();
        // SAFETY: the table lies in the slot and has a byte for each step; what it says is the offset of a record. Both are
        // inside `data`, an `UnsafeCell`, whose use is the caller's.
        unsafe {
            let record = *start.add(table + ((size + 15) >> 4));
            &mut *start.add(8 * usize::from(record)).cast::<Magazines>()
        }
    }
}

/// A slot that is entered; left when dropped.
pub struct Held<'a> {
    slot: &'a Slot,
    how: How,
}

impl Held<'_> {
    /// The content.
    #[inline]
    pub fn data(&mut self) -> &mut SlotData {
        // SAFETY: this guard's thread has entered the slot, and it is borrowed mutably.
        unsafe { self.slot.data() }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.how {
            How::Shared => self.slot.stop.unlock(),
            How::Claimed => self.slot.leave_claimed(),
            How::OfCpu => self.slot.leave_of_cpu(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::charge::stock::Stock;

    #[test]
    fn a_failed_entry_leaves_a_shared_slot_to_its_holder() {
        let slot = Slot::new();
        let held = slot.try_enter_shared(1).expect("a free slot");
        assert!(slot.try_enter_shared(2).is_none());
        assert!(slot.try_enter_shared(3).is_none(), "the failed entry has freed the slot");
        assert_eq!(slot.stop(1), Err(Reentered));
        drop(held);
        assert!(slot.try_enter_shared(2).is_some());
    }

    #[test]
    fn a_claimed_slot_is_entered_once_and_not_while_stopped() {
        let slot = Slot::new();
        assert!(slot.try_claim(7) && !slot.try_claim(8));
        let held = slot.try_enter_claimed().expect("idle");
        assert!(slot.is_held_by(7) && !slot.is_held_by(8) && slot.try_enter_claimed().is_none());
        slot.stop(9).unwrap();
        assert_eq!(slot.standing(), Standing::Entered);
        drop(held);
        assert!(slot.standing() == Standing::Idle && slot.try_enter_claimed().is_none(), "entered while stopped");
        assert_eq!(slot.standing(), Standing::Idle, "the failed entry has left its mark");
        slot.start();
        assert!(slot.try_enter_claimed().is_some());
        slot.disclaim();
        assert!(slot.try_claim(8));
    }

    #[test]
    fn a_cpus_slot_is_shut_by_a_stop_unless_it_is_entered() {
        let slot = Slot::new();
        slot.assign_to_cpu(3, 0);
        slot.stop(9).unwrap();
        assert_eq!(slot.standing(), Standing::Idle);
        slot.start();
        assert_eq!(slot.open_shared.load(Ordering::Relaxed), 3);
        // As a sequence enters it.
        slot.open_shared.store(7, Ordering::Relaxed);
        let held = slot.entered_of_cpu();
        assert!(slot.is_held_by(7));
        slot.stop(9).unwrap();
        assert_eq!(slot.standing(), Standing::Entered);
        drop(held);
        assert_eq!(slot.standing(), Standing::Open);
        slot.shut();
        assert_eq!(slot.standing(), Standing::Idle);
        slot.start();
    }

    #[test]
    fn every_step_finds_the_record_of_its_class() {
        let slot = Slot::new();
        let mut arrays = vec![core::ptr::null_mut(); ARRAY_POINTERS];
        let mut entries = [crate::charge::stock::Entry::default(); 1];
        // SAFETY: the arrays outlive the slot's use here.
        unsafe {
            *slot.data() = SlotData::new(Stock::new(entries.as_mut_ptr(), 1), arrays.as_mut_ptr());
            for size in 0..=FAST_MAX {
                let class = Class::of(size, 1).unwrap();
                let wanted: *const Magazines = &slot.data().magazines[usize::from(class.0)];
                for table in [ALLOCS, FREES] {
                    assert!(core::ptr::eq(slot.record(table, size), wanted), "{size}");
                }
                slot.data().set_eager(true);
                assert!(core::ptr::eq(slot.record(ALLOCS, size), wanted));
                assert!(!slot.record(FREES, size).push(core::ptr::without_provenance_mut(16)), "{size}");
                slot.data().set_eager(false);
            }
            assert!(slot.data().magazines.iter().all(Magazines::is_valid));
        }
    }
}
