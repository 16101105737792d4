//! What a slot holds: every class's magazines, the stocks, and the tables by which the fast path finds a record.
//!
//! The tables have a byte for each step of 16 bytes, so that neither a size class nor the size of a record is computed. There
//! are two, one for each direction: while a tenant is under pressure, that of frees names a record without room, and
//! so every free goes the slow way, where it is looked at. The fast one need not ask (`charge/pressure.rs`).

use super::slot::{NOWHERE, RECORDS};
use crate::charge::stock::Stock;
use crate::heap::magazine::Magazines;
use crate::heap::size_class::{Class, CLASSES, FAST_MAX, INFO};

/// The steps of sizes that the fast path looks up: 0, 16, 32 ... [`FAST_MAX`].
const STEPS: usize = FAST_MAX / 16 + 1;

/// What a slot holds.
#[repr(C, align(32))]
pub struct SlotData {
    /// By tenant.
    pub stock: Stock,
    /// By step of 16 bytes: where the hot record lies that objects of that size are allocated from, in units of 8 bytes
    /// from the slot's start.
    pub(super) allocs: [u8; STEPS],
    /// The same for frees: that record, or while frees are [eager](SlotData::set_eager) `nowhere`.
    pub(super) frees: [u8; STEPS],
    eager: bool,
    /// Magazines without room.
    pub(super) nowhere: Magazines,
    /// By class.
    pub magazines: [Magazines; CLASSES],
}

/// Pointers in the arrays of a slot's magazines.
pub const ARRAY_POINTERS: usize = {
    let (mut class, mut pointers) = (0, 0);
    while class < CLASSES {
        pointers += 2 * INFO[class].magazine as usize;
        class += 1;
    }
    pointers
};

impl SlotData {
    /// Nothing, and no room for anything.
    pub(super) const NONE: SlotData = SlotData {
        stock: Stock::NONE,
        allocs: [0; STEPS],
        frees: [0; STEPS],
        eager: false,
        nowhere: Magazines::NONE,
        magazines: [const { Magazines::NONE }; CLASSES],
    };

    /// Empty magazines and that stock.
    ///
    /// # Safety
    /// `arrays` is room for [`ARRAY_POINTERS`] pointers that are the slot's alone for ever.
    pub unsafe fn new(stock: Stock, arrays: *mut *mut u8) -> SlotData {
        let mut data = SlotData { stock, ..SlotData::NONE };
        let mut array = arrays;
        for class in (0..CLASSES as u8).map(Class) {
            // SAFETY: by the caller's promise there is room for two magazines of every class.
            unsafe {
                data.magazines[usize::from(class.0)] = Magazines::new(class, array);
                array = array.add(2 * usize::from(class.info().magazine));
            }
        }
        for (step, record) in data.allocs.iter_mut().enumerate() {
            let class = Class::of(16 * step, 1).map_or(0, |class| usize::from(class.0));
            *record = (RECORDS / 8 + class * size_of::<Magazines>() / 8) as u8;
        }
        data.frees = data.allocs;
        data
    }

    /// Has the fast path leave every free to the slow one, which looks at the object's owner, or no more: so that it need
    /// not ask whether anybody is under pressure (`charge/pressure.rs`).
    #[inline]
    pub fn set_eager(&mut self, eager: bool) {
        if self.eager != eager {
            self.eager = eager;
            self.frees = if eager { [(NOWHERE / 8) as u8; STEPS] } else { self.allocs };
        }
    }

    /// Whether anything was put in place of [`SlotData::NONE`].
    #[inline]
    pub fn is_provided(&self) -> bool {
        self.stock.is_provided()
    }
}
