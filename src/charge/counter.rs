//! Hierarchical counters: the only truth about who is charged what.
//!
//! A charge adds to the tenant and to each of its ancestors. Each level has two words:
//!
//! * `word`: bytes *reserved*, what limits are compared with, together with what keeps the id alive (see [`Word`]);
//! * `usage`: bytes *accepted*, what users see.
//!
//! **The protocol.** `try_charge` reserves from the tenant upwards, one compare-and-swap per level, each of which
//! refuses rather than pass the limit; only when root has accepted does it add to `usage`, again from the tenant
//! upwards. A refusal gives the reservations back. `uncharge` takes from `usage` first, then from `word`.
//!
//! Equations:
//! * `usage <= bytes(word)` at every instant and level, and equal when no operation is under way;
//! * `bytes(word) <= limit` but for charges made under a wider [`Rule`];
//! * a refused charge was never part of any `usage`, nor of any peak.
//!
//! **Why two words.** With one, a charge that the parent is about to refuse is for a moment visible at the child:
//! a reader sees bytes that nobody ever got, and a second, smaller charge at the child is refused because of them
//! (the kernel's page counters accept this; a refusal here stops a tenant, so we do not). With two, a refusal is
//! final only if `usage + bytes > limit`; if only the reservations are in the way, the verdict is not yet known and
//! the caller waits for them ([`contended`]).

use crate::heap::tag::Tag;
use crate::sync::{const_unless_loom, invariant, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes reserved, children, and the mark of retirement in one atomic word, so that exactly one operation sees the
/// last of them go.
///
/// | bits | meaning |
/// |---|---|
/// | 63 | retired: no handle and no living child is left; nothing can be charged here any more |
/// | 47..=62 | child nodes, living or retired, whose ids are not yet free |
/// | 0..=46 | bytes reserved, up to 128 TiB |
///
/// | word | state of the id |
/// |---|---|
/// | retired = 0 | living |
/// | retired = 1, rest > 0 | retired, still carried by objects, stocks or children |
/// | exactly `RETIRED` | free: the operation that produced this word releases the id |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub u64);

const RETIRED: u64 = 1 << 63;
const CHILD: u64 = 1 << 47;
/// The most bytes one counter holds. Charges that would pass it are refused under every rule.
pub const MAX_BYTES: usize = (1 << 47) - 1;

impl Word {
    /// Bytes reserved.
    pub const fn bytes(self) -> usize {
        (self.0 & (CHILD - 1)) as usize
    }
    /// Child nodes.
    pub const fn children(self) -> usize {
        ((self.0 & !RETIRED) >> 47) as usize
    }
    /// Whether the tenant is retired.
    pub const fn is_retired(self) -> bool {
        self.0 & RETIRED != 0
    }
    /// Retired and carried by nothing.
    pub const fn is_free(self) -> bool {
        self.0 == RETIRED
    }
}

/// How far a charge may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Up to `max` at every level.
    Max,
    /// As `Max`, but levels that only measure do not bind.
    Measured,
    /// A forced charge: past `max`, up to `max + overdraft`; root's `max` holds.
    Overdraft,
    /// Nothing but [`MAX_BYTES`] refuses: the thread panics.
    Unlimited,
}

/// Why a charge was refused. Nothing changed at any level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// This level's limit was in the way.
    Over(Tag),
    /// The tenant itself is retired; its nearest living ancestor has to pay.
    Retired,
}

/// One level's account. Fields are shared between all threads.
pub struct Counter {
    word_shared: AtomicU64,
    usage_shared: AtomicUsize,
    peak_shared: AtomicUsize,
    max_shared: AtomicUsize,
    overdraft_shared: AtomicUsize,
    /// 1: the limit is measured, not enforced.
    measured_shared: AtomicU32,
}

/// The tree the counters stand in, and what happens beside the arithmetic.
pub trait Tree {
    /// The account of a tenant.
    fn counter(&self, id: Tag) -> &Counter;
    /// The level above; `None` for root.
    fn parent(&self, id: Tag) -> Option<Tag>;
    /// An accepted charge took a level's usage from `before` to `after`.
    fn charged(&self, id: Tag, before: usize, after: usize);
    /// An uncharge left a level's usage at `after`. Called while the bytes still pin the id.
    fn uncharged(&self, id: Tag, after: usize);
    /// Whether the tenant or an ancestor is near its limit, so that none of its bytes may be kept in reserve.
    fn is_pressured(&self, id: Tag) -> bool;
    /// Nothing carries the retired id any more. Called exactly once per retirement.
    fn released(&self, id: Tag);
}

impl Counter {
    const_unless_loom! {
        /// A living account with nothing charged and no limit.
        pub fn new() -> Self {
            Counter {
                word_shared: AtomicU64::new(0),
                usage_shared: AtomicUsize::new(0),
                peak_shared: AtomicUsize::new(0),
                max_shared: AtomicUsize::new(usize::MAX),
                overdraft_shared: AtomicUsize::new(usize::MAX),
                measured_shared: AtomicU32::new(0),
            }
        }
    }

    /// Makes a free or fresh account living again. The caller owns the id.
    pub fn reset(&self) {
        // relaxed (whole fn): until the word says that the id is living, charges are refused; the word comes last
        self.usage_shared.store(0, Ordering::Relaxed);
        self.peak_shared.store(0, Ordering::Relaxed);
        self.max_shared.store(usize::MAX, Ordering::Relaxed);
        self.overdraft_shared.store(usize::MAX, Ordering::Relaxed);
        self.measured_shared.store(0, Ordering::Relaxed);
        #[cfg(not(allotment_tooth = "reset_relaxed"))]
        // pairs: counter::Counter::reserve - the whole record of the new tenant
        self.word_shared.store(0, Ordering::Release);
        #[cfg(allotment_tooth = "reset_relaxed")]
        // relaxed: the tooth; loom-tests must notice
        self.word_shared.store(0, Ordering::Relaxed);
    }

    /// Bytes accepted.
    pub fn usage(&self) -> usize {
        // relaxed: a reading for show or for a verdict that is retried; it orders nothing
        self.usage_shared.load(Ordering::Relaxed)
    }
    /// The word as it is now.
    pub fn word(&self) -> Word {
        // relaxed: as `usage`
        Word(self.word_shared.load(Ordering::Relaxed))
    }
    /// The largest usage since the last reset.
    pub fn peak(&self) -> usize {
        // relaxed: as `usage`
        self.peak_shared.load(Ordering::Relaxed)
    }
    /// The limit; `usize::MAX`: none.
    pub fn max(&self) -> usize {
        // relaxed: the stop of the world in `set_max` makes a new limit effective, not this load
        self.max_shared.load(Ordering::Relaxed)
    }
    /// How far past `max` forced charges may go; `usize::MAX`: without end.
    pub fn overdraft(&self) -> usize {
        // relaxed: as `max`
        self.overdraft_shared.load(Ordering::Relaxed)
    }
    /// Whether the limit is only measured.
    pub fn is_measured(&self) -> bool {
        // relaxed: as `max`
        self.measured_shared.load(Ordering::Relaxed) != 0
    }
    /// See [`Counter::is_measured`].
    pub fn set_measured(&self, measured: bool) {
        // relaxed: as `max`
        self.measured_shared.store(u32::from(measured), Ordering::Relaxed);
    }
    /// See [`Counter::max`].
    pub fn set_max(&self, max: usize) {
        // relaxed: as `max`
        self.max_shared.store(max, Ordering::Relaxed);
    }
    /// See [`Counter::overdraft`].
    pub fn set_overdraft(&self, overdraft: usize) {
        // relaxed: as `max`
        self.overdraft_shared.store(overdraft, Ordering::Relaxed);
    }
    /// Forgets peaks above the present usage.
    pub fn reset_peak(&self) {
        // relaxed: a peak committed meanwhile wins or is forgotten; both are readings of this moment
        self.peak_shared.store(self.usage(), Ordering::Relaxed);
    }

    /// What a charge under `rule` may bring this level to.
    pub fn limit(&self, rule: Rule, is_root: bool) -> usize {
        match rule {
            Rule::Measured | Rule::Overdraft if self.is_measured() => MAX_BYTES,
            Rule::Max | Rule::Measured => self.max().min(MAX_BYTES),
            Rule::Overdraft if is_root => self.max().min(MAX_BYTES),
            Rule::Overdraft => self.max().saturating_add(self.overdraft()).min(MAX_BYTES),
            Rule::Unlimited => MAX_BYTES,
        }
    }

    /// Reserves if the limit allows.
    fn reserve(&self, bytes: usize, limit: usize, refuse_retired: bool) -> Result<(), Option<Refused>> {
        let mut word = self.word();
        loop {
            if refuse_retired && word.is_retired() {
                return Err(Some(Refused::Retired));
            }
            match word.bytes().checked_add(bytes) {
                Some(sum) if sum <= limit => {}
                _ => return Err(None),
            }
            let next = Word(word.0 + bytes as u64);
            #[cfg(allotment_tooth = "charge_load_store")]
            {
                // relaxed: the tooth: load and store instead of a compare-and-swap
                self.word_shared.store(next.0, Ordering::Relaxed);
                return Ok(());
            }
            #[cfg(not(allotment_tooth = "charge_load_store"))]
            // pairs: counter::Counter::reset - the record of a tenant that got this id meanwhile, its parent above all
            match self.word_shared.compare_exchange_weak(word.0, next.0, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => word = Word(now),
            }
        }
    }

    /// Gives reserved bytes back; whether that left the id free.
    fn unreserve(&self, bytes: usize) -> Word {
        // pairs: itself, on other threads - all uses of the node by operations that ended before the one that
        // frees the id
        let before = Word(self.word_shared.fetch_sub(bytes as u64, Ordering::AcqRel));
        invariant(before.bytes() >= bytes, "more was given back than a tenant had reserved");
        Word(before.0.wrapping_sub(bytes as u64))
    }

    /// One more child node holds this id.
    pub fn add_child(&self) {
        // relaxed: the caller holds a handle of this tenant, so the word cannot become free meanwhile
        self.word_shared.fetch_add(CHILD, Ordering::Relaxed);
    }

    /// A child node's id was released; the caller releases this id too if the word is now free.
    pub fn remove_child(&self) -> Word {
        // pairs: `unreserve` and `retire` - as there
        Word(self.word_shared.fetch_sub(CHILD, Ordering::AcqRel).wrapping_sub(CHILD))
    }

    /// Marks the tenant retired; the caller releases the id if the word is now free. Limits end with the tenant.
    pub fn retire(&self) -> Word {
        self.set_max(usize::MAX);
        #[cfg(allotment_tooth = "retire_two_steps")]
        {
            let before = self.word();
            // relaxed: the tooth: the check and the mark are two steps
            self.word_shared.store(before.0 | RETIRED, Ordering::Relaxed);
            return Word(before.0 | RETIRED);
        }
        #[cfg(not(allotment_tooth = "retire_two_steps"))]
        // pairs: `unreserve` - one of the two sees the other, so exactly one produces the free word
        Word(self.word_shared.fetch_or(RETIRED, Ordering::AcqRel) | RETIRED)
    }

    /// The equations that hold when no operation is under way.
    pub fn is_valid(&self) -> bool {
        self.usage() == self.word().bytes()
    }
}

/// Charges `bytes` to `id` and all its ancestors, or to none. O(depth). Lock-free.
pub fn try_charge<T: Tree>(tree: &T, id: Tag, bytes: usize, rule: Rule) -> Result<(), Refused> {
    try_charge_below(tree, id, bytes, rule, None)
}

/// [`try_charge`], up to but without `stop`, an ancestor that holds the bytes already.
pub fn try_charge_below<T: Tree>(
    tree: &T,
    id: Tag,
    bytes: usize,
    rule: Rule,
    stop: Option<Tag>,
) -> Result<(), Refused> {
    reserve(tree, id, bytes, rule, stop)?;
    accept(tree, id, bytes, stop);
    Ok(())
}

/// The first half of a charge: the limits hold the bytes free, but nobody has them yet. To be followed by [`accept`] or
/// [`give_back`] with the same arguments. For who may still fail after the limits have agreed.
pub fn reserve<T: Tree>(tree: &T, id: Tag, bytes: usize, rule: Rule, stop: Option<Tag>) -> Result<(), Refused> {
    let mut at = Some(id);
    while let Some(level) = at.filter(|_| at != stop) {
        let counter = tree.counter(level);
        let limit = counter.limit(rule, tree.parent(level).is_none());
        #[cfg(allotment_tooth = "parent_before_reserve")]
        let parent = tree.parent(level);
        if let Err(why) = counter.reserve(bytes, limit, level == id) {
            #[cfg(not(allotment_tooth = "no_rollback"))]
            give_back(tree, id, bytes, Some(level));
            return Err(why.unwrap_or(Refused::Over(level)));
        }
        // Only now do our bytes pin the id: the parent seen before may have been that of an earlier tenant.
        #[cfg(not(allotment_tooth = "parent_before_reserve"))]
        let parent = tree.parent(level);
        at = parent;
    }
    Ok(())
}

/// The second half of a charge: usage and peaks show it.
pub fn accept<T: Tree>(tree: &T, id: Tag, bytes: usize, stop: Option<Tag>) {
    let mut at = Some(id);
    while let Some(level) = at.filter(|_| at != stop) {
        let counter = tree.counter(level);
        // relaxed: `usage` publishes no other memory; a reader that sees the object sees the charge through
        // whatever handed it the object
        let before = counter.usage_shared.fetch_add(bytes, Ordering::Relaxed);
        let after = before + bytes;
        if after > counter.peak() {
            // relaxed: as above
            counter.peak_shared.fetch_max(after, Ordering::Relaxed);
        }
        tree.charged(level, before, after);
        at = tree.parent(level);
    }
}

/// Undoes a [`reserve`], up to but without `stop`.
#[cold]
pub fn give_back<T: Tree>(tree: &T, id: Tag, bytes: usize, stop: Option<Tag>) {
    let mut at = Some(id);
    while let Some(level) = at.filter(|_| at != stop) {
        // The parent is read first: once the reservation is gone, nothing of ours pins the id.
        let parent = tree.parent(level);
        if tree.counter(level).unreserve(bytes).is_free() {
            tree.released(level);
        }
        at = parent;
    }
}

/// Whether a refusal at `level` was due to reservations that are neither accepted nor rolled back yet: then it is
/// no verdict, and the charge is to be tried again.
pub fn contended<T: Tree>(tree: &T, level: Tag, bytes: usize, rule: Rule) -> bool {
    let counter = tree.counter(level);
    let limit = counter.limit(rule, tree.parent(level).is_none());
    counter.usage().checked_add(bytes).is_some_and(|sum| sum <= limit)
}

/// Takes `bytes` off `id` and its ancestors, up to but without `stop`. Never fails, never waits. O(depth).
pub fn uncharge<T: Tree>(tree: &T, id: Tag, bytes: usize, stop: Option<Tag>) {
    let mut at = Some(id);
    while let Some(level) = at {
        if at == stop || bytes == 0 {
            return;
        }
        let counter = tree.counter(level);
        let parent = tree.parent(level);
        // relaxed: as in `try_charge`
        let before = counter.usage_shared.fetch_sub(bytes, Ordering::Relaxed);
        invariant(before >= bytes, "more was uncharged than a tenant was charged");
        tree.uncharged(level, before.wrapping_sub(bytes));
        if counter.unreserve(bytes).is_free() {
            tree.released(level);
        }
        at = parent;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// One tenant under root.
    #[derive(Default)]
    struct Pair {
        counters: [Counter; 2],
        released: core::cell::Cell<usize>,
    }

    impl Default for Counter {
        fn default() -> Self {
            Counter::new()
        }
    }

    const ROOT: Tag = Tag(0);
    const CHILD: Tag = Tag(1);

    impl Tree for Pair {
        fn counter(&self, id: Tag) -> &Counter {
            &self.counters[usize::from(id.0)]
        }
        fn parent(&self, id: Tag) -> Option<Tag> {
            (id == CHILD).then_some(ROOT)
        }
        fn charged(&self, _id: Tag, _before: usize, _after: usize) {}
        fn uncharged(&self, _id: Tag, _after: usize) {}
        fn is_pressured(&self, _id: Tag) -> bool {
            false
        }
        fn released(&self, _id: Tag) {
            self.released.set(self.released.get() + 1);
        }
    }

    #[test]
    fn b39_charges_at_the_end_of_the_counter_are_refused_and_never_wrap() {
        let tree = Pair::default();
        for rule in [Rule::Max, Rule::Measured, Rule::Overdraft, Rule::Unlimited] {
            assert_eq!(try_charge(&tree, CHILD, usize::MAX, rule), Err(Refused::Over(CHILD)));
            assert_eq!(try_charge(&tree, CHILD, MAX_BYTES + 1, rule), Err(Refused::Over(CHILD)));
            assert_eq!(try_charge(&tree, CHILD, MAX_BYTES, rule), Ok(()));
            assert_eq!(try_charge(&tree, CHILD, 1, rule), Err(Refused::Over(CHILD)));
            assert_eq!(try_charge(&tree, ROOT, 1, rule), Err(Refused::Over(ROOT)));
            uncharge(&tree, CHILD, MAX_BYTES, None);
            assert!(tree.counters.iter().all(|counter| counter.is_valid() && counter.usage() == 0));
        }
    }

    #[test]
    fn rules_bind_as_far_as_they_say() {
        let tree = Pair::default();
        let child = tree.counter(CHILD);
        child.set_max(100);
        child.set_overdraft(50);
        tree.counter(ROOT).set_max(120);
        assert_eq!(try_charge(&tree, CHILD, 101, Rule::Max), Err(Refused::Over(CHILD)));
        assert_eq!(try_charge(&tree, CHILD, 121, Rule::Overdraft), Err(Refused::Over(ROOT)));
        assert_eq!(try_charge(&tree, CHILD, 151, Rule::Overdraft), Err(Refused::Over(CHILD)));
        assert_eq!(try_charge(&tree, CHILD, 120, Rule::Overdraft), Ok(()));
        assert_eq!(try_charge(&tree, CHILD, 900, Rule::Unlimited), Ok(()));
        uncharge(&tree, CHILD, 1020, None);
        child.set_measured(true);
        assert_eq!(try_charge(&tree, CHILD, 101, Rule::Max), Err(Refused::Over(CHILD)));
        assert_eq!(try_charge(&tree, CHILD, 121, Rule::Measured), Err(Refused::Over(ROOT)));
        assert_eq!(try_charge(&tree, CHILD, 120, Rule::Measured), Ok(()));
        assert_eq!(child.peak(), 1020);
        assert_eq!(try_charge_below(&tree, CHILD, 7, Rule::Unlimited, Some(ROOT)), Ok(()));
        assert_eq!((child.usage(), tree.counter(ROOT).usage()), (127, 120));
    }

    #[test]
    fn a_retired_account_takes_nothing_and_is_released_with_its_last_byte() {
        let tree = Pair::default();
        try_charge(&tree, CHILD, 10, Rule::Max).unwrap();
        assert!(!tree.counter(CHILD).retire().is_free());
        assert_eq!(try_charge(&tree, CHILD, 1, Rule::Unlimited), Err(Refused::Retired));
        uncharge(&tree, CHILD, 9, None);
        assert_eq!(tree.released.get(), 0);
        uncharge(&tree, CHILD, 1, None);
        assert_eq!(tree.released.get(), 1);
        assert!(tree.counter(CHILD).word().is_free());
    }

    #[test]
    fn words_keep_bytes_children_and_the_mark_apart() {
        let counter = Counter::new();
        counter.add_child();
        counter.add_child();
        assert_eq!((counter.word().bytes(), counter.word().children()), (0, 2));
        assert!(!counter.word().is_retired());
        let word = counter.retire();
        assert!(word.is_retired() && !word.is_free() && word.children() == 2);
        assert!(!counter.remove_child().is_free());
        assert!(counter.remove_child().is_free());
    }
}
