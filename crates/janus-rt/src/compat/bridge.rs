//! A core's loop as the main future of a tokio runtime on the same thread. Inside of it a Janus task finds tokio's timers, sockets and
//! `spawn`, and a tokio task finds this core's streams. `rounds` decides when tokio has its turn; `alarm` and this file put the thread to
//! sleep for both. No task, of either side, is known here by name.
//!
//! While there is something to do, the main future keeps the thread, turn after turn, and gives tokio a *round* now and then: it wakes
//! itself and waits, so that tokio runs its ready tasks, polls its sockets and timers without blocking, and polls it again. When the shard
//! has nothing left, the main future *rests*: it waits without waking itself. When tokio has nothing left either, it calls
//! `on_thread_park`: only then is it known that both may sleep. The shard checks once more (tasks of tokio's may have written to its
//! streams) and arms its bell, and tokio sleeps for both, in its `epoll_wait`, on the descriptors of both.

mod alarm;
mod nudge;
mod rounds;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use janus_tcp::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, EnterGuard, LocalOptions, LocalRuntime, RuntimeMetrics};
use tokio::task::coop::has_budget_remaining;

use crate::shard::{Shard, Step};
use alarm::Alarm;
use nudge::Nudge;
use rounds::Rounds;

/// How long the shard does not rest, but takes its turn after every round, when tokio did not finish its ready tasks in one.
const RESTLESS: Duration = Duration::from_millis(1);

/// The tokio runtime of one core.
pub(crate) struct Tokio {
    runtime: LocalRuntime,
}

impl Tokio {
    pub(crate) fn new(core: u8) -> io::Result<Tokio> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .name(format!("janus-{core}"))
            .thread_name(format!("janus-{core}-blocking"))
            .on_thread_park(|| with_bridge(Bridge::before_park))
            .on_thread_unpark(|| with_bridge(Bridge::after_park))
            .build_local(LocalOptions::default())?;
        Ok(Tokio { runtime })
    }

    /// Makes this thread find the runtime while the guard lives.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Runs `shard` on its thread for as long as it has tasks. Its connections may still have data to send afterwards.
    pub(crate) fn run(self, shard: Shard) -> io::Result<Shard> {
        let bridge = {
            let _context = self.enter();
            Rc::new(RefCell::new(Bridge::new(shard, self.runtime.metrics())?))
        };
        let driven = Driven::new(bridge.clone());
        let result = self
            .runtime
            .block_on(poll_fn(|cx| bridge.borrow_mut().poll(cx)));
        drop(driven);
        let bridge = Rc::into_inner(bridge).map(RefCell::into_inner);
        // The descriptors that tokio waits on go before tokio does.
        let shard = bridge.map(|bridge| bridge.shard);
        // Ends tokio's tasks, and closes what they hold of ours. Calls on tokio's blocking threads are not waited for.
        self.runtime.shutdown_background();
        result?;
        shard.ok_or_else(|| io::Error::other("tokio keeps the loop it has run"))
    }
}

thread_local! {
    static BRIDGE: RefCell<Option<Rc<RefCell<Bridge>>>> = const { RefCell::new(None) };
}

/// While it lives, tokio's hooks on this thread find the bridge.
struct Driven;

impl Driven {
    fn new(bridge: Rc<RefCell<Bridge>>) -> Driven {
        BRIDGE.set(Some(bridge));
        Driven
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        BRIDGE.set(None);
    }
}

fn with_bridge(call: impl FnOnce(&mut Bridge)) {
    BRIDGE.with_borrow(|bridge| {
        // Tokio calls its hooks between two polls, so the bridge is not borrowed.
        if let Some(bridge) = bridge {
            call(&mut bridge.borrow_mut());
        }
    });
}

/// Makes tokio's wait end when `fd` becomes readable.
fn registered(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names one open descriptor for as long as it lives, and `AsyncFd` owns it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Where the main future is when it is not being polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Has woken itself: tokio has one round.
    Round,
    /// Waits until tokio has nothing left to do.
    Resting,
    /// The thread has slept since then.
    Asleep(Instant),
    /// The thread has slept, and is awake.
    Awoken,
}

struct Bridge {
    shard: Shard,
    metrics: RuntimeMetrics,
    /// Wakes the main future.
    main: Waker,
    place: Place,
    rounds: Rounds,
    /// Janus tasks that were ready when tokio's round began.
    ready_before: usize,
    alarm: Alarm,
    nudge: Nudge,
    /// No rest before this: tokio was busy when the shard was not.
    restless_until: Instant,
    /// The shard's descriptors that end tokio's wait. Only registered: that the wait ended is all that matters.
    _ends_on: Vec<AsyncFd<OwnedFd>>,
    failed: Option<io::Error>,
}

impl Bridge {
    /// Makes a bridge; must be called in the runtime's context.
    fn new(shard: Shard, metrics: RuntimeMetrics) -> io::Result<Bridge> {
        let alarm = Alarm::new()?;
        let mut ends_on = shard.wakes_by()?;
        ends_on.push(alarm.descriptor()?);
        let now = shard.clock.now();
        Ok(Bridge {
            _ends_on: ends_on
                .into_iter()
                .map(registered)
                .collect::<io::Result<_>>()?,
            metrics,
            main: Waker::noop().clone(),
            place: Place::Round,
            rounds: Rounds::new(now),
            ready_before: 0,
            alarm,
            nudge: Nudge::new()?,
            restless_until: now,
            failed: None,
            shard,
        })
    }

    /// The main future: takes turns until a round is due or the core can rest. Ready when the shard's tasks are gone.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        if !self.main.will_wake(cx.waker()) {
            self.main.clone_from(cx.waker());
        }
        self.resume();
        loop {
            let Ok(step) = catch_unwind(AssertUnwindSafe(|| self.shard.step())) else {
                // Without its tasks it goes on outside of tokio.
                return Poll::Ready(self.shard.fall().map_err(io::Error::other));
            };
            if step == Step::Ended || !self.shard.has_tasks() {
                return Poll::Ready(Ok(()));
            }
            let idle = step == Step::Idle;
            if idle && self.may_rest() {
                self.place = Place::Resting;
                // Without tasks of tokio's, tokio finishes its ready tasks at once.
                if self.metrics.num_alive_tasks() > 0 {
                    self.nudge.set(cx)?;
                }
                return Poll::Pending;
            }
            let now = self.shard.ctx.now.get();
            // Less than a poll's budget is left for tasks' calls to tokio: it begins anew with the next round.
            if idle
                || !has_budget_remaining()
                || self.rounds.due(now, step == Step::Worked, &self.metrics)
            {
                self.place = Place::Round;
                self.ready_before = self.shard.ready_tasks();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Called when tokio polls the main future again.
    fn resume(&mut self) {
        let now = self.shard.clock.now();
        match self.place {
            Place::Round => {
                let found = self.shard.ready_tasks() > self.ready_before;
                self.rounds.had_one(now, found, &self.metrics);
            }
            Place::Resting => {
                // A whole batch of tokio's tasks was ready, perhaps not the last one.
                self.restless_until = now + RESTLESS;
                self.nudge.clear();
            }
            // The thread may have been woken for tokio: after one turn it has its round.
            Place::Asleep(_) | Place::Awoken => self.rounds.owe(),
        }
    }

    fn may_rest(&self) -> bool {
        self.shard.ctx.now.get() >= self.restless_until
    }

    /// Hook: tokio has nothing left to do and is about to sleep.
    fn before_park(&mut self) {
        if self.place != Place::Resting {
            return;
        }
        self.nudge.clear();
        match self.fall_asleep() {
            Ok(true) => self.place = Place::Asleep(self.shard.clock.now()),
            Ok(false) => self.refuse(),
            Err(error) => {
                self.failed = Some(error);
                self.refuse();
            }
        }
    }

    /// Turns tokio's sleep into a poll: the main future is woken before it begins.
    fn refuse(&mut self) {
        self.place = Place::Round;
        self.main.wake_by_ref();
    }

    fn fall_asleep(&mut self) -> io::Result<bool> {
        let Some(timeout) = self.shard.fall_asleep()? else {
            return Ok(false);
        };
        self.alarm.set(timeout)?;
        Ok(true)
    }

    /// Hook: the thread has slept, or was kept from it.
    fn after_park(&mut self) {
        if let Place::Asleep(since) = self.place {
            self.shard.wake_up(since);
            self.place = Place::Awoken;
            self.main.wake_by_ref();
        }
    }
}
