//! Asking the cores: each gets one message at most, answers between two batches, and is waited for no longer than
//! [`PATIENCE`]. Values that only grow keep growing here also when a core loses its own (its tasks at the end of the runtime, its
//! stack after a panic of its loop), as a sum that falls would be taken for a restart of the program.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Instant;

use janus_io::{Counter, DeviceLosses};
use janus_mem::DepotStats;

use super::families::FAMILIES;
use super::family::Read;
use super::text::{Snapshot, render};
use super::{Format, LOOK_MAX, LOOK_MIN, PATIENCE};
use crate::admission::IoCounters;
use crate::inbox::Refused;
use crate::lock::Lock;
use crate::losses::ShortageReport;
use crate::shard::shared::Shared;
use crate::shard::{CoreReport, report};
use crate::task::blocking::BlockingReport;

/// Counters of the admin port; written by its thread only.
#[derive(Debug, Default)]
pub(crate) struct AdminCounters {
    /// Requests that were answered, with whatever status.
    pub(crate) requests: Counter,
    /// Connections that ended early because too many were open.
    pub(crate) crowded: Counter,
    /// Connections that ended because their time was up.
    pub(crate) slow: Counter,
}

/// Values that are not a core's own.
pub(super) struct RuntimeValues<'a> {
    pub(super) serving: bool,
    pub(super) cores: usize,
    pub(super) buffers: DepotStats,
    pub(super) blocking: BlockingReport,
    pub(super) device: DeviceLosses,
    pub(super) shortages: ShortageReport,
    /// Of each core that polls a queue.
    pub(super) io: &'a [Arc<IoCounters>],
    pub(super) admin: &'a AdminCounters,
}

/// Collects the metrics of one runtime.
#[derive(Clone)]
pub(crate) struct Collector {
    shared: Arc<Shared>,
    pub(crate) collected: Arc<Collected>,
}

/// Metrics of one runtime, as far as they are known.
pub(crate) struct Collected {
    /// Address of the admin port, where there is one.
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) counters: AdminCounters,
    /// Whether a message is under way to each core.
    asked: Vec<AtomicBool>,
    state: Lock<CollectorState>,
}

struct CollectorState {
    /// For the messages.
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
    cores: Vec<Known>,
}

/// One core's answer.
type Answer = (usize, Box<CoreReport>);

/// Last known state of a core.
#[derive(Default)]
pub(super) struct Known {
    /// Number of answers so far.
    answers: u64,
    /// One value for each reading of a core in [`FAMILIES`], in order.
    values: Vec<Steady>,
}

/// A value, and what it would be if the core had never started again.
#[derive(Clone, Copy, Default)]
struct Steady {
    last: u64,
    lost: u64,
}

impl Steady {
    fn grow(&mut self, value: u64) {
        if value < self.last {
            self.lost += self.last;
        }
        self.last = value;
    }
}

/// One round of questions.
pub(crate) struct Round {
    /// Answers of each core before it; `None`: too much waits at the core for one more message.
    before: Vec<Option<u64>>,
}

/// A message to a core.
struct Question {
    collected: Arc<Collected>,
    sender: Sender<Answer>,
    core: usize,
}

impl Question {
    /// Answers, on the core.
    fn answer(&self) {
        if let Some(report) = report() {
            // The receiver lives: the question holds it.
            let _ = self.sender.send((self.core, Box::new(report)));
        }
    }
}

/// After the answer, or when a core that has ended drops its messages: nothing is under way any more.
impl Drop for Question {
    fn drop(&mut self) {
        self.collected.asked[self.core].store(false, Ordering::Release);
    }
}

impl Collected {
    pub(crate) fn new(cores: usize, admin: Option<SocketAddr>) -> Collected {
        let (sender, answers) = channel();
        Collected {
            admin,
            counters: AdminCounters::default(),
            asked: (0..cores).map(|_| AtomicBool::new(false)).collect(),
            state: Lock::new(CollectorState {
                sender,
                answers,
                cores: (0..cores).map(|_| Known::default()).collect(),
            }),
        }
    }
}

impl Collector {
    pub(crate) fn of(shared: Arc<Shared>) -> Collector {
        let cores = shared.ending.cores();
        let collected = shared.slots.get(|| Collected::new(cores, None));
        Collector { shared, collected }
    }

    /// Whether new connections are taken, and will be.
    pub(crate) fn serving(&self) -> bool {
        self.shared.ending.is_open()
    }

    /// Whether one task has kept this core for longer than `warn_blocked_ms`.
    pub(crate) fn is_blocked(&self, core: usize) -> bool {
        self.shared.blocked[core].load(Ordering::Relaxed)
    }

    /// Asks every core. One that has not answered an earlier question is not asked again: it will answer that one.
    pub(crate) fn ask(&self) -> Round {
        let (mut before, sender) = {
            let mut state = self.state();
            state.hear();
            let before: Vec<_> = state.cores.iter().map(|core| Some(core.answers)).collect();
            (before, state.sender.clone())
        };
        for (core, asked) in self.collected.asked.iter().enumerate() {
            if asked.swap(true, Ordering::AcqRel) {
                continue;
            }
            let question = Question {
                collected: self.collected.clone(),
                sender: sender.clone(),
                core,
            };
            let ask = Box::new(move || question.answer());
            if let Err(Refused::Full) = self.shared.cores.run(core as u8, ask) {
                before[core] = None;
            }
        }
        Round { before }
    }

    /// Whether nothing is left to wait for: each core has answered since, has ended, or is kept by one task.
    pub(crate) fn is_answered(&self, round: &Round) -> bool {
        self.first(|state, core| self.is_silent(state, round, core) && !self.is_blocked(core))
            .is_none()
    }

    /// The first core that has not answered since.
    pub(crate) fn silent(&self, round: &Round) -> Option<usize> {
        self.first(|state, core| self.is_silent(state, round, core))
    }

    fn first(&self, is: impl Fn(&CollectorState, usize) -> bool) -> Option<usize> {
        let mut state = self.state();
        state.hear();
        (0..self.collected.asked.len()).find(|core| is(&state, *core))
    }

    fn is_silent(&self, state: &CollectorState, round: &Round, core: usize) -> bool {
        let under_way = self.collected.asked[core].load(Ordering::Acquire);
        round.before[core].is_none_or(|before| under_way && state.cores[core].answers == before)
    }

    /// Asks, and waits for the answers on a thread that may block.
    pub(crate) fn ask_and_wait(&self) -> Round {
        let until = Instant::now() + PATIENCE;
        let round = self.ask();
        let mut look = LOOK_MIN;
        while !self.is_answered(&round) && Instant::now() < until {
            thread::sleep(look);
            look = (look * 2).min(LOOK_MAX);
        }
        round
    }

    /// The metrics after a round.
    pub(crate) fn text(&self, round: &Round, format: Format) -> String {
        let depot = self.shared.depot.upgrade();
        let values = RuntimeValues {
            serving: self.serving(),
            cores: self.collected.asked.len(),
            buffers: depot.map(|depot| depot.stats()).unwrap_or_default(),
            blocking: self.shared.blocking.report(),
            device: self.shared.ingress.device_losses(),
            shortages: ShortageReport::new(self.shared.mailbox.shortages(), &self.shared.ingress),
            io: &self.shared.ingress.counters,
            admin: &self.collected.counters,
        };
        let (stalled, cores) = {
            let mut state = self.state();
            state.hear();
            let stalled =
                (0..self.collected.asked.len()).map(|core| self.is_silent(&state, round, core));
            let stalled = stalled.map(u64::from).collect();
            let values = state.cores.iter().map(Known::values);
            (stalled, values.collect())
        };
        render(&Snapshot::new(values, stalled, cores), format)
    }

    fn state(&self) -> MutexGuard<'_, CollectorState> {
        self.collected.state.lock()
    }
}

impl CollectorState {
    /// Takes the answers that have come.
    fn hear(&mut self) {
        while let Ok((core, report)) = self.answers.try_recv() {
            self.cores[core].answers += 1;
            self.cores[core].take(&report);
        }
    }
}

impl Known {
    /// The values as they would be if the core had never started again.
    pub(super) fn values(&self) -> Vec<u64> {
        let values = self.values.iter();
        values.map(|value| value.last + value.lost).collect()
    }

    pub(super) fn take(&mut self, report: &CoreReport) {
        let mut values = Vec::with_capacity(self.values.len());
        let mut grows = Vec::with_capacity(self.values.len());
        for family in FAMILIES.iter() {
            if let Read::Core(read) = &family.read {
                read.values(report, &mut values);
                grows.resize(values.len(), family.kind.grows());
            }
        }
        self.values.resize(values.len(), Steady::default());
        for ((known, value), grows) in self.values.iter_mut().zip(values).zip(grows) {
            match grows {
                true => known.grow(value),
                false => known.last = value,
            }
        }
    }
}
