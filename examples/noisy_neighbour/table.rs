//! What you see while it runs: a table that is redrawn on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use comfy_table::{presets, CellAlignment, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ledger::Ledger;
use crate::service::Service;

const HEADINGS: [&str; 10] =
    ["tenant", "usage", "peak", "limit", "ok", "refused", "stopped", "failed", "p50 ms", "p99 ms"];

/// One tenant, a text for each heading.
pub type Row = [String; HEADINGS.len()];

pub fn rows(service: &Service, ledgers: &[(&'static str, Arc<Ledger>)]) -> Vec<Row> {
    let row = |(name, ledger): &(&'static str, Arc<Ledger>)| {
        let tenant = service.tenant(name);
        let bytes = |bytes: usize| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64);
        let millis = |percent| format!("{:.1}", ledger.latency(percent).as_secs_f64() * 1e3);
        [
            name.to_string(),
            bytes(tenant.usage()),
            bytes(tenant.peak()),
            tenant.max().map_or_else(|| "none".to_string(), bytes),
            ledger.ok.get().to_string(),
            ledger.refused.get().to_string(),
            ledger.stopped.get().to_string(),
            ledger.failed.get().to_string(),
            millis(50.0),
            millis(99.0),
        ]
    };
    ledgers.iter().map(row).collect()
}

pub enum Display {
    Terminal(ProgressBar),
    Lines,
}

impl Display {
    pub fn new(length: Duration) -> Display {
        if !io::stdout().is_terminal() {
            println!("{:>6}  {}", "time", line(&HEADINGS));
            return Display::Lines;
        }
        let bar = ProgressBar::with_draw_target(Some(length.as_millis() as u64), ProgressDrawTarget::stdout());
        let style = ProgressStyle::with_template("{wide_bar} {elapsed}\n{msg}").expect("the template is well-formed");
        bar.set_style(style);
        Display::Terminal(bar)
    }

    /// How often a refresh is of use.
    pub fn interval(&self) -> Duration {
        match self {
            Display::Terminal(_) => Duration::from_millis(200),
            Display::Lines => Duration::from_secs(1),
        }
    }

    pub fn refresh(&mut self, elapsed: Duration, rows: &[Row]) {
        match self {
            Display::Terminal(bar) => {
                bar.set_position(elapsed.as_millis() as u64);
                bar.set_message(table(rows));
            }
            Display::Lines => {
                for row in rows {
                    println!("{:>4.1} s  {}", elapsed.as_secs_f64(), line(row));
                }
            }
        }
    }

    /// Leaves the last state on the screen.
    pub fn finish(self, rows: &[Row]) {
        if let Display::Terminal(bar) = self {
            bar.finish_with_message(table(rows));
        }
        println!();
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(HEADINGS);
    for row in rows {
        table.add_row(row);
    }
    for (place, column) in table.column_iter_mut().enumerate() {
        // So close that all of it fits into 80 columns.
        column.set_padding((0, 1));
        if place > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn line(columns: &[impl AsRef<str>]) -> String {
    let padded = columns.iter().map(|text| format!("{:>9}", text.as_ref()));
    padded.collect::<Vec<_>>().join(" ")
}
