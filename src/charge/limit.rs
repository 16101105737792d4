//! What happens when a charge is refused.
//!
//! No allocation is refused, and no tenant stopped, while bytes charged to it sit unused on some CPU. So a refusal is
//! looked at in this order:
//!
//! 1. The thread panics: nothing is refused, root pays.
//! 2. Only reservations of charges under way are in the way: wait for them and try again.
//! 3. The subtree was not drained since it came under pressure: drain it and try again. Skipped when the request
//!    alone is larger than the limit, and for a tenant that is stopped already.
//! 4. The refusal is final. A level that only measures counts it and lets it pass. A strict payer (`fallible`,
//!    external charges), root's `max` and an exhausted overdraft refuse. Everybody else is charged by force and
//!    stopped.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::counter::{contended, Rule, MAX_BYTES};
use super::scope::Scope;
use super::{drain, pressure};
use crate::heap::cpu_cache;
use crate::heap::tag::Tag;
use crate::life::reentry;
use crate::percpu::world;
use crate::sync::backoff::Backoff;
use crate::tenant::events::Event;
use crate::tenant::node::Node;
use crate::tenant::registry::{self, note, Registry};

/// Waits for charges under way before a verdict is given without them: past the back-off's spins each is 50 µs, so
/// about a fifth of a second. Only a thread that waits for a charge it has itself interrupted gets there.
const WAITS: u32 = 4_000;
/// Drains per allocation. One is enough unless pressure ends in between.
const DRAINS: u32 = 4;

/// Who pays, and how.
#[derive(Clone, Copy)]
pub(crate) struct Payer {
    pub(crate) id: Tag,
    pub(crate) strict: bool,
    pub(crate) rule: Rule,
}

impl Payer {
    pub(crate) fn new(scope: Scope) -> Payer {
        Payer { id: scope.tenant(), strict: scope.is_strict(), rule: Rule::Max }
    }
}

/// What one allocation has been through so far.
pub(crate) struct Patience {
    drained: Option<(Tag, u32)>,
    drains: u32,
    backoff: Backoff,
}

/// What to do about a refused charge.
pub(crate) enum Verdict {
    /// Try again; the payer may have changed.
    Retry,
    /// The answer is no.
    Refuse,
}

impl Patience {
    pub(crate) const fn new() -> Self {
        Patience { drained: None, drains: 0, backoff: Backoff::new() }
    }

    /// Decides about a charge of `bytes` that `level` refused to `payer`. The thread is inside neither slot nor gate.
    #[cold]
    pub(crate) fn decide(&mut self, payer: &mut Payer, level: Tag, bytes: usize) -> Verdict {
        if reentry::panicking() && payer.rule != Rule::Unlimited {
            *payer = Payer { id: Tag::ROOT, strict: false, rule: Rule::Unlimited };
            return Verdict::Retry;
        }
        let at = registry::node(level);
        if at.counter.usage().saturating_add(bytes) > MAX_BYTES {
            // No limit of anybody's was met, but the end of the counter: as good as out of memory. By arithmetic, since
            // a limit that was removed after it refused looks the same, and then the charge is to be tried again.
            return Verdict::Refuse;
        }
        // Its own flag, not an ancestor's: what it did to be stopped was found to be past a limit, or asked for.
        let flagged = registry::node(payer.id).stopped.hit().is_some();
        let known = payer.rule == Rule::Max && !payer.strict && flagged && level != Tag::ROOT;
        if !known {
            let limit = at.counter.limit(payer.rule, level == Tag::ROOT);
            if bytes <= limit && !self.is_final(level, bytes, payer.rule) {
                return Verdict::Retry;
            }
        }
        if payer.rule == Rule::Max && at.counter.is_measured() {
            note(level, Event::Max, 1);
            payer.rule = Rule::Measured;
            return Verdict::Retry;
        }
        let may_force = matches!(payer.rule, Rule::Max | Rule::Measured) && !payer.strict && level != Tag::ROOT;
        if !may_force {
            note(level, Event::Refused, 1);
            return Verdict::Refuse;
        }
        note(level, Event::Max, 1);
        stop(payer.id, level);
        payer.rule = Rule::Overdraft;
        Verdict::Retry
    }

    /// Whether nothing can be won by trying again; else does what may help.
    fn is_final(&mut self, level: Tag, bytes: usize, rule: Rule) -> bool {
        if contended(&Registry, level, bytes, rule) {
            self.backoff.wait();
            return self.backoff.steps() >= WAITS;
        }
        let pressure = &registry::node(level).pressure;
        if let Some(word) = pressure.drained() {
            // Drained since before the last attempt, and pressured all the time: there was no slack.
            if self.drained == Some((level, word)) {
                return true;
            }
            self.drained = Some((level, word));
            return false;
        }
        if self.drains >= DRAINS || !drain(level, true) {
            return true;
        }
        self.drains += 1;
        self.drained = pressure.drained().map(|word| (level, word));
        false
    }
}

/// Takes back all that is unused of a tenant and its descendants. `false`: the calling thread is itself inside an
/// operation, interrupted by a signal.
#[cold]
pub(crate) fn drain(tenant: Tag, because_of_limit: bool) -> bool {
    let pressure = &registry::node(tenant).pressure;
    if because_of_limit {
        pressure.raise();
    }
    let Some(mut stopped) = world::stop() else { return false };
    drain_stopped(tenant, &mut stopped);
    if because_of_limit {
        pressure.mark_drained();
    }
    true
}

/// [`drain()`], with the world already at a stop.
pub(crate) fn drain_stopped(tenant: Tag, stopped: &mut world::Stopped) {
    for slot in stopped.slots() {
        registry::each_within(tenant, |id| drain::drain_stock(&Registry, &mut slot.stock, id));
    }
    cpu_cache::drain(tenant, stopped);
}

/// Tenants that are stopped.
static STOPPED: AtomicUsize = AtomicUsize::new(0);

// relaxed (whole file): `STOPPED` only spares checkpoints the walk; the flags themselves are read then
/// Stops a tenant because of `level`'s limit ([`Tag::NONE`]: because somebody asked for it).
#[cold]
pub(crate) fn stop(id: Tag, level: Tag) {
    let node = registry::node(id);
    if node.stopped.hit().is_some() {
        return;
    }
    STOPPED.fetch_add(1, Ordering::Relaxed);
    if node.stopped.set(level) {
        note(id, Event::Stopped, 1);
    } else {
        STOPPED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets a tenant run again.
pub(crate) fn forget_stop(node: &Node) {
    if node.stopped.clear() {
        STOPPED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The tenant nearest to `id`, itself or an ancestor, that is stopped, and by whose limit. O(1) while nobody is
/// stopped, else O(depth).
#[inline]
pub(crate) fn stopped_by(id: Tag) -> Option<(Tag, Tag)> {
    if STOPPED.load(Ordering::Relaxed) == 0 {
        return None;
    }
    registry::chain(id).find_map(|level| registry::node(level).stopped.hit().map(|hit| (level, hit)))
}

/// Whether a tenant or an ancestor is stopped.
pub(crate) fn is_stopped(id: Tag) -> bool {
    stopped_by(id).is_some()
}

/// Looks at a level again after its limit changed.
pub(crate) fn limit_changed(id: Tag) {
    let node = registry::node(id);
    let (max, usage) = (node.counter.max(), node.counter.usage());
    node.pressure.rose(max, usage);
    if usage <= max && usage < max.saturating_sub(2 * pressure::margin(max)) {
        node.pressure.clear();
    }
}
