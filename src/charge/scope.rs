//! The scope word: which tenant pays for what this thread allocates now (`life/thread_words.rs` says where it lies).

use crate::heap::tag::Tag;
use crate::life::thread_words::words;

/// The tenant in scope and whether its limits are strict here. Packed into 32 bits:
///
/// | bits | meaning |
/// |---|---|
/// | 0..=15 | tag of the tenant |
/// | 16 | strict: inside `fallible`, a charge past a limit is refused |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
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

/// The scope of this thread.
#[inline]
pub(crate) fn current() -> Scope {
    words().scope.get()
}

/// Sets the scope and returns the one before.
#[inline]
pub(crate) fn replace(scope: Scope) -> Scope {
    words().scope.replace(scope)
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
}
