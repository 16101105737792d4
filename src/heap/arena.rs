//! The allocator's own records: segment descriptors, tenant records, slots, magazine blocks.
//!
//! A bump allocator over OS memory. Nothing is given back; every kind of record has a free list of its own, so that
//! records are reused for their own kind for ever (type-stable: a stale pointer still points to a record of that
//! kind). Billed to nobody; counted in `stats().metadata`.

use core::ptr::NonNull;

use super::locked::Locked;
use super::os::os;
use super::size_class::MAGAZINE_MAX;

/// How much is asked of the system at a time, largest first: smaller when address space is short.
const STEPS: [usize; 3] = [1 << 20, 256 << 10, 64 << 10];

struct Arena {
    next: usize,
    end: usize,
    mapped: usize,
    used: usize,
    /// Free magazine blocks, each pointing to the next.
    blocks: *mut Block,
}

/// Room for the pointers of one magazine.
#[repr(C)]
union Block {
    next: *mut Block,
    objects: [*mut u8; MAGAZINE_MAX],
}

// SAFETY: the pointers are to memory that the arena owns; they are used under its lock only.
unsafe impl Send for Arena {}

static ARENA: Locked<Arena> = Locked::new(Arena { next: 0, end: 0, mapped: 0, used: 0, blocks: core::ptr::null_mut() });

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

/// Room for [`MAGAZINE_MAX`] pointers, with unspecified content.
pub(crate) fn alloc_block() -> Option<NonNull<*mut u8>> {
    let mut arena = ARENA.lock();
    if let Some(block) = NonNull::new(arena.blocks) {
        // SAFETY: blocks on the free list are owned by it and hold a `next`.
        arena.blocks = unsafe { block.as_ref().next };
        return Some(block.cast());
    }
    arena.alloc(size_of::<Block>(), 64).map(NonNull::cast)
}

/// Gives a block back.
///
/// # Safety
/// It came from [`alloc_block`] and is used no more.
pub(crate) unsafe fn free_block(block: NonNull<*mut u8>) {
    let block: *mut Block = block.as_ptr().cast();
    let mut arena = ARENA.lock();
    // SAFETY: the caller gives the block up; it is large and aligned enough for a pointer.
    unsafe { (*block).next = arena.blocks };
    arena.blocks = block;
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
