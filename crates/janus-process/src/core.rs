//! One core of the process: what its lock guards, the calls made under it, and its turns. Who takes those is in `rota`.

use std::collections::{HashMap, HashSet};
use std::os::fd::RawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use janus::Seat;
use janus_posix::{Files, Sockets};
use janus_tcp::Instant;

use crate::descriptors::{Descriptors, Ours};
use crate::epoll::KernelParts;
use crate::held::Held;
use crate::loans::Loans;
use crate::pump::{Post, Queue};
use crate::rota::{Rota, Sleepers, Turns};
use crate::sleep::Slept;
use crate::succession::Succession;
use crate::traffic::Counted;
use crate::{Errno, Result};

/// A call that finds nothing takes a turn before it says so, if the last was so long ago.
const STALE: Duration = Duration::from_micros(20);

/// Whether a call that reads or writes goes on after a signal was handled (SA_RESTART), asked each time; one that waits for readiness
/// never does.
pub type GoesOn = fn() -> bool;

/// A core, and all that is open in the process.
pub(crate) struct Core {
    pub(crate) rota: Rota<Inner>,
    pub(crate) ours: Ours,
    /// Taken while the lock above is held, or without it; never the other way round.
    pub(crate) loans: Mutex<Loans>,
    pub(crate) counted: Counted,
    /// Held over a fork, and by the pump except while it waits. Taken before the others.
    pub(crate) forks: Mutex<()>,
    /// Whether other programs may listen at the same ports.
    pub(crate) shares_ports: bool,
    /// Whether there are sockets that were taken over from another program and at which no thread has waited.
    pub(crate) has_unused: Arc<AtomicBool>,
    pub(crate) pump: OnceLock<Arc<Post>>,
}

/// Everything that the lock guards.
pub(crate) struct Inner {
    /// `None` once the process ends.
    pub(crate) seat: Option<Seat>,
    pub(crate) files: Files,
    pub(crate) descriptors: Descriptors,
    pub(crate) sleepers: Sleepers,
    /// The port of each socket that listens.
    pub(crate) listening: HashMap<i32, u16>,
    /// Sockets that may listen yet and whose port the program has asked for: they keep it.
    pub(crate) told: HashSet<i32>,
    /// The queue of each socket that listened when the process forked.
    pub(crate) queues: HashMap<i32, Queue>,
    pub(crate) succession: Succession,
    pub(crate) kernel_parts: KernelParts,
    last_turn: Instant,
}

/// Outcome of a try of a call.
pub(crate) enum Attempt<R> {
    Done(Result<R>),
    /// It cannot go on before something happens to this socket; if that takes too long, or a signal is handled, this is what it comes to.
    Blocked {
        on: i32,
        so_far: Result<R>,
        patience: Option<Duration>,
    },
}

impl<R> Attempt<R> {
    /// Whether a turn may bring what it lacks.
    fn lacks(&self) -> bool {
        match self {
            Attempt::Blocked { .. } => true,
            Attempt::Done(result) => matches!(result, Err(Errno::EAGAIN)),
        }
    }
}

impl Core {
    pub(crate) fn new(seat: Seat) -> Result<Core> {
        let shares_ports = seat.shares_ports();
        let has_unused = Arc::new(AtomicBool::new(false));
        let wakes_by = seat.wakes_by().map_err(|_| Errno::EMFILE)?;
        let inner = Inner {
            last_turn: seat.now(),
            seat: Some(seat),
            files: Files::default(),
            descriptors: Descriptors::new()?,
            sleepers: Sleepers::default(),
            listening: HashMap::new(),
            told: HashSet::new(),
            queues: HashMap::new(),
            succession: Succession::new(has_unused.clone()),
            kernel_parts: KernelParts::new(),
        };
        Ok(Core {
            rota: Rota::new(inner, wakes_by),
            ours: Ours::none(),
            loans: Mutex::default(),
            counted: Counted::default(),
            forks: Mutex::default(),
            shares_ports,
            has_unused,
            pump: OnceLock::new(),
        })
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.rota.lock()
    }

    /// Something has changed about a listener that other programs have too.
    pub(crate) fn ring_pump(&self) {
        if let Some(pump) = self.pump.get() {
            pump.looks_at_shared();
        }
    }

    /// A call that never waits.
    #[inline]
    pub(crate) fn call<R>(
        &self,
        call: impl FnOnce(&mut Sockets<'_>, &mut Descriptors, Instant) -> Result<R>,
    ) -> Result<R> {
        let mut inner = self.lock();
        let result = inner.call(call);
        inner.settle();
        result
    }

    /// A call on a descriptor's socket that is tried until it can go on. A socket that it waits for lasts as long as it does, and it goes on
    /// with that one, whatever becomes of the descriptor's number.
    pub(crate) fn block<R>(
        &self,
        fd: RawFd,
        goes_on: GoesOn,
        mut attempt: impl FnMut(&mut Sockets<'_>, &mut Descriptors, i32, Instant) -> Attempt<R>,
    ) -> Result<R> {
        let inner = self.lock();
        let socket = inner.descriptors.socket(fd)?;
        // Set once it waits, to the patience that it had then.
        let mut waits: Option<Option<Duration>> = None;
        let done = self.block_on(inner, goes_on, |sockets, descriptors, now| {
            let tried = attempt(sockets, descriptors, socket, now);
            match (&tried, waits) {
                (Attempt::Blocked { patience, .. }, None) => {
                    waits = Some(*patience);
                    descriptors.hold(socket);
                    tried
                }
                // O_NONBLOCK that is set meanwhile is for later calls.
                (Attempt::Done(Err(Errno::EAGAIN)), Some(patience)) => Attempt::Blocked {
                    on: socket,
                    so_far: Err(Errno::EAGAIN),
                    patience,
                },
                _ => tried,
            }
        });
        if waits.is_some() {
            self.let_go(&[socket]);
        }
        done
    }

    /// A call on no descriptor that is tried until it can go on.
    pub(crate) fn block_on<'a, R>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        goes_on: GoesOn,
        mut attempt: impl FnMut(&mut Sockets<'_>, &mut Descriptors, Instant) -> Attempt<R>,
    ) -> Result<R> {
        let mut until: Option<Option<Instant>> = None;
        // Outlives the lock: handlers run when it is given back.
        let mut held = None;
        let mut inner = inner;
        loop {
            let mut tried = inner.try_once(&mut attempt);
            if held.is_none() && matches!(tried, Attempt::Blocked { .. }) {
                held = Some(Held::now());
            }
            // It may have come since the last turn.
            if tried.lacks() && inner.refresh() {
                tried = inner.try_once(&mut attempt);
            }
            let (on, so_far, patience) = match tried {
                Attempt::Done(result) => {
                    inner.settle();
                    return result;
                }
                Attempt::Blocked {
                    on,
                    so_far,
                    patience,
                } => (on, so_far, patience),
            };
            let now = inner.now()?;
            let until = *until.get_or_insert(patience.map(|patience| now + patience));
            if until.is_some_and(|until| now >= until) {
                inner.settle();
                return so_far;
            }
            let (again, slept) = self
                .rota
                .sleep(inner, &[on], &mut [], until, held.as_ref())?;
            inner = again;
            if slept == Slept::Interrupted && (patience.is_some() || !goes_on()) {
                inner.settle();
                return match so_far {
                    Err(Errno::EAGAIN | Errno::EINPROGRESS) => Err(Errno::EINTR),
                    some => some,
                };
            }
        }
    }

    /// Takes back a name more of each ([`Descriptors::hold`]); it may have been the last.
    pub(crate) fn let_go(&self, sockets: &[i32]) {
        if sockets.is_empty() {
            return;
        }
        let mut inner = self.lock();
        for socket in sockets {
            if inner.descriptors.unhold(*socket) {
                // An end that fails is an end.
                let _ = inner.end(*socket);
            }
        }
        inner.settle();
    }
}

impl Inner {
    pub(crate) fn seat(&mut self) -> Result<&mut Seat> {
        // Calls in the middle of the process's end find nothing open.
        self.seat.as_mut().ok_or(Errno::EBADF)
    }

    pub(crate) fn now(&mut self) -> Result<Instant> {
        Ok(self.seat()?.now())
    }

    #[inline]
    pub(crate) fn call<R>(
        &mut self,
        call: impl FnOnce(&mut Sockets<'_>, &mut Descriptors, Instant) -> Result<R>,
    ) -> Result<R> {
        let Inner {
            seat,
            files,
            descriptors,
            ..
        } = self;
        let seat = seat.as_mut().ok_or(Errno::EBADF)?;
        seat.on_stack(|stack, now| call(&mut files.over(stack), descriptors, now))
    }

    fn try_once<R>(
        &mut self,
        attempt: &mut impl FnMut(&mut Sockets<'_>, &mut Descriptors, Instant) -> Attempt<R>,
    ) -> Attempt<R> {
        let tried = self.call(|sockets, descriptors, now| Ok(attempt(sockets, descriptors, now)));
        tried.unwrap_or_else(|error| Attempt::Done(Err(error)))
    }

    /// Takes a turn unless one was taken just now. Whether it did.
    pub(crate) fn refresh(&mut self) -> bool {
        let Ok(now) = self.now() else { return false };
        let stale = now.saturating_since(self.last_turn) >= STALE;
        if stale {
            self.turn();
        }
        stale
    }

    /// At the end of a call: what it left to be sent goes, who waits for what it did is rung, and the core sleeps on if its leader does.
    /// A thread that calls all the time, but never for what could block, takes the turns here.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if let Some(seat) = &mut self.seat {
            match seat.called_at().saturating_since(self.last_turn) >= STALE {
                true => self.turn(),
                false => seat.send(),
            }
        }
        if !self.sleepers.is_nobody() {
            self.settle_sleepers();
        }
    }
}

impl Turns for Inner {
    fn sleepers(&mut self) -> &mut Sleepers {
        &mut self.sleepers
    }

    fn time(&mut self) -> Result<Instant> {
        self.now()
    }

    fn take_turn(&mut self) {
        if let Some(seat) = &mut self.seat {
            seat.turn();
            self.last_turn = seat.now();
        }
    }

    fn send(&mut self) {
        if let Some(seat) = &mut self.seat {
            seat.send();
        }
    }

    fn watch(&mut self, on: &[i32]) {
        for socket in on {
            // Fails for one that another thread has closed; who waits for it looks again at the end of its time, as on Linux.
            let _closed = self.call(|sockets, _, now| sockets.wait(now, *socket));
        }
    }

    fn happened(&mut self) -> Vec<i32> {
        let all = self.call(|sockets, _, _| {
            sockets.gather();
            Ok(std::iter::from_fn(|| sockets.next_woken()).collect())
        });
        all.unwrap_or_default()
    }

    fn is_left_alone(&mut self) {
        Inner::is_left_alone(self);
    }

    fn sleep(&mut self) -> Result<Option<Option<Duration>>> {
        Ok(self.seat()?.sleep())
    }
}
