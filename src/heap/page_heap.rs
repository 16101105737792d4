//! The page heap: spans of units for slabs and large objects, behind one lock.
//!
//! The structure itself is in `heap/spans.rs`. The lock is never held across a system call (but when the arena grows,
//! once in hundreds of segments): to grow or to purge, spans are taken out, the lock dropped, and put back.

use core::ptr::NonNull;

use super::locked::{Guard, Locked};
use super::os::os;
use super::purge;
use super::segment::{self, Kind, Place, Segment, SpanInfo, SEGMENT, UNIT, UNITS};
pub(crate) use super::spans::Span;
use super::spans::{segment_at, PageHeap, LOOKS};
use super::tag::Tag;

/// The most segments mapped in one step.
const MAX_STEP: usize = 16;

static PAGE_HEAP: Locked<PageHeap> = Locked::new(PageHeap::new());

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

fn segment_of(address: usize) -> &'static Segment {
    match segment::find(address) {
        Some(Place::Segment(segment)) => segment,
        _ => crate::life::reentry::die_at("a span outside all segments", address),
    }
}

/// A span of `units`, its start a multiple of `align` units. `None`: out of memory.
pub(crate) fn alloc(units: usize, align: usize, kind: Kind, class: u8, tag: Tag) -> Option<Span> {
    let what = (kind, class, tag);
    loop {
        let mut heap = PAGE_HEAP.lock();
        let taken = heap.take(units, align, what, LOOKS);
        let due = heap.clock.is_due();
        let mapped = heap.segments;
        drop(heap);
        if due {
            purge::tick();
        }
        if taken.is_some() {
            return taken;
        }
        if grow(mapped).is_none() {
            // The system has no more: a fitting span may lie deeper in a bin.
            return PAGE_HEAP.lock().take(units, align, what, usize::MAX);
        }
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

/// Counts an operation on large objects that touched no span, for the purge clock; whose time it returns.
pub(crate) fn count() -> u32 {
    let mut heap = PAGE_HEAP.lock();
    let (due, now) = (heap.clock.is_due(), heap.clock.now());
    drop(heap);
    if due {
        purge::tick();
    }
    now
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
