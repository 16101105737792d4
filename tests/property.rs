//! The equations of the accounts, over random traces, against a model that just adds up.
//!
//! `Allotment` is called directly and is not this binary's global allocator, so nothing but the trace is charged.
//! There is one test here: it may look at the whole heap and at every tenant.

mod model;

use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, BTreeSet};

use allotment::{
    checkpoint, fallible, purge, tenants, verify, Allotment, Charge, CreateError, EventCounts, Mode, Tenant,
};
use model::{charge, check, fill, slot};
use proptest::prelude::*;

const HEAP: Allotment = Allotment::new();
const ROOT: usize = 0;

/// One step of a trace. Tenants, objects and external charges are picked by number, modulo how many there are.
#[derive(Clone, Debug)]
enum Op {
    Create { parent: usize, max: Option<usize>, high: Option<usize>, overdraft: Option<usize>, measure: bool },
    DropHandle { tenant: usize },
    Alloc { tenant: usize, outer: usize, size: usize, align: u32, strict: bool, cpu: Option<usize> },
    Free { object: usize, cpu: Option<usize> },
    Realloc { object: usize, scope: usize, size: usize, strict: bool, cpu: Option<usize> },
    SetMax { tenant: usize, max: Option<usize> },
    Charge { tenant: usize, bytes: usize },
    Uncharge { charge: usize },
    Adopt { tenant: usize, object: usize },
    Stop { tenant: usize },
    Resume { tenant: usize },
    Settle { tenant: usize },
    Verify,
    Purge,
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![8 => 1..600_usize, 3 => 600..10_000_usize, 2 => 10_000..70_000_usize, 1 => 70_000..600_000_usize]
}

fn limits() -> impl Strategy<Value = Option<usize>> {
    let some = prop_oneof![Just(0), 1..2000_usize, 2000..100_000_usize, 100_000..2_000_000_usize, Just(usize::MAX)];
    prop::option::weighted(0.6, some)
}

fn cpus() -> impl Strategy<Value = Option<usize>> {
    prop::option::weighted(0.25, 0..2_usize)
}

fn ops() -> impl Strategy<Value = Op> {
    let n = || 0..1000_usize;
    prop_oneof![
        4 => (n(), limits(), limits(), prop::option::weighted(0.2, 0..50_000_usize), prop::bool::weighted(0.1)).prop_map(
            |(parent, max, high, overdraft, measure)| Op::Create { parent, max, high, overdraft, measure }),
        2 => n().prop_map(|tenant| Op::DropHandle { tenant }),
        20 => (n(), n(), sizes(), 0..8_u32, any::<bool>(), cpus()).prop_map(
            |(tenant, outer, size, align, strict, cpu)| Op::Alloc { tenant, outer, size, align, strict, cpu }),
        12 => (n(), cpus()).prop_map(|(object, cpu)| Op::Free { object, cpu }),
        4 => (n(), n(), sizes(), any::<bool>(), cpus()).prop_map(
            |(object, scope, size, strict, cpu)| Op::Realloc { object, scope, size, strict, cpu }),
        2 => (n(), limits()).prop_map(|(tenant, max)| Op::SetMax { tenant, max }),
        2 => (n(), sizes()).prop_map(|(tenant, bytes)| Op::Charge { tenant, bytes }),
        1 => n().prop_map(|charge| Op::Uncharge { charge }),
        2 => (n(), n()).prop_map(|(tenant, object)| Op::Adopt { tenant, object }),
        1 => n().prop_map(|tenant| Op::Stop { tenant }),
        1 => n().prop_map(|tenant| Op::Resume { tenant }),
        1 => n().prop_map(|tenant| Op::Settle { tenant }),
        1 => Just(Op::Verify),
        1 => Just(Op::Purge),
    ]
}

/// Whether a tenant's own stop flag is set. `Maybe`: the trace does not tell whether a charge had to be made (a resize
/// in place charges less than one that moves).
#[derive(Clone, Copy, PartialEq, Debug)]
enum Flag {
    No,
    Maybe,
    Yes,
}

struct Node {
    handle: Option<Tenant>,
    id: u16,
    parent: usize,
    max: Option<usize>,
    overdraft: Option<usize>,
    measure: bool,
    flag: Flag,
    /// The most it ever held.
    most: usize,
    /// It was taken past its limit by force since the limit was set.
    forced: bool,
}

struct Object {
    address: usize,
    layout: Layout,
    seed: u8,
    owner: usize,
    /// The tenant whose id the object was tagged with; another one than the owner when that one has retired.
    tagged: usize,
}

/// How a charge of some bytes must end.
#[derive(PartialEq, Debug)]
enum Verdict {
    Fits,
    /// Past a limit.
    Over,
    /// Past a limit and past its overdraft.
    Refused,
}

/// A tenant's figures that a refusal must leave alone.
#[derive(PartialEq, Debug)]
struct Figures {
    usage: usize,
    peak: usize,
    stopped: bool,
    local: EventCounts,
}

struct World {
    nodes: Vec<Node>,
    objects: Vec<Object>,
    charges: Vec<(usize, Charge)>,
    /// What root held before the trace: nothing, or what the allocator keeps for itself.
    base: usize,
    seed: u8,
    /// The step under way.
    step: String,
}

/// Runs `f` here, or on a thread of its own that is tied to one CPU, so that the trace uses more than one slot.
fn on<R: Send>(cpu: Option<usize>, f: impl FnOnce() -> R + Send) -> R {
    let Some(cpu) = cpu else { return f() };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(cpu);
            f()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Ties the thread to CPU `n`; where that is not possible it stays free.
fn pin(n: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: a zeroed CPU set is valid, and `n` is far below its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(n, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = n;
}

impl World {
    fn new() -> Self {
        let root = Tenant::root();
        let base = root.settle();
        let node = Node {
            id: root.id(),
            handle: Some(root),
            parent: ROOT,
            max: None,
            overdraft: None,
            measure: false,
            flag: Flag::No,
            most: 0,
            forced: false,
        };
        Self { nodes: vec![node], objects: Vec::new(), charges: Vec::new(), base, seed: 0, step: String::new() }
    }

    /// The node and its ancestors, root last.
    fn chain(&self, node: usize) -> Vec<usize> {
        let mut chain = vec![node];
        while chain[chain.len() - 1] != ROOT {
            chain.push(self.nodes[chain[chain.len() - 1]].parent);
        }
        chain
    }

    /// A tenant lives while it has a handle, an external charge (which holds one) or a living child.
    fn lives(&self, node: usize) -> bool {
        self.nodes[node].handle.is_some()
            || self.charges.iter().any(|(owner, _)| *owner == node)
            || (node + 1..self.nodes.len()).any(|child| self.nodes[child].parent == node && self.lives(child))
    }

    fn heir(&self, node: usize) -> usize {
        self.chain(node).into_iter().find(|node| self.lives(*node)).unwrap()
    }

    /// Living nodes that the trace holds a handle of, and a choice among them.
    fn held(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].handle.is_some()).collect()
    }

    fn pick(&self, number: usize) -> usize {
        let held = self.held();
        held[number % held.len()]
    }

    fn handle(&self, node: usize) -> &Tenant {
        self.nodes[node].handle.as_ref().unwrap()
    }

    /// What every node holds, its descendants included.
    fn truths(&self) -> Vec<usize> {
        let mut truths = vec![0; self.nodes.len()];
        let objects = self.objects.iter().map(|object| (object.owner, charge(object.layout)));
        let external = self.charges.iter().map(|(owner, charge)| (*owner, charge.bytes()));
        for (owner, bytes) in objects.chain(external) {
            self.chain(owner).into_iter().for_each(|node| truths[node] += bytes);
        }
        truths
    }

    /// How a charge to `payer` must end; the nodes of `paid` have it already.
    fn verdict(&self, payer: usize, bytes: usize, paid: &[usize]) -> Verdict {
        let truths = self.truths();
        let chain = self.chain(payer);
        let passes = |node: &usize, extra: usize| {
            let Node { max, measure, .. } = self.nodes[*node];
            !measure && !paid.contains(node) && max.is_some_and(|max| truths[*node] + bytes > max.saturating_add(extra))
        };
        if !chain.iter().any(|node| passes(node, 0)) {
            return Verdict::Fits;
        }
        if chain.iter().any(|node| self.nodes[*node].overdraft.is_some_and(|overdraft| passes(node, overdraft))) {
            return Verdict::Refused;
        }
        Verdict::Over
    }

    fn figures(&self, with_stops: bool) -> BTreeMap<usize, Figures> {
        let figures = |node: usize| {
            let tenant = self.handle(node);
            // A refusal counts itself, and that it met a limit; nothing else.
            let mut figures = Figures {
                usage: tenant.usage(),
                peak: tenant.peak(),
                stopped: tenant.is_stopped() && with_stops,
                local: tenant.events().local,
            };
            (figures.local.max, figures.local.refused) = (0, 0);
            figures.local.stopped *= u64::from(with_stops);
            figures
        };
        self.held().into_iter().map(|node| (node, figures(node))).collect()
    }

    fn refusals(&self) -> u64 {
        self.handle(ROOT).events().hierarchical.refused
    }

    /// Runs what must be refused and demands that it leaves no trace but the count of it; unless it is `strict`, the
    /// payer is stopped too.
    fn refused<R>(&self, strict: bool, attempt: impl FnOnce() -> R) -> R {
        self.handle(ROOT).settle();
        let (before, refusals) = (self.figures(strict), self.refusals());
        let result = attempt();
        assert_eq!(self.figures(strict), before, "a refusal changed something");
        assert_eq!(self.refusals(), refusals + 1);
        result
    }

    /// Notes what a charge that was or may have been forced did to the payer.
    fn note_forced(&mut self, payer: usize, flag: Flag) {
        let stopped = &mut self.nodes[payer].flag;
        *stopped = if *stopped == Flag::Yes || flag == Flag::No { *stopped } else { flag };
        self.chain(payer).into_iter().for_each(|node| self.nodes[node].forced = true);
    }

    fn alloc(&mut self, payer: usize, outer: usize, layout: Layout, strict: bool, cpu: Option<usize>) {
        let (tenant, around) = (self.handle(payer), self.handle(outer));
        let run = || {
            on(cpu, || {
                around.in_scope(|| {
                    let guard = tenant.enter();
                    assert_eq!(Tenant::current(), *tenant);
                    // SAFETY: the trace has no size of zero.
                    let allocate = || unsafe { HEAP.alloc(layout) as usize };
                    let address = if strict { fallible(allocate) } else { allocate() };
                    drop(guard);
                    assert_eq!(Tenant::current(), *around);
                    address
                })
            })
        };
        let verdict = self.verdict(payer, charge(layout), &[]);
        let must_fail = verdict == Verdict::Refused || (strict && verdict != Verdict::Fits);
        let before = tenant.usage();
        let address = if must_fail { self.refused(strict, run) } else { run() };
        assert_eq!(address == 0, must_fail, "{layout:?}: {verdict:?}");
        if !strict && (verdict != Verdict::Fits || self.handle(payer).is_stopped()) {
            // Who is stopped already is forced without a look at what lies unused.
            let flag = match verdict {
                Verdict::Fits => self.nodes[payer].flag,
                // Past the limit before, and the object was one it had been charged for already.
                Verdict::Over if tenant.usage() == before => Flag::Maybe,
                _ => Flag::Yes,
            };
            self.note_forced(payer, flag);
        }
        if must_fail {
            return;
        }
        self.seed = self.seed.wrapping_add(1);
        // SAFETY: a fresh object of that size.
        unsafe { fill(address as *mut u8, layout.size(), self.seed) };
        self.objects.push(Object { address, layout, seed: self.seed, owner: payer, tagged: payer });
    }

    fn free(&mut self, index: usize, cpu: Option<usize>) {
        let Object { address, layout, seed, .. } = self.objects.swap_remove(index);
        // SAFETY: the object is live, came with this layout, holds its pattern, and is forgotten here.
        on(cpu, || unsafe {
            check(address as *const u8, layout.size(), layout.size(), seed);
            HEAP.dealloc(address as *mut u8, layout);
        });
    }

    fn realloc(&mut self, index: usize, scope: usize, size: usize, strict: bool, cpu: Option<usize>) {
        let Object { address, layout: old, seed, owner, .. } = self.objects[index];
        let new = Layout::from_size_align(size, old.align()).unwrap();
        let (was, is) = (charge(old), charge(new));
        let tenant = self.handle(scope);
        let run = || {
            on(cpu, || {
                tenant.in_scope(|| {
                    // SAFETY: the object is live, came with this layout, and the new size is not zero.
                    let resize = || unsafe { HEAP.realloc(address as *mut u8, old, size) as usize };
                    if strict {
                        fallible(resize)
                    } else {
                        resize()
                    }
                })
            })
        };
        // Nothing stands in the way of giving memory back.
        let strict = strict && size > old.size();
        // In place it costs the difference, moved it costs both for a moment; a slot of the same size costs nothing.
        let least = if is > was { self.verdict(owner, is - was, &[]) } else { Verdict::Fits };
        let most =
            if slot(old).is_some() && slot(old) == slot(new) { Verdict::Fits } else { self.verdict(owner, is, &[]) };
        let must_fail = least == Verdict::Refused || (strict && least != Verdict::Fits);
        let may_fail = most == Verdict::Refused || (strict && most != Verdict::Fits);
        let moved = if must_fail { self.refused(strict, run) } else { run() };
        // Whoever's tag it had, a resize may have given it its owner's, even one that failed.
        self.objects[index].tagged = owner;
        if moved != 0 {
            self.objects[index] = Object { address: moved, layout: new, seed, owner, tagged: owner };
        }
        assert!(moved == 0 || !must_fail, "{old:?} -> {size}: {least:?}");
        assert!(moved != 0 || may_fail, "{old:?} -> {size}: {most:?}");
        if !strict {
            let flag = if least != Verdict::Fits {
                Flag::Yes
            } else if most != Verdict::Fits {
                Flag::Maybe
            } else {
                self.nodes[owner].flag
            };
            self.note_forced(owner, flag);
        }
        if moved == 0 {
            return;
        }
        // SAFETY: the new object is ours and has `size` bytes, the first of which came from the old one.
        unsafe {
            check(moved as *const u8, old.size(), old.size().min(size), seed);
            fill(moved as *mut u8, size, seed);
        }
    }

    fn create(&mut self, parent: usize, op: &Op) {
        let Op::Create { max, high, overdraft, measure, .. } = *op else { unreachable!() };
        let name = format!("tenant {}", self.nodes.len());
        let mut builder = Tenant::builder(&name).parent(self.handle(parent));
        if let Some(max) = max {
            builder = builder.max(max);
        }
        if let Some(high) = high {
            builder = builder.high(high);
        }
        if let Some(overdraft) = overdraft {
            builder = builder.overdraft(overdraft);
        }
        if measure {
            builder = builder.mode(Mode::Measure);
        }
        let built = builder.build();
        if let (Some(high), Some(max)) = (high, max) {
            if high > max {
                assert_eq!(built.unwrap_err(), CreateError::HighAboveMax { high, max });
                return;
            }
        }
        let tenant = match built {
            Err(CreateError::TooDeep { .. }) => {
                assert!(self.chain(parent).len() >= 32);
                return;
            }
            other => other.unwrap(),
        };
        let id = tenant.id();
        assert_eq!((tenant.name(), tenant.usage(), tenant.peak()), (&*name, 0, 0));
        let living = (0..self.nodes.len()).filter(|node| self.lives(*node));
        let tagged = self.objects.iter().map(|object| object.tagged);
        let taken: BTreeSet<u16> = living.chain(tagged).map(|node| self.nodes[node].id).collect();
        assert!(!taken.contains(&id), "id {id} is still carried");
        let handle = Some(tenant);
        self.nodes.push(Node { handle, id, parent, max, overdraft, measure, flag: Flag::No, most: 0, forced: false });
    }

    fn drop_handle(&mut self, node: usize) {
        self.nodes[node].handle = None;
        self.reparent();
        (0..self.objects.len()).for_each(|object| self.check_owner(object));
    }

    /// After a handle or an external charge, which holds one, went: what retired tenants owned is their ancestors'.
    fn reparent(&mut self) {
        let heirs: Vec<usize> = (0..self.nodes.len()).map(|node| self.heir(node)).collect();
        self.objects.iter_mut().for_each(|object| object.owner = heirs[object.owner]);
    }

    fn check_owner(&self, object: usize) {
        let Object { address, owner, .. } = self.objects[object];
        // SAFETY: the object is live and has at least one byte.
        let found = Tenant::owner_of(unsafe { &*(address as *const u8) });
        assert_eq!(found.map(|tenant| tenant.id()), Some(self.nodes[owner].id));
    }

    fn adopt(&mut self, node: usize, index: usize) {
        let Object { address, layout, owner, .. } = self.objects[index];
        let verdict = self.verdict(node, charge(layout), &self.chain(owner));
        // SAFETY: the object is live and has at least one byte.
        let adopted = self.handle(node).adopt(unsafe { &*(address as *const u8) });
        assert!(adopted || verdict != Verdict::Fits, "refused, though it fits");
        if adopted {
            (self.objects[index].owner, self.objects[index].tagged) = (node, node);
            if verdict != Verdict::Fits {
                self.note_forced(node, Flag::Yes);
            }
        }
        self.check_owner(index);
    }

    fn resume(&mut self, node: usize) {
        let truths = self.truths();
        let within = |node: &usize| self.nodes[*node].max.is_none_or(|max| truths[*node] <= max);
        let resumed = self.handle(node).resume();
        assert!(within(&node) || !resumed, "resumed while over its limit");
        assert!(resumed || !self.chain(node).iter().all(within), "within all limits, and yet not resumed");
        self.nodes[node].flag = Flag::No;
    }

    fn set_max(&mut self, node: usize, max: Option<usize>) {
        let truth = self.truths()[node];
        self.handle(node).set_max(max);
        assert_eq!(self.handle(node).max(), max.filter(|max| *max < usize::MAX), "a limit of usize::MAX is none");
        self.nodes[node].max = max;
        self.nodes[node].forced = max.is_some_and(|max| truth > max);
    }

    fn try_charge(&mut self, node: usize, bytes: usize) {
        let tenant = self.handle(node);
        if self.verdict(node, bytes, &[]) == Verdict::Fits {
            let charge = tenant.try_charge(bytes).unwrap();
            assert_eq!(charge.bytes(), bytes);
            self.charges.push((node, charge));
        } else {
            let error = self.refused(true, || tenant.try_charge(bytes)).expect_err("past a limit");
            assert_eq!(error.asked, tenant.name());
            assert!(error.limit.is_some());
        }
    }

    fn verify(&self) {
        let verified = verify().unwrap();
        let large = self.objects.iter().filter(|object| slot(object.layout).is_none()).count();
        assert_eq!(verified.external_bytes, self.charges.iter().map(|(_, charge)| charge.bytes()).sum::<usize>());
        assert_eq!((verified.objects, verified.large_objects), (self.objects.len(), large));
        assert_eq!(verified.bytes, self.objects.iter().map(|object| charge(object.layout)).sum::<usize>());
    }

    fn apply(&mut self, op: &Op) {
        self.step = format!("{op:?}");
        match *op {
            Op::Create { parent, .. } => self.create(self.pick(parent), op),
            Op::DropHandle { tenant } => {
                let node = self.pick(tenant);
                if node != ROOT {
                    self.drop_handle(node);
                }
            }
            Op::Alloc { tenant, outer, size, align, strict, cpu } => {
                let layout = Layout::from_size_align(size, 1 << align).unwrap();
                self.alloc(self.pick(tenant), self.pick(outer), layout, strict, cpu);
            }
            Op::SetMax { tenant, max } => {
                let node = self.pick(tenant);
                if node != ROOT {
                    self.set_max(node, max);
                }
            }
            Op::Charge { tenant, bytes } => self.try_charge(self.pick(tenant), bytes),
            Op::Stop { tenant } => {
                let node = self.pick(tenant);
                if node != ROOT {
                    self.handle(node).stop();
                    self.nodes[node].flag = Flag::Yes;
                }
            }
            Op::Resume { tenant } => self.resume(self.pick(tenant)),
            Op::Settle { tenant } => {
                let node = self.pick(tenant);
                assert_eq!(self.handle(node).settle(), self.truths()[node] + self.base_of(node));
            }
            Op::Verify => self.verify(),
            Op::Purge => drop(purge()),
            Op::Uncharge { charge } if !self.charges.is_empty() => {
                drop(self.charges.swap_remove(charge % self.charges.len()));
                self.reparent();
            }
            _ if self.objects.is_empty() => {}
            Op::Free { object, cpu } => self.free(object % self.objects.len(), cpu),
            Op::Realloc { object, scope, size, strict, cpu } => {
                self.realloc(object % self.objects.len(), self.pick(scope), size, strict, cpu);
            }
            Op::Adopt { tenant, object } => self.adopt(self.pick(tenant), object % self.objects.len()),
            Op::Uncharge { .. } => {}
        }
    }

    fn base_of(&self, node: usize) -> usize {
        if node == ROOT {
            self.base
        } else {
            0
        }
    }

    /// What holds after every step, settled or not.
    fn check(&mut self) {
        let truths = self.truths();
        for node in self.held() {
            self.nodes[node].most = self.nodes[node].most.max(truths[node]);
            let (tenant, known) = (self.handle(node), &self.nodes[node]);
            let (usage, name) = (tenant.usage(), tenant.name());
            assert!(usage >= truths[node], "{name} shows {usage}, holds {}", truths[node]);
            assert!(tenant.peak() >= known.most, "{name}: peak {} below {}", tenant.peak(), known.most);
            if let (Some(max), false, false) = (known.max, known.measure, known.forced) {
                assert!(usage <= max, "{name} shows {usage}, past its {max}, though nothing was forced");
            }
            let flags: Vec<Flag> = self.chain(node).into_iter().map(|node| self.nodes[node].flag).collect();
            let stopped = tenant.is_stopped();
            assert!(stopped || !flags.contains(&Flag::Yes), "{name} is not stopped");
            assert!(!stopped || flags.iter().any(|flag| *flag != Flag::No), "{name} is stopped");
            assert_eq!(tenant.in_scope(checkpoint).is_err(), stopped);
        }
    }

    /// What holds when nothing moves: every figure is the truth.
    fn check_settled(&self) {
        let truths = self.truths();
        for node in self.held() {
            let tenant = self.handle(node);
            assert_eq!(tenant.settle(), truths[node] + self.base_of(node), "{}", tenant.name());
            let parent = tenant.parent().map(|parent| parent.id());
            assert_eq!(parent, (node != ROOT).then(|| self.nodes[self.nodes[node].parent].id));
            let children = (node + 1..self.nodes.len()).filter(|child| self.nodes[*child].parent == node);
            let children: BTreeSet<u16> =
                children.filter(|child| self.lives(*child)).map(|child| self.nodes[child].id).collect();
            assert_eq!(tenant.children().iter().map(Tenant::id).collect::<BTreeSet<_>>(), children);
            let external: usize = self
                .charges
                .iter()
                .filter(|(owner, _)| self.chain(*owner).contains(&node))
                .map(|(_, charge)| charge.bytes())
                .sum();
            let walked: usize = tenant.size_classes().iter().map(|class| class.bytes).sum();
            assert_eq!(walked + external, truths[node] + self.base_of(node));
        }
        assert_eq!(tenants().len(), (0..self.nodes.len()).filter(|node| self.lives(*node)).count());
        self.verify();
    }
}

impl Drop for World {
    /// Gives everything back, so that a failed trace does not disturb the next, smaller one.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.step);
        }
        self.charges.clear();
        for object in self.objects.drain(..) {
            // SAFETY: the object is live, came with this layout, and is forgotten here.
            unsafe { HEAP.dealloc(object.address as *mut u8, object.layout) };
        }
    }
}

fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(100);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_accounts_equal_the_model(trace in prop::collection::vec(ops(), 1..200)) {
        let mut world = World::new();
        for op in &trace {
            world.apply(op);
            world.check();
        }
        world.check_settled();
        world.step = "the end".to_owned();
        while !world.objects.is_empty() {
            world.free(0, None);
            world.check();
        }
        world.charges.clear();
        world.reparent();
        world.check_settled();
        let base = world.base;
        drop(world);
        prop_assert_eq!(Tenant::root().settle(), base);
        prop_assert_eq!(tenants().len(), 1);
        prop_assert!(verify().is_ok());
    }
}
