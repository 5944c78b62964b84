//! What an idle connection costs in memory: the growth of resident memory divided by the connections, each used once
//! and then left open. The parts are what the stack, the executor and the pools say they hold; that they add up to
//! what the kernel counts is checked. `placement=engine` is the TCP engine alone, without runtime and tasks; `ip=6` is a
//! connection over IPv6, whose addresses take more.

mod support;

use janus_tcp::MemoryReport;
use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::far::App;
use support::far::packet::Ends;
use support::far::plan::Plan;
use support::memory;
use support::report::{Report, Value};
use support::served::{BODY, Layout, Server};

/// The parts must add up to the growth of resident memory within this share of it.
const PARTS_WITHIN: f64 = 0.05;
/// For what was delayed to come to rest, and the toucher to finish its last chunk.
const REST: Duration = Duration::from_millis(500);

fn main() {
    let scale = Scale::get();
    let conn_counts: &[u32] = scale.pick(&[10_000], &[1_000_000], &[1_000_000, 10_000_000]);
    let mut report = Report::new("idle_memory");
    for &conns in conn_counts {
        served(&mut report, Ends::default(), App::Echo, conns);
        served(&mut report, Ends::default(), App::http(BODY), conns);
        served(&mut report, Ends::over_six(), App::Echo, conns);
        engine(&mut report, conns);
    }
    report.finish();
}

/// What is in memory at a moment.
struct Look {
    resident: u64,
    parts: Parts,
    hot_in_use: usize,
    connections: usize,
}

/// Bytes held, by part.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    tcb: usize,
    table: usize,
    task: usize,
    buffers: usize,
    other: usize,
}

impl Parts {
    fn of(stack: &MemoryReport, buffers: usize, task: usize) -> Self {
        let MemoryReport {
            tcb,
            table,
            hot,
            segments,
            half_open,
            time_wait,
            stubs,
            timers,
        } = *stack;
        Self {
            tcb,
            table,
            task,
            buffers,
            other: hot + segments + half_open + time_wait + stubs + timers,
        }
    }

    fn rows(&self) -> [(&'static str, usize); 5] {
        let Self {
            tcb,
            table,
            task,
            buffers,
            other,
        } = *self;
        [
            ("tcb", tcb),
            ("table", table),
            ("task", task),
            ("buffers", buffers),
            ("other", other),
        ]
    }
}

fn served(report: &mut Report, ends: Ends, app: App, conns: u32) {
    let kind = Held {
        placement: "combined",
        app: app.name(),
        ip: if ends.six { 6 } else { 4 },
        conns,
    };
    let server = Server::start_at(ends, Layout::COMBINED, app, conns);
    let look = || {
        std::thread::sleep(REST);
        let cores = server.reports();
        let core = cores.first().expect("a report of every core");
        Look {
            resident: memory::resident_bytes(),
            parts: Parts::of(&core.memory, core.buffers.committed_bytes, core.task_bytes),
            hot_in_use: core.hot_in_use,
            connections: core.connections,
        }
    };
    let before = look();
    server.open(conns);
    let after = look();
    rows(report, &kind, &before, &after, &server.plan);
    server.stop();
}

fn engine(report: &mut Report, conns: u32) {
    let (mut engine, plan) = Engine::start(conns);
    let look = |engine: &mut Engine| {
        engine.run(REST, |_| false);
        let buffers = engine.stack.pool().depot().stats().committed_bytes;
        Look {
            resident: memory::resident_bytes(),
            parts: Parts::of(&engine.stack.memory(), buffers, engine.task_bytes()),
            hot_in_use: engine.stack.hot_in_use(),
            connections: engine.stack.connections(),
        }
    };
    let before = look(&mut engine);
    engine.open(&plan, conns);
    let after = look(&mut engine);
    let kind = Held {
        placement: "engine",
        app: "echo",
        ip: 4,
        conns,
    };
    rows(report, &kind, &before, &after, &plan);
}

/// Whose rows they are.
struct Held {
    placement: &'static str,
    app: &'static str,
    /// Version of the Internet Protocol.
    ip: u32,
    conns: u32,
}

fn rows(report: &mut Report, kind: &Held, before: &Look, after: &Look, plan: &Plan) {
    let Held {
        placement,
        app,
        ip,
        conns,
    } = *kind;
    assert_eq!(
        after.connections, conns as usize,
        "every connection is there"
    );
    let params = |part: &str| -> [(&'static str, Value); 5] {
        [
            ("part", part.into()),
            ("conns", conns.into()),
            ("app", app.into()),
            ("ip", ip.into()),
            ("placement", placement.into()),
        ]
    };
    let each = |bytes: usize| bytes as f64 / f64::from(conns);
    let total = after.resident.saturating_sub(before.resident) as usize;
    report.row("bytes_per_conn", each(total), "B", &params("total"));
    let mut sum = 0;
    for ((part, now), (_, then)) in after.parts.rows().into_iter().zip(before.parts.rows()) {
        report.row(
            "bytes_per_conn",
            each(now.saturating_sub(then)),
            "B",
            &params(part),
        );
        sum += now.saturating_sub(then);
    }
    let ratio = sum as f64 / total as f64;
    report.row("parts_over_total", ratio, "ratio", &params("total"));
    report.row(
        "hot_in_use",
        after.hot_in_use as f64,
        "count",
        &params("total"),
    );
    report.row(
        "bad_answers",
        plan.counts().bad() as f64,
        "count",
        &params("total"),
    );
    if (ratio - 1.0).abs() > PARTS_WITHIN && Scale::get() != Scale::Smoke {
        eprintln!(
            "the parts do not add up to the total of {total} bytes: {:?}",
            after.parts
        );
    }
}
