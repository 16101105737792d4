//! One thread, one size: the price of an allocation and its free.
//!
//! Allotment runs inside a tenant three levels deep that has a limit; its peers account for nothing. Repetitions are
//! interleaved, so that a noisy machine is noisy for all. Prints medians and ratios; Criterion's report for the
//! same pairs lies in `target/criterion`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::time::{Duration, Instant};

use allotment::{Allotment, Tenant};
use allotment_benches::{Jemalloc, Mimalloc};
use criterion::{BenchmarkId, Criterion};

const SIZES: [usize; 6] = [16, 64, 256, 1024, 8192, 65_536];
const ROUNDS: usize = 31;
const PAIRS: usize = 200_000;

fn pair(allocator: &impl GlobalAlloc, layout: Layout) {
    // SAFETY: the layout is not empty; the object is freed once, with the layout it was allocated with.
    unsafe {
        let object = black_box(allocator.alloc(black_box(layout)));
        assert!(!object.is_null());
        object.write(1);
        allocator.dealloc(black_box(object), layout);
    }
}

fn time(allocator: &impl GlobalAlloc, layout: Layout) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        pair(allocator, layout);
    }
    start.elapsed().as_nanos() as f64 / PAIRS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn table(tenant: &Tenant) {
    println!(
        "alloc + free pair, ns (median of {ROUNDS} interleaved rounds of {PAIRS}), mode {}",
        allotment::stats().mode
    );
    println!("| bytes | allotment | jemalloc | mimalloc v3 | system | / jemalloc | / mimalloc |");
    println!("|---|---|---|---|---|---|---|");
    for size in SIZES {
        let layout = Layout::from_size_align(size, 8).expect("a valid layout");
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            times[0].push(tenant.in_scope(|| time(&Allotment, layout)));
            times[1].push(time(&Jemalloc, layout));
            times[2].push(time(&Mimalloc, layout));
            times[3].push(time(&System, layout));
        }
        let [ours, jemalloc, mimalloc, system] = times.map(median);
        println!(
            "| {size} | {ours:.1} | {jemalloc:.1} | {mimalloc:.1} | {system:.1} | {:.2} | {:.2} |",
            ours / jemalloc,
            ours / mimalloc
        );
    }
}

fn report(tenant: &Tenant) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(20)
        .configure_from_args();
    let mut group = criterion.benchmark_group("pair");
    for size in SIZES {
        let layout = Layout::from_size_align(size, 8).expect("a valid layout");
        group.bench_function(BenchmarkId::new("allotment", size), |bench| {
            tenant.in_scope(|| bench.iter(|| pair(&Allotment, layout)));
        });
        group.bench_function(BenchmarkId::new("jemalloc", size), |bench| bench.iter(|| pair(&Jemalloc, layout)));
        group.bench_function(BenchmarkId::new("mimalloc", size), |bench| bench.iter(|| pair(&Mimalloc, layout)));
        group.bench_function(BenchmarkId::new("system", size), |bench| bench.iter(|| pair(&System, layout)));
    }
    group.finish();
    criterion.final_summary();
}

fn main() {
    let customer = Tenant::builder("customer").max(1 << 30).build().expect("a tenant");
    let service = Tenant::builder("service").parent(&customer).max(1 << 29).build().expect("a tenant");
    let request = Tenant::builder("request").parent(&service).max(1 << 28).build().expect("a tenant");
    table(&request);
    report(&request);
    println!("{}", allotment::verify().expect("the accounts are exact"));
}
