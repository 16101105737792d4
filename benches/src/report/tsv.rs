//! All figures, for other programs.

use std::fmt::Write;

use crate::rounds::Row;

/// One line for each allocator of each cell: nanoseconds for an operation.
pub fn text(rows: &[Row]) -> String {
    let mut text = String::from("group\tcell\tallocator\toperations\trounds\tmin\tlower\tmedian\tupper\tmax\n");
    for row in rows {
        for (allocator, times) in &row.times {
            writeln!(
                text,
                "{}\t{}\t{allocator}\t{}\t{}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.3}",
                row.group,
                row.name,
                row.operations,
                row.rounds,
                times.min,
                times.lower,
                times.median,
                times.upper,
                times.max
            )
            .expect("a string takes all");
        }
    }
    text
}
