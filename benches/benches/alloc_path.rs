//! One thread, one tenant: what an allocation and its free cost.

use std::error::Error;

use allotment_benches::args::Args;
use allotment_benches::bench;
use allotment_benches::workload::{Burst, FreeOrder, Growth, Mixed, Pair, Sweep, Zeroed};
use allotment_benches::{bars, Bar, Cell};

const PAIR: &str = "alloc + free";
const FIFO: &str = "1,000 objects, freed in order";
const RANDOM: &str = "1,000 objects, freed at random";
const MIXED: &str = "64 objects of 16 to 1,040 B";
const MEDIUM: &str = "alloc + free, 8 to 64 KiB";
const LARGE: &str = "alloc + free, large";
const GROWTH: &str = "byte vector grown by realloc";
const ZEROED: &str = "alloc_zeroed + free";

const SMALL: [usize; 4] = [16, 64, 256, 1_024];

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for size in SMALL {
        cells.push(Cell::of_all(PAIR, size, || Pair { size, pairs: 400_000 }));
    }
    for (group, order) in [(FIFO, FreeOrder::Fifo), (RANDOM, FreeOrder::Random)] {
        for size in SMALL {
            cells.push(Cell::of_all(group, size, || Burst::new(size, 1_000, order, 300)));
        }
    }
    cells.push(Cell::of_all(MIXED, "warm", || Mixed::new(Sweep::Nothing, 4_000)));
    cells.push(Cell::of_all(MIXED, "L1 swept", || Mixed::new(Sweep::L1, 2_000)));
    cells.push(Cell::of_all(MIXED, "L2 swept", || Mixed::new(Sweep::L2, 200)));
    for size in [8 << 10, 16 << 10, 32 << 10, 64 << 10] {
        cells.push(Cell::of_all(MEDIUM, format!("{} KiB", size >> 10), || Pair { size, pairs: 100_000 }));
    }
    for size in [256 << 10, 1 << 20, 4 << 20] {
        cells.push(Cell::of_all(LARGE, format!("{} KiB", size >> 10), || Pair { size, pairs: 10_000 }));
    }
    cells.push(Cell::of_all(GROWTH, "8 B to 1 MiB", || Growth { vectors: 60 }));
    for (size, pairs) in [(64, 100_000), (4 << 10, 50_000), (64 << 10, 2_000)] {
        cells.push(Cell::of_all(ZEROED, size, || Zeroed { size, pairs }));
    }
    cells
}

const fn ratio(what: &'static str, groups: &'static [&'static str], peer: &'static str, at_most: f64) -> Bar {
    Bar::Ratio { what, groups, cells: &[], peer, at_most }
}

const BARS: [Bar; 9] = [
    ratio("pair, in order, at random, 16 to 1,024 B", &[PAIR, FIFO, RANDOM], "mimalloc", 0.90),
    ratio("pair, in order, at random, 16 to 1,024 B", &[PAIR, FIFO, RANDOM], "jemalloc", 0.60),
    ratio("mixed sizes, warm and swept", &[MIXED], "mimalloc", 1.00),
    ratio("mixed sizes, warm and swept", &[MIXED], "jemalloc", 1.00),
    ratio("pair, 8 to 64 KiB", &[MEDIUM], "mimalloc", 0.60),
    ratio("pair, 8 to 64 KiB", &[MEDIUM], "jemalloc", 1.00),
    ratio("growth by realloc", &[GROWTH], "mimalloc", 1.00),
    ratio("growth by realloc", &[GROWTH], "jemalloc", 1.00),
    bars::WORST,
];

fn main() -> Result<(), Box<dyn Error>> {
    bench::run("alloc_path", &Args::parse(), cells(), &BARS)
}
