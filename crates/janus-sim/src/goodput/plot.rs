//! The table as a picture: goodput over round trip, a panel for each buffer, a colour for each loss; dots and lines are
//! measured, dashes are theory. Plain SVG, written by hand: a few lines and words need no library.
//! What never lives here: numbers that are not in the table.

use super::{ALGORITHMS, BUFFERS, LOSSES, Prediction, ROUND_TRIPS, Row};
use janus_tcp::CongestionControl;
use std::fmt::Write;

const PANEL: (f64, f64) = (230.0, 240.0);
const MARGIN: (f64, f64) = (56.0, 56.0);
const GAP: f64 = 26.0;
const LEGEND: f64 = 118.0;
/// Decades of Mbit/s on the vertical axis.
const LOWEST: f64 = 0.1;
const HIGHEST: f64 = 200.0;
const COLOURS: [&str; 4] = ["#1b6ca8", "#2e8b57", "#c77c11", "#b3303a"];

/// The panel's place from the left, and points in it.
struct Panel {
    left: f64,
}

impl Panel {
    fn x(&self, rtt_ms: u32) -> f64 {
        let (first, last) = (
            f64::from(ROUND_TRIPS[0]),
            f64::from(ROUND_TRIPS[ROUND_TRIPS.len() - 1]),
        );
        let part = (f64::from(rtt_ms) / first).ln() / (last / first).ln();
        self.left + 10.0 + part * (PANEL.0 - 20.0)
    }

    fn y(&self, mbit: f64) -> f64 {
        let part = (mbit.max(LOWEST) / LOWEST).ln() / (HIGHEST / LOWEST).ln();
        MARGIN.1 + PANEL.1 * (1.0 - part)
    }

    fn points(&self, values: &[(u32, f64)]) -> String {
        let each = values
            .iter()
            .map(|(rtt, mbit)| format!("{:.1},{:.1}", self.x(*rtt), self.y(*mbit)));
        each.collect::<Vec<_>>().join(" ")
    }
}

/// The picture of one algorithm.
pub fn svg(rows: &[Row], algorithm: CongestionControl) -> String {
    let which = ALGORITHMS.iter().position(|a| *a == algorithm).unwrap_or(0);
    let name = match algorithm {
        CongestionControl::NewReno => "NewReno",
        CongestionControl::Cubic => "CUBIC",
    };
    let panels = BUFFERS.len() as f64;
    let width = MARGIN.0 + panels * PANEL.0 + (panels - 1.0) * GAP + LEGEND;
    let height = MARGIN.1 + PANEL.1 + 44.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"20\" font-size=\"14\">{name}: goodput of one transfer over a link of 100 Mbit/s</text>\n",
        MARGIN.0
    );
    for (n, buffer) in BUFFERS.into_iter().enumerate() {
        let panel = Panel {
            left: MARGIN.0 + n as f64 * (PANEL.0 + GAP),
        };
        frame(&mut out, &panel, buffer, n == 0);
        for (loss, colour) in LOSSES.into_iter().zip(COLOURS) {
            let cells: Vec<&Row> = rows
                .iter()
                .filter(|row| row.cell.loss_ppm == loss && row.cell.buffer_percent == buffer)
                .collect();
            let measured: Vec<(u32, f64)> = cells
                .iter()
                .map(|row| (row.cell.rtt_ms, row.measured[which]))
                .collect();
            let theory: Vec<(u32, f64)> = cells
                .iter()
                .map(|row| (row.cell.rtt_ms, Prediction::of(row.cell, algorithm).goodput))
                .collect();
            series(&mut out, &panel, &measured, &theory, colour);
        }
    }
    legend(&mut out, width - LEGEND + 12.0);
    out.push_str("</svg>\n");
    out
}

fn frame(out: &mut String, panel: &Panel, buffer: u32, first: bool) {
    let (left, top, bottom) = (panel.left, MARGIN.1, MARGIN.1 + PANEL.1);
    let _ = writeln!(
        out,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">buffer {} of the path</text>",
        PANEL.0,
        PANEL.1,
        left + PANEL.0 / 2.0,
        top - 8.0,
        f64::from(buffer) / 100.0
    );
    for mbit in [0.1, 1.0, 10.0, 100.0] {
        let y = panel.y(mbit);
        let _ = writeln!(
            out,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>",
            left + PANEL.0
        );
        if first {
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mbit}</text>",
                left - 6.0,
                y + 4.0
            );
        }
    }
    for rtt in ROUND_TRIPS {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{rtt}</text>",
            panel.x(rtt),
            bottom + 16.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">round trip, ms</text>",
        left + PANEL.0 / 2.0,
        bottom + 34.0
    );
    if first {
        let (x, y) = (16.0, top + PANEL.1 / 2.0);
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" transform=\"rotate(-90 {x} {y})\">Mbit/s of payload</text>"
        );
    }
}

fn series(
    out: &mut String,
    panel: &Panel,
    measured: &[(u32, f64)],
    theory: &[(u32, f64)],
    colour: &str,
) {
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"4 4\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>",
        panel.points(theory),
        panel.points(measured)
    );
    for (rtt, mbit) in measured {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
            panel.x(*rtt),
            panel.y(*mbit)
        );
    }
}

fn legend(out: &mut String, left: f64) {
    for (n, (loss, colour)) in LOSSES.into_iter().zip(COLOURS).enumerate() {
        let y = MARGIN.1 + 16.0 + n as f64 * 18.0;
        let _ = writeln!(
            out,
            "<circle cx=\"{left}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>\n<text x=\"{}\" y=\"{}\">loss {}</text>",
            left + 8.0,
            y + 4.0,
            f64::from(loss) / 1e6
        );
    }
    let y = MARGIN.1 + 16.0 + 5.0 * 18.0;
    let _ = writeln!(
        out,
        "<line x1=\"{}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#444\" stroke-dasharray=\"4 4\"/>\n<text x=\"{}\" y=\"{}\">theory</text>",
        left - 8.0,
        left + 14.0,
        left + 20.0,
        y + 4.0
    );
}
