//! The depot: spare full magazines of each class, shared by all slots.
//!
//! It lets objects freed on one CPU be allocated on another without a visit to the slabs. Bounded: 128 KiB of
//! objects per class, at least one magazine. Each full magazine remembers its owner if all its objects have the
//! same one, so that a drain passes it by and another tenant can take it over with one payment.
//!
//! Equation (shelf locked): the first `len` places hold `magazine` objects each, in nobody else's hands.

use super::locked::Locked;
use super::size_class::{Class, CLASSES, MAGAZINE_MAX};
use super::tag::Tag;

/// The most magazines of a class.
const PLACES: usize = 16;

/// A full magazine. Of the places only as many count as the class's magazines have.
#[derive(Clone, Copy)]
pub(crate) struct Full {
    objects: [*mut u8; MAGAZINE_MAX],
    /// The one owner of all objects; [`Tag::NONE`]: several.
    pub(crate) owner: Tag,
}

struct Shelf {
    full: [Full; PLACES],
    len: usize,
}

// SAFETY: the objects belong to the shelf and are reached under its lock only.
unsafe impl Send for Shelf {}

/// All zero, so that the shelves take no room in the program's file and none in memory until they are used.
const EMPTY: Full = Full { objects: [core::ptr::null_mut(); MAGAZINE_MAX], owner: Tag::ROOT };

static SHELVES: [Locked<Shelf>; CLASSES] = [const { Locked::new(Shelf { full: [EMPTY; PLACES], len: 0 }) }; CLASSES];

impl Full {
    /// Room for one.
    pub(crate) const fn empty() -> Full {
        EMPTY
    }

    /// Its objects.
    pub(crate) fn objects(&self, class: Class) -> &[*mut u8] {
        &self.objects[..usize::from(class.info().magazine)]
    }
}

/// Takes the magazine put there last.
pub(crate) fn take(class: Class, out: &mut Full) -> bool {
    let shelf = &mut *SHELVES[class.0 as usize].lock();
    let Some(len) = shelf.len.checked_sub(1) else { return false };
    shelf.len = len;
    let (full, count) = (&shelf.full[len], usize::from(class.info().magazine));
    out.objects[..count].copy_from_slice(&full.objects[..count]);
    out.owner = full.owner;
    true
}

/// Puts a full magazine's objects there; `false`: no room, they stay the caller's.
pub(crate) fn put(class: Class, objects: &[*mut u8], owner: Tag) -> bool {
    let shelf = &mut *SHELVES[class.0 as usize].lock();
    if shelf.len >= usize::from(class.info().depot) || objects.len() != usize::from(class.info().magazine) {
        return false;
    }
    let full = &mut shelf.full[shelf.len];
    full.objects[..objects.len()].copy_from_slice(objects);
    full.owner = owner;
    shelf.len += 1;
    true
}

/// Calls `each` with every magazine of a class. The world is stopped.
pub(crate) fn each(class: Class, mut each: impl FnMut(&mut Full)) {
    let mut shelf = SHELVES[class.0 as usize].lock();
    let len = shelf.len;
    for full in &mut shelf.full[..len] {
        each(full);
    }
}
