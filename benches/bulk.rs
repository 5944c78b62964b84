//! How many bits of payload one core takes in (`dir=rx`) and sends (`dir=tx`) over few connections, in full segments:
//! MTU 1500, timestamps, 1,448 bytes over IPv4 and 1,428 over IPv6, checksums computed and checked by both sides. The
//! engine alone, in the turns that a shard has; the far end's time is left out. `read=copy` copies what came to the
//! application's buffer, `read=lent` hands the packet buffers up. What the far end and the application get is compared
//! with what was sent, and what never comes is a wrong answer. All work in turns; `relation` is what a byte takes on one
//! side over what it takes on the other, round by round.

mod support;

use std::time::Duration;
use support::Scale;
use support::far::packet::Ends;
use support::report::{Report, Value};
use support::stream::{Dir, Streams};

const CONNS: [usize; 2] = [1, 16];

fn main() {
    let scale = Scale::get();
    let (runs, time) = scale.pick(
        (1, Duration::from_millis(30)),
        (5, Duration::from_millis(300)),
        (7, Duration::from_secs(2)),
    );
    let mut report = Report::new("bulk");
    for dir in [Dir::Rx { lent: false }, Dir::Rx { lent: true }, Dir::Tx] {
        report.progress(&format!("{dir:?}"));
        measure(&mut report, dir, runs, time);
    }
    report.finish();
}

/// Streams of one direction, and what they took.
struct Side {
    streams: Streams,
    conns: usize,
    six: bool,
    /// Nanoseconds of a byte, run by run.
    costs: Vec<f64>,
}

fn measure(report: &mut Report, dir: Dir, runs: usize, time: Duration) {
    let mut sides = Vec::new();
    for conns in CONNS {
        for six in [false, true] {
            let ends = if six {
                Ends::over_six()
            } else {
                Ends::default()
            };
            let mut streams = Streams::new_at(ends, conns);
            streams.open();
            streams.run(dir, time / 4);
            sides.push(Side {
                streams,
                conns,
                six,
                costs: Vec::new(),
            });
        }
    }
    for round in 0..runs {
        let mut order: Vec<&mut Side> = sides.iter_mut().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for side in order {
            let (bytes, server_ns) = side.streams.run(dir, time);
            side.costs.push(server_ns / bytes);
        }
    }
    for side in &mut sides {
        side.streams.settle(dir);
        rows(report, dir, side);
    }
    for [above, below] in [[1, 0], [3, 2], [2, 0], [3, 1]] {
        let [above, below] = [&sides[above], &sides[below]];
        let ratios = above.costs.iter().zip(&below.costs);
        let ratios: Vec<f64> = ratios.map(|(above, below)| above / below).collect();
        let name = if above.six != below.six {
            "six_over_four"
        } else {
            "sixteen_over_one"
        };
        let params = [&[("of", name.into())], &params(dir, above)[..]].concat();
        report.median("relation", &ratios, "ratio", &params);
    }
}

fn params(dir: Dir, side: &Side) -> [(&'static str, Value); 5] {
    let (name, how) = match dir {
        Dir::Rx { lent: false } => ("rx", "copy"),
        Dir::Rx { lent: true } => ("rx", "lent"),
        Dir::Tx => ("tx", "copy"),
    };
    [
        ("dir", name.into()),
        ("read", how.into()),
        ("conns", side.conns.into()),
        ("ip", if side.six { 6u32 } else { 4 }.into()),
        ("placement", "engine".into()),
    ]
}

fn rows(report: &mut Report, dir: Dir, side: &Side) {
    let params = params(dir, side);
    let each = |of: fn(f64, f64) -> f64| -> Vec<f64> {
        let payload = side.streams.payload() as f64;
        side.costs.iter().map(|cost| of(*cost, payload)).collect()
    };
    report.median("gbit_per_s", &each(|cost, _| 8.0 / cost), "Gbit/s", &params);
    let segments = each(|cost, payload| cost * payload);
    report.median("server_ns_per_segment", &segments, "ns", &params);
    let wrong = side.streams.app.wrong;
    report.row("bad_answers", wrong as f64, "count", &params);
    if wrong > 0 {
        eprintln!("wrong bytes: {:?}", side.streams.server.stack.counters());
    }
}
