//! The receiving half of a queue in memory: the lanes that lead to it, the buffers posted on them, the bell of who sleeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use janus_mem::Pool;
use rustix::fd::BorrowedFd;

use super::WireCounters;
use super::lane::LaneRx;
use crate::park::Bell;
use crate::queue::{Batch, DeviceLosses, LossesFn};

/// State of one side that all sides share.
pub(super) struct Side {
    /// Queues it was opened with; 0 = not open.
    pub(super) open: AtomicUsize,
    /// One for each receiving queue.
    pub(super) bells: Vec<Bell>,
    pub(super) counters: Vec<Arc<WireCounters>>,
}

impl Side {
    pub(super) fn new(queues: usize) -> io::Result<Arc<Side>> {
        let bells = (0..queues).map(|_| Bell::new());
        Ok(Arc::new(Side {
            open: AtomicUsize::new(0),
            bells: bells.collect::<io::Result<_>>()?,
            counters: (0..queues).map(|_| Arc::default()).collect(),
        }))
    }

    /// Returns the reader of the side's losses for [`Backend::losses`](crate::Backend::losses).
    pub(super) fn losses(self: &Arc<Side>) -> Box<LossesFn> {
        let counters = self.counters.clone();
        Box::new(move || DeviceLosses {
            no_buffer: counters.iter().map(|queue| queue.no_buffer.get()).sum(),
            // The stack verifies every checksum of a wire itself.
            bad_checksum: 0,
        })
    }
}

/// One queue's.
pub(super) struct Inlet {
    rx: Vec<LaneRx>,
    /// Where the next burst begins to look: no lane starves another.
    next_rx: usize,
    /// Buffers kept posted per lane; 0 until the first call shows the pool.
    post_max: u32,
    armed: bool,
    near: Arc<Side>,
    index: usize,
}

impl Inlet {
    pub(super) fn new(rx: Vec<LaneRx>, near: Arc<Side>, index: usize) -> Inlet {
        Inlet {
            rx,
            next_rx: 0,
            post_max: 0,
            armed: false,
            near,
            index,
        }
    }

    /// No more than a quarter of the depot lies posted, whatever depth was asked for.
    #[cold]
    fn first_post(&mut self, pool: &mut Pool) {
        let lanes = self.rx.len() * self.near.open.load(Ordering::Relaxed).max(1);
        let share = pool.depot().stats().capacity / (4 * lanes.max(1));
        self.post_max = (share as u32).clamp(4, u32::MAX);
        for lane in &mut self.rx {
            if !lane.post(pool, self.post_max) {
                self.near.counters[self.index].no_buffer.add(1);
            }
            lane.prime();
        }
    }

    /// Receives as [`Queue::rx_burst`](crate::Queue::rx_burst) describes.
    #[inline]
    pub(super) fn receive(&mut self, pool: &mut Pool, out: &mut Batch) {
        if self.armed {
            self.armed = false;
            self.near.bells[self.index].disarm();
        }
        if self.post_max == 0 {
            self.first_post(pool);
        }
        let lanes = self.rx.len();
        for step in 0..lanes {
            if out.is_full() {
                self.next_rx = (self.next_rx + step) % lanes;
                return;
            }
            let at = self.next_rx + step;
            let lane = &mut self.rx[if at < lanes { at } else { at - lanes }];
            lane.receive(out);
            if !lane.post(pool, self.post_max) {
                self.near.counters[self.index].no_buffer.add(1);
            }
        }
        self.next_rx = if self.next_rx + 1 < lanes {
            self.next_rx + 1
        } else {
            0
        };
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.near.bells[self.index].fd()
    }

    pub(super) fn arm(&mut self) -> bool {
        self.armed = true;
        self.near.bells[self.index].arm();
        !self.rx.iter().any(LaneRx::has_frames)
    }
}
