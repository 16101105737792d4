//! `verify()`: proves that the counters are the heap.

use core::fmt;
use core::sync::atomic::Ordering;

use super::census::{each_cached, each_object, Corrupt, Tallies, Totals};
use super::registry;
use crate::charge::scope;
use crate::heap::page_heap;
use crate::heap::request;
use crate::heap::segment::Kind;
use crate::heap::size_class::Class;
use crate::heap::slab::{self, HARDENED};
use crate::heap::tag::Tag;
use crate::percpu::world::{self, Stopped};

/// What [`verify`] counted, all in agreement with the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Tenants with a record: living, or retired and still owning something.
    pub tenants: usize,
    /// Slabs.
    pub slabs: usize,
    /// Live objects, small and large.
    pub objects: usize,
    /// Bytes charged for them.
    pub bytes: usize,
    /// Objects in magazines, free for the program and charged to their last owners.
    pub cached_objects: usize,
    /// Bytes charged for them.
    pub cached_bytes: usize,
    /// Large objects among the live ones.
    pub large_objects: usize,
    /// Bytes charged ahead of need, on all CPU slots.
    pub stock_bytes: usize,
    /// Bytes of external charges.
    pub external_bytes: usize,
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tenants, {} live objects ({} large) of {} bytes in {} slabs, {} cached of {} bytes, {} bytes in stock, \
             {} external: all as charged",
            self.tenants,
            self.objects,
            self.large_objects,
            self.bytes,
            self.slabs,
            self.cached_objects,
            self.cached_bytes,
            self.stock_bytes,
            self.external_bytes
        )
    }
}

/// The counters and the heap disagree: a defect of this crate, or memory that somebody overwrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drift {
    /// A tenant's counter is not what was counted.
    Counter {
        /// Its id.
        id: u16,
        /// Its name; empty when it has retired.
        name: String,
        /// Bytes in its counter.
        counter: usize,
        /// Bytes counted: its objects, stocks and external charges, and its children's counters.
        counted: usize,
    },
    /// Objects or stocks carry the tag of a tenant that does not exist.
    Unowned {
        /// The tag.
        id: u16,
        /// Their bytes.
        bytes: usize,
    },
    /// A structure contradicts itself.
    Corrupt {
        /// Which, and how.
        what: &'static str,
        /// Where; 0 if it has no address of its own.
        address: usize,
    },
    /// No memory for the count.
    OutOfMemory,
    /// Called from a signal handler that interrupted the allocator.
    Reentered,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Drift::Counter { id, name, counter, counted } => {
                write!(f, "tenant {id} {name:?} is charged {counter} bytes but has {counted}")
            }
            Drift::Unowned { id, bytes } => write!(f, "{bytes} bytes carry the tag {id} of no tenant"),
            Drift::Corrupt { what, address } => write!(f, "{what} (at {address:#x})"),
            Drift::OutOfMemory => f.write_str("no memory for the count"),
            Drift::Reentered => f.write_str("called from a signal handler inside the allocator"),
        }
    }
}

impl std::error::Error for Drift {}

/// What was found, before there is a name to it.
enum Finding {
    Counter { id: Tag, counter: usize, counted: usize },
    Unowned { id: Tag, bytes: usize },
    Corrupt(Corrupt),
}

impl From<Corrupt> for Finding {
    fn from(corrupt: Corrupt) -> Finding {
        Finding::Corrupt(corrupt)
    }
}

/// Recounts every object by its tag and compares with every tenant's counter, and checks the heap's structures.
///
/// Stops all allocation while it counts: O(objects + tenants), about 10 ms per million objects. May be called while
/// everything runs.
///
/// # Errors
/// The counters are not the heap. Never in a sound program; report it.
///
/// ```
/// println!("{}", allotment::verify().unwrap());
/// ```
pub fn verify() -> Result<Verified, Drift> {
    let mut tallies = match Tallies::new() {
        Some(tallies) => tallies,
        None => {
            // Free memory of ours may be all that fills the address space.
            request::give_all_back();
            Tallies::new().ok_or(Drift::OutOfMemory)?
        }
    };
    let mut stopped = world::stop().ok_or(Drift::Reentered)?;
    let counted = count(&mut tallies, &mut stopped);
    drop(stopped);
    counted.map_err(|finding| {
        let _root = scope::enter_root();
        match finding {
            Finding::Counter { id, counter, counted } => {
                let named = registry::node(id).handles.try_acquire().then(|| super::Tenant::from_acquired(id));
                let name = named.map_or(String::new(), |tenant| tenant.name().to_owned());
                Drift::Counter { id: id.0, name, counter, counted }
            }
            Finding::Unowned { id, bytes } => Drift::Unowned { id: id.0, bytes },
            Finding::Corrupt(Corrupt(what, address)) => Drift::Corrupt { what, address },
        }
    })
}

/// Counts and compares. Allocates nothing: the world is stopped.
fn count(tallies: &mut Tallies, stopped: &mut Stopped) -> Result<Verified, Finding> {
    if !page_heap::is_valid() {
        return Err(Corrupt("the page heap's bins contradict its units", 0).into());
    }
    let mut totals = Totals::default();
    check_cached(stopped, &mut totals)?;
    let shared = core::cell::RefCell::new(&mut *tallies);
    each_object(
        stopped,
        &mut totals,
        |class, owner| shared.borrow_mut().of(owner).slab_bytes += class.charge(),
        |owner, bytes| shared.borrow_mut().of(owner).large_bytes += bytes,
    )?;
    let mut slab_bytes = 0;
    let mut stock_bytes = 0;
    let ids = registry::ids_used();
    for id in (0..ids as u16).map(Tag) {
        let stock: usize = stopped.slots().map(|slot| slot.stock.bytes(id)).sum();
        let tally = tallies.of(id);
        tally.stock_bytes = stock;
        slab_bytes += tally.slab_bytes;
        stock_bytes += stock;
    }
    let external_bytes = compare(tallies, ids)?;
    Ok(Verified {
        tenants: (0..ids as u16).filter(|&id| !is_free(Tag(id))).count(),
        slabs: totals.slabs,
        objects: totals.slab_objects - totals.cached_objects + totals.large_objects,
        bytes: slab_bytes - totals.cached_bytes + totals.large_bytes,
        cached_objects: totals.cached_objects,
        cached_bytes: totals.cached_bytes,
        large_objects: totals.large_objects,
        stock_bytes,
        external_bytes,
    })
}

/// Every cached object is a slot that its slab has given out, and is cached once.
fn check_cached(stopped: &mut Stopped, totals: &mut Totals) -> Result<(), Finding> {
    if !HARDENED {
        page_heap::each_span(|segment, unit, info| {
            if info.kind() == Kind::Slab {
                slab::clear_idle(Class(info.class()), segment.address(unit).as_ptr() as usize);
            }
        });
    }
    let mut bad = None;
    each_cached(stopped, |class, object| {
        totals.cached_objects += 1;
        totals.cached_bytes += class.charge();
        // SAFETY: magazines hold slots of slabs of their class.
        let twice = if HARDENED { false } else { !unsafe { slab::mark_idle(class, object) } };
        if twice || slab::is_free(class, object) {
            bad = Some(Corrupt("an object is in a magazine and elsewhere too", object as usize));
        }
    })?;
    bad.map_or(Ok(()), |corrupt| Err(corrupt.into()))
}

fn is_free(id: Tag) -> bool {
    let node = registry::node(id);
    id != Tag::ROOT && (node.counter.word().is_free() || (!node.handles.is_living() && node.counter.word().0 == 0))
}

/// Every tenant's counter is what was counted. Returns the external bytes.
fn compare(tallies: &mut Tallies, ids: usize) -> Result<usize, Finding> {
    let mut external_bytes = 0;
    for id in (1..ids as u16).map(Tag).filter(|&id| !is_free(id)) {
        let node = registry::node(id);
        if let Some(parent) = node.parent() {
            tallies.of(parent).children_bytes += node.counter.usage();
        }
    }
    for id in (0..ids as u16).map(Tag) {
        let tally = *tallies.of(id);
        let own = tally.slab_bytes + tally.large_bytes + tally.stock_bytes;
        if is_free(id) {
            if own != 0 {
                return Err(Finding::Unowned { id, bytes: own });
            }
            continue;
        }
        let node = registry::node(id);
        // relaxed: the world is stopped
        let external = node.external_shared.load(Ordering::Relaxed);
        external_bytes += external;
        let counted = own + external + tally.children_bytes;
        if counted != node.counter.usage() || !node.counter.is_valid() {
            return Err(Finding::Counter { id, counter: node.counter.usage(), counted });
        }
    }
    for id in (ids..=usize::from(u16::MAX)).map(|id| Tag(id as u16)) {
        let tally = *tallies.of(id);
        let bytes = tally.slab_bytes + tally.large_bytes;
        if bytes != 0 {
            return Err(Finding::Unowned { id, bytes });
        }
    }
    Ok(external_bytes)
}
