//! Sleeping threads: each has a bell of its own; one of those of a core leads, which means that it sleeps on the core's device too and
//! takes its turns. The others are rung when something happened to what they wait for, or when there is no leader any more.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::held::Held;
use crate::interrupts;
use crate::kernel::{self, Watched};
use crate::{Errno, Result, errno, own};

/// A thread that may sleep.
pub(crate) struct Sleeper {
    bell: OwnedFd,
    asleep: AtomicBool,
}

/// Its thread is gone.
impl Drop for Sleeper {
    fn drop(&mut self) {
        own::forget(self.bell.as_raw_fd());
    }
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// It may go on: something happened, or nothing did.
    Awake,
    /// A handler of a signal has run.
    Interrupted,
}

/// Whether a call that reads or writes goes on after a signal was handled (SA_RESTART), asked each time; one that waits for readiness
/// never does.
pub type GoesOn = fn() -> bool;

/// Stands for a socket that is closed already, whose last bytes are waited for (SO_LINGER): no event names it, so that those who wait look
/// again after each turn.
pub(crate) const CLOSED: i32 = -1;

thread_local! {
    static MINE: RefCell<Option<Arc<Sleeper>>> = const { RefCell::new(None) };
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

    pub(crate) fn new() -> Result<Arc<Sleeper>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(errno)?;
        let bell = own::raised(bell);
        own::note(bell.as_raw_fd());
        Ok(Arc::new(Sleeper {
            bell,
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
            let _nothing_to_clear = rustix::io::read(&self.bell, &mut [0; 8]);
        }
    }

    /// Ends its sleep, once.
    pub(crate) fn ring(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            // It fails when the counter is full, and then the bell rings already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Sleeps without the lock: until it is rung, a descriptor of `also` or `kernel` has something, or the time is up.
    pub(crate) fn sleep(
        &self,
        also: &[OwnedFd],
        kernel: &mut [Watched],
        limit: Option<Duration>,
        held: Option<&Held>,
    ) -> Result<Slept> {
        let own = [self.bell.as_fd()].into_iter();
        let also: Vec<_> = own.chain(also.iter().map(AsFd::as_fd)).collect();
        let sleeping = interrupts::sleeps_on(self.bell.as_raw_fd());
        let slept = match interrupts::is_due() {
            true => Err(Errno::EINTR),
            false => kernel::wait(&also, kernel, limit, held),
        };
        drop(sleeping);
        // Handlers run here, where no lock is held.
        match (slept, interrupts::deliver()) {
            (Ok(()), false) => Ok(Slept::Awake),
            (Ok(()) | Err(Errno::EINTR), _) => Ok(Slept::Interrupted),
            (Err(error), _) => Err(error),
        }
    }
}

/// The threads that sleep for a core.
#[derive(Default)]
pub(crate) struct Sleepers {
    /// By the number of the socket or epoll instance that each waits for.
    on: HashMap<i32, Vec<Arc<Sleeper>>>,
    leader: Option<Arc<Sleeper>>,
    /// Leads while no thread of the program does.
    guardian: Option<Arc<Sleeper>>,
}

impl Sleepers {
    pub(crate) fn has_guardian(&mut self, guardian: Arc<Sleeper>) {
        self.guardian = Some(guardian);
    }

    /// Whether a thread of the program leads.
    pub(crate) fn is_led(&self) -> bool {
        self.leader.is_some() && !self.guardian_leads()
    }

    fn guardian_leads(&self) -> bool {
        match (&self.leader, &self.guardian) {
            (Some(leader), Some(guardian)) => Arc::ptr_eq(leader, guardian),
            _ => false,
        }
    }

    /// `who` leads from now on, in the guardian's place if that did.
    pub(crate) fn lead(&mut self, who: Arc<Sleeper>) {
        self.depose_guardian();
        self.leader = Some(who);
    }

    /// A thread is in a call: the guardian need not lead, if it does. Whether it did.
    pub(crate) fn depose_guardian(&mut self) -> bool {
        let led = self.guardian_leads();
        if led {
            self.call_leader();
            self.leader = None;
        }
        led
    }

    /// A thread has led, and is awake: from now on it may be long until the next turn.
    pub(crate) fn stir_guardian(&self) {
        if let Some(guardian) = &self.guardian {
            guardian.ring();
        }
    }

    /// `who` leads no more. Whether it did.
    pub(crate) fn resign(&mut self, who: &Arc<Sleeper>) -> bool {
        let did = self.leader.as_ref().is_some_and(|it| Arc::ptr_eq(it, who));
        if did {
            self.leader = None;
        }
        did
    }

    /// Wakes the leader: a turn is due sooner than it knows.
    pub(crate) fn call_leader(&self) {
        if let Some(leader) = &self.leader {
            leader.ring();
        }
    }

    /// The core has ended: all that sleep for it look.
    pub(crate) fn wake_all(&self) {
        self.call_leader();
        self.on.values().flatten().for_each(|who| who.ring());
    }

    pub(crate) fn wait(&mut self, who: &Arc<Sleeper>, on: &[i32]) {
        for socket in on {
            self.on.entry(*socket).or_default().push(who.clone());
        }
    }

    pub(crate) fn leave(&mut self, who: &Arc<Sleeper>, on: &[i32]) {
        for socket in on {
            if let Some(all) = self.on.get_mut(socket) {
                all.retain(|it| !Arc::ptr_eq(it, who));
                if all.is_empty() {
                    self.on.remove(socket);
                }
            }
        }
    }

    /// Something happened to a socket. All that wait for it look: one of them may take it, and the others sleep again.
    pub(crate) fn happened(&mut self, socket: i32) {
        for who in self.on.get(&socket).into_iter().flatten() {
            who.ring();
        }
    }

    /// One of those who sleep is to lead.
    pub(crate) fn find_leader(&self) {
        if let Some(who) = self.on.values().flatten().next() {
            who.ring();
        }
    }

    pub(crate) fn has_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// Whether there is neither a leader nor anybody who waits for something.
    pub(crate) fn is_nobody(&self) -> bool {
        self.on.is_empty() && self.leader.is_none()
    }
}
