//! Paying, crediting, and moving the charge of a cached object to the tenant that takes it.
//!
//! A free object in a magazine stays charged to its last owner, so freeing does no accounting and the usual
//! allocation (own objects come back) does none either. Only when the object goes to another tenant:
//!
//! 1. the new owner pays, from the stock or with a batch from the counters; if it is refused, nothing has changed;
//! 2. the tag is rewritten;
//! 3. the old owner is credited.
//!
//! In this order `usage` of neither is ever below the live truth. The caller holds the slot, so that no drain comes
//! between.

use super::counter::{try_charge, uncharge, Refused, Rule, Tree};
use super::stock::{Stock, STOCK_MAX};
use crate::heap::size_class::Class;
use crate::heap::tag::{self, Tag};

/// The most slots assumed when dividing a limit's head-room among them.
const SHARES: usize = 64;

/// How many bytes beyond need may be charged to a tenant at once: half of [`STOCK_MAX`] far from all limits, a
/// `SHARES`-th of the smallest head-room nearer to one, nothing under pressure and nothing for a retired tenant, which
/// will never use it.
pub fn batch<T: Tree>(tree: &T, id: Tag) -> usize {
    if tree.is_pressured(id) || tree.counter(id).word().is_retired() {
        return 0;
    }
    let mut batch = STOCK_MAX / 2;
    let mut at = Some(id);
    while let Some(level) = at {
        let counter = tree.counter(level);
        batch = batch.min(counter.max().saturating_sub(counter.usage()) / SHARES);
        at = tree.parent(level);
    }
    batch
}

/// Makes `id` pay `bytes`: from the stock, else by a charge with a batch, else by a charge of just the bytes.
#[inline]
pub fn pay<T: Tree>(tree: &T, stock: &mut Stock, id: Tag, bytes: usize, rule: Rule) -> Result<(), Refused> {
    if stock.take(id, bytes) {
        return Ok(());
    }
    charge_ahead(tree, stock, id, bytes, rule)
}

#[cold]
fn charge_ahead<T: Tree>(tree: &T, stock: &mut Stock, id: Tag, bytes: usize, rule: Rule) -> Result<(), Refused> {
    if rule == Rule::Max {
        let ahead = batch(tree, id);
        if ahead >= bytes && try_charge(tree, id, bytes + ahead, rule).is_ok() {
            let excess = stock.add(id, ahead);
            uncharge(tree, id, excess, None);
            return Ok(());
        }
    }
    try_charge(tree, id, bytes, rule)
}

/// Gives `id` back what it paid for: into the stock, or under pressure at once to the counters.
#[inline]
pub fn credit<T: Tree>(tree: &T, stock: &mut Stock, id: Tag, bytes: usize) {
    let excess = if tree.is_pressured(id) { bytes } else { stock.put(id, bytes, || 2 * batch(tree, id)) };
    if excess != 0 {
        uncharge(tree, id, excess, None);
    }
}

/// Moves the charge of a cached object from its owner to `to`.
///
/// # Safety
/// `object` is a slot of a slab of `class` that the caller has taken out of a magazine of the slot whose stock
/// this is.
pub unsafe fn transfer<T: Tree>(
    tree: &T,
    stock: &mut Stock,
    class: Class,
    object: *mut u8,
    to: Tag,
    rule: Rule,
) -> Result<(), Refused> {
    // SAFETY: the caller's promise.
    let from = unsafe { tag::get(class, object) };
    pay(tree, stock, to, class.charge(), rule)?;
    // SAFETY: as above.
    unsafe { tag::set(class, object, to) };
    #[cfg(not(allotment_tooth = "transfer_no_credit"))]
    credit(tree, stock, from, class.charge());
    #[cfg(allotment_tooth = "transfer_no_credit")]
    let _ = from;
    Ok(())
}
