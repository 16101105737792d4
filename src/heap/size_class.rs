//! From a `Layout` to a size class, and what a class looks like in its slabs.
//!
//! 16-byte steps up to 128 B, then four classes per doubling up to 64 KiB: at most 25 % of an object above 128 B is
//! waste (jemalloc's and tcmalloc's spacing). Larger requests are [`large`](super::large) objects.
//!
//! A class's objects lie at `first + i * size` in a slab aligned to its own size, `first` being a multiple of the
//! class's natural alignment (the largest power of two that divides its size): a power-of-two class is aligned to
//! its size, up to 64 KiB.
//!
//! Equations, checked when the crate is compiled:
//! * `first + capacity * size <= slab`
//! * tag index of an object: `offset >> shift` with `shift = floor(log2(size))`: two objects of a slab are at least
//!   `size >= 2^shift` apart, so no two share an index. No division.
//! * the tag with index `i` lies at `TAGS + 2 * i`, the same for every class, so that the fast path needs nothing of
//!   a class but its shift; all tags lie in front of `first`
//! * the bitmaps lie in front of the first object's tag (the indices below it are nobody's) where they fit, else behind
//!   the last tag

/// Number of size classes.
pub const CLASSES: usize = 44;
/// The largest object that comes from a slab, in bytes.
pub const MAX_SMALL: usize = 64 * 1024;
/// What an object's tag costs, in bytes; part of its charge.
pub const TAG_BYTES: usize = 2;
/// The most objects any magazine holds.
pub const MAGAZINE_MAX: usize = 64;
/// Bytes of a slab's fixed header.
pub(crate) const SLAB_HEADER: usize = 64;
/// Where the tag with index 0 would lie in a slab.
pub(crate) const TAGS: usize = SLAB_HEADER;
/// The largest size that the fast path serves, in bytes: its slabs are all of [`FAST_SLAB`] bytes.
pub(crate) const FAST_MAX: usize = 1024;
/// Bytes of a slab of the classes up to [`FAST_MAX`].
pub(crate) const FAST_SLAB: usize = 64 << 10;

/// Index of a size class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Class(pub u8);

/// What is fixed for all slabs of a class.
#[derive(Clone, Copy, Debug)]
pub struct ClassInfo {
    /// Bytes of a slot.
    pub size: u32,
    /// Bytes and alignment of a slab.
    pub slab: u32,
    /// Offset of the first slot.
    pub first: u32,
    /// Slots in a slab.
    pub capacity: u32,
    /// `ceil(2^48 / size)`: multiply-shift instead of a division by `size`.
    reciprocal: u64,
    /// Offset of the two bitmaps.
    pub(crate) bitmaps: u32,
    /// `floor(log2(size))`.
    pub(crate) shift: u8,
    /// Most objects in one magazine.
    pub magazine: u8,
    /// Most full magazines in the depot.
    pub depot: u8,
}

/// Every class, by index.
pub static INFO: [ClassInfo; CLASSES] = {
    let mut table = [build(0); CLASSES];
    let mut class = 0;
    while class < CLASSES {
        table[class] = build(class);
        class += 1;
    }
    table
};

const fn size_of_index(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * 16;
    }
    let doubling = 7 + (class - 8) / 4;
    let step = (class - 8) % 4;
    (1 << doubling) + (step + 1) * (1 << (doubling - 2))
}

/// Words of one bitmap with a bit per slot.
pub(crate) const fn bitmap_words(capacity: usize) -> usize {
    capacity.div_ceil(64)
}

const fn build(class: usize) -> ClassInfo {
    let size = size_of_index(class);
    let slab = if size <= 2048 {
        64 << 10
    } else if size <= 8192 {
        256 << 10
    } else if size <= 16_384 {
        512 << 10
    } else {
        1 << 20
    };
    let shift = size.ilog2();
    let align = 1 << size.trailing_zeros();
    // The largest capacity whose bitmaps, tags and slots fit together.
    let mut capacity = slab / size;
    let (mut first, mut bitmaps);
    loop {
        let bytes = 2 * 8 * bitmap_words(capacity);
        first = align;
        loop {
            let tags_end = TAGS + TAG_BYTES * (((first + (capacity - 1) * size) >> shift) + 1);
            let behind = tags_end.next_multiple_of(8);
            let fits_in_front = bytes <= TAG_BYTES * (first >> shift);
            bitmaps = if fits_in_front { TAGS } else { behind };
            let end = if fits_in_front { tags_end } else { behind + bytes };
            if end <= first {
                break;
            }
            first = end.next_multiple_of(align);
        }
        if first + capacity * size <= slab {
            break;
        }
        capacity -= 1;
    }
    assert!(first.is_multiple_of(align) && capacity >= 15);
    assert!(size > FAST_MAX || slab == FAST_SLAB);
    let magazine = if size <= 256 {
        64
    } else if size <= 1024 {
        32
    } else if size <= 4096 {
        16
    } else if size <= 8192 {
        8
    } else if size <= 16_384 {
        4
    } else {
        2
    };
    // 128 KiB of full magazines per class, at least one.
    let depot = (128 << 10) / (magazine * size);
    let depot = if depot < 1 {
        1
    } else if depot > 16 {
        16
    } else {
        depot
    };
    ClassInfo {
        size: size as u32,
        slab: slab as u32,
        first: first as u32,
        capacity: capacity as u32,
        reciprocal: (1_u64 << 48).div_ceil(size as u64),
        bitmaps: bitmaps as u32,
        shift: shift as u8,
        magazine: magazine as u8,
        depot: depot as u8,
    }
}

impl Class {
    /// The class of `size` bytes at `align`; `None`: a large object. O(1) but for the alignments above 16, which
    /// look at no more than four classes.
    #[inline]
    pub const fn of(size: usize, align: usize) -> Option<Class> {
        if align <= 16 {
            if size > MAX_SMALL {
                return None;
            }
            return Some(Class::of_size(size));
        }
        if size > MAX_SMALL || align > MAX_SMALL {
            return None;
        }
        let padded = if size == 0 { align } else { size.next_multiple_of(align) };
        if padded > MAX_SMALL {
            return None;
        }
        let mut class = Class::of_size(padded);
        // The next power of two is a class of its own, is aligned to itself and ends the search.
        while size_of_index(class.0 as usize) & (align - 1) != 0 {
            class = Class(class.0 + 1);
        }
        Some(class)
    }

    /// The class of `size` bytes, at most [`MAX_SMALL`], at an alignment up to 16.
    #[inline]
    pub(crate) const fn of_size(size: usize) -> Class {
        if size <= 128 {
            return Class((size.div_ceil(16) as u8).saturating_sub(1));
        }
        let below = size - 1;
        let doubling = below.ilog2();
        let step = (below >> (doubling - 2)) & 3;
        Class((8 + (doubling as usize - 7) * 4 + step) as u8)
    }

    /// All classes, smallest first.
    pub(crate) fn all() -> impl Iterator<Item = Class> {
        (0..CLASSES as u8).map(Class)
    }

    #[inline]
    pub(crate) fn info(self) -> &'static ClassInfo {
        &INFO[self.0 as usize]
    }

    /// What one object of the class is charged: its slot and its tag, in bytes.
    #[inline]
    pub fn charge(self) -> usize {
        self.info().size as usize + TAG_BYTES
    }
}

impl ClassInfo {
    /// The base of the slab that holds the object.
    #[inline]
    pub(crate) fn slab_of(&self, object: usize) -> usize {
        object & !(self.slab as usize - 1)
    }

    /// The address of the object's tag.
    #[inline]
    pub(crate) fn tag_address(&self, object: usize) -> usize {
        let index = (object & (self.slab as usize - 1)) >> self.shift;
        self.slab_of(object) + TAGS + TAG_BYTES * index
    }

    /// Which slot of its slab `object` lies in (also for an interior address), or `None` before the first slot.
    #[inline]
    pub(crate) fn slot_of(&self, object: usize) -> Option<usize> {
        let offset = (object & (self.slab as usize - 1)).checked_sub(self.first as usize)?;
        // Exact: offsets are below 2^20, so the rounded-up reciprocal adds less than 2^-28 to the quotient, whose
        // fraction is at most 1 - 2^-16. The product stays below 2^61.
        let slot = (offset as u64 * self.reciprocal) >> 48;
        Some(slot as usize)
    }

    /// The offset of a slot in its slab.
    #[inline]
    pub(crate) fn offset_of(&self, slot: usize) -> usize {
        self.first as usize + slot * self.size as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_and_waste_stays_under_a_quarter() {
        let mut below = 0;
        for class in Class::all() {
            let size = class.info().size as usize;
            assert!(size > below);
            if below >= 128 {
                assert!((size - below - 1) * 4 < size, "{below} .. {size}");
            }
            assert_eq!(Class::of(size, 1), Some(class));
            assert_eq!(Class::of(below + 1, 1), Some(class));
            below = size;
        }
        assert_eq!(below, MAX_SMALL);
        assert_eq!(Class::of(MAX_SMALL + 1, 1), None);
        assert_eq!(Class::of(0, 1), Some(Class(0)));
    }

    #[test]
    fn b04_every_alignment_gets_a_class_aligned_to_it() {
        for shift in 0..=16 {
            let align = 1_usize << shift;
            for size in (0..=MAX_SMALL).step_by(7).chain([1, MAX_SMALL]) {
                match Class::of(size, align) {
                    Some(class) => {
                        let info = class.info();
                        assert!(info.size as usize >= size);
                        assert_eq!(info.size as usize % align, 0);
                        assert_eq!(info.first as usize % align, 0);
                    }
                    None => assert!(size.next_multiple_of(align) > MAX_SMALL),
                }
            }
        }
    }

    #[test]
    fn tags_and_slots_never_overlap_and_slots_invert() {
        for class in Class::all() {
            let info = class.info();
            let base = 64 << 20;
            let mut seen = std::collections::HashSet::new();
            for slot in 0..info.capacity as usize {
                let object = base + info.offset_of(slot);
                let tag = info.tag_address(object);
                assert!(seen.insert(tag), "two slots share a tag");
                let bitmaps = base + info.bitmaps as usize;
                let bitmaps_end = bitmaps + 16 * bitmap_words(info.capacity as usize);
                assert!(tag + TAG_BYTES <= bitmaps || tag >= bitmaps_end);
                assert!(tag >= base + SLAB_HEADER && bitmaps >= base + SLAB_HEADER && bitmaps.is_multiple_of(8));
                assert!(tag + TAG_BYTES <= base + info.first as usize && bitmaps_end <= base + info.first as usize);
                assert_eq!(info.slot_of(object), Some(slot));
                assert_eq!(info.slot_of(object + info.size as usize - 1), Some(slot));
            }
            assert!(info.offset_of(info.capacity as usize) <= info.slab as usize);
        }
    }
}
