//! One core of the process: the lock, the calls made under it, turns, and the sleep of a thread whose call cannot go on.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use janus::Seat;
use janus_posix::{Files, Sockets};
use janus_tcp::Instant;

use crate::descriptors::{Descriptors, Ours};
use crate::epoll::KernelParts;
use crate::held::Held;
use crate::kernel::Watched;
use crate::loans::Loans;
use crate::sleep::{CLOSED, GoesOn, Sleeper, Sleepers, Slept};
use crate::traffic::Counted;
use crate::{Errno, Result};

/// A call that finds nothing takes a turn before it says so, if the last was so long ago.
const STALE: Duration = Duration::from_micros(20);

/// A core, and all that is open in the process.
pub(crate) struct Core {
    inner: Mutex<Inner>,
    pub(crate) ours: Ours,
    /// Taken while the lock above is held, or without it; never the other way round.
    pub(crate) loans: Mutex<Loans>,
    pub(crate) counted: Counted,
    /// How often somebody has been in here: the guardian sees by it whether anybody is.
    entries: AtomicU64,
    /// Bell and device.
    wakes_by: Vec<OwnedFd>,
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
    pub(crate) kernel_parts: KernelParts,
    last_turn: Instant,
    /// When the leader, who sleeps, takes a turn by himself. `None`: never.
    leader_until: Option<Instant>,
    /// The leader sleeps and the core does not.
    owes_rest: bool,
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
        let wakes_by = seat.wakes_by().map_err(|_| Errno::EMFILE)?;
        let inner = Inner {
            last_turn: seat.now(),
            seat: Some(seat),
            files: Files::default(),
            descriptors: Descriptors::new()?,
            sleepers: Sleepers::default(),
            listening: HashMap::new(),
            told: HashSet::new(),
            kernel_parts: KernelParts::new(),
            leader_until: None,
            owes_rest: false,
        };
        Ok(Core {
            inner: Mutex::new(inner),
            ours: Ours::none(),
            loans: Mutex::default(),
            counted: Counted::default(),
            entries: AtomicU64::new(0),
            wakes_by,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // Only who has the lock writes.
        let entries = self.entries.load(Ordering::Relaxed);
        self.entries.store(entries + 1, Ordering::Relaxed);
        inner
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    pub(crate) fn wakes_by(&self) -> &[OwnedFd] {
        &self.wakes_by
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

    /// A call that is tried until it can go on, with `also` done between.
    pub(crate) fn block<R>(
        &self,
        goes_on: GoesOn,
        mut attempt: impl FnMut(&mut Sockets<'_>, &mut Descriptors, Instant) -> Attempt<R>,
    ) -> Result<R> {
        let mut until: Option<Option<Instant>> = None;
        // Outlives the lock: handlers run when it is given back.
        let mut held = None;
        let mut inner = self.lock();
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
            let (again, slept) = self.sleep(inner, &[on], &mut [], until, held.as_ref())?;
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

    /// Sleeps until something may have happened to one of `on`, or one of `kernel` has something, or it is `until`. The lock is given
    /// back meanwhile.
    pub(crate) fn sleep<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        on: &[i32],
        kernel: &mut [Watched],
        until: Option<Instant>,
        held: Option<&Held>,
    ) -> Result<(MutexGuard<'a, Inner>, Slept)> {
        let me = Sleeper::mine()?;
        for socket in on {
            // Fails for one that another thread has closed; who waits for it looks again at the end of its time, as on Linux.
            let _closed = inner.call(|sockets, _, now| sockets.wait(now, *socket));
        }
        let now = inner.now()?;
        let mut limit = until.map(|until| until.saturating_since(now));
        let leads = !inner.sleepers.is_led();
        if leads {
            // A try leaves its connection to be asked whether it has something to send, and the core does not sleep before that.
            inner.seat()?.send();
            let Some(turn_in) = inner.seat()?.sleep() else {
                inner.turn();
                // A thread that goes on trying is not to keep out the one that would end that.
                drop(inner);
                std::thread::yield_now();
                return Ok((self.lock(), Slept::Awake));
            };
            limit = [limit, turn_in].into_iter().flatten().min();
            inner.leader_until = turn_in.map(|turn_in| now + turn_in);
            inner.sleepers.lead(me.clone());
        }
        inner.sleepers.wait(&me, on);
        me.lie_down();
        inner.settle();
        inner.rest();
        drop(inner);
        let also = if leads { &self.wakes_by[..] } else { &[] };
        let slept = me.sleep(also, kernel, limit, held);
        let mut inner = self.lock();
        me.rise(!matches!(slept, Ok(Slept::Awake)));
        inner.sleepers.leave(&me, on);
        if inner.sleepers.resign(&me) {
            inner.owes_rest = false;
            inner.turn();
            inner.sleepers.stir_guardian();
        }
        Ok((inner, slept?))
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

    /// Takes what has come, serves timers, sends; who waits for what has happened is rung.
    pub(crate) fn turn(&mut self) {
        if let Some(seat) = &mut self.seat {
            seat.turn();
            self.last_turn = seat.now();
        }
        self.tell();
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

    #[cold]
    fn settle_sleepers(&mut self) {
        self.tell();
        if !self.sleepers.has_leader() {
            self.sleepers.find_leader();
        } else if !self.sleepers.depose_guardian() && !self.owes_rest {
            // The call has woken the core, and its leader sleeps. Whoever calls takes its turns; when no thread does any more, the guardian
            // lets it sleep too.
            self.owes_rest = true;
            self.sleepers.stir_guardian();
        }
    }

    /// The core sleeps on for its leader, who is called if there is something to do, or sooner than he knows.
    pub(crate) fn rest(&mut self) {
        if !std::mem::take(&mut self.owes_rest) {
            return;
        }
        self.turn();
        let Some(seat) = &mut self.seat else { return };
        let now = seat.now();
        let until = match seat.sleep() {
            None => return self.sleepers.call_leader(),
            Some(limit) => limit.map(|limit| now + limit),
        };
        let sooner = match (until, self.leader_until) {
            (Some(due), Some(until)) => due < until,
            (due, _) => due.is_some(),
        };
        if sooner {
            self.sleepers.call_leader();
        }
    }

    pub(crate) fn owes_rest(&self) -> bool {
        self.owes_rest
    }

    /// Rings those who wait for what has happened.
    fn tell(&mut self) {
        if self.sleepers.is_nobody() {
            return;
        }
        let mut happened = Vec::new();
        let _ended = self.call(|sockets, _, _| {
            sockets.gather();
            while let Some(socket) = sockets.next_woken() {
                happened.push(socket);
            }
            Ok(())
        });
        for socket in happened.into_iter().chain([CLOSED]) {
            self.sleepers.happened(socket);
        }
    }
}
