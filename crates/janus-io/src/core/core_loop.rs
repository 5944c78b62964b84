//! The loop of a dedicated I/O core (split placement): receive a burst, dispatch it, take what the shards send to the
//! device, bring LENT frames back to the shard that lent them. Sorting is `dispatch.rs`; the shard's side of the rings
//! is `port.rs`. Never runs TCP.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use janus_csb::ShardId;
use janus_mem::{Frame, LENT, Pool, TURNED, TURNED_LOOPED};

use crate::batch::BURST;
use crate::core::batching::{Batching, Share};
use crate::core::dispatch::{Dispatcher, IoCounters};
use crate::core::idle::Idle;
use crate::debug::opaque;
use crate::park::{Parker, Unparker};
use crate::queue::{Batch, Queue};
use crate::ring::{Consumer, Producer};

/// An idle core looks around at least this often, whatever its bells say.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// Turns after the end in which it still sends what the shards left.
const LAST_TURNS: usize = 1_000;

/// Bits of a frame's tag that are for the device.
const KEPT: u16 = LENT | TURNED | TURNED_LOOPED;

/// The most shards that can send through one core: what fits the upper byte of a frame's tag.
pub(crate) const LINKS_MAX: usize = 256;

/// A shard's sending side, as its I/O core sees it.
pub(crate) struct ShardLink {
    shard: ShardId,
    pub(crate) tx: Consumer<Frame>,
    pub(crate) done: Producer<Frame>,
    pub(crate) bell: Unparker,
    /// Taken from the ring, not yet by the device.
    backlog: Batch,
    /// Completions that did not fit the ring. While there are any, nothing more is taken from the shard, so they stay
    /// as few as the device held.
    owed: Vec<Frame>,
}

impl ShardLink {
    pub(crate) fn new(
        shard: ShardId,
        tx: Consumer<Frame>,
        done: Producer<Frame>,
        bell: Unparker,
    ) -> Self {
        Self {
            shard,
            tx,
            done,
            bell,
            backlog: Batch::new(),
            owed: Vec::with_capacity(BURST),
        }
    }
}

/// Told when an I/O core sleeps: for a clock that jumps when all cores are idle.
pub trait SleepObserver: Send {
    /// The core listens to its bell, and has seen that nothing waits for it but what may have come to the descriptor `fd`.
    fn falls_asleep(&self, fd: Option<BorrowedFd<'_>>);
    /// Something woke the core.
    fn wakes(&self);
    /// Frames moved, for the first time since the core fell asleep.
    fn works(&self) {}
}

/// One I/O core with its queue.
pub struct IoCore {
    queue: Box<dyn Queue>,
    pool: Pool,
    dispatcher: Dispatcher,
    /// The shards that send through this core.
    links: Vec<ShardLink>,
    parker: Parker,
    observer: Option<Box<dyn SleepObserver>>,
    /// Nothing has moved since a sleep.
    rests: bool,
    share: Share,
    burst: Batch,
    done: Batch,
    /// Stays empty: an I/O core keeps no frame.
    none: Vec<Frame>,
}

opaque!(IoCore);

impl IoCore {
    pub(crate) fn new(
        queue: Box<dyn Queue>,
        pool: Pool,
        dispatcher: Dispatcher,
        links: Vec<ShardLink>,
        parker: Parker,
    ) -> Self {
        Self {
            queue,
            pool,
            dispatcher,
            links,
            parker,
            observer: None,
            rests: false,
            share: Share::new(Batching::default()),
            burst: Batch::new(),
            done: Batch::new(),
            none: Vec::new(),
        }
    }

    /// How it chooses the size of its batches from now on.
    pub fn set_batching(&mut self, batching: Batching) {
        self.share = Share::new(batching);
    }

    /// Has its sleeps told from now on.
    pub fn set_sleep_observer(&mut self, observer: Box<dyn SleepObserver>) {
        self.observer = Some(observer);
    }

    /// Returns the counters of this core.
    #[must_use]
    pub fn counters(&self) -> &Arc<IoCounters> {
        &self.dispatcher.counters
    }

    /// Wakes it, for whoever wants it to stop.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        self.parker.unparker()
    }

    /// Gives the packet buffers that its pool has in stock back to their depot, for who counts them.
    pub fn give_stock_back(&mut self) {
        self.pool.flush();
    }

    /// One burst each way. How many frames moved.
    pub fn turn(&mut self) -> usize {
        self.dispatcher.steerer.refresh();
        self.burst.set_limit(self.share.get());
        self.queue.rx_burst(&mut self.pool, &mut self.burst);
        let received = self.burst.len();
        self.share.took(received);
        self.dispatcher
            .dispatch(&mut self.burst, &mut self.pool, &mut self.none);
        received + self.transmit()
    }

    /// Turns until told to stop: spins while there is work, then sleeps on the device and its bell.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut idle = Idle::default();
        while !stop.load(Ordering::Relaxed) {
            let worked = self.turn() > 0;
            if worked && self.rests {
                self.rests = false;
                if let Some(observer) = &self.observer {
                    observer.works();
                }
            }
            if idle.should_sleep(worked) {
                let before = Instant::now();
                self.sleep(stop)?;
                idle.slept(before.elapsed());
            }
        }
        self.send_rest();
        Ok(())
    }

    /// Sends the frames that the shards queued last (that their connections are over). Does not wait for a device that takes nothing more.
    fn send_rest(&mut self) {
        for _ in 0..LAST_TURNS {
            let waits = |link: &ShardLink| !link.tx.is_empty() || !link.backlog.is_empty();
            if !self.links.iter().any(waits) {
                return;
            }
            self.turn();
        }
    }

    fn sleep(&mut self, stop: &AtomicBool) -> io::Result<()> {
        self.dispatcher.counters.slept.add(1);
        // Cores that are awake may be short of what lies in stock here.
        self.pool.flush();
        let ready = !self.queue.arm();
        let fd = self.queue.wait_fd();
        let (links, steerer) = (&self.links, &mut self.dispatcher.steerer);
        let observer = self.observer.as_deref();
        let rests = &mut self.rests;
        let has_work = || {
            let waits = ready
                || stop.load(Ordering::Relaxed)
                || steerer.is_behind()
                || links.iter().any(|link| {
                    !link.tx.is_empty() || !link.backlog.is_empty() || !link.owed.is_empty()
                });
            if !waits {
                steerer.park();
                *rests = true;
                if let Some(observer) = observer {
                    observer.falls_asleep(fd);
                }
            }
            waits
        };
        self.parker.park(fd.as_slice(), Some(SLEEP_MAX), has_work)?;
        if let Some(observer) = observer {
            observer.wakes();
        }
        Ok(())
    }

    fn transmit(&mut self) -> usize {
        let mut taken = 0;
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            if link.owed.is_empty() {
                let backlog = &mut link.backlog;
                let kept = backlog.len();
                link.tx.pop_each(backlog.room(), |mut frame| {
                    // The device may finish frames of several shards together: the tag says whose they are.
                    frame.tag = frame.tag & KEPT | u16::from(index as u8) << 8;
                    let _ = backlog.push(frame);
                });
                self.dispatcher.steerer.learn(&backlog[kept..], link.shard);
            }
            let before = link.backlog.len();
            // Also with nothing to send: the device may have finished earlier frames.
            self.queue
                .tx_burst(&mut self.pool, &mut link.backlog, &mut self.done);
            taken += before - link.backlog.len();
            for frame in self.done.pull() {
                self.links[usize::from(frame.tag >> 8)].owed.push(frame);
            }
        }
        self.dispatcher.counters.sent.add(taken as u64);
        taken + self.bring_back()
    }

    /// Hands finished frames to the shards that lent them.
    fn bring_back(&mut self) -> usize {
        let mut completed = 0;
        for link in self.links.iter_mut().filter(|link| !link.owed.is_empty()) {
            let pushed = link.done.push_vec(&mut link.owed);
            if pushed > 0 {
                completed += pushed;
                link.bell.wake();
            }
        }
        self.dispatcher.counters.completed.add(completed as u64);
        completed
    }
}
