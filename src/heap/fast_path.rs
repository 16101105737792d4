//! The fast path: an object of at most [`FAST_MAX`] bytes from the thread's own slot or its CPU's, inlined into the
//! program's `__rust_alloc` and `__rust_dealloc`.
//!
//! Everything here either succeeds without a call or goes on, by a tail call, in `request.rs`, which does the same again
//! with all the cases there are. A slot of the thread's own is tried in Rust, a CPU's by a restartable sequence in
//! assembly; a thread that has neither has [`NO_SLOT`](crate::percpu::slot::NO_SLOT), which is always busy, so that
//! there is no third test. What is not served here goes to different functions for different reasons: else the compiler
//! makes one condition of two, which takes more instructions. `ci/fast_path.sh` counts them.
//!
//! A free needs no look at any header: the size class comes from the layout, and the object's charge stays where it is.
//! Nor does it ask whether a tenant is under pressure, when charges do not stay: then the slot's table names no magazine
//! that has room.

use core::alloc::Layout;

use super::request;
use super::size_class::{Class, FAST_MAX, FAST_SLAB, TAGS, TAG_BYTES};
use super::slab::{self, HARDENED};
use crate::life::thread_words::tenant;
use crate::percpu::rseq;
use crate::percpu::slot::{ALLOCS, FREES, IDLE};
use crate::percpu::world::own_slot;

/// [`tag_of`] takes an object's place in its slab from sixteen bits of its address.
const _: () = assert!(FAST_SLAB == 1 << 16);

/// Classes serve alignments up to this by their sizes alone.
const FAST_ALIGN: usize = 16;

/// The tag of a cached object that is served here; its class's shift is known.
///
/// # Safety
/// A slot of a slab of a class up to [`FAST_MAX`], in a magazine of a slot that the caller has entered.
#[inline(always)]
unsafe fn tag_of(object: *mut u8, shift: u8) -> u16 {
    let address = object as usize;
    let index = u32::from(address as u16).wrapping_shr(u32::from(shift));
    let tag = (address & !(FAST_SLAB - 1)) + TAGS + TAG_BYTES * index as usize;
    // SAFETY: the word of `tag::word`, of which this is the special case. Read plainly, which the compiler makes part of a
    // comparison: while an object is cached, only whoever has entered its slot writes its tag.
    unsafe { core::ptr::with_exposed_provenance::<u16>(tag).read() }
}

/// `GlobalAlloc::alloc`.
#[inline(always)]
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    let (size, align) = (layout.size(), layout.align());
    if size > FAST_MAX {
        return request::allocate_bigger(size, align);
    }
    if align > FAST_ALIGN {
        return request::allocate_aligned(size, align);
    }
    let slot = own_slot();
    let busy = slot.busy_of_own();
    if busy < IDLE {
        // SAFETY: a CPU's slot was opened before it was any thread's choice; the size was looked at.
        let object = unsafe { rseq::pop(slot, size, tenant()) };
        if object.is_null() {
            return request::allocate(size, align);
        }
        return mark_live(layout, object);
    }
    if busy > IDLE {
        return request::allocate(size, align);
    }
    if slot.enter_idle() {
        // SAFETY: the slot is entered, and a claimed slot is provided for.
        let record = unsafe { slot.record(ALLOCS, size) };
        if let Some(object) = record.peek() {
            let tenant = tenant();
            // SAFETY: objects in magazines are slots of slabs of their class; the slot is entered.
            if tenant == unsafe { tag_of(object, record.shift()) } {
                // SAFETY: there is an object.
                unsafe { record.drop_top() };
                slot.leave_claimed();
                return mark_live(layout, object);
            }
        }
        slot.leave_claimed();
    }
    request::allocate(size, align)
}

/// In hardened builds: see [`slab::mark_live`].
#[inline(always)]
fn mark_live(layout: Layout, object: *mut u8) -> *mut u8 {
    if HARDENED {
        if let Some(class) = Class::of(layout.size(), layout.align()) {
            // SAFETY: the object was taken from a magazine of its class.
            unsafe { slab::mark_live(class, object) };
        }
    }
    object
}

/// `GlobalAlloc::dealloc`.
///
/// # Safety
/// `object` was allocated here with this layout, and nobody uses it any more.
#[inline(always)]
pub(crate) unsafe fn deallocate(object: *mut u8, layout: Layout) {
    let (size, align) = (layout.size(), layout.align());
    if size > FAST_MAX {
        // SAFETY: the caller's promise.
        return unsafe { request::deallocate_bigger(object, size, align) };
    }
    // Hardened builds check each free, where there is room for it.
    if align > FAST_ALIGN || HARDENED {
        // SAFETY: the caller's promise.
        return unsafe { request::deallocate_aligned(object, size, align) };
    }
    let slot = own_slot();
    let busy = slot.busy_of_own();
    if busy < IDLE {
        // SAFETY: a CPU's slot was opened before it was any thread's choice; the object is the caller's to give.
        if !unsafe { rseq::push(slot, size, object) } {
            // SAFETY: the caller's promise.
            unsafe { request::deallocate(object, size, align) };
        }
        return;
    }
    if busy > IDLE {
        // SAFETY: the caller's promise.
        return unsafe { request::deallocate(object, size, align) };
    }
    if slot.enter_idle() {
        // SAFETY: the slot is entered, and a claimed slot is provided for.
        let freed = unsafe { slot.record(FREES, size) }.push(object);
        slot.leave_claimed();
        if freed {
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { request::deallocate(object, size, align) }
}
