//! What the crate keeps per thread: sixteen bytes, `const`-initialised and without `Drop`.
//!
//! They register no destructor, so they serve before `main` and after thread-local teardown (hazard B01).
//!
//! On Linux x86_64 the words are defined in assembly and reached by the *initial-exec* model: their offset from the
//! thread pointer is read from the global offset table (in an executable the linker makes it a constant), so that a
//! shared library pays one load and not a call of `__tls_get_addr` (11 ns, measured). The price is sixteen bytes of
//! the loader's reserve for libraries that are loaded late (glibc's is 1,664 bytes; hazard B25). Elsewhere a plain
//! `thread_local!` serves.

use core::cell::Cell;

use crate::charge::scope::Scope;
use crate::percpu::slot::{Slot, NO_SLOT};

/// See the module. The offsets of the first two are known to the assembly below.
#[repr(C)]
pub(crate) struct ThreadWords {
    /// The slot this thread enters first; [`NO_SLOT`]: none yet.
    pub(crate) slot: Cell<*const Slot>,
    pub(crate) scope: Cell<Scope>,
    /// Where this thread stands to the gate.
    pub(crate) gate: Cell<AtGate>,
    /// Whether this thread has a slot of its own, see `percpu/claim.rs`.
    pub(crate) claim: Cell<Claim>,
    /// The shared slot this thread used last; `u16::MAX`: none yet.
    pub(crate) shared: Cell<u16>,
}

const _: () = assert!(size_of::<ThreadWords>() == 16, "more would be a burden on the loader's reserve");
const _: () = assert!(core::mem::offset_of!(ThreadWords, slot) == 0 && core::mem::offset_of!(ThreadWords, scope) == 8);
const _: () = assert!(core::mem::offset_of!(ThreadWords, shared) == 14);

/// Where a thread stands to the gate, for a signal handler that interrupts it; see `percpu/world.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AtGate {
    /// Certainly not counted by it.
    Outside = 0,
    /// Going in or coming out: either may be the case.
    Between,
    /// Certainly counted by it.
    Inside,
}

/// Where a thread stands with a slot of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Claim {
    /// Has not asked: what the words say at first.
    #[cfg_attr(all(target_os = "linux", target_arch = "x86_64"), allow(dead_code))]
    Unasked = 0,
    /// Was told that there is none: may ask again.
    None,
    /// Has one.
    Held,
    /// Does not ask: is ending, and has given it back; or is being given one.
    Over,
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod place {
    use core::arch::{asm, global_asm};

    use super::{Slot, ThreadWords, NO_SLOT};

    /// The symbol of the words, one for each version of the crate in a program.
    macro_rules! symbol {
        () => {
            concat!("allotment_thread_words_", env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"))
        };
    }

    global_asm!(
        concat!(".pushsection .tdata.", symbol!(), ",\"awT\",@progbits"),
        ".balign 8",
        concat!(".hidden ", symbol!()),
        concat!(".globl ", symbol!()),
        concat!(".type ", symbol!(), ",@object"),
        concat!(".size ", symbol!(), ",16"),
        concat!(symbol!(), ":"),
        ".quad {no_slot}",
        ".long 0",
        ".byte 0, 0",
        ".short 0xffff",
        ".popsection",
        no_slot = sym NO_SLOT,
    );

    /// Where the words lie, from the thread pointer.
    #[inline(always)]
    fn offset() -> isize {
        let offset;
        // SAFETY: reads a constant of the loaded program.
        unsafe {
            asm!(
                concat!("mov {}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
                out(reg) offset,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        offset
    }

    /// This thread's words.
    #[inline(always)]
    pub(crate) fn words<'a>() -> &'a ThreadWords {
        let pointer: *const ThreadWords;
        // SAFETY: the words lie there for as long as the thread lives, which is as long as it can use the reference: they
        // are not `Sync`. Word 0 of the thread control block is its own address.
        unsafe {
            asm!(
                "mov {0}, qword ptr fs:[0]",
                concat!("add {0}, qword ptr [rip + ", symbol!(), "@GOTTPOFF]"),
                out(reg) pointer,
                options(pure, nomem, nostack)
            );
            &*pointer
        }
    }

    /// The first word: [`ThreadWords::slot`].
    #[inline(always)]
    pub(crate) fn slot() -> *const Slot {
        let slot;
        // SAFETY: reads a word of this thread's own.
        unsafe {
            asm!(
                "mov {}, qword ptr fs:[{}]",
                out(reg) slot,
                in(reg) offset(),
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        slot
    }

    /// The tenant in scope: the low half of the second word.
    #[inline(always)]
    pub(crate) fn tenant() -> u16 {
        let tenant: u32;
        // SAFETY: reads a word of this thread's own.
        unsafe {
            asm!(
                "movzx {0:e}, word ptr fs:[{1} + 8]",
                out(reg) tenant,
                in(reg) offset(),
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        tenant as u16
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod place {
    use core::cell::Cell;

    use super::{AtGate, Claim, Scope, Slot, ThreadWords, NO_SLOT};

    thread_local! {
        static WORDS: ThreadWords = const {
            ThreadWords {
                slot: Cell::new(&raw const NO_SLOT),
                scope: Cell::new(Scope::ROOT),
                gate: Cell::new(AtGate::Outside),
                claim: Cell::new(Claim::Unasked),
                shared: Cell::new(u16::MAX),
            }
        };
    }

    /// This thread's words.
    #[inline(always)]
    pub(crate) fn words<'a>() -> &'a ThreadWords {
        // SAFETY: without a destructor they live as long as the thread, and are not `Sync`.
        WORDS.with(|words| unsafe { &*core::ptr::from_ref(words) })
    }

    /// The first word: [`ThreadWords::slot`].
    #[inline(always)]
    pub(crate) fn slot() -> *const Slot {
        words().slot.get()
    }

    /// The tenant in scope.
    #[inline(always)]
    pub(crate) fn tenant() -> u16 {
        words().scope.get().tenant().0
    }
}

pub(crate) use place::{slot, tenant, words};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_thread_starts_in_root_with_no_slot() {
        std::thread::spawn(|| {
            // The thread's own start has allocated already, with the system's allocator: nothing here has run.
            let words = words();
            assert!(core::ptr::eq(words.slot.get(), &raw const NO_SLOT) && core::ptr::eq(slot(), words.slot.get()));
            assert!(words.scope.get() == Scope::ROOT && tenant() == 0);
            assert!(words.gate.get() == AtGate::Outside && words.claim.get() == Claim::Unasked);
            assert_eq!(words.shared.get(), u16::MAX);
            words.scope.set(Scope::of(crate::heap::tag::Tag(513)));
            assert_eq!(tenant(), 513);
        })
        .join()
        .unwrap();
    }
}
