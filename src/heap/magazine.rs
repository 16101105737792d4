//! Magazines: bounded arrays of free objects of one class, two per class and CPU slot (Bonwick and Adams, 2001).
//!
//! Objects are taken from and put into the *loaded* magazine. When it cannot serve, it changes places with the
//! *previous* one if that can; so an alternation of allocations and frees at a boundary never goes past the two.
//! Arrays and not lists through the objects: a pop reads no memory of the object.
//!
//! Equations (slot held):
//! * `loaded_len <= capacity`, `previous_len <= capacity`;
//! * a null block has length 0;
//! * `objects[..len]` are distinct slots of the class, not free in their slabs.

use super::size_class::MAGAZINE_MAX;

/// A class's two magazines on one slot: the hot record, 24 bytes.
#[repr(C)]
pub struct Magazines {
    loaded: *mut *mut u8,
    previous: *mut *mut u8,
    loaded_len: u16,
    previous_len: u16,
    capacity: u16,
}

const _: () = assert!(size_of::<Magazines>() <= 32, "the hot record of a class has to stay small");

impl Magazines {
    /// No blocks yet.
    pub const fn new(capacity: u16) -> Self {
        assert!(capacity as usize <= MAGAZINE_MAX);
        Magazines {
            loaded: core::ptr::null_mut(),
            previous: core::ptr::null_mut(),
            loaded_len: 0,
            previous_len: 0,
            capacity,
        }
    }

    /// Gives the magazines their blocks, of at least `capacity` pointers each.
    ///
    /// # Safety
    /// The blocks are the caller's to give; there were none before.
    pub unsafe fn provide(&mut self, loaded: *mut *mut u8, previous: *mut *mut u8) {
        self.loaded = loaded;
        self.previous = previous;
    }

    /// Whether the blocks are there.
    #[inline]
    pub fn has_blocks(&self) -> bool {
        !self.loaded.is_null()
    }

    /// Most objects in one magazine.
    #[inline]
    pub fn capacity(&self) -> usize {
        usize::from(self.capacity)
    }

    /// Takes an object from the loaded magazine, or from the previous one by changing the two.
    #[inline]
    pub fn pop(&mut self) -> Option<*mut u8> {
        if self.loaded_len == 0 {
            if self.previous_len == 0 {
                return None;
            }
            self.swap();
        }
        self.loaded_len -= 1;
        // SAFETY: `loaded_len` was at least 1, so the block is there and the place holds an object.
        Some(unsafe { *self.loaded.add(usize::from(self.loaded_len)) })
    }

    /// Puts an object into the loaded magazine, or after changing the two if that one is full and the previous one
    /// is empty. `false`: neither has room.
    #[inline]
    pub fn push(&mut self, object: *mut u8) -> bool {
        if self.loaded_len >= self.capacity || self.loaded.is_null() {
            if self.previous_len != 0 || self.loaded.is_null() {
                return false;
            }
            self.swap();
        }
        // SAFETY: the block is there and the place is below its capacity.
        unsafe { *self.loaded.add(usize::from(self.loaded_len)) = object };
        self.loaded_len += 1;
        true
    }

    #[inline]
    fn swap(&mut self) {
        core::mem::swap(&mut self.loaded, &mut self.previous);
        core::mem::swap(&mut self.loaded_len, &mut self.previous_len);
    }

    /// The objects of the two magazines.
    pub fn contents(&self) -> [&[*mut u8]; 2] {
        [slice(self.loaded, self.loaded_len), slice(self.previous, self.previous_len)]
    }

    /// Empties both magazines; the objects are the caller's, from an earlier [`contents`](Magazines::contents).
    pub fn clear(&mut self) {
        self.loaded_len = 0;
        self.previous_len = 0;
    }

    /// Exchanges the empty loaded magazine for a full block; returns the empty block.
    ///
    /// # Safety
    /// `full` holds `capacity` objects of the class that are the caller's to give; both magazines are empty.
    pub unsafe fn load(&mut self, full: *mut *mut u8) -> *mut *mut u8 {
        self.loaded_len = self.capacity;
        core::mem::replace(&mut self.loaded, full)
    }

    /// Exchanges the full previous magazine for an empty block; returns the full one, whose objects are then the
    /// caller's.
    ///
    /// # Safety
    /// `empty` is a block of at least `capacity` pointers, the caller's to give.
    pub unsafe fn unload(&mut self, empty: *mut *mut u8) -> *mut *mut u8 {
        self.previous_len = 0;
        core::mem::replace(&mut self.previous, empty)
    }

    /// The previous magazine, when it is full.
    pub fn full_previous(&self) -> Option<&[*mut u8]> {
        (self.previous_len == self.capacity).then(|| slice(self.previous, self.previous_len))
    }

    /// Empties the previous magazine; the objects are the caller's.
    pub fn clear_previous(&mut self) {
        self.previous_len = 0;
    }

    /// The structure's own equations, as far as they can be seen without the slabs.
    pub fn is_valid(&self) -> bool {
        self.loaded_len <= self.capacity
            && self.previous_len <= self.capacity
            && (!self.loaded.is_null() || self.loaded_len == 0)
            && (!self.previous.is_null() || self.previous_len == 0)
    }
}

fn slice<'a>(block: *mut *mut u8, len: u16) -> &'a [*mut u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the first `len` places of a block hold objects.
    unsafe { core::slice::from_raw_parts(block, usize::from(len)) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_magazines_absorb_an_alternation_at_the_boundary() {
        let mut blocks = [[core::ptr::null_mut(); MAGAZINE_MAX]; 2];
        let [loaded, previous] = &mut blocks;
        let mut magazines = Magazines::new(4);
        assert!(!magazines.push(core::ptr::without_provenance_mut(16)), "no block, no room");
        assert_eq!(magazines.pop(), None);
        // SAFETY: the blocks outlive the magazines and are theirs alone.
        unsafe { magazines.provide(loaded.as_mut_ptr(), previous.as_mut_ptr()) };
        for object in 1..=8 {
            assert!(magazines.push(core::ptr::without_provenance_mut(object * 16)));
            assert!(magazines.is_valid());
        }
        assert!(!magazines.push(core::ptr::without_provenance_mut(9 * 16)), "both are full");
        assert_eq!(magazines.full_previous().map(<[_]>::len), Some(4));
        for _ in 0..10 {
            let object = magazines.pop().expect("there are eight");
            assert!(magazines.push(object), "the boundary does not move");
        }
        let mut seen: Vec<usize> = std::iter::from_fn(|| magazines.pop()).map(|object| object as usize).collect();
        seen.sort_unstable();
        assert_eq!(seen, (1..=8).map(|object| object * 16).collect::<Vec<_>>());
        assert!(magazines.is_valid());
    }
}
