//! Time for tasks: [`sleep`], [`sleep_until`], [`timeout`] and [`interval`], over the engine's timing wheel.
//! The time is the shard's, taken once a turn, so a test may run it at any speed.

mod interval;
mod sleep;
mod timeout;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::task::Waker;

use janus_mem::{Growth, MemError};
use janus_tcp::wheel::{TimerId, Wheel};

pub use core::time::Duration;
pub use interval::{Interval, interval};
pub use janus_tcp::Instant;
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout};

use crate::task::TaskId;

/// Timers a core can have at a time.
const TIMERS_MAX: u32 = if cfg!(miri) { 1 << 10 } else { 1 << 26 };
/// Set in a timer's payload that names a stored waker; task ids have 30 bits.
const STORED: u32 = 1 << 31;

/// The timers of one core.
pub(crate) struct Timers {
    wheel: RefCell<Wheel>,
    /// Wakers that are no task of this core (a combinator's, another executor's).
    stored: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<u32>>,
    /// Payloads that fired in this turn; kept so that no turn allocates.
    fired: RefCell<Vec<u32>>,
    next: Cell<Option<Instant>>,
}

/// A timer as its owner holds it.
#[derive(Clone, Copy)]
pub(crate) struct Armed {
    timer: TimerId,
    payload: u32,
}

impl Timers {
    pub(crate) fn new(growth: &Growth) -> Result<Timers, MemError> {
        Ok(Timers {
            wheel: RefCell::new(Wheel::new(TIMERS_MAX, growth)?),
            stored: RefCell::default(),
            free: RefCell::default(),
            fired: RefCell::default(),
            next: Cell::new(None),
        })
    }

    /// Arms a timer that wakes `task`, or `waker` where that is no task of this core.
    ///
    /// # Panics
    /// Beyond 67 million timers on one core.
    pub(crate) fn arm(&self, deadline: Instant, task: Option<TaskId>, waker: &Waker) -> Armed {
        let payload = task.unwrap_or_else(|| self.store(waker.clone()));
        let armed = self.wheel.borrow_mut().insert(deadline, payload);
        let Some(timer) = armed else {
            panic!("{TIMERS_MAX} timers wait on this core already")
        };
        self.next.set(self.wheel.borrow().next());
        Armed { timer, payload }
    }

    fn store(&self, waker: Waker) -> u32 {
        let mut stored = self.stored.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            stored.push(None);
            (stored.len() - 1) as u32
        });
        stored[slot as usize] = Some(waker);
        slot | STORED
    }

    fn unstore(&self, payload: u32) -> Option<Waker> {
        if payload & STORED == 0 {
            return None;
        }
        let slot = payload & !STORED;
        let waker = self.stored.borrow_mut()[slot as usize].take();
        self.free.borrow_mut().push(slot);
        waker
    }

    /// Whether `armed` would wake what a poll with this task (or waker) wants woken.
    pub(crate) fn wakes(&self, armed: Armed, task: Option<TaskId>, waker: &Waker) -> bool {
        match task {
            Some(task) => armed.payload == task,
            None if armed.payload & STORED == 0 => false,
            None => {
                let slot = armed.payload & !STORED;
                self.stored.borrow()[slot as usize]
                    .as_ref()
                    .is_some_and(|w| w.will_wake(waker))
            }
        }
    }

    /// Takes a timer back; one that fired meanwhile is no matter.
    pub(crate) fn disarm(&self, armed: Armed) {
        if self.wheel.borrow_mut().cancel(armed.timer) {
            let waker = self.unstore(armed.payload);
            drop(waker);
            self.next.set(self.wheel.borrow().next());
        }
    }

    /// Fires what is due: tasks by `wake`, wakers directly.
    pub(crate) fn advance(&self, now: Instant, mut wake: impl FnMut(TaskId)) {
        if self.next.get().is_none_or(|next| next > now) {
            return;
        }
        let mut fired = self.fired.take();
        self.wheel
            .borrow_mut()
            .advance(now, |payload| fired.push(payload));
        self.next.set(self.wheel.borrow().next());
        for payload in fired.drain(..) {
            if payload & STORED == 0 {
                wake(payload);
            } else if let Some(waker) = self.unstore(payload) {
                waker.wake();
            }
        }
        self.fired.replace(fired);
    }

    /// When [`Timers::advance`] has something to do.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next.get()
    }
}
