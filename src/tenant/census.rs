//! Counting every object by its tag, with the world stopped.
//!
//! Nothing may be allocated meanwhile; the tallies lie in memory straight from the system.

use core::ptr::NonNull;

use crate::heap::depot;
use crate::heap::huge;
use crate::heap::os::os;
use crate::heap::page_heap;
use crate::heap::segment::{Kind, UNIT};
use crate::heap::size_class::{Class, CLASSES};
use crate::heap::slab;
use crate::heap::tag::{self, Tag};
use crate::percpu::world::Stopped;
use crate::tenant::registry::MAX_TENANTS;

/// What was found to carry one tag.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Tally {
    /// Bytes of small objects that are not free in their slabs, live or cached.
    pub(crate) slab_bytes: usize,
    /// Bytes of large objects.
    pub(crate) large_bytes: usize,
    /// Bytes of stocks on all slots.
    pub(crate) stock_bytes: usize,
    /// Usage of the children.
    pub(crate) children_bytes: usize,
}

/// One tally per tag, mapped from the system.
pub(crate) struct Tallies {
    start: NonNull<Tally>,
    bytes: usize,
}

impl Tallies {
    /// Zeroed. `None`: out of memory.
    pub(crate) fn new() -> Option<Tallies> {
        let page = os().page_size();
        let bytes = ((MAX_TENANTS + 1) * size_of::<Tally>()).next_multiple_of(page);
        Some(Tallies { start: os().map(bytes, page)?.cast(), bytes })
    }

    pub(crate) fn of(&mut self, id: Tag) -> &mut Tally {
        // SAFETY: the mapping holds a tally for every value of a tag, zeroed at first, and is borrowed mutably.
        unsafe { &mut *self.start.as_ptr().add(usize::from(id.0)) }
    }
}

impl Drop for Tallies {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, of that size, and used no more. A failure leaves 2 MiB of unused memory behind.
        unsafe { os().unmap(self.start.cast(), self.bytes) };
    }
}

/// What a walk met.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) slabs: usize,
    pub(crate) slab_objects: usize,
    pub(crate) large_objects: usize,
    pub(crate) large_bytes: usize,
    pub(crate) cached_objects: usize,
    pub(crate) cached_bytes: usize,
}

/// A structure that does not satisfy its equations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt(pub(crate) &'static str, pub(crate) usize);

/// Calls `small` with every object that is not free in its slab and `big` with the owner and bytes of every large one.
pub(crate) fn each_object(
    _stopped: &mut Stopped,
    totals: &mut Totals,
    mut small: impl FnMut(Class, Tag),
    mut big: impl FnMut(Tag, usize),
) -> Result<(), Corrupt> {
    let mut corrupt = Ok(());
    page_heap::each_span(|segment, unit, info| {
        let start = segment.address(unit);
        match info.kind() {
            Kind::Slab => {
                totals.slabs += 1;
                let sound = slab::each_object(start, |class, object| {
                    totals.slab_objects += 1;
                    // SAFETY: a slot of a slab of the class.
                    small(class, unsafe { tag::get(class, object) });
                });
                if !sound {
                    corrupt = Err(Corrupt("a slab's header contradicts its bitmap", start.as_ptr() as usize));
                }
            }
            _ => {
                totals.large_objects += 1;
                totals.large_bytes += info.units() * UNIT;
                big(segment.units[unit].tag(), info.units() * UNIT);
            }
        }
    });
    huge::each(|owner, bytes| {
        totals.large_objects += 1;
        totals.large_bytes += bytes;
        big(owner, bytes);
    });
    corrupt
}

/// Calls `each` with every cached object.
pub(crate) fn each_cached(stopped: &mut Stopped, mut each: impl FnMut(Class, *mut u8)) -> Result<(), Corrupt> {
    for slot in stopped.slots() {
        for class in (0..CLASSES as u8).map(Class) {
            let magazines = &slot.magazines[class.0 as usize];
            if !magazines.is_valid() {
                return Err(Corrupt("a magazine's bounds contradict one another", 0));
            }
            for &object in magazines.objects() {
                each(class, object);
            }
        }
    }
    for class in (0..CLASSES as u8).map(Class) {
        depot::each(class, |full| {
            for &object in full.objects(class) {
                each(class, object);
            }
        });
    }
    Ok(())
}
