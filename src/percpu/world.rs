//! All slots and the gate: entering one of them, and stopping them all.
//!
//! The order of locks, first to last: stop, slots by number, gate, adoptions, depot, bins, page heap, huge objects,
//! registry of tenants, arena. An operation holds one slot or the gate and takes later ones; of the last six at most
//! two at a time, the arena being the second.

use core::ptr::NonNull;

use crossbeam_utils::CachePadded;

use super::gate::Gate;
use super::slot::{Held, Slot, SlotData};
use super::topology::{self, MAX_SLOTS};
use crate::charge::scope::{self, AtGate};
use crate::charge::stock::{Entry as StockEntry, Stock};
use crate::heap::arena;
use crate::heap::os::os;
use crate::life::{fork, reentry};
use crate::sync::backoff::Backoff;
use crate::sync::owner_lock::OwnerLock;
use crate::tenant::registry::MAX_TENANTS;

static SLOTS: [CachePadded<Slot>; MAX_SLOTS] = [const { CachePadded::new(Slot::new()) }; MAX_SLOTS];
static GATE: Gate = Gate::new();
static STOP: OwnerLock = OwnerLock::new();

/// Bytes mapped for one slot's stocks; touched where a tenant is served.
const STOCK_BYTES: usize = MAX_TENANTS * size_of::<StockEntry>();

/// Where an operation runs.
pub(crate) enum Entry {
    /// On this slot.
    Slot(Held<'static>),
    /// On none: every slot is busy, or there is no memory for one.
    Gate(#[allow(dead_code)] Inside),
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
        scope::set_at_gate(AtGate::Between);
        GATE.leave();
        scope::set_at_gate(self.before);
    }
}

/// Enters the slot this thread used last, else another, else the gate. Waits only while the world is stopped.
#[inline]
pub(crate) fn enter() -> Entry {
    if let Some(slot) = SLOTS.get(scope::slot_hint() as usize) {
        if let Some(mut held) = slot.try_enter(reentry::token()) {
            if held.data().is_some() {
                return Entry::Slot(held);
            }
        }
    }
    enter_other()
}

#[cold]
fn enter_other() -> Entry {
    let slots = topology::slots();
    let token = reentry::token();
    let mut backoff = Backoff::new();
    loop {
        let hint = match scope::slot_hint() {
            u32::MAX => {
                fork::register();
                topology::first_hint()
            }
            hint => hint,
        };
        for step in 0..slots {
            let place = (hint as usize + step) % slots;
            if let Some(mut held) = SLOTS[place].try_enter(token) {
                if held.data().is_none() && !provide(&held) {
                    continue;
                }
                scope::set_slot_hint(place as u32);
                return Entry::Slot(held);
            }
        }
        if let Some(inside) = enter_gate() {
            return Entry::Gate(inside);
        }
        wait_for_start(&mut backoff);
    }
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
    let before = scope::at_gate();
    match before {
        AtGate::Inside => GATE.enter_again(),
        AtGate::Between => {
            if !GATE.try_enter() {
                reentry::die("re-entered from a signal handler while the thread waited for a stop of the world");
            }
        }
        AtGate::Outside => {
            scope::set_at_gate(AtGate::Between);
            let entered = GATE.try_enter();
            scope::set_at_gate(if entered { AtGate::Inside } else { AtGate::Outside });
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

/// Makes a slot's content. `false`: out of memory.
#[cold]
fn provide(held: &Held<'_>) -> bool {
    let Some(stock) = os().map(STOCK_BYTES.next_multiple_of(os().page_size()), os().page_size()) else { return false };
    let Some(data) = arena::alloc(size_of::<SlotData>(), 64) else {
        // SAFETY: mapped just now and used by nobody.
        unsafe { os().unmap(stock, STOCK_BYTES.next_multiple_of(os().page_size())) };
        return false;
    };
    let data: NonNull<SlotData> = data.cast();
    // SAFETY: the array is zeroed, and the slot's alone.
    let stock = unsafe { Stock::new(stock.as_ptr().cast(), MAX_TENANTS) };
    // SAFETY: the memory is ours, large and aligned enough.
    unsafe { data.write(SlotData::new(stock)) };
    // SAFETY: `held` holds the slot, which had no content; arena memory lives for ever.
    unsafe { held.slot().provide(data) };
    true
}

/// Whether this thread is inside a slot or the gate, or on its threshold: then this is a signal handler that interrupted
/// it there. Whatever waits for others from here would have them wait for this thread in turn (hazard B17).
fn is_inside(token: usize) -> bool {
    scope::at_gate() != AtGate::Outside || SLOTS[..topology::slots()].iter().any(|slot| slot.is_held_by(token))
}

/// Calls `each` with the content of one slot after another, waiting for each; not at all from a signal handler that
/// interrupted an operation.
pub(crate) fn each_slot(mut each: impl FnMut(&mut SlotData)) {
    let token = reentry::token();
    if is_inside(token) {
        return;
    }
    for slot in &SLOTS[..topology::slots()] {
        hold(slot, token);
        // SAFETY: the slot is held.
        if let Some(data) = unsafe { slot.data() } {
            each(data);
        }
        slot.leave();
    }
}

/// Waits for a slot. The calling thread is inside none.
fn hold(slot: &Slot, token: usize) {
    if slot.wait(token).is_err() {
        reentry::die("a thread waits for a slot that it is inside of");
    }
}

/// The world at a stop: no operation is under way anywhere. Starts again when dropped.
pub(crate) struct Stopped(());

/// Stops the world. `None`: the calling thread is itself inside an operation, or has stopped the world itself,
/// interrupted by a signal.
pub(crate) fn stop() -> Option<Stopped> {
    let token = reentry::token();
    if is_inside(token) {
        return None;
    }
    STOP.lock(token).ok()?;
    for slot in &SLOTS[..topology::slots()] {
        hold(slot, token);
    }
    GATE.close();
    Some(Stopped(()))
}

impl Stopped {
    /// The content of every slot that has any.
    pub(crate) fn slots(&mut self) -> impl Iterator<Item = &mut SlotData> {
        // SAFETY: the stop holds every slot, is borrowed mutably, and hands out each content once.
        SLOTS[..topology::slots()].iter().filter_map(|slot| unsafe { slot.data() })
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        GATE.open();
        for slot in &SLOTS[..topology::slots()] {
            slot.leave();
        }
        STOP.unlock();
    }
}

/// Bytes mapped for the stocks of slots that exist.
pub(crate) fn stock_footprint(stopped: &mut Stopped) -> usize {
    stopped.slots().count() * STOCK_BYTES
}
