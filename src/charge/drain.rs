//! Taking back what lies unused on CPU slots: stocks, and the charges of cached objects.
//!
//! A drain of tenant `t` is precise: it takes the stocks of `t` and its descendants, and of the cached objects only
//! the charges of those tagged with one of them. Those objects stay cached, tagged root: root's counter holds their
//! charge anyway, so disowning is an uncharge of the levels *below* root. Nobody else's object is evicted. Only a
//! drain of root itself gives objects back to their slabs (`heap::cpu_cache`).
//!
//! The caller has stopped the world (`percpu::world`), or holds the one slot it drains.

use super::counter::{uncharge, Tree};
use super::stock::Stock;
use crate::heap::size_class::Class;
use crate::heap::tag::{self, Tag};

/// Whether `id` is `ancestor` or one of its descendants. O(depth).
pub fn is_within<T: Tree>(tree: &T, id: Tag, ancestor: Tag) -> bool {
    let mut at = Some(id);
    while let Some(level) = at {
        if level == ancestor {
            return true;
        }
        at = tree.parent(level);
    }
    false
}

/// Uncharges one tenant's stock.
pub fn drain_stock<T: Tree>(tree: &T, stock: &mut Stock, id: Tag) {
    let bytes = stock.drain(id);
    uncharge(tree, id, bytes, None);
}

/// Calls `each(owner, count)` for every run of neighbours with one owner.
///
/// # Safety
/// Every object is a slot of a slab of `class`, cached in a magazine that the caller may look into.
pub unsafe fn runs(class: Class, objects: &[*mut u8], mut each: impl FnMut(Tag, &[*mut u8])) {
    let mut start = 0;
    while start < objects.len() {
        // SAFETY: the caller's promise.
        let owner = unsafe { tag::get(class, objects[start]) };
        let mut end = start + 1;
        // SAFETY: as above.
        while end < objects.len() && unsafe { tag::get(class, objects[end]) } == owner {
            end += 1;
        }
        each(owner, &objects[start..end]);
        start = end;
    }
}

/// Makes root the owner of those cached objects that belong to `tenant` or its descendants. `tenant` is not root.
///
/// # Safety
/// As [`runs`].
pub unsafe fn disown<T: Tree>(tree: &T, class: Class, objects: &[*mut u8], tenant: Tag) {
    // SAFETY: the caller's promise.
    unsafe {
        runs(class, objects, |owner, run| {
            if owner != Tag::ROOT && is_within(tree, owner, tenant) {
                for &object in run {
                    // SAFETY: the caller's promise.
                    tag::set(class, object, Tag::ROOT);
                }
                uncharge(tree, owner, run.len() * class.charge(), Some(Tag::ROOT));
            }
        });
    }
}
