//! Instructions that the engine takes for a short connection (handshake, 64 bytes each way, FIN both ways), an echo request, and a
//! segment of a stream in and out, over IPv4 and IPv6, with the application's calls and without the far end; and the balancer for the
//! look-up of a packet's owner, before any update and after one. Counted by valgrind, where it is installed, under a time that goes on
//! by the same step each turn, with fixed secrets and seeds: the same source and compiler give the same figures. Beside them bytes of
//! an idle connection and of its task, as the stack and the executor count them.
//!
//! `instructions/` has the figures of the last change that meant to change them, in a file for each compiler. `JANUS_GUARD=1` fails
//! when one differs by more than one in a hundred; a compiler without a file only prints. `JANUS_WRITE=1` writes the file anew, and
//! `docs/performance.svg`, the budgets by stage.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use janus_csb::{Balancer, FlowId, IoEnd, Limits, Phase as Update, Ring, ShardId};
use janus_mem::Growth;
use janus_wire::FlowKey;
use support::Scale;
use support::clock::Clock;
use support::engine::Engine;
use support::far::App;
use support::far::packet::Ends;
use support::far::plan::{Kind, Mode, Phase};
use support::fleet::{Fleet, Hash, PORT, tuple};
use support::report::Report;
use support::served::{BODY, Layout, Server};
use support::stages;
use support::stream::{Dir, Streams};
use support::valgrind;

const WORK: [&str; 10] = [
    "short",
    "short_six",
    "echo",
    "echo_six",
    "bulk_in",
    "bulk_in_six",
    "bulk_out",
    "bulk_out_six",
    "csb_lookup",
    "csb_lookup_after_update",
];
/// Units of a run: the difference of the two is counted, so that the start is not.
const COUNTED: [u64; 2] = [2_000, 12_000];
/// Connections and requests at a time.
const WINDOW: u32 = 64;
/// Connections over which memory is divided. It grows by pieces of 2 MiB, which are two bytes of each.
const CONNECTIONS: u32 = 1_000_000;
/// Bytes of which the sizes of tasks are multiples.
const GRANULE: usize = 8;
/// The balancer of the paper's Table III.
const SHARDS: usize = 16;
const POINTS: u16 = 16;
const SEED: u32 = 1;
/// Flows that are held when its ring changes.
const FLOWS: usize = 10_000;
/// Packets that an I/O core looks up at a time.
const BURST: usize = 64;
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions");
/// Budgets by stage, drawn.
const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/performance.svg");
/// Share by which a figure may differ.
const TOLERANCE: f64 = 0.01;

/// Name and value.
type Figure = (&'static str, f64);

fn main() {
    if valgrind::is_counted(|what, units| run(&what[0], units)) {
        return;
    }
    let mut report = Report::new("instructions");
    let mut figures = bytes(&mut report);
    let mut budgets = Vec::new();
    for work in WORK {
        if Scale::get() == Scale::Smoke {
            assert!(run(work, 100) >= 100);
            continue;
        }
        let counted = COUNTED.map(|units| valgrind::counted(&[work.into()], units));
        let [Some(few), Some(many)] = counted else {
            eprintln!("no instructions are counted: valgrind is not there");
            report.finish();
            return;
        };
        let each = valgrind::between(&few, &many);
        report.row("instructions", each, "count", &[("work", work.into())]);
        figures.push((work, each));
        if !work.starts_with("csb") {
            budgets.push((work, each, stages::shares(&many.0.profile)));
        }
    }
    for (work, each, shares) in &budgets {
        for (share, (stage, _)) in shares.iter().zip(stages::STAGES) {
            let params = [("work", (*work).into()), ("stage", stage.into())];
            report.row("instructions_of_stage", share * each, "count", &params);
        }
    }
    report.finish();
    if Scale::get() == Scale::Smoke {
        return;
    }
    let Some(record) = record() else {
        eprintln!("nothing is compared: rustc does not say its version");
        return;
    };
    if set("JANUS_WRITE") {
        let lines = figures
            .iter()
            .map(|(name, value)| format!("{name}\t{value:.2}\n"));
        let written = std::fs::create_dir_all(RECORDS);
        written
            .and_then(|()| std::fs::write(&record, lines.collect::<String>()))
            .and_then(|()| std::fs::write(PICTURE, stages::draw(&budgets)))
            .expect("the record is written");
    }
    if set("JANUS_GUARD") {
        guard(&figures, &record);
    }
}

fn set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "1")
}

/// The file of the compiler in use.
fn record() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("-vV").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    let (release, host) = (line("release: ")?, line("host: ")?);
    Some(Path::new(RECORDS).join(format!("{release}-{host}.tsv")))
}

/// Fails when a figure differs from the one recorded.
fn guard(figures: &[Figure], record: &Path) {
    let Ok(text) = std::fs::read_to_string(record) else {
        println!("nothing is compared: there is no {}", record.display());
        return;
    };
    let lines: Vec<(&str, f64)> = text
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect();
    let mut different = Vec::new();
    for &(name, now) in figures {
        let recorded = lines.iter().find(|(recorded, _)| *recorded == name);
        let Some(&(_, before)) = recorded else {
            different.push(format!("{name} is {now:.2} and was not recorded"));
            continue;
        };
        if (now - before).abs() > before * TOLERANCE {
            different.push(format!("{name} was {before:.2} and is {now:.2}"));
        }
    }
    assert!(
        different.is_empty(),
        "{}\nmend it, or say why and write the record with JANUS_WRITE=1: {}",
        different.join("\n"),
        record.display()
    );
}

/// Does so much and a little more; how much it was.
fn run(work: &str, units: u64) -> u64 {
    let (work, ends) = match work.strip_suffix("_six") {
        Some(work) => (work, Ends::over_six()),
        None => (work, Ends::default()),
    };
    match work {
        "short" => exchange(ends, Mode::Short, units),
        "echo" => exchange(ends, Mode::Requests, units),
        "bulk_in" => stream(ends, Dir::Rx { lent: false }, units),
        "bulk_out" => stream(ends, Dir::Tx, units),
        "csb_lookup" => {
            let mut balancer = Balancer::new(ring(), Limits::default());
            look_up(&balancer.io_end(), units)
        }
        "csb_lookup_after_update" => look_up(&updated().io, units),
        other => panic!("no work is named {other}"),
    }
}

fn exchange(ends: Ends, mode: Mode, units: u64) -> u64 {
    let held = if mode == Mode::Requests { WINDOW } else { 0 };
    let (mut engine, plan) = Engine::start_at(ends, held);
    engine.clock = Clock::Turns(0);
    engine.open(&plan, held);
    let opened = plan.counts();
    plan.set(Phase {
        mode,
        window: WINDOW,
        held,
    });
    let done = || plan.counts().since(&opened).get(Kind::Ended);
    while done() < units {
        engine.turn();
    }
    assert_eq!(plan.counts().bad(), 0, "{:?}", plan.counts());
    done()
}

fn stream(ends: Ends, dir: Dir, segments: u64) -> u64 {
    let mut streams = Streams::new_at(ends, 1);
    streams.clock = Clock::Turns(0);
    streams.open();
    let payload = streams.payload() as u64;
    while streams.app.bytes < segments * payload {
        streams.turn(dir);
    }
    assert_eq!(streams.app.wrong, 0);
    streams.app.bytes / payload
}

fn ring() -> Ring {
    Ring::uniform(SHARDS, POINTS, SEED)
}

/// Builds shards whose ring changes while they hold flows.
fn updated() -> Fleet {
    let balancer = Balancer::new(ring(), Limits::default());
    let mut fleet = Fleet::new(balancer, SHARDS, FLOWS).expect("memory for the flows");
    fleet.open(FLOWS);
    let next = Ring::uniform(SHARDS, POINTS, SEED + 1);
    fleet
        .balancer
        .begin(|draft| draft.set_ring(next))
        .expect("it is the first update");
    while fleet.turn(FLOWS, &mut |_, work| work()) != Update::Idle {}
    fleet
}

/// Looks up the owners of so many bursts, each of other packets.
fn look_up(io: &IoEnd, bursts: u64) -> u64 {
    let hash = Hash::new();
    let flows: Vec<FlowKey> = (0..FLOWS as u64).map(|n| FlowKey::V4(tuple(n))).collect();
    let keys: Vec<u32> = flows.iter().map(|flow| hash.key(flow)).collect();
    let all = flows.chunks_exact(BURST).zip(keys.chunks_exact(BURST));
    for (flows, keys) in all.cycle().take(bursts as usize) {
        counted_turn_of_look_ups(io, keys, |i| hash.id(&flows[i]));
    }
    bursts * BURST as u64
}

/// Looks up one burst; [`valgrind`] counts it by its name, which nothing that it calls may have.
#[inline(never)]
fn counted_turn_of_look_ups(io: &IoEnd, keys: &[u32], id_of: impl Fn(usize) -> FlowId) {
    let mut owners = [ShardId(0); BURST];
    let tags = io.look_up_batch(keys, &[PORT; BURST], id_of, &mut owners);
    std::hint::black_box((owners, tags));
}

/// Bytes of an idle connection and of its task.
fn bytes(report: &mut Report) -> Vec<Figure> {
    let conns = Scale::get().pick(1_000, CONNECTIONS, CONNECTIONS);
    let figures = [
        ("bytes_of_connection", connection(Ends::default(), conns)),
        (
            "bytes_of_connection_six",
            connection(Ends::over_six(), conns),
        ),
        ("bytes_of_echo_task", task(App::Echo, conns)),
        ("bytes_of_http_task", task(App::http(BODY), conns)),
    ];
    for (of, bytes) in figures {
        report.row("bytes", bytes, "B", &[("of", of.into())]);
    }
    figures.to_vec()
}

/// Bytes of the stack's records and table for each of so many connections. The stack grows them itself: a thread that does it ahead
/// is late in one run and not in another.
fn connection(ends: Ends, conns: u32) -> f64 {
    let (mut engine, plan) = Engine::start_growing(ends, conns, &Growth::Inline);
    engine.clock = Clock::Turns(0);
    let held = |engine: &Engine| {
        let memory = engine.stack.memory();
        memory.tcb + memory.table
    };
    let before = held(&engine);
    engine.open(&plan, conns);
    (held(&engine) - before) as f64 / f64::from(conns)
}

/// Bytes of the executor for each of so many connections, in whole granules: beyond them is the rest of a piece that a thread grew
/// ahead.
fn task(app: App, conns: u32) -> f64 {
    let server = Server::start(Layout::COMBINED, app, conns);
    let held = || server.reports()[0].task_bytes;
    let before = held();
    server.open(conns);
    let bytes = (held() - before) / conns as usize;
    server.stop();
    (bytes - bytes % GRANULE) as f64
}
