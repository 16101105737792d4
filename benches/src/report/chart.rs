//! A chart of all cells: each allocator's time by mimalloc's, on a logarithmic scale.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use crate::rounds::Row;

const COLUMNS: [(&str, RGBColor); 6] = [
    ("allotment", RGBColor(200, 30, 30)),
    ("mimalloc", RGBColor(30, 90, 200)),
    ("jemalloc", RGBColor(20, 140, 60)),
    ("system", RGBColor(130, 130, 130)),
    ("mimalloc + atomic", RGBColor(150, 60, 180)),
    ("snmalloc", RGBColor(220, 140, 0)),
];
const REFERENCE: &str = "mimalloc";
/// What lies outside is drawn at the edge.
const RANGE: (f64, f64) = (0.05, 20.0);
const LINE: u32 = 22;

/// Draws the rows that mimalloc is in. Nothing if there is none.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, title: &str, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.median(REFERENCE).is_some()).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let count = rows.len() as i32;
    let area = SVGBackend::new(path, (1_000, rows.len() as u32 * LINE + 130)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}: time / mimalloc's (median; less is better)"), ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(35)
        .y_label_area_size(330)
        .build_cartesian_2d((RANGE.0..RANGE.1).log_scale(), (-1..count).into_segmented())?;
    let label = |value: &SegmentValue<i32>| match value {
        // The first row is on top.
        SegmentValue::CenterOf(line) if (0..count).contains(line) => {
            let row = rows[(count - 1 - line) as usize];
            format!("{}: {}", row.group, row.name)
        }
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(rows.len() + 2)
        .y_label_formatter(&label)
        .x_label_formatter(&|ratio| format!("{ratio}"))
        .x_desc("ratio")
        .label_style(("sans-serif", 12))
        .draw()?;
    let edges = [SegmentValue::Exact(-1), SegmentValue::Exact(count)];
    chart.draw_series(LineSeries::new(edges.map(|edge| (1.0, edge)), BLACK.mix(0.4)))?;
    for (allocator, colour) in COLUMNS {
        let points: Vec<_> = rows
            .iter()
            .enumerate()
            .filter_map(|(line, row)| {
                let ratio = row.median(allocator)? / row.median(REFERENCE)?;
                Some((ratio.clamp(RANGE.0, RANGE.1), SegmentValue::CenterOf(count - 1 - line as i32)))
            })
            .collect();
        if points.is_empty() {
            continue;
        }
        chart
            .draw_series(points.into_iter().map(|point| Circle::new(point, 4, colour.filled())))?
            .label(allocator)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
    }
    chart.configure_series_labels().border_style(BLACK.mix(0.3)).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}
