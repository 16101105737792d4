//! Large objects: more than 64 KiB, or aligned to more.
//!
//! Up to [`SPAN_MAX`] they are spans of the page heap; beyond, or aligned beyond a segment, they are *huge*: mappings of
//! their own, aligned to a segment so that the address map finds them. Charged in whole units of 8 KiB.
//!
//! A huge object grows in place where the system can extend its mapping, else its pages are moved by `mremap`,
//! without copying. When unmapping fails (mapping count exhausted, hazard B19) the mapping is kept and used again.

use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use super::locked::Locked;
use super::os::os;
use super::page_heap;
use super::segment::{self, Kind, Place, SEGMENT, UNIT, UNITS};
use super::slab::HARDENED;
use super::tag::Tag;
use crate::life::reentry;

/// The largest object that is a span of a segment; half a segment, so that two fit.
pub(crate) const SPAN_MAX: usize = SEGMENT / 2;
/// The largest alignment, as documented.
pub(crate) const MAX_ALIGN: usize = 1 << 30;

/// A huge object's descriptor. Never unmapped; reused for other huge objects.
#[repr(C)]
pub(crate) struct Huge {
    start: usize,
    /// Bytes of the object, in units; what is charged.
    bytes: AtomicUsize,
    /// Bytes of the mapping, in the system's pages; at least `bytes`.
    mapped: usize,
    tag_shared: AtomicU16,
    next: *mut Huge,
    previous: *mut Huge,
}

struct Registry {
    live: *mut Huge,
    spare: *mut Huge,
    /// Mappings that could not be unmapped.
    kept: *mut Huge,
    bytes: usize,
}

// SAFETY: the descriptors are followed under the lock only and never unmapped.
unsafe impl Send for Registry {}

static REGISTRY: Locked<Registry> =
    Locked::new(Registry { live: null_mut(), spare: null_mut(), kept: null_mut(), bytes: 0 });

/// Bytes of a request in whole units; `None`: beyond the address space.
pub(crate) fn rounded(size: usize) -> Option<usize> {
    size.max(1).checked_next_multiple_of(UNIT).filter(|&bytes| bytes <= isize::MAX as usize)
}

/// Whether a large object of `bytes` (rounded) lies in a segment.
fn is_span(bytes: usize, align: usize) -> bool {
    bytes <= SPAN_MAX && align <= SPAN_MAX
}

/// A new large object of `bytes` (rounded), charged to `owner` already. `true` beside it: it reads as zero.
pub(crate) fn alloc(bytes: usize, align: usize, owner: Tag) -> Option<(NonNull<u8>, bool)> {
    if is_span(bytes, align) {
        let units = align.div_ceil(UNIT);
        let span = page_heap::alloc(bytes / UNIT, units.max(1), Kind::Large, 0, owner)?;
        return Some((span.start, span.fresh));
    }
    alloc_huge(bytes, align, owner)
}

impl Registry {
    fn push_live(&mut self, huge: &mut Huge) {
        huge.previous = null_mut();
        huge.next = self.live;
        // SAFETY: the list holds live descriptors.
        if let Some(next) = unsafe { huge.next.as_mut() } {
            next.previous = huge;
        }
        self.live = huge;
    }

    fn unlink_live(&mut self, huge: &mut Huge) {
        // SAFETY: as in `push_live`.
        let previous = unsafe { huge.previous.as_mut() };
        match previous {
            Some(previous) => previous.next = huge.next,
            None => self.live = huge.next,
        }
        // SAFETY: as in `push_live`.
        if let Some(next) = unsafe { huge.next.as_mut() } {
            next.previous = huge.previous;
        }
    }

    /// A kept mapping that serves.
    fn take_kept(&mut self, mapped: usize, align: usize) -> Option<NonNull<Huge>> {
        let mut link: *mut *mut Huge = &mut self.kept;
        loop {
            // SAFETY: `link` points to the list's head or to a `next` of a descriptor on it.
            let huge = NonNull::new(unsafe { *link })?;
            // SAFETY: as above.
            let fits = unsafe { huge.as_ref() };
            if fits.mapped >= mapped && fits.mapped <= mapped.saturating_mul(2) && fits.start.is_multiple_of(align) {
                // SAFETY: as above.
                unsafe { *link = fits.next };
                return Some(huge);
            }
            link = &raw const fits.next as *mut *mut Huge;
        }
    }

    fn descriptor(&mut self) -> Option<NonNull<Huge>> {
        if let Some(spare) = NonNull::new(self.spare) {
            // SAFETY: as in `push_live`.
            self.spare = unsafe { spare.as_ref().next };
            return Some(spare);
        }
        super::arena::alloc(size_of::<Huge>(), align_of::<Huge>()).map(NonNull::cast)
    }
}

// relaxed (whole file): a tag is read as in `tag::word`; `bytes` changes under the registry's lock or by the object's
// one owner, and is read by whoever owns the object or has stopped the world
fn alloc_huge(bytes: usize, align: usize, owner: Tag) -> Option<(NonNull<u8>, bool)> {
    if align > MAX_ALIGN {
        return None;
    }
    let align = align.max(SEGMENT).max(os().page_size());
    let mapped = bytes.checked_next_multiple_of(os().page_size()).filter(|&mapped| mapped <= isize::MAX as usize)?;
    let kept = REGISTRY.lock().take_kept(mapped, align);
    let (mut huge, zeroed) = match kept {
        Some(kept) => (kept, false),
        None => {
            let mut huge = REGISTRY.lock().descriptor()?;
            // SAFETY: the descriptor is ours.
            let fresh = unsafe { huge.as_mut() };
            match os().map(mapped, align) {
                Some(start) => {
                    fresh.start = start.as_ptr() as usize;
                    fresh.mapped = mapped;
                }
                None => {
                    put_spare(huge);
                    return None;
                }
            }
            (huge, true)
        }
    };
    // SAFETY: as above.
    let this = unsafe { huge.as_mut() };
    this.bytes.store(bytes, Ordering::Relaxed);
    this.tag_shared.store(owner.0, Ordering::Relaxed);
    let start = NonNull::new(this.start as *mut u8)?;
    if !segment::publish(this.start, this.mapped, Some(Place::Huge(huge))) {
        discard(huge);
        return None;
    }
    let mut registry = REGISTRY.lock();
    registry.bytes += this.mapped;
    registry.push_live(this);
    Some((start, zeroed))
}

fn put_spare(mut huge: NonNull<Huge>) {
    let mut registry = REGISTRY.lock();
    // SAFETY: the descriptor is in no list; it is ours.
    unsafe { huge.as_mut() }.next = registry.spare;
    registry.spare = huge.as_ptr();
}

/// Unmaps a huge object's memory; if the system refuses, keeps the mapping for later.
fn discard(mut huge: NonNull<Huge>) {
    // SAFETY: the descriptor is in no list; it is ours.
    let this = unsafe { huge.as_mut() };
    if let Some(start) = NonNull::new(this.start as *mut u8) {
        // SAFETY: nobody uses the object any more.
        if !unsafe { os().unmap(start, this.mapped) } {
            // SAFETY: as above.
            unsafe { os().purge(start, this.mapped) };
            let mut registry = REGISTRY.lock();
            this.next = registry.kept;
            registry.kept = huge.as_ptr();
            return;
        }
    }
    put_spare(huge);
}

/// What is known of a large object from its address.
#[derive(Clone, Copy)]
pub(crate) struct Large {
    place: Place,
    start: NonNull<u8>,
    /// Bytes, in whole units; what is charged.
    pub(crate) bytes: usize,
}

impl Large {
    /// The large object at `object`; aborts when there is none.
    pub(crate) fn at(object: NonNull<u8>) -> Large {
        match Large::containing(object.as_ptr() as usize) {
            Some(large) if large.start == object => large,
            _ => reentry::die_at(
                "freed or resized a pointer that is no large object of this allocator (foreign, double free or wrong layout)",
                object.as_ptr() as usize,
            ),
        }
    }

    /// The large object that contains `address`.
    pub(crate) fn containing(address: usize) -> Option<Large> {
        let place = segment::find(address)?;
        match place {
            Place::Segment(segment) => {
                // SAFETY: descriptors are never unmapped.
                let segment = unsafe { segment.as_ref() };
                let (head, info) = segment.span_at(address);
                (info.kind() == Kind::Large).then(|| Large {
                    place,
                    start: segment.address(head),
                    bytes: info.units() * UNIT,
                })
            }
            Place::Huge(huge) => {
                // SAFETY: as above.
                let huge = unsafe { huge.as_ref() };
                let bytes = huge.bytes.load(Ordering::Relaxed);
                let start = NonNull::new(huge.start as *mut u8)?;
                (address < huge.start + bytes).then_some(Large { place, start, bytes })
            }
        }
    }

    fn tag_word(&self) -> &AtomicU16 {
        match &self.place {
            Place::Segment(segment) => {
                // SAFETY: descriptors are never unmapped.
                let segment = unsafe { segment.as_ref() };
                &segment.units[(self.start.as_ptr() as usize - segment.base) / UNIT].tag_shared
            }
            // SAFETY: as above.
            Place::Huge(huge) => &unsafe { huge.as_ref() }.tag_shared,
        }
    }

    /// Its owner.
    pub(crate) fn owner(&self) -> Tag {
        Tag(self.tag_word().load(Ordering::Relaxed))
    }

    /// Makes `owner` its owner.
    pub(crate) fn set_owner(&self, owner: Tag) {
        self.tag_word().store(owner.0, Ordering::Relaxed);
    }

    /// Frees it. The caller uncharges.
    ///
    /// # Safety
    /// Nobody uses the object any more.
    pub(crate) unsafe fn free(self) {
        match self.place {
            // SAFETY: the caller's promise.
            Place::Segment(_) => unsafe { page_heap::free(self.start, self.bytes / UNIT, Kind::Large) },
            Place::Huge(mut huge) => {
                // SAFETY: the descriptor belongs to the object, which is the caller's.
                let this = unsafe { huge.as_mut() };
                let mut registry = REGISTRY.lock();
                registry.unlink_live(this);
                registry.bytes -= this.mapped;
                drop(registry);
                segment::publish(this.start, this.mapped, None);
                discard(huge);
            }
        }
    }

    /// Changes its size without moving it. The caller charges before a growth and uncharges after a shrinking.
    ///
    /// # Safety
    /// The caller owns the object and uses nothing past `bytes`, which is rounded.
    pub(crate) unsafe fn resize_in_place(&self, bytes: usize) -> bool {
        if bytes == self.bytes {
            return true;
        }
        match self.place {
            Place::Segment(_) if bytes < self.bytes => {
                // A small object's layout must not find a span: the caller keeps `bytes` above the small sizes.
                // SAFETY: the caller's promise.
                unsafe { page_heap::trim(self.start, self.bytes / UNIT, bytes / UNIT) };
                true
            }
            Place::Segment(_) => {
                // SAFETY: the caller's promise.
                bytes <= SPAN_MAX && unsafe { page_heap::extend(self.start, self.bytes / UNIT, bytes / UNIT) }
            }
            // SAFETY: the caller's promise.
            Place::Huge(huge) => unsafe { resize_huge(huge, bytes) },
        }
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.start
    }

    /// Whether it has a mapping of its own.
    pub(crate) fn is_huge(&self) -> bool {
        matches!(self.place, Place::Huge(_))
    }

    /// Moves the pages of a huge object to another, larger one without copying. `false`: nothing happened.
    ///
    /// # Safety
    /// The caller owns both; nobody uses `self` after `true`, when it is to be freed by [`Large::free_moved`].
    pub(crate) unsafe fn relocate_to(&self, to: &Large) -> bool {
        let (Place::Huge(from), Place::Huge(target)) = (self.place, to.place) else { return false };
        // SAFETY: descriptors are never unmapped.
        let (old, new) = unsafe { (from.as_ref().mapped, target.as_ref().mapped) };
        // SAFETY: both mappings are the caller's, and whole.
        old <= new && unsafe { os().relocate(self.start, old, to.start, new) }
    }

    /// Frees what [`relocate_to`](Large::relocate_to) left: the descriptor.
    ///
    /// # Safety
    /// The pages have been moved away.
    pub(crate) unsafe fn free_moved(self) {
        if let Place::Huge(mut huge) = self.place {
            // SAFETY: the descriptor belongs to the object, which is the caller's.
            let this = unsafe { huge.as_mut() };
            let mut registry = REGISTRY.lock();
            registry.unlink_live(this);
            registry.bytes -= this.mapped;
            drop(registry);
            // The addresses may already be somebody else's: erase only what still names this descriptor.
            segment::withdraw(this.start, this.mapped, huge);
            put_spare(huge);
        }
    }

    /// In hardened builds: aborts unless the object is as large as its layout says.
    pub(crate) fn check_layout(&self, size: usize) {
        if HARDENED && rounded(size) != Some(self.bytes) {
            reentry::die_at("freed or resized with a layout of another size", self.start.as_ptr() as usize);
        }
    }
}

/// # Safety
/// As [`Large::resize_in_place`].
unsafe fn resize_huge(mut huge: NonNull<Huge>, bytes: usize) -> bool {
    // SAFETY: the descriptor belongs to the object, which is the caller's.
    let this = unsafe { huge.as_mut() };
    let page = os().page_size();
    let Some(mapped) = bytes.checked_next_multiple_of(page) else { return false };
    let Some(start) = NonNull::new(this.start as *mut u8) else { return false };
    if mapped < this.mapped {
        let Some(tail) = NonNull::new((this.start + mapped) as *mut u8) else { return false };
        let kept_pieces = mapped.next_multiple_of(SEGMENT);
        if kept_pieces < this.mapped {
            segment::publish(this.start + kept_pieces, this.mapped - kept_pieces, None);
        }
        // SAFETY: the caller uses nothing of the tail.
        if unsafe { os().unmap(tail, this.mapped - mapped) } {
            REGISTRY.lock().bytes -= this.mapped - mapped;
            this.mapped = mapped;
        } else {
            // SAFETY: as above. The addresses stay ours.
            unsafe { os().purge(tail, this.mapped - mapped) };
            segment::publish(this.start, this.mapped, Some(Place::Huge(huge)));
        }
    } else if mapped > this.mapped {
        // SAFETY: the mapping is the caller's.
        if !unsafe { os().grow(start, this.mapped, mapped) } {
            return false;
        }
        if !segment::publish(this.start, mapped, Some(Place::Huge(huge))) {
            // No memory for the map: give the new tail back. If that fails too it stays as unused address space.
            if let Some(tail) = NonNull::new((this.start + this.mapped) as *mut u8) {
                // SAFETY: nobody has heard of the tail.
                unsafe { os().unmap(tail, mapped - this.mapped) };
            }
            return false;
        }
        REGISTRY.lock().bytes += mapped - this.mapped;
        this.mapped = mapped;
    }
    this.bytes.store(bytes, Ordering::Relaxed);
    true
}

/// Calls `each` with the owner and bytes of every huge object. The world is stopped.
pub(crate) fn each_huge(mut each: impl FnMut(Tag, usize)) {
    let registry = REGISTRY.lock();
    let mut at = registry.live;
    // SAFETY: as in `Registry::push_live`.
    while let Some(huge) = unsafe { at.as_ref() } {
        each(Tag(huge.tag_shared.load(Ordering::Relaxed)), huge.bytes.load(Ordering::Relaxed));
        at = huge.next;
    }
}

/// Bytes mapped for huge objects.
pub(crate) fn footprint() -> usize {
    REGISTRY.lock().bytes
}

/// For fork: see `life/fork.rs`.
pub(crate) fn hold() {
    REGISTRY.hold();
}
/// For fork: see `life/fork.rs`.
pub(crate) fn release() {
    REGISTRY.release();
}

const _: () = assert!(SPAN_MAX <= UNITS * UNIT && SPAN_MAX.is_multiple_of(UNIT));
