//! What an idle connection costs in memory: the growth of resident memory divided by the connections, each used once
//! and then left open. The parts are what the stack, the runtime and the pools say they hold; that they add up to
//! what the kernel counts is checked. `app` is what the server's task does.

mod support;

use janus_tcp::{Config, MemoryReport};
use std::sync::Arc;
use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::far::packet::Ends;
use support::far::plan::{Kind, Mode, Phase, Plan};
use support::far::{App, Far};
use support::memory;
use support::report::Report;

const OPEN_WINDOW: u32 = 1024;
const OPEN_LIMIT: Duration = Duration::from_secs(600);
/// The parts must add up to the growth of resident memory within this share of it.
const PARTS_WITHIN: f64 = 0.05;

fn main() {
    let scale = Scale::get();
    let conn_counts: &[u32] = scale.pick(&[10_000], &[1_000_000], &[1_000_000, 10_000_000]);
    let mut report = Report::new("idle_memory");
    for &conns in conn_counts {
        engine(&mut report, conns);
    }
    report.finish();
}

/// Bytes held, by part.
#[derive(Clone, Copy, Default)]
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
            timers,
        } = *stack;
        Self {
            tcb,
            table,
            task,
            buffers,
            other: hot + segments + half_open + time_wait + timers,
        }
    }

    fn rows(&self) -> [(&'static str, usize); 5] {
        [
            ("tcb", self.tcb),
            ("table", self.table),
            ("task", self.task),
            ("buffers", self.buffers),
            ("other", self.other),
        ]
    }
}

fn engine(report: &mut Report, conns: u32) {
    let plan = Arc::new(Plan::new(1, conns));
    let ends = Ends::default();
    let far = Far::new(ends.clone(), App::Echo, Arc::clone(&plan), 0, conns);
    let config = Config {
        max_connections: conns + 65_536,
        ..Config::default()
    };
    let mut engine =
        Engine::new(far, config, ends.server, 65_536).expect("memory for the benchmark");
    engine.run(Duration::from_millis(200), |_| false);
    let parts_of = |engine: &mut Engine| {
        let buffers = engine.stack.pool().depot().stats().committed_bytes;
        Parts::of(&engine.stack.memory(), buffers, engine.task_bytes())
    };
    let (before, parts_before) = (memory::resident_bytes(), parts_of(&mut engine));
    plan.set(Phase {
        mode: Mode::Open,
        window: OPEN_WINDOW,
        held: conns,
    });
    let opened = engine.run(OPEN_LIMIT, |_| {
        plan.counts().get(Kind::Ended) >= u64::from(conns)
    });
    assert!(
        opened,
        "connections opened: {:?} {:?}",
        plan.counts(),
        engine.stack.counters()
    );
    // Delayed acknowledgements and the like come to rest, the toucher finishes its last chunk.
    engine.run(Duration::from_millis(500), |_| false);
    let total = memory::resident_bytes() - before;
    let parts = parts_of(&mut engine);
    let each = |bytes: usize| bytes as f64 / f64::from(conns);
    let params = |part: &'static str| {
        [
            ("part", part.into()),
            ("conns", conns.into()),
            ("app", "echo".into()),
            ("placement", "engine".into()),
        ]
    };
    report.row(
        "bytes_per_conn",
        total as f64 / f64::from(conns),
        "B",
        &params("total"),
    );
    let mut sum = 0;
    for ((part, after), (_, before)) in parts.rows().into_iter().zip(parts_before.rows()) {
        report.row("bytes_per_conn", each(after - before), "B", &params(part));
        sum += after - before;
    }
    let ratio = sum as f64 / total as f64;
    report.row("parts_over_total", ratio, "ratio", &params("total"));
    report.row(
        "hot_in_use",
        engine.stack.hot_in_use() as f64,
        "count",
        &params("total"),
    );
    report.row(
        "bad_answers",
        plan.counts().bad() as f64,
        "count",
        &params("total"),
    );
    if (ratio - 1.0).abs() > PARTS_WITHIN {
        eprintln!(
            "the parts do not add up to the total: {:?}",
            engine.stack.memory()
        );
    }
}
