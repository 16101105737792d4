//! Two threads: one frees what the other has allocated.

use std::error::Error;

use allotment_benches::args::Args;
use allotment_benches::bench;
use allotment_benches::workload::{HandOver, Larson};
use allotment_benches::{bars, Bar, Cell};

const READ: &str = "producer and consumer, object read";
const UNREAD: &str = "producer and consumer, object not read";
const LARSON: &str = "two threads replace objects of one table";

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (group, read) in [(READ, true), (UNREAD, false)] {
        for size in [16, 64, 256, 1_024] {
            cells.push(Cell::of_all(group, size, || HandOver::new(size, 3_000, read)));
        }
    }
    cells.push(Cell::of_all(LARSON, "16 to 1,024 B", || Larson::new(100_000)));
    cells
}

const fn ratio(what: &'static str, groups: &'static [&'static str], peer: &'static str) -> Bar {
    Bar::Ratio { what, groups, cells: &[], peer, at_most: 0.70 }
}

const BARS: [Bar; 5] = [
    ratio(READ, &[READ], "mimalloc"),
    ratio(READ, &[READ], "jemalloc"),
    ratio(UNREAD, &[UNREAD], "mimalloc"),
    ratio(UNREAD, &[UNREAD], "jemalloc"),
    bars::WORST,
];

fn main() -> Result<(), Box<dyn Error>> {
    bench::run("cross_thread", &Args::parse(), cells(), &BARS)
}
