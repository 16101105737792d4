//! What accounting costs: depth, limits, many tenants, scopes; and the three modes.

use std::error::Error;

use allotment_benches::args::Args;
use allotment_benches::workload::{
    BelowLimit, Burst, FreeOrder, HandOver, Interleaved, Mixed, Pair, PairOnTwoThreads, Refusal, ScopeSwitch, Sweep,
};
use allotment_benches::{bars, bench, modes, Bar, Cell, Contestant, Counted, Ours};

const DEPTH: &str = "alloc + free of 64 B, by depth";
const LIMIT: &str = "64 B at a limit";
const TENANTS: &str = "random frees, tenants interleaved";
const SCOPE: &str = "scope entered and left";
const SHARED: &str = "64 B against one shared counter";

fn pair() -> Pair {
    Pair { size: 64, pairs: 400_000 }
}

fn at_depth<A: Contestant>(name: &str) -> Cell {
    Cell::empty(DEPTH, name).with::<A, Pair>(pair()).with_peers(pair)
}

fn cells() -> Vec<Cell> {
    let mut cells = vec![
        at_depth::<Ours<0>>("root, no scope"),
        at_depth::<Ours<1>>("1 level"),
        at_depth::<Ours<2>>("2 levels"),
        at_depth::<Ours<3>>("3 levels"),
        at_depth::<Ours<4>>("4 levels"),
        Cell::of_all(LIMIT, "alloc + free, room for two objects", || BelowLimit::new(10_000)),
        // Peers have no limit to refuse anything.
        Cell::empty(LIMIT, "a refused allocation").with::<Ours<3>, _>(Refusal { attempts: 5_000 }),
    ];
    for (count, name) in [(1, "1 tenant"), (8, "8 tenants"), (64, "64 tenants"), (256, "256 tenants")] {
        cells.push(Cell::of_all(TENANTS, name, || Interleaved::new(count, 6)));
    }
    cells.push(Cell::empty(SCOPE, "in_scope").with::<Ours<3>, _>(ScopeSwitch { switches: 500_000 }));
    cells.push(Cell::of_all(SHARED, "alloc + free", pair).with::<Counted, _>(pair()));
    let two = || PairOnTwoThreads(pair());
    cells.push(Cell::of_all(SHARED, "alloc + free on two threads", two).with::<Counted, _>(two()));
    let tenants = || Interleaved::new(64, 6);
    cells.push(Cell::of_all(SHARED, "64 tenants", tenants).with::<Counted, _>(tenants()));
    cells
}

/// A few of ours, for the comparison of modes.
fn mode_cells() -> Vec<Cell> {
    let burst = |order| Burst::new(64, 1_000, order, 150);
    vec![
        Cell::empty("alloc + free", "64").with::<Ours<3>, _>(pair()),
        Cell::empty("alloc + free", "16 KiB").with::<Ours<3>, _>(Pair { size: 16 << 10, pairs: 50_000 }),
        Cell::empty("1,000 objects, freed in order", "64").with::<Ours<3>, _>(burst(FreeOrder::Fifo)),
        Cell::empty("1,000 objects, freed at random", "64").with::<Ours<3>, _>(burst(FreeOrder::Random)),
        Cell::empty("64 objects of 16 to 1,040 B", "warm").with::<Ours<3>, _>(Mixed::new(Sweep::Nothing, 2_000)),
        Cell::empty("producer and consumer, object read", "64").with::<Ours<3>, _>(HandOver::new(64, 1_500, true)),
        Cell::empty(TENANTS, "64 tenants").with::<Ours<3>, _>(Interleaved::new(64, 6)),
        Cell::empty(LIMIT, "alloc + free, room for two objects").with::<Ours<3>, _>(BelowLimit::new(10_000)),
    ]
}

const fn tenants(cells: &'static [&'static str], peer: &'static str, at_most: f64) -> Bar {
    Bar::Ratio { what: "8 and 256 tenants, random frees", groups: &[TENANTS], cells, peer, at_most }
}

const BARS: [Bar; 4] = [
    tenants(&["8 tenants", "256 tenants"], "mimalloc", 1.20),
    tenants(&["8 tenants", "256 tenants"], "jemalloc", 1.35),
    Bar::Time { group: SCOPE, at_most: 4.0 },
    bars::WORST,
];

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if args.mode_cells {
        modes::report(mode_cells());
        return Ok(());
    }
    bench::run("charge_path", &args, cells(), &BARS)?;
    modes::compare(&args)
}
