//! Segments: 4 MiB of address space, divided into units of 8 KiB, and the map from any address to its segment.
//!
//! A span is a run of units in use for one slab or one large object, or free. The descriptor lies outside the
//! segment, so that a segment is all payload and its spans can be aligned to any power of two up to its size.
//!
//! Equations (page heap lock held):
//! * every unit belongs to exactly one span; the first and last unit of a free span name its head, all units of a
//!   span in use do;
//! * two free spans are never neighbours;
//! * `fresh` units were never given out since the segment was mapped, hence read as zero; `dirty` ones were, and
//!   have not been purged since.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU64, Ordering};

use super::large::Huge;
use super::tag::Tag;

/// Bytes and alignment of a segment.
pub(crate) const SEGMENT: usize = 4 << 20;
/// Bytes of a unit, the granule of the page heap. Large objects are charged in whole units.
pub const UNIT: usize = 8 << 10;
/// Units in a segment.
pub(crate) const UNITS: usize = SEGMENT / UNIT;

/// What a span is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Free = 0,
    Slab = 1,
    Large = 2,
    /// Free, and out of the page heap while its pages go back to the system.
    Purging = 3,
}

/// One unit's view of its span, packed: `head` (bits 0..16), `units` (16..32), `kind` (32..40), `class` (40..48).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanInfo(u64);

impl SpanInfo {
    pub(crate) const fn new(head: usize, units: usize, kind: Kind, class: u8) -> SpanInfo {
        SpanInfo(head as u64 | (units as u64) << 16 | (kind as u64) << 32 | (class as u64) << 40)
    }
    pub(crate) const fn head(self) -> usize {
        self.0 as u16 as usize
    }
    pub(crate) const fn units(self) -> usize {
        (self.0 >> 16) as u16 as usize
    }
    pub(crate) const fn kind(self) -> Kind {
        match (self.0 >> 32) as u8 {
            1 => Kind::Slab,
            2 => Kind::Large,
            3 => Kind::Purging,
            _ => Kind::Free,
        }
    }
    pub(crate) const fn class(self) -> u8 {
        (self.0 >> 40) as u8
    }
}

/// A unit's record. Written under the page heap's lock; `info` of a live object's span and `tag` are read without.
#[repr(C)]
pub(crate) struct Unit {
    info_shared: AtomicU64,
    /// Owner of a large object, in its head unit.
    pub(crate) tag_shared: AtomicU16,
    /// When a free span became free, in ticks of the purge clock; in its head unit.
    pub(crate) freed_at: u32,
    /// Neighbours in the page heap's bin, 0 for none; in the head unit of a free span.
    pub(crate) next: u32,
    pub(crate) previous: u32,
}

impl Unit {
    pub(crate) fn info(&self) -> SpanInfo {
        // relaxed: the holder of a live object learnt its address after the span was set up; everyone else holds
        // the page heap's lock
        SpanInfo(self.info_shared.load(Ordering::Relaxed))
    }
    pub(crate) fn set_info(&self, info: SpanInfo) {
        // relaxed: as `info`
        self.info_shared.store(info.0, Ordering::Relaxed);
    }
    pub(crate) fn tag(&self) -> Tag {
        // relaxed: as in `tag::word`
        Tag(self.tag_shared.load(Ordering::Relaxed))
    }
    pub(crate) fn set_tag(&self, tag: Tag) {
        // relaxed: as in `tag::word`
        self.tag_shared.store(tag.0, Ordering::Relaxed);
    }
}

/// A bit per unit.
#[derive(Clone, Copy)]
pub(crate) struct UnitSet([u64; UNITS / 64]);

impl UnitSet {
    pub(crate) fn contains(&self, unit: usize) -> bool {
        self.0[unit / 64] >> (unit % 64) & 1 != 0
    }
    pub(crate) fn set(&mut self, units: core::ops::Range<usize>, to: bool) {
        for unit in units {
            if to {
                self.0[unit / 64] |= 1 << (unit % 64);
            } else {
                self.0[unit / 64] &= !(1 << (unit % 64));
            }
        }
    }
    pub(crate) fn all(&self, mut units: core::ops::Range<usize>) -> bool {
        units.all(|unit| self.contains(unit))
    }
    pub(crate) fn count(&self, units: core::ops::Range<usize>) -> usize {
        units.filter(|&unit| self.contains(unit)).count()
    }
}

/// A segment's descriptor. Never unmapped; reused for other segments.
#[repr(C)]
pub(crate) struct Segment {
    pub(crate) base: usize,
    /// Place in the page heap's table.
    pub(crate) index: u32,
    /// Next descriptor without a segment.
    pub(crate) next_spare: *mut Segment,
    pub(crate) fresh: UnitSet,
    pub(crate) dirty: UnitSet,
    pub(crate) units: [Unit; UNITS],
}

impl Segment {
    pub(crate) fn address(&self, unit: usize) -> NonNull<u8> {
        match NonNull::new((self.base + unit * UNIT) as *mut u8) {
            Some(address) => address,
            None => crate::life::reentry::die("a segment at address zero"),
        }
    }

    /// The span that holds `address`.
    pub(crate) fn span_at(&self, address: usize) -> (usize, SpanInfo) {
        let unit = (address - self.base) / UNIT;
        let info = self.units[unit].info();
        (info.head(), info)
    }
}

/// What lies at an address.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// A segment of the page heap.
    Segment(NonNull<Segment>),
    /// A large object with a mapping of its own.
    Huge(NonNull<Huge>),
}

const ADDRESS_BITS: usize = 48;
const LEAF_BITS: usize = 13;
const ROOT_BITS: usize = ADDRESS_BITS - SEGMENT.ilog2() as usize - LEAF_BITS;
const HUGE: usize = 1;

/// One pointer per segment-sized piece of 32 GiB of address space; bit 0 marks a [`Huge`].
type Leaf = [AtomicPtr<u8>; 1 << LEAF_BITS];

static MAP: [AtomicPtr<Leaf>; 1 << ROOT_BITS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 1 << ROOT_BITS];

fn entry(address: usize) -> Option<&'static AtomicPtr<u8>> {
    let piece = address / SEGMENT;
    // pairs: segment::entry_or_insert - the zeroed leaf
    let leaf = MAP.get(piece >> LEAF_BITS)?.load(Ordering::Acquire);
    // SAFETY: leaves are never freed, and published after they were zeroed.
    unsafe { leaf.as_ref() }.map(|leaf| &leaf[piece & ((1 << LEAF_BITS) - 1)])
}

fn entry_or_insert(address: usize) -> Option<&'static AtomicPtr<u8>> {
    if let Some(entry) = entry(address) {
        return Some(entry);
    }
    let root = MAP.get((address / SEGMENT) >> LEAF_BITS)?;
    let fresh = super::arena::alloc(size_of::<Leaf>(), 64)?.cast::<Leaf>().as_ptr();
    // A leaf that loses the race stays unused: at most once per 32 GiB and thread.
    // pairs: segment::entry - as there
    let _ = root.compare_exchange(core::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire);
    entry(address)
}

/// What of ours lies at `address`; `None`: nothing. O(1), two loads.
pub(crate) fn find(address: usize) -> Option<Place> {
    // pairs: segment::publish - the descriptor
    let found = entry(address)?.load(Ordering::Acquire);
    let descriptor = NonNull::new(found.map_addr(|bits| bits & !HUGE))?;
    if found.addr() & HUGE != 0 {
        Some(Place::Huge(descriptor.cast()))
    } else {
        Some(Place::Segment(descriptor.cast()))
    }
}

/// Records what lies in `[start, start + bytes)`; `None` erases. `false`: no memory for the map, nothing changed
/// that `find` would show for a whole range.
pub(crate) fn publish(start: usize, bytes: usize, place: Option<Place>) -> bool {
    let value = match place {
        None => core::ptr::null_mut(),
        Some(Place::Segment(segment)) => segment.as_ptr().cast::<u8>(),
        Some(Place::Huge(huge)) => huge.as_ptr().cast::<u8>().map_addr(|bits| bits | HUGE),
    };
    let pieces = || (start..start + bytes).step_by(SEGMENT);
    if place.is_some() && !pieces().all(|address| entry_or_insert(address).is_some()) {
        return false;
    }
    for address in pieces() {
        if let Some(entry) = entry(address) {
            // pairs: segment::find - the descriptor
            entry.store(value, Ordering::Release);
        }
    }
    true
}

/// Erases `[start, start + bytes)` as far as it still names `huge`: its pages were moved away, and the addresses may
/// be somebody else's by now.
pub(crate) fn withdraw(start: usize, bytes: usize, huge: NonNull<Huge>) {
    let own = huge.as_ptr().cast::<u8>().map_addr(|bits| bits | HUGE);
    for address in (start..start + bytes).step_by(SEGMENT) {
        if let Some(entry) = entry(address) {
            // pairs: segment::find - nothing but the absence; acquire for symmetry with `publish`
            let _ = entry.compare_exchange(own, core::ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire);
        }
    }
}
