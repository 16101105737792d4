//! A tenant's record.

use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering};

use super::events::EventCounters;
use super::handles::Handles;
use crate::charge::counter::Counter;
use crate::charge::pressure::Pressure;
use crate::heap::tag::Tag;

/// A tenant's record: 256 bytes, type-stable, found by id. Fields are shared between threads unless a lock is named.
#[repr(C, align(64))]
pub(crate) struct Node {
    pub(crate) counter: Counter,
    pub(crate) pressure: Pressure,
    pub(crate) high_shared: AtomicUsize,
    /// Bytes of external charges, part of the counter.
    pub(crate) external_shared: AtomicUsize,
    pub(crate) handles: Handles,
    pub(crate) stopped: Stopped,
    /// Constant from creation until the id is free.
    parent_shared: AtomicU16,
    depth_shared: AtomicU16,
    pub(crate) events: EventCounters,
    name_shared: AtomicPtr<u8>,
    name_len_shared: AtomicUsize,
    /// Under the registry's lock: children and siblings, living or retired, and the list of free ids.
    pub(crate) links: Links,
}

const _: () = assert!(size_of::<Node>() <= 256, "an idle tenant costs under 512 bytes");

/// List links by id; [`Tag::NONE`] ends a list. Used under the registry's lock.
pub(crate) struct Links {
    first_child: AtomicU16,
    next: AtomicU16,
    previous: AtomicU16,
}

/// Whether a tenant is stopped, and by whose limit.
///
/// | low 16 bits | bit 16 | meaning |
/// |---|---|---|
/// | - | 0 | running |
/// | id | 1 | stopped: the limit of `id` was met (its own or an ancestor's) |
/// | [`Tag::NONE`] | 1 | stopped by `stop()` |
pub(crate) struct Stopped {
    word_shared: AtomicU32,
}

const IS_STOPPED: u32 = 1 << 16;

// relaxed (whole file): a record's fields are published with its id, through the registry's lock or a handle; flags
// and limits are read again at the next checkpoint
impl Stopped {
    /// Stops; whether it was running before.
    pub(crate) fn set(&self, hit: Tag) -> bool {
        let word = IS_STOPPED | u32::from(hit.0);
        self.word_shared.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
    /// Lets it run; whether it was stopped before.
    pub(crate) fn clear(&self) -> bool {
        self.word_shared.swap(0, Ordering::Relaxed) != 0
    }
    /// By whose limit it is stopped, if it is.
    pub(crate) fn hit(&self) -> Option<Tag> {
        let word = self.word_shared.load(Ordering::Relaxed);
        (word & IS_STOPPED != 0).then_some(Tag(word as u16))
    }
}

impl Node {
    pub(crate) const fn new(handles: usize) -> Self {
        Node {
            counter: Counter::new(),
            pressure: Pressure::new(),
            high_shared: AtomicUsize::new(usize::MAX),
            external_shared: AtomicUsize::new(0),
            handles: Handles::new(handles),
            stopped: Stopped { word_shared: AtomicU32::new(0) },
            parent_shared: AtomicU16::new(Tag::NONE.0),
            depth_shared: AtomicU16::new(0),
            events: EventCounters::new(),
            name_shared: AtomicPtr::new(core::ptr::null_mut()),
            name_len_shared: AtomicUsize::new(0),
            links: Links {
                first_child: AtomicU16::new(Tag::NONE.0),
                next: AtomicU16::new(Tag::NONE.0),
                previous: AtomicU16::new(Tag::NONE.0),
            },
        }
    }

    /// Makes the record that of a new tenant without handles. The caller owns the id.
    pub(crate) fn reset(&self, parent: Tag, depth: u16, name: *mut u8, name_len: usize) {
        self.high_shared.store(usize::MAX, Ordering::Relaxed);
        self.external_shared.store(0, Ordering::Relaxed);
        self.stopped.clear();
        self.parent_shared.store(parent.0, Ordering::Relaxed);
        self.depth_shared.store(depth, Ordering::Relaxed);
        self.events.reset();
        self.name_shared.store(name, Ordering::Relaxed);
        self.name_len_shared.store(name_len, Ordering::Relaxed);
        self.links.set_first_child(Tag::NONE);
        self.links.set_next(Tag::NONE);
        self.links.set_previous(Tag::NONE);
        // Last: from here on the id takes charges, also from a thread whose forgotten scope still names it.
        self.counter.reset();
    }

    #[inline]
    pub(crate) fn parent(&self) -> Option<Tag> {
        let parent = Tag(self.parent_shared.load(Ordering::Relaxed));
        (parent != Tag::NONE).then_some(parent)
    }
    pub(crate) fn depth(&self) -> u16 {
        self.depth_shared.load(Ordering::Relaxed)
    }
    pub(crate) fn high(&self) -> usize {
        self.high_shared.load(Ordering::Relaxed)
    }
    pub(crate) fn set_high(&self, high: usize) {
        self.high_shared.store(high, Ordering::Relaxed);
    }

    /// The name as it was given; empty for root and for free ids.
    ///
    /// # Safety
    /// The tenant has a handle for as long as the name is used.
    pub(crate) unsafe fn name(&self) -> &str {
        let name = self.name_shared.load(Ordering::Relaxed);
        if name.is_null() {
            return "";
        }
        // SAFETY: the pair describes a string that was given to `reset` and is freed after the last handle only.
        unsafe {
            core::str::from_utf8_unchecked(core::slice::from_raw_parts(
                name,
                self.name_len_shared.load(Ordering::Relaxed),
            ))
        }
    }

    /// Takes the name out, for the retiring thread to free.
    pub(crate) fn take_name(&self) -> (*mut u8, usize) {
        let name = self.name_shared.swap(core::ptr::null_mut(), Ordering::Relaxed);
        (name, self.name_len_shared.swap(0, Ordering::Relaxed))
    }
}

impl Links {
    pub(crate) fn first_child(&self) -> Tag {
        Tag(self.first_child.load(Ordering::Relaxed))
    }
    pub(crate) fn next(&self) -> Tag {
        Tag(self.next.load(Ordering::Relaxed))
    }
    pub(crate) fn previous(&self) -> Tag {
        Tag(self.previous.load(Ordering::Relaxed))
    }
    pub(crate) fn set_first_child(&self, id: Tag) {
        self.first_child.store(id.0, Ordering::Relaxed);
    }
    pub(crate) fn set_next(&self, id: Tag) {
        self.next.store(id.0, Ordering::Relaxed);
    }
    pub(crate) fn set_previous(&self, id: Tag) {
        self.previous.store(id.0, Ordering::Relaxed);
    }
}
