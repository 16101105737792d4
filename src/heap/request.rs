//! A request as the program makes it: allocate, free, resize. Here the two paths meet.
//!
//! Fast paths are inlined into the caller; everything that may fail goes through [`persist`], which repeats an
//! attempt as `charge/limit.rs` decides. No lock, slot or gate is held between two attempts.

use core::alloc::Layout;
use core::ptr::{null_mut, NonNull};

use super::cpu_cache::{self, Failure};
use super::fast_path;
use super::large::{self, Large};
use super::purge;
use super::size_class::Class;
use super::slab;
use super::tag::{self, Tag};
use crate::charge::counter::{accept, give_back, reserve, uncharge, Refused, Rule};
use crate::charge::limit::{self, Patience, Payer, Verdict};
use crate::charge::scope::{self, Scope};
use crate::life::reentry;
use crate::percpu::{enter, own_slot, try_enter, Entry};
use crate::tenant::registry::{self, Registry};

// The functions that the fast path goes on in take its arguments in its own order, so that nothing has to be moved.

/// `GlobalAlloc::alloc`, when the fast path found no object of the tenant's, its slot shut, or no slot.
#[inline(never)]
pub(crate) fn allocate(size: usize, _align: usize) -> *mut u8 {
    allocate_small(Class::of_size(size), Payer::new(scope::current()))
}

/// `GlobalAlloc::alloc` of more than the fast path serves.
#[inline(never)]
pub(crate) fn allocate_bigger(size: usize, align: usize) -> *mut u8 {
    match Class::of(size, align) {
        Some(class) => allocate_small(class, Payer::new(scope::current())),
        None => allocate_large(size, align, Payer::new(scope::current())).0,
    }
}

/// `GlobalAlloc::alloc` with a larger alignment than the fast path serves.
#[inline(never)]
pub(crate) fn allocate_aligned(size: usize, align: usize) -> *mut u8 {
    allocate_bigger(size, align)
}

/// `GlobalAlloc::alloc_zeroed`. Only memory fresh from the system is known to be zero (hazard B06).
pub(crate) fn allocate_zeroed(layout: Layout) -> *mut u8 {
    let (object, zeroed) = match Class::of(layout.size(), layout.align()) {
        Some(_) => (fast_path::allocate(layout), false),
        None => allocate_large(layout.size(), layout.align(), Payer::new(scope::current())),
    };
    if !object.is_null() && !zeroed {
        // SAFETY: the object is ours and at least as large as the layout.
        unsafe { object.write_bytes(0, layout.size()) };
    }
    object
}

#[inline(always)]
fn allocate_small(class: Class, payer: Payer) -> *mut u8 {
    if let Some(mut held) = try_enter(own_slot()) {
        if let Some(object) = cpu_cache::alloc_cached(held.data(), class, payer.id) {
            return object;
        }
    }
    allocate_small_slow(class, payer)
}

#[inline(never)]
fn allocate_small_slow(class: Class, payer: Payer) -> *mut u8 {
    let size = class.info().size as usize;
    persist(payer, size, |payer| match enter() {
        Entry::Slot(mut held) => cpu_cache::alloc(held.data(), class, payer),
        Entry::Gate(_inside) => cpu_cache::alloc_without_slot(class, payer),
    })
    .unwrap_or(null_mut())
}

#[inline(never)]
fn allocate_large(size: usize, align: usize, payer: Payer) -> (*mut u8, bool) {
    let Some(bytes) = large::rounded(size) else { return (null_mut(), false) };
    if align > large::MAX_ALIGN {
        return (null_mut(), false);
    }
    let made = persist(payer, bytes, |payer| {
        let _entry = enter();
        reserve(&Registry, payer.id, bytes, payer.rule, None).map_err(|refused| Failure::Refused(refused, bytes))?;
        match large::alloc(bytes, align, payer.id) {
            Some(made) => {
                accept(&Registry, payer.id, bytes, None);
                Ok(made)
            }
            None => {
                give_back(&Registry, payer.id, bytes, None);
                Err(Failure::OutOfMemory)
            }
        }
    });
    made.map_or((null_mut(), false), |(object, zeroed)| (object.as_ptr(), zeroed))
}

/// Repeats an attempt until it succeeds, or its failure is final. A panicking thread is billed to root.
fn persist<T>(mut payer: Payer, bytes: usize, mut attempt: impl FnMut(Payer) -> Result<T, Failure>) -> Option<T> {
    let mut patience = Patience::new();
    let mut reclaimed = false;
    if payer.id != Tag::ROOT && reentry::panicking() {
        payer.id = Tag::ROOT;
    }
    loop {
        match attempt(payer) {
            Ok(made) => return Some(made),
            Err(Failure::OutOfMemory) => {
                if reclaimed || !reclaim(bytes) {
                    return None;
                }
                reclaimed = true;
            }
            Err(Failure::Refused(Refused::Retired, _)) => payer.id = registry::living(payer.id),
            Err(Failure::Refused(Refused::Over(level), bytes)) => match patience.decide(&mut payer, level, bytes) {
                Verdict::Retry => {}
                Verdict::Refuse => return None,
            },
        }
    }
}

/// Before the system's refusal is passed on: gives all caches and free spans back to it. `false`: cannot help.
#[cold]
fn reclaim(bytes: usize) -> bool {
    let ([free, slabs, _], _, _) = super::page_heap::footprint();
    let [_, cached, _] = super::huge::footprint();
    bytes <= free + slabs + cached && give_all_back().is_some()
}

/// Empties the caches and purges all that is free; the bytes given back to the system. `None`: the calling thread
/// is itself inside an operation, interrupted by a signal.
pub(crate) fn give_all_back() -> Option<usize> {
    if !limit::drain(Tag::ROOT, false) {
        return None;
    }
    let _entry = enter();
    slab::release_empty();
    Some(purge::all())
}

/// `GlobalAlloc::dealloc`, when the fast path found no room, its slot shut, or no slot.
///
/// # Safety
/// `object` was allocated here with this size and alignment, and nobody uses it any more.
#[inline(never)]
pub(crate) unsafe fn deallocate(object: *mut u8, size: usize, _align: usize) {
    // SAFETY: the caller's promise.
    unsafe { deallocate_small(Class::of_size(size), object) }
}

/// `GlobalAlloc::dealloc` of more than the fast path serves.
///
/// # Safety
/// As [`deallocate`].
#[inline(never)]
pub(crate) unsafe fn deallocate_bigger(object: *mut u8, size: usize, align: usize) {
    match Class::of(size, align) {
        // SAFETY: the caller's promise.
        Some(class) => unsafe { deallocate_small(class, object) },
        // SAFETY: as above.
        None => unsafe { deallocate_large(object, size) },
    }
}

/// `GlobalAlloc::dealloc` with a larger alignment than the fast path serves; in hardened builds, of any small size.
///
/// # Safety
/// As [`deallocate`].
#[inline(never)]
pub(crate) unsafe fn deallocate_aligned(object: *mut u8, size: usize, align: usize) {
    // SAFETY: the caller's promise.
    unsafe { deallocate_bigger(object, size, align) }
}

/// # Safety
/// As [`deallocate`].
#[inline(always)]
unsafe fn deallocate_small(class: Class, object: *mut u8) {
    slab::check_free(class, object);
    match try_enter(own_slot()) {
        // SAFETY: the caller's promise.
        Some(mut held) => unsafe { cpu_cache::dealloc(held.data(), class, object) },
        // SAFETY: as above.
        None => unsafe { deallocate_small_slow(class, object) },
    }
}

/// # Safety
/// As [`deallocate`].
#[inline(never)]
unsafe fn deallocate_small_slow(class: Class, object: *mut u8) {
    match enter() {
        // SAFETY: the caller's promise.
        Entry::Slot(mut held) => unsafe { cpu_cache::dealloc(held.data(), class, object) },
        // SAFETY: as above.
        Entry::Gate(_inside) => unsafe { cpu_cache::dealloc_without_slot(class, object) },
    }
}

/// # Safety
/// As [`deallocate`].
#[inline(never)]
unsafe fn deallocate_large(object: *mut u8, size: usize) {
    let Some(object) = NonNull::new(object) else { return };
    let large = Large::at(object);
    large.check_layout(size);
    let _entry = enter();
    let (owner, bytes) = (large.owner(), large.bytes);
    // SAFETY: the caller's promise.
    unsafe { large.free() };
    uncharge(&Registry, owner, bytes, None);
}

/// `GlobalAlloc::realloc`. The owner stays the owner, and pays for growth.
///
/// # Safety
/// `object` was allocated here with this layout; `size` is not 0 and at most `isize::MAX` when rounded up to the
/// alignment.
pub(crate) unsafe fn reallocate(object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
    let align = layout.align();
    let scope = scope::current();
    let (from, to) = (Class::of(layout.size(), align), Class::of(size, align));
    let payer = |id| Payer { id, ..Payer::new(scope) };
    let owner = match from {
        Some(class) => {
            slab::check_object(class, object);
            if from == to {
                return object;
            }
            // SAFETY: the caller's promise.
            unsafe { tag::get(class, object) }
        }
        None => {
            let Some(start) = NonNull::new(object) else { return null_mut() };
            let large = Large::at(start);
            large.check_layout(layout.size());
            if to.is_none() {
                // SAFETY: the caller's promise.
                return unsafe { resize_large(large, align, size, payer) };
            }
            large.owner()
        }
    };
    if let (Some(to), true) = (to, size < layout.size()) {
        // SAFETY: the caller's promise.
        return unsafe { shrink(object, layout, from, to, size, owner) };
    }
    let moved = match to {
        Some(class) => allocate_small(class, payer(owner)),
        None => allocate_large(size, align, payer(owner)).0,
    };
    if !moved.is_null() {
        // SAFETY: both objects are ours, distinct, and at least as large as the smaller layout.
        unsafe {
            object.copy_to_nonoverlapping(moved, layout.size().min(size));
            fast_path::deallocate(object, layout);
        }
    }
    moved
}

/// Moves an object to a smaller class. A limit does not stand in the way of giving memory back: root pays for the
/// new place, past its own limit if need be, then the two objects change owners, which only takes the difference off
/// the owner's chain.
///
/// # Safety
/// As [`reallocate`]; `from` is the layout's class, `to` that of `size`, which is below the layout's.
unsafe fn shrink(object: *mut u8, layout: Layout, from: Option<Class>, to: Class, size: usize, owner: Tag) -> *mut u8 {
    let limited = registry::node(Tag::ROOT).counter.max() != usize::MAX;
    let rule = if limited { Rule::Unlimited } else { Rule::Max };
    let moved = allocate_small(to, Payer { rule, ..Payer::new(Scope::ROOT) });
    let (Some(old), false) = (NonNull::new(object), moved.is_null()) else { return null_mut() };
    {
        let _entry = enter();
        // SAFETY: both objects are ours: nobody else changes their tags.
        let charge = unsafe {
            tag::set(to, moved, owner);
            match from {
                Some(from) => {
                    tag::set(from, object, Tag::ROOT);
                    from.charge()
                }
                None => {
                    let large = Large::at(old);
                    large.set_owner(Tag::ROOT);
                    large.bytes
                }
            }
        };
        uncharge(&Registry, owner, charge - to.charge(), Some(Tag::ROOT));
    }
    // SAFETY: both objects are ours, distinct, and at least as large as the new size.
    unsafe {
        object.copy_to_nonoverlapping(moved, size);
        fast_path::deallocate(object, layout);
    }
    moved
}

/// Resizes a large object to another large size: in place, or by moving pages, or by copying. It is one object all
/// the time and charged once: first the growth, or last the shrinking.
///
/// # Safety
/// As [`reallocate`].
#[inline(never)]
unsafe fn resize_large(large: Large, align: usize, size: usize, payer: impl Fn(Tag) -> Payer) -> *mut u8 {
    let Some(bytes) = large::rounded(size) else { return null_mut() };
    let start = large.address();
    if bytes == large.bytes {
        return start.as_ptr();
    }
    if bytes < large.bytes {
        let _entry = enter();
        // SAFETY: the caller's promise. A tail that the system does not take back is purged and charged to nobody.
        if unsafe { large.resize_in_place(bytes) } {
            uncharge(&Registry, large.owner(), large.bytes - bytes, None);
        }
        return start.as_ptr();
    }
    let growth = bytes - large.bytes;
    let made = persist(payer(registry::living(large.owner())), bytes, |mut payer| {
        let _entry = enter();
        let owner = large.owner();
        let living = registry::living(owner);
        if living != owner {
            // A retired tenant takes no charges: its object becomes its ancestor's, whose counter holds it already.
            large.set_owner(living);
            uncharge(&Registry, owner, large.bytes, Some(living));
        }
        // A panicking thread's growth is not root's: one object has one owner.
        payer.id = living;
        reserve(&Registry, payer.id, growth, payer.rule, None).map_err(|refused| Failure::Refused(refused, growth))?;
        // SAFETY: the caller's promise.
        let grown = if unsafe { large.resize_in_place(bytes) } {
            Some(start)
        } else {
            // SAFETY: the caller's promise; the old place is given up when there is a new one.
            unsafe { move_large(large, bytes, align) }
        };
        let Some(grown) = grown else {
            give_back(&Registry, payer.id, growth, None);
            return Err(Failure::OutOfMemory);
        };
        accept(&Registry, payer.id, growth, None);
        Ok(grown)
    });
    made.map_or(null_mut(), NonNull::as_ptr)
}

/// Moves a large object to a new place of `bytes`, by its pages or by copying. `None`: out of memory, and it is as before.
///
/// # Safety
/// The caller owns the object, and uses it no more where it was after `Some`.
unsafe fn move_large(from: Large, bytes: usize, align: usize) -> Option<NonNull<u8>> {
    let (mut to, _) = large::alloc(bytes, align, from.owner())?;
    // SAFETY: both objects are ours.
    match unsafe { from.relocate_to(&Large::at(to)) } {
        Some(true) => return Some(to),
        Some(false) => to = large::alloc(bytes, align, from.owner())?.0,
        None => {}
    }
    // SAFETY: both objects are ours and do not overlap; the new one is larger. The old one is freed once.
    unsafe {
        from.address().copy_to_nonoverlapping(to, from.bytes);
        from.free();
    }
    Some(to)
}
