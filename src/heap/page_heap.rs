//! The page heap: spans of units, split and merged, in bins by length.
//!
//! Best fit: the shortest free span in which an aligned run fits, the most recently freed first. The lock is never
//! held across a system call (but when the arena grows, once in hundreds of segments): to grow or to purge, spans are
//! taken out, the lock dropped, and put back.
//!
//! Equations (lock held):
//! * the spans in bin `n` are exactly the free spans of `n` units; bit `n` of `occupied` says whether there is one;
//! * `free + slab + large + purging = 512 * segments` units;
//! * `dirty_free` is the number of dirty units in free spans.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::arena;
use super::locked::{Guard, Locked};
use super::os::os;
use super::purge;
use super::segment::{self, Kind, Place, Segment, SpanInfo, SEGMENT, UNIT, UNITS};
use super::tag::Tag;

/// The most segments: 1 TiB of heap in segments (huge objects come on top).
const MAX_SEGMENTS: usize = 1 << 18;
/// The most segments mapped in one step.
const MAX_STEP: usize = 16;
/// Spans looked at per bin before a longer one is tried.
const LOOKS: usize = 8;

/// A span handed out.
pub(crate) struct Span {
    pub(crate) start: NonNull<u8>,
    /// Never given out before: reads as zero.
    pub(crate) fresh: bool,
}

pub(crate) struct PageHeap {
    bins: [u32; UNITS + 1],
    occupied: [u64; UNITS / 64 + 1],
    /// Segments, and places in the table ever used.
    segments: usize,
    pub(super) places: usize,
    spare_places: u32,
    spare_descriptors: *mut Segment,
    units: [usize; 4],
    pub(super) dirty_free: usize,
    pub(super) clock: purge::Clock,
}

// SAFETY: the pointers are to descriptors that are never unmapped; they are used under the lock only.
unsafe impl Send for PageHeap {}

static PAGE_HEAP: Locked<PageHeap> = Locked::new(PageHeap {
    bins: [0; UNITS + 1],
    occupied: [0; UNITS / 64 + 1],
    segments: 0,
    places: 0,
    spare_places: 0,
    spare_descriptors: core::ptr::null_mut(),
    units: [0; 4],
    dirty_free: 0,
    clock: purge::Clock::new(),
});

/// Segments by index; a spare place holds null. Written under the lock.
static SEGMENTS: [AtomicPtr<Segment>; MAX_SEGMENTS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SEGMENTS];

pub(super) fn lock() -> Guard<'static, PageHeap> {
    PAGE_HEAP.lock()
}
/// For fork: see `life/fork.rs`.
pub(crate) fn hold() {
    PAGE_HEAP.hold();
}
/// For fork: see `life/fork.rs`.
pub(crate) fn release() {
    PAGE_HEAP.release();
}

/// The segment at a place of the table. The lock is held, or the world stopped.
pub(super) fn segment_at<'a>(place: usize) -> Option<&'a mut Segment> {
    // relaxed: written under the lock that the caller holds
    let segment = SEGMENTS[place].load(Ordering::Relaxed);
    // SAFETY: descriptors are never unmapped; the lock gives the caller sole use, and callers take one at a time.
    unsafe { segment.as_mut() }
}

fn segment_of<'a>(address: usize) -> &'a mut Segment {
    match segment::find(address) {
        // SAFETY: as in `segment_at`; the span at `address` belongs to the caller.
        Some(Place::Segment(mut segment)) => unsafe { segment.as_mut() },
        _ => crate::life::reentry::die_at("a span outside all segments", address),
    }
}

fn reference(segment: &Segment, unit: usize) -> u32 {
    segment.index * UNITS as u32 + unit as u32 + 1
}

fn dereference<'a>(span: u32) -> (&'a mut Segment, usize) {
    let place = (span - 1) as usize;
    match segment_at(place / UNITS) {
        Some(segment) => (segment, place % UNITS),
        None => crate::life::reentry::die("a free span in a segment that is gone"),
    }
}

impl PageHeap {
    /// Puts a span into its bin as it is, without merging.
    pub(super) fn insert(&mut self, segment: &mut Segment, head: usize, units: usize, freed_at: u32) {
        let info = SpanInfo::new(head, units, Kind::Free, 0);
        segment.units[head].set_info(info);
        segment.units[head + units - 1].set_info(info);
        let first = self.bins[units];
        segment.units[head].previous = 0;
        segment.units[head].next = first;
        segment.units[head].freed_at = freed_at;
        let this = reference(segment, head);
        if first != 0 {
            let (other, unit) = dereference(first);
            other.units[unit].previous = this;
        }
        self.bins[units] = this;
        self.occupied[units / 64] |= 1 << (units % 64);
        self.units[Kind::Free as usize] += units;
        self.dirty_free += segment.dirty.count(head..head + units);
    }

    /// Takes a free span out of its bin.
    pub(super) fn unlink(&mut self, segment: &mut Segment, head: usize, units: usize) {
        let (next, previous) = (segment.units[head].next, segment.units[head].previous);
        if next != 0 {
            let (other, unit) = dereference(next);
            other.units[unit].previous = previous;
        }
        if previous != 0 {
            let (other, unit) = dereference(previous);
            other.units[unit].next = next;
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
    pub(super) fn merge(&mut self, segment: &mut Segment, mut head: usize, mut units: usize, freed_at: u32) {
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

    fn take(&mut self, units: usize, align: usize, kind: Kind, class: u8, tag: Tag) -> Option<Span> {
        let mut bin = units;
        loop {
            bin = self.occupied_from(bin)?;
            let mut span = self.bins[bin];
            for _ in 0..LOOKS {
                if span == 0 {
                    break;
                }
                let (segment, head) = dereference(span);
                let start = head.next_multiple_of(align);
                if start + units <= head + bin {
                    return Some(self.carve(segment, head, bin, start, units, kind, class, tag));
                }
                span = segment.units[head].next;
            }
            bin += 1;
        }
    }

    #[allow(clippy::too_many_arguments)] // one call; a struct for it would only rename the arguments
    fn carve(
        &mut self,
        segment: &mut Segment,
        head: usize,
        length: usize,
        start: usize,
        units: usize,
        kind: Kind,
        class: u8,
        tag: Tag,
    ) -> Span {
        let freed_at = segment.units[head].freed_at;
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

    fn give_back(&mut self, segment: &mut Segment, head: usize, units: usize, kind: Kind) {
        self.units[kind as usize] -= units;
        segment.dirty.set(head..head + units, true);
        let now = self.clock.now();
        self.merge(segment, head, units, now);
    }

    /// Adds a mapped, zeroed segment. `None`: no memory for its descriptor, no place or no map.
    fn adopt(&mut self, base: usize) -> Option<()> {
        let spare = self.spare_descriptors;
        let descriptor =
            if spare.is_null() { arena::alloc(size_of::<Segment>(), 64)?.cast::<Segment>().as_ptr() } else { spare };
        let place = if self.spare_places != 0 { self.spare_places as usize - 1 } else { self.places };
        if place >= MAX_SEGMENTS {
            return None;
        }
        let entry = Place::Segment(NonNull::new(descriptor)?);
        // SAFETY: the descriptor is fresh arena memory or a spare; nobody else uses it. All-zero is valid.
        let segment = unsafe { &mut *descriptor };
        let next_spare = segment.next_spare;
        segment.base = base;
        segment.index = place as u32;
        segment.fresh.set(0..UNITS, true);
        segment.dirty.set(0..UNITS, false);
        if !segment::publish(base, SEGMENT, Some(entry)) {
            if spare.is_null() {
                segment.next_spare = self.spare_descriptors;
                self.spare_descriptors = descriptor;
            }
            return None;
        }
        if !spare.is_null() {
            self.spare_descriptors = next_spare;
        }
        if self.spare_places != 0 {
            // A spare place's entry holds the next spare place, tagged as no pointer: see `forget`.
            // relaxed: under the lock
            self.spare_places = SEGMENTS_SPARE[place].load(Ordering::Relaxed);
        } else {
            self.places += 1;
        }
        // relaxed: under the lock
        SEGMENTS[place].store(descriptor, Ordering::Relaxed);
        self.segments += 1;
        let free = SpanInfo::new(0, UNITS, Kind::Free, 0);
        for unit in &segment.units {
            unit.set_info(free);
        }
        let now = self.clock.now();
        self.insert(segment, 0, UNITS, now);
        Some(())
    }

    /// Removes a segment that is unmapped and in no bin; its descriptor and place become spare.
    pub(super) fn forget(&mut self, segment: &mut Segment) {
        let place = segment.index as usize;
        // relaxed (both): under the lock
        SEGMENTS[place].store(core::ptr::null_mut(), Ordering::Relaxed);
        SEGMENTS_SPARE[place].store(self.spare_places, Ordering::Relaxed);
        self.spare_places = place as u32 + 1;
        segment.next_spare = self.spare_descriptors;
        self.spare_descriptors = segment;
        self.segments -= 1;
    }

    /// Moves a free span between the bins and the purge.
    pub(super) fn set_purging(&mut self, units: usize, purging: bool) {
        let tally = &mut self.units[Kind::Purging as usize];
        *tally = if purging { *tally + units } else { *tally - units };
    }

    /// Checks the equations by walking everything. O(units).
    pub(crate) fn is_valid(&self) -> bool {
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
                span = segment.units[head].next;
            }
        }
        units == self.units && dirty_free == self.dirty_free && spans_in_bins == free_spans
    }
}

/// The list of spare places, by place: 1 + the next one, 0 at its end. Written under the lock.
static SEGMENTS_SPARE: [core::sync::atomic::AtomicU32; MAX_SEGMENTS] =
    [const { core::sync::atomic::AtomicU32::new(0) }; MAX_SEGMENTS];

/// A span of `units`, its start a multiple of `align` units. `None`: out of memory.
pub(crate) fn alloc(units: usize, align: usize, kind: Kind, class: u8, tag: Tag) -> Option<Span> {
    loop {
        let mut heap = PAGE_HEAP.lock();
        let taken = heap.take(units, align, kind, class, tag);
        let due = heap.clock.is_due();
        let mapped = heap.segments;
        drop(heap);
        if due {
            purge::tick();
        }
        if taken.is_some() {
            return taken;
        }
        grow(mapped)?;
    }
}

/// Frees a span.
///
/// # Safety
/// `start` is what [`alloc`] or [`extend`] with this kind gave, of that many units; nobody uses it any more.
pub(crate) unsafe fn free(start: NonNull<u8>, units: usize, kind: Kind) {
    let mut heap = PAGE_HEAP.lock();
    let segment = segment_of(start.as_ptr() as usize);
    let (head, info) = segment.span_at(start.as_ptr() as usize);
    if info != SpanInfo::new(head, units, kind, info.class()) || segment.address(head) != start {
        drop(heap);
        crate::life::reentry::die_at("freed a span that is not in use", start.as_ptr() as usize);
    }
    heap.give_back(segment, head, units, kind);
    let due = heap.clock.is_due();
    drop(heap);
    if due {
        purge::tick();
    }
}

/// Cuts a large object's span down to its first `keep` units.
///
/// # Safety
/// As [`free`]; nobody uses the units behind the first `keep`, and `0 < keep < units`.
pub(crate) unsafe fn trim(start: NonNull<u8>, units: usize, keep: usize) {
    let mut heap = PAGE_HEAP.lock();
    let segment = segment_of(start.as_ptr() as usize);
    let (head, _) = segment.span_at(start.as_ptr() as usize);
    let info = SpanInfo::new(head, keep, Kind::Large, 0);
    for unit in &segment.units[head..head + keep] {
        unit.set_info(info);
    }
    heap.give_back(segment, head + keep, units - keep, Kind::Large);
}

/// Lengthens a large object's span to `wanted` units if the units behind it are free.
///
/// # Safety
/// As [`free`]; `wanted > units`.
pub(crate) unsafe fn extend(start: NonNull<u8>, units: usize, wanted: usize) -> bool {
    let mut heap = PAGE_HEAP.lock();
    let segment = segment_of(start.as_ptr() as usize);
    let (head, _) = segment.span_at(start.as_ptr() as usize);
    let end = head + units;
    if head + wanted > UNITS {
        return false;
    }
    let behind = segment.units[end].info();
    if behind.kind() != Kind::Free || end + behind.units() < head + wanted {
        return false;
    }
    let tag = segment.units[head].tag();
    heap.carve(segment, end, behind.units(), end, wanted - units, Kind::Large, 0, tag);
    let info = SpanInfo::new(head, wanted, Kind::Large, 0);
    for unit in &segment.units[head..head + wanted] {
        unit.set_info(info);
    }
    true
}

/// Maps more segments: an eighth of what is mapped, smaller steps when address space is short.
fn grow(mapped: usize) -> Option<()> {
    let mut step = (mapped / 8).clamp(1, MAX_STEP);
    loop {
        if let Some(start) = os().map(step * SEGMENT, SEGMENT) {
            let mut heap = PAGE_HEAP.lock();
            let mut adopted = 0;
            while adopted < step && heap.adopt(start.as_ptr() as usize + adopted * SEGMENT).is_some() {
                adopted += 1;
            }
            drop(heap);
            if adopted < step {
                let rest = start.as_ptr() as usize + adopted * SEGMENT;
                // SAFETY: nobody has heard of the rest. If unmapping fails it stays as unused address space.
                unsafe { os().unmap(NonNull::new(rest as *mut u8)?, (step - adopted) * SEGMENT) };
            }
            return (adopted > 0).then_some(());
        }
        if step == 1 {
            return None;
        }
        step /= 2;
    }
}

/// Units by use, for `stats()`: free, slab, large; with the bytes mapped for segments and the dirty free units.
pub(crate) fn footprint() -> ([usize; 3], usize, usize) {
    let heap = PAGE_HEAP.lock();
    let free = heap.units[Kind::Free as usize] + heap.units[Kind::Purging as usize];
    let units = [free, heap.units[Kind::Slab as usize], heap.units[Kind::Large as usize]];
    (units.map(|units| units * UNIT), heap.segments * SEGMENT, heap.dirty_free * UNIT)
}

/// Calls `each` with every span in use. The world is stopped.
pub(crate) fn each_span(mut each: impl FnMut(&Segment, usize, SpanInfo)) {
    let places = PAGE_HEAP.lock().places;
    for place in 0..places {
        let Some(segment) = segment_at(place) else { continue };
        let mut unit = 0;
        while unit < UNITS {
            let info = segment.units[unit].info();
            if matches!(info.kind(), Kind::Slab | Kind::Large) {
                each(segment, unit, info);
            }
            unit += info.units().max(1);
        }
    }
}

/// The page heap's own equations. The world is stopped.
pub(crate) fn is_valid() -> bool {
    PAGE_HEAP.lock().is_valid()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of its own: the choice of spans must not depend on a crate's version.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }
    }

    #[test]
    fn spans_split_merge_trim_and_extend_without_overlap() {
        let mut random = Random(7);
        let mut spans: Vec<(usize, usize)> = Vec::new();
        for step in 0..20_000 {
            let pick = random.below(spans.len().max(1));
            match random.below(4) {
                0 | 1 => {
                    let units = 1 + random.below(if step % 10 == 0 { 256 } else { 24 });
                    let align = 1 << random.below(6);
                    let span = alloc(units, align, Kind::Large, 0, Tag::ROOT).expect("memory");
                    let start = span.start.as_ptr() as usize;
                    assert!(start.is_multiple_of(align * UNIT));
                    let end = start + units * UNIT;
                    assert!(spans.iter().all(|&(other, n)| end <= other || other + n * UNIT <= start), "overlap");
                    spans.push((start, units));
                }
                2 if !spans.is_empty() => {
                    let (start, units) = spans.swap_remove(pick);
                    let start = NonNull::new(start as *mut u8).expect("a span");
                    if units > 1 && random.below(2) == 0 {
                        let keep = 1 + random.below(units - 1);
                        // SAFETY: the span is ours, and `0 < keep < units`.
                        unsafe { trim(start, units, keep) };
                        spans.push((start.as_ptr() as usize, keep));
                    } else {
                        // SAFETY: the span is ours.
                        unsafe { free(start, units, Kind::Large) };
                    }
                }
                3 if !spans.is_empty() => {
                    let (start, units) = spans[pick];
                    let wanted = units + 1 + random.below(8);
                    let at = NonNull::new(start as *mut u8).expect("a span");
                    // SAFETY: the span is ours, and `wanted > units`.
                    if unsafe { extend(at, units, wanted) } {
                        spans[pick].1 = wanted;
                    }
                }
                _ => {}
            }
            if step % 500 == 0 {
                assert!(lock().is_valid(), "the equations do not hold");
            }
        }
        for (start, units) in spans {
            // SAFETY: the span is ours.
            unsafe { free(NonNull::new(start as *mut u8).expect("a span"), units, Kind::Large) };
        }
        assert!(lock().is_valid());
        purge::all();
        assert!(lock().is_valid());
    }
}
