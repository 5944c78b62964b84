//! Faults between a device and who polls it: [`Impaired`] wraps any queue and loses, doubles and holds back frames in both
//! directions, as a seed decides, and counts what it did. For tests against a real peer, not for load.
//! What never lives here: delay in time, which nothing below the runtime knows; a frame held back is overtaken by a
//! number of others, or waits until nothing moves.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use janus_mem::{Frame, Pool};
use rustix::fd::BorrowedFd;

use crate::batch::BURST;
use crate::counter::Counter;
use crate::queue::{Backend, Batch, Caps, Queue, retire};

/// Frames held back at a time, in one direction of a queue; one more passes.
const HELD_MAX: usize = 64;
/// Polls without a frame after which what is held back goes on: nothing is left to overtake it.
const QUIET_POLLS: u32 = 32;

/// What happens to frames, the same in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Decides everything, together with the frames' order.
    pub seed: u64,
    /// Of a thousand frames so many are lost.
    pub loss: u16,
    /// So many arrive twice.
    pub duplicate: u16,
    /// So many are held back.
    pub reorder: u16,
    /// A frame held back is overtaken by up to so many others.
    pub distance: u16,
}

/// What was done in one direction, over all queues.
#[derive(Debug, Default)]
pub struct WayCounters {
    /// Frames that went on, each once.
    pub passed: Counter,
    /// Frames lost.
    pub lost: Counter,
    /// Copies made.
    pub duplicated: Counter,
    /// Frames held back.
    pub reordered: Counter,
}

/// What was done.
#[derive(Debug, Default)]
pub struct FaultCounters {
    /// To frames received.
    pub received: WayCounters,
    /// To frames sent.
    pub sent: WayCounters,
}

/// What becomes of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Pass,
    Twice,
    /// Overtaken by so many.
    Held(u32),
}

/// One direction.
struct Way {
    faults: Faults,
    random: u64,
    /// What goes on now, in order.
    going: VecDeque<Frame>,
    /// What waits, and for how many more frames.
    held: VecDeque<(u32, Frame)>,
    quiet: u32,
}

impl Way {
    fn new(faults: Faults, stream: u64) -> Way {
        Way {
            faults,
            random: faults.seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93),
            going: VecDeque::with_capacity(2 * BURST + HELD_MAX),
            held: VecDeque::with_capacity(HELD_MAX),
            quiet: 0,
        }
    }

    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fate(&mut self) -> Fate {
        let draw = (self.bits() % 1_000) as u16;
        let Faults {
            loss,
            duplicate,
            reorder,
            ..
        } = self.faults;
        if draw < loss {
            return Fate::Lost;
        }
        if draw < loss.saturating_add(duplicate) {
            return Fate::Twice;
        }
        let reorders = draw < loss.saturating_add(duplicate).saturating_add(reorder);
        if !reorders || self.held.len() == HELD_MAX {
            return Fate::Pass;
        }
        let most = u64::from(self.faults.distance.max(1));
        Fate::Held(1 + (self.bits() % most) as u32)
    }

    /// Takes one frame in; gives it back when it is lost.
    fn take(&mut self, frame: Frame, pool: &mut Pool, counters: &WayCounters) -> Option<Frame> {
        self.quiet = 0;
        let fate = self.fate();
        if fate == Fate::Lost {
            counters.lost.add_shared(1);
            return Some(frame);
        }
        counters.passed.add_shared(1);
        if let Fate::Held(overtaken_by) = fate {
            counters.reordered.add_shared(1);
            self.held.push_back((overtaken_by, frame));
            return None;
        }
        if let (Fate::Twice, Some(buf)) = (fate, pool.alloc()) {
            counters.duplicated.add_shared(1);
            let mut copy = Frame::new(buf, frame.len);
            copy.data_mut().copy_from_slice(frame.data());
            self.going.push_back(copy);
        }
        self.going.push_back(frame);
        self.overtake();
        None
    }

    /// One frame went past those that are held back.
    fn overtake(&mut self) {
        for waiting in &mut self.held {
            waiting.0 = waiting.0.saturating_sub(1);
        }
        for _ in 0..self.held.len() {
            if let Some((left, frame)) = self.held.pop_front() {
                match left {
                    0 => self.going.push_back(frame),
                    _ => self.held.push_back((left, frame)),
                }
            }
        }
    }

    /// Nothing came: after a while all that is held back goes on.
    fn nothing_came(&mut self) {
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet >= QUIET_POLLS {
            self.going
                .extend(self.held.drain(..).map(|(_, frame)| frame));
        }
    }

    fn is_empty(&self) -> bool {
        self.going.is_empty() && self.held.is_empty()
    }
}

/// A queue with faults.
pub struct Impaired<Q> {
    inner: Q,
    receive: Way,
    send: Way,
    counters: Arc<FaultCounters>,
    burst: Batch,
}

impl<Q: Queue> Impaired<Q> {
    /// Wraps a queue; `index` tells the queues of a device apart, so that each takes a course of its own.
    pub fn new(inner: Q, faults: Faults, index: u64, counters: Arc<FaultCounters>) -> Self {
        Self {
            inner,
            receive: Way::new(faults, 2 * index + 1),
            send: Way::new(faults, 2 * index + 2),
            counters,
            burst: Batch::new(),
        }
    }
}

impl<Q: Queue> Queue for Impaired<Q> {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        if self.receive.going.len() < BURST {
            self.inner.rx_burst(pool, &mut self.burst);
            if self.burst.is_empty() {
                self.receive.nothing_came();
            }
            for frame in self.burst.pull() {
                if let Some(lost) = self.receive.take(frame, pool, &self.counters.received) {
                    pool.free(lost.buf);
                }
            }
        }
        while !out.is_full() {
            let Some(frame) = self.receive.going.pop_front() else {
                return;
            };
            let _ = out.push(frame);
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        if frames.is_empty() {
            self.send.nothing_came();
        }
        // A frame that is lost may have to be given back at once.
        while self.send.going.len() < BURST && done.room() > 0 {
            let Some(frame) = frames.pull().next() else {
                break;
            };
            if let Some(lost) = self.send.take(frame, pool, &self.counters.sent) {
                retire(lost, pool, done);
            }
        }
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
        self.inner.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.inner.arm() && self.receive.is_empty() && self.send.is_empty()
    }
}

/// A backend all of whose queues have faults.
pub struct ImpairedBackend {
    inner: Box<dyn Backend>,
    faults: Faults,
    counters: Arc<FaultCounters>,
}

impl ImpairedBackend {
    /// Wraps a backend.
    #[must_use]
    pub fn new(inner: Box<dyn Backend>, faults: Faults) -> Self {
        Self {
            inner,
            faults,
            counters: Arc::default(),
        }
    }

    /// What is done to the frames; stays readable after the backend is open.
    #[must_use]
    pub fn counters(&self) -> Arc<FaultCounters> {
        self.counters.clone()
    }
}

impl Backend for ImpairedBackend {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Self {
            inner,
            faults,
            counters,
        } = *self;
        let wrap = |(index, queue)| -> Box<dyn Queue> {
            Box::new(Impaired::new(queue, faults, index, counters.clone()))
        };
        Ok((0..).zip(inner.open(queues)?).map(wrap).collect())
    }
}

#[cfg(test)]
mod tests;
