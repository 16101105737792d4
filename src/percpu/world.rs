//! All slots and the gate: entering one of them, and stopping them all.
//!
//! The order of locks, first to last: stop, slots by number, gate, adoptions, depot, bins, page heap, huge objects,
//! registry of tenants, arena. An operation holds one slot or the gate and takes later ones; of the last six at most
//! two at a time, the arena being the second. Slots come into being inside the gate, so that whoever has closed it knows
//! all there are. It is closed last, when no thread is inside a slot: one that is may be interrupted by a signal handler,
//! which finds its slot busy and needs the gate.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::claim::{self, MAX_CLAIMS};
use super::fence::{self, Against};
use super::gate::Gate;
use super::mode::{self, Mode};
use super::rseq;
use super::slot::{Held, Slot, SlotData, Standing, ARRAY_POINTERS, IDLE, OF_CPU};
use super::topology::{self, MAX_SHARED};
use crate::charge::pressure;
use crate::charge::stock::{Entry as StockEntry, Stock};
use crate::heap::arena;
use crate::heap::os::os;
use crate::life::thread_words::{words, AtGate, Claim};
use crate::life::{fork, reentry};
use crate::sync::backoff::Backoff;
use crate::sync::owner_lock::OwnerLock;
use crate::tenant::registry::MAX_TENANTS;

/// CPUs with slots of their own: those with lower numbers.
const MAX_CPUS: usize = 256;

static SHARED: [Slot; MAX_SHARED] = [const { Slot::new() }; MAX_SHARED];
static OF_CPUS: [Slot; MAX_CPUS] = [const { Slot::new() }; MAX_CPUS];
static CLAIMED: [Slot; MAX_CLAIMS] = [const { Slot::new() }; MAX_CLAIMS];
/// CPUs' slots from here on were never used.
static HIGH_CPU: AtomicUsize = AtomicUsize::new(0);
/// Claimed slots from here on were never used.
static HIGH_CLAIM: AtomicUsize = AtomicUsize::new(0);

static GATE: Gate = Gate::new();
static STOP: OwnerLock = OwnerLock::new();

/// Bytes mapped for one slot's stocks; touched where a tenant is served.
const STOCK_BYTES: usize = MAX_TENANTS * size_of::<StockEntry>();

/// How many slots there are.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Slots {
    shared: usize,
    cpus: usize,
    claims: usize,
}

impl Slots {
    const NONE: Slots = Slots { shared: 0, cpus: 0, claims: 0 };

    /// All that may ever have been entered. No more are made while the gate is closed.
    fn existing() -> Slots {
        // relaxed (both): ordered by the gate where completeness matters
        let (cpus, claims) = (HIGH_CPU.load(Ordering::Relaxed), HIGH_CLAIM.load(Ordering::Relaxed));
        Slots { shared: topology::shared_slots(), cpus, claims }
    }

    fn iter(self) -> impl Iterator<Item = &'static Slot> {
        self.beyond(Slots::NONE)
    }

    /// Those that are not among `others`, which were fewer.
    fn beyond(self, others: Slots) -> impl Iterator<Item = &'static Slot> {
        let cpus = OF_CPUS[others.cpus..self.cpus].iter();
        SHARED[others.shared..self.shared].iter().chain(cpus).chain(&CLAIMED[others.claims..self.claims])
    }
}

/// Slots that may hold something.
pub(crate) fn slots() -> usize {
    Slots::existing().iter().count()
}

/// Where an operation runs.
pub(crate) enum Entry {
    /// On this slot.
    Slot(Held<'static>),
    /// On none: every slot is busy, or there is no memory for one.
    Gate(#[allow(dead_code)] Inside),
}

/// Notes where this thread stands, in program order with what comes before and after as its signal handlers see it.
#[inline]
fn set_at_gate(at: AtGate) {
    // pairs: itself - no other thread reads the word; the fences keep the compiler from moving the count past it
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    words().gate.set(at);
    // pairs: as above
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Inside the gate until dropped.
pub(crate) struct Inside {
    /// Where the thread stood before: a signal handler may go in while its thread is inside.
    before: AtGate,
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.before == AtGate::Inside {
            return GATE.leave();
        }
        set_at_gate(AtGate::Between);
        GATE.leave();
        set_at_gate(self.before);
    }
}

/// The slot that is this thread's first choice.
#[inline(always)]
pub(crate) fn own_slot() -> &'static Slot {
    // SAFETY: the word always points to a static slot.
    unsafe { &*crate::life::thread_words::slot() }
}

/// Enters the thread's own slot or its CPU's, else a shared one, else the gate. Waits only while the world is stopped.
#[inline]
pub(crate) fn enter() -> Entry {
    match try_enter(own_slot()) {
        Some(held) => Entry::Slot(held),
        None => enter_other(),
    }
}

/// Enters a slot that is the thread's first choice.
#[inline]
pub(crate) fn try_enter(slot: &'static Slot) -> Option<Held<'static>> {
    match slot.busy() {
        IDLE => slot.try_enter_claimed(),
        OF_CPU => rseq::enter(slot, reentry::token()).then(|| slot.entered_of_cpu()),
        _ => enter_shared_slot_again(),
    }
}

/// Enters the shared slot this thread used last, if nobody is inside, and if the thread can have no other kind at this
/// time. A thread that has not asked for one yet has used none.
#[inline(never)]
fn enter_shared_slot_again() -> Option<Held<'static>> {
    let words = words();
    let only_shared = match mode::get() {
        Mode::Locked => true,
        Mode::Threads => words.claim.get() != Claim::None || !claim::may_ask(),
        Mode::Rseq => false,
    };
    if !only_shared {
        return None;
    }
    // What it has used is provided for.
    SHARED.get(usize::from(words.shared.get()))?.try_enter_shared(reentry::token())
}

#[cold]
fn enter_other() -> Entry {
    let token = reentry::token();
    let mut backoff = Backoff::new();
    loop {
        if let Some(held) = choose().and_then(try_enter).or_else(|| enter_shared_slot(token)) {
            return Entry::Slot(held);
        }
        if let Some(inside) = enter_gate() {
            return Entry::Gate(inside);
        }
        wait_for_start(&mut backoff);
    }
}

/// Makes another slot the thread's first choice, if there is one that it may have.
#[inline]
fn choose() -> Option<&'static Slot> {
    let words = words();
    if words.claim.get() == Claim::Unasked {
        // A signal handler that comes in between does not ask.
        words.claim.set(Claim::None);
        fork::register();
    }
    match mode::get() {
        Mode::Rseq => {
            let slot = cpu_slot(rseq::cpu()?)?;
            words.slot.set(slot);
            Some(slot)
        }
        // One that has a slot is here because it is busy, or being stopped.
        Mode::Threads if words.claim.get() == Claim::None && claim::may_ask() => {
            let _inside = enter_gate()?;
            // A signal handler that comes in between is not to claim one too.
            words.claim.set(Claim::Over);
            let claimed = claim::claim(&CLAIMED, &HIGH_CLAIM);
            if claimed.is_none() {
                words.claim.set(Claim::None);
            }
            claimed
        }
        Mode::Threads | Mode::Locked => None,
    }
}

/// The slot of a CPU, made when it is first asked for.
fn cpu_slot(cpu: u32) -> Option<&'static Slot> {
    let slot = OF_CPUS.get(cpu as usize)?;
    if slot.is_of_cpu() {
        return Some(slot);
    }
    let _inside = enter_gate()?;
    // pairs: Slots::existing - by the gate, which the stopper closes first
    HIGH_CPU.fetch_max(cpu as usize + 1, Ordering::Relaxed);
    // One thread at a time.
    let _held = slot.try_enter_shared(reentry::token())?;
    if !slot.is_of_cpu() {
        if !provide(slot) {
            return None;
        }
        slot.assign_to_cpu(cpu, rseq::area());
    }
    Some(slot)
}

/// Enters the shared slot this thread used last, or another.
fn enter_shared_slot(token: usize) -> Option<Held<'static>> {
    let words = words();
    let hint = match words.shared.get() {
        u16::MAX => topology::first_hint() as usize,
        hint => usize::from(hint),
    };
    let slots = topology::shared_slots();
    for step in 0..slots {
        let place = (hint + step) % slots;
        if let Some(mut held) = SHARED[place].try_enter_shared(token) {
            if !held.data().is_provided() && !provide(&SHARED[place]) {
                continue;
            }
            words.shared.set(place as u16);
            return Some(held);
        }
    }
    None
}

/// Waits while the world is stopped. Whoever has stopped it itself, and is here by a signal, would wait for ever.
fn wait_for_start(backoff: &mut Backoff) {
    if STOP.is_held_by(reentry::token()) {
        reentry::die("re-entered from a signal handler while the thread had stopped the world");
    }
    backoff.wait();
}

/// Goes in unless the gate is closed.
///
/// A signal handler whose thread is inside already must not wait for the gate to open: whoever closed it waits for that
/// thread. It goes in at once; the closer waits for both. One that interrupted its thread on the threshold cannot know
/// which is the case, and ends the process rather than hang (hazard B17).
fn enter_gate() -> Option<Inside> {
    let before = words().gate.get();
    match before {
        AtGate::Inside => GATE.enter_again(),
        AtGate::Between => {
            if !GATE.try_enter() {
                reentry::die("re-entered from a signal handler while the thread waited for a stop of the world");
            }
        }
        AtGate::Outside => {
            set_at_gate(AtGate::Between);
            let entered = GATE.try_enter();
            set_at_gate(if entered { AtGate::Inside } else { AtGate::Outside });
            return entered.then(|| Inside { before });
        }
    }
    Some(Inside { before })
}

/// Enters the gate, waiting while the world is stopped: for operations that need no slot but must not be half done
/// when the world stops. The calling thread is inside neither a slot nor the gate.
pub(crate) fn enter_shared() -> Inside {
    let mut backoff = Backoff::new();
    loop {
        if let Some(inside) = enter_gate() {
            return inside;
        }
        wait_for_start(&mut backoff);
    }
}

/// Makes a slot's content. `false`: out of memory. The caller has sole use of the slot, which has none.
#[cold]
pub(crate) fn provide(slot: &Slot) -> bool {
    let bytes = STOCK_BYTES.next_multiple_of(os().page_size());
    let Some(stock) = os().map(bytes, os().page_size()) else { return false };
    let Some(arrays) = arena::alloc(ARRAY_POINTERS * size_of::<*mut u8>(), 64) else {
        // SAFETY: mapped just now and used by nobody.
        unsafe { os().unmap(stock, bytes) };
        return false;
    };
    // SAFETY: the entries are zeroed and the slot's alone; so are the arrays, which live for ever as arena memory does; the
    // caller has sole use of the slot.
    unsafe {
        let stock = Stock::new(stock.as_ptr().cast(), MAX_TENANTS);
        *slot.data() = SlotData::new(stock, NonNull::as_ptr(arrays).cast());
        slot.data().set_eager(pressure::any());
    }
    true
}

/// Whether this thread is inside a slot or the gate, or on its threshold: then this is a signal handler that interrupted
/// it there. Whatever waits for others from here would have them wait for this thread in turn (hazard B17).
fn is_inside(token: usize) -> bool {
    words().gate.get() != AtGate::Outside || Slots::existing().iter().any(|slot| slot.is_held_by(token))
}

/// The world at a stop: no operation is under way anywhere. Starts again when dropped.
pub(crate) struct Stopped(Slots);

/// Stops the world. `None`: the calling thread is itself inside an operation, or has stopped the world itself,
/// interrupted by a signal; or the kernel refuses the fence, which it did not when the mode was decided.
pub(crate) fn stop() -> Option<Stopped> {
    let token = reentry::token();
    if is_inside(token) {
        return None;
    }
    STOP.lock(token).ok()?;
    let mut stopped = Slots::NONE;
    loop {
        let all = Slots::existing();
        for slot in all.beyond(stopped) {
            if slot.stop(token).is_err() {
                reentry::die("a thread waits for a slot that it is inside of");
            }
        }
        stopped = all;
        if !wait_for_operations(stopped) {
            start(stopped);
            return None;
        }
        GATE.close();
        if Slots::existing() == stopped {
            let mut stopped = Stopped(stopped);
            let eager = pressure::any();
            stopped.slots().for_each(|data| data.set_eager(eager));
            return Some(stopped);
        }
        // One was made meanwhile, inside the gate.
        GATE.open();
    }
}

/// Waits until slots, whose further use is barred, are idle. `false`: the kernel refuses the fence.
fn wait_for_operations(slots: Slots) -> bool {
    loop {
        if (slots.claims > 0 && !fence::heavy(Against::Threads))
            || (slots.cpus > 0 && !fence::heavy(Against::Sequences))
        {
            return false;
        }
        let mut again = false;
        for slot in slots.iter() {
            let mut backoff = Backoff::new();
            loop {
                match slot.standing() {
                    Standing::Idle => break,
                    Standing::Entered => backoff.wait(),
                    Standing::Open => {
                        slot.shut();
                        again = true;
                        break;
                    }
                }
            }
        }
        if !again {
            return true;
        }
    }
}

fn start(slots: Slots) {
    slots.iter().for_each(Slot::start);
    STOP.unlock();
}

impl Stopped {
    /// The content of every slot that has any.
    pub(crate) fn slots(&mut self) -> impl Iterator<Item = &mut SlotData> {
        // SAFETY: the stop holds every slot, is borrowed mutably, and hands out each content once.
        self.0.iter().map(|slot| unsafe { slot.data() }).filter(|data| data.is_provided())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        GATE.open();
        start(self.0);
    }
}

/// In a fork's child, with the world at a stop: other threads are not here, nor are their attempts to enter, which leave
/// a mark until they are turned away.
pub(crate) fn after_fork() {
    GATE.forget_others();
    claim::after_fork(&CLAIMED);
}

/// Bytes mapped for the stocks of slots that exist.
pub(crate) fn stock_footprint(stopped: &mut Stopped) -> usize {
    stopped.slots().count() * STOCK_BYTES
}
