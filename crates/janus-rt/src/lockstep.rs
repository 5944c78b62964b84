//! Real shards, real I/O cores and the in-memory wire, driven turn by turn on one thread in a random order under a clock that only moves
//! when told: a run is a function of its seed. Compiled for tests, and for benches that need many cores in virtual time (the feature
//! `lockstep`, of no use to others). The tests' far end is `peer`, their network's faults are `net`; this file asserts little, `tests` the
//! rest.

mod compute;
#[cfg(test)]
mod net;
#[cfg(test)]
mod peer;
pub(crate) mod rng;
mod side_by_side;
#[cfg(test)]
mod stamps;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use janus_io::IoCore;
use janus_io::wire::{self, WireCounters};
use janus_tcp::{Instant, Stack};
use janus_wire::FlowKey;

use crate::clock::Clock;
use crate::config::Placement;
use crate::control::conductor::Conductor;
use crate::runtime::{BackendChoice, Builder, MainResult, Result, Runtime};
use crate::shard::{OfferCounters, Shard};
pub use compute::compute;
#[cfg(test)]
use peer::Peer;
use rng::Rng;
pub use side_by_side::SideBySide;

/// Turns after which an unfinished run is given up.
const STEPS_MAX: u64 = 20_000_000;
/// Steps between two audits of all stacks.
const AUDIT: u64 = 211;
/// Virtual time after which nothing may be left of connections whose owners dropped them and whose peers are silent.
const SILENCE: Duration = Duration::from_secs(24 * 3_600);
/// Most steps for which an actor is held up.
const LAG_MAX: u64 = 400;

/// Time between two turns of the control thread in a calm world.
const CONTROL: Duration = Duration::from_micros(100);
/// Rounds without any progress after which there will be none.
const QUIET: u32 = 2;

/// How the runtime under test is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// TCP cores.
    pub shards: usize,
    /// Dedicated I/O cores; 0: every shard polls for itself.
    pub io_cores: usize,
}

/// Everything that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    Shard(usize),
    IoCore(usize),
    Control,
    Peer,
}

/// The far end of the wire.
pub trait Outside {
    /// Runs one turn; returns whether anything moved.
    fn turn(&mut self, now: Instant) -> bool;

    /// Returns when it has something to do next.
    fn next_deadline(&self) -> Option<Instant>;

    /// Returns its stack, if it is made of one, to be audited as the shards' are.
    fn stack(&self) -> Option<&Stack> {
        None
    }
}

#[cfg(test)]
pub(crate) type World<P = Peer> = WholeRuntime<P>;

/// A runtime without threads, and its peer.
pub struct WholeRuntime<P> {
    pub(crate) rng: Rng,
    elapsed_ns: &'static AtomicU64,
    clock: Clock,
    pub(crate) shards: Vec<Shard>,
    pub(crate) io_cores: Vec<IoCore>,
    pub(crate) conductor: Conductor,
    /// The far end.
    pub peer: P,
    /// Counters of both ends.
    wire: Vec<Arc<WireCounters>>,
    actors: Vec<Actor>,
    /// Step before which an actor has no turn: models a thread that the kernel does not run.
    lags_until: Vec<u64>,
    /// Time until which a shard computes.
    computes_until: Vec<Instant>,
    pub(crate) steps: u64,
    idle: usize,
    /// Flows that cores held which fell. `None`: a core that panics fails the test.
    pub(crate) fell_with: Option<Vec<FlowKey>>,
}

#[cfg(test)]
impl WholeRuntime<Peer> {
    /// A runtime in this layout with one copy of `main` on each shard, and a peer on the far end of its wire.
    pub(crate) fn new<F>(
        seed: u64,
        layout: Layout,
        configure: impl FnOnce(Builder) -> Builder,
        main: impl Fn() -> F,
    ) -> WholeRuntime<Peer>
    where
        F: Future<Output: MainResult> + 'static,
    {
        let wire = |rng: &mut Rng| wire::Config {
            depth: 1024,
            spread: Some(net::any_queue(rng.next())),
            ..wire::Config::default()
        };
        let peer = |rng: &mut Rng, far| Peer::new(rng.next(), far);
        WholeRuntime::around(seed, layout, wire, configure, main, peer)
    }
}

/// For benches: a world in which all actors take their turns in order, and are never late.
impl<P: Outside> WholeRuntime<P> {
    /// A runtime in this layout with one copy of `main` on each shard, and another end of its wire.
    pub fn calm<F>(
        seed: u64,
        layout: Layout,
        configure: impl FnOnce(Builder) -> Builder,
        main: impl Fn() -> F,
        peer: impl FnOnce(wire::End) -> P,
    ) -> WholeRuntime<P>
    where
        F: Future<Output: MainResult> + 'static,
    {
        let wire = |_: &mut Rng| wire::Config {
            depth: 4096,
            ..wire::Config::default()
        };
        WholeRuntime::around(seed, layout, wire, configure, main, |_, end| peer(end))
    }

    /// Lets time pass until then. A round in which something moves takes a microsecond.
    pub fn pass_calmly(&mut self, until: Instant) {
        let mut look = self.now();
        while self.now() < until {
            let mut moved = false;
            for at in 0..self.actors.len() {
                let actor = self.actors[at];
                moved |= actor != Actor::Control && self.turn(actor);
            }
            let now = self.now();
            if now >= look {
                look = now + CONTROL;
                self.name_the_blocked(now);
                while self.turn(Actor::Control) {}
                self.conductor.look();
            }
            if moved {
                self.pass(1_000);
                continue;
            }
            let next = self.next_deadline().map_or(look, |at| at.min(look));
            self.pass_until(next.min(until).max(now + Duration::from_nanos(1)));
        }
    }

    /// Does the watchdog's part, which goes by the time of threads: says which cores compute, if they do so for longer than is allowed.
    fn name_the_blocked(&self, now: Instant) {
        let shared = &self.shards[0].ctx.shared;
        let limit = shared.settings.get().warn_blocked;
        for (blocked, until) in shared.blocked.iter().zip(&self.computes_until) {
            let long = until.saturating_since(now) > limit;
            blocked.store(!limit.is_zero() && long, Ordering::Relaxed);
        }
    }

    /// Returns the connections that cores have offered to others so far, and their way.
    pub fn offers(&self) -> OfferCounters {
        let mut all = OfferCounters::default();
        for shard in &self.shards {
            let of_core = shard.ctx.offer_counters();
            all.offered += of_core.offered;
            all.claimed += of_core.claimed;
            all.returned += of_core.returned;
            all.late += of_core.late;
        }
        all
    }

    /// Returns the core that has a client's connections to the server, by the ring there is now.
    pub fn owners(&self) -> impl Fn(SocketAddr) -> usize + 'static {
        let ctx = &self.shards[0].ctx;
        let toeplitz = ctx.shared.toeplitz.clone();
        let layout = ctx.steering.borrow().steering().published().clone();
        move |client| {
            let server = SocketAddr::from(([192, 0, 2, 1], 80));
            let flow = FlowKey::new(client, server).expect("one family");
            layout.owner(toeplitz.key_of(&flow), server.port()).index()
        }
    }

    /// Returns the number of updates of the steering so far.
    pub fn updates(&self) -> u64 {
        self.conductor.mailbox.done().updates
    }
}

impl<P: Outside> WholeRuntime<P> {
    /// Like [`WholeRuntime::new`], over the wire given (its numbers of queues follow from the layout) and with another at its far
    /// end.
    pub(crate) fn around<F>(
        seed: u64,
        layout: Layout,
        wire: impl FnOnce(&mut Rng) -> wire::Config,
        configure: impl FnOnce(Builder) -> Builder,
        main: impl Fn() -> F,
        peer: impl FnOnce(&mut Rng, wire::End) -> P,
    ) -> WholeRuntime<P>
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
            ..wire(&mut rng)
        })
        .expect("a wire");
        let wire = [near.counters(), far.counters()].concat();
        let builder = Runtime::builder()
            .ignore_environment()
            .seed(seed)
            .packet_buffers(16 * 1024);
        let builder = configure(builder)
            .cores(layout.shards)
            .placement(match layout.io_cores {
                0 => Placement::Combined,
                io_cores => Placement::Split { io_cores },
            })
            .address("192.0.2.1/24".parse().unwrap())
            .backend(BackendChoice::wire(near));
        let prepared = builder.prepare(clock).expect("a runtime");
        let (seeds, io_cores, conductor) = prepared.into_parts();
        let shards = seeds.into_iter().map(|seed| seed.grow(&main));
        let shards: Vec<Shard> = shards.collect::<Result<_>>().expect("shards");
        let peer = peer(&mut rng, far);
        let actors: Vec<Actor> = (0..shards.len())
            .map(Actor::Shard)
            .chain((0..io_cores.len()).map(Actor::IoCore))
            .chain([Actor::Control, Actor::Peer])
            .collect();
        WholeRuntime {
            lags_until: vec![0; actors.len()],
            computes_until: vec![Instant::ZERO; layout.shards],
            actors,
            rng,
            elapsed_ns,
            clock,
            shards,
            io_cores,
            conductor,
            peer,
            wire,
            steps: 0,
            idle: 0,
            fell_with: None,
        }
    }

    /// Returns the world's time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Runs one turn of a random actor, or moves the clock to the next deadline.
    pub fn step(&mut self) {
        self.turn_of_somebody();
        if self.steps.is_multiple_of(AUDIT) {
            self.audit();
        }
        if self.idle > 8 * self.actors.len() {
            self.idle = 0;
            self.jump();
        }
    }

    /// Runs one turn of a random actor, unless it is held up.
    fn turn_of_somebody(&mut self) {
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
        self.idle = match self.turn(self.actors[at]) {
            true => 0,
            false => self.idle + 1,
        };
    }

    /// Steps until `done`.
    pub fn run_until(&mut self, mut done: impl FnMut(&mut WholeRuntime<P>) -> bool) {
        while !done(self) {
            self.step();
        }
    }

    /// Runs all actors but the control thread until nothing moves, those held up included. An update under way stays where it is. The
    /// clock hardly moves.
    pub fn settle(&mut self) {
        let (count, mut quiet) = (self.actors.len(), 0);
        while quiet < QUIET {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "there is no end to it");
            let first = self.rng.below(count as u64) as usize;
            let mut moved = false;
            for at in 0..count {
                let actor = self.actors[(first + at) % count];
                moved |= actor != Actor::Control && self.turn(actor);
            }
            self.pass(1_000);
            quiet = if moved { 0 } else { quiet + 1 };
        }
    }

    /// Like [`WholeRuntime::settle`], with the control thread: no update is left under way.
    pub fn come_to_rest(&mut self) {
        self.settle();
        while self.conductor.step() {
            self.settle();
        }
    }

    /// Ends the program on every shard and lets a silent day pass. Checks that nothing is left anywhere.
    pub fn end(&mut self) {
        // A stream that is on its way to another core would find neither that core's tasks nor its own core.
        self.come_to_rest();
        self.end_tasks();
        let end = self.now() + SILENCE;
        self.come_to_rest();
        while let Some(next) = self.next_deadline().filter(|next| *next < end) {
            self.pass_until(next);
            self.come_to_rest();
        }
        self.audit();
        assert_eq!(self.next_deadline(), None, "a timer without end");
        assert!(!self.conductor.is_busy(), "an update does not end");
        self.each_stack(|who, stack| {
            assert_eq!(stack.flows_held(), 0, "flows are left at {who}");
            assert_eq!(stack.resting(), 0, "rests are left at {who}");
            assert_eq!(stack.hot_in_use(), 0, "hot blocks are left at {who}");
            assert_eq!(stack.segments_in_use(), 0, "segments are left at {who}");
        });
    }

    /// Number of frames that the wire had no buffer for at its other end.
    pub fn lost(&self) -> u64 {
        let lost = self.wire.iter().map(|queue| queue.lost_no_buffer.get());
        lost.sum()
    }

    /// Checks that no connection waits for nothing.
    pub fn audit(&self) {
        self.each_stack(|who, stack| assert_eq!(stack.audit(), Ok(()), "at {who}"));
    }

    fn each_stack(&self, look: impl Fn(&str, &Stack)) {
        for shard in &self.shards {
            let name = format!("shard {}", shard.ctx.core);
            look(&name, &shard.ctx.stack.borrow());
        }
        if let Some(stack) = self.peer.stack() {
            look("the peer", stack);
        }
    }

    fn turn(&mut self, actor: Actor) -> bool {
        let now = self.now();
        match actor {
            Actor::Shard(at) if self.computes_until[at] > now => false,
            Actor::Shard(at) => self.turn_of_shard(at, now),
            Actor::IoCore(at) => self.turn_of_io_core(at),
            Actor::Control => self.conductor.step(),
            Actor::Peer => self.peer.turn(now),
        }
    }

    /// These two are functions of their own for whoever counts their instructions.
    #[inline(never)]
    fn turn_of_shard(&mut self, at: usize, now: Instant) -> bool {
        let shard = &mut self.shards[at];
        let _entered = shard.enter();
        let worked = match catch_unwind(AssertUnwindSafe(|| shard.turn())) {
            Ok(worked) => worked,
            Err(_) if self.fell_with.is_some() => self.fall(at),
            Err(payload) => resume_unwind(payload),
        };
        self.computes_until[at] = now + compute::take_debt();
        worked
    }

    #[inline(never)]
    fn turn_of_io_core(&mut self, at: usize) -> bool {
        self.io_cores[at].turn() > 0
    }

    /// A core's loop has panicked: it goes on without what it held.
    pub(crate) fn fall(&mut self, at: usize) -> bool {
        let shard = &mut self.shards[at];
        let _entered = shard.enter();
        let mut held: Vec<FlowKey> = Vec::new();
        let stack = shard.ctx.stack.borrow();
        stack.visit_flows(0, usize::MAX, |flow| held.push(*flow));
        drop(stack);
        shard.fall().expect("for the first time");
        self.fell_with.get_or_insert_default().extend(held);
        true
    }

    /// Moves the clock to the next deadline after nothing moved.
    fn jump(&mut self) {
        if let Some(next) = self.next_deadline() {
            self.pass_until(next);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let now = self.now();
        let each = self.shards.iter().zip(&self.computes_until);
        let shards = each.filter_map(|(shard, until)| match *until > now {
            true => Some(*until),
            false => shard.deadline(),
        });
        shards.chain(self.peer.next_deadline()).min()
    }

    fn pass_until(&self, at: Instant) {
        let ahead = at.saturating_since(self.now());
        self.pass(ahead.as_nanos() as u64);
    }

    fn pass(&self, ns: u64) {
        self.elapsed_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

impl<P> fmt::Debug for WholeRuntime<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "WholeRuntime({} shards, step {})",
            self.shards.len(),
            self.steps
        )
    }
}

impl<P> WholeRuntime<P> {
    /// Drops the tasks of every shard, in its context.
    fn end_tasks(&mut self) {
        for shard in &self.shards {
            let _entered = shard.enter();
            let executor = shard.ctx.executor.take();
            drop(executor);
            shard.ctx.drop_handlers();
            let ctx = &shard.ctx;
            let all = |stack: &mut Stack, now| stack.close_resting(now, 0, usize::MAX, usize::MAX);
            assert_eq!(ctx.on_stack(all), None);
        }
    }
}

/// Ordered so that tasks are dropped in their shard's context.
impl<P> Drop for WholeRuntime<P> {
    fn drop(&mut self) {
        self.end_tasks();
    }
}
