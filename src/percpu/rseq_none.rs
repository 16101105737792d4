//! Where there are no restartable sequences: no CPU has a slot, and nothing is ever found here.

use crate::percpu::slot::Slot;

pub(crate) fn find() -> Option<isize> {
    None
}

pub(crate) fn cpu() -> Option<u32> {
    None
}

#[inline(always)]
pub(crate) unsafe fn pop(_: &Slot, _: usize, _: u16) -> *mut u8 {
    core::ptr::null_mut()
}

#[inline(always)]
pub(crate) unsafe fn push(_: &Slot, _: usize, _: *mut u8) -> bool {
    false
}

pub(crate) fn enter(_: &Slot, _: usize) -> bool {
    let _ = super::area;
    false
}

#[cfg(feature = "testing")]
pub(crate) fn pretend() {}
