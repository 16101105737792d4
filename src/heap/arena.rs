//! The allocator's own records: segment descriptors, tenant records, the arrays of magazines.
//!
//! A bump allocator over OS memory. Nothing is given back; every kind of record has a free list of its own, so that
//! records are reused for their own kind for ever (type-stable: a stale pointer still points to a record of that
//! kind). Billed to nobody; counted in `stats().metadata`.

use core::ptr::NonNull;

use super::locked::Locked;
use super::os::os;

/// How much is asked of the system at a time, largest first: smaller when address space is short.
const STEPS: [usize; 3] = [1 << 20, 256 << 10, 64 << 10];

struct Arena {
    next: usize,
    end: usize,
    mapped: usize,
    used: usize,
}

static ARENA: Locked<Arena> = Locked::new(Arena { next: 0, end: 0, mapped: 0, used: 0 });

impl Arena {
    fn alloc(&mut self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        loop {
            let start = self.next.checked_next_multiple_of(align)?;
            let end = start.checked_add(bytes)?;
            if self.next != 0 && end <= self.end {
                self.next = end;
                self.used += bytes;
                return NonNull::new(start as *mut u8);
            }
            self.grow(bytes + align)?;
        }
    }

    fn grow(&mut self, least: usize) -> Option<()> {
        let page = os().page_size();
        for step in STEPS {
            let bytes = step.max(least).next_multiple_of(page);
            if let Some(start) = os().map(bytes, page) {
                self.next = start.as_ptr() as usize;
                self.end = self.next + bytes;
                self.mapped += bytes;
                return Some(());
            }
        }
        None
    }
}

/// Zeroed memory for a record that is never given back to the arena. `None`: out of memory.
pub(crate) fn alloc(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    ARENA.lock().alloc(bytes, align)
}

/// Bytes mapped for records, and bytes of them in use.
pub(crate) fn footprint() -> (usize, usize) {
    let arena = ARENA.lock();
    (arena.mapped, arena.used)
}

/// For fork: see `life/fork.rs`.
pub(crate) fn hold() {
    ARENA.hold();
}
/// For fork: see `life/fork.rs`.
pub(crate) fn release() {
    ARENA.release();
}
