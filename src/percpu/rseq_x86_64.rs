//! The sequences for x86_64. `rseq.rs` says what they are; read that first.
//!
//! Each is one `asm!` block of this shape:
//!
//! ```text
//! 20: rseq_cs = &descriptor        the descriptor says: 21 .. 22, abort at 23
//! 21: go to 24 unless this CPU's number is what the slot is open to
//!     read ...
//!     store                        the one store; 22 is the next instruction
//! 22:
//!     (elsewhere) 23: go to 20     in front of it the signature that the kernel demands
//!     (elsewhere) 24: the answer is no
//! ```
//!
//! Registers that carry operands are not written, so that a sequence can begin again. A jump to 24 leaves the range of
//! the sequence, and needs nothing to be undone. Few registers are used, since those that a function has to save for its
//! caller cost two instructions each.

use core::arch::asm;

use crate::heap::size_class::{FAST_SLAB, TAGS};
use crate::percpu::slot::{Slot, ALLOCS, AREA, FREES, OPEN, STOP};

const _: () = assert!(FAST_SLAB == 1 << 16, "a tag's index is taken from the low 16 bits of an address");

/// What stands in front of every sequence. `kernel: include/uapi/linux/rseq.h`: version, flags, start, length, abort.
/// The signature is glibc's `RSEQ_SIG`, as the operand of an instruction that traps.
macro_rules! begin {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "29: .long 0, 0\n",
            ".quad 21f, 22f - 21f, 23f\n",
            ".popsection\n",
            ".pushsection .text.allotment_rseq_abort, \"ax\"\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "23: jmp 20f\n",
            ".popsection\n",
            "20: mov {area}, qword ptr [{slot} + {AREA}]\n",
            "lea {one}, [rip + 29b]\n",
            "mov qword ptr fs:[{area} + 8], {one}\n",
            "21: mov {one:e}, dword ptr fs:[{area} + 4]\n",
            "cmp {one}, qword ptr [{slot} + {OPEN}]\n",
            "jne 24f\n",
        )
    };
}

/// What stands behind it: the answer 0 in a register.
macro_rules! end {
    ($answer:literal) => {
        concat!(
            "22:\n",
            ".pushsection .text.allotment_rseq_no, \"ax\"\n",
            "24: xor ",
            $answer,
            ", ",
            $answer,
            "\n",
            "jmp 22b\n",
            ".popsection\n",
        )
    };
}

/// Takes the object on top of the magazines for `size` if its tag is `tenant`'s; null: not so, or the slot is not open
/// to this CPU.
///
/// # Safety
/// The slot was opened once, and `size` is at most [`FAST_MAX`](crate::heap::size_class::FAST_MAX).
#[inline(always)]
pub(crate) unsafe fn pop(slot: &Slot, size: usize, tenant: u16) -> *mut u8 {
    let object;
    // SAFETY: while the slot is open to this CPU, whoever stops it waits for a fence that ends this sequence; so what is
    // read here is a record of the slot, its array, and the tag of an object in it. The store takes the object away.
    unsafe {
        asm!(
            begin!(),
            // one: the record, from the slot, in units of 8 bytes
            "lea {one}, [{size} + 15]",
            "shr {one:e}, 4",
            "movzx {one:e}, byte ptr [{slot} + {one} + {ALLOCS}]",
            // area: its top
            "mov {area}, qword ptr [{slot} + 8 * {one}]",
            "cmp {area}, qword ptr [{slot} + 8 * {one} + 8]",
            "jbe 24f",
            "mov {object}, qword ptr [{area} - 8]",
            "movzx ecx, byte ptr [{slot} + 8 * {one} + 24]",
            // tag: index, then rcx: slab
            "movzx {tag:e}, {object:x}",
            "shr {tag:e}, cl",
            "mov rcx, {object}",
            "and rcx, -65536",
            "cmp word ptr [rcx + 2 * {tag} + {TAGS}], {tenant:x}",
            "jne 24f",
            "sub {area}, 8",
            "mov qword ptr [{slot} + 8 * {one}], {area}",
            end!("{object:e}"),
            slot = in(reg) slot,
            size = in(reg) size,
            tenant = in(reg) tenant,
            AREA = const AREA,
            OPEN = const OPEN,
            ALLOCS = const ALLOCS,
            TAGS = const TAGS,
            area = out(reg) _,
            one = out(reg) _,
            tag = out(reg) _,
            object = out(reg) object,
            out("rcx") _,
            options(nostack)
        );
    }
    object
}

/// Puts an object into the magazines for `size`. `false`: no room, or the slot is not open to this CPU.
///
/// # Safety
/// As [`pop`]; `object` is of the class that serves `size` and the caller's to give.
#[inline(always)]
pub(crate) unsafe fn push(slot: &Slot, size: usize, object: *mut u8) -> bool {
    let top: *mut u8;
    // SAFETY: as in `pop`. The place above the top is nobody's: writing there and being interrupted before the last store
    // changes nothing.
    unsafe {
        asm!(
            begin!(),
            "lea {one}, [{size} + 15]",
            "shr {one:e}, 4",
            "movzx {one:e}, byte ptr [{slot} + {one} + {FREES}]",
            // area: its top
            "mov {area}, qword ptr [{slot} + 8 * {one}]",
            "cmp {area}, qword ptr [{slot} + 8 * {one} + 16]",
            "jae 24f",
            "mov qword ptr [{area}], {object}",
            "add {area}, 8",
            "mov qword ptr [{slot} + 8 * {one}], {area}",
            end!("{area:e}"),
            slot = in(reg) slot,
            size = in(reg) size,
            object = in(reg) object,
            AREA = const AREA,
            OPEN = const OPEN,
            FREES = const FREES,
            area = out(reg) top,
            one = out(reg) _,
            options(nostack)
        );
    }
    !top.is_null()
}

/// Enters the slot for the thread with that token. `false`: it is not open to this CPU, or being stopped.
#[inline]
pub(crate) fn enter(slot: &Slot, token: usize) -> bool {
    let entered: usize;
    // SAFETY: the store makes the slot open to no CPU and so the thread its one user. Nothing else is written.
    unsafe {
        asm!(
            begin!(),
            "cmp qword ptr [{slot} + {STOP}], 0",
            "jne 24f",
            "mov {one}, {token}",
            "mov qword ptr [{slot} + {OPEN}], {token}",
            end!("{one:e}"),
            slot = in(reg) slot,
            token = in(reg) token,
            AREA = const AREA,
            OPEN = const OPEN,
            STOP = const STOP,
            area = out(reg) _,
            one = out(reg) entered,
            options(nostack)
        );
    }
    entered != 0
}

/// The CPU this thread runs on, or did a moment ago; `None`: the thread is not registered.
#[inline]
pub(crate) fn cpu() -> Option<u32> {
    let area = super::area();
    if area == 0 {
        return None;
    }
    let cpu: i32;
    // SAFETY: reads a word of this thread's own, which libc has set aside; the kernel writes it.
    unsafe {
        asm!(
            "mov {:e}, dword ptr fs:[{} + 4]",
            out(reg) cpu,
            in(reg) area,
            options(readonly, nostack, preserves_flags)
        );
    }
    u32::try_from(cpu).ok()
}

/// Where libc's area lies, if this libc has one and has registered it.
///
/// The symbols are weak: a program that is built here starts with an older libc too, and links with musl.
pub(crate) fn find() -> Option<isize> {
    let (offset, size): (*const isize, *const u32);
    // SAFETY: reads two addresses that the loader has put into the global offset table, null where there is no symbol.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            ".weak __rseq_size",
            "mov {}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {}, qword ptr [rip + __rseq_size@GOTPCREL]",
            out(reg) offset,
            out(reg) size,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    // `cpu_id` and `rseq_cs` end at byte 16. A size of 0 says that nothing is registered.
    const NEEDED: u32 = 16;
    // SAFETY: not null, so they are libc's variables, which are constant once the program runs.
    (!offset.is_null() && !size.is_null() && unsafe { *size } >= NEEDED).then(|| unsafe { *offset })
}

/// See [`super::pretend`].
#[cfg(feature = "testing")]
pub(crate) fn pretend() {
    use core::cell::UnsafeCell;
    use core::sync::atomic::Ordering;

    /// What the kernel would keep up to date: four words, of which the second is the CPU.
    struct Area(UnsafeCell<[u64; 4]>);
    // SAFETY: for one thread only, as `super::pretend` says.
    unsafe impl Sync for Area {}
    static PRETENDED: Area = Area(UnsafeCell::new([0; 4]));

    let pointer: isize;
    // SAFETY: word 0 of the thread control block is its own address.
    unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags)) };
    // relaxed: one thread
    super::AREA.store((PRETENDED.0.get() as isize).wrapping_sub(pointer), Ordering::Relaxed);
}
