//! Free spans in bins by length: the structure behind the page heap.
//!
//! Best fit: the shortest free span in which an aligned run fits, the most recently freed first. Every method is called
//! with the page heap's lock held.
//!
//! Equations:
//! * the spans in bin `n` are exactly the free spans of `n` units; bit `n` of `occupied` says whether there is one;
//! * two free spans are never neighbours;
//! * `free + slab + large + purging = 512 * segments` units;
//! * `dirty_free` is the number of dirty units in free spans.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::arena;
use super::purge;
use super::segment::{self, Kind, Place, Segment, SpanInfo, SEGMENT, UNITS};
use super::tag::Tag;

/// The most segments: 1 TiB of heap in segments (huge objects come on top).
const MAX_SEGMENTS: usize = 1 << 18;
/// Spans looked at per bin before a longer one is tried, while there is more memory to be had.
pub(super) const LOOKS: usize = 8;

/// A span handed out.
pub(crate) struct Span {
    pub(crate) start: NonNull<u8>,
    /// Never given out before: reads as zero.
    pub(crate) fresh: bool,
}

/// See the module.
pub(crate) struct PageHeap {
    bins: [u32; UNITS + 1],
    occupied: [u64; UNITS / 64 + 1],
    /// Segments that exist.
    pub(super) segments: usize,
    /// Places in the table ever used.
    pub(super) places: usize,
    /// The first descriptor without a segment: 1 + its place, 0 for none.
    spare: u32,
    /// Units by what they are, indexed by [`Kind`].
    pub(super) units: [usize; 4],
    pub(super) dirty_free: usize,
    pub(super) clock: purge::Clock,
}

/// Descriptors by place, null where none was made yet. Written under the lock.
static SEGMENTS: [AtomicPtr<Segment>; MAX_SEGMENTS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SEGMENTS];

/// The segment at a place of the table, if there is one. The lock is held, or the world stopped.
pub(super) fn segment_at(place: usize) -> Option<&'static Segment> {
    // relaxed: written under the lock that the caller holds
    let segment = SEGMENTS[place].load(Ordering::Relaxed);
    // SAFETY: descriptors are never unmapped and shared through atomics only.
    unsafe { segment.as_ref() }.filter(|segment| segment.base() != 0)
}

/// A span as the links of bins name it: 1 + (place * 512 + unit).
fn reference(segment: &Segment, unit: usize) -> u32 {
    segment.place() * UNITS as u32 + unit as u32 + 1
}

fn dereference(span: u32) -> (&'static Segment, usize) {
    let place = (span - 1) as usize;
    match segment_at(place / UNITS) {
        Some(segment) => (segment, place % UNITS),
        None => crate::life::reentry::die("a free span in a segment that is gone"),
    }
}

impl PageHeap {
    pub(super) const fn new() -> Self {
        PageHeap {
            bins: [0; UNITS + 1],
            occupied: [0; UNITS / 64 + 1],
            segments: 0,
            places: 0,
            spare: 0,
            units: [0; 4],
            dirty_free: 0,
            clock: purge::Clock::new(),
        }
    }

    /// Puts a span into its bin as it is, without merging.
    pub(super) fn insert(&mut self, segment: &'static Segment, head: usize, units: usize, freed_at: u32) {
        let info = SpanInfo::new(head, units, Kind::Free, 0);
        segment.units[head].set_info(info);
        segment.units[head + units - 1].set_info(info);
        let first = self.bins[units];
        segment.units[head].set_previous(0);
        segment.units[head].set_next(first);
        segment.units[head].set_freed_at(freed_at);
        let this = reference(segment, head);
        if first != 0 {
            let (other, unit) = dereference(first);
            other.units[unit].set_previous(this);
        }
        self.bins[units] = this;
        self.occupied[units / 64] |= 1 << (units % 64);
        self.units[Kind::Free as usize] += units;
        self.dirty_free += segment.dirty.count(head..head + units);
    }

    /// Takes a free span out of its bin.
    pub(super) fn unlink(&mut self, segment: &'static Segment, head: usize, units: usize) {
        let (next, previous) = (segment.units[head].next(), segment.units[head].previous());
        if next != 0 {
            let (other, unit) = dereference(next);
            other.units[unit].set_previous(previous);
        }
        if previous != 0 {
            let (other, unit) = dereference(previous);
            other.units[unit].set_next(next);
        } else {
            self.bins[units] = next;
            if next == 0 {
                self.occupied[units / 64] &= !(1 << (units % 64));
            }
        }
        self.units[Kind::Free as usize] -= units;
        self.dirty_free -= segment.dirty.count(head..head + units);
    }

    /// Frees a span that is in no bin, merging it with its free neighbours.
    pub(super) fn merge(&mut self, segment: &'static Segment, mut head: usize, mut units: usize, freed_at: u32) {
        let free = SpanInfo::new(head, units, Kind::Free, 0);
        for unit in &segment.units[head..head + units] {
            unit.set_info(free);
        }
        if head > 0 && segment.units[head - 1].info().kind() == Kind::Free {
            let before = segment.units[head - 1].info().head();
            self.unlink(segment, before, head - before);
            units += head - before;
            head = before;
        }
        let end = head + units;
        if end < UNITS && segment.units[end].info().kind() == Kind::Free {
            let after = segment.units[end].info().units();
            self.unlink(segment, end, after);
            units += after;
        }
        self.insert(segment, head, units, freed_at);
    }

    /// The next bin from `from` that holds a span.
    fn occupied_from(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Takes an aligned run out of the shortest span that has one, looking at no more than `looks` spans per bin.
    pub(super) fn take(
        &mut self,
        units: usize,
        align: usize,
        (kind, class, tag): (Kind, u8, Tag),
        looks: usize,
    ) -> Option<Span> {
        let mut bin = units;
        loop {
            bin = self.occupied_from(bin)?;
            let mut span = self.bins[bin];
            for _ in 0..looks {
                if span == 0 {
                    break;
                }
                let (segment, head) = dereference(span);
                let start = head.next_multiple_of(align);
                if start + units <= head + bin {
                    return Some(self.carve(segment, head, bin, start, units, kind, class, tag));
                }
                span = segment.units[head].next();
            }
            bin += 1;
        }
    }

    #[allow(clippy::too_many_arguments)] // one call; a struct for it would only rename the arguments
    pub(super) fn carve(
        &mut self,
        segment: &'static Segment,
        head: usize,
        length: usize,
        start: usize,
        units: usize,
        kind: Kind,
        class: u8,
        tag: Tag,
    ) -> Span {
        let freed_at = segment.units[head].freed_at();
        self.unlink(segment, head, length);
        if start > head {
            self.insert(segment, head, start - head, freed_at);
        }
        let end = start + units;
        if head + length > end {
            self.insert(segment, end, head + length - end, freed_at);
        }
        let info = SpanInfo::new(start, units, kind, class);
        for unit in &segment.units[start..end] {
            unit.set_info(info);
        }
        segment.units[start].set_tag(tag);
        self.units[kind as usize] += units;
        let fresh = segment.fresh.all(start..end);
        segment.fresh.set(start..end, false);
        Span { start: segment.address(start), fresh }
    }

    pub(super) fn give_back(&mut self, segment: &'static Segment, head: usize, units: usize, kind: Kind) {
        self.units[kind as usize] -= units;
        segment.dirty.set(head..head + units, true);
        let now = self.clock.now();
        self.merge(segment, head, units, now);
    }

    /// Adds a mapped, zeroed segment. `None`: no memory for its descriptor, no place or no map.
    pub(super) fn adopt(&mut self, base: usize) -> Option<()> {
        let segment = self.spare_descriptor()?;
        segment.set_base(base);
        segment.fresh.set(0..UNITS, true);
        segment.dirty.set(0..UNITS, false);
        let free = SpanInfo::new(0, UNITS, Kind::Free, 0);
        for unit in &segment.units {
            unit.set_info(free);
        }
        if !segment::publish(base, SEGMENT, Some(Place::Segment(segment))) {
            self.put_spare(segment);
            return None;
        }
        self.segments += 1;
        let now = self.clock.now();
        self.insert(segment, 0, UNITS, now);
        Some(())
    }

    /// Removes a segment that is unmapped and in no bin; its descriptor becomes spare.
    pub(super) fn forget(&mut self, segment: &'static Segment) {
        self.put_spare(segment);
        self.segments -= 1;
    }

    fn put_spare(&mut self, segment: &'static Segment) {
        segment.set_base(0);
        segment.set_next_spare(self.spare);
        self.spare = segment.place() + 1;
    }

    /// A descriptor without a segment: a spare one, or a new one in a new place.
    fn spare_descriptor(&mut self) -> Option<&'static Segment> {
        if self.spare != 0 {
            // relaxed: under the lock
            let spare = SEGMENTS[self.spare as usize - 1].load(Ordering::Relaxed);
            // SAFETY: a place that was used holds a descriptor, which is never unmapped.
            let spare = unsafe { spare.as_ref() }?;
            self.spare = spare.next_spare();
            return Some(spare);
        }
        if self.places >= MAX_SEGMENTS {
            return None;
        }
        let memory = arena::alloc(size_of::<Segment>(), 64)?.cast::<Segment>();
        // SAFETY: zeroed memory for a descriptor, ours alone; all-zero is valid, and it is shared through atomics only.
        let segment: &'static Segment = unsafe { memory.as_ref() };
        segment.set_place(self.places as u32);
        // relaxed: under the lock
        SEGMENTS[self.places].store(memory.as_ptr(), Ordering::Relaxed);
        self.places += 1;
        Some(segment)
    }

    /// Moves a free span between the bins and the purge.
    pub(super) fn set_purging(&mut self, units: usize, purging: bool) {
        let tally = &mut self.units[Kind::Purging as usize];
        *tally = if purging { *tally + units } else { *tally - units };
    }

    /// Checks the equations by walking everything. O(units).
    pub(super) fn is_valid(&self) -> bool {
        let mut units = [0; 4];
        let mut dirty_free = 0;
        let mut spans_in_bins = 0;
        let mut free_spans = 0;
        for place in 0..self.places {
            let Some(segment) = segment_at(place) else { continue };
            let mut unit = 0;
            let mut last_free = false;
            while unit < UNITS {
                let info = segment.units[unit].info();
                let is_free = info.kind() == Kind::Free;
                let tail = info.units().checked_sub(1).map(|last| unit + last);
                if info.head() != unit || tail.is_none_or(|tail| tail >= UNITS) || (is_free && last_free) {
                    return false;
                }
                if is_free {
                    free_spans += 1;
                    dirty_free += segment.dirty.count(unit..unit + info.units());
                }
                units[info.kind() as usize] += info.units();
                last_free = is_free;
                unit += info.units();
            }
        }
        for bin in 1..=UNITS {
            let mut span = self.bins[bin];
            if (span != 0) != (self.occupied[bin / 64] >> (bin % 64) & 1 != 0) {
                return false;
            }
            while span != 0 {
                let (segment, head) = dereference(span);
                if segment.units[head].info() != SpanInfo::new(head, bin, Kind::Free, 0) {
                    return false;
                }
                spans_in_bins += 1;
                span = segment.units[head].next();
            }
        }
        units == self.units && dirty_free == self.dirty_free && spans_in_bins == free_spans
    }
}
