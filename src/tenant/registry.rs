//! Ids and records: who exists, who descends from whom.
//!
//! Records lie in chunks of 64, found by id without a lock; the tree's lists and the free ids are changed under one
//! lock, a leaf that is held for a few instructions and never while anything is allocated.
//!
//! Equations (lock held):
//! * an id below `next` is in the free list, or its record is in exactly one parent's list of children;
//! * a record's counter word counts the records in its list of children;
//! * an id enters the free list only when its word is exactly "retired": no bytes, no children.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::events::Event;
use super::node::Node;
use crate::charge::counter::{Counter, Tree};
use crate::charge::{limit, pressure};
use crate::heap::arena;
use crate::heap::locked::Locked;
use crate::heap::tag::Tag;
use crate::life::reentry;

/// Tenants that may exist at once, root included: ids 0 to 65,534. The kernel's bound for memory cgroups.
pub(crate) const MAX_TENANTS: usize = 65_535;
/// The deepest a tenant may be nested below root.
pub(crate) const MAX_DEPTH: u16 = 32;
/// Records in a chunk.
const CHUNK: usize = 64;
const CHUNKS: usize = (MAX_TENANTS + 1) / CHUNK;

static FIRST: [Node; CHUNK] = {
    let mut chunk = [const { Node::new(0) }; CHUNK];
    // Root: one handle that is never dropped.
    chunk[0] = Node::new(1);
    chunk
};

static TABLE: [AtomicPtr<Node>; CHUNKS] = {
    let mut table = [const { AtomicPtr::new(core::ptr::null_mut()) }; CHUNKS];
    table[0] = AtomicPtr::new((&raw const FIRST).cast::<Node>().cast_mut());
    table
};

/// Ids not in use.
struct Ids {
    /// Head of the list of free ids.
    free: Tag,
    /// The lowest id never used.
    next: usize,
}

static IDS: Locked<Ids> = Locked::new(Ids { free: Tag::NONE, next: 1 });

/// The tree of all tenants.
#[derive(Clone, Copy)]
pub(crate) struct Registry;

/// The record of an id that is or was in use.
#[inline]
pub(crate) fn node(id: Tag) -> &'static Node {
    // pairs: registry::create - the chunk's records
    let chunk = TABLE[usize::from(id.0) / CHUNK].load(Ordering::Acquire);
    if chunk.is_null() {
        reentry::die("an object carries the tag of a tenant that never existed");
    }
    // SAFETY: chunks hold `CHUNK` records and are never freed; records are shared through atomics only.
    unsafe { &*chunk.add(usize::from(id.0) % CHUNK) }
}

/// A tenant and its ancestors, root last. The id is pinned by a handle, bytes or a child.
#[inline]
pub(crate) fn chain(id: Tag) -> impl Iterator<Item = Tag> {
    core::iter::successors(Some(id), |&level| node(level).parent())
}

/// The nearest living tenant among `id` and its ancestors. Root always lives.
pub(crate) fn living(id: Tag) -> Tag {
    chain(id).find(|&level| node(level).handles.is_living()).unwrap_or(Tag::ROOT)
}

impl Tree for Registry {
    #[inline]
    fn counter(&self, id: Tag) -> &Counter {
        &node(id).counter
    }

    #[inline]
    fn parent(&self, id: Tag) -> Option<Tag> {
        node(id).parent()
    }

    #[inline]
    fn is_pressured(&self, id: Tag) -> bool {
        pressure::is_pressured(id)
    }

    fn charged(&self, id: Tag, before: usize, after: usize) {
        let node = node(id);
        let max = node.counter.max();
        if after > max {
            note(id, Event::Forced, 1);
            note(id, Event::OverdraftBytes, (after - before.max(max)) as u64);
        }
        node.pressure.rose(max, after);
        let high = node.high();
        if before <= high && high < after {
            note(id, Event::High, 1);
        }
    }

    fn uncharged(&self, id: Tag, after: usize) {
        let node = node(id);
        node.pressure.fell(node.counter.max(), after);
    }

    fn released(&self, id: Tag) {
        release_id(id);
    }
}

/// Counts an event at a tenant and, hierarchically, at its ancestors.
#[cold]
pub(crate) fn note(id: Tag, event: Event, n: u64) {
    node(id).events.add_local(event, n);
    for level in chain(id) {
        node(level).events.add_hierarchical(event, n);
    }
}

/// Why no id could be had.
pub(crate) enum NoId {
    Exhausted,
    OutOfMemory,
}

/// A fresh record below `parent`, living with one handle, its limits not yet set. The caller is inside the gate and
/// holds a handle of `parent`, which passes to the child.
pub(crate) fn create(parent: Tag, name: *mut u8, name_len: usize) -> Result<Tag, NoId> {
    let mut ids = IDS.lock();
    let id = if ids.free != Tag::NONE {
        let id = ids.free;
        ids.free = node(id).links.next();
        id
    } else if ids.next < MAX_TENANTS {
        let id = Tag(ids.next as u16);
        let chunk = &TABLE[ids.next / CHUNK];
        // relaxed: under the lock
        if chunk.load(Ordering::Relaxed).is_null() {
            let Some(memory) = arena::alloc(CHUNK * size_of::<Node>(), 64) else { return Err(NoId::OutOfMemory) };
            let records = memory.cast::<Node>().as_ptr();
            for record in 0..CHUNK {
                // SAFETY: the memory is ours, and large and aligned enough for `CHUNK` records.
                unsafe { records.add(record).write(Node::new(0)) };
            }
            // pairs: registry::node - the records
            chunk.store(records, Ordering::Release);
        }
        ids.next += 1;
        id
    } else {
        return Err(NoId::Exhausted);
    };
    let (child, above) = (node(id), node(parent));
    child.reset(parent, above.depth() + 1, name, name_len);
    above.counter.add_child();
    let first = above.links.first_child();
    child.links.set_next(first);
    if first != Tag::NONE {
        node(first).links.set_previous(id);
    }
    above.links.set_first_child(id);
    child.handles.reset();
    Ok(id)
}

/// Puts an id that nothing carries any more back, and those of its ancestors that it was the last to hold.
#[cold]
fn release_id(mut id: Tag) {
    loop {
        let child = node(id);
        let Some(parent) = child.parent() else { return };
        let above = node(parent);
        let mut ids = IDS.lock();
        let (next, previous) = (child.links.next(), child.links.previous());
        if next != Tag::NONE {
            node(next).links.set_previous(previous);
        }
        if previous != Tag::NONE {
            node(previous).links.set_next(next);
        } else {
            above.links.set_first_child(next);
        }
        child.links.set_next(ids.free);
        ids.free = id;
        // A charge that was under way while the tenant retired may have raised pressure or stopped it again; none is under way now.
        child.pressure.clear();
        limit::forget_stop(child);
        let word = above.counter.remove_child();
        drop(ids);
        if !word.is_free() {
            return;
        }
        id = parent;
    }
}

/// Calls `each` with `id` and all its descendants, living or retired, parents first. The world is stopped, so that the
/// tree changes only by what `each` releases.
pub(crate) fn each_within(id: Tag, mut each: impl FnMut(Tag)) {
    let mut at = id;
    loop {
        // The next one is found first: `each` may release `at`, and with it retired ancestors, but never a tenant
        // that is still to come.
        let mut next = node(at).links.first_child();
        let mut climb = at;
        while next == Tag::NONE && climb != id {
            next = node(climb).links.next();
            climb = node(climb).parent().unwrap_or(Tag::ROOT);
        }
        each(at);
        if next == Tag::NONE {
            return;
        }
        at = next;
    }
}

/// The living children of `id`: how many there are, and as many as `out` holds, each with a handle acquired.
pub(crate) fn acquire_children(id: Tag, out: &mut [Tag]) -> (usize, usize) {
    let _ids = IDS.lock();
    let (mut found, mut acquired) = (0, 0);
    let mut child = node(id).links.first_child();
    while child != Tag::NONE {
        let record = node(child);
        if record.handles.is_living() {
            found += 1;
            if acquired < out.len() && record.handles.try_acquire() {
                out[acquired] = child;
                acquired += 1;
            }
        }
        child = record.links.next();
    }
    (found, acquired)
}

/// One more than the highest id ever used.
pub(crate) fn ids_used() -> usize {
    IDS.lock().next
}

/// For fork: see `life/fork.rs`.
pub(crate) fn hold() {
    IDS.hold();
}
/// For fork: see `life/fork.rs`.
pub(crate) fn release() {
    IDS.release();
}
