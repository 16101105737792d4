//! The fast path: an object of at most [`FAST_MAX`] bytes from the thread's own slot or its CPU's, inlined into the
//! program's `__rust_alloc` and `__rust_dealloc`.
//!
//! Everything here either succeeds without a call or goes on, by a tail call, in `request.rs`, which does the same again
//! with all the cases there are. A slot of the thread's own is tried in Rust, a CPU's by a restartable sequence in
//! assembly; a thread that has neither has [`NO_SLOT`](crate::percpu::slot::NO_SLOT), which is always busy, so that
//! there is no third test. `ci/fast_path.sh` counts the instructions.
//!
//! A free of a thread that shares the slot with nobody needs no look at any header: the size class comes from the
//! layout, and the object's charge stays where it is.

use core::alloc::Layout;

use super::request;
use super::size_class::{Class, FAST_MAX, FAST_SLAB, TAGS, TAG_BYTES};
use super::slab::{self, HARDENED};
use crate::charge::pressure;
use crate::life::thread_words::tenant;
use crate::percpu::rseq;
use crate::percpu::slot::{BUSY, IDLE, OF_CPU};
use crate::percpu::world::own_slot;

/// Whether a layout is served here. Classes serve alignments up to 16 by their sizes alone.
#[inline(always)]
fn is_fast(layout: Layout) -> bool {
    layout.size() <= FAST_MAX && layout.align() <= 16
}

/// The step of sizes: see [`record`](crate::percpu::slot::Slot::record).
#[inline(always)]
fn step(layout: Layout) -> usize {
    (layout.size() + 15) / 16
}

/// The tag of an object that is served here; its class's shift is known.
///
/// # Safety
/// A slot of a slab of a class up to [`FAST_MAX`].
#[inline(always)]
unsafe fn tag_of(object: *mut u8, shift: u8) -> u16 {
    let address = object as usize;
    let index = (address & (FAST_SLAB - 1)) >> (shift & 31);
    let tag = (address & !(FAST_SLAB - 1)) + TAGS + TAG_BYTES * index;
    // SAFETY: as in `tag::word`, of which this is the special case.
    let word = unsafe { core::sync::atomic::AtomicU16::from_ptr(core::ptr::with_exposed_provenance_mut(tag)) };
    // relaxed: as in `tag::get`
    word.load(core::sync::atomic::Ordering::Relaxed)
}

/// `GlobalAlloc::alloc`.
#[inline(always)]
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    if !is_fast(layout) {
        return request::allocate(layout);
    }
    let slot = own_slot();
    match slot.busy() {
        IDLE => {
            if !slot.enter_claimed() {
                return request::allocate(layout);
            }
            // SAFETY: the slot is entered, and a claimed slot is provided for.
            let record = unsafe { slot.record(step(layout)) };
            if let Some(object) = record.peek() {
                // SAFETY: objects in magazines are slots of slabs of their class.
                if unsafe { tag_of(object, record.shift()) } == tenant() {
                    // SAFETY: there is an object.
                    unsafe { record.drop_top() };
                    mark_live(layout, object);
                    slot.leave_claimed();
                    return object;
                }
            }
            slot.leave_claimed();
            request::allocate(layout)
        }
        OF_CPU => {
            // SAFETY: a CPU's slot was opened before it was any thread's choice.
            let object = unsafe { rseq::pop(slot, step(layout), tenant()) };
            if object.is_null() {
                return request::allocate(layout);
            }
            mark_live(layout, object);
            object
        }
        BUSY.. => request::allocate(layout),
    }
}

/// In hardened builds: see [`slab::mark_live`].
#[inline(always)]
fn mark_live(layout: Layout, object: *mut u8) {
    if HARDENED {
        if let Some(class) = Class::of(layout.size(), layout.align()) {
            // SAFETY: the object was taken from a magazine of its class.
            unsafe { slab::mark_live(class, object) };
        }
    }
}

/// `GlobalAlloc::dealloc`.
///
/// # Safety
/// `object` was allocated here with this layout, and nobody uses it any more.
#[inline(always)]
pub(crate) unsafe fn deallocate(object: *mut u8, layout: Layout) {
    // Hardened builds check each free, where there is room for it.
    if !is_fast(layout) || pressure::any() || HARDENED {
        // SAFETY: the caller's promise.
        return unsafe { request::deallocate(object, layout) };
    }
    let slot = own_slot();
    let freed = match slot.busy() {
        IDLE => {
            slot.enter_claimed() && {
                // SAFETY: the slot is entered, and a claimed slot is provided for.
                let freed = unsafe { slot.record(step(layout)) }.push(object);
                slot.leave_claimed();
                freed
            }
        }
        // SAFETY: a CPU's slot was opened before it was any thread's choice; the object is the caller's to give.
        OF_CPU => unsafe { rseq::push(slot, step(layout), object) },
        BUSY.. => false,
    };
    if !freed {
        // SAFETY: the caller's promise.
        unsafe { request::deallocate(object, layout) }
    }
}
