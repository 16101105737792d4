//! What the models share: a small tree of tenants, and a slab.
//!
//! The models exist only under `--cfg loom`; the gate `ci/loom.sh` runs them, and runs the teeth that must make
//! them fail. They use allotment's own code through `allotment::model`; only the tree of tenants is theirs, since
//! the real one is a static.

#![cfg(loom)]

use allotment::model::counter::{Counter, Tree};
use allotment::model::fence;
use allotment::model::owner_lock::OwnerLock;
use allotment::model::slot::{Slot, SlotData, Standing, ARRAY_POINTERS};
use allotment::model::stock::{Entry, Stock};
use allotment::model::tag::Tag;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// A slot's content whose stock has room for the tenants of [`SmallTree`]. Its memory lives as long as the test process.
pub fn slot_data() -> SlotData {
    let entries = Box::leak(Box::new([Entry::default(); 4]));
    let arrays = Box::leak(vec![std::ptr::null_mut(); ARRAY_POINTERS].into_boxed_slice());
    // SAFETY: both live for ever and are this slot's alone.
    unsafe { SlotData::new(Stock::new(entries.as_mut_ptr(), entries.len()), arrays.as_mut_ptr()) }
}

/// A shared slot with that content.
pub fn shared_slot(data: SlotData) -> Slot {
    let slot = Slot::new();
    *slot.try_enter_shared(1).unwrap().data() = data;
    slot
}

/// A CPU with its slot. A restartable sequence is ended by whatever takes the CPU away, so that all of it happens, up to
/// its one store, or nothing: here whoever runs one holds the lock, and a fence against sequences takes it once.
pub struct Cpu {
    runs: OwnerLock,
    number: usize,
    /// The slot.
    pub slot: Slot,
}

impl Cpu {
    /// A CPU whose slot holds `data`.
    pub fn new(number: u32, data: SlotData) -> Self {
        let slot = shared_slot(data);
        slot.assign_to_cpu(number, 0);
        Cpu { runs: OwnerLock::new(), number: number as usize, slot }
    }

    /// A sequence that does one step on the slot, as `pop` and `push` of `percpu/rseq_x86_64.rs` do; or does not.
    pub fn try_step<R>(&self, token: usize, step: impl FnOnce(&mut SlotData) -> R) -> Option<R> {
        self.alone(token, || {
            // SAFETY: while the slot is open to the CPU, whoever stops it waits for the fence.
            self.slot.is_open_to(self.number).then(|| step(unsafe { self.slot.data() }))
        })
    }

    fn alone<R>(&self, token: usize, f: impl FnOnce() -> R) -> R {
        self.runs.lock(token).unwrap();
        let result = f();
        self.runs.unlock();
        result
    }

    /// The sequence that enters the slot.
    pub fn try_enter(&self, token: usize) -> bool {
        self.alone(token, || self.slot.try_enter_of_cpu(self.number, token))
    }

    /// `membarrier(PRIVATE_EXPEDITED_RSEQ)`.
    pub fn fence(&self, token: usize) {
        #[cfg(not(allotment_tooth = "no_fence_against_sequences"))]
        self.alone(token, || ());
        #[cfg(allotment_tooth = "no_fence_against_sequences")]
        let _ = token;
    }
}

/// Stops a slot, as `percpu/world.rs` does with all of them, and starts it again.
pub fn stopped<R>(slot: &Slot, token: usize, fence: impl Fn(), f: impl FnOnce(&mut SlotData) -> R) -> R {
    slot.stop(token).unwrap();
    fence();
    loop {
        match slot.standing() {
            Standing::Idle => break,
            Standing::Entered => thread::yield_now(),
            Standing::Open => {
                slot.shut();
                fence();
            }
        }
    }
    // SAFETY: the slot is stopped and idle.
    let result = f(unsafe { slot.data() });
    slot.start();
    result
}

/// Stops a slot that a thread may have claimed.
pub fn stopped_claimed<R>(slot: &Slot, token: usize, f: impl FnOnce(&mut SlotData) -> R) -> R {
    stopped(slot, token, fence::heavy, f)
}

/// Root, a child of root, and two children of that: `ROOT <- PARENT <- LEFT, RIGHT`.
pub struct SmallTree {
    counters: [Counter; 4],
    /// How often each id was released.
    released: [AtomicUsize; 4],
}

/// The root.
pub const ROOT: Tag = Tag(0);
/// A child of the root.
pub const PARENT: Tag = Tag(1);
/// A child of [`PARENT`].
pub const LEFT: Tag = Tag(2);
/// The other child of [`PARENT`].
pub const RIGHT: Tag = Tag(3);

impl SmallTree {
    /// Nothing charged, no limits.
    pub fn new() -> Self {
        let tree = SmallTree {
            counters: std::array::from_fn(|_| Counter::new()),
            released: std::array::from_fn(|_| AtomicUsize::new(0)),
        };
        for id in [PARENT, LEFT, RIGHT] {
            tree.counter(tree.parent(id).unwrap()).add_child();
        }
        tree
    }

    /// Usage of a tenant.
    pub fn usage(&self, id: Tag) -> usize {
        self.counter(id).usage()
    }

    /// How often an id was released.
    pub fn released(&self, id: Tag) -> usize {
        self.released[usize::from(id.0)].load(Ordering::SeqCst)
    }

    /// Takes an id that was released, as the pool of ids gives it to one taker only.
    pub fn take_released(&self, id: Tag) -> bool {
        let released = &self.released[usize::from(id.0)];
        released.compare_exchange(1, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The equations of every level.
    pub fn is_valid(&self) -> bool {
        self.counters.iter().all(Counter::is_valid)
    }
}

impl Default for SmallTree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree for SmallTree {
    fn counter(&self, id: Tag) -> &Counter {
        &self.counters[usize::from(id.0)]
    }
    fn parent(&self, id: Tag) -> Option<Tag> {
        [None, Some(ROOT), Some(PARENT), Some(PARENT)][usize::from(id.0)]
    }
    fn charged(&self, _id: Tag, _before: usize, _after: usize) {}
    fn uncharged(&self, _id: Tag, _after: usize) {}
    fn is_pressured(&self, _id: Tag) -> bool {
        false
    }
    fn released(&self, id: Tag) {
        self.released[usize::from(id.0)].fetch_add(1, Ordering::SeqCst);
        if let Some(parent) = self.parent(id) {
            if self.counter(parent).remove_child().is_free() {
                Tree::released(self, parent);
            }
        }
    }
}

/// Memory laid out like a slab of a class, for the tags of its objects.
pub struct FakeSlab {
    start: *mut u8,
    layout: std::alloc::Layout,
}

// SAFETY: only a pointer to memory of its own; the tags in it are atomics.
unsafe impl Send for FakeSlab {}
// SAFETY: as above.
unsafe impl Sync for FakeSlab {}

impl FakeSlab {
    /// A zeroed slab of a class.
    pub fn new(class: allotment::model::size_class::Class) -> Self {
        let bytes = allotment::model::size_class::INFO[usize::from(class.0)].slab as usize;
        let layout = std::alloc::Layout::from_size_align(bytes, bytes).unwrap();
        // SAFETY: the layout is not empty.
        FakeSlab { start: unsafe { std::alloc::alloc_zeroed(layout) }, layout }
    }

    /// An object of it.
    pub fn object(&self, class: allotment::model::size_class::Class, slot: usize) -> *mut u8 {
        let info = &allotment::model::size_class::INFO[usize::from(class.0)];
        self.start.wrapping_add((info.first + slot as u32 * info.size) as usize)
    }
}

impl Drop for FakeSlab {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { std::alloc::dealloc(self.start, self.layout) };
    }
}
