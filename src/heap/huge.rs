//! Huge objects: large ones with a mapping of their own, aligned to a segment so that the address map finds them.
//!
//! They grow in place where the system can extend the mapping, else their pages are moved by `mremap`, without
//! copying. When unmapping fails (mapping count exhausted, hazard B19) the mapping is kept and used again.
//!
//! A freed mapping of up to [`CACHED_OBJECT_MAX`] keeps its pages as a free span does (`heap/purge.rs`), in case one of
//! its size is wanted again: in a new mapping every page has to be faulted in.
//!
//! Equations (lock held): every live huge object's descriptor is in the `live` list exactly once; `bytes <= mapped`
//! for each; `mapped` of the registry is the sum over that list, `bytes` of `kept` and of `cached` over theirs, and
//! the latter is at most [`CACHE_MAX`].

use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering};

use super::locked::Locked;
use super::os::os;
use super::page_heap;
use super::segment::{self, Place, SEGMENT};
use super::tag::Tag;

/// The largest mapping that is cached: four segments.
const CACHED_OBJECT_MAX: usize = 16 << 20;
/// The most bytes that are cached: a few of the largest.
const CACHE_MAX: usize = 4 * CACHED_OBJECT_MAX;

/// A huge object's descriptor. Never unmapped; reused for other huge objects; all-zero is one without an object.
#[repr(C)]
pub(crate) struct Huge {
    start: AtomicUsize,
    /// Bytes of the object, in units; what is charged.
    bytes: AtomicUsize,
    /// Bytes of the mapping, in the system's pages; at least `bytes`.
    mapped: AtomicUsize,
    pub(crate) tag_shared: AtomicU16,
    /// Of a cached mapping: the purge clock's time when it was freed.
    freed_at: AtomicU32,
    /// Neighbours in the `live` list, or the next one in another list. Changed under the lock.
    next: AtomicPtr<Huge>,
    previous: AtomicPtr<Huge>,
}

struct Registry {
    live: *mut Huge,
    spare: *mut Huge,
    /// Mappings that could not be unmapped.
    kept: Free,
    /// Freed mappings with their pages, the last one freed first.
    cached: Free,
    /// Bytes of the mappings in `live`.
    mapped: usize,
}

/// Mappings without an object.
struct Free {
    first: *mut Huge,
    bytes: usize,
}

// SAFETY: the pointers are to descriptors, which are shared through atomics and never unmapped.
unsafe impl Send for Registry {}

static REGISTRY: Locked<Registry> =
    Locked::new(Registry { live: null_mut(), spare: null_mut(), kept: Free::NONE, cached: Free::NONE, mapped: 0 });

fn descriptor_at(huge: *mut Huge) -> Option<&'static Huge> {
    // SAFETY: pointers in lists are null or to descriptors, which are shared through atomics and never unmapped.
    unsafe { huge.as_ref() }
}

fn pointer_to(huge: &'static Huge) -> *mut Huge {
    core::ptr::from_ref(huge).cast_mut()
}

// relaxed (whole file): links change under the lock; the other fields belong to the object's one owner, who hands
// them on together with the object, and a tag is read as in `tag::word`
impl Huge {
    pub(crate) fn start(&self) -> usize {
        self.start.load(Ordering::Relaxed)
    }
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
    fn mapped(&self) -> usize {
        self.mapped.load(Ordering::Relaxed)
    }
    fn set_mapped(&self, mapped: usize) {
        self.mapped.store(mapped, Ordering::Relaxed);
    }
    fn next(&self) -> *mut Huge {
        self.next.load(Ordering::Relaxed)
    }
    fn set_next(&self, next: *mut Huge) {
        self.next.store(next, Ordering::Relaxed);
    }
    fn previous(&self) -> *mut Huge {
        self.previous.load(Ordering::Relaxed)
    }
    fn set_previous(&self, previous: *mut Huge) {
        self.previous.store(previous, Ordering::Relaxed);
    }

    /// Maps memory for an object of `bytes` (in units) that is charged to `owner`. `true` beside it: it reads as zero.
    pub(crate) fn alloc(bytes: usize, align: usize, owner: Tag) -> Option<(&'static Huge, bool)> {
        let page = os().page_size();
        let align = align.max(SEGMENT).max(page);
        let mapped = bytes.checked_next_multiple_of(page).filter(|&mapped| mapped <= isize::MAX as usize)?;
        page_heap::count();
        let free = REGISTRY.lock().take(mapped, align);
        let (huge, zeroed) = match free {
            Some(free) => (free, false),
            None => {
                let huge = REGISTRY.lock().descriptor()?;
                let Some(start) = os().map(mapped, align) else {
                    put_spare(huge);
                    return None;
                };
                huge.start.store(start.as_ptr() as usize, Ordering::Relaxed);
                huge.set_mapped(mapped);
                (huge, true)
            }
        };
        huge.bytes.store(bytes, Ordering::Relaxed);
        huge.tag_shared.store(owner.0, Ordering::Relaxed);
        if !segment::publish(huge.start(), huge.mapped(), Some(Place::Huge(huge))) {
            discard(huge);
            return None;
        }
        REGISTRY.lock().push_live(huge);
        Some((huge, zeroed))
    }

    /// Frees the object.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub(crate) unsafe fn free(&'static self) {
        REGISTRY.lock().unlink_live(self);
        segment::publish(self.start(), self.mapped(), None);
        let now = page_heap::count();
        if !REGISTRY.lock().cache(self, now) {
            discard(self);
        }
    }

    /// Changes the size without moving; `bytes` in units.
    ///
    /// # Safety
    /// The caller owns the object and uses nothing past `bytes`.
    pub(crate) unsafe fn resize(&'static self, bytes: usize) -> bool {
        let Some(mapped) = bytes.checked_next_multiple_of(os().page_size()) else { return false };
        let old = self.mapped();
        if mapped < old {
            self.cut(mapped);
        } else if mapped > old && !self.grow(mapped) {
            return false;
        }
        self.bytes.store(bytes, Ordering::Relaxed);
        true
    }

    /// Gives the mapping's end back. If the system refuses to unmap it, the addresses stay ours.
    fn cut(&'static self, mapped: usize) {
        let old = self.mapped();
        let Some(tail) = NonNull::new((self.start() + mapped) as *mut u8) else { return };
        let kept_pieces = mapped.next_multiple_of(SEGMENT);
        if kept_pieces < old {
            segment::publish(self.start() + kept_pieces, old - kept_pieces, None);
        }
        // SAFETY: the owner uses nothing of the tail.
        if unsafe { os().unmap(tail, old - mapped) } {
            REGISTRY.lock().mapped -= old - mapped;
            self.set_mapped(mapped);
            return;
        }
        // SAFETY: as above.
        unsafe { os().purge(tail, old - mapped) };
        segment::publish(self.start(), old, Some(Place::Huge(self)));
    }

    fn grow(&'static self, mapped: usize) -> bool {
        let old = self.mapped();
        let Some(start) = NonNull::new(self.start() as *mut u8) else { return false };
        // SAFETY: the mapping is the owner's.
        if !unsafe { os().grow(start, old, mapped) } {
            return false;
        }
        if !segment::publish(self.start(), mapped, Some(Place::Huge(self))) {
            // No memory for the map: give the new tail back. If that fails too it stays as unused address space.
            if let Some(tail) = NonNull::new((self.start() + old) as *mut u8) {
                // SAFETY: nobody has heard of the tail.
                unsafe { os().unmap(tail, mapped - old) };
            }
            return false;
        }
        REGISTRY.lock().mapped += mapped - old;
        self.set_mapped(mapped);
        true
    }

    /// Moves the pages to the start of another, larger object, without copying, and frees this one's descriptor.
    /// `false`: this object is as before, and the other is gone; its addresses are given up (see `Os::relocate`).
    ///
    /// # Safety
    /// The caller owns both, and uses `self` no more after `true`, and `to` no more after `false`.
    pub(crate) unsafe fn relocate_to(&'static self, to: &'static Huge) -> bool {
        let (old, new) = (self.mapped(), to.mapped());
        let (Some(from), Some(target)) = (NonNull::new(self.start() as *mut u8), NonNull::new(to.start() as *mut u8))
        else {
            return false;
        };
        // SAFETY: both mappings are the caller's, and whole.
        let moved = old <= new && unsafe { os().relocate(from, old, target, new) };
        if moved {
            self.give_up();
        } else {
            to.give_up();
        }
        moved
    }

    /// Frees the descriptor of an object whose addresses are no longer ours, and may already be somebody else's: erases
    /// only what still names this descriptor.
    fn give_up(&'static self) {
        REGISTRY.lock().unlink_live(self);
        segment::withdraw(self.start(), self.mapped(), self);
        put_spare(self);
    }
}

impl Free {
    const NONE: Free = Free { first: null_mut(), bytes: 0 };

    fn push(&mut self, huge: &'static Huge) {
        huge.set_next(self.first);
        self.first = pointer_to(huge);
        self.bytes += huge.mapped();
    }

    /// The first that `fits`.
    fn take(&mut self, fits: impl Fn(&Huge) -> bool) -> Option<&'static Huge> {
        let mut before: Option<&'static Huge> = None;
        let mut at = self.first;
        while let Some(huge) = descriptor_at(at) {
            if fits(huge) {
                match before {
                    Some(before) => before.set_next(huge.next()),
                    None => self.first = huge.next(),
                }
                self.bytes -= huge.mapped();
                return Some(huge);
            }
            before = Some(huge);
            at = huge.next();
        }
        None
    }
}

impl Registry {
    fn push_live(&mut self, huge: &'static Huge) {
        huge.set_previous(null_mut());
        huge.set_next(self.live);
        if let Some(next) = descriptor_at(self.live) {
            next.set_previous(pointer_to(huge));
        }
        self.live = pointer_to(huge);
        self.mapped += huge.mapped();
    }

    fn unlink_live(&mut self, huge: &'static Huge) {
        match descriptor_at(huge.previous()) {
            Some(previous) => previous.set_next(huge.next()),
            None => self.live = huge.next(),
        }
        if let Some(next) = descriptor_at(huge.next()) {
            next.set_previous(huge.previous());
        }
        self.mapped -= huge.mapped();
    }

    /// A free mapping that serves: long enough and aligned; of the cached ones not an eighth longer, since its pages are
    /// there, of the kept ones not twice as long.
    fn take(&mut self, mapped: usize, align: usize) -> Option<&'static Huge> {
        let fits =
            |huge: &Huge, most: usize| (mapped..=most).contains(&huge.mapped()) && huge.start().is_multiple_of(align);
        let cached = self.cached.take(|huge| fits(huge, mapped.saturating_add(mapped / 8)));
        cached.or_else(|| self.kept.take(|huge| fits(huge, mapped.saturating_mul(2))))
    }

    /// Caches a mapping if there is room.
    fn cache(&mut self, huge: &'static Huge, now: u32) -> bool {
        let room = huge.mapped() <= CACHED_OBJECT_MAX && self.cached.bytes + huge.mapped() <= CACHE_MAX;
        if room {
            huge.freed_at.store(now, Ordering::Relaxed);
            self.cached.push(huge);
        }
        room
    }

    fn descriptor(&mut self) -> Option<&'static Huge> {
        if let Some(spare) = descriptor_at(self.spare) {
            self.spare = spare.next();
            return Some(spare);
        }
        let memory = super::arena::alloc(size_of::<Huge>(), align_of::<Huge>())?;
        // SAFETY: zeroed memory for a descriptor, ours alone; all-zero is valid, and it is shared through atomics only.
        Some(unsafe { memory.cast().as_ref() })
    }
}

fn put_spare(huge: &'static Huge) {
    let mut registry = REGISTRY.lock();
    huge.set_next(registry.spare);
    registry.spare = pointer_to(huge);
}

/// Unmaps an object's memory; if the system refuses, keeps the mapping for later.
fn discard(huge: &'static Huge) {
    let Some(start) = NonNull::new(huge.start() as *mut u8) else { return };
    // SAFETY: nobody uses the object any more.
    if unsafe { os().unmap(start, huge.mapped()) } {
        return put_spare(huge);
    }
    // SAFETY: as above.
    unsafe { os().purge(start, huge.mapped()) };
    REGISTRY.lock().kept.push(huge);
}

/// Unmaps one cached mapping that was freed at a time that `is_old`; its bytes, or 0. The caller holds a slot or the gate.
pub(crate) fn unmap_cached(is_old: impl Fn(u32) -> bool) -> usize {
    let old = REGISTRY.lock().cached.take(|huge| is_old(huge.freed_at.load(Ordering::Relaxed)));
    old.map_or(0, |huge| {
        let bytes = huge.mapped();
        discard(huge);
        bytes
    })
}

/// Tries again to unmap what the system would not take back. The caller holds a slot or the gate.
pub(crate) fn unmap_kept() {
    let mut at = core::mem::replace(&mut REGISTRY.lock().kept, Free::NONE).first;
    while let Some(huge) = descriptor_at(at) {
        at = huge.next();
        discard(huge);
    }
}

/// Calls `each` with the owner and bytes of every huge object. The world is stopped.
pub(crate) fn each(mut each: impl FnMut(Tag, usize)) {
    let registry = REGISTRY.lock();
    let mut at = registry.live;
    while let Some(huge) = descriptor_at(at) {
        each(Tag(huge.tag_shared.load(Ordering::Relaxed)), huge.bytes());
        at = huge.next();
    }
}

/// Bytes mapped for huge objects, cached, and of mappings that are free but could not be unmapped.
pub(crate) fn footprint() -> [usize; 3] {
    let registry = REGISTRY.lock();
    [registry.mapped, registry.cached.bytes, registry.kept.bytes]
}

/// For fork: see `life/fork.rs`.
pub(crate) fn hold() {
    REGISTRY.hold();
}
/// For fork: see `life/fork.rs`.
pub(crate) fn release() {
    REGISTRY.release();
}
