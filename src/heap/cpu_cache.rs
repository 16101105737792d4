//! Allocating and freeing small objects on a CPU slot, and without one.
//!
//! In the order in which an allocation looks for an object: the loaded magazine, the previous one, the depot, the
//! slabs; a free goes the same way back. The caller is inside the slot (or the gate) from beginning to end, so a
//! stopped world finds every object in exactly one place.

use super::depot::{self, Full};
use super::size_class::{Class, MAGAZINE_MAX};
use super::slab::{self, mark_live};
use super::tag::{self, Tag};
use crate::charge::counter::{try_charge, uncharge, Refused, Rule, Tree};
use crate::charge::limit::Payer;
use crate::charge::stock::Stock;
use crate::charge::transfer::{credit, pay, transfer};
use crate::charge::{drain as drains, pressure};
use crate::percpu::slot::SlotData;
use crate::percpu::world::Stopped;
use crate::tenant::registry::Registry;

/// Why there is no object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The system has no more memory.
    OutOfMemory,
    /// A charge of so many bytes was refused.
    Refused(Refused, usize),
}

/// The usual allocation: there is an object, and it belongs to `owner` already, or can be paid for from the slot's
/// stock. `None`: it takes more than that.
#[inline(always)]
pub(crate) fn alloc_cached(slot: &mut SlotData, class: Class, owner: Tag) -> Option<*mut u8> {
    let SlotData { magazines, stock, .. } = slot;
    let magazines = &mut magazines[class.0 as usize];
    let object = magazines.peek()?;
    // SAFETY: objects in magazines are slots of slabs of their class; the slot is held.
    unsafe {
        let last = tag::get(class, object);
        if last != owner {
            // As in `transfer`.
            if Registry.is_pressured(last) || !stock.exchange(last, owner, class.charge()) {
                return None;
            }
            tag::set(class, object, owner);
        }
        magazines.drop_top();
        mark_live(class, object);
    }
    Some(object)
}

/// Takes an object for `payer`, moving or making the charge it needs.
pub(crate) fn alloc(slot: &mut SlotData, class: Class, payer: Payer) -> Result<*mut u8, Failure> {
    let SlotData { magazines, stock, .. } = slot;
    let magazines = &mut magazines[class.0 as usize];
    if let Some(object) = magazines.pop() {
        // SAFETY: objects in magazines are slots of slabs of their class; the slot is held.
        unsafe {
            if tag::get(class, object) != payer.id {
                if let Err(refused) = transfer(&Registry, stock, class, object, payer.id, payer.rule) {
                    magazines.push(object);
                    return Err(Failure::Refused(refused, class.charge()));
                }
            }
            mark_live(class, object);
        }
        return Ok(object);
    }
    alloc_slow(slot, class, payer)
}

#[cold]
fn alloc_slow(slot: &mut SlotData, class: Class, payer: Payer) -> Result<*mut u8, Failure> {
    let mut full = Full::empty();
    if depot::take(class, &mut full) {
        take_over(slot, class, &full, payer);
    } else {
        refill(slot, class, payer)?;
    }
    alloc(slot, class, payer)
}

/// Loads a magazine from the depot. One that belongs to one other tenant is paid for at once, if that is possible:
/// else object by object as they are taken.
fn take_over(slot: &mut SlotData, class: Class, full: &Full, payer: Payer) {
    let objects = full.objects(class);
    let bytes = objects.len() * class.charge();
    let single = full.owner != Tag::NONE && full.owner != payer.id;
    let far = payer.rule == Rule::Max && !Registry.is_pressured(payer.id);
    if single && far && pay(&Registry, &mut slot.stock, payer.id, bytes, payer.rule).is_ok() {
        for &object in objects {
            // SAFETY: the magazine is ours since it left the depot.
            unsafe { tag::set(class, object, payer.id) };
        }
        credit(&Registry, &mut slot.stock, full.owner, bytes);
    }
    // Both of the slot's are empty, as the caller's pop has shown: there is room.
    slot.magazines[class.0 as usize].push_all(objects);
}

/// Fills the loaded magazine from the slabs, half of it: frees find room. Charged and tagged at once. Under pressure
/// one object, so that nothing is kept in reserve.
fn refill(slot: &mut SlotData, class: Class, payer: Payer) -> Result<(), Failure> {
    let mut wanted = slot.magazines[class.0 as usize].magazine().div_ceil(2);
    if payer.rule != Rule::Max || Registry.is_pressured(payer.id) {
        wanted = 1;
    }
    let stock = &mut slot.stock;
    let mut paid = pay(&Registry, stock, payer.id, wanted * class.charge(), payer.rule);
    if paid.is_err() && wanted > 1 {
        wanted = 1;
        paid = pay(&Registry, stock, payer.id, class.charge(), payer.rule);
    }
    paid.map_err(|refused| Failure::Refused(refused, class.charge()))?;
    let mut objects = [core::ptr::null_mut(); MAGAZINE_MAX];
    let got = slab::alloc_batch(class, &mut objects[..wanted]);
    if got < wanted {
        credit(&Registry, stock, payer.id, (wanted - got) * class.charge());
    }
    if got == 0 {
        return Err(Failure::OutOfMemory);
    }
    let magazines = &mut slot.magazines[class.0 as usize];
    for &object in &objects[..got] {
        // SAFETY: free slots of slabs of the class, ours since they left the slab.
        unsafe { tag::set(class, object, payer.id) };
        magazines.push(object);
    }
    Ok(())
}

/// Frees an object into the slot.
///
/// # Safety
/// `object` is a live object of `class` that nobody uses any more.
#[inline]
pub(crate) unsafe fn dealloc(slot: &mut SlotData, class: Class, object: *mut u8) {
    if pressure::any() {
        // SAFETY: the caller's promise.
        if unsafe { uncharge_eagerly(class, object) } {
            return;
        }
    } else {
        slot.set_eager(false);
    }
    if !slot.magazines[class.0 as usize].push(object) {
        // SAFETY: the caller's promise.
        unsafe { dealloc_slow(slot, class, object) };
    }
}

/// Under pressure of its owner, moves an object's charge to root, which holds it anyway; under pressure of root
/// itself, gives the object back to its slab: then the answer is `true`.
///
/// # Safety
/// As [`dealloc`].
#[cold]
unsafe fn uncharge_eagerly(class: Class, object: *mut u8) -> bool {
    // SAFETY: the caller's promise.
    let owner = unsafe { tag::get(class, object) };
    if !pressure::is_pressured(owner) {
        return false;
    }
    if pressure::is_pressured(Tag::ROOT) {
        // SAFETY: the caller's promise.
        unsafe { dealloc_without_slot(class, object) };
        return true;
    }
    // SAFETY: the caller's promise.
    unsafe { tag::set(class, object, Tag::ROOT) };
    uncharge(&Registry, owner, class.charge(), Some(Tag::ROOT));
    false
}

/// # Safety
/// As [`dealloc`].
#[cold]
unsafe fn dealloc_slow(slot: &mut SlotData, class: Class, object: *mut u8) {
    make_room(slot, class);
    if !slot.magazines[class.0 as usize].push(object) {
        // SAFETY: the caller's promise.
        unsafe { dealloc_without_slot(class, object) };
    }
}

/// Empties the previous magazine: into the depot, else into the slabs.
fn make_room(slot: &mut SlotData, class: Class) {
    let SlotData { magazines, stock, .. } = slot;
    let magazines = &mut magazines[class.0 as usize];
    let Some(objects) = magazines.previous() else { return };
    // SAFETY: objects in magazines are slots of slabs of their class; the slot is held.
    let first = unsafe { tag::get(class, objects[0]) };
    // SAFETY: as above.
    let single = objects.iter().all(|&object| unsafe { tag::get(class, object) } == first);
    if !depot::put(class, objects, if single { first } else { Tag::NONE }) {
        flush(stock, class, objects);
    }
    magazines.clear_previous();
}

/// Credits the owners of cached objects and gives the objects back to their slabs.
fn flush(stock: &mut Stock, class: Class, objects: &[*mut u8]) {
    // SAFETY: cached objects of the class that the caller has taken out of every magazine or is about to.
    unsafe {
        drains::runs(class, objects, |owner, run| credit(&Registry, stock, owner, run.len() * class.charge()));
        slab::free_batch(class, objects);
    }
}

/// Takes an object straight from the slabs, charged exactly. The caller is inside the gate or a slot.
#[cold]
pub(crate) fn alloc_without_slot(class: Class, payer: Payer) -> Result<*mut u8, Failure> {
    try_charge(&Registry, payer.id, class.charge(), payer.rule)
        .map_err(|refused| Failure::Refused(refused, class.charge()))?;
    let mut object = [core::ptr::null_mut()];
    if slab::alloc_batch(class, &mut object) == 0 {
        uncharge(&Registry, payer.id, class.charge(), None);
        return Err(Failure::OutOfMemory);
    }
    // SAFETY: a free slot of a slab of the class, ours since it left the slab.
    unsafe {
        tag::set(class, object[0], payer.id);
        mark_live(class, object[0]);
    }
    Ok(object[0])
}

/// Gives an object straight back to its slab. The caller is inside the gate or a slot.
///
/// # Safety
/// As [`dealloc`].
#[cold]
pub(crate) unsafe fn dealloc_without_slot(class: Class, object: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        let owner = tag::get(class, object);
        slab::free_batch(class, &[object]);
        uncharge(&Registry, owner, class.charge(), None);
    }
}

/// Takes the charges of a subtree's cached objects back; a drain of root gives the objects themselves back.
pub(crate) fn drain(tenant: Tag, stopped: &mut Stopped) {
    let give_back = |class: Class, objects: &[*mut u8]| {
        // SAFETY: the world is stopped; these are cached objects of the class.
        unsafe {
            if tenant != Tag::ROOT {
                return drains::disown(&Registry, class, objects, tenant);
            }
            drains::runs(class, objects, |owner, run| {
                uncharge(&Registry, owner, run.len() * class.charge(), None);
            });
            slab::free_batch(class, objects);
        }
    };
    for slot in stopped.slots() {
        for class in Class::all() {
            let magazines = &mut slot.magazines[class.0 as usize];
            give_back(class, magazines.objects());
            if tenant == Tag::ROOT {
                magazines.clear();
            }
        }
    }
    for class in Class::all() {
        if tenant == Tag::ROOT {
            let mut full = Full::empty();
            while depot::take(class, &mut full) {
                give_back(class, full.objects(class));
            }
            continue;
        }
        depot::each(class, |full| {
            let single = full.owner != Tag::NONE;
            if !single || drains::is_within(&Registry, full.owner, tenant) {
                give_back(class, full.objects(class));
                full.owner = if single { Tag::ROOT } else { Tag::NONE };
            }
        });
    }
}
