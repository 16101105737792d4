//! Criterion's report of the same cells: its statistics and its comparison with the run before. Not interleaved.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::Cell;

/// Runs the cells under Criterion. One of its iterations is one repetition of a workload.
pub fn run(cells: Vec<Cell>) {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(50))
        .measurement_time(Duration::from_millis(300));
    for cell in cells {
        // Criterion makes a directory of a group's name.
        let mut group = criterion.benchmark_group(format!("{}, {}", cell.group, cell.name).replace('/', " or "));
        group.throughput(Throughput::Elements(cell.operations));
        for mut entry in cell.entries {
            group.bench_function(BenchmarkId::from_parameter(entry.allocator), |bench| {
                bench.iter_custom(|repetitions| (0..repetitions).map(|_| (entry.repeat)()).sum());
            });
        }
        group.finish();
    }
    criterion.final_summary();
}
