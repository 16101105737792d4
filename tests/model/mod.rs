//! What the tests believe about sizes and memory, written without a look at the allocator's tables.

use std::alloc::Layout;

/// Largest object that comes from a slab.
pub const MAX_SMALL: usize = 64 << 10;
/// What large objects are rounded to.
const UNIT: usize = 8 << 10;

/// All slot sizes: 16-byte steps to 128, then four per doubling.
pub fn slot_sizes() -> Vec<usize> {
    let mut sizes: Vec<usize> = (1..=8).map(|n| n * 16).collect();
    let mut doubling = 128;
    while doubling < MAX_SMALL {
        sizes.extend((1..=4).map(|quarter| doubling + quarter * doubling / 4));
        doubling *= 2;
    }
    sizes
}

/// The slot an object of this layout gets: the smallest that is large enough and naturally aligned; `None`: large.
pub fn slot(layout: Layout) -> Option<usize> {
    slot_sizes().into_iter().find(|slot| *slot >= layout.size() && slot % layout.align() == 0)
}

/// What a tenant pays for an object of this layout.
pub fn charge(layout: Layout) -> usize {
    match slot(layout) {
        Some(slot) => slot + 2,
        None => layout.size().max(1).next_multiple_of(UNIT),
    }
}

/// The offsets of an object that are written and checked: all of a small one, both ends and a sample of a large one.
fn probes(size: usize) -> impl Iterator<Item = usize> {
    let end = size.min(16 << 10);
    let tail = size.saturating_sub(4096).max(end);
    let stride = (size / 512).max(1);
    (0..end).chain((end..tail).step_by(stride)).chain(tail..size)
}

fn byte(seed: u8, offset: usize) -> u8 {
    seed ^ (offset as u8) ^ (offset >> 8) as u8
}

/// Writes the pattern of `seed`.
///
/// # Safety
/// `object` has `size` writable bytes that nobody else uses.
pub unsafe fn fill(object: *mut u8, size: usize, seed: u8) {
    for offset in probes(size) {
        // SAFETY: `offset < size`, and the caller owns the bytes.
        unsafe { object.add(offset).write(byte(seed, offset)) };
    }
}

/// Panics unless the first `kept` bytes still hold the pattern that `fill` wrote into `size` bytes.
///
/// # Safety
/// `object` has `kept <= size` readable bytes that `fill(_, size, seed)` wrote.
pub unsafe fn check(object: *const u8, size: usize, kept: usize, seed: u8) {
    for offset in probes(size).filter(|offset| *offset < kept) {
        // SAFETY: `offset < kept`, and the caller owns the bytes.
        let found = unsafe { object.add(offset).read() };
        assert_eq!(found, byte(seed, offset), "byte {offset} of {size} at {object:p} changed");
    }
}
