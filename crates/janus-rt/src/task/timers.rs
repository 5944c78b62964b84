//! Timers of one core: a timing wheel whose payloads are tasks, or places of wakers that are no task of this core. The futures that wait
//! for a moment are in `time`.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::task::Waker;

use janus_mem::{Growth, MemError};
use janus_tcp::Instant;
use janus_tcp::wheel::{TimerId, Wheel};

use super::TaskId;
use super::wakers::WakerTable;

/// Timers a core can have at a time.
pub(super) const TIMERS_MAX: u32 = if cfg!(miri) { 1 << 10 } else { 1 << 26 };
/// Timers fired in one turn: however many sleepers wake at one moment, packets do not wait for long.
pub(crate) const FIRED_MAX: usize = 1_024;
/// Set in a timer's payload that names a stored waker; task ids have 30 bits.
const STORED: u32 = 1 << 31;

/// The timers of one core.
pub(crate) struct Timers {
    /// The shard's number, unique in the process: a `Sleep` may be moved to another shard.
    owner: NonZeroU32,
    wheel: RefCell<Wheel>,
    /// Wakers of anything but a task of this core (a combinator's, another executor's).
    stored: RefCell<WakerTable>,
    /// Payloads that fired in this turn; kept so that no turn allocates.
    fired: RefCell<Vec<u32>>,
    next: Cell<Option<Instant>>,
}

/// A timer as its owner holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Armed {
    timer: TimerId,
    payload: u32,
    owner: NonZeroU32,
}

impl Timers {
    pub(crate) fn new(owner: NonZeroU32, growth: &Growth, room: u32) -> Result<Timers, MemError> {
        Ok(Timers {
            owner,
            wheel: RefCell::new(Wheel::new(room, growth)?),
            stored: RefCell::default(),
            fired: RefCell::default(),
            next: Cell::new(None),
        })
    }

    /// Arms a timer that wakes `task`, or `waker` where that is no task of this core.
    ///
    /// # Panics
    /// Beyond 67 million timers on one core.
    pub(crate) fn arm(&self, deadline: Instant, task: Option<TaskId>, waker: &Waker) -> Armed {
        let payload = task.unwrap_or_else(|| {
            let waker = waker.clone();
            self.stored.borrow_mut().insert(waker) | STORED
        });
        let armed = self.wheel.borrow_mut().insert(deadline, payload);
        let Some(timer) = armed else {
            panic!("as many timers wait on this core as it has room for")
        };
        self.next.set(self.wheel.borrow().next());
        Armed {
            timer,
            payload,
            owner: self.owner,
        }
    }

    fn unstore(&self, payload: u32) -> Option<Waker> {
        if payload & STORED == 0 {
            return None;
        }
        self.stored.borrow_mut().remove(payload & !STORED)
    }

    /// Returns whether `armed` would wake the task (or waker) of this poll.
    pub(crate) fn wakes(&self, armed: Armed, task: Option<TaskId>, waker: &Waker) -> bool {
        if armed.owner != self.owner {
            return false;
        }
        match task {
            Some(task) => armed.payload == task,
            None if armed.payload & STORED == 0 => false,
            None => {
                let stored = self.stored.borrow();
                let waiting = stored.get(armed.payload & !STORED);
                waiting.is_some_and(|w| w.will_wake(waker))
            }
        }
    }

    /// Cancels a timer, if it has not fired. A timer of another core stays there and causes a spurious wake, which is legal.
    pub(crate) fn disarm(&self, armed: Armed) {
        if armed.owner == self.owner && self.wheel.borrow_mut().cancel(armed.timer) {
            let waker = self.unstore(armed.payload);
            drop(waker);
            self.next.set(self.wheel.borrow().next());
        }
    }

    /// Fires due timers up to a bound: wakes tasks through `wake`, wakers directly. The rest stays due, so that [`Timers::next`] returns a
    /// moment that has passed.
    pub(crate) fn advance(&self, now: Instant, mut wake: impl FnMut(TaskId)) {
        if self.next.get().is_none_or(|next| next > now) {
            return;
        }
        let mut fired = self.fired.take();
        self.wheel
            .borrow_mut()
            .advance_some(now, FIRED_MAX, |payload| fired.push(payload));
        self.next.set(self.wheel.borrow().next());
        for payload in fired.drain(..) {
            if payload & STORED == 0 {
                wake(payload);
            } else if let Some(waker) = self.unstore(payload) {
                super::wake_foreign(waker);
            }
        }
        self.fired.replace(fired);
    }

    /// Returns the moment at which [`Timers::advance`] has something to do next.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next.get()
    }

    /// Returns the bytes committed for timers.
    pub(crate) fn bytes(&self) -> usize {
        self.wheel.borrow().committed_bytes() + self.stored.borrow().bytes()
    }
}
