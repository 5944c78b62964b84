//! The budget of a piece of work by stage: instructions that valgrind gave to source lines, added up by what their file is for, and
//! drawn. What the standard library has inlined counts for the file that stands before it in the machine code.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Stages in the order of a packet's way, each with a color.
pub const STAGES: [(&str, &str); 9] = [
    ("headers in", "#4e79a7"),
    ("checksums", "#a0cbe8"),
    ("hash and table", "#f28e2b"),
    ("rules on arrival", "#e15759"),
    ("open and end", "#b07aa1"),
    ("output", "#59a14f"),
    ("records and buffers", "#8cd17d"),
    ("timers", "#edc948"),
    ("application and copy", "#bab0ac"),
];

/// Parts of paths, and the stage of a file whose path has one: the first that fits counts.
const FILES: &[(&str, usize)] = &[
    ("checksum.rs", 1),
    ("table_hash.rs", 2),
    ("siphash.rs", 2),
    ("store/index", 2),
    ("store/records.rs", 2),
    ("store/flows.rs", 2),
    ("flow.rs", 2),
    ("rules/isn.rs", 2),
    ("stack/input/passive.rs", 4),
    ("stack/input/handshake.rs", 4),
    ("stack/input/time_wait.rs", 4),
    ("stack/ends.rs", 4),
    ("store/half_open.rs", 4),
    ("store/listener.rs", 4),
    ("store/time_wait.rs", 4),
    ("store/sharing.rs", 4),
    ("rules/syn.rs", 4),
    ("janus-tcp/src/wire.rs", 5),
    ("conn/output", 5),
    ("ip/emit.rs", 5),
    ("ip/neighbor.rs", 5),
    ("stack/turn.rs", 5),
    ("store/outgoing.rs", 5),
    ("store/queue.rs", 5),
    ("conn/timer", 7),
    ("store/wheel", 7),
    ("store/rto.rs", 7),
    ("store/schedule.rs", 7),
    ("janus-mem/", 6),
    ("store/", 6),
    ("wire/parse.rs", 0),
    ("janus-wire/", 0),
    ("rules/own_v", 0),
    ("stack/input.rs", 0),
    ("stack/input/", 3),
    ("conn/", 3),
    ("congestion", 3),
    ("janus-tcp/src/conn.rs", 3),
    ("stack.rs", 3),
    ("stack/api", 8),
    ("benches/", 8),
    ("memmove", 8),
    ("memcpy", 8),
    ("janus-tcp/", 3),
];

/// Share of each stage in a run's instructions.
pub fn shares(profile: &str) -> [f64; STAGES.len()] {
    let mut names: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    let mut sums = [0u64; STAGES.len()];
    // The stage of the last line that was no library's, and of the present file.
    let (mut last, mut here, mut is_call) = (STAGES.len() - 1, None, false);
    for line in profile.lines() {
        if let Some((kind, rest)) = line.split_once('=') {
            if !matches!(kind, "fl" | "fi" | "fe" | "cfi" | "cfl") {
                is_call |= kind == "calls";
                continue;
            }
            // A file is spelled out where it comes first, and has a number in brackets from then on.
            let (number, path) = rest.split_once(' ').unwrap_or((rest, ""));
            if !path.is_empty() {
                names.insert(number, stage_of(path));
            }
            if !kind.starts_with('c') {
                here = names.get(number).copied().flatten();
                last = here.unwrap_or(last);
            }
        } else if line.starts_with(['0', '+', '-', '*']) {
            let cost = line.rsplit(' ').next().and_then(|cost| cost.parse().ok());
            // What a call cost inside is counted there.
            if !core::mem::take(&mut is_call) {
                sums[here.unwrap_or(last)] += cost.unwrap_or(0);
            }
        }
    }
    let all: u64 = sums.iter().sum();
    sums.map(|sum| sum as f64 / all.max(1) as f64)
}

fn stage_of(path: &str) -> Option<usize> {
    FILES
        .iter()
        .find_map(|(part, stage)| path.contains(part).then_some(*stage))
}

/// Draws a bar for each work, of its figure and the shares of the stages in it.
pub fn draw(works: &[(&str, f64, [f64; STAGES.len()])]) -> String {
    const LEFT: f64 = 150.0;
    const WIDTH: f64 = 620.0;
    const HEIGHT: f64 = 26.0;
    const GAP: f64 = 14.0;
    let most = works.iter().map(|work| work.1).fold(1.0, f64::max);
    let below = works.len() as f64 * (HEIGHT + GAP) + GAP;
    let height = below + 70.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"860\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (row, (name, figure, shares)) in works.iter().enumerate() {
        let top = GAP + row as f64 * (HEIGHT + GAP);
        let text = top + HEIGHT * 0.7;
        let _ = writeln!(out, "<text x=\"8\" y=\"{text:.0}\">{name}</text>");
        let mut x = LEFT;
        for (share, (stage, color)) in shares.iter().zip(STAGES) {
            let width = share * figure / most * WIDTH;
            let count = share * figure;
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{color}\"><title>{stage}: \
                 {count:.0}</title></rect>"
            );
            x += width;
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{text:.0}\">{figure:.0}</text>",
            x + 6.0
        );
    }
    for (at, (stage, color)) in STAGES.iter().enumerate() {
        let (x, y) = (
            8.0 + (at % 5) as f64 * 168.0,
            below + 18.0 + (at / 5) as f64 * 24.0,
        );
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{:.0}\" width=\"12\" height=\"12\" fill=\"{color}\"/><text x=\"{}\" y=\"{y}\">{stage}</text>",
            y - 11.0,
            x + 18.0
        );
    }
    out.push_str("</svg>\n");
    out
}
