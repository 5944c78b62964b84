//! The table as a page, and the page as a table again.
//! What never lives here: plots.

use super::{ALGORITHMS, Cell, Prediction, Row};
use std::fmt::Write;

const HEAD: &str = include_str!("head.txt");
const TAIL: &str = include_str!("tail.txt");

/// The page: what was done, the table, and where theory and measurement part.
pub fn markdown(rows: &[Row]) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| loss | RTT ms | buffer | Reno | theory | ratio | CUBIC | theory | ratio |\n");
    page.push_str("|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for row in rows {
        let cell = row.cell;
        let loss = f64::from(cell.loss_ppm) / 1e6;
        let buffer = f64::from(cell.buffer_percent) / 100.0;
        let _ = write!(page, "| {loss} | {} | {buffer} |", cell.rtt_ms);
        for (algorithm, measured) in ALGORITHMS.into_iter().zip(row.measured) {
            // The page is all there is to compare with later, so the ratio is of what stands on it.
            let measured = (measured * 100.0).round() / 100.0;
            let theory = Prediction::of(cell, algorithm).goodput;
            let _ = write!(
                page,
                " {measured:.2} | {theory:.2} | {:.2} |",
                measured / theory
            );
        }
        page.push('\n');
    }
    page.push_str(TAIL);
    page
}

/// The rows of a page that [`markdown`] wrote.
pub fn parse(page: &str) -> Vec<Row> {
    page.lines().filter_map(parse_row).collect()
}

fn parse_row(line: &str) -> Option<Row> {
    let fields: Vec<f64> = line
        .strip_prefix('|')?
        .split('|')
        .map_while(|field| field.trim().parse().ok())
        .collect();
    let [loss, rtt, buffer, reno, _, _, cubic, _, _] = fields[..] else {
        return None;
    };
    Some(Row {
        cell: Cell {
            loss_ppm: (loss * 1e6).round() as u32,
            rtt_ms: rtt as u32,
            buffer_percent: (buffer * 100.0).round() as u32,
        },
        measured: [reno, cubic],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_can_be_read_again() {
        let rows: Vec<Row> = Cell::all()
            .enumerate()
            .map(|(n, cell)| Row {
                cell,
                measured: [n as f64, 50.25],
            })
            .collect();
        assert_eq!(parse(&markdown(&rows)), rows);
    }
}
