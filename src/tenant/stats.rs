//! What can be read: of a tenant, of its size classes, of the heap.

use core::sync::atomic::Ordering;

use super::builder::Mode;
use super::census::{each_cached, each_object, Totals};
use super::events::Events;
use super::registry::{self, Registry};
use super::Tenant;
use crate::charge::drain::is_within;
use crate::charge::stock::STOCK_MAX;
use crate::heap::size_class::{Class, CLASSES, INFO, TAG_BYTES};
use crate::heap::tag::{self, Tag};
use crate::heap::{arena, huge, page_heap, request};
use crate::percpu::{mode, world};

/// A tenant's figures at one moment, in bytes. Names follow cgroup v2.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStats {
    /// `memory.current`: see [`Tenant::usage`].
    pub current: usize,
    /// `memory.peak`: see [`Tenant::peak`].
    pub peak: usize,
    /// `memory.max`.
    pub max: Option<usize>,
    /// `memory.high`.
    pub high: Option<usize>,
    /// How far past `max` forced charges may go.
    pub overdraft: Option<usize>,
    /// Bytes of its own external charges.
    pub external: usize,
    /// Children, living or retired with objects.
    pub children: usize,
    /// Whether it or an ancestor is stopped.
    pub stopped: bool,
    /// Whether limits are enforced.
    pub mode: Mode,
    /// `memory.events` and `memory.events.local`.
    pub events: Events,
}

/// Live objects of one size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassUsage {
    /// Bytes of a slot; 0 for the row of the large objects, whose sizes differ.
    pub size: usize,
    /// Live objects.
    pub objects: usize,
    /// Bytes charged for them, tags included.
    pub bytes: usize,
}

/// The heap's figures at one moment, in bytes unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    /// How CPU slots are entered: `"rseq"`, `"threads"` or `"locked"`. Decided when the process first
    /// allocates, by what the system has, or by the environment variable `ALLOTMENT_MODE`.
    pub mode: &'static str,
    /// CPU slots in existence (a number): those of threads, of CPUs, and shared.
    pub slots: usize,
    /// The most that [`Tenant::usage`] of a tenant without descendants may show above the live truth: two magazines of
    /// every class and a stock per CPU slot, and the depot. An allocation under way adds at most half a magazine's
    /// refill. Each living descendant adds at most [`slack_per_descendant`](HeapStats::slack_per_descendant).
    pub slack_bound: usize,
    /// What a living descendant's stocks may add to an ancestor's usage.
    pub slack_per_descendant: usize,
    /// Address space mapped for objects: segments, huge objects, and what is free but could not be unmapped.
    pub mapped: usize,
    /// In spans used as slabs.
    pub slabs: usize,
    /// In large objects, by their charge.
    pub large: usize,
    /// In free spans, and free mappings of huge objects.
    pub free_spans: usize,
    /// Of those, what has not gone back to the system.
    pub dirty: usize,
    /// Of `mapped`, what is free but the system would not unmap (its mapping count is exhausted). Used again, and
    /// tried again by [`purge`].
    pub kept: usize,
    /// In cached objects, by their charge.
    pub cached: usize,
    /// In stocks.
    pub stock: usize,
    /// Mapped for the allocator's own records; stocks' address space (touched only where used) is not part of it.
    pub metadata: usize,
    /// Of that, in use.
    pub metadata_used: usize,
    /// Address space mapped for stocks.
    pub stock_mapped: usize,
    /// Ids in use or used before (a number).
    pub ids: usize,
}

/// See [`HeapStats::slack_bound`].
fn slack_bound() -> usize {
    let magazines: usize = INFO
        .iter()
        .map(|info| {
            let magazine = usize::from(info.magazine) * (info.size as usize + TAG_BYTES);
            magazine * (2 * world::slots() + usize::from(info.depot))
        })
        .sum();
    magazines + world::slots() * STOCK_MAX
}

/// The heap's figures. Stops all allocation for tens of microseconds per CPU.
///
/// ```
/// let stats = allotment::stats();
/// assert!(["rseq", "threads", "locked"].contains(&stats.mode));
/// ```
pub fn stats() -> HeapStats {
    let ids = registry::ids_used();
    let (mut cached, mut stock, mut stock_mapped) = (0, 0, 0);
    // From a signal handler inside the allocator the caches cannot be read; their figures are 0 then.
    if let Some(mut stopped) = world::stop() {
        // A corrupt magazine is for `verify` to report.
        let _ = each_cached(&mut stopped, |class, _| cached += class.charge());
        stock = stopped.slots().map(|slot| (0..ids as u16).map(|id| slot.stock.bytes(Tag(id))).sum::<usize>()).sum();
        stock_mapped = world::stock_footprint(&mut stopped);
    }
    let ([free_spans, slabs, span_large], segments, dirty) = page_heap::footprint();
    let (metadata, metadata_used) = arena::footprint();
    let [huge, cached_huge, kept] = huge::footprint();
    HeapStats {
        mode: mode::get().name(),
        slots: world::slots(),
        slack_bound: slack_bound(),
        slack_per_descendant: world::slots() * STOCK_MAX,
        mapped: segments + huge + cached_huge + kept,
        slabs,
        large: span_large + huge,
        free_spans: free_spans + cached_huge,
        dirty: dirty + cached_huge,
        kept,
        cached,
        stock,
        metadata,
        metadata_used,
        stock_mapped,
        ids,
    }
}

/// Gives everything that is free back to the system: empties all caches, frees empty slabs, purges free spans and
/// unmaps wholly free segments. Returns the bytes purged. O(free spans).
///
/// ```
/// allotment::purge();
/// ```
pub fn purge() -> usize {
    request::give_all_back().unwrap_or(0)
}

impl Tenant {
    /// The tenant's figures. O(depth).
    pub fn stats(&self) -> TenantStats {
        let node = registry::node(self.tag());
        TenantStats {
            current: self.usage(),
            peak: self.peak(),
            max: self.max(),
            high: self.high(),
            overdraft: self.overdraft(),
            // relaxed: a reading for show
            external: node.external_shared.load(Ordering::Relaxed),
            children: node.counter.word().children(),
            stopped: self.is_stopped(),
            mode: self.mode(),
            events: self.events(),
        }
    }

    /// What happened to the tenant and its descendants. O(1).
    pub fn events(&self) -> Events {
        registry::node(self.tag()).events.read()
    }

    /// Live objects of the tenant and its descendants by size class, by walking all tags; the last row, of size 0, are
    /// the large objects. Rows without objects are left out. The sum of `bytes` and the external charges is
    /// [`settle`](Tenant::settle).
    ///
    /// Stops all allocation while it walks: O(objects of everybody).
    pub fn size_classes(&self) -> Vec<ClassUsage> {
        let mut counts = [0_usize; CLASSES];
        let mut large = ClassUsage { size: 0, objects: 0, bytes: 0 };
        let within = |owner: Tag| is_within(&Registry, owner, self.tag());
        if let Some(mut stopped) = world::stop() {
            // A corrupt structure is for `verify` to report.
            let _ = each_object(
                &mut stopped,
                &mut Totals::default(),
                |class, owner| counts[class.0 as usize] += usize::from(within(owner)),
                |owner, bytes| {
                    if within(owner) {
                        large.objects += 1;
                        large.bytes += bytes;
                    }
                },
            );
            let _ = each_cached(&mut stopped, |class, object| {
                // SAFETY: magazines hold slots of slabs of their class.
                counts[class.0 as usize] -= usize::from(within(unsafe { tag::get(class, object) }));
            });
        }
        let small = (0..CLASSES as u8).map(Class).map(|class| {
            let objects = counts[class.0 as usize];
            ClassUsage { size: class.info().size as usize, objects, bytes: objects * class.charge() }
        });
        small.chain([large]).filter(|row| row.objects > 0).collect()
    }
}
