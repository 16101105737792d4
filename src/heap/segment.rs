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
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::huge::Huge;
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
    freed_at: AtomicU32,
    next: AtomicU32,
    previous: AtomicU32,
}

// relaxed (whole file but the map): fields are changed under the page heap's lock only. Those read without it belong
// to the span of a live object, whose holder learnt its address after the span was set up, or are only compared
impl Unit {
    pub(crate) fn info(&self) -> SpanInfo {
        SpanInfo(self.info_shared.load(Ordering::Relaxed))
    }
    pub(crate) fn set_info(&self, info: SpanInfo) {
        self.info_shared.store(info.0, Ordering::Relaxed);
    }
    pub(crate) fn tag(&self) -> Tag {
        Tag(self.tag_shared.load(Ordering::Relaxed))
    }
    pub(crate) fn set_tag(&self, tag: Tag) {
        self.tag_shared.store(tag.0, Ordering::Relaxed);
    }
    /// When a free span became free, on the purge clock; in its head unit.
    pub(crate) fn freed_at(&self) -> u32 {
        self.freed_at.load(Ordering::Relaxed)
    }
    pub(crate) fn set_freed_at(&self, freed_at: u32) {
        self.freed_at.store(freed_at, Ordering::Relaxed);
    }
    /// Neighbours in the page heap's bin, 0 for none; in the head unit of a free span.
    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }
    pub(crate) fn set_next(&self, span: u32) {
        self.next.store(span, Ordering::Relaxed);
    }
    pub(crate) fn previous(&self) -> u32 {
        self.previous.load(Ordering::Relaxed)
    }
    pub(crate) fn set_previous(&self, span: u32) {
        self.previous.store(span, Ordering::Relaxed);
    }
}

/// A bit per unit.
pub(crate) struct UnitSet([AtomicU64; UNITS / 64]);

impl UnitSet {
    pub(crate) fn contains(&self, unit: usize) -> bool {
        self.0[unit / 64].load(Ordering::Relaxed) >> (unit % 64) & 1 != 0
    }
    /// Changes the bits of a range. The page heap's lock is held.
    pub(crate) fn set(&self, units: core::ops::Range<usize>, to: bool) {
        for (word, mask) in masks(units) {
            let bits = self.0[word].load(Ordering::Relaxed);
            self.0[word].store(if to { bits | mask } else { bits & !mask }, Ordering::Relaxed);
        }
    }
    pub(crate) fn all(&self, units: core::ops::Range<usize>) -> bool {
        masks(units).all(|(word, mask)| self.0[word].load(Ordering::Relaxed) & mask == mask)
    }
    pub(crate) fn count(&self, units: core::ops::Range<usize>) -> usize {
        masks(units).map(|(word, mask)| (self.0[word].load(Ordering::Relaxed) & mask).count_ones() as usize).sum()
    }
}

/// The words that a range of units touches, and its bits in each. A range may be 512 long, and the page heap's lock is
/// held: words, not bits.
fn masks(units: core::ops::Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = units.start / 64..units.end.div_ceil(64);
    words.filter_map(move |word| {
        let (first, end) = (units.start.max(word * 64) % 64, units.end.min(word * 64 + 64) - word * 64);
        (first < end).then(|| (word, u64::MAX << first & u64::MAX >> (64 - end)))
    })
}

/// A segment's descriptor. Never unmapped; all-zero is a descriptor without a segment. It keeps its place in the page
/// heap's table for ever and is reused for other segments.
#[repr(C)]
pub(crate) struct Segment {
    /// Where the segment begins; 0: there is none.
    base_shared: AtomicUsize,
    /// Place in the page heap's table.
    place: AtomicU32,
    /// The next descriptor without a segment: 1 + its place, 0 for none.
    next_spare: AtomicU32,
    pub(crate) fresh: UnitSet,
    pub(crate) dirty: UnitSet,
    pub(crate) units: [Unit; UNITS],
}

impl Segment {
    pub(crate) fn base(&self) -> usize {
        self.base_shared.load(Ordering::Relaxed)
    }
    pub(crate) fn set_base(&self, base: usize) {
        self.base_shared.store(base, Ordering::Relaxed);
    }
    pub(crate) fn place(&self) -> u32 {
        self.place.load(Ordering::Relaxed)
    }
    pub(crate) fn set_place(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }
    pub(crate) fn next_spare(&self) -> u32 {
        self.next_spare.load(Ordering::Relaxed)
    }
    pub(crate) fn set_next_spare(&self, spare: u32) {
        self.next_spare.store(spare, Ordering::Relaxed);
    }

    pub(crate) fn address(&self, unit: usize) -> NonNull<u8> {
        match NonNull::new((self.base() + unit * UNIT) as *mut u8) {
            Some(address) => address,
            None => crate::life::reentry::die("a segment at address zero"),
        }
    }

    /// The span that holds `address`, which lies in the segment.
    pub(crate) fn span_at(&self, address: usize) -> (usize, SpanInfo) {
        let unit = address % SEGMENT / UNIT;
        let info = self.units[unit].info();
        (info.head(), info)
    }
}

/// What lies at an address.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// A segment of the page heap.
    Segment(&'static Segment),
    /// A large object with a mapping of its own.
    Huge(&'static Huge),
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
    // SAFETY: only `publish` stores here, and only what it got from references to descriptors, which are shared
    // through atomics and never unmapped; bit 0 says which kind.
    unsafe {
        Some(if found.addr() & HUGE != 0 {
            Place::Huge(descriptor.cast().as_ref())
        } else {
            Place::Segment(descriptor.cast().as_ref())
        })
    }
}

fn tagged(huge: &'static Huge) -> *mut u8 {
    core::ptr::from_ref(huge).cast::<u8>().cast_mut().map_addr(|bits| bits | HUGE)
}

/// Records what lies in `[start, start + bytes)`; `None` erases. `false`: no memory for the map, nothing changed
/// that `find` would show for a whole range.
pub(crate) fn publish(start: usize, bytes: usize, place: Option<Place>) -> bool {
    let value = match place {
        None => core::ptr::null_mut(),
        Some(Place::Segment(segment)) => core::ptr::from_ref(segment).cast::<u8>().cast_mut(),
        Some(Place::Huge(huge)) => tagged(huge),
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
pub(crate) fn withdraw(start: usize, bytes: usize, huge: &'static Huge) {
    let own = tagged(huge);
    for address in (start..start + bytes).step_by(SEGMENT) {
        if let Some(entry) = entry(address) {
            // pairs: segment::find - nothing but the absence; acquire for symmetry with `publish`
            let _ = entry.compare_exchange(own, core::ptr::null_mut(), Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_units_agree_with_their_bits_one_by_one() {
        for (start, end) in
            [(0, 0), (0, 1), (0, 64), (0, 512), (63, 65), (64, 128), (5, 9), (100, 400), (511, 512), (300, 300)]
        {
            let set = UnitSet([const { AtomicU64::new(0) }; UNITS / 64]);
            set.set(start..end, true);
            for unit in 0..UNITS {
                assert_eq!(set.contains(unit), (start..end).contains(&unit), "{start}..{end}: {unit}");
            }
            assert_eq!(set.count(0..UNITS), end - start);
            assert_eq!(set.count(10..310), (10..310).filter(|unit| (start..end).contains(unit)).count());
            assert!(set.all(start..end));
            assert!(end == UNITS || !set.all(start..end + 1));
            set.set(0..UNITS, true);
            set.set(start..end, false);
            assert_eq!(set.count(0..UNITS), UNITS - (end - start));
            assert_eq!(set.all(start..end), start == end);
        }
    }
}
