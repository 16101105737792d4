//! The tables on the terminal.

use comfy_table::{presets::ASCII_MARKDOWN, CellAlignment, Row as Line, Table};

use crate::rounds::Row;

/// A table in Markdown; all columns but the first are aligned to the right.
pub fn markdown(head: Vec<String>, lines: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(head);
    table.add_rows(lines.into_iter().map(Line::from));
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// Three significant figures are all these are worth.
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        ..10.0 => format!("{nanoseconds:.2}"),
        ..100.0 => format!("{nanoseconds:.1}"),
        _ => format!("{nanoseconds:.0}"),
    }
}

/// One group's rows: medians, and ours by the others'.
pub fn group(rows: &[&Row]) -> String {
    let mut allocators: Vec<&'static str> = Vec::new();
    for (allocator, _) in rows.iter().flat_map(|row| &row.times) {
        if !allocators.contains(allocator) {
            allocators.push(allocator);
        }
    }
    let peers = || allocators.iter().filter(|allocator| **allocator != "allotment");
    let mut head = vec!["ns".to_owned()];
    head.extend(allocators.iter().map(|allocator| (*allocator).to_owned()));
    head.extend(peers().map(|peer| format!("/ {peer}")));
    let line = |row: &&Row| {
        let mut line = vec![row.name.clone()];
        line.extend(allocators.iter().map(|allocator| row.median(allocator).map_or("-".into(), time)));
        line.extend(peers().map(|peer| row.ratio(peer).map_or("-".into(), |ratio| format!("{ratio:.2}"))));
        line
    };
    markdown(head, rows.iter().map(line))
}
