//! Split against combined on two processors: one core that polls beside one that does TCP and the application, or two
//! that do everything each (PIKA's figure 11). Short connections, and requests over open ones, with an application that
//! does nothing and one that computes for a while on each request. Both servers stand beside each other and work in
//! turns. What two processors could do is told by what a connection keeps each thread busy: of two equal cores the sum,
//! of two that do different things the one that is busier. `relation` is the time of both threads of split for one thing
//! over that of the cores of combined: what having two threads costs.
//!
//! Where valgrind is installed `instructions` and `misses_…` say for each kind of thread what a short connection takes, misses in the caches
//! that valgrind models (PIKA's figure 12): the same servers in virtual time on one thread, so in one core's caches. A line that two
//! processors hand to each other is no miss there. `offers=on`: with speculative accept, which has nothing to offer here.

#[path = "support/crowd.rs"]
mod crowd;
mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crowd::{Crowd, Plan};
use janus::Builder;
use janus::balance::SpeculativeAccept;
use janus::lockstep::{self, WholeRuntime};
use janus::net::{TcpListener, TcpStream};
use janus_seeds::Random;
use support::Scale;
use support::busy::Busy;
use support::far::App;
use support::far::plan::{Mode, Phase};
use support::report::Report;
use support::served::{Layout, Server};
use support::valgrind::{self, Events};

/// Connections or requests in progress at a time.
const WINDOW: u32 = 256;
/// Open connections for the requests.
const HELD: u32 = 1_024;
/// What the application computes on each request.
const WORKS_NS: [u64; 3] = [0, 2_000, 10_000];

const TWO_COMBINED: Layout = Layout {
    cores: 2,
    placement: janus::Placement::Combined,
};

fn main() {
    if valgrind::is_counted(counted) {
        return;
    }
    let scale = Scale::get();
    let (rounds, run_ms) = scale.pick((1, 30), (5, 250), (11, 1_000));
    let works: &[u64] = scale.pick(&WORKS_NS[..1], &WORKS_NS, &WORKS_NS);
    let mut report = Report::new("placement");
    for &work_ns in works {
        for mode in [Mode::Short, Mode::Requests] {
            report.progress(&format!("{mode:?}, {work_ns} ns of work"));
            compare(
                &mut report,
                mode,
                work_ns,
                rounds,
                Duration::from_millis(run_ms),
            );
        }
    }
    if scale != Scale::Smoke {
        for (layout, offers) in [
            (TWO_COMBINED, "off"),
            (TWO_COMBINED, "on"),
            (Layout::SPLIT, "off"),
        ] {
            report.progress(&format!("instructions, {}, offers {offers}", layout.name()));
            report_events(&mut report, layout, offers);
        }
    }
    report.finish();
}

/// Connections of the two runs whose difference is counted.
const COUNTED: [u64; 2] = [1_000, 6_000];
/// Time between the beginnings of two of them.
const GAP: Duration = Duration::from_nanos(200);

fn report_events(report: &mut Report, layout: Layout, offers: &str) {
    let what = [layout.name().to_owned(), offers.to_owned()];
    let threads: &[(&str, &str)] = match layout.cores {
        2 => &[("shards", "*turn_of_shard*")],
        _ => &[
            ("shards", "*turn_of_shard*"),
            ("polling", "*turn_of_io_core*"),
        ],
    };
    for (thread, function) in threads {
        let runs = COUNTED.map(|units| valgrind::events_of(function, 1, &what, units));
        let [Some((few, less)), Some((many, more))] = runs else {
            return;
        };
        let params = [
            ("placement", layout.name().into()),
            ("thread", (*thread).into()),
            ("offers", offers.into()),
        ];
        let each = |of: fn(&Events) -> u64| (of(&many) - of(&few)) as f64 / (more - less) as f64;
        report.row("instructions", each(|e| e.instructions), "count", &params);
        report.row("misses_first_level", each(|e| e.first), "count", &params);
        report.row("misses_second_level", each(|e| e.second), "count", &params);
    }
}

/// The run that is counted: so many short connections in virtual time. Returns how many were served.
fn counted(what: &[String], units: u64) -> u64 {
    let shards = if what[0] == TWO_COMBINED.name() { 2 } else { 1 };
    let layout = lockstep::Layout {
        shards,
        io_cores: 2 - shards,
    };
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
    let crowd = |end| Crowd::new(1, end, Even);
    let offers = match what[1].as_str() {
        "on" => SpeculativeAccept::On,
        _ => SpeculativeAccept::Off,
    };
    let configure = |builder: Builder| builder.speculative_accept(offers);
    let mut world = WholeRuntime::calm(1, layout, configure, main, crowd);
    let start = world.now();
    let until = start + GAP * units as u32;
    world.peer.begins(start, until);
    while world.now() < until || world.peer.live() > 0 {
        let next = world.now() + Duration::from_millis(1);
        world.pass_calmly(next);
    }
    world.peer.served.len() as u64
}

/// Connections at a steady rate.
struct Even;

impl Plan for Even {
    fn next(&mut self, _: &mut Random) -> (Duration, Duration) {
        (GAP, Duration::ZERO)
    }

    fn wants(&mut self, _: SocketAddr, _: &mut Random) -> bool {
        true
    }
}

fn compare(report: &mut Report, mode: Mode, work_ns: u64, rounds: usize, time: Duration) {
    let layouts = [TWO_COMBINED, Layout::SPLIT];
    let held = if mode == Mode::Requests { HELD } else { 0 };
    let phase = Phase {
        mode,
        window: WINDOW,
        held,
    };
    let servers = layouts.map(|layout| {
        let work = Duration::from_nanos(work_ns);
        let begin = move |stream| drop(janus::spawn(echo(stream, work)));
        let server = Server::start_with(layout, App::Echo, held, |builder| builder, begin);
        server.open(held);
        server
    });
    let mut rates = [Vec::new(), Vec::new()];
    let mut busy = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let taken = Busy::of(&servers[at], phase, time);
            // The first round warms up.
            if round > 0 {
                rates[at].push(taken.per_second(layouts[at]));
                busy[at].push(taken);
            }
        }
    }
    let metric = if mode == Mode::Short {
        "conn_per_s"
    } else {
        "req_per_s"
    };
    for (at, server) in servers.into_iter().enumerate() {
        let params = [
            ("placement", layouts[at].name().into()),
            ("work_ns", work_ns.into()),
        ];
        report.median(metric, &rates[at], "1/s", &params);
        for (thread, of) in [
            ("shards", (|b: &Busy| b.shards_ns) as fn(&Busy) -> f64),
            ("polling", |b: &Busy| b.polling_ns),
        ] {
            let each: Vec<f64> = busy[at].iter().map(of).collect();
            let mut params = params.to_vec();
            params.extend([("thread", thread.into()), ("of", metric.into())]);
            report.median("busy_ns", &each, "ns", &params);
        }
        let bad = server.plan.counts().bad() + server.quiesce(held);
        report.row("bad_answers", bad as f64, "count", &params);
        server.stop();
    }
    let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(c, s)| c / s).collect();
    let params = [("of", metric.into()), ("work_ns", work_ns.into())];
    report.median("combined_over_split", &ratios, "ratio", &params);
    let times = busy[1].iter().zip(&busy[0]);
    let ratios: Vec<f64> = times.map(|(s, c)| s.all_ns() / c.all_ns()).collect();
    let params = [&[("of", "split_over_combined".into())], &params[1..]].concat();
    let params = [&params[..], &[("what", metric.into())]].concat();
    report.median("relation", &ratios, "ratio", &params);
}

/// Computes for a while on each request, and sends it back.
async fn echo(stream: TcpStream, work: Duration) {
    while let Ok(Some(piece)) = stream.recv().await {
        if !work.is_zero() {
            let begin = Instant::now();
            while begin.elapsed() < work {
                std::hint::spin_loop();
            }
        }
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
}
