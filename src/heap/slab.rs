//! Slabs: spans cut into slots of one class, shared by all tenants, and each class's list of partial ones.
//!
//! ```text
//! | header 64 B | tags, 2 B each | free bitmap | idle bitmap | slots ... |   aligned to its size
//! ```
//! (`size_class` says where exactly: small objects' bitmaps lie in front of the first tag.)
//!
//! Equations (the class's lock held):
//! * `free` is the number of set bits in the free bitmap, none of them at or past `capacity`;
//! * a slab is in its class's list exactly when `free > 0`;
//! * a slot is free in its slab, or cached in one magazine, or live: never two of these.
//!
//! A slab that fills leaves the list, one that was full enters at the head, so that nearly full slabs are used
//! first and sparse ones get the time to empty. A slab that empties goes back to the page heap, unless it is the
//! only one in the list.
//!
//! The idle bitmap says which slots are not live. Builds with debug assertions or the `hardened` feature keep it up
//! to date and so find double frees; other builds leave it alone but for `verify()`, which uses it to find an object
//! that is cached twice.

use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};

use super::locked::Locked;
use super::page_heap;
use super::segment::{self, Kind, Place, UNIT};
use super::size_class::{bitmap_words, Class, ClassInfo, CLASSES, SLAB_HEADER};
use super::tag::Tag;
use crate::life::reentry;

/// Whether every free is checked against its slab.
pub(crate) const HARDENED: bool = cfg!(any(debug_assertions, feature = "hardened"));

// relaxed (whole file): idle bits are each changed by the one thread that frees or allocates the object; its hand-over
// between threads is ordered by whatever handed it over

/// A slab's header, at its base.
#[repr(C)]
pub(crate) struct Slab {
    next: *mut Slab,
    previous: *mut Slab,
    free: u32,
    class: u8,
    listed: bool,
}

const _: () = assert!(size_of::<Slab>() <= SLAB_HEADER);

/// A class's slabs.
struct Bin {
    partial: *mut Slab,
}

// SAFETY: the list is of slabs that belong to the bin and is followed under its lock only.
unsafe impl Send for Bin {}

static BINS: [Locked<Bin>; CLASSES] = [const { Locked::new(Bin { partial: null_mut() }) }; CLASSES];

/// A slab by its base. The header and the bitmaps are only reached through here, by whoever holds the class's lock or
/// has stopped the world; objects and tags lie behind them.
#[derive(Clone, Copy)]
struct SlabAt(usize);

impl SlabAt {
    /// The slab whose header is at this pointer; `None` for null.
    fn of(slab: *mut Slab) -> Option<SlabAt> {
        (!slab.is_null()).then(|| SlabAt(slab.expose_provenance()))
    }

    fn pointer(self) -> *mut Slab {
        core::ptr::with_exposed_provenance_mut(self.0)
    }

    /// The header.
    ///
    /// # Safety
    /// A slab lies here, and the caller has sole use of it; no other reference to the header is alive.
    unsafe fn header<'a>(self) -> &'a mut Slab {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.pointer() }
    }

    /// The free bitmap of a slab of a class.
    ///
    /// # Safety
    /// As [`header`](SlabAt::header), for the bitmap.
    unsafe fn free_bits<'a>(self, info: &ClassInfo) -> &'a mut [u64] {
        let start = core::ptr::with_exposed_provenance_mut(self.0 + info.bitmaps as usize);
        // SAFETY: the bitmap follows the header inside the slab; `first` lies behind both bitmaps. Use is the caller's.
        unsafe { core::slice::from_raw_parts_mut(start, bitmap_words(info.capacity as usize)) }
    }

    fn object(self, info: &ClassInfo, slot: usize) -> *mut u8 {
        core::ptr::with_exposed_provenance_mut(self.0 + info.offset_of(slot))
    }

    /// Moves free slots into `out`; how many.
    ///
    /// # Safety
    /// As [`header`](SlabAt::header), for the whole slab but its objects.
    unsafe fn take(self, out: &mut [*mut u8]) -> usize {
        // SAFETY: the caller's promise.
        let header = unsafe { self.header() };
        let info = header.info();
        let mut taken = 0;
        // SAFETY: the caller's promise.
        for (index, word) in unsafe { self.free_bits(info) }.iter_mut().enumerate() {
            while *word != 0 && taken < out.len() {
                let slot = index * 64 + word.trailing_zeros() as usize;
                *word &= *word - 1;
                out[taken] = self.object(info, slot);
                taken += 1;
            }
            if taken == out.len() {
                break;
            }
        }
        header.free -= taken as u32;
        taken
    }

    /// The structure's own equations.
    ///
    /// # Safety
    /// As [`take`](SlabAt::take).
    unsafe fn is_valid(self) -> bool {
        // SAFETY: the caller's promise.
        let header = unsafe { self.header() };
        if header.class as usize >= CLASSES {
            return false;
        }
        let info = header.info();
        // SAFETY: the caller's promise.
        let bits = unsafe { self.free_bits(info) };
        let set: u32 = bits.iter().map(|word| word.count_ones()).sum();
        let within = match info.capacity % 64 {
            0 => true,
            tail => bits.last().is_some_and(|word| word >> tail == 0),
        };
        within && set == header.free && header.listed == (header.free > 0)
    }
}

impl Slab {
    fn info(&self) -> &'static ClassInfo {
        Class(self.class).info()
    }
}

// SAFETY (of every block here): the class's lock is held; slabs in the list and slabs of the class's objects are live
// and belong to the bin, and one reference to a header is made at a time.
impl Bin {
    fn link(&mut self, slab: SlabAt) {
        let next = SlabAt::of(self.partial);
        if let Some(next) = next {
            // SAFETY: see above.
            unsafe { next.header() }.previous = slab.pointer();
        }
        // SAFETY: see above.
        let header = unsafe { slab.header() };
        header.previous = null_mut();
        header.next = self.partial;
        header.listed = true;
        self.partial = slab.pointer();
    }

    fn unlink(&mut self, slab: SlabAt) {
        // SAFETY: see above.
        let header = unsafe { slab.header() };
        header.listed = false;
        let (next, previous) = (header.next, header.previous);
        match SlabAt::of(previous) {
            // SAFETY: see above.
            Some(previous) => unsafe { previous.header() }.next = next,
            None => self.partial = next,
        }
        if let Some(next) = SlabAt::of(next) {
            // SAFETY: see above.
            unsafe { next.header() }.previous = previous;
        }
    }

    fn take(&mut self, out: &mut [*mut u8]) -> usize {
        let mut taken = 0;
        while let Some(slab) = SlabAt::of(self.partial) {
            if taken == out.len() {
                break;
            }
            // SAFETY: see above.
            taken += unsafe { slab.take(&mut out[taken..]) };
            // SAFETY: see above.
            if unsafe { slab.header() }.free == 0 {
                self.unlink(slab);
            }
        }
        taken
    }

    /// Puts an object back; a slab that emptied and is not needed is returned, in no list.
    fn put(&mut self, class: Class, object: *mut u8) -> Option<SlabAt> {
        let info = class.info();
        let slab = SlabAt(info.slab_of(object.expose_provenance()));
        // SAFETY: see above.
        let header = unsafe { slab.header() };
        let slot = match info.slot_of(object as usize) {
            Some(slot) if header.class == class.0 && slot < info.capacity as usize => slot,
            _ => reentry::die_at("an object that is no slot of its slab came back", object as usize),
        };
        // SAFETY: see above.
        let word = &mut unsafe { slab.free_bits(info) }[slot / 64];
        let bit = 1 << (slot % 64);
        if *word & bit != 0 {
            reentry::die_at("an object came back to its slab twice", object as usize);
        }
        *word |= bit;
        header.free += 1;
        let free = header.free;
        if free == 1 {
            self.link(slab);
        }
        // SAFETY: see above.
        let header = unsafe { slab.header() };
        let alone = header.previous.is_null() && header.next.is_null();
        if free < info.capacity || alone {
            return None;
        }
        self.unlink(slab);
        Some(slab)
    }
}

/// Fills `out` with free objects of a class, as many as one visit finds, at least one. 0: out of memory.
pub(crate) fn alloc_batch(class: Class, out: &mut [*mut u8]) -> usize {
    let bin = &BINS[class.0 as usize];
    loop {
        let taken = bin.lock().take(out);
        if taken > 0 || out.is_empty() {
            return taken;
        }
        let Some(slab) = create(class) else { return 0 };
        bin.lock().link(slab);
    }
}

fn create(class: Class) -> Option<SlabAt> {
    let info = class.info();
    let units = info.slab as usize / UNIT;
    let span = page_heap::alloc(units, units, Kind::Slab, class.0, Tag::ROOT)?;
    let slab = SlabAt(span.start.as_ptr().expose_provenance());
    let header = Slab { next: null_mut(), previous: null_mut(), free: info.capacity, class: class.0, listed: false };
    // SAFETY: the span is ours and large enough for the header.
    unsafe { slab.pointer().write(header) };
    let capacity = info.capacity as usize;
    // SAFETY: the span is known to nobody else.
    for (index, word) in unsafe { slab.free_bits(info) }.iter_mut().enumerate() {
        let bits = (capacity - index * 64).min(64);
        *word = u64::MAX >> (64 - bits);
        if HARDENED {
            idle_word(info, slab.0, index * 64).store(*word, Ordering::Relaxed);
        }
    }
    Some(slab)
}

/// Gives objects of a class back to their slabs.
///
/// # Safety
/// Each is a slot of a slab of `class`, charged to nobody, and reachable through `objects` only.
pub(crate) unsafe fn free_batch(class: Class, objects: &[*mut u8]) {
    let mut emptied: *mut Slab = null_mut();
    let mut bin = BINS[class.0 as usize].lock();
    for &object in objects {
        if let Some(slab) = bin.put(class, object) {
            // SAFETY: the slab has left the bin; it is ours.
            unsafe { slab.header() }.next = emptied;
            emptied = slab.pointer();
        }
    }
    drop(bin);
    release(class, emptied);
}

/// Gives a chain of empty slabs back to the page heap.
fn release(class: Class, mut chain: *mut Slab) {
    while let Some(start) = NonNull::new(chain) {
        // SAFETY: the chain is ours; its slabs are empty, so the span is used by nobody.
        unsafe {
            chain = start.as_ref().next;
            page_heap::free(start.cast(), class.info().slab as usize / UNIT, Kind::Slab);
        }
    }
}

/// Gives the empty slabs that bins keep back to the page heap.
pub(crate) fn release_empty() {
    for class in Class::all() {
        let mut bin = BINS[class.0 as usize].lock();
        let mut emptied: *mut Slab = null_mut();
        let mut at = bin.partial;
        while let Some(slab) = SlabAt::of(at) {
            // SAFETY: slabs in the list are live, and the bin is locked.
            let header = unsafe { slab.header() };
            at = header.next;
            if header.free == header.info().capacity {
                bin.unlink(slab);
                // SAFETY: the slab has left the bin; it is ours.
                unsafe { slab.header() }.next = emptied;
                emptied = slab.pointer();
            }
        }
        drop(bin);
        release(class, emptied);
    }
}

fn idle_word(info: &ClassInfo, base: usize, slot: usize) -> &'static AtomicU64 {
    let words = bitmap_words(info.capacity as usize);
    let address = base + info.bitmaps as usize + 8 * (words + slot / 64);
    // SAFETY: the idle bitmap lies behind the free bitmap in a slab that the caller knows to be mapped, and is
    // accessed through this function only.
    unsafe { AtomicU64::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
}

/// Marks an object as not live; whether it was live.
///
/// # Safety
/// `object` is a slot of a live slab of `class`.
pub(crate) unsafe fn mark_idle(class: Class, object: *mut u8) -> bool {
    let info = class.info();
    let slot = info.slot_of(object as usize).unwrap_or(0);
    let word = idle_word(info, info.slab_of(object as usize), slot);
    word.fetch_or(1 << (slot % 64), Ordering::Relaxed) >> (slot % 64) & 1 == 0
}

/// Marks an object as live.
///
/// # Safety
/// As [`mark_idle`].
#[inline]
pub(crate) unsafe fn mark_live(class: Class, object: *mut u8) {
    if HARDENED {
        let info = class.info();
        let slot = info.slot_of(object as usize).unwrap_or(0);
        let word = idle_word(info, info.slab_of(object as usize), slot);
        if word.fetch_and(!(1 << (slot % 64)), Ordering::Relaxed) >> (slot % 64) & 1 == 0 {
            reentry::die_at("an object that is live was about to be given out", object as usize);
        }
    }
}

/// In hardened builds: aborts unless `object` is an object of `class`, as far as can be seen without changing it.
#[inline]
pub(crate) fn check_object(class: Class, object: *mut u8) {
    if !HARDENED {
        return;
    }
    let address = object as usize;
    let Some(Place::Segment(segment)) = segment::find(address) else {
        reentry::die_at("freed a pointer that is not from this allocator", address);
    };
    let (_, info) = segment.span_at(address);
    if info.kind() != Kind::Slab {
        reentry::die_at("freed a pointer that is not in use as a small object (double free or wrong layout)", address);
    }
    if info.class() != class.0 {
        reentry::die_at("freed with a layout of another size class than it was allocated with", address);
    }
    let info = class.info();
    match info.slot_of(address) {
        Some(slot) if info.slab_of(address) + info.offset_of(slot) == address => {}
        _ => reentry::die_at("freed a pointer into the middle of an object", address),
    }
}

/// In hardened builds: aborts unless `object` is a live object of `class`, and marks it idle.
#[inline]
pub(crate) fn check_free(class: Class, object: *mut u8) {
    if !HARDENED {
        return;
    }
    check_object(class, object);
    // SAFETY: checked just now: a slot of a slab of the class.
    if !unsafe { mark_idle(class, object) } {
        reentry::die_at("double free", object as usize);
    }
}

/// Clears the idle bits of a slab, for `verify()`. The world is stopped.
pub(crate) fn clear_idle(class: Class, base: usize) {
    let info = class.info();
    for index in 0..bitmap_words(info.capacity as usize) {
        idle_word(info, base, index * 64).store(0, Ordering::Relaxed);
    }
}

/// Calls `each` with every object of a slab that is not free in it: live or cached. `false`: the slab is corrupt.
/// The world is stopped.
pub(crate) fn each_object(base: NonNull<u8>, mut each: impl FnMut(Class, *mut u8)) -> bool {
    let slab = SlabAt(base.as_ptr().expose_provenance());
    // SAFETY: the caller found a slab's span at this address, and nothing runs.
    if !unsafe { slab.is_valid() } {
        return false;
    }
    // SAFETY: as above.
    let class = Class(unsafe { slab.header() }.class);
    let info = class.info();
    for slot in 0..info.capacity as usize {
        // SAFETY: as above.
        if unsafe { slab.free_bits(info) }[slot / 64] >> (slot % 64) & 1 == 0 {
            each(class, slab.object(info, slot));
        }
    }
    true
}

/// Whether the slot that holds `address` is free in its slab. The world is stopped.
pub(crate) fn is_free(class: Class, object: *mut u8) -> bool {
    let info = class.info();
    let slab = SlabAt(info.slab_of(object as usize));
    let slot = info.slot_of(object as usize).unwrap_or(usize::MAX);
    // SAFETY: a cached object's slab is live, and nothing runs.
    slot >= info.capacity as usize || unsafe { slab.free_bits(info) }[slot / 64] >> (slot % 64) & 1 != 0
}
