//! The thread of the load: the far end between its wire and the clock. When it is done, a file has a line for each round: answers, the
//! nanoseconds of processor time that the process took for them without this thread, those of this thread, those that passed, and how many
//! answers were wrong. A last line has all that were wrong since the
//! beginning, and those that never came, less those that came twice.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus::wire::End;
use janus_io::{Backend, Batch, Queue};
use janus_mem::{Depot, Frame, Growth, Pool};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::settings::Settings;
use crate::support::far::Far;
use crate::support::far::plan::{Counts, Kind, Mode, Phase, Plan};

/// The program has not begun to listen when the thread begins.
const BEGINS_IN: Duration = Duration::from_millis(700);
const WARM: Duration = Duration::from_millis(300);
const OPEN_MAX: Duration = Duration::from_secs(10);
const REST_MAX: Duration = Duration::from_secs(2);
/// Connections that are opened at a time.
const OPEN_WINDOW: u32 = 16;
const BUFFERS: u32 = 8_192;
/// Turns between two looks at the time.
const LOOK_EVERY: usize = 64;

pub(crate) fn begin(settings: Settings, end: End) {
    let thread = std::thread::Builder::new().name("generator".into());
    let begun = thread.spawn(move || {
        let results = settings.results.clone();
        let text = Load::new(&settings, end).measure(&settings);
        // It appears whole.
        let made = results.with_extension("part");
        fs::write(&made, text).expect("a file to write to");
        fs::rename(&made, &results).expect("a file to write to");
    });
    begun.expect("a thread");
}

fn cpu(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Moments of the clocks.
struct Times {
    process: Duration,
    own: Duration,
    wall: Instant,
}

impl Times {
    fn now() -> Times {
        Times {
            process: cpu(ClockId::ProcessCPUTime),
            own: cpu(ClockId::ThreadCPUTime),
            wall: Instant::now(),
        }
    }
}

struct Load {
    plan: Arc<Plan>,
    far: Far,
    queue: Box<dyn Queue>,
    pool: Pool,
    sent: Batch,
    got: Batch,
    held: u32,
}

impl Load {
    fn new(settings: &Settings, end: End) -> Load {
        let mut here = CpuSet::new();
        here.set(settings.processor);
        // A machine with one processor has no other.
        let _stays = sched_setaffinity(None, &here);
        let held = if settings.close {
            0
        } else {
            settings.connections
        };
        let plan = Arc::new(Plan::new(1, held));
        let (ends, app) = (settings.ends.clone(), settings.app.clone());
        let far = Far::new(ends, app, Arc::clone(&plan), 0, held);
        let depot = Depot::new(BUFFERS, &Growth::Inline).expect("memory");
        let mut queues = Box::new(end).open(1).expect("an end of the wire");
        let mut load = Load {
            plan,
            far,
            queue: queues.remove(0),
            pool: depot.pool(),
            sent: Batch::new(),
            got: Batch::new(),
            held,
        };
        // Posts buffers to receive into.
        load.turn();
        load
    }

    fn turn(&mut self) {
        self.queue.rx_burst(&mut self.pool, &mut self.got);
        self.far.take(self.got.iter().map(Frame::data));
        self.got.pull().for_each(|frame| self.pool.free(frame.buf));
        let room = self.sent.room();
        let sent = &mut self.sent;
        self.far.give(&mut self.pool, room, |frame| {
            let refused = sent.push(frame);
            debug_assert!(refused.is_ok(), "no more is given than there is room for");
        });
        // None of these frames is lent.
        self.queue
            .tx_burst(&mut self.pool, &mut self.sent, &mut Batch::new());
    }

    /// Turns until `done`, at most `limit`. Whether it was done.
    fn work(&mut self, limit: Duration, done: impl Fn(&Counts) -> bool) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            (0..LOOK_EVERY).for_each(|_| self.turn());
            if done(&self.plan.counts()) {
                return true;
            }
        }
        false
    }

    fn switch(&self, mode: Mode, window: u32, held: u32) {
        self.plan.set(Phase { mode, window, held });
    }

    /// The first alone: from it the far end learns what an answer looks like.
    fn open(&mut self) {
        for (held, window) in [(1, 1), (self.held, OPEN_WINDOW)] {
            self.switch(Mode::Open, window, held);
            let all = |counts: &Counts| counts.get(Kind::Ended) >= u64::from(held);
            if !self.work(OPEN_MAX, all) {
                eprintln!("generator: {:?} of {held}", self.plan.counts());
            }
        }
    }

    fn measure(mut self, settings: &Settings) -> String {
        std::thread::sleep(BEGINS_IN);
        let mode = match settings.close {
            true => Mode::Short,
            false => {
                self.open();
                Mode::Requests
            }
        };
        self.switch(mode, settings.connections, self.held);
        self.work(WARM, |_| false);
        let mut text = String::new();
        for _ in 0..settings.rounds {
            let (counts, then) = (self.plan.counts(), Times::now());
            self.work(settings.round, |_| false);
            let (now, counts) = (Times::now(), self.plan.counts().since(&counts));
            let own = now.own - then.own;
            let server = (now.process - then.process).saturating_sub(own);
            let wall = now.wall - then.wall;
            let (ended, wrong) = (counts.get(Kind::Ended), counts.bad());
            let [server, own, wall] = [server, own, wall].map(|time| time.as_nanos());
            let _ = writeln!(text, "{ended} {server} {own} {wall} {wrong}");
        }
        self.switch(Mode::Idle, 0, self.held);
        self.work(REST_MAX, |counts| counts.in_progress() == 0);
        let counts = self.plan.counts();
        // Below zero where a segment was sent again: it ends its connection twice.
        let unfinished = counts.in_progress().cast_signed();
        if unfinished != 0 || counts.bad() > 0 {
            eprintln!("generator: {counts:?}");
        }
        let _ = writeln!(text, "{} {unfinished}", counts.bad());
        text
    }
}
