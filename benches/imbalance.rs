//! Work that is not even, over many cores, in the form of PIKA's figures 5 and 7 to 10: how long connections are served, and wait, by each
//! way of sharing them out. Real shards, stacks, balancer and moves, in virtual time on one thread (`janus::lockstep`), so that a machine of
//! two processors shows what eight cores do; a run is a function of its seed. Each core has one application, which serves one connection
//! after another (`takes=waits`: elsewhere, its core's loop goes on; `takes=computes`: the loop stands still).
//!
//! `service` is the time from the handshake's end to that of the connection, `response` that from the moment at which the connection was to
//! begin; `q` is the percentile, or one connection in `one_in`. `knee` is the percentile from which on service takes more than ten times its median. `case` says what is
//! uneven; `second` is the mean of what ended in that second, as a case changes at the fifth. The ways with PIKA's names are that paper's;
//! `one_queue` is what could be had at best: one queue for all cores, each of which takes the next connection when it is free, and nothing
//! else takes time (reckoned, not run). Arguments name cases, and ways.

#[path = "support/crowd.rs"]
mod crowd;
mod support;

use std::net::SocketAddr;
use std::time::Duration;

use crowd::{Crowd, Plan, Served};
use janus::balance::{Policy, SpeculativeAccept};
use janus::lockstep::{Layout, WholeRuntime, compute};
use janus::net::{TcpListener, TcpStream};
use janus::{Builder, time};
use janus_seeds::Random;
use janus_tcp::Instant;
use support::Scale;
use support::plot::{Line, Plot};
use support::report::{Report, Value};

const SHARDS: usize = 8;
/// Work that a connection asks for, as a rule.
const WORK: Duration = Duration::from_millis(1);
/// Part of what the cores can serve that is asked for.
const LOAD: f64 = 0.6;
/// Time before connections count.
const WARM: Duration = Duration::from_secs(1);
/// When a case that changes does so.
const CHANGES: Duration = Duration::from_secs(5);
/// Cores that are slow, and by how much; and those to which most clients go.
const SLOW: usize = 2;
const SLOWNESS: u32 = 4;
/// In the cases in which one core of four is held up, half of this is lost to it.
const PERIOD: Duration = Duration::from_millis(100);
const PERCENTILES: [f64; 6] = [50.0, 90.0, 99.0, 99.5, 99.9, 100.0];
const KNEE: f64 = 10.0;
const SEED: u64 = 11;

/// A kind of unevenness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Nothing.
    Even,
    /// One connection in a hundred asks for a hundred times the work.
    Elephants,
    /// Two of the cores take four times as long, from the fifth second on.
    SlowHandlers,
    /// Half of the connections have addresses that lead to two of the cores.
    SkewedClients,
    /// One core takes a fifth longer, and work is as uneven as files are.
    WebServer,
    /// One acceptor of four takes nothing for 50 ms in every 100, while its core goes on.
    AcceptorAway,
    /// The loop of one core of four stands still for 50 ms in every 100.
    LoopBlocked,
}

const CASES: [(&str, Case); 7] = [
    ("even", Case::Even),
    ("elephants", Case::Elephants),
    ("slow_handlers", Case::SlowHandlers),
    ("skewed_clients", Case::SkewedClients),
    ("web_server", Case::WebServer),
    ("acceptor_away", Case::AcceptorAway),
    ("loop_blocked", Case::LoopBlocked),
];

/// A way of sharing connections out.
type Way = (&'static str, fn(Builder) -> Builder);

const WAYS: [Way; 10] = [
    ("hash", |builder| builder),
    ("queue", |builder| builder.balance(Policy::Queue)),
    ("service", |builder| builder.balance(Policy::Service)),
    ("speculative", |builder| {
        builder.speculative_accept(SpeculativeAccept::On)
    }),
    ("speculative+service", |builder| {
        let builder = builder.balance(Policy::Service);
        builder.speculative_accept(SpeculativeAccept::On)
    }),
    ("naive", |builder| {
        builder.speculative_accept(SpeculativeAccept::Naive)
    }),
    ("unfiltered_2", |builder| {
        builder.speculative_accept(SpeculativeAccept::Unfiltered2)
    }),
    ("unfiltered_100", |builder| {
        builder.speculative_accept(SpeculativeAccept::Unfiltered100)
    }),
    ("filtered_2", |builder| {
        builder.speculative_accept(SpeculativeAccept::Filtered2)
    }),
    ("tournament_2", |builder| {
        builder.speculative_accept(SpeculativeAccept::Tournament2)
    }),
];

impl Case {
    fn shards(self) -> usize {
        match self {
            Case::AcceptorAway | Case::LoopBlocked => 4,
            _ => SHARDS,
        }
    }

    /// Connections that all cores together serve in a second.
    fn capacity(self) -> f64 {
        let each = 1.0 / WORK.as_secs_f64();
        let slow = f64::from(SLOWNESS);
        let cores = match self {
            Case::SlowHandlers => (SHARDS - SLOW) as f64 + SLOW as f64 / slow,
            Case::Elephants => SHARDS as f64 / 1.99,
            Case::WebServer => SHARDS as f64 - 1.0 + 1.0 / 1.2,
            Case::Even | Case::SkewedClients => SHARDS as f64,
            // Three and a half cores, of which half is asked for.
            Case::AcceptorAway | Case::LoopBlocked => 3.0,
        };
        cores * each
    }

    /// Factor by which a core takes longer now.
    fn slowness(self, core: usize, since: Duration) -> f64 {
        match self {
            Case::SlowHandlers if core < SLOW && since >= CHANGES => f64::from(SLOWNESS),
            Case::WebServer if core == 0 => 1.2,
            _ => 1.0,
        }
    }
}

/// Connections by chance at a mean rate.
struct Clients {
    case: Case,
    mean: Duration,
    /// The core that a tuple's hash leads to, in the first ring.
    owner: Option<Box<dyn Fn(SocketAddr) -> usize>>,
}

impl Clients {
    fn new(case: Case) -> Clients {
        Clients {
            case,
            mean: Duration::from_secs(1).div_f64(case.capacity() * LOAD),
            owner: None,
        }
    }
}

impl Plan for Clients {
    fn next(&mut self, random: &mut Random) -> (Duration, Duration) {
        let mut unit = || -> f64 { (random.bits() >> 11) as f64 / (1u64 << 53) as f64 };
        let gap = self.mean.mul_f64(-(1.0 - unit()).ln());
        let work = match self.case {
            Case::Elephants if unit() < 0.01 => WORK * 100,
            // Mean 1, with a long tail as sizes of files have it.
            Case::WebServer => WORK.mul_f64(0.5 * (1.0 - unit()).powf(-0.5).min(40.0)),
            _ => WORK,
        };
        (gap, work)
    }

    fn wants(&mut self, from: SocketAddr, random: &mut Random) -> bool {
        let Some(owner) = &self.owner else {
            return true;
        };
        // Half anywhere, half at the first two: two of eight have five eighths.
        self.case != Case::SkewedClients || owner(from) < SLOW || random.below(5) < 3
    }
}

/// How a core does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Waits,
    Computes,
}

async fn work(takes: Takes, time: Duration) {
    match takes {
        Takes::Waits => time::sleep(time).await,
        Takes::Computes => compute(time).await,
    }
}

async fn serve(stream: TcpStream, case: Case, takes: Takes, start: Instant) {
    let mut asked = [0; 8];
    if stream.read_exact(&mut asked).await.is_err() {
        return;
    }
    let core = janus::core_id().expect("a core");
    let slowness = case.slowness(core, time::now().saturating_since(start));
    work(
        takes,
        Duration::from_nanos(u64::from_le_bytes(asked)).mul_f64(slowness),
    )
    .await;
    let _ = stream.write_all(b"!").await;
}

/// The main of each core: one connection after another.
async fn main_of_core(case: Case, takes: Takes) -> janus::Result {
    let listener = TcpListener::bind("0.0.0.0:80").await?;
    let start = time::now();
    let first = janus::core_id() == Some(0);
    if first && case == Case::LoopBlocked {
        drop(janus::spawn(async {
            loop {
                compute(PERIOD / 2).await;
                time::sleep(PERIOD / 2).await;
            }
        }));
    }
    loop {
        if first && case == Case::AcceptorAway {
            let into = Duration::from_nanos(time::now().as_nanos() % PERIOD.as_nanos() as u64);
            let left = (PERIOD / 2).saturating_sub(into);
            let Ok(incoming) = time::timeout(left, listener.accept()).await else {
                time::sleep(PERIOD / 2).await;
                continue;
            };
            serve(incoming?.0, case, takes, start).await;
            continue;
        }
        let (stream, _) = listener.accept().await?;
        serve(stream, case, takes, start).await;
    }
}

fn main() {
    let scale = Scale::get();
    let time = scale.pick(
        Duration::from_millis(200),
        Duration::from_secs(4),
        Duration::from_secs(20),
    );
    let mut report = Report::new("imbalance");
    let named = |name: &str| std::env::args().any(|arg| arg == name);
    let any_case = CASES.iter().any(|(name, _)| named(name));
    let any_way = WAYS.iter().any(|(name, _)| named(name));
    for (case_name, case) in CASES {
        if any_case && !named(case_name) {
            continue;
        }
        let whole = [("case", case_name.into()), ("way", "one_queue".into())];
        one_queue(&mut report, &whole, case, time);
        for way in WAYS {
            if any_way && !named(way.0) {
                continue;
            }
            for (takes_name, takes) in [("waits", Takes::Waits), ("computes", Takes::Computes)] {
                let params = [
                    ("case", case_name.into()),
                    ("way", way.0.into()),
                    ("takes", takes_name.into()),
                ];
                one_run(&mut report, &params, (case, way, takes), time);
            }
        }
    }
    for (file, case, title) in DRAWN {
        draw(&report, file, case, title);
    }
    report.finish();
}

/// Cases that are drawn, as PIKA's figures 7 to 10 have it: their file, name and title.
const DRAWN: [(&str, &str, &str); 3] = [
    (
        "tail_elephants",
        "elephants",
        "One connection in 100 asks for 100 times the work",
    ),
    (
        "tail_web_server",
        "web_server",
        "Work as uneven as files, one core a fifth slower",
    ),
    (
        "tail_acceptor_away",
        "acceptor_away",
        "One acceptor of four is away for half of the time",
    ),
];

/// How long the slowest in so many wait, by some of the ways.
fn draw(report: &Report, file: &str, case: &str, title: &str) {
    let ways = [
        ("by hash", "hash"),
        ("PIKA: filtered, 2", "filtered_2"),
        ("PIKA: tournament, 2", "tournament_2"),
        ("offered to who waits", "speculative"),
    ];
    let of = |way: &'static str| vec![("case", case.into()), ("way", way.into())];
    let line = |name, metric, with| Line { name, metric, with };
    let lines = ways.map(|(name, way)| {
        let waits = [("takes", Value::from("waits"))];
        line(name, "response", [&of(way)[..], &waits].concat())
    });
    let best = line("one queue (reckoned)", "service", of("one_queue"));
    Plot {
        file,
        title,
        x: ("one_in", "the slowest of so many connections"),
        y: "ms from beginning to end",
        unit: 1e3,
        lines: lines.into_iter().chain([best]).collect(),
        elsewhere: None,
    }
    .write(report);
}

/// Reckons what could be had at best, of the connections of this case.
fn one_queue(report: &mut Report, params: &[(&'static str, Value)], case: Case, time: Duration) {
    let (mut clients, mut random) = (Clients::new(case), Random::new(SEED));
    let mut free_at = vec![Duration::ZERO; case.shards()];
    let (mut at, mut asks) = (Duration::ZERO, Duration::ZERO);
    let mut times = Vec::new();
    while at < WARM + time {
        let soonest = |core: &usize| free_at[*core].max(at);
        let core = (0..free_at.len()).min_by_key(soonest).expect("a core");
        let begins = free_at[core].max(at);
        free_at[core] = begins + asks.mul_f64(case.slowness(core, begins));
        if at >= WARM {
            times.push((free_at[core] - at).as_nanos() as f64 / 1e3);
        }
        let (gap, next) = clients.next(&mut random);
        (at, asks) = (at + gap, next);
    }
    percentiles(report, "service", times, params);
}

/// Reports percentiles, and of service the knee.
fn percentiles(
    report: &mut Report,
    metric: &str,
    mut times: Vec<f64>,
    params: &[(&'static str, Value)],
) {
    times.sort_by(f64::total_cmp);
    for q in PERCENTILES {
        let at = ((times.len() as f64 * q / 100.0) as usize).min(times.len() - 1);
        let one_in = (100.0 / (100.0 - q)).round();
        let of = [("q", q.into()), ("one_in", one_in.into())];
        // Of the longest there is one at all.
        let of = &of[..if one_in.is_finite() { 2 } else { 1 }];
        report.row(metric, times[at], "us", &[params, of].concat());
    }
    if metric == "service" {
        let median = times[times.len() / 2];
        let below = times.partition_point(|time| *time <= KNEE * median);
        let knee = 100.0 * below as f64 / times.len() as f64;
        report.row("knee", knee, "%", params);
    }
}

fn one_run(
    report: &mut Report,
    params: &[(&'static str, Value)],
    (case, way, takes): (Case, Way, Takes),
    time: Duration,
) {
    let layout = Layout {
        shards: case.shards(),
        io_cores: 0,
    };
    let configure = |builder: Builder| {
        let builder = builder.warn_blocked(Duration::from_millis(10));
        (way.1)(builder.backlog(4_096))
    };
    let main = || main_of_core(case, takes);
    let mut world = WholeRuntime::calm(7, layout, configure, main, |end| {
        Crowd::new(SEED, end, Clients::new(case))
    });
    let start = world.now();
    world.peer.begins(start, start + WARM + time);
    world.peer.plan().owner = Some(Box::new(world.owners()));
    world.pass_calmly(start + WARM + time);
    let unfinished = world.peer.live();
    // Those that wait still belong to the times that are asked about.
    let mut left = 100;
    while world.peer.live() > 0 && left > 0 {
        left -= 1;
        let until = world.now() + Duration::from_millis(100);
        world.pass_calmly(until);
    }
    let served = std::mem::take(&mut world.peer.served);
    let counted = served.iter().filter(|one| one.meant >= start + WARM);
    let counted: Vec<Served> = counted.copied().collect();
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    let of_service = |one: &Served| us(one.ended.saturating_since(one.connected));
    let of_response = |one: &Served| us(one.ended.saturating_since(one.meant));
    let each = |of: &dyn Fn(&Served) -> f64| counted.iter().map(of).collect();
    percentiles(report, "service", each(&of_service), params);
    percentiles(report, "response", each(&of_response), params);
    for second in 0..(WARM + time).as_secs() {
        let from = start + Duration::from_secs(second);
        let within = |one: &&Served| {
            one.ended.saturating_since(from) < Duration::from_secs(1) && one.ended >= from
        };
        let times: Vec<f64> = served.iter().filter(within).map(of_service).collect();
        let params = [params, &[("second", second.into())]].concat();
        report.row(
            "service_mean",
            times.iter().sum::<f64>() / times.len().max(1) as f64,
            "us",
            &params,
        );
    }
    let offers = world.offers();
    for (metric, count) in [
        ("served", served.len() as u64),
        ("unfinished", unfinished as u64),
        ("failed", world.peer.failed + world.peer.live() as u64),
        ("offered", offers.offered),
        ("claimed", offers.claimed),
        ("returned", offers.returned),
        ("updates", world.updates()),
    ] {
        report.row(metric, count as f64, "count", params);
    }
}
