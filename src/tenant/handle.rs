//! The handle: scopes, limits, usage.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

use super::builder::{Mode, TenantBuilder};
use super::error::{CreateError, MemoryExceeded};
use super::registry::{self, Registry};
use super::{retire, stop};
use crate::charge::counter::{try_charge, Refused, Rule, MAX_BYTES};
use crate::charge::limit::{self, Patience, Payer, Verdict};
use crate::charge::scope;
use crate::heap::tag::Tag;
use crate::percpu::world;

/// A tenant: a node in the tree under [root](Tenant::root) that owns heap objects and has limits.
///
/// A handle is cheap to clone (one atomic addition) and as large as an integer. When the last handle of a tenant
/// without living children is dropped, the tenant *retires*, in time independent of how many objects it owns; those
/// belong to its nearest living ancestor from then on. A child keeps its parent living. Names need not be unique;
/// equality and hash are by identity.
///
/// # What happens at a limit
/// | where | an allocation past `max` |
/// |---|---|
/// | [`in_scope`](Tenant::in_scope), [`enter`](Tenant::enter), futures | is forced, the tenant that asked is *stopped*, also for an ancestor's limit: the next [`checkpoint`](crate::checkpoint) says so |
/// | [`try_in_scope`](Tenant::try_in_scope) | the same; [`checkpoint_or_unwind`](crate::checkpoint_or_unwind) ends the closure with the error |
/// | [`fallible`](crate::fallible) | returns null, nobody is stopped |
/// | a panicking thread | is forced and billed to root |
/// | past an [`overdraft`](TenantBuilder::overdraft), or past root's `max` | returns null |
///
/// A `realloc` that moves a small object (up to 64 KiB) is charged for both places until it is done.
///
/// Before any of that, everything charged to the tenant that lies unused on any CPU is taken back.
///
/// ```
/// use allotment::Tenant;
///
/// let database = Tenant::builder("database").max(64 << 20).build()?;
/// let query = Tenant::builder("query 1").parent(&database).max(16 << 20).build()?;
/// let rows = query.in_scope(|| vec![0_u64; 1000]);
/// drop(query);
/// drop(rows); // its owner is "database" by now
/// assert_eq!(database.settle(), 0);
/// # Ok::<(), allotment::CreateError>(())
/// ```
pub struct Tenant {
    id: Tag,
}

impl Tenant {
    /// A handle for a reference already counted.
    pub(crate) fn from_acquired(id: Tag) -> Tenant {
        Tenant { id }
    }

    /// The nearest living tenant among `id` and its ancestors. The id is pinned, or stale.
    pub(crate) fn living(id: Tag) -> Tenant {
        let acquired = registry::chain(id).find(|&level| registry::node(level).handles.try_acquire());
        match acquired {
            Some(id) => Tenant { id },
            None => Tenant::root(),
        }
    }

    pub(crate) fn tag(&self) -> Tag {
        self.id
    }

    fn node(&self) -> &'static super::node::Node {
        registry::node(self.id)
    }

    /// The root of all tenants: owns what is allocated in no scope. It never retires. Its `max` is a ceiling for the
    /// process: past it allocations return null, which infallible code does not survive.
    pub fn root() -> Tenant {
        registry::node(Tag::ROOT).handles.acquire();
        Tenant { id: Tag::ROOT }
    }

    /// The tenant in scope on this thread; root if there is none.
    pub fn current() -> Tenant {
        Tenant::living(scope::current().tenant())
    }

    /// A child of root without limits.
    ///
    /// # Errors
    /// As [`TenantBuilder::build`].
    pub fn new(name: &str) -> Result<Tenant, CreateError> {
        Tenant::builder(name).build()
    }

    /// A tenant to be created. The name has 1 to 255 bytes; that is checked when it is built.
    pub fn builder(name: &str) -> TenantBuilder {
        TenantBuilder::new(name)
    }

    /// A number that no other living tenant has, root's being 0. Reused some time after the tenant has retired and its
    /// last object is freed.
    pub fn id(&self) -> u16 {
        self.id.0
    }

    /// The name it was created with.
    pub fn name(&self) -> &str {
        if self.id == Tag::ROOT {
            return "root";
        }
        // SAFETY: this handle outlives the borrow.
        unsafe { self.node().name() }
    }

    /// The parent; `None` for root.
    pub fn parent(&self) -> Option<Tenant> {
        let parent = self.node().parent()?;
        // A living child holds its parent.
        registry::node(parent).handles.acquire();
        Some(Tenant { id: parent })
    }

    /// The living children, in no particular order. O(children), retired ones included.
    pub fn children(&self) -> Vec<Tenant> {
        let mut found = registry::acquire_children(self.id, &mut []).0;
        loop {
            // The list is made outside the registry's lock; if there are more by then, again.
            let mut ids = vec![Tag::NONE; found];
            let (now, acquired) = registry::acquire_children(self.id, &mut ids);
            let children: Vec<Tenant> = ids[..acquired].iter().map(|&id| Tenant { id }).collect();
            if now <= found {
                return children;
            }
            found = now;
        }
    }

    /// Makes this the tenant in scope on this thread until the guard is dropped. Scopes nest. No locked instruction.
    ///
    /// The guard is not `Send`: a future that holds it across an `await` does not compile where it has to be `Send`;
    /// use [`InTenant`](crate::InTenant). Forgetting it (`mem::forget`), or dropping guards in another order
    /// than the reverse of their making, leaves a scope entered: the thread goes on paying from that tenant, after its
    /// end from its nearest living ancestor, and from whoever gets its id when that is reused. Accounts stay exact.
    ///
    /// ```compile_fail
    /// fn needs_send<T: Send>(_: T) {}
    /// let tenant = allotment::Tenant::root();
    /// needs_send(tenant.enter());
    /// ```
    #[must_use = "the scope ends when the guard is dropped"]
    pub fn enter(&self) -> Entered<'_> {
        Entered { _restore: scope::enter_tenant(self.id), _tenant: PhantomData }
    }

    /// Runs `f` as this tenant. Restores the outer scope also when `f` panics.
    pub fn in_scope<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = self.enter();
        f()
    }

    /// The limit in bytes, if there is one.
    pub fn max(&self) -> Option<usize> {
        limit_of(self.node().counter.max())
    }

    /// Sets or removes the limit. When this returns, what other CPUs held in reserve for the tenant and its
    /// descendants has been taken back, and no later charge passes the new limit unless by force. Below the present
    /// usage is allowed: the next charge meets the limit.
    pub fn set_max(&self, max: impl Into<Option<usize>>) {
        let max = max.into().unwrap_or(usize::MAX);
        // In a stopped world, so that no charge is made under the old limit and counted under the new one. From a signal
        // handler inside the allocator the world cannot be stopped; then only what is charged later is bound.
        let stopped = world::stop();
        self.node().counter.set_max(max);
        limit::limit_changed(self.id);
        if let Some(mut stopped) = stopped {
            limit::drain_stopped(self.id, &mut stopped);
        }
    }

    /// The soft limit in bytes, if there is one.
    pub fn high(&self) -> Option<usize> {
        limit_of(self.node().high())
    }

    /// Sets or removes the soft limit. Above `max` is allowed here; it is then never reached unless by force.
    pub fn set_high(&self, high: impl Into<Option<usize>>) {
        self.node().set_high(high.into().unwrap_or(usize::MAX));
    }

    /// How many bytes past `max` forced charges may go; `None`: without end.
    pub fn overdraft(&self) -> Option<usize> {
        limit_of(self.node().counter.overdraft())
    }

    /// Sets or removes the end of the overdraft; see [`TenantBuilder::overdraft`].
    pub fn set_overdraft(&self, overdraft: impl Into<Option<usize>>) {
        self.node().counter.set_overdraft(overdraft.into().unwrap_or(usize::MAX));
    }

    /// Whether limits are enforced or only measured.
    pub fn mode(&self) -> Mode {
        if self.node().counter.is_measured() {
            Mode::Measure
        } else {
            Mode::Enforce
        }
    }

    /// Changes between enforcing and measuring. A tenant that is stopped stays so.
    pub fn set_mode(&self, mode: Mode) {
        self.node().counter.set_measured(mode == Mode::Measure);
    }

    /// Bytes charged to the tenant and its descendants (cgroup: `memory.current`). O(1). Never below the live truth;
    /// above it by what CPUs hold in reserve, at most [`HeapStats::slack_bound`](crate::HeapStats::slack_bound).
    pub fn usage(&self) -> usize {
        self.node().counter.usage()
    }

    /// Takes back what CPUs hold in reserve for the tenant and its descendants, and returns the usage: exactly the
    /// live truth if nothing of theirs is allocated or freed meanwhile, and never below it.
    ///
    /// Stops all allocation for tens of microseconds per CPU: proportional to what is cached, not to the number of
    /// objects or tenants. For root it empties all caches.
    pub fn settle(&self) -> usize {
        limit::drain(self.id, false);
        self.usage()
    }

    /// The highest usage since creation or the last [`reset_peak`](Tenant::reset_peak), in bytes (cgroup:
    /// `memory.peak`). Contains whatever reserve was charged then.
    pub fn peak(&self) -> usize {
        self.node().counter.peak()
    }

    /// Sets the peak to the present usage.
    pub fn reset_peak(&self) {
        self.node().counter.reset_peak();
    }

    /// Charges bytes that are not on the heap, exactly. They count against the limits, strictly: nothing is forced and
    /// nobody is stopped.
    ///
    /// # Errors
    /// A limit of the tenant or an ancestor is in the way.
    pub fn try_charge(&self, bytes: usize) -> Result<super::external::Charge, MemoryExceeded> {
        let mut payer = Payer { id: self.id, strict: true, rule: Rule::Max };
        let mut patience = Patience::new();
        loop {
            let inside = world::enter_shared();
            // This handle keeps the tenant living, so it pays whoever panics.
            let charged = try_charge(&Registry, self.id, bytes, payer.rule);
            if charged.is_ok() {
                // Counted while inside: a stopped world sees both or neither.
                return Ok(super::external::Charge::new(self.clone(), bytes));
            }
            drop(inside);
            let Err(Refused::Over(level)) = charged else { continue };
            if let Verdict::Refuse = patience.decide(&mut payer, level, bytes) {
                let mut error = stop::exceeded(level, self.id);
                error.limit = error.limit.or(Some(MAX_BYTES));
                return Err(error);
            }
        }
    }
}

fn limit_of(word: usize) -> Option<usize> {
    (word != usize::MAX).then_some(word)
}

/// Keeps a scope entered; see [`Tenant::enter`]. Guards are to be dropped in the reverse order of their making, as
/// blocks do.
#[derive(Debug)]
#[must_use = "the scope ends when the guard is dropped"]
pub struct Entered<'a> {
    _restore: scope::RestoreTenant,
    /// Borrows the handle, and makes the guard neither `Send` nor `Sync`.
    _tenant: PhantomData<(&'a Tenant, *mut ())>,
}

impl Clone for Tenant {
    fn clone(&self) -> Tenant {
        self.node().handles.acquire();
        Tenant { id: self.id }
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if self.node().handles.release() {
            retire::retire(self.id);
        }
    }
}

impl PartialEq for Tenant {
    fn eq(&self, other: &Tenant) -> bool {
        self.id == other.id
    }
}

impl Eq for Tenant {}

impl Hash for Tenant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("id", &self.id.0).field("name", &self.name()).finish()
    }
}

/// All living tenants, root first. O(highest id in use).
pub fn tenants() -> Vec<Tenant> {
    let ids = 0..registry::ids_used() as u16;
    ids.map(Tag).filter(|&id| registry::node(id).handles.try_acquire()).map(Tenant::from_acquired).collect()
}
