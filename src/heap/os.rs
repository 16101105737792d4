//! What the heap asks of the operating system, as a trait with a contract.
//!
//! `unix::Unix` is the real one; `faulty::Faulty` wraps another and fails, keeps bytes or pretends other page
//! sizes, for tests. The choice is one word read on slow paths only.

#[cfg(feature = "testing")]
pub mod faulty;
pub mod unix;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What `purge` did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purged {
    /// The pages went back; what they read as now is not relied on (hazard B06: some systems keep the bytes).
    Returned,
    /// Nothing happened (locked pages, a filtered call); the pages keep their bytes and their cost.
    Kept,
}

/// A source of memory.
///
/// # Safety
/// Implementations keep the postconditions; the heap builds on them without checking again.
pub unsafe trait Os: Sync {
    /// The page size: a power of two, at least 4096, the same at every call.
    fn page_size(&self) -> usize;

    /// Maps `bytes` of zeroed, readable and writable memory aligned to `align`.
    ///
    /// Pre: `bytes` is a multiple of `page_size()`, not 0; `align` a power of two, at least `page_size()`.
    /// Post: the memory overlaps no live mapping and reads as zero; or `None`, and nothing is mapped.
    fn map(&self, bytes: usize, align: usize) -> Option<NonNull<u8>>;

    /// Unmaps memory.
    ///
    /// Post: on `true` the range is gone; on `false` (mapping count exhausted) it is as before, still usable.
    ///
    /// # Safety
    /// The range is page-aligned, was given by `map` or `resize` of this source, and is used no more.
    unsafe fn unmap(&self, start: NonNull<u8>, bytes: usize) -> bool;

    /// Tells the system that the content of a range is not needed.
    ///
    /// Post: the range stays mapped and writable. What it reads as is unspecified.
    ///
    /// # Safety
    /// The range lies within a live mapping of this source, is page-aligned, and holds nothing anybody will read.
    unsafe fn purge(&self, start: NonNull<u8>, bytes: usize) -> Purged;

    /// Grows a mapping in place.
    ///
    /// Post: on `true` the mapping is `new` bytes long and the added bytes read as zero; on `false` it is as before.
    ///
    /// # Safety
    /// `[start, start + old)` is the end of one mapping of this source; both sizes are multiples of the page size
    /// and `new > old`.
    unsafe fn grow(&self, start: NonNull<u8>, old: usize, new: usize) -> bool;

    /// Moves the pages of `[from, from + old)` to `[to, to + new)` without copying; the rest of the new range reads as
    /// zero.
    ///
    /// Post: on `true` the content is at `to` and the old range is unmapped. On `false` the old range is as before and the
    /// new one is lost: kernels before 6.17 unmap it before they find that they cannot move, so that it may be
    /// anybody's by now. It must be neither used nor unmapped.
    ///
    /// # Safety
    /// Both ranges are whole live mappings of this source and do not overlap; nobody uses `to`; `old <= new`.
    unsafe fn relocate(&self, from: NonNull<u8>, old: usize, to: NonNull<u8>, new: usize) -> bool;

    /// Milliseconds on a clock that never goes back; cheap and coarse.
    fn clock_ms(&self) -> u64;
}

static UNIX: unix::Unix = unix::Unix;
static UNIX_DYN: &dyn Os = &UNIX;
/// Null: the real system. Otherwise a `&'static &'static dyn Os`.
static REPLACED: AtomicPtr<&'static dyn Os> = AtomicPtr::new(core::ptr::null_mut());

/// The system in use.
#[inline]
pub(crate) fn os() -> &'static dyn Os {
    // pairs: os::replace - the table and state of the replacement
    let replaced = REPLACED.load(Ordering::Acquire);
    if replaced.is_null() {
        return UNIX_DYN;
    }
    // SAFETY: only `replace` stores here, and only pointers made from `&'static` references.
    unsafe { *replaced }
}

/// Puts another source in place of the one in use, for tests. It must be able to unmap, purge and move what its
/// predecessor mapped: a wrapper of the real system can.
#[cfg(feature = "testing")]
pub fn replace(os: &'static &'static dyn Os) {
    // pairs: os::os - as there
    REPLACED.store(core::ptr::from_ref(os).cast_mut(), Ordering::Release);
}
