//! Who owns an object, and making somebody else its owner.

use core::ptr::NonNull;

use super::registry::{self, Registry};
use super::Tenant;
use crate::charge::counter::{try_charge_below, uncharge, Refused, Rule};
use crate::charge::drain::is_within;
use crate::charge::limit::{Patience, Payer, Verdict};
use crate::heap::large::Large;
use crate::heap::segment::{self, Kind, Place};
use crate::heap::size_class::Class;
use crate::heap::tag::{self, Tag};
use crate::percpu::world;

/// The heap block around an address.
enum Block {
    Small(Class, NonNull<u8>),
    Large(Large),
}

/// The block that holds `address`, if it is on our heap. The caller holds a reference into it, so it is live.
fn block_at(address: *const u8) -> Option<Block> {
    let place = segment::find(address as usize)?;
    if let Place::Segment(segment) = place {
        let (_, info) = segment.span_at(address as usize);
        if info.kind() == Kind::Slab {
            let class = Class(info.class());
            let slot = class.info().slot_of(address as usize)?;
            let start = class.info().slab_of(address as usize) + class.info().offset_of(slot);
            let object = NonNull::new(address.with_addr(start).cast_mut())?;
            return (slot < class.info().capacity as usize).then_some(Block::Small(class, object));
        }
    }
    Large::containing(address as usize).map(Block::Large)
}

impl Block {
    fn owner(&self) -> Tag {
        match self {
            // SAFETY: a slot of a slab of its class that holds a live object.
            Block::Small(class, object) => unsafe { tag::get(*class, object.as_ptr()) },
            Block::Large(large) => large.owner(),
        }
    }

    fn set_owner(&self, owner: Tag) {
        match self {
            // SAFETY: as in `owner`.
            Block::Small(class, object) => unsafe { tag::set(*class, object.as_ptr(), owner) },
            Block::Large(large) => large.set_owner(owner),
        }
    }

    fn charge(&self) -> usize {
        match self {
            Block::Small(class, _) => class.charge(),
            Block::Large(large) => large.bytes,
        }
    }
}

impl Tenant {
    /// Who owns the heap block that `object` lies in: the tenant in scope when it was allocated, or the nearest
    /// living ancestor of that. `None`: it is not on this allocator's heap (a static, the stack, another allocator), or
    /// it has no size. O(depth).
    ///
    /// Mind what a reference points at: `&vec` is where the `Vec` itself lies, `&vec[..]` is its heap block.
    ///
    /// ```
    /// # use allotment::{Allotment, Tenant};
    /// # #[global_allocator] static ALLOTMENT: Allotment = Allotment::new();
    /// let tenant = Tenant::new("owner")?;
    /// let text = tenant.in_scope(|| String::from("on the heap"));
    /// assert_eq!(Tenant::owner_of(text.as_str()), Some(tenant));
    /// assert_eq!(Tenant::owner_of("in the program"), None);
    /// # Ok::<(), allotment::CreateError>(())
    /// ```
    pub fn owner_of<T: ?Sized>(object: &T) -> Option<Tenant> {
        if size_of_val(object) == 0 {
            return None;
        }
        let block = block_at(core::ptr::from_ref(object).cast())?;
        Some(Tenant::living(block.owner()))
    }

    /// Makes this tenant the owner of the one heap block that `object` lies in: its charge moves here, by force if it
    /// passes a limit (the tenant is then stopped). `false`: it is not on this allocator's heap, or has no size. O(depth).
    ///
    /// Only that block: of a `Vec<String>`, `adopt(&vec[..])` moves the vector's buffer and not the strings'.
    /// Two threads adopting the same block at the same time: one comes first.
    ///
    /// ```
    /// # use allotment::{Allotment, Tenant};
    /// # #[global_allocator] static ALLOTMENT: Allotment = Allotment::new();
    /// let (reader, cache) = (Tenant::new("reader")?, Tenant::new("cache")?);
    /// let page = reader.in_scope(|| vec![0_u8; 4000]);
    /// assert!(cache.adopt(&page[..]));
    /// assert_eq!(reader.settle(), 0);
    /// assert!(cache.settle() >= 4000);
    /// # Ok::<(), allotment::CreateError>(())
    /// ```
    pub fn adopt<T: ?Sized>(&self, object: &T) -> bool {
        if size_of_val(object) == 0 {
            return false;
        }
        let Some(block) = block_at(core::ptr::from_ref(object).cast()) else { return false };
        let mut payer = Payer { id: self.tag(), strict: false, rule: Rule::Max };
        let mut patience = Patience::new();
        loop {
            // Inside the gate and under the lock from the look at the owner to the end, so that neither a stopped world
            // nor another adoption comes between. Both are left before a verdict, which may stop the world.
            let refused = {
                let _inside = world::enter_shared();
                let _adopting = ADOPT.lock();
                match self.try_take(&block, payer.rule) {
                    Ok(()) => return true,
                    Err(refused) => refused,
                }
            };
            if let Refused::Over(level) = refused {
                if let Verdict::Refuse = patience.decide(&mut payer, level, block.charge()) {
                    payer.rule = Rule::Unlimited;
                }
                // A panicking thread is billed to root elsewhere; here the object has to have the owner it was given.
                payer.id = self.tag();
            }
        }
    }

    /// Moves the charge of a block here: only the levels that did not hold it are charged.
    fn try_take(&self, block: &Block, rule: Rule) -> Result<(), Refused> {
        let from = block.owner();
        let common = registry::chain(self.tag()).find(|&level| is_within(&Registry, from, level));
        try_charge_below(&Registry, self.tag(), block.charge(), rule, common)?;
        block.set_owner(self.tag());
        uncharge(&Registry, from, block.charge(), common);
        Ok(())
    }
}

/// Makes concurrent adoptions of one block move its charge once each.
static ADOPT: crate::heap::locked::Locked<()> = crate::heap::locked::Locked::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_has_no_owner() {
        let local = 7_u32;
        assert_eq!(Tenant::owner_of(&local), None);
        assert_eq!(Tenant::owner_of("static"), None);
        assert_eq!(Tenant::owner_of(&()), None);
        assert!(!Tenant::root().adopt(&local));
    }
}
