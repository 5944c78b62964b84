//! How a polling thread goes to sleep without missing anything: it says so, looks once more, then waits in `ppoll` on
//! an eventfd and any device descriptors. A peer that has put work somewhere rings the bell; that is a fence and a load
//! while the owner is awake, and a system call (about 20 µs until the sleeper runs) only when it sleeps. Knows nothing
//! of what the work is. Checked by loom. What really sleeps is `signal`, or `model` under the model checker.

#[cfg_attr(loom, path = "park/model.rs")]
mod signal;

use std::io;

use crate::debug::opaque;
use crate::sync::{Arc, AtomicU32, Ordering, fence};
use signal::Signal;

/// Device descriptors one sleeper can wait for besides its own bell.
pub const MAX_WAIT_FDS: usize = 15;

const AWAKE: u32 = 0;
const LISTENING: u32 = 1;
const RUNG: u32 = 2;

/// A bell one owner listens for, only while it says so.
///
/// No wake-up is lost because both sides do "write mine, full fence, read the other's": the owner writes `LISTENING`
/// and then looks for work, a ringer writes the work and then looks for `LISTENING`. At least one of them sees the other.
pub struct Bell {
    state: AtomicU32,
    signal: Signal,
}

opaque!(Bell);

impl Bell {
    /// Creates a bell that no thread listens for yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: AtomicU32::new(AWAKE),
            signal: Signal::new()?,
        })
    }

    /// The owner is about to sleep. It must look for work after this, and only then wait.
    pub fn arm(&self) {
        // A ringer that was late last time may have left its mark.
        self.signal.clear();
        self.state.store(LISTENING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake again. True when somebody rang.
    pub fn disarm(&self) -> bool {
        self.state.swap(AWAKE, Ordering::Acquire) == RUNG
    }

    /// Wakes the owner if it sleeps or is about to. Call it after the work can be seen. True when it took a system call.
    #[inline]
    pub fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Relaxed) == LISTENING && self.ring_listening()
    }

    #[cold]
    fn ring_listening(&self) -> bool {
        // Of several ringers one does the system call.
        let won = self
            .state
            .compare_exchange(LISTENING, RUNG, Ordering::Release, Ordering::Relaxed)
            .is_ok();
        if won {
            self.signal.set();
        }
        won
    }
}

/// Why [`Parker::park`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// There was work after all: it did not sleep.
    Work,
    /// Somebody rang, a descriptor became readable, or a signal handler ran.
    Event,
    /// The time was up.
    Timeout,
}

/// The sleeper's half.
pub struct Parker {
    bell: Arc<Bell>,
}

opaque!(Parker);

impl Parker {
    /// A parker with its own eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            bell: Arc::new(Bell::new()?),
        })
    }

    /// A handle for those who bring work.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        Unparker {
            bell: self.bell.clone(),
        }
    }

    /// The bell itself, for an owner that waits elsewhere on its descriptor: it arms, looks for work, waits, disarms.
    #[must_use]
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    fn park_with(
        &mut self,
        has_work: impl FnOnce() -> bool,
        wait: impl FnOnce(&Signal) -> io::Result<Woken>,
    ) -> io::Result<Woken> {
        self.bell.arm();
        let woken = if has_work() {
            Ok(Woken::Work)
        } else {
            wait(&self.bell.signal)
        };
        self.bell.disarm();
        woken
    }
}

/// Wakes a [`Parker`]; clone it freely.
#[derive(Clone)]
pub struct Unparker {
    bell: Arc<Bell>,
}

opaque!(Unparker);

impl Unparker {
    /// Wakes the parker if it sleeps or is about to; call it after the work can be seen. True when it took a system call.
    #[inline]
    pub fn wake(&self) -> bool {
        self.bell.ring()
    }

    /// Whether a wake would end a sleep: the parker sleeps, or is about to, and was not woken yet.
    #[must_use]
    pub fn would_wake(&self) -> bool {
        self.bell.state.load(Ordering::Acquire) == LISTENING
    }
}

#[cfg(test)]
mod tests;
