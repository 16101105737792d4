//! Two bytes beside each object name its owner.
//!
//! The tag of a *cached* object is read and written by whoever holds its CPU slot. The tag of a *live* object is
//! read by its frees and by `owner_of`, and rewritten by `adopt`, possibly at the same time: hence atomic, though
//! always relaxed (a plain load or store on every machine we know).

use core::sync::atomic::{AtomicU16, Ordering};

use super::size_class::Class;

/// A tenant's dense id, as it stands beside each of its objects. 0 is root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(pub u16);

impl Tag {
    /// The root of all tenants.
    pub const ROOT: Tag = Tag(0);
    /// No tenant: never given out as an id.
    pub const NONE: Tag = Tag(u16::MAX);
}

/// The word that holds the tag of a small object.
///
/// # Safety
/// `object` is (the start of) a slot of a slab of `class` whose slab stays mapped for `'a`.
#[inline]
pub(crate) unsafe fn word<'a>(class: Class, object: *mut u8) -> &'a AtomicU16 {
    let address = class.info().tag_address(object as usize);
    // SAFETY: by the equations of `size_class` the tag lies inside the same slab mapping as the object, two-aligned,
    // and is only accessed through this function. The mapping's provenance was exposed when its address was made.
    unsafe { AtomicU16::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
}

/// Reads the owner of an object.
///
/// # Safety
/// As [`word`].
#[inline]
pub unsafe fn get(class: Class, object: *mut u8) -> Tag {
    // relaxed: the slot lock, or the caller's ownership of the object, orders accesses; see the module
    // SAFETY: the caller's promise.
    Tag(unsafe { word(class, object) }.load(Ordering::Relaxed))
}

/// Makes `owner` the owner of an object.
///
/// # Safety
/// As [`word`].
#[inline]
pub unsafe fn set(class: Class, object: *mut u8, owner: Tag) {
    // relaxed: as in `get`
    // SAFETY: the caller's promise.
    unsafe { word(class, object) }.store(owner.0, Ordering::Relaxed)
}
