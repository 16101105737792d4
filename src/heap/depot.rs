//! The depot: spare full magazines of each class, shared by all slots.
//!
//! It lets objects freed on one CPU be allocated on another without a visit to the slabs. Bounded: 128 KiB of
//! objects per class, at least one magazine. Each full magazine remembers its owner if all its objects have the
//! same one, so that a drain passes it by and another tenant can take it over with one payment.

use super::locked::Locked;
use super::size_class::{Class, CLASSES};
use super::tag::Tag;

/// The most magazines of a class.
const PLACES: usize = 16;

/// A full magazine.
#[derive(Clone, Copy)]
pub(crate) struct Full {
    pub(crate) block: *mut *mut u8,
    /// The one owner of all objects; [`Tag::NONE`]: several.
    pub(crate) owner: Tag,
}

struct Shelf {
    full: [Full; PLACES],
    len: usize,
}

// SAFETY: the blocks belong to the shelf and are reached under its lock only.
unsafe impl Send for Shelf {}

const EMPTY: Full = Full { block: core::ptr::null_mut(), owner: Tag::NONE };

static SHELVES: [Locked<Shelf>; CLASSES] = [const { Locked::new(Shelf { full: [EMPTY; PLACES], len: 0 }) }; CLASSES];

impl Full {
    /// Its objects.
    pub(crate) fn objects(&self, class: Class) -> &[*mut u8] {
        // SAFETY: a full magazine holds as many objects as its class's magazines may.
        unsafe { core::slice::from_raw_parts(self.block, usize::from(class.info().magazine)) }
    }
}

/// Takes the magazine put there last.
pub(crate) fn take(class: Class) -> Option<Full> {
    let mut shelf = SHELVES[class.0 as usize].lock();
    shelf.len = shelf.len.checked_sub(1)?;
    Some(shelf.full[shelf.len])
}

/// Puts a full magazine there; `false`: no room, it stays the caller's.
pub(crate) fn put(class: Class, full: Full) -> bool {
    let mut shelf = SHELVES[class.0 as usize].lock();
    if shelf.len >= usize::from(class.info().depot) {
        return false;
    }
    let place = shelf.len;
    shelf.full[place] = full;
    shelf.len += 1;
    true
}

/// Whether a class's shelf has room; a guess as soon as it is given.
pub(crate) fn has_room(class: Class) -> bool {
    SHELVES[class.0 as usize].lock().len < usize::from(class.info().depot)
}

/// Calls `each` with every magazine of a class. The world is stopped.
pub(crate) fn each(class: Class, mut each: impl FnMut(&mut Full)) {
    let mut shelf = SHELVES[class.0 as usize].lock();
    let len = shelf.len;
    for full in &mut shelf.full[..len] {
        each(full);
    }
}
