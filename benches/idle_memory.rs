//! What an idle connection costs in memory, each used once and then left open, with limits like those by default: the growth of
//! resident memory, as another process reads it, less what the load itself keeps, divided by the connections. Taken at five fills of
//! the flow table within one round of its growth; `max` is the worst. The parts are what the stack, the executor and the pools say they
//! hold; that they add up to what the kernel counts is checked. In the end each connection is used once more: `bad_answers` counts what was
//! not right.
//!
//! `placement=engine` is the TCP engine alone, without runtime and tasks; in `combined` a task waits for each connection, in `rest` none.
//! `ip=6` is a connection over IPv6, whose addresses take more.
//!
//! Arguments name servers (`engine`, `combined`, `rest`), applications (`echo`, `http`), versions (`4`, `6`) and numbers of
//! connections (`100m`, `200m`); all of those kinds of which none is named. `-- rest echo 4 200m` takes 18 GB and five minutes. With a time
//! (`60min`) the connections are used for so long, in an order that is none, and the memory is looked at each minute.

mod support;

use janus_tcp::MemoryReport;
use std::time::Duration;
use support::Scale;
use support::engine::Engine;
use support::far::App;
use support::far::packet::Ends;
use support::far::plan::{Kind, Mode, Phase, Plan};
use support::memory;
use support::report::{Report, Value};
use support::served::{BODY, Layout, Server};

/// The parts must add up to the growth of resident memory within this share of it.
const PARTS_WITHIN: f64 = 0.05;
/// For what was delayed to come to rest, and the toucher to finish its last chunk.
const REST: Duration = Duration::from_millis(500);
/// Looks within one doubling of the table.
const FILLS: u32 = 5;
/// Requests in progress at a time, when each connection is used once more.
const WINDOW: u32 = 256;
/// Longest time without any answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    if let [what, pid] = &named[..]
        && what == memory::OF_ANOTHER
    {
        return memory::print_of(pid);
    }
    let counts: &[u32] = Scale::get().pick(&[10_000], &[1_000_000], &[1_000_000, 10_000_000]);
    let mut report = Report::new("idle_memory");
    for conns in Scale::named_or(counts) {
        for kind in kinds().filter(|kind| kind.is_wanted(&named)) {
            let Held { placement, app, ip } = kind;
            report.progress(&format!("{conns} by {placement}, {app}, IPv{ip}"));
            kind.measure(&mut report, conns);
        }
    }
    report.finish();
}

/// What holds the connections, and over which version of the Internet Protocol.
#[derive(Clone, Copy)]
struct Held {
    placement: &'static str,
    app: &'static str,
    ip: u32,
}

fn kinds() -> impl Iterator<Item = Held> {
    let servers = [
        ("engine", "echo"),
        ("combined", "echo"),
        ("combined", "http"),
        ("rest", "echo"),
        ("rest", "http"),
    ];
    servers
        .into_iter()
        .flat_map(|(placement, app)| [4, 6].map(|ip| Held { placement, app, ip }))
}

/// What is in memory at a moment.
struct Look {
    /// Of the whole process, as another reads it.
    resident: u64,
    /// Of the load generator.
    load: u64,
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

/// Something that holds connections.
trait Holder {
    fn plan(&self) -> &Plan;
    /// Opens connections, as many as there are then.
    fn open(&mut self, conns: u32);
    /// Goes on until this many requests have ended since, or nothing does.
    fn until_ended(&mut self, all: u64);
    /// Goes on for a while.
    fn go_on(&mut self, time: Duration);
    fn look(&mut self) -> Look;
}

struct Whole(Server);

impl Holder for Whole {
    fn plan(&self) -> &Plan {
        &self.0.plan
    }

    fn open(&mut self, conns: u32) {
        self.0.open(conns);
    }

    fn until_ended(&mut self, all: u64) {
        let mut ended = 0;
        while ended < all {
            let more = |counts: &support::far::plan::Counts| counts.get(Kind::Ended) > ended;
            if !self.0.wait(PATIENCE, more) {
                return;
            }
            ended = self.0.plan.counts().get(Kind::Ended);
        }
    }

    fn go_on(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn look(&mut self) -> Look {
        std::thread::sleep(REST);
        let cores = self.0.reports();
        let core = cores.first().expect("a report of every core");
        Look {
            resident: memory::resident_seen_by_another(),
            load: self.0.plan.held_bytes(),
            parts: Parts::of(&core.memory, core.buffers.committed_bytes, core.task_bytes),
            hot_in_use: core.hot_in_use,
            connections: core.connections,
        }
    }
}

struct Bare {
    engine: Engine,
    plan: std::sync::Arc<Plan>,
}

impl Holder for Bare {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn open(&mut self, conns: u32) {
        self.engine.open(&self.plan, conns);
    }

    fn until_ended(&mut self, all: u64) {
        let plan = &self.plan;
        let limit = Duration::from_secs(900);
        self.engine
            .run(limit, |_| plan.counts().get(Kind::Ended) >= all);
    }

    fn go_on(&mut self, time: Duration) {
        self.engine.run(time, |_| false);
    }

    fn look(&mut self) -> Look {
        self.engine.run(REST, |_| false);
        let buffers = self.engine.stack.pool().depot().stats().committed_bytes;
        Look {
            resident: memory::resident_seen_by_another(),
            load: self.plan.held_bytes(),
            parts: Parts::of(
                &self.engine.stack.memory(),
                buffers,
                self.engine.task_bytes(),
            ),
            hot_in_use: self.engine.stack.hot_in_use(),
            connections: self.engine.stack.connections(),
        }
    }
}

impl Held {
    fn is_wanted(&self, named: &[String]) -> bool {
        let ip = self.ip.to_string();
        let wants = |name: &str, of: [&str; 3]| {
            let some = named.iter().any(|named| of.contains(&named.as_str()));
            !some || named.iter().any(|named| named == name)
        };
        wants(self.placement, ["engine", "combined", "rest"])
            && wants(self.app, ["echo", "http", ""])
            && wants(&ip, ["4", "6", ""])
    }

    fn params(&self, conns: u32, part: &str) -> Vec<(&'static str, Value)> {
        vec![
            ("part", part.into()),
            ("conns", conns.into()),
            ("app", self.app.into()),
            ("ip", self.ip.into()),
            ("placement", self.placement.into()),
        ]
    }

    fn measure(&self, report: &mut Report, conns: u32) {
        let ends = match self.ip {
            6 => Ends::over_six(),
            _ => Ends::default(),
        };
        let app = match self.app {
            "http" => App::http(BODY),
            _ => App::Echo,
        };
        match self.placement {
            "engine" => {
                let (engine, plan) = Engine::start_at(ends, conns);
                self.rows(report, conns, &mut Bare { engine, plan });
            }
            placement => {
                let start = match placement {
                    "rest" => Server::start_resting,
                    _ => Server::start_at,
                };
                let mut server = Whole(start(ends, Layout::COMBINED, app, conns));
                self.rows(report, conns, &mut server);
                server.0.stop();
            }
        }
    }

    fn rows(&self, report: &mut Report, conns: u32, holder: &mut dyn Holder) {
        let before = holder.look();
        let mut totals = Vec::new();
        for fill in (0..FILLS).rev() {
            // The last is all of them.
            let share = 0.5f64.powf(f64::from(fill) / f64::from(FILLS));
            let conns = (f64::from(conns) * share) as u32;
            holder.open(conns);
            let now = holder.look();
            assert_eq!(now.connections, conns as usize, "every connection is there");
            totals.push(self.row(report, conns, &before, &now));
        }
        let params = self.params(conns, "total");
        report.median("bytes_per_conn_at_fills", &totals, "B", &params);
        let answered = speak_to_all(holder, conns);
        report.row("answered", answered as f64, "count", &params);
        self.soak(report, conns, &before, holder);
        let bad = holder.plan().counts().bad();
        report.row("bad_answers", bad as f64, "count", &params);
    }

    /// Uses the connections for as many minutes as an argument says.
    fn soak(&self, report: &mut Report, conns: u32, before: &Look, holder: &mut dyn Holder) {
        let minutes = |name: String| name.strip_suffix("min")?.parse::<u32>().ok();
        let Some(minutes) = std::env::args().find_map(minutes) else {
            return;
        };
        let first = holder.plan().counts().get(Kind::Ended);
        use_all(holder.plan(), conns);
        let mut each = Vec::new();
        for _ in 0..minutes {
            holder.go_on(Duration::from_secs(60));
            let grown = holder.look().resident.saturating_sub(before.resident);
            each.push(grown as f64 / f64::from(conns));
        }
        let made = holder.plan().counts().get(Kind::Ended) - first;
        rest_all(holder.plan(), conns);
        holder.go_on(REST);
        let params = self.params(conns, "total");
        report.median("bytes_per_conn_in_use", &each, "B", &params);
        report.row("requests", made as f64, "count", &params);
    }

    /// Reports what is held beyond `before`; returns the bytes of a connection.
    fn row(&self, report: &mut Report, conns: u32, before: &Look, now: &Look) -> f64 {
        let each = |bytes: u64| bytes as f64 / f64::from(conns);
        let grown = now.resident.saturating_sub(before.resident);
        // Touched before the first connection.
        let load = now.load;
        assert_eq!(load, before.load, "the load has room from the beginning");
        let total = grown;
        report.row(
            "bytes_per_conn",
            each(total),
            "B",
            &self.params(conns, "total"),
        );
        report.row(
            "bytes_per_conn",
            each(load),
            "B",
            &self.params(conns, "load"),
        );
        let resident = self.params(conns, "process");
        report.row("resident", now.resident as f64, "B", &resident);
        let mut sum = 0;
        for ((part, now), (_, then)) in now.parts.rows().into_iter().zip(before.parts.rows()) {
            let more = now.saturating_sub(then) as u64;
            report.row("bytes_per_conn", each(more), "B", &self.params(conns, part));
            sum += more;
        }
        let ratio = sum as f64 / total as f64;
        let params = self.params(conns, "total");
        report.row("parts_over_total", ratio, "ratio", &params);
        report.row("hot_in_use", now.hot_in_use as f64, "count", &params);
        if (ratio - 1.0).abs() > PARTS_WITHIN && Scale::get() != Scale::Smoke {
            eprintln!(
                "the parts do not add up to the total of {total} bytes: {:?}",
                now.parts
            );
        }
        each(total)
    }
}

/// Uses each connection once more; how many answered.
fn speak_to_all(holder: &mut dyn Holder, conns: u32) -> u64 {
    let before = holder.plan().counts().get(Kind::Ended);
    use_all(holder.plan(), conns);
    // In turn: none has been used twice before all have once.
    holder.until_ended(before + u64::from(conns));
    let answered = holder.plan().counts().get(Kind::Ended) - before;
    rest_all(holder.plan(), conns);
    holder.go_on(REST);
    answered
}

fn use_all(plan: &Plan, conns: u32) {
    plan.set(Phase {
        mode: Mode::Requests,
        window: WINDOW.min(conns / 2),
        held: conns,
    });
}

fn rest_all(plan: &Plan, conns: u32) {
    plan.set(Phase {
        mode: Mode::Idle,
        window: 0,
        held: conns,
    });
}
