//! The guardian: a thread that takes the core's turns while no other does, so that a program that computes acknowledges what it is sent,
//! and retransmits. It delivers nothing to the program. While calls come often, or a thread sleeps for the core, it only looks whether
//! they still do, ever more rarely.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::core::Core;
use crate::sleep::{Sleeper, Slept};
use crate::{Errno, Result};

/// Time between two looks: at first, and at most.
const LOOK_MIN: Duration = Duration::from_micros(200);
const LOOK_MAX: Duration = Duration::from_millis(1);
/// Looks in a row at which a thread slept for the core and none was in a call; then it is not looked any more until one has slept.
const QUIET_LOOKS: u32 = 32;

pub(crate) struct Guardian {
    thread: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    sleeper: Arc<Sleeper>,
}

impl Guardian {
    pub(crate) fn start(core: Arc<Core>) -> Result<Guardian> {
        let (sleeper, ends) = (Sleeper::new()?, Arc::new(AtomicBool::new(false)));
        core.lock().sleepers.has_guardian(sleeper.clone());
        let watch = Watch {
            core,
            me: sleeper.clone(),
            ends: ends.clone(),
        };
        let thread = std::thread::Builder::new().name("janus-guardian".into());
        let thread = thread
            .spawn(move || watch.run())
            .map_err(|_| Errno::EAGAIN)?;
        Ok(Guardian {
            thread: Some(thread),
            ends,
            sleeper,
        })
    }
}

/// Ends the thread.
impl Drop for Guardian {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.sleeper.ring();
        if let Some(thread) = self.thread.take() {
            // It has printed why, if it panicked.
            let _ = thread.join();
        }
    }
}

struct Watch {
    core: Arc<Core>,
    me: Arc<Sleeper>,
    ends: Arc<AtomicBool>,
}

impl Watch {
    fn run(&self) {
        let (mut seen, mut look, mut quiet) = (0, LOOK_MIN, 0);
        while !self.ends.load(Ordering::Relaxed) {
            std::thread::sleep(look);
            let entries = self.core.entries();
            if entries != seen {
                (seen, look, quiet) = (entries, (2 * look).min(LOOK_MAX), 0);
                continue;
            }
            let mut inner = self.core.lock();
            inner.rest();
            let led = inner.sleepers.is_led();
            drop(inner);
            if led {
                (look, quiet) = (LOOK_MAX, quiet + 1);
                if quiet >= QUIET_LOOKS {
                    self.sleep_deeply();
                    (look, quiet) = (LOOK_MIN, 0);
                }
            } else {
                look = LOOK_MIN;
                self.lead();
            }
            seen = self.core.entries();
        }
    }

    /// Until a thread that has slept for the core is awake.
    fn sleep_deeply(&self) {
        let inner = self.core.lock();
        if !inner.sleepers.is_led() || inner.owes_rest() {
            return;
        }
        self.me.lie_down();
        drop(inner);
        if !self.ends.load(Ordering::Relaxed) {
            let _whatever_ended_it: Result<Slept> = self.me.sleep(&[], &mut [], None, None);
        }
        let _inner = self.core.lock();
        self.me.rise(false);
    }

    /// Takes the turns until a thread of the program does, or is in a call.
    fn lead(&self) {
        let mut inner = self.core.lock();
        inner.turn();
        let Ok(seat) = inner.seat() else { return };
        let Some(limit) = seat.sleep() else { return };
        inner.sleepers.lead(self.me.clone());
        self.me.lie_down();
        drop(inner);
        if !self.ends.load(Ordering::Relaxed) {
            let _whatever_ended_it = self.me.sleep(self.core.wakes_by(), &mut [], limit, None);
        }
        let mut inner = self.core.lock();
        self.me.rise(false);
        if inner.sleepers.resign(&self.me) {
            inner.turn();
        }
    }
}
