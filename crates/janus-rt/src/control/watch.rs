//! The control thread's look at the load: samples of the shards go into the balancer's policy, and the rings that it plans become requests
//! like any other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use janus_csb::policy::{
    Control, Decision, Heat, Policy, Queue, Role, Service, Settings, ShardSample,
};
use janus_csb::{Ring, ShardId};
use janus_tcp::Instant;

use super::mailbox::{Board, ControlMailbox};
use crate::clock::Clock;

#[cfg(test)]
mod tests;

/// Factor by which looks are rarer while no packet comes in.
const IDLE: u32 = 10;

/// For how long a core gets no larger share after a task kept it.
const KEPT: Duration = Duration::from_secs(1);

/// Looks after which what was seen of the load's place counts half.
const FADES: u32 = 100;

/// How new connections are shared out among the cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyName {
    /// By the weights that were set, and no others.
    #[default]
    Fixed,
    /// By the depth of receive queues.
    Queue,
    /// By the time a connection takes to serve.
    Service,
}

/// A policy at work.
pub(crate) struct Watch {
    control: Control,
    clock: Clock,
    interval: Duration,
    next: Instant,
    last: Instant,
    before: Vec<Seen>,
    /// When a task kept each core last.
    kept: Vec<Option<Instant>>,
    /// Place of the load, as the polling cores sample it.
    heat: Heat,
    /// Looks until half of that is forgotten.
    fades: u32,
    /// Whether it has planned a ring whose outcome it has not been told.
    asked: bool,
}

/// A shard's counts at the last look.
#[derive(Clone, Copy, Default)]
struct Seen {
    packets: u64,
    busy_ns: u64,
    opened: u64,
}

impl Watch {
    /// Returns `None` where weights are fixed: then no look is needed.
    pub(crate) fn new(
        name: PolicyName,
        interval: Duration,
        cores: usize,
        clock: Clock,
    ) -> Option<Watch> {
        let policy: Box<dyn Policy + Send> = match name {
            PolicyName::Fixed => return None,
            PolicyName::Queue => Box::new(Queue::default()),
            PolicyName::Service => Box::new(Service::default()),
        };
        let settings = Settings {
            interval,
            ..Settings::default()
        };
        let now = clock.now();
        Some(Watch {
            control: Control::new(policy, settings),
            clock,
            interval,
            next: now + interval,
            last: now,
            before: vec![Seen::default(); cores],
            kept: vec![None; cores],
            heat: Heat::new(),
            fades: FADES,
            asked: false,
        })
    }

    /// Returns the time until the next look.
    pub(crate) fn wait(&self) -> Duration {
        self.next.saturating_since(self.clock.now())
    }

    /// Notes which cores a task keeps now.
    pub(crate) fn note(&mut self, blocked: &[AtomicBool]) {
        for (kept, blocked) in self.kept.iter_mut().zip(blocked) {
            if blocked.load(Ordering::Relaxed) {
                *kept = Some(self.clock.now());
            }
        }
    }

    /// Looks, if it is time; returns a ring if the policy wants another.
    pub(crate) fn look(&mut self, mailbox: &ControlMailbox, ring: &Ring) -> Option<Ring> {
        let now = self.clock.now();
        if now < self.next {
            return None;
        }
        let samples = self.sample(mailbox, now);
        let idle = samples.iter().all(|sample| sample.packets == 0);
        self.next = now + self.interval * if idle { IDLE } else { 1 };
        self.heat.take(mailbox.heat());
        self.fades -= 1;
        if self.fades == 0 {
            self.fades = FADES;
            self.heat.age();
        }
        let heat = Some(&self.heat);
        match self.control.round(since_start(now), ring, &samples, heat) {
            Decision::Keep(_) => None,
            Decision::Change(plan) => {
                self.asked = true;
                Some(plan.ring().clone())
            }
        }
    }

    fn sample(&mut self, mailbox: &ControlMailbox, now: Instant) -> Vec<ShardSample> {
        let passed_ns = now.saturating_since(self.last).as_nanos() as u64;
        self.last = now;
        let drained = mailbox.drained();
        let boards = mailbox.boards().iter().zip(&mut self.before).enumerate();
        let kept = &self.kept;
        let sample = |(shard, (board, before)): (usize, (&Board, &mut Seen))| {
            let seen = Seen {
                packets: board.packets.get(),
                busy_ns: board.busy_ns.get(),
                opened: board.opened.get(),
            };
            let last = std::mem::replace(before, seen);
            let busy_ns = seen.busy_ns - last.busy_ns;
            ShardSample {
                shard: ShardId(shard as u8),
                role: match drained[shard] {
                    true => Role::Draining,
                    false => Role::Serving,
                },
                kept: kept[shard].is_some_and(|at| now.saturating_since(at) < KEPT),
                queue: board.queue.get() as u32,
                packets: seen.packets - last.packets,
                busy: (busy_ns as f64 / passed_ns.max(1) as f64).min(1.0),
                service_ns: Some(board.service_ns.get()).filter(|ns| *ns > 0),
                flows: board.flows.get(),
                opened: seen.opened - last.opened,
            }
        };
        boards.map(sample).collect()
    }

    /// Notes that an update is over.
    pub(crate) fn finished(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.control.finished(since_start(self.clock.now()));
        }
    }

    /// Notes that the update to its ring could not be begun.
    pub(crate) fn refused(&mut self) {
        self.asked = false;
        self.control.refused(since_start(self.clock.now()));
    }
}

fn since_start(at: Instant) -> Duration {
    at.saturating_since(Instant::ZERO)
}
