//! The loop of one TCP core: take packets, run TCP, poll the tasks that became ready, serve timers, send what they
//! wrote; sleep when nothing moves. It is the same in both placements: where packets come from is the port's business.
//! Sockets are in `net`, tasks in `task`; nothing here knows a protocol or a future by name.

pub(crate) mod core_context;
mod elsewhere;
mod emptying;
mod end;
mod forwarder;
pub(crate) mod giving;
pub(crate) mod handlers;
#[cfg(test)]
pub(crate) mod hops;
mod leaving;
mod losses;
pub(crate) mod moves;
mod offers;
mod own_loop;
mod panic_recovery;
mod paused;
mod report;
mod sampling;
mod service_times;
pub(crate) mod shared;
mod statistics;
mod traversal;
mod tuple_claims;
mod update;
mod waiters;

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use janus_io::mpsc::Receiver;
use janus_io::park::Parker;
use janus_io::{BURST, Idle, Port};
use janus_mem::Frame;
use janus_tcp::{Instant, Stack, Token};

use crate::clock::Clock;
use crate::inbox::{InboxReader, Job, Message};
use crate::task::{self, Executor, prefetch_local};
use core_context::CoreContext;
use end::Phase;
pub use forwarder::ForwardCounters;
use forwarder::Walk;
pub(crate) use forwarder::{Door, FORWARDS, Forwarder};
pub use offers::OfferCounters;
pub(crate) use panic_recovery::RebuildStack;
pub use report::{CoreReport, report};
use sampling::Sampling;
pub use statistics::{BATCH_CLASSES, LoopReport};
use update::UpdateWork;
pub(crate) use waiters::Side;

/// Tasks polled in a turn before packets have theirs again.
const TASK_BUDGET: usize = 256;
/// A core with something to do for so many turns in a row is loaded: another call of the device in a turn would cost it more than it
/// gains a handshake.
const LOADED_TURNS: u32 = 64;
/// Tasks polled before the first look at the clock: most turns have no more.
const TASKS_FIRST: usize = 8;
/// If the turn has lasted so long then, the others wait for the next.
const TURN_LONG: Duration = Duration::from_millis(1);
/// Tasks polled between two looks after that.
const TASKS_ROUND: usize = 64;
/// How long these rounds may take: what comes meanwhile is a few batches. A single task that takes longer cannot be
/// helped, and is warned of.
const TASKS_TIME: Duration = Duration::from_micros(200);
/// Messages from other threads taken in a turn.
const MESSAGE_BUDGET: usize = 256;
/// Rounds of sending in a turn: with more to send than this, what arrives comes first.
const SEND_ROUNDS: usize = 4;
/// How long packets wait for a main that has not had its first turn.
const START_PATIENCE: Duration = Duration::from_secs(1);

/// One core's loop, on its thread.
pub(crate) struct Shard {
    pub(crate) ctx: Rc<CoreContext>,
    pub(crate) port: Port,
    pub(crate) forwarded: Receiver<Frame>,
    pub(crate) reader: InboxReader,
    pub(crate) parker: Parker,
    pub(crate) clock: Clock,
    pub(crate) work: Work,
    pub(crate) rebuild: RebuildStack,
}

/// State that the loop keeps for itself between turns.
pub(crate) struct Work {
    idle: Idle,
    arrived: Vec<Frame>,
    leaving: Vec<Frame>,
    /// Packets to our own addresses while they are steered.
    looped: Vec<Frame>,
    done: Vec<Frame>,
    /// The port's descriptor, a second name of it: it is waited on while the port itself is asked for work.
    wait_fd: Option<OwnedFd>,
    phase: Phase,
    /// Packets are held back until the mains have begun, or until this moment (set in the first turn).
    closed_until: Option<Instant>,
    open: bool,
    /// The control thread dozes, and this core must ring for it: before anything of the program's runs, and before the
    /// end of the turn at the latest.
    owes_ring: bool,
    /// Turns since the last one in which nothing was to do.
    busy_turns: u32,
    /// No task of this core has a connection: whoever drives it asks the stack itself what is ready.
    pub(crate) seated: bool,
    /// Where the search for connections at rest goes on at the runtime's end.
    rests_closed: Option<usize>,
    pub(crate) update: UpdateWork,
    /// `None`: no policy wants to know.
    sampling: Option<Sampling>,
    entries: losses::Entries,
}

impl Work {
    /// `sampled`: a policy watches the load.
    pub(crate) fn new(port: &Port, sampled: bool) -> std::io::Result<Work> {
        Ok(Work {
            idle: Idle::default(),
            arrived: Vec::with_capacity(4 * BURST),
            leaving: Vec::with_capacity(BURST),
            looped: Vec::new(),
            done: Vec::with_capacity(2 * BURST),
            wait_fd: port
                .wait_fd()
                .map(|fd| fd.try_clone_to_owned())
                .transpose()?,
            phase: Phase::Serving,
            closed_until: None,
            open: false,
            owes_ring: false,
            busy_turns: 0,
            seated: false,
            rests_closed: None,
            update: UpdateWork::default(),
            sampling: sampled.then(Sampling::new),
            entries: losses::Entries::default(),
        })
    }
}

/// Result of a turn that the next depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something moved.
    Worked,
    /// Nothing did; not long enough for a sleep.
    Empty,
    /// It is time to sleep.
    Idle,
    /// The runtime has ended.
    Ended,
}

/// While it lives, the thread is this shard's: tasks find its sockets, its timers and its executor.
pub(crate) struct Entered {
    _executor: Option<task::Entered>,
    _here: core_context::Entered,
}

impl Shard {
    /// Makes this thread the shard's until the guard is dropped.
    pub(crate) fn enter(&self) -> Entered {
        let executor = self.ctx.executor.borrow();
        Entered {
            _executor: executor.as_ref().map(Executor::enter),
            _here: core_context::enter(self.ctx.clone()),
        }
    }

    /// Turns until the runtime has ended.
    pub(crate) fn run(&mut self) -> std::io::Result<()> {
        loop {
            match self.step() {
                Step::Worked | Step::Empty => {}
                Step::Idle => {
                    self.sample_before_sleep();
                    let before = self.clock.now();
                    self.sleep()?;
                    self.slept_since(before);
                }
                Step::Ended => return Ok(()),
            }
        }
    }

    /// One turn, and what it says about the next. Whoever drives the loop otherwise than [`run`](Shard::run) calls this.
    pub(crate) fn step(&mut self) -> Step {
        let worked = self.turn();
        if !self.ctx.shared.ending.serving() && self.ended() {
            self.enter_losses();
            return Step::Ended;
        }
        if self.work.idle.should_sleep(worked) {
            self.enter_losses();
            Step::Idle
        } else if worked {
            Step::Worked
        } else {
            Step::Empty
        }
    }

    /// After a sleep that began at `before`.
    pub(crate) fn slept_since(&mut self, before: Instant) {
        let after = self.clock.now();
        let core = usize::from(self.ctx.core);
        self.work.owes_ring |= self.ctx.shared.mailbox.begins_work(core);
        self.ctx.statistics.slept(before, after);
        self.work.idle.slept(after.saturating_since(before));
    }

    /// Tells the control thread that this core works, where that dozes.
    pub(crate) fn works(&self) {
        self.ctx.shared.mailbox.works(usize::from(self.ctx.core));
    }

    /// Rings for the control thread if that is owed. A system call: what woke the core goes first, unless it is a task's, as
    /// one that keeps the core must be seen.
    #[inline]
    fn pay_ring(&mut self) {
        if std::mem::take(&mut self.work.owes_ring) {
            self.ctx.shared.mailbox.ring();
        }
    }

    /// One pass over everything; answers whether anything moved.
    pub(crate) fn turn(&mut self) -> bool {
        let now = self.clock.now();
        self.ctx.now.set(now);
        self.ctx.statistics.turn(now);
        let Some(arrived) = self.receive(now) else {
            // A flow is about to come, and goes first.
            return true;
        };
        let updating = self.serve_update();
        let messages = self.take_messages();
        self.wake_ready();
        let replied = self.work.busy_turns < LOADED_TURNS && self.send_replies();
        let polled = self.run_tasks(now);
        self.ctx.stack.borrow_mut().advance(now);
        let looks = self.ctx.tuple_claims.borrow().deadline();
        if looks.is_some_and(|at| now >= at) {
            self.ctx.look_after_stubs(now);
        }
        self.ctx.look_after_moves(now);
        let moving = self.ctx.empty(now) | self.ctx.offer(now);
        self.wake_ready();
        let sent = self.send(now) | self.ctx.stack.borrow().has_looped();
        self.pay_ring();
        let worked = arrived | updating | messages | replied | polled | moving | sent;
        self.work.busy_turns = if worked {
            self.work.busy_turns.saturating_add(1)
        } else {
            0
        };
        if worked {
            self.ctx.statistics.worked(now);
        }
        self.sample(now, worked);
        self.enter_losses_at(now);
        worked
    }

    /// Whether packets are taken yet: from when every main has bound what it binds at its start.
    fn is_open(&mut self, now: Instant) -> bool {
        let work = &mut self.work;
        if !work.open {
            let until = *work.closed_until.get_or_insert(now + START_PATIENCE);
            work.open = self.ctx.shared.control.has_begun() || now >= until;
            if work.open {
                self.ctx.opens();
            }
        }
        work.open
    }

    /// `None`: nothing may be done before what another shard is about to send is here.
    fn receive(&mut self, now: Instant) -> Option<bool> {
        let moved = if self.is_open(now) {
            self.collect()
        } else {
            self.port.refresh();
            false
        };
        let ctx = &*self.ctx;
        // After the packets were taken, so that the steering is at least as new as whatever made them come; and only
        // here, between batches (rule 1).
        let mut steering = ctx.steering.borrow_mut();
        let adopted = steering.refresh();
        drop(steering);
        if adopted {
            ctx.shared.mailbox.adopted();
            ctx.traversal_is_next();
        }
        // Behind the packets and the steering, so that what was sent before any of them is here (rule 14).
        let moved = moved | ctx.take_arrivals()?;
        let steering = ctx.steering.borrow();
        let looped = self.work.open && ctx.stack.borrow().has_looped();
        let Work {
            arrived,
            looped: back,
            leaving,
            sampling,
            ..
        } = &mut self.work;
        if looped {
            ctx.take_looped(steering.steering(), back, arrived, leaving);
        }
        let moved = moved | looped;
        ctx.statistics.took(arrived.len());
        let mut forwarder = ctx.forwarder.borrow_mut();
        if !forwarder.leaving.is_empty() {
            ctx.go_on_leaving(&mut forwarder.leaving, adopted, arrived);
        }
        if arrived.is_empty() {
            return Some(moved);
        }
        if let Some(sampling) = sampling {
            sampling.packets(arrived.len());
        }
        let mut pool = ctx.pool.borrow_mut();
        let mut walk = Walk::new(
            steering.steering(),
            &ctx.shared.toeplitz,
            &ctx.shared.flow_names,
            &mut forwarder,
            &mut pool,
        );
        let mut stack = ctx.stack.borrow_mut();
        stack.input(now, arrived, &mut walk);
        forwarder.turn_back(leaving, &mut pool);
        forwarder.ring();
        let gone_astray = !forwarder.astray.is_empty();
        let datagrams = stack.udp_astray();
        drop((forwarder, pool, stack));
        if gone_astray {
            ctx.send_back();
        }
        if let Some(astray) = datagrams {
            ctx.carry_datagrams(astray);
        }
        Some(true)
    }

    /// Takes what waits in the port and for this shard at other shards. Returns whether anything came, be it for others.
    fn collect(&mut self) -> bool {
        let arrived = &mut self.work.arrived;
        let mut pool = self.ctx.pool.borrow_mut();
        let moved = self.port.receive(&mut pool, arrived) > 0;
        #[cfg(test)]
        hops::arrived(arrived);
        while arrived.len() < 3 * BURST {
            let Some(frame) = self.forwarded.pop() else {
                break;
            };
            arrived.push(frame);
        }
        moved || !arrived.is_empty()
    }

    fn take_messages(&mut self) -> bool {
        if !self.reader.is_empty() {
            self.pay_ring();
        }
        for taken in 0..MESSAGE_BUDGET {
            match self.reader.pop() {
                None => return taken > 0,
                Some(Message::Wake(word)) => self.tasks(|tasks| tasks.wake_word(word)),
                Some(Message::WakeAll) => self.tasks(Executor::wake_all),
                Some(Message::Close { conn, life }) if life == self.ctx.owner.life => {
                    self.ctx.close(conn)
                }
                // Of a shard that had this number before; its connections are long gone.
                Some(Message::Close { .. }) => {}
                Some(Message::Detach(task)) => self.tasks(|tasks| tasks.detach(task)),
                Some(Message::Abort(task)) => self.tasks(|tasks| tasks.abort(task)),
                Some(Message::Run(job)) => self.run_job(job),
            }
        }
        true
    }

    /// Also when the tasks are gone: what is sent then must be told so.
    fn run_job(&self, job: Job) {
        let executor = self.ctx.executor.borrow();
        match &*executor {
            Some(executor) => executor.run_job(job),
            None => job(),
        }
    }

    pub(crate) fn tasks(&self, call: impl FnOnce(&Executor)) {
        if let Some(executor) = &*self.ctx.executor.borrow() {
            call(executor);
        }
    }

    /// Sleepers first: what they wait for may be this turn.
    fn run_tasks(&mut self, now: Instant) -> bool {
        // Held while tasks are polled; they can look, and only `ended` takes it away.
        let executor = self.ctx.executor.borrow();
        let Some(executor) = &*executor else {
            // Handlers are gone: connections that something has come to are closed.
            while self.ctx.begin_roused() {}
            return false;
        };
        executor.advance(now);
        let has_ready = || executor.has_ready() || self.ctx.stack.borrow().has_roused();
        if has_ready() && std::mem::take(&mut self.work.owes_ring) {
            self.ctx.shared.mailbox.ring();
        }
        executor.fetch();
        let run = |budget| executor.run_with(budget, || self.ctx.begin_roused());
        let mut polled = run(TASKS_FIRST);
        if polled == 0 || !has_ready() {
            return polled > 0;
        }
        let begun = self.clock.now();
        let mut late = begun.saturating_since(now) >= TURN_LONG;
        while !late && polled < TASK_BUDGET && has_ready() {
            polled += run(TASKS_ROUND.min(TASK_BUDGET - polled));
            late = self.clock.now().saturating_since(begun) >= TASKS_TIME;
        }
        if has_ready() {
            self.ctx.statistics.budget_used_up();
        }
        true
    }

    /// Batch by batch: the memory of all tasks of one is fetched before the first is woken.
    fn wake_ready(&mut self) {
        if self.work.seated {
            return;
        }
        let mut batch = [Token(0); BURST];
        loop {
            let mut ready = 0;
            let mut stack = self.ctx.stack.borrow_mut();
            while ready < BURST
                && let Some(token) = stack.pop_ready()
            {
                prefetch_local(token.0);
                batch[ready] = token;
                ready += 1;
            }
            drop(stack);
            for &token in &batch[..ready] {
                self.ctx.wake(token);
            }
            if ready < BURST {
                return;
            }
        }
    }

    /// Sends what answers for no task, before tasks run: a SYN-ACK need not wait for them.
    fn send_replies(&mut self) -> bool {
        let owes = self.ctx.stack.borrow().owes_replies();
        owes && self.has_ready()
            && self.send_some(|stack, leaving, room| stack.transmit_replies(leaving, room))
    }

    pub(crate) fn send(&mut self, now: Instant) -> bool {
        let all = |stack: &mut Stack, leaving: &mut Vec<Frame>, room| {
            stack.transmit(now, leaving, room);
        };
        let mut any = false;
        for _ in 0..SEND_ROUNDS {
            if !self.send_some(all) {
                break;
            }
            any = true;
        }
        any
    }

    /// Sends what `transmit` hands out, as far as the port has room. Returns whether anything moved.
    #[inline(always)]
    fn send_some(&mut self, transmit: impl FnOnce(&mut Stack, &mut Vec<Frame>, usize)) -> bool {
        let ctx = &*self.ctx;
        let (mut stack, mut pool) = (ctx.stack.borrow_mut(), ctx.pool.borrow_mut());
        let Work { leaving, done, .. } = &mut self.work;
        let room = self.port.send_room().saturating_sub(leaving.len());
        transmit(&mut stack, leaving, room);
        let before = leaving.len();
        self.port.send(&mut pool, leaving, done);
        let moved = before - leaving.len() + done.len();
        if ctx.fallen.get() {
            // Lent by the stack that fell; this one lends none.
            done.drain(..).for_each(|it| stack.completed_before(it));
        }
        for frame in done.drain(..) {
            stack.completed(frame);
        }
        if stack.has_homecoming() {
            drop((stack, pool));
            ctx.send_home();
        }
        moved > 0
    }

    /// Sleeps until a packet, a message, a timer or the end comes.
    fn sleep(&mut self) -> std::io::Result<()> {
        if let Some(clock) = self.clock.jumps().filter(|clock| !clock.runs()) {
            return self.sleep_paused(clock);
        }
        let Some(timeout) = self.may_sleep() else {
            return Ok(());
        };
        let Shard {
            ctx,
            port,
            forwarded,
            reader,
            work,
            parker,
            clock,
            ..
        } = self;
        let fd = work.wait_fd.as_ref().map(AsFd::as_fd);
        // A test's clock that has been stopped is slept by otherwise.
        let stopped = || clock.jumps().is_some_and(|clock| !clock.runs());
        let has_news = || news(ctx, port, forwarded, reader, work.phase) || stopped();
        parker.park(fd.as_slice(), timeout, has_news)?;
        Ok(())
    }

    /// Before a sleep: for how long at most (`Some(None)`: for ever), unless there is something to do. The device knows
    /// of it from here on.
    pub(crate) fn may_sleep(&mut self) -> Option<Option<Duration>> {
        if self.has_ready()
            || !self.work.leaving.is_empty()
            || self.ctx.stack.borrow().wants_transmit()
            || self.ctx.stack.borrow().has_looped()
            || !self.port.arm()
        {
            return None;
        }
        // Others may be short of what lies in stock here.
        self.ctx.pool.borrow_mut().flush();
        let timeout = self
            .deadline()
            .map(|at| at.saturating_since(self.clock.now()));
        (timeout != Some(Duration::ZERO)).then_some(timeout)
    }

    pub(crate) fn has_ready(&self) -> bool {
        let executor = self.ctx.executor.borrow();
        executor.as_ref().is_some_and(Executor::has_ready) || self.ctx.stack.borrow().has_roused()
    }

    fn next_timer(&self) -> Option<Instant> {
        let executor = self.ctx.executor.borrow();
        executor.as_ref().and_then(Executor::next_deadline)
    }

    /// Time at which work is due that no bell announces.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let end = self.work.phase.deadline();
        let stack = self.ctx.stack.borrow().next_deadline();
        let stubs = self.ctx.tuple_claims.borrow().deadline();
        let moves = self.ctx.moves.borrow().deadline();
        let all = [
            stack,
            self.next_timer(),
            end,
            stubs,
            moves,
            self.ctx.empties_at(),
            self.ctx.offers.borrow().deadline(),
        ];
        all.into_iter().flatten().min()
    }
}

/// Asked when whoever brings something rings already: whether it has come. If not, others are told that this core sleeps.
fn news(
    ctx: &CoreContext,
    port: &mut Port,
    forwarded: &Receiver<Frame>,
    reader: &InboxReader,
    phase: Phase,
) -> bool {
    let mut steering = ctx.steering.borrow_mut();
    let waits = !reader.is_empty()
        || !forwarded.is_empty()
        || ctx.moves.borrow().has_news()
        || port.has_waiting()
        || phase.has_news(&ctx.shared.ending)
        || steering.is_behind()
        || port.is_behind();
    if !waits {
        // A sleeper is not waited for; its first turn refreshes.
        steering.park();
        port.park();
        ctx.shared
            .mailbox
            .rests()
            .falls_asleep(usize::from(ctx.core));
    }
    waits
}
