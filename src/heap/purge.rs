//! Giving pages of free spans back to the system: with a decay, and all at once.
//!
//! A free span keeps its pages for [`DECAY_MS`], in case it is wanted again; then the next page heap operation that
//! finds the clock due purges it, at most [`SEGMENTS_PER_TICK`] segments' worth per tick. So do the cached mappings of
//! huge objects, one of which is unmapped per tick. A process that does
//! nothing purges nothing; [`all`] serves it (`allotment::purge()`).
//!
//! Purged memory is never taken for zeroed: some systems keep the bytes and say otherwise (hazard B06).

use core::ptr::NonNull;

use super::huge;
use super::os::{os, Purged};
use super::page_heap;
use super::segment::{self, Kind, Place, Segment, SpanInfo, SEGMENT, UNIT, UNITS};
use super::spans::segment_at;

/// How long a free span keeps its pages; jemalloc's default (`dirty_decay_ms`).
pub(crate) const DECAY_MS: u32 = 10_000;
/// Time between two ticks, an eighth of the decay.
const TICK_MS: u32 = DECAY_MS / 8;
/// How many segments one tick looks at.
const SEGMENTS_PER_TICK: usize = 16;
/// Operations between two looks at the clock.
const OPERATIONS_PER_LOOK: u32 = 16;

/// When the next tick is due.
pub(crate) struct Clock {
    now_ms: u32,
    last_tick_ms: u32,
    operations: u32,
    cursor: usize,
}

impl Clock {
    pub(crate) const fn new() -> Self {
        Clock { now_ms: 0, last_tick_ms: 0, operations: 0, cursor: 0 }
    }

    /// The time as last seen, in milliseconds; wraps after 49 days, which differences survive.
    pub(crate) fn now(&self) -> u32 {
        self.now_ms
    }

    /// Counts an operation; whether a tick is due.
    pub(crate) fn is_due(&mut self) -> bool {
        self.operations = self.operations.wrapping_add(1);
        if !self.operations.is_multiple_of(OPERATIONS_PER_LOOK) {
            return false;
        }
        self.now_ms = os().clock_ms() as u32;
        if self.now_ms.wrapping_sub(self.last_tick_ms) < TICK_MS {
            return false;
        }
        self.last_tick_ms = self.now_ms;
        true
    }
}

/// Purges what has decayed in the next few segments.
#[cold]
pub(crate) fn tick() {
    let now = page_heap::lock().clock.now();
    huge::unmap_cached(|freed_at| now.wrapping_sub(freed_at) >= DECAY_MS);
    for _ in 0..SEGMENTS_PER_TICK {
        let mut heap = page_heap::lock();
        if heap.dirty_free == 0 {
            return;
        }
        heap.clock.cursor = (heap.clock.cursor + 1) % heap.places.max(1);
        let place = heap.clock.cursor;
        let now = heap.clock.now();
        drop(heap);
        purge_segment(place, |freed_at| now.wrapping_sub(freed_at) >= DECAY_MS);
    }
}

/// Purges all free spans, unmaps the segments that are wholly free and the cached mappings, and tries again with mappings
/// that were kept. Returns the bytes given back. The caller holds a slot or the gate, so that no fork comes between.
pub(crate) fn all() -> usize {
    let places = page_heap::lock().places;
    let mut bytes = 0;
    for place in 0..places {
        bytes += purge_segment(place, |_| true);
        unmap_segment(place);
    }
    loop {
        match huge::unmap_cached(|_| true) {
            0 => break,
            unmapped => bytes += unmapped,
        }
    }
    huge::unmap_kept();
    bytes
}

/// Purges the free spans of a segment that are old enough, one at a time.
///
/// While the lock is dropped, other spans of the segment are freed, merged and given out, so that nothing read before
/// holds afterwards: the search for the next span begins again at the first unit, which is always a head. A former
/// head inside a merged span still looks like one; taking it would tear the span that swallowed it.
fn purge_segment(place: usize, is_old: impl Fn(u32) -> bool) -> usize {
    let mut bytes = 0;
    let mut from = 0;
    let mut heap = page_heap::lock();
    while let Some((segment, head, units)) = next_to_purge(place, from, &is_old) {
        let freed_at = segment.units[head].freed_at();
        heap.unlink(segment, head, units);
        heap.set_purging(units, true);
        let taken = SpanInfo::new(head, units, Kind::Purging, 0);
        for unit in &segment.units[head..head + units] {
            unit.set_info(taken);
        }
        drop(heap);
        let mut gone = [false; UNITS];
        bytes += purge_runs(segment, head, units, &mut gone);
        heap = page_heap::lock();
        for (unit, _) in gone.iter().enumerate().filter(|(_, gone)| **gone) {
            segment.dirty.set(unit..unit + 1, false);
        }
        heap.set_purging(units, false);
        heap.merge(segment, head, units, freed_at);
        from = head + units;
    }
    bytes
}

/// The first free span that begins at or behind `from`, is old enough and has something to purge. The lock is held.
fn next_to_purge(place: usize, from: usize, is_old: impl Fn(u32) -> bool) -> Option<(&'static Segment, usize, usize)> {
    let segment = segment_at(place)?;
    let mut head = 0;
    while head < UNITS {
        let info = segment.units[head].info();
        let units = info.units();
        let wanted = head >= from
            && info.kind() == Kind::Free
            && is_old(segment.units[head].freed_at())
            && segment.dirty.count(head..head + units) > 0;
        if wanted {
            return Some((segment, head, units));
        }
        head += units.max(1);
    }
    None
}

/// Purges each run of dirty units as far as it covers whole pages of the system's, and notes which units are gone. The
/// span is held by this call alone, so its dirty bits stand still though the lock is not held.
fn purge_runs(segment: &Segment, head: usize, units: usize, gone: &mut [bool; UNITS]) -> usize {
    let page = os().page_size();
    let base = segment.base();
    let mut bytes = 0;
    let mut unit = head;
    while unit < head + units {
        if !segment.dirty.contains(unit) {
            unit += 1;
            continue;
        }
        let mut end = unit;
        while end < head + units && segment.dirty.contains(end) {
            end += 1;
        }
        let from = (base + unit * UNIT).next_multiple_of(page);
        let to = (base + end * UNIT) / page * page;
        if from < to {
            if let Some(start) = NonNull::new(from as *mut u8) {
                // SAFETY: the run is within a span that this call alone holds, rounded inward to pages.
                if unsafe { os().purge(start, to - from) } == Purged::Returned {
                    gone[(from - base).div_ceil(UNIT)..(to - base) / UNIT].fill(true);
                    bytes += to - from;
                }
            }
        }
        unit = end;
    }
    bytes
}

/// Unmaps a segment that is one free span. If the system refuses, it stays in use.
fn unmap_segment(place: usize) {
    let mut heap = page_heap::lock();
    let Some(segment) = segment_at(place) else { return };
    if segment.units[0].info() != SpanInfo::new(0, UNITS, Kind::Free, 0) {
        return;
    }
    let base = segment.base();
    let freed_at = segment.units[0].freed_at();
    heap.unlink(segment, 0, UNITS);
    heap.set_purging(UNITS, true);
    let taken = SpanInfo::new(0, UNITS, Kind::Purging, 0);
    for unit in &segment.units {
        unit.set_info(taken);
    }
    drop(heap);
    let Some(start) = NonNull::new(base as *mut u8) else { return };
    // The map forgets the segment before its addresses can be given to anybody else.
    segment::publish(base, SEGMENT, None);
    // SAFETY: the segment is one span that this call alone holds.
    let gone = unsafe { os().unmap(start, SEGMENT) };
    let mut heap = page_heap::lock();
    heap.set_purging(UNITS, false);
    if gone {
        heap.forget(segment);
    } else {
        segment::publish(base, SEGMENT, Some(Place::Segment(segment)));
        heap.merge(segment, 0, UNITS, freed_at);
    }
}
