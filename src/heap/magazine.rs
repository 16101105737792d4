//! Magazines: bounded arrays of free objects of one class, two per class and CPU slot (Bonwick and Adams, 2001).
//!
//! The two lie end to end in one array and are used as one stack: the upper one is the *loaded* magazine, the lower one
//! the *previous*, and crossing the middle is what exchanging them would be, at no cost. One word moves with a pop or a
//! push, `top`; that is what lets a restartable sequence do either (`percpu/rseq_x86_64.rs`). A refill fills half a
//! magazine or takes a whole one from the depot, an overflow gives the lower one away: so an alternation of
//! allocations and frees at a boundary never goes past the two. Arrays and not lists through the objects: a pop reads
//! no memory of the object.
//!
//! Equations (slot held):
//! * `low <= top <= high`, all null before the slot is provided for, else `high - low` is two magazines;
//! * `low..top` are distinct slots of the class, not free in their slabs.

use super::size_class::{Class, MAGAZINE_MAX};

/// A class's two magazines on one slot: the hot record. The assembly knows the offsets of its fields.
#[repr(C, align(32))]
pub struct Magazines {
    /// Behind the last object.
    top: *mut *mut u8,
    low: *mut *mut u8,
    high: *mut *mut u8,
    /// The shift of the class's tag index.
    shift: u8,
    /// Most objects in one of the two.
    magazine: u8,
}

const _: () = assert!(size_of::<Magazines>() <= 32, "the hot record of a class has to stay small");
const _: () = assert!(core::mem::offset_of!(Magazines, top) == 0 && core::mem::offset_of!(Magazines, low) == 8);
const _: () = assert!(core::mem::offset_of!(Magazines, high) == 16 && core::mem::offset_of!(Magazines, shift) == 24);

impl Magazines {
    /// No room at all.
    pub(crate) const NONE: Magazines = Magazines {
        top: core::ptr::null_mut(),
        low: core::ptr::null_mut(),
        high: core::ptr::null_mut(),
        shift: 0,
        magazine: 0,
    };

    /// Empty magazines of a class.
    ///
    /// # Safety
    /// `array` is room for two magazines of the class, and theirs alone while they live.
    pub unsafe fn new(class: Class, array: *mut *mut u8) -> Magazines {
        let info = class.info();
        Magazines {
            top: array,
            low: array,
            // SAFETY: the caller's promise about the array.
            high: unsafe { array.add(2 * usize::from(info.magazine)) },
            shift: info.shift,
            magazine: info.magazine,
        }
    }

    /// Most objects in one magazine.
    #[inline]
    pub fn magazine(&self) -> usize {
        usize::from(self.magazine)
    }

    /// The shift of the class's tag index.
    #[inline(always)]
    pub(crate) fn shift(&self) -> u8 {
        self.shift
    }

    /// The object that the next [`pop`](Magazines::pop) would take.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<*mut u8> {
        if self.top <= self.low {
            return None;
        }
        // SAFETY: the place below `top` holds an object.
        Some(unsafe { *self.top.sub(1) })
    }

    /// Takes away what [`peek`](Magazines::peek) saw.
    ///
    /// # Safety
    /// There is an object.
    #[inline(always)]
    pub(crate) unsafe fn drop_top(&mut self) {
        // SAFETY: the caller's promise.
        self.top = unsafe { self.top.sub(1) };
    }

    /// Takes the object put there last.
    #[inline]
    pub fn pop(&mut self) -> Option<*mut u8> {
        let object = self.peek()?;
        // SAFETY: there is one.
        unsafe { self.drop_top() };
        Some(object)
    }

    /// Puts an object there. `false`: no room.
    #[inline(always)]
    pub fn push(&mut self, object: *mut u8) -> bool {
        if self.top >= self.high {
            return false;
        }
        // SAFETY: `top` is inside the array, which holds two magazines.
        unsafe {
            *self.top = object;
            self.top = self.top.add(1);
        }
        true
    }

    /// Puts objects there, as many as there is room for; how many.
    pub fn push_all(&mut self, objects: &[*mut u8]) -> usize {
        objects.iter().take_while(|&&object| self.push(object)).count()
    }

    /// All objects, the one put there first in front.
    pub fn objects(&self) -> &[*mut u8] {
        if self.top == self.low {
            return &[];
        }
        // SAFETY: `low..top` lies in one array and holds objects.
        unsafe { core::slice::from_raw_parts(self.low, self.top.offset_from_unsigned(self.low)) }
    }

    /// The objects of the lower magazine, if it is full.
    pub fn previous(&self) -> Option<&[*mut u8]> {
        self.objects().get(..self.magazine()).filter(|objects| !objects.is_empty())
    }

    /// Empties the lower magazine, whose objects are the caller's; what is above moves down.
    pub fn clear_previous(&mut self) {
        let (len, magazine) = (self.objects().len(), self.magazine());
        if len < magazine {
            return;
        }
        // SAFETY: both ranges lie in the array, and places below `top` hold objects.
        unsafe {
            core::ptr::copy(self.low.add(magazine), self.low, len - magazine);
            self.top = self.low.add(len - magazine);
        }
    }

    /// Empties both magazines; the objects are the caller's.
    pub fn clear(&mut self) {
        self.top = self.low;
    }

    /// The structure's own equations, as far as they can be seen without the slabs.
    pub fn is_valid(&self) -> bool {
        let room = (self.high as usize).wrapping_sub(self.low as usize) / size_of::<*mut u8>();
        self.low <= self.top
            && self.top <= self.high
            && self.magazine() <= MAGAZINE_MAX
            && room == 2 * self.magazine()
            && (self.top as usize - self.low as usize).is_multiple_of(size_of::<*mut u8>())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_magazines_absorb_an_alternation_at_the_boundary() {
        let class = Class(0);
        let mut array = [core::ptr::null_mut(); 2 * MAGAZINE_MAX];
        let mut none = Magazines::NONE;
        assert!(none.is_valid() && none.pop().is_none() && none.objects().is_empty() && none.previous().is_none());
        assert!(!none.push(core::ptr::without_provenance_mut(16)), "no array, no room");
        // SAFETY: the array outlives the magazines and is theirs alone.
        let mut magazines = unsafe { Magazines::new(class, array.as_mut_ptr()) };
        let magazine = magazines.magazine();
        for object in 1..=2 * magazine {
            assert!(magazines.push(core::ptr::without_provenance_mut(object * 16)));
            assert!(magazines.is_valid());
        }
        assert!(!magazines.push(core::ptr::without_provenance_mut(16)), "both are full");
        let previous: Vec<usize> = magazines.previous().unwrap().iter().map(|&object| object as usize).collect();
        assert_eq!(previous, (1..=magazine).map(|object| object * 16).collect::<Vec<_>>(), "the oldest go first");
        magazines.clear_previous();
        for _ in 0..10 {
            let object = magazines.pop().expect("there is one");
            assert!(magazines.push(object), "the boundary does not move");
        }
        let mut seen: Vec<usize> = std::iter::from_fn(|| magazines.pop()).map(|object| object as usize).collect();
        seen.reverse();
        assert_eq!(seen, (magazine + 1..=2 * magazine).map(|object| object * 16).collect::<Vec<_>>());
        assert!(magazines.is_valid() && magazines.previous().is_none());
    }
}
