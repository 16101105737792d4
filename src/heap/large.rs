//! Large objects: more than 64 KiB, or aligned to more. Charged in whole units of 8 KiB.
//!
//! Up to [`SPAN_MAX`] they are spans of the page heap; beyond, or aligned beyond that, they are *huge*
//! (`heap/huge.rs`).

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, Ordering};

use super::huge::Huge;
use super::page_heap;
use super::segment::{self, Kind, Place, SEGMENT, UNIT, UNITS};
use super::slab::HARDENED;
use super::tag::Tag;
use crate::charge::counter::MAX_BYTES;
use crate::life::reentry;

/// The largest object that is a span of a segment; half a segment, so that two fit.
pub(crate) const SPAN_MAX: usize = SEGMENT / 2;
/// The largest alignment, as documented.
pub(crate) const MAX_ALIGN: usize = 1 << 30;

const _: () = assert!(SPAN_MAX <= UNITS * UNIT && SPAN_MAX.is_multiple_of(UNIT));

/// Bytes of a request in whole units; `None`: more than any address space holds.
pub(crate) fn rounded(size: usize) -> Option<usize> {
    size.max(1).checked_next_multiple_of(UNIT).filter(|&bytes| bytes <= MAX_BYTES)
}

/// A new large object of `bytes` (rounded), charged to `owner` already. `true` beside it: it reads as zero.
pub(crate) fn alloc(bytes: usize, align: usize, owner: Tag) -> Option<(NonNull<u8>, bool)> {
    if align > MAX_ALIGN {
        return None;
    }
    if bytes <= SPAN_MAX && align <= SPAN_MAX {
        let units = align.div_ceil(UNIT).max(1);
        let span = page_heap::alloc(bytes / UNIT, units, Kind::Large, 0, owner)?;
        return Some((span.start, span.fresh));
    }
    let (huge, zeroed) = Huge::alloc(bytes, align, owner)?;
    Some((NonNull::new(huge.start() as *mut u8)?, zeroed))
}

/// What is known of a large object from its address.
#[derive(Clone, Copy)]
pub(crate) struct Large {
    place: Place,
    start: NonNull<u8>,
    /// Bytes, in whole units; what is charged.
    pub(crate) bytes: usize,
}

impl Large {
    /// The large object at `object`; aborts when there is none.
    pub(crate) fn at(object: NonNull<u8>) -> Large {
        match Large::containing(object.as_ptr() as usize) {
            Some(large) if large.start == object => large,
            _ => reentry::die_at(
                "freed or resized a pointer that is no large object of this allocator (foreign, double free or wrong layout)",
                object.as_ptr() as usize,
            ),
        }
    }

    /// The large object that contains `address`.
    pub(crate) fn containing(address: usize) -> Option<Large> {
        let place = segment::find(address)?;
        match place {
            Place::Segment(segment) => {
                let (head, info) = segment.span_at(address);
                let start = segment.address(head);
                (info.kind() == Kind::Large).then(|| Large { place, start, bytes: info.units() * UNIT })
            }
            Place::Huge(huge) => {
                let start = NonNull::new(huge.start() as *mut u8)?;
                (address < huge.start() + huge.bytes()).then(|| Large { place, start, bytes: huge.bytes() })
            }
        }
    }

    fn tag_word(&self) -> &AtomicU16 {
        match self.place {
            Place::Segment(segment) => {
                &segment.units[(self.start.as_ptr() as usize - segment.base()) / UNIT].tag_shared
            }
            Place::Huge(huge) => &huge.tag_shared,
        }
    }

    /// Its owner.
    pub(crate) fn owner(&self) -> Tag {
        // relaxed: as in `tag::word`
        Tag(self.tag_word().load(Ordering::Relaxed))
    }

    /// Makes `owner` its owner.
    pub(crate) fn set_owner(&self, owner: Tag) {
        // relaxed: as in `tag::word`
        self.tag_word().store(owner.0, Ordering::Relaxed);
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.start
    }

    /// Frees it. The caller uncharges.
    ///
    /// # Safety
    /// Nobody uses the object any more.
    pub(crate) unsafe fn free(self) {
        match self.place {
            // SAFETY: the caller's promise.
            Place::Segment(_) => unsafe { page_heap::free(self.start, self.bytes / UNIT, Kind::Large) },
            // SAFETY: the caller's promise.
            Place::Huge(huge) => unsafe { huge.free() },
        }
    }

    /// Changes its size to `bytes` (rounded, still a large object's) without moving it. The caller charges before a
    /// growth and uncharges after a shrinking.
    ///
    /// # Safety
    /// The caller owns the object and uses nothing past `bytes`.
    pub(crate) unsafe fn resize_in_place(&self, bytes: usize) -> bool {
        let (old, new) = (self.bytes / UNIT, bytes / UNIT);
        match self.place {
            _ if new == old => true,
            Place::Segment(_) if new < old => {
                // SAFETY: the caller's promise.
                unsafe { page_heap::trim(self.start, old, new) };
                true
            }
            // SAFETY: the caller's promise.
            Place::Segment(_) => bytes <= SPAN_MAX && unsafe { page_heap::extend(self.start, old, new) },
            // SAFETY: the caller's promise.
            Place::Huge(huge) => unsafe { huge.resize(bytes) },
        }
    }

    /// Moves a huge object's pages into another huge object without copying, and frees the old one. `Some(false)`: this
    /// object is as before, and the other is gone. `None`: they are not both huge, and nothing happened.
    ///
    /// # Safety
    /// The caller owns both, and uses `self` no more after `Some(true)`, and `to` no more after `Some(false)`.
    pub(crate) unsafe fn relocate_to(&self, to: &Large) -> Option<bool> {
        match (self.place, to.place) {
            // SAFETY: the caller's promise.
            (Place::Huge(from), Place::Huge(to)) => Some(unsafe { from.relocate_to(to) }),
            _ => None,
        }
    }

    /// In hardened builds: aborts unless the object is as large as its layout says.
    pub(crate) fn check_layout(&self, size: usize) {
        if HARDENED && rounded(size) != Some(self.bytes) {
            reentry::die_at("freed or resized with a layout of another size", self.start.as_ptr() as usize);
        }
    }
}
