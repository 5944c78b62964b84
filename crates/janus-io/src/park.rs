//! How a polling thread goes to sleep without missing anything: it says so, looks once more, then waits in `ppoll` on
//! an eventfd and any device descriptors. A peer that has put work somewhere rings the bell; that is a fence and a load
//! while the owner is awake, and a system call (about 20 µs until the sleeper runs) only when it sleeps. Knows nothing
//! of what the work is. Checked by loom.

use std::io;
use std::time::Duration;

#[cfg(not(loom))]
use rustix::fd::{AsFd, BorrowedFd};

use crate::debug::opaque;
use crate::sync::{Arc, AtomicU32, Ordering, fence};

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

    /// Readable after a ring, until the next [`arm`](Self::arm).
    #[cfg(not(loom))]
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.signal.0.as_fd()
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

    /// Sleeps until rung, until one of `fds` is readable, or until the time is up; not at all when `has_work` (asked
    /// after the owner has said that it listens) is true. Descriptors beyond [`MAX_WAIT_FDS`] are refused.
    #[cfg(not(loom))]
    pub fn park(
        &mut self,
        fds: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
        has_work: impl FnOnce() -> bool,
    ) -> io::Result<Woken> {
        self.park_with(has_work, |signal| signal.wait(fds, timeout))
    }

    /// As above, without descriptors and time, for the model.
    #[cfg(loom)]
    pub fn park(&mut self, has_work: impl FnOnce() -> bool) -> io::Result<Woken> {
        self.park_with(has_work, |signal| signal.wait(&[], None))
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

/// The part that really sleeps.
#[cfg(not(loom))]
struct Signal(rustix::fd::OwnedFd);

#[cfg(not(loom))]
impl Signal {
    fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self(eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    fn set(&self) {
        // Fails only when the counter is at its maximum, and then the descriptor is readable anyhow.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn clear(&self) {
        // Fails when there is nothing to clear.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }

    fn wait(&self, fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Woken> {
        use rustix::event::{PollFd, PollFlags, poll};
        if fds.len() > MAX_WAIT_FDS {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a core can sleep on {MAX_WAIT_FDS} descriptors, not {}",
                    fds.len()
                ),
            ));
        }
        let own = self.0.as_fd();
        let mut polled: [PollFd<'_>; MAX_WAIT_FDS + 1] = std::array::from_fn(|i| {
            PollFd::from_borrowed_fd(*fds.get(i).unwrap_or(&own), PollFlags::IN)
        });
        polled[fds.len()] = PollFd::from_borrowed_fd(own, PollFlags::IN);
        // A time too long for the kernel's type is no time limit at all.
        let timeout = timeout.and_then(|t| rustix::event::Timespec::try_from(t).ok());
        match poll(&mut polled[..=fds.len()], timeout.as_ref()) {
            Ok(0) => Ok(Woken::Timeout),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(Woken::Event),
            Err(e) => Err(e.into()),
        }
    }
}

/// In the model: a bit on a line that several signals can share, as `poll` waits for several descriptors.
#[cfg(loom)]
struct Signal {
    line: Arc<Line>,
    bit: u32,
}

#[cfg(loom)]
struct Line {
    set: loom::sync::Mutex<u32>,
    changed: loom::sync::Condvar,
}

#[cfg(loom)]
impl Signal {
    fn new() -> io::Result<Self> {
        let line = Arc::new(Line {
            set: loom::sync::Mutex::new(0),
            changed: loom::sync::Condvar::new(),
        });
        Ok(Self { line, bit: 1 })
    }

    fn set(&self) {
        *self.line.set.lock().unwrap() |= self.bit;
        self.line.changed.notify_one();
    }

    fn clear(&self) {
        *self.line.set.lock().unwrap() &= !self.bit;
    }

    /// For any signal on the line.
    fn wait(&self, _: &[()], _: Option<Duration>) -> io::Result<Woken> {
        let mut set = self.line.set.lock().unwrap();
        while *set == 0 {
            set = self.line.changed.wait(set).unwrap();
        }
        Ok(Woken::Event)
    }
}

#[cfg(loom)]
impl Parker {
    /// A device's bell, that this parker sleeps on too.
    fn device_bell(&self) -> Bell {
        let signal = Signal {
            line: self.bell.signal.line.clone(),
            bit: 2,
        };
        Bell {
            state: AtomicU32::new(AWAKE),
            signal,
        }
    }
}

#[cfg(test)]
mod tests;
