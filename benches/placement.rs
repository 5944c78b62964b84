//! Split against combined on two processors: one core that polls beside one that does TCP and the application, or two
//! that do everything each (PIKA's figure 11). Short connections, and requests over open ones, with an application that
//! does nothing and one that computes for a while on each request. Both servers stand beside each other and work in
//! turns. What two processors could do is told by what a connection keeps each thread busy: of two equal cores the sum,
//! of two that do different things the one that is busier. `relation` is the time of both threads of split for one thing
//! over that of the cores of combined: what having two threads costs.

mod support;

use std::time::{Duration, Instant};

use janus::CoreReport;
use janus::net::TcpStream;
use support::Scale;
use support::far::App;
use support::far::plan::{Kind, Mode, Phase};
use support::meter::{Meter, thread_cpu};
use support::report::Report;
use support::served::{Layout, Server};

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

/// What one thing keeps each kind of thread busy.
#[derive(Clone, Copy, Debug)]
struct Busy {
    /// All shards together.
    shards_ns: f64,
    /// The thread that polls, if there is one.
    polling_ns: f64,
}

impl Busy {
    /// Time of all threads.
    fn all_ns(self) -> f64 {
        self.shards_ns + self.polling_ns
    }

    /// What two processors do in a second.
    fn per_second(self, layout: Layout) -> f64 {
        let longest = if layout.cores == 2 {
            self.shards_ns / 2.0
        } else {
            self.shards_ns.max(self.polling_ns)
        };
        1e9 / longest
    }
}

fn main() {
    let scale = Scale::get();
    let (rounds, run_ms) = scale.pick((1, 30), (5, 250), (11, 1_000));
    let works: &[u64] = scale.pick(&WORKS_NS[..1], &WORKS_NS, &WORKS_NS);
    let mut report = Report::new("placement");
    for &work_ns in works {
        for mode in [Mode::Short, Mode::Requests] {
            compare(
                &mut report,
                mode,
                work_ns,
                rounds,
                Duration::from_millis(run_ms),
            );
        }
    }
    report.finish();
}

fn compare(report: &mut Report, mode: Mode, work_ns: u64, rounds: usize, time: Duration) {
    let layouts = [TWO_COMBINED, Layout::SPLIT];
    let held = if mode == Mode::Requests { HELD } else { 0 };
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
            let taken = measure(&servers[at], mode, held, time);
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

/// One phase of one server.
fn measure(server: &Server, mode: Mode, held: u32, time: Duration) -> Busy {
    server.plan.set(Phase {
        mode,
        window: WINDOW,
        held,
    });
    std::thread::sleep(time / 8);
    let (before, polled) = (server.reports(), thread_cpu("janus-io"));
    let (meter, begin) = (
        Meter::start(&server.plan, server.layout.threads()),
        Instant::now(),
    );
    std::thread::sleep(time);
    let (reading, wall_ns) = (meter.read(), begin.elapsed().as_nanos() as f64);
    let (after, polled_after) = (server.reports(), thread_cpu("janus-io"));
    server.quiesce(held);
    let ended = reading.ended().max(1.0);
    let inside_ns = reading.counts.get(Kind::InsideNs) as f64;
    let sum = |cores: &[CoreReport]| -> f64 {
        let busy = cores.iter().map(|core| core.turns.busy.as_nanos() as f64);
        busy.sum()
    };
    let shards_ns = sum(&after) - sum(&before);
    // The reports took a moment longer than the reading.
    let shards_ns = shards_ns * reading.wall_ns / wall_ns.max(reading.wall_ns);
    if server.layout.cores == 2 {
        return Busy {
            shards_ns: (shards_ns - inside_ns) / ended,
            polling_ns: 0.0,
        };
    }
    let polling_ns = polled_after.saturating_sub(polled).as_nanos() as f64 - inside_ns;
    Busy {
        shards_ns: shards_ns / ended,
        polling_ns: polling_ns / ended,
    }
}
