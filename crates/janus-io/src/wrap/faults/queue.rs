//! A queue with faults: bursts of the device below on one side, of who polls on the other, a [`Way`] between them each way.

use std::sync::Arc;

use janus_mem::Pool;
use rustix::fd::BorrowedFd;

use super::line::{Alarm, Cable};
use super::way::{Turn, Way};
use super::{FaultCounters, Faults};
use crate::batch::BURST;
use crate::core::policy::ClockFn;
use crate::queue::{Batch, Caps, Queue, retire};

/// Whoever polls, a way in and a way out.
pub(super) struct Faulty {
    inner: Box<dyn Queue>,
    receive: Way,
    send: Way,
    /// Where frames take time.
    clock: Option<Arc<ClockFn>>,
    alarm: Option<Alarm>,
    counters: Arc<FaultCounters>,
    burst: Batch,
}

impl Faulty {
    /// `index` tells the queues of a device apart, so that each takes a course of its own. Of pairs, what is received is the
    /// first.
    pub(super) fn new(
        inner: Box<dyn Queue>,
        [received, sent]: [Faults; 2],
        index: u64,
        [cable_in, cable_out]: &[Arc<Cable>; 2],
        (clock, alarm): (Arc<ClockFn>, Option<Alarm>),
        counters: Arc<FaultCounters>,
    ) -> Self {
        let link = inner.caps().link;
        let takes_time = received.takes_time() || sent.takes_time();
        Self {
            inner,
            receive: Way::new(received, link, 2 * index + 1, cable_in),
            send: Way::new(sent, link, 2 * index + 2, cable_out),
            clock: takes_time.then_some(clock),
            alarm,
            counters,
            burst: Batch::new(),
        }
    }

    fn now(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| clock())
    }
}

impl Queue for Faulty {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        let now = self.now();
        if self.receive.going.len() < BURST {
            self.inner.rx_burst(pool, &mut self.burst);
            let mut turn = Turn {
                pool,
                counters: &self.counters.received,
                now,
            };
            if self.burst.is_empty() {
                self.receive.nothing_came(&mut turn);
            }
            for frame in self.burst.pull() {
                if let Some(lost) = self.receive.take(frame, &mut turn) {
                    turn.pool.free(lost.buf);
                }
            }
        }
        self.receive.arrive(now);
        while !out.is_full() {
            let Some(frame) = self.receive.going.pop_front() else {
                return;
            };
            let _ = out.push(frame);
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        let now = self.now();
        let mut turn = Turn {
            pool,
            counters: &self.counters.sent,
            now,
        };
        if frames.is_empty() {
            self.send.nothing_came(&mut turn);
        }
        // A frame may have to be given back at once.
        while self.send.going.len() < BURST && done.room() > 0 {
            let Some(frame) = frames.pull().next() else {
                break;
            };
            if let Some(finished) = self.send.take(frame, &mut turn) {
                retire(finished, turn.pool, done);
            }
        }
        self.send.arrive(now);
        let mut batch = Batch::new();
        while !batch.is_full() {
            let Some(frame) = self.send.going.pop_front() else {
                break;
            };
            let _ = batch.push(frame);
        }
        self.inner.tx_burst(pool, &mut batch, done);
        while let Some(frame) = batch.pop() {
            self.send.going.push_front(frame);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.alarm {
            Some(alarm) => Some(alarm.fd()),
            None => self.inner.wait_fd(),
        }
    }

    fn arm(&mut self) -> bool {
        let arrivals = [self.receive.next_arrival(), self.send.next_arrival()];
        let next = arrivals.into_iter().flatten().min();
        let woken = match (&mut self.alarm, next) {
            (None, Some(_)) => false,
            (None, None) => true,
            (Some(alarm), _) => {
                let now = self.clock.as_ref().map_or(0, |clock| clock());
                next.is_none_or(|at| at > now) && alarm.set(next.map(|at| at.saturating_sub(now)))
            }
        };
        self.inner.arm() && woken && self.receive.is_quiet() && self.send.is_quiet()
    }
}
