//! What the figures have to be for the project to call itself fast. Bars are printed; no run fails for them.

use crate::report::table::{markdown, time};
use crate::rounds::Row;
use crate::summary::geomean;

/// A bar over some cells.
pub enum Bar {
    /// The geometric mean of our time by a peer's.
    Ratio {
        /// What is compared.
        what: &'static str,
        /// The groups whose cells count.
        groups: &'static [&'static str],
        /// Their names; empty: all.
        cells: &'static [&'static str],
        /// The peer.
        peer: &'static str,
        /// The bar.
        at_most: f64,
    },
    /// Our time of the cells of a group, in nanoseconds.
    Time {
        /// What is compared, and its group.
        group: &'static str,
        /// The bar.
        at_most: f64,
    },
    /// Every single cell's ratio to mimalloc.
    Worst {
        /// The bar.
        at_most: f64,
    },
}

/// The bar that no cell may pass against mimalloc.
pub const WORST: Bar = Bar::Worst { at_most: 1.35 };

const PEER_OF_WORST: &str = "mimalloc";
/// How many of the worst cells are listed.
const LISTED: usize = 5;

fn verdict(passed: bool) -> String {
    if passed { "pass" } else { "MISS" }.to_owned()
}

impl Bar {
    fn judge(&self, rows: &[Row]) -> Vec<String> {
        let unmeasured = |what: String, bar: String| vec![what, "not measured".into(), bar, "-".into()];
        match *self {
            Bar::Ratio { what, groups, cells, peer, at_most } => {
                let what = format!("{what}, / {peer}");
                let bar = format!("<= {at_most:.2}");
                let chosen = |row: &&Row| {
                    groups.contains(&row.group) && (cells.is_empty() || cells.contains(&row.name.as_str()))
                };
                match geomean(rows.iter().filter(chosen).filter_map(|row| row.ratio(peer))) {
                    Some(mean) => vec![what, format!("{mean:.2}"), bar, verdict(mean <= at_most)],
                    None => unmeasured(what, bar),
                }
            }
            Bar::Time { group, at_most } => {
                let what = format!("{group}, ns");
                let bar = format!("<= {at_most:.2}");
                let of_group = rows.iter().filter(|row| row.group == group);
                match of_group.filter_map(|row| row.median("allotment")).max_by(f64::total_cmp) {
                    Some(slowest) => vec![what, time(slowest), bar, verdict(slowest <= at_most)],
                    None => unmeasured(what, bar),
                }
            }
            Bar::Worst { at_most } => {
                let ratios = rows.iter().filter_map(|row| row.ratio(PEER_OF_WORST));
                let over = ratios.clone().filter(|&ratio| ratio > at_most).count();
                let what = format!("worst cell, / {PEER_OF_WORST} ({over} of {} over the bar)", ratios.clone().count());
                let bar = format!("<= {at_most:.2}");
                match ratios.max_by(f64::total_cmp) {
                    Some(worst) => vec![what, format!("{worst:.2}"), bar, verdict(worst <= at_most)],
                    None => unmeasured(what, bar),
                }
            }
        }
    }
}

/// A table of the bars.
pub fn table(bars: &[Bar], rows: &[Row]) -> String {
    let head = ["geometric mean over cells", "measured", "bar", ""].map(String::from);
    markdown(head.into(), bars.iter().map(|bar| bar.judge(rows)))
}

/// A table of our worst cells against mimalloc, the worst first.
pub fn worst_cells(rows: &[Row]) -> String {
    let mut ratios: Vec<(f64, &Row)> = rows.iter().filter_map(|row| Some((row.ratio(PEER_OF_WORST)?, row))).collect();
    ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
    let head = ["worst cells", "/ mimalloc"].map(String::from);
    let line = |(ratio, row): &(f64, &Row)| vec![format!("{}: {}", row.group, row.name), format!("{ratio:.2}")];
    markdown(head.into(), ratios.iter().take(LISTED).map(line))
}
