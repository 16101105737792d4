//! The scope word: which tenant pays for what this thread allocates now.
//!
//! One `const`-initialised, `Drop`-free thread-local of eight bytes holds the scope and the slot this thread last
//! used. It never registers a destructor, so it serves before `main` and after thread-local teardown.

use core::cell::Cell;

use crate::heap::tag::Tag;

/// The tenant in scope and whether its limits are strict here. Packed into 32 bits:
///
/// | bits | meaning |
/// |---|---|
/// | 0..=15 | tag of the tenant |
/// | 16 | strict: inside `fallible`, a charge past a limit is refused |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scope(u32);

const STRICT: u32 = 1 << 16;

impl Scope {
    /// No scope: root pays, nothing is strict.
    pub(crate) const ROOT: Scope = Scope(0);

    #[inline]
    pub(crate) const fn of(tenant: Tag) -> Scope {
        Scope(tenant.0 as u32)
    }
    #[inline]
    pub(crate) const fn tenant(self) -> Tag {
        Tag(self.0 as u16)
    }
    #[inline]
    pub(crate) const fn is_strict(self) -> bool {
        self.0 & STRICT != 0
    }
    #[inline]
    pub(crate) const fn with_strictness(self, strict: bool) -> Scope {
        Scope(if strict { self.0 | STRICT } else { self.0 & !STRICT })
    }
}

/// What the crate keeps per thread.
pub(crate) struct ThreadWords {
    scope: Cell<Scope>,
    /// The CPU slot this thread used last; `u32::MAX`: none yet.
    slot: Cell<u32>,
    /// Where this thread stands to the gate.
    gate: Cell<AtGate>,
}

/// Where a thread stands to the gate, for a signal handler that interrupts it; see `percpu/world.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum AtGate {
    /// Certainly not counted by it.
    Outside,
    /// Going in or coming out: either may be the case.
    Between,
    /// Certainly counted by it.
    Inside,
}

thread_local! {
    static WORDS: ThreadWords = const {
        ThreadWords { scope: Cell::new(Scope::ROOT), slot: Cell::new(u32::MAX), gate: Cell::new(AtGate::Outside) }
    };
}

/// The scope of this thread.
#[inline]
pub(crate) fn current() -> Scope {
    WORDS.with(|words| words.scope.get())
}

/// Sets the scope and returns the one before.
#[inline]
pub(crate) fn replace(scope: Scope) -> Scope {
    WORDS.with(|words| words.scope.replace(scope))
}

/// Restores the outer scope when dropped, also while unwinding.
#[derive(Debug)]
pub(crate) struct Restore(Scope);

impl Drop for Restore {
    #[inline]
    fn drop(&mut self) {
        replace(self.0);
    }
}

/// Enters root, without strictness, until the returned guard drops: for what the crate itself allocates.
pub(crate) fn enter_root() -> Restore {
    Restore(replace(Scope::ROOT))
}

/// Enters a tenant; strictness stays as it is.
#[inline]
pub(crate) fn enter_tenant(tenant: Tag) -> RestoreTenant {
    let outer = current();
    replace(Scope::of(tenant).with_strictness(outer.is_strict()));
    RestoreTenant(outer.tenant())
}

/// Restores the outer tenant when dropped. The guard may outlive a `fallible` that it was made in, so it leaves
/// strictness as it finds it.
#[derive(Debug)]
pub(crate) struct RestoreTenant(Tag);

impl Drop for RestoreTenant {
    #[inline]
    fn drop(&mut self) {
        replace(Scope::of(self.0).with_strictness(current().is_strict()));
    }
}

/// Makes the tenant in scope strict.
pub(crate) fn enter_strict() -> RestoreStrictness {
    let outer = current();
    replace(outer.with_strictness(true));
    RestoreStrictness(outer.is_strict())
}

/// Restores the outer strictness when dropped, and leaves the tenant as it finds it.
pub(crate) struct RestoreStrictness(bool);

impl Drop for RestoreStrictness {
    fn drop(&mut self) {
        replace(current().with_strictness(self.0));
    }
}

/// The slot this thread used last, if any.
#[inline]
pub(crate) fn slot_hint() -> u32 {
    WORDS.with(|words| words.slot.get())
}

#[inline]
pub(crate) fn set_slot_hint(slot: u32) {
    WORDS.with(|words| words.slot.set(slot));
}

/// Where this thread stands to the gate.
#[inline]
pub(crate) fn at_gate() -> AtGate {
    WORDS.with(|words| words.gate.get())
}

/// Notes it, in program order with what comes before and after as this thread's signal handlers see it.
#[inline]
pub(crate) fn set_at_gate(at: AtGate) {
    // pairs: itself - no other thread reads the word; the fences keep the compiler from moving the count past it
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    WORDS.with(|words| words.gate.set(at));
    // pairs: as above
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
}

/// The address of this thread's words: unique among living threads, never 0.
#[inline]
pub(crate) fn thread_address() -> usize {
    WORDS.with(|words| core::ptr::from_ref(words) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_packs_tenant_and_strictness_apart() {
        for id in [0, 1, 255, 256, 65_534] {
            let scope = Scope::of(Tag(id));
            assert_eq!(scope.tenant(), Tag(id));
            assert!(!scope.is_strict());
            assert!(scope.with_strictness(true).is_strict());
            assert_eq!(scope.with_strictness(true).tenant(), Tag(id));
            assert!(scope.with_strictness(true).with_strictness(false) == scope);
        }
    }

    #[test]
    fn a_guard_that_leaves_strictness_behind_does_not_bring_it_along() {
        let strict = enter_strict();
        let guard = enter_tenant(Tag(7));
        assert!(current() == Scope::of(Tag(7)).with_strictness(true));
        drop(strict);
        assert!(current() == Scope::of(Tag(7)));
        drop(guard);
        assert!(current() == Scope::ROOT);
    }

    #[test]
    fn b25_thread_words_stay_within_sixteen_bytes() {
        assert!(core::mem::size_of::<ThreadWords>() <= 16);
    }
}
