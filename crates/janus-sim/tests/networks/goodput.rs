//! The table in `docs/goodput.md` is what is measured today. Only cells that take little time are measured again, those
//! with much loss; `janus sim goodput` does all.

use janus_sim::goodput::{ALGORITHMS, Cell, Row, markdown, parse, svg};
use std::path::Path;

/// How far a measurement may be from the table, as a part of it: it is rounded to hundredths, and nothing else differs.
const TOLERANCE: f64 = 0.01;
/// What a change of the engine that has nothing to do with this may shift, in Mbit/s, before the table must be made again.
const TOLERANCE_MBIT: f64 = 0.05;

fn docs(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_page_is_what_the_table_makes() {
    let page = docs("goodput.md");
    let rows = parse(&page);
    let cells: Vec<Cell> = rows.iter().map(|row| row.cell).collect();
    assert_eq!(cells, Cell::all().collect::<Vec<_>>());
    let made = markdown(&rows);
    let differs = made
        .lines()
        .zip(page.lines())
        .find(|(made, page)| made != page);
    assert_eq!(differs, None);
    assert_eq!(made.len(), page.len());
    assert!(svg(&rows, ALGORITHMS[0]) == docs("goodput-reno.svg"));
    assert!(svg(&rows, ALGORITHMS[1]) == docs("goodput-cubic.svg"));
}

#[test]
fn some_cells_measure_what_is_written() {
    let rows = parse(&docs("goodput.md"));
    for (rtt_ms, buffer_percent) in [(200, 10), (200, 100)] {
        let cell = Cell {
            loss_ppm: 10_000,
            rtt_ms,
            buffer_percent,
        };
        let row = rows.iter().find(|row| row.cell == cell);
        let row: &Row = row.expect("a row of the table");
        for (algorithm, written) in ALGORITHMS.into_iter().zip(row.measured) {
            let measured = cell.measure(algorithm);
            assert!(
                (measured - written).abs() <= (written * TOLERANCE).max(TOLERANCE_MBIT),
                "{cell:?}, {algorithm:?}: {measured:.2} Mbit/s, the table says {written}; if that is as it should be, \
                 `janus sim goodput` makes the table again"
            );
        }
    }
}
