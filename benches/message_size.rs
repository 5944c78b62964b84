//! How much one core sends in answers of one size, each on a connection of its own (figure 6 of the Janus paper): SYN, a request of 64
//! bytes, an answer of 64 bytes to 8 KiB, FIN both ways. `conn_per_s` and `gbit_per_s` (bytes of answers, without headers) are of the
//! server's time, without the far end's; `split` has two threads, and the time of both counts. An answer starts with its
//! request, and every byte of it is compared; bytes that never came are among the `bad_answers`. Answers of more
//! than one segment are acknowledged at every second one. `repeated_bytes` came once more, as the server's timers ran out while
//! the machine had the thread wait that brings the acknowledgements.
//!
//! `placement=kernel` is tokio on one thread over the kernel's sockets and loopback, in turns with the others in the same run. Loopback
//! has no driver, computes no checksum and carries an answer in one piece. The kernel also does a part of the server's work in the
//! client's time: `both_ends_ns_per_conn` has both threads, and is the bound from the other side. `relation` (`kernel_over_task`) is the
//! server's time alone, which flatters the kernel.

mod support;

use std::time::Duration;

use support::Scale;
use support::far::plan::Mode;
use support::kernel::{Kernel, Load};
use support::meter::Series;
use support::plot::{Line, Plot};
use support::report::{Report, Value};
use support::side::{Cell, Rounds, Serving, Side, relation};

/// Bytes of an answer.
const SIZES: [u32; 8] = [64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192];
const SERVERS: [Serving; 3] = [Serving::Engine, Serving::Task, Serving::Split];
/// Connections in progress at a time: the longest answers of all of them fit the rings.
const WINDOW: u32 = 64;
/// Of the packet buffers of three servers, and of what else there is.
const BYTES: u64 = 1 << 30;
/// Resting time of a side between its runs, and the like.
const OVERHEAD: Duration = Duration::from_millis(10);

fn main() {
    let scale = Scale::get();
    let (runs, run_ms) = scale.pick((1, 20), (5, 100), (9, 1_000));
    let sizes = scale.pick(&SIZES[6..7], &SIZES, &SIZES);
    let rounds = Rounds {
        runs,
        time: Duration::from_millis(run_ms),
    };
    let mut report = Report::new("message_size");
    let turn = rounds.time * 9 / 8 + OVERHEAD;
    let turns = sizes.len() * (runs + 1) * (SERVERS.len() + 1);
    report.needs((turn * turns as u32).as_secs(), BYTES);
    for size in sizes {
        report.progress(&format!("answers of {size} bytes"));
        measure(&mut report, *size, rounds);
    }
    draw(&report);
    report.finish();
}

fn draw(report: &Report) {
    let line = |name, placement: &'static str| Line {
        name,
        metric: "gbit_per_s",
        with: vec![("placement", placement.into())],
    };
    let plot = Plot {
        file: "message_size",
        title: "Answers of one size, a connection each: what one core sends",
        x: ("size", "bytes of an answer"),
        y: "Gbit/s of answers",
        unit: 1.0,
        lines: vec![
            line("engine alone", "engine"),
            line("tasks", "combined"),
            line("split, two threads", "split"),
            line("kernel, tokio", "kernel"),
        ],
        elsewhere: None,
    };
    plot.write(report);
}

/// Measures all servers with answers of one size.
fn measure(report: &mut Report, size: u32, rounds: Rounds) {
    let cell = |serving| Cell {
        serving,
        six: false,
        held: 0,
        ends_first: false,
        timestamps: true,
        answer: size,
    };
    let mut sides = SERVERS.map(|serving| Side::start(cell(serving)));
    let mut all = SERVERS.map(|_| Series::default());
    let kernel = Kernel::tokio_answering(size);
    let load = Load {
        mode: Mode::Short,
        window: WINDOW,
        held: 0,
    };
    let (mut costs, mut both, mut wrong) = (Vec::new(), Vec::new(), 0);
    let (warm, time) = (rounds.time / 8, rounds.time);
    // The first round warms up.
    for round in 0..=rounds.runs {
        for (side, series) in sides.iter_mut().zip(&mut all) {
            let reading = side.run(Mode::Short, WINDOW, warm, time);
            if round > 0 {
                series.add(&reading);
            }
        }
        let cost = kernel.cost(load, warm, time);
        wrong += cost.wrong;
        if round > 0 {
            costs.push(cost.server_ns);
            both.push(cost.both_ns);
        }
    }
    let about = [("size", Value::from(size)), ("window", WINDOW.into())];
    let gbits = |costs: &[f64]| -> Vec<f64> {
        let bits = f64::from(size) * 8.0;
        costs.iter().map(|ns| bits / ns).collect()
    };
    for (side, series) in sides.iter().zip(&all) {
        side.rows(report, "conn", series, &about);
        let params = [&side.cell.params()[..], &about].concat();
        let rates = gbits(&series.costs);
        let repeated = side.surplus().max(0) as f64;
        report.row("repeated_bytes", repeated, "B", &params);
        report.medians("gbit_per_s", &rates, &series.disturbed, "Gbit/s", &params);
    }
    let params = [&[("placement", Value::from("kernel"))], &about[..]].concat();
    let rates: Vec<f64> = costs.iter().map(|ns| 1e9 / ns).collect();
    report.median("conn_per_s", &rates, "1/s", &params);
    report.median("server_ns_per_conn", &costs, "ns", &params);
    report.median("both_ends_ns_per_conn", &both, "ns", &params);
    report.median("gbit_per_s", &gbits(&costs), "Gbit/s", &params);
    report.row("bad_answers", wrong as f64, "count", &params);
    relation(report, "task_over_engine", [&all[1], &all[0]], &about);
    let ratios: Vec<f64> = costs
        .iter()
        .zip(&all[1].costs)
        .map(|(k, j)| k / j)
        .collect();
    let params = [&[("of", Value::from("kernel_over_task"))], &about[..]].concat();
    report.median("relation", &ratios, "ratio", &params);
    sides.into_iter().for_each(Side::stop);
}
