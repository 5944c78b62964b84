//! A shard's way to its packets, the same in both placements: it asks its [`Port`] for frames and gives it frames.
//! Behind it are rings to a dedicated I/O core (split), or the shard's own queue and rings to its neighbours
//! (combined). [`split`] and [`combined`] build the whole fabric. Runs no TCP and holds no thread.

mod flood;

use std::io;
use std::sync::Arc;

use janus_csb::ShardId;
use janus_mem::{Frame, Pool};
use rustix::fd::BorrowedFd;

use crate::batch::BURST;
use crate::core::batching::{Batching, Share};
use crate::core::core_loop::{IoCore, LINKS_MAX, ShardLink};
use crate::core::dispatch::{Dispatcher, IoCounters, Lane};
use crate::core::steer::Steerer;
use crate::debug::opaque;
use crate::park::{Parker, Unparker};
use crate::queue::{Batch, Caps, Queue};
use crate::ring::{Consumer, Producer, ring};
use flood::Flood;

/// Frames that can wait in one ring between two cores, unless asked otherwise.
pub const RING_DEPTH: u32 = 1024;

/// One shard's way in and out.
pub struct Port {
    /// Frames steered here by other cores.
    from: Vec<Consumer<Frame>>,
    /// Which of them has its turn first.
    next: usize,
    share: Share,
    kind: Kind,
}

opaque!(Port);

enum Kind {
    Own(Box<Own>),
    Remote(Remote),
}

/// Combined placement: the shard polls a queue.
struct Own {
    shard: ShardId,
    queue: Box<dyn Queue>,
    dispatcher: Dispatcher,
    burst: Batch,
    flood: Flood,
    /// Given to the port, not yet taken by the device.
    backlog: Batch,
    done: Batch,
}

/// Split placement: an I/O core polls for it.
struct Remote {
    caps: Caps,
    tx: Producer<Frame>,
    done: Consumer<Frame>,
    io_core: Unparker,
}

impl Port {
    /// Returns the capabilities of the device.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        match &self.kind {
            Kind::Own(own) => own.queue.caps(),
            Kind::Remote(remote) => &remote.caps,
        }
    }

    /// Returns the counters of this shard's own polling; `None` where an I/O core polls.
    #[must_use]
    pub fn counters(&self) -> Option<&Arc<IoCounters>> {
        match &self.kind {
            Kind::Own(own) => Some(&own.dispatcher.counters),
            Kind::Remote(_) => None,
        }
    }

    /// How it chooses the size of its batches from now on.
    pub fn set_batching(&mut self, batching: Batching) {
        self.share = Share::new(batching);
    }

    /// Appends frames for this shard, tagged and keyed: first a batch of those that other cores steered here, then (in
    /// combined placement) what is its own of a batch of its queue; the rest of that batch goes to the neighbours. A batch
    /// is [`BURST`] frames at most, so two bursts at most come in all, and in a flood of SYNs one and a half more.
    ///
    /// Returns how many came, including those for other shards and those dropped.
    pub fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> usize {
        let before = frames.len();
        let most = self.share.get();
        if let Kind::Own(own) = &mut self.kind {
            own.dispatcher.steerer.refresh();
        }
        // A ring may give at most its share, so that it starves neither the others nor the own queue.
        let own = usize::from(matches!(self.kind, Kind::Own(_)));
        let share = (most / (self.from.len() + own).clamp(1, 4)).max(1);
        let rings = self.from.len();
        // One long queue is reason enough for larger batches.
        let mut there_is_more = false;
        for step in 0..rings {
            let asked = share.min(most - (frames.len() - before));
            let at = (self.next + step) % rings;
            let got = self.from[at].pop_each(asked, |frame| {
                frame.buf.prefetch();
                frames.push(frame);
            });
            there_is_more |= got == asked;
        }
        self.next = if self.next + 1 < rings {
            self.next + 1
        } else {
            0
        };
        let (from_rings, mut from_queue, mut behind) = (frames.len() - before, 0, 0);
        // However much its neighbours have for it: what its own queue loses meanwhile is theirs too.
        if let Kind::Own(own) = &mut self.kind {
            (from_queue, behind) = own.receive(most, pool, frames);
        }
        self.share.took(match there_is_more {
            true => most,
            false => from_rings.max(from_queue),
        });
        from_rings + from_queue + behind
    }

    /// Frames that [`send`](Self::send) takes now: what the stack may make.
    #[inline]
    pub fn send_room(&mut self) -> usize {
        match &mut self.kind {
            Kind::Own(own) => own.backlog.room(),
            Kind::Remote(remote) => remote.tx.room().min(BURST),
        }
    }

    /// Takes frames from the front of `frames`, as many as there is room for, and appends LENT frames that came back to
    /// `done`. To be called in each turn of the loop, with or without frames: completions come this way only.
    pub fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, done: &mut Vec<Frame>) {
        match &mut self.kind {
            Kind::Own(own) => own.send(pool, frames, done),
            Kind::Remote(remote) => {
                if !frames.is_empty() && remote.tx.push_vec(frames) > 0 {
                    remote.io_core.wake();
                }
                remote.done.pop_vec(done, usize::MAX);
            }
        }
    }

    /// Returns the descriptor that the shard can sleep on besides its own bell; `None` where there is none.
    #[must_use]
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Own(own) => own.queue.wait_fd(),
            Kind::Remote(_) => None,
        }
    }

    /// The shard is about to sleep: tells the device so. False when there is work already.
    pub fn arm(&mut self) -> bool {
        let armed = match &mut self.kind {
            Kind::Own(own) => own.queue.arm() && own.backlog.is_empty(),
            Kind::Remote(_) => true,
        };
        armed && !self.has_waiting()
    }

    /// Whether a ring to this shard holds something: asked again after its bell was armed, before it sleeps.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        let completions = match &self.kind {
            Kind::Own(_) => false,
            Kind::Remote(remote) => !remote.done.is_empty(),
        };
        completions || self.from.iter().any(|ring| !ring.is_empty())
    }

    /// Between two calls of [`receive`](Self::receive): adopts a newer steering, where this shard steers. `receive` does
    /// it too.
    pub fn refresh(&mut self) {
        if let Kind::Own(own) = &mut self.kind {
            own.dispatcher.steerer.refresh();
        }
    }

    /// Whether this shard steers and there is a newer steering to adopt.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        match &self.kind {
            Kind::Own(own) => own.dispatcher.steerer.is_behind(),
            Kind::Remote(_) => false,
        }
    }

    /// Marks the shard as asleep: the control plane does not wait until it adopts a newer steering.
    pub fn park(&mut self) {
        if let Kind::Own(own) = &mut self.kind {
            own.dispatcher.steerer.park();
        }
    }

    /// How far other cores have come in the rings to this shard.
    pub fn mark(&self, marks: &mut Vec<u32>) {
        marks.clear();
        marks.extend(self.from.iter().map(Consumer::mark));
    }

    /// Whether everything has been received that was in the rings when these marks were taken.
    #[must_use]
    pub fn has_passed(&self, marks: &[u32]) -> bool {
        let mut rings = self.from.iter().zip(marks);
        rings.all(|(ring, &mark)| ring.has_passed(mark))
    }

    /// Frames waiting in the rings to this shard: the queue depth a balancer looks at.
    pub fn depth(&mut self) -> usize {
        self.from.iter_mut().map(Consumer::waiting).sum()
    }
}

impl Own {
    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, done: &mut Vec<Frame>) {
        // At least one turn, so that a device that finishes later is asked.
        loop {
            let fits = self.backlog.room().min(frames.len());
            self.dispatcher.steerer.learn(&frames[..fits], self.shard);
            self.backlog.take_front(frames, fits);
            let before = self.backlog.len();
            self.queue.tx_burst(pool, &mut self.backlog, &mut self.done);
            let taken = before - self.backlog.len();
            self.dispatcher.counters.sent.add(taken as u64);
            self.dispatcher
                .counters
                .completed
                .add(self.done.len() as u64);
            self.done.append_to(done);
            if frames.is_empty() || taken == 0 {
                return;
            }
        }
    }
}

/// Split placement: one I/O core for each queue with its pool, and a port for each shard (there is one bell for each).
/// A shard sends through the I/O core `shard % cores`.
pub fn split(
    queues: Vec<Box<dyn Queue>>,
    pools: Vec<Pool>,
    steerers: Vec<Steerer>,
    shards: &[Unparker],
    depth: u32,
) -> io::Result<(Vec<IoCore>, Vec<Port>)> {
    assert!(
        !queues.is_empty() && queues.len() == pools.len() && queues.len() == steerers.len(),
        "each I/O core has one queue, one pool and one steerer"
    );
    assert!(
        (1..=LINKS_MAX).contains(&shards.len()),
        "1 to {LINKS_MAX} shards"
    );
    let cores = queues.len();
    let mut from: Vec<Vec<Consumer<Frame>>> = shards.iter().map(|_| Vec::new()).collect();
    let mut remotes: Vec<Option<Remote>> = shards.iter().map(|_| None).collect();
    let mut io_cores = Vec::new();
    let polled = queues.into_iter().zip(pools).zip(steerers);
    for (core, ((queue, pool), steerer)) in polled.enumerate() {
        let parker = Parker::new()?;
        let mut lanes = Vec::new();
        let mut links = Vec::new();
        for (shard, bell) in shards.iter().enumerate() {
            let (producer, consumer) = ring(depth);
            lanes.push(Some(Lane::new(producer, bell.clone())));
            from[shard].push(consumer);
            if shard % cores == core {
                let (tx, tx_here) = ring(depth);
                // All that the shard's sending ring and the core's backlog hold can come back before it looks.
                let (done_here, done) = ring(2 * depth);
                let id = ShardId(shard as u8);
                links.push(ShardLink::new(id, tx_here, done_here, bell.clone()));
                remotes[shard] = Some(Remote {
                    caps: queue.caps().clone(),
                    tx,
                    done,
                    io_core: parker.unparker(),
                });
            }
        }
        io_cores.push(IoCore::new(
            queue,
            pool,
            Dispatcher::new(steerer, lanes),
            links,
            parker,
        ));
    }
    let port = |(from, remote): (Vec<Consumer<Frame>>, Option<Remote>)| Port {
        from,
        next: 0,
        share: Share::new(Batching::default()),
        kind: Kind::Remote(remote.expect("every shard sends through one core")),
    };
    Ok((io_cores, from.into_iter().zip(remotes).map(port).collect()))
}

/// Combined placement: shard `i` polls queue `i`, keeps its own frames and hands the others to their shards. One bell
/// for each shard, one shard for each queue.
#[must_use]
pub fn combined(
    queues: Vec<Box<dyn Queue>>,
    steerers: Vec<Steerer>,
    shards: &[Unparker],
    depth: u32,
) -> Vec<Port> {
    assert!(
        !queues.is_empty() && queues.len() == shards.len() && queues.len() == steerers.len(),
        "each shard has one queue and one steerer"
    );
    assert!(
        shards.len() <= 1 + usize::from(u8::MAX),
        "a shard's number is a byte: {}",
        ShardId(u8::MAX)
    );
    let mut from: Vec<Vec<Consumer<Frame>>> = shards.iter().map(|_| Vec::new()).collect();
    let mut ports = Vec::new();
    for (me, (queue, steerer)) in queues.into_iter().zip(steerers).enumerate() {
        let lane = |(shard, bell): (usize, &Unparker)| {
            (shard != me).then(|| {
                let (producer, consumer) = ring(depth);
                from[shard].push(consumer);
                Lane::new(producer, bell.clone())
            })
        };
        let lanes = shards.iter().enumerate().map(lane).collect();
        let dispatcher = Dispatcher::new(steerer, lanes);
        let own = Own {
            shard: ShardId(me as u8),
            queue,
            dispatcher,
            burst: Batch::new(),
            flood: Flood::default(),
            backlog: Batch::new(),
            done: Batch::new(),
        };
        ports.push(Port {
            from: Vec::new(),
            next: 0,
            share: Share::new(Batching::default()),
            kind: Kind::Own(Box::new(own)),
        });
    }
    for (port, from) in ports.iter_mut().zip(from) {
        port.from = from;
    }
    ports
}

#[cfg(test)]
mod tests;
