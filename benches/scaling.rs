//! Short connections against the number of cores (figures 4 and 5 of the Janus paper), in two ways.
//!
//! * On the processors that the machine has, from one to all of them, combined and split (a polling core for each four threads):
//!   `conn_per_s` is what they do if nothing but the server runs on them, as `busy_ns` of each kind of thread says, without the far
//!   end's time; `over_one_core` is that over the figure of one combined core in the same round.
//! * On 1 to 64 shards in virtual time, where valgrind is installed: `instructions` and misses of a short connection in the caches that
//!   valgrind models, for each kind of thread. All shards take their turns on one thread, so the data caches are larger by the
//!   number of cores, and each shard gets the same load whatever their number. What one core writes and another reads is no
//!   miss in that model; `docs/figures/README.md` lists what shards share.

#[path = "support/crowd.rs"]
mod crowd;
mod support;

use std::net::SocketAddr;
use std::time::Duration;

use crowd::{Crowd, Plan};
use janus::lockstep::{self, WholeRuntime};
use janus::net::TcpListener;
use janus::{Builder, Placement};
use janus_seeds::Random;
use janus_tcp::Config;
use support::Scale;
use support::busy::Busy;
use support::far::App;
use support::far::plan::{Mode, Phase};
use support::plot::{Elsewhere, Line, Plot};
use support::report::{Report, Value};
use support::served::{Layout, Server};
use support::valgrind::{self, Events};

/// Short connections in progress at a time, for each core.
const WINDOW: u32 = 256;
const SHARDS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Shards that one polling core serves.
const SHARDS_FOR_POLLING: usize = 4;
/// Threads of which one polls.
const THREADS_FOR_POLLING: usize = 4;
/// Time between the beginnings of two connections of a shard.
const GAP_NS: u64 = 200;
/// Connections of the two runs whose difference is counted: at least, and for each shard.
const COUNTED: [[u64; 2]; 2] = [[1_000, 6_000], [200, 600]];
/// Records and blocks of each kind that a shard in virtual time has room for.
const FEW: u32 = 1 << 16;
/// Seconds of a run under valgrind, about.
const CELL_S: u64 = 2;
const BYTES: u64 = 2 << 30;

fn main() {
    if valgrind::is_counted(counted) {
        return;
    }
    let scale = Scale::get();
    let (rounds, run_ms) = scale.pick((1, 30), (5, 200), (11, 1_000));
    let time = Duration::from_millis(run_ms);
    let shards = scale.pick(&SHARDS[..0], &SHARDS[..], &SHARDS[..]);
    let layouts = layouts(std::thread::available_parallelism().map_or(1, usize::from));
    let mut report = Report::new("scaling");
    let runs = time * 2 * (rounds * layouts.len()) as u32;
    report.needs(runs.as_secs() + CELL_S * 6 * shards.len() as u64, BYTES);
    on_this_machine(&mut report, &layouts, rounds, time);
    for &shards in shards {
        for placement in ["combined", "split"] {
            report.progress(&format!("{shards} shards, {placement}"));
            report_events(&mut report, placement, shards);
        }
    }
    draw(&report);
    report.finish();
}

fn draw(report: &Report) {
    let line = |name, metric, placement: &'static str, more: &[(&'static str, &'static str)]| {
        let more = more
            .iter()
            .map(|(name, value)| (*name, Value::from(*value)));
        Line {
            name,
            metric,
            with: [("placement", placement.into())]
                .into_iter()
                .chain(more)
                .collect(),
        }
    };
    let rates = Plot {
        file: "scaling",
        title: "Short connections against processors",
        x: ("processors", "processors"),
        y: "M connections/s",
        unit: 1e6,
        lines: vec![
            line("combined", "conn_per_s", "combined", &[]),
            line("split", "conn_per_s", "split", &[]),
        ],
        elsewhere: Some(Elsewhere {
            y: 1.86e6,
            text: "Janus paper: 1.86 M/s with 40 M held, on all cores of another machine",
        }),
    };
    rates.write(report);
    let of = |metric, unit, file, y| Plot {
        file,
        title: "A short connection in the model of a processor, against the number of shards",
        x: ("shards", "shards"),
        y,
        unit,
        lines: vec![
            line("combined", metric, "combined", &[("thread", "shards")]),
            line("split: shards", metric, "split", &[("thread", "shards")]),
            line("split: polling", metric, "split", &[("thread", "polling")]),
        ],
        elsewhere: None,
    };
    let instructions = of(
        "instructions",
        1e3,
        "shards_instructions",
        "thousand instructions",
    );
    instructions.write(report);
    let misses = of(
        "misses_first_level_data",
        1.0,
        "shards_misses",
        "data misses, first level",
    );
    misses.write(report);
}

/// Returns each layout that has a processor for each of its threads.
fn layouts(processors: usize) -> Vec<Layout> {
    let combined = (1..=processors).map(|cores| Layout {
        cores,
        placement: Placement::Combined,
    });
    let split = (2..=processors).map(|threads| {
        let io_cores = threads.div_ceil(THREADS_FOR_POLLING);
        Layout {
            cores: threads - io_cores,
            placement: Placement::Split { io_cores },
        }
    });
    combined.chain(split).collect()
}

fn on_this_machine(report: &mut Report, layouts: &[Layout], rounds: usize, time: Duration) {
    let mut taken: Vec<Vec<Busy>> = vec![Vec::new(); layouts.len()];
    let mut bad = vec![0; layouts.len()];
    for round in 0..rounds {
        report.progress(&format!("round {} of {rounds}", round + 1));
        for (at, layout) in layouts.iter().enumerate() {
            let phase = Phase {
                mode: Mode::Short,
                window: WINDOW * layout.cores as u32,
                held: 0,
            };
            let server = Server::start(*layout, App::Echo, 0);
            let _warm = Busy::of(&server, phase, time / 4);
            taken[at].push(Busy::of(&server, phase, time));
            bad[at] += server.plan.counts().bad() + server.quiesce(0);
            server.stop();
        }
    }
    let rates = |at: usize| -> Vec<f64> {
        let busy = taken[at].iter();
        busy.map(|busy| busy.per_second(layouts[at])).collect()
    };
    let of_one = rates(0);
    for (at, layout) in layouts.iter().enumerate() {
        let params = [
            ("placement", Value::from(layout.name())),
            ("processors", layout.threads().into()),
        ];
        let disturbed: Vec<bool> = taken[at].iter().map(|busy| busy.disturbed).collect();
        let mut all =
            |metric, runs: &[f64], unit| report.medians(metric, runs, &disturbed, unit, &params);
        let rates = rates(at);
        all("conn_per_s", &rates, "1/s");
        let ratios: Vec<f64> = rates.iter().zip(&of_one).map(|(n, one)| n / one).collect();
        all("over_one_core", &ratios, "ratio");
        let busy: Vec<f64> = taken[at].iter().map(|busy| busy.all_ns()).collect();
        all("busy_ns", &busy, "ns");
        report.row("bad_answers", bad[at] as f64, "count", &params);
    }
}

fn report_events(report: &mut Report, placement: &str, shards: usize) {
    let what = [placement.to_owned(), shards.to_string()];
    let io_cores = layout(placement, shards).io_cores;
    let threads = [
        ("shards", "*turn_of_shard*", shards),
        ("polling", "*turn_of_io_core*", io_cores),
    ];
    for (thread, function, cores) in threads.into_iter().filter(|(_, _, cores)| *cores > 0) {
        let [least, each] = COUNTED;
        let units = [0, 1].map(|run| least[run].max(each[run] * shards as u64));
        // Sizes of caches are powers of two, and so are the numbers of cores.
        let runs = units.map(|units| valgrind::events_of(function, cores, &what, units));
        let [Some((few, less)), Some((many, more))] = runs else {
            return;
        };
        let params = [
            ("placement", Value::from(placement)),
            ("thread", thread.into()),
            ("shards", shards.into()),
            ("conns", (more - less).into()),
        ];
        let each = |of: fn(&Events) -> u64| (of(&many) - of(&few)) as f64 / (more - less) as f64;
        report.row("instructions", each(|e| e.instructions), "count", &params);
        report.row("misses_first_level", each(|e| e.first), "count", &params);
        let of_data = each(|e| e.first_of_data);
        report.row("misses_first_level_data", of_data, "count", &params);
        report.row("misses_second_level", each(|e| e.second), "count", &params);
    }
}

fn layout(placement: &str, shards: usize) -> lockstep::Layout {
    let io_cores = match placement {
        "split" => shards.div_ceil(SHARDS_FOR_POLLING),
        _ => 0,
    };
    lockstep::Layout { shards, io_cores }
}

/// The run that is counted: so many short connections in virtual time. Returns how many were served.
fn counted(what: &[String], units: u64) -> u64 {
    let shards: usize = what[1].parse().expect("a number of shards");
    let main = async || {
        let listener = TcpListener::bind("0.0.0.0:80").await?;
        loop {
            let (stream, _) = listener.accept().await?;
            drop(janus::spawn(async move {
                if let Ok(Some(piece)) = stream.recv().await {
                    let _ = stream.write_all(&piece).await;
                }
            }));
        }
        #[expect(unreachable_code, reason = "for its type")]
        Ok::<(), janus::BoxError>(())
    };
    let gap = Duration::from_nanos(GAP_NS / shards as u64);
    let crowd = |end| Crowd::new(1, end, Even(gap));
    // Valgrind has addresses for 64 shards of these sizes only.
    let tcp = Config {
        max_connections: FEW,
        max_hot: FEW,
        max_segments: FEW,
        ..Config::default()
    };
    let configure = |builder: Builder| {
        let builder = builder.tcp(tcp).max_connections(FEW);
        builder.packet_buffers(FEW / 2)
    };
    let layout = layout(&what[0], shards);
    let mut world = WholeRuntime::calm(1, layout, configure, main, crowd);
    world.peer.bursts = shards;
    let start = world.now();
    let until = start + gap * units as u32;
    world.peer.begins(start, until);
    while world.now() < until || world.peer.live() > 0 {
        let next = world.now() + Duration::from_micros(100);
        world.pass_calmly(next);
    }
    assert_eq!(world.peer.failed, 0, "every connection is served");
    world.peer.served.len() as u64
}

/// Connections at a steady rate.
struct Even(Duration);

impl Plan for Even {
    fn next(&mut self, _: &mut Random) -> (Duration, Duration) {
        (self.0, Duration::ZERO)
    }

    fn wants(&mut self, _: SocketAddr, _: &mut Random) -> bool {
        true
    }
}
