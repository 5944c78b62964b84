//! Threads that sleep: each has a bell of its own, which is rung once for each sleep.

use std::cell::RefCell;
use std::time::Duration;

use crate::Result;
use crate::bell::{Bell, Waker};
use crate::held::Held;
use crate::kernel::Watched;
use crate::sync::{Arc, AtomicBool, Ordering, thread_local};

/// A thread that may sleep.
pub(crate) struct Sleeper {
    bell: Bell,
    asleep: AtomicBool,
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// It may go on: something happened, or nothing did.
    Awake,
    /// A handler of a signal has run.
    Interrupted,
}

thread_local! {
    #[allow(clippy::missing_const_for_thread_local, reason = "the model checker's has none")]
    static MINE: RefCell<Option<Arc<Sleeper>>> = RefCell::new(None);
}

impl Sleeper {
    /// The calling thread's. At the thread's end, in the destructors of its other variables, each call has one of its own.
    pub(crate) fn mine() -> Result<Arc<Sleeper>> {
        let known = MINE.try_with(|mine| {
            let mut mine = mine.borrow_mut();
            if let Some(mine) = &*mine {
                return Ok(mine.clone());
            }
            let new = Sleeper::new()?;
            *mine = Some(new.clone());
            Ok(new)
        });
        known.unwrap_or_else(|_| Sleeper::new())
    }

    /// In a forked child: what the calling thread had was its parent's.
    pub(crate) fn forget_mine() {
        // Never dropped: its descriptors were closed, and their numbers may be others'.
        let _ = MINE.try_with(|mine| std::mem::forget(mine.take()));
    }

    pub(crate) fn new() -> Result<Arc<Sleeper>> {
        Ok(Arc::new(Sleeper {
            bell: Bell::new()?,
            asleep: AtomicBool::new(false),
        }))
    }

    /// It is about to sleep. Said with the core's lock held, as all that follows from it.
    pub(crate) fn lie_down(&self) {
        self.asleep.store(true, Ordering::Relaxed);
    }

    /// It is awake, and whoever rang need not have. `interrupted`: a signal may have rung too.
    pub(crate) fn rise(&self, interrupted: bool) {
        if !self.asleep.swap(false, Ordering::Relaxed) || interrupted {
            self.bell.clear();
        }
    }

    /// Ends its sleep, once.
    pub(crate) fn ring(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            self.bell.ring();
        }
    }

    /// Sleeps without the lock: until it is rung, a descriptor of `also` or `kernel` has something, or the time is up.
    pub(crate) fn sleep(
        &self,
        also: &[Waker],
        kernel: &mut [Watched],
        limit: Option<Duration>,
        held: Option<&Held>,
    ) -> Result<Slept> {
        self.bell.wait(also, kernel, limit, held)
    }
}
