//! Bytes charged to a tenant ahead of need, held by one CPU slot.
//!
//! A flat array by tenant id: eight bytes per tenant that this slot ever served, in memory that is only touched
//! there. Whoever holds the slot owns its stock; no atomics.
//!
//! Equation: `bytes <= ceiling <= STOCK_MAX` for every entry.

use crate::heap::tag::Tag;

/// The most bytes one slot holds for one tenant. A quarter of the kernel's batch of 64 pages: a tenant has limits
/// of megabytes here, not gigabytes.
pub const STOCK_MAX: usize = 64 * 1024;

/// One tenant's bytes on one slot.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Entry {
    bytes: u32,
    ceiling: u32,
}

/// All tenants' bytes on one slot.
pub struct Stock {
    entries: *mut Entry,
    len: usize,
}

impl Stock {
    /// No room for any tenant.
    pub(crate) const NONE: Stock = Stock { entries: core::ptr::null_mut(), len: 0 };

    /// Whether there is room for tenants.
    #[inline]
    pub(crate) fn is_provided(&self) -> bool {
        !self.entries.is_null()
    }

    /// # Safety
    /// `entries` points to `len` entries, zeroed or left by an earlier `Stock`, that nothing else uses while this
    /// value lives.
    pub unsafe fn new(entries: *mut Entry, len: usize) -> Self {
        Stock { entries, len }
    }

    #[inline]
    fn entry(&mut self, id: Tag) -> Option<&mut Entry> {
        if usize::from(id.0) >= self.len {
            return None;
        }
        // SAFETY: the index is below `len`, and by `new`'s contract the array is ours alone.
        Some(unsafe { &mut *self.entries.add(usize::from(id.0)) })
    }

    /// Takes `bytes` if the tenant has them here.
    #[inline]
    pub fn take(&mut self, id: Tag, bytes: usize) -> bool {
        match self.entry(id) {
            Some(entry) if entry.bytes as usize >= bytes => {
                entry.bytes -= bytes as u32;
                true
            }
            _ => false,
        }
    }

    /// Adds bytes already charged to the tenant, and allows twice as much to stay here. Returns what is too much
    /// and has to be uncharged.
    pub fn add(&mut self, id: Tag, bytes: usize) -> usize {
        if let Some(entry) = self.entry(id) {
            entry.ceiling = (2 * bytes).min(STOCK_MAX) as u32;
        }
        self.put(id, bytes, || 0)
    }

    /// Adds bytes that the tenant no longer uses. Past the ceiling the excess over half of it is returned, to be
    /// uncharged: returning all would make the next operation charge again. `room` is asked for the ceiling of a
    /// tenant first seen here.
    #[inline]
    pub fn put(&mut self, id: Tag, bytes: usize, room: impl FnOnce() -> usize) -> usize {
        let Some(entry) = self.entry(id) else { return bytes };
        if entry.ceiling == 0 {
            entry.ceiling = room().min(STOCK_MAX) as u32;
        }
        let sum = entry.bytes as usize + bytes;
        if sum <= entry.ceiling as usize {
            entry.bytes = sum as u32;
            return 0;
        }
        let keep = (entry.ceiling / 2).min(sum as u32);
        entry.bytes = keep;
        sum - keep as usize
    }

    /// Takes `bytes` from `to`, which uses them from now on, and adds as many to `from`, which no longer does. `false`:
    /// `to` has not got them here, or `from` has no room for them; then nothing has changed.
    #[inline(always)]
    pub(crate) fn exchange(&mut self, from: Tag, to: Tag, bytes: usize) -> bool {
        if usize::from(from.0.max(to.0)) >= self.len {
            return false;
        }
        // SAFETY: both indices are below `len`, and by `new`'s contract the array is ours alone. One at a time.
        unsafe {
            let (from, to) = (self.entries.add(usize::from(from.0)), self.entries.add(usize::from(to.0)));
            let (fits, paid) =
                ((*from).bytes as usize + bytes <= (*from).ceiling as usize, (*to).bytes as usize >= bytes);
            if !fits || !paid {
                return false;
            }
            (*to).bytes -= bytes as u32;
            (*from).bytes += bytes as u32;
        }
        true
    }

    /// Takes all of a tenant's bytes, and forgets its ceiling: the next bytes that come back ask for room again, which
    /// a retired tenant has none of.
    pub fn drain(&mut self, id: Tag) -> usize {
        match self.entry(id) {
            // An untouched entry is left untouched: writing would make its page resident.
            Some(entry) if entry.bytes != 0 || entry.ceiling != 0 => core::mem::take(entry).bytes as usize,
            _ => 0,
        }
    }

    /// The tenant's bytes here.
    pub fn bytes(&mut self, id: Tag) -> usize {
        self.entry(id).map_or(0, |entry| entry.bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_returns_to_half_not_to_zero() {
        let mut entries = [Entry::default(); 4];
        // SAFETY: the array outlives the stock and nothing else uses it.
        let mut stock = unsafe { Stock::new(entries.as_mut_ptr(), 4) };
        let id = Tag(3);
        assert_eq!(stock.add(id, 1000), 0);
        assert_eq!(stock.put(id, 900, || unreachable!()), 0);
        assert_eq!(stock.put(id, 200, || unreachable!()), 1100);
        assert_eq!(stock.bytes(id), 1000);
        assert!(!stock.exchange(id, Tag(2), 1) && !stock.exchange(Tag(2), id, 1), "nothing to pay with, no room");
        assert_eq!(stock.add(Tag(2), 10), 0);
        assert!(stock.exchange(id, Tag(2), 10));
        assert_eq!((stock.bytes(id), stock.bytes(Tag(2))), (1010, 0));
        assert!(stock.exchange(Tag(2), id, 10) && !stock.exchange(Tag(4), id, 1));
        assert!(stock.take(id, 999));
        assert!(!stock.take(id, 2));
        assert_eq!(stock.drain(id), 1);
        assert_eq!(stock.put(id, 7, || 0), 7, "no room, all goes back");
        assert_eq!(stock.put(Tag(4), 7, || 100), 7, "an id past the array is never kept");
    }
}
