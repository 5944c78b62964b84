//! Real shards, real I/O cores and the in-memory wire, driven turn by turn on one thread in a random order under a
//! clock that only moves when told: a run is a function of its seed. Compiled for tests only. What the peers do is
//! `peer`, what the network between does to packets is `net`; no claim is made here, those are in `tests`.

pub(crate) mod hops;
mod net;
mod peer;
pub(crate) mod rng;
mod stamps;
mod tests;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use janus_io::{IoCore, wire};
use janus_tcp::Instant;

use crate::clock::Clock;
use crate::control::conductor::Conductor;
use crate::runtime::{BackendChoice, Builder, MainResult, Runtime};
use crate::shard::Shard;
use crate::{Placement, Result};
use peer::Peer;
use rng::Rng;

/// Turns after which a run that has not come to its end is given up.
const STEPS_MAX: u64 = 20_000_000;
/// No actor is held up for longer than so many steps.
const LAG_MAX: u64 = 400;

/// How the runtime under test is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) shards: usize,
    /// Dedicated I/O cores; 0: every shard polls for itself.
    pub(crate) io_cores: usize,
}

/// Everything that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    Shard(usize),
    IoCore(usize),
    Control,
    Peer,
}

/// A runtime without threads, and its peer.
pub(crate) struct World {
    pub(crate) rng: Rng,
    elapsed_ns: &'static AtomicU64,
    clock: Clock,
    pub(crate) shards: Vec<Shard>,
    pub(crate) io_cores: Vec<IoCore>,
    pub(crate) conductor: Conductor,
    pub(crate) peer: Peer,
    actors: Vec<Actor>,
    /// An actor whose turn does not come before this step: a thread that the kernel does not run.
    lags_until: Vec<u64>,
    pub(crate) steps: u64,
    idle: usize,
}

impl World {
    /// A runtime in this layout with one copy of `main` on each shard, and a peer on the far end of its wire.
    pub(crate) fn new<F>(
        seed: u64,
        layout: Layout,
        configure: impl FnOnce(Builder) -> Builder,
        main: impl Fn() -> F,
    ) -> World
    where
        F: Future<Output: MainResult> + 'static,
    {
        let mut rng = Rng::new(seed);
        // Leaked: a clock is copied to wherever time is asked for. Eight bytes a run.
        let elapsed_ns: &'static AtomicU64 = Box::leak(Box::default());
        let clock = Clock::Virtual(elapsed_ns);
        let queues = if layout.io_cores == 0 {
            layout.shards
        } else {
            layout.io_cores
        };
        let (near, far) = wire::pair(wire::Config {
            queues: [queues, 1],
            depth: 1024,
            spread: Some(net::any_queue(rng.next())),
            ..wire::Config::default()
        })
        .expect("a wire");
        let builder = configure(Runtime::builder().alone().seed(seed))
            .cores(layout.shards)
            .placement(match layout.io_cores {
                0 => Placement::Combined,
                io_cores => Placement::Split { io_cores },
            })
            .packet_buffers(16 * 1024)
            .address("192.0.2.1/24")
            .backend(BackendChoice::wire(near));
        let prepared = builder.prepare(clock).expect("a runtime");
        let (seeds, io_cores, conductor) = prepared.into_parts();
        let shards = seeds.into_iter().map(|seed| seed.grow(&main));
        let shards: Vec<Shard> = shards.collect::<Result<_>>().expect("shards");
        let peer = Peer::new(rng.next(), far);
        let actors: Vec<Actor> = (0..shards.len())
            .map(Actor::Shard)
            .chain((0..io_cores.len()).map(Actor::IoCore))
            .chain([Actor::Control, Actor::Peer])
            .collect();
        World {
            lags_until: vec![0; actors.len()],
            actors,
            rng,
            elapsed_ns,
            clock,
            shards,
            io_cores,
            conductor,
            peer,
            steps: 0,
            idle: 0,
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// One turn of somebody, or the time goes to where something happens next.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the run does not come to its end");
        let pause_ns = self.rng.below(3_000);
        self.pass(pause_ns);
        let at = self.rng.below(self.actors.len() as u64) as usize;
        if self.rng.one_in(300) {
            self.lags_until[at] = self.steps + self.rng.below(LAG_MAX);
        }
        if self.lags_until[at] > self.steps {
            return;
        }
        if self.turn(self.actors[at]) {
            self.idle = 0;
            return;
        }
        self.idle += 1;
        if self.idle > 8 * self.actors.len() {
            self.idle = 0;
            self.jump();
        }
    }

    /// Steps until `done`.
    pub(crate) fn run_until(&mut self, mut done: impl FnMut(&mut World) -> bool) {
        while !done(self) {
            self.step();
        }
    }

    fn turn(&mut self, actor: Actor) -> bool {
        let now = self.now();
        match actor {
            Actor::Shard(at) => {
                let _entered = self.shards[at].enter();
                self.shards[at].turn()
            }
            Actor::IoCore(at) => self.io_cores[at].turn() > 0,
            Actor::Control => self.conductor.step(),
            Actor::Peer => self.peer.turn(now),
        }
    }

    /// Nothing moves: on to the next thing that is due.
    fn jump(&mut self) {
        let shards = self.shards.iter().filter_map(Shard::deadline);
        let next = shards.chain(self.peer.next_deadline()).min();
        if let Some(next) = next {
            let ahead = next.saturating_since(self.now());
            self.pass(ahead.as_nanos() as u64);
        }
    }

    fn pass(&self, ns: u64) {
        self.elapsed_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

/// In an order in which nothing is left without its executor: tasks go with their shard's context around them.
impl Drop for World {
    fn drop(&mut self) {
        for shard in self.shards.drain(..) {
            let _entered = shard.enter();
            let executor = shard.here.executor.take();
            drop(executor);
        }
    }
}
