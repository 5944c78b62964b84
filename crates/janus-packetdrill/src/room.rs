//! The one room behind all functions of the table: the host, and who waits in it. Time is virtual: it moves when
//! somebody asks what time it is, sleeps, or waits for a packet, and then jumps from one deadline to the next.
//!
//! Two threads come here. The main one plays the script and never waits. A call that may block is made on another;
//! there it sleeps until something has happened that could let it go on. Between two things that happen, the one who moves
//! the clock waits until everybody he woke has looked, and, if that ended his call, has read the clock: so a call returns at
//! the very moment that let it return, however busy the machine is.

use super::cabi::thread;
use super::descriptors::Descriptors;
use janus_posix::{Errno, Host, Sockets};
use janus_tcp::Instant;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as RealInstant};

/// How long who moves the clock waits, in real time, for those he woke. Reached only by a thread that ends instead of
/// reading the clock.
const HAND_OVER_MAX: Duration = Duration::from_secs(1);
/// How often a waiting thread looks whether the main thread in turn waits for it.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// How far, in microseconds, a waiting thread then moves the clock by itself. It is how long the tool waits for a call to
/// end before it goes on without.
const CARRY_MAX: u64 = 1_000_000;
/// Deadlines that may fall on one moment: a stack that has more has them for ever.
const STEPS_MAX: u32 = 1_000_000;

/// Outcome of an attempt to carry out a call.
pub(super) enum Attempt<T> {
    Done(Result<T, Errno>),
    /// It has to wait, at most until that microsecond. A caller that may wait no longer gets this result instead.
    Blocked(Result<T, Errno>, Option<u64>),
}

/// How long a call waits, counted from its first try.
#[derive(Default)]
pub(super) struct Patience {
    begun: Option<u64>,
}

impl Patience {
    /// The microsecond at which it is over.
    pub(super) fn until(&mut self, state: &State, timeout: Option<Duration>) -> Option<u64> {
        let now = state.micros();
        let begun = *self.begun.get_or_insert(now);
        let micros = u64::try_from(timeout?.as_micros()).unwrap_or(u64::MAX);
        Some(begun.saturating_add(micros))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Waiting,
    /// Something happened; has not looked yet.
    Woken,
    /// The call has ended; the time was not read yet.
    Returned,
}

struct Waiter {
    thread: i32,
    phase: Phase,
    until: Option<u64>,
}

pub(super) struct State {
    pub(super) host: Host,
    pub(super) open: Descriptors,
    waiters: Vec<Waiter>,
    /// Something happened since the waiters looked last.
    changed: bool,
    /// No call may wait any more.
    ended: bool,
}

impl State {
    /// The sockets, and the time for their calls.
    pub(super) fn sockets(&mut self) -> (Sockets<'_>, Instant) {
        let now = self.host.now();
        (self.host.sockets(), now)
    }

    pub(super) fn micros(&self) -> u64 {
        self.host.micros()
    }

    fn waiter(&mut self, thread: i32) -> Option<&mut Waiter> {
        self.waiters.iter_mut().find(|own| own.thread == thread)
    }

    fn is_woken(&self) -> bool {
        self.waiters
            .iter()
            .any(|waiter| waiter.phase != Phase::Waiting)
    }

    /// When the first of those who wait has waited long enough.
    fn first_until(&self) -> Option<u64> {
        let waiting = self
            .waiters
            .iter()
            .filter(|waiter| waiter.phase == Phase::Waiting);
        waiting.filter_map(|waiter| waiter.until).min()
    }
}

pub(super) struct Room {
    /// The thread that plays the script.
    main: i32,
    state: Mutex<State>,
    /// Something changed that another thread may wait for.
    turn: Condvar,
    /// Threads that are in a function of the table and not asleep there.
    inside: AtomicUsize,
    /// How often one came in.
    visits: AtomicU64,
}

/// A thread's stay in the room, with the key.
struct Visit<'r> {
    room: &'r Room,
    /// Gone only while the thread sleeps.
    state: Option<MutexGuard<'r, State>>,
}

impl Deref for Visit<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state.as_ref().expect("held while awake")
    }
}

impl DerefMut for Visit<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state.as_mut().expect("held while awake")
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.state = None;
        self.room.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Visit<'_> {
    /// Sleeps until something changes, or so long.
    fn sleep(&mut self, at_most: Duration) {
        let room = self.room;
        let Some(state) = self.state.take() else {
            return;
        };
        room.inside.fetch_sub(1, Ordering::SeqCst);
        let woken = room.turn.wait_timeout(state, at_most);
        room.inside.fetch_add(1, Ordering::SeqCst);
        self.state = Some(woken.unwrap_or_else(PoisonError::into_inner).0);
    }

    /// Lets those who wait look at what has happened, and waits until they have.
    fn hand_over(&mut self) {
        if !std::mem::take(&mut self.changed) || self.waiters.is_empty() {
            return;
        }
        for waiter in &mut self.waiters {
            if waiter.phase == Phase::Waiting {
                waiter.phase = Phase::Woken;
            }
        }
        self.room.turn.notify_all();
        let begun = RealInstant::now();
        while self.is_woken() {
            let left = HAND_OVER_MAX.saturating_sub(begun.elapsed());
            if left.is_zero() {
                self.waiters.retain(|waiter| waiter.phase == Phase::Waiting);
                return;
            }
            self.sleep(left);
        }
    }

    /// Lets time go by until the next thing that happens, at most until `limit`.
    fn pass_one(&mut self, limit: u64) {
        self.hand_over();
        let now = self.micros();
        let target = self
            .first_until()
            .unwrap_or(limit)
            .clamp(now, limit.max(now));
        self.host.step(target);
        self.changed = true;
    }

    /// Lets time go by until `limit`, or until there is a packet, if it is for packets that one waits.
    fn pass(&mut self, limit: u64, for_packet: bool) {
        let (mut moment, mut steps) = (self.micros(), 0);
        loop {
            self.hand_over();
            if for_packet && self.host.has_sent() {
                return;
            }
            let now = self.micros();
            steps = if now == moment { steps + 1 } else { 0 };
            moment = now;
            assert!(steps < STEPS_MAX, "timers without end at {now} us");
            let target = self
                .first_until()
                .unwrap_or(limit)
                .clamp(now, limit.max(now));
            if self.host.step(target) || self.first_until().is_some_and(|until| until <= target) {
                self.changed = true;
            } else if target >= limit {
                return;
            }
        }
    }
}

impl Room {
    /// The room of a script that the calling thread plays.
    pub(super) fn new(host: Host) -> Room {
        Room {
            main: thread::id(),
            state: Mutex::new(State {
                host,
                open: Descriptors::default(),
                waiters: Vec::new(),
                changed: false,
                ended: false,
            }),
            turn: Condvar::new(),
            inside: AtomicUsize::new(0),
            visits: AtomicU64::new(0),
        }
    }

    fn enter(&self) -> Visit<'_> {
        self.visits.fetch_add(1, Ordering::SeqCst);
        self.inside.fetch_add(1, Ordering::SeqCst);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Visit {
            room: self,
            state: Some(state),
        }
    }

    /// A thread that comes again has done with the call before.
    fn enter_anew(&self) -> Visit<'_> {
        let mut visit = self.enter();
        let own = thread::id();
        if visit.waiter(own).is_some() {
            visit.waiters.retain(|waiter| waiter.thread != own);
            self.turn.notify_all();
        }
        visit
    }

    /// A call that never waits.
    pub(super) fn call<T>(
        &self,
        call: impl FnOnce(&mut State) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut visit = self.enter_anew();
        let outcome = call(&mut visit);
        visit.host.settle();
        visit.changed = true;
        visit.hand_over();
        outcome
    }

    /// A call that may wait. The main thread's does not wait for others: if there is a time at which it ends, the clock
    /// moves on, at most until then; if there is none, it ends at once.
    pub(super) fn wait<T>(
        &self,
        mut attempt: impl FnMut(&mut State) -> Attempt<T>,
    ) -> Result<T, Errno> {
        let mut visit = self.enter_anew();
        let own = thread::id();
        let mut carried = Carried::default();
        loop {
            let outcome = attempt(&mut visit);
            visit.host.settle();
            let now = visit.micros();
            match outcome {
                Attempt::Blocked(_, Some(until)) if own == self.main && until > now => {
                    visit.changed = true;
                    visit.pass_one(until);
                }
                Attempt::Blocked(_, until)
                    if own != self.main
                        && !visit.ended
                        && until.is_none_or(|until| until > now) =>
                {
                    self.sleep_until_woken(&mut visit, own, until, &mut carried);
                }
                outcome => {
                    match visit.waiter(own) {
                        // The thread that moved the clock waits for this one to read it.
                        Some(waiter) if !carried.here => waiter.phase = Phase::Returned,
                        _ => visit.waiters.retain(|waiter| waiter.thread != own),
                    }
                    visit.changed = true;
                    return match outcome {
                        Attempt::Done(outcome) | Attempt::Blocked(outcome, _) => outcome,
                    };
                }
            }
        }
    }

    fn sleep_until_woken(
        &self,
        visit: &mut Visit<'_>,
        own: i32,
        until: Option<u64>,
        carried: &mut Carried,
    ) {
        visit.waiters.retain(|waiter| waiter.thread != own);
        visit.waiters.push(Waiter {
            thread: own,
            phase: Phase::Waiting,
            until,
        });
        self.turn.notify_all();
        carried.here = false;
        let waits = |visit: &mut Visit<'_>| {
            !visit.ended
                && visit
                    .waiter(own)
                    .is_some_and(|waiter| waiter.phase == Phase::Waiting)
        };
        while waits(visit) {
            let visits = self.visits.load(Ordering::SeqCst);
            visit.sleep(LOOK_AFTER);
            let nobody_moves = waits(visit) && !visit.is_woken() && self.is_waited_for(visits);
            if nobody_moves && carried.step(visit, own) {
                return;
            }
        }
    }

    /// Whether the main thread sleeps elsewhere until the call on this one ends: then no thread moves the clock.
    fn is_waited_for(&self, visits: u64) -> bool {
        let alone = || {
            self.inside.load(Ordering::SeqCst) == 1 && self.visits.load(Ordering::SeqCst) == visits
        };
        // Asked again afterwards: it could have come in, to wait for the key.
        alone() && thread::waits_for_another(self.main) && alone()
    }

    /// Sleeps in virtual time.
    pub(super) fn sleep(&self, micros: u64) {
        let mut visit = self.enter_anew();
        let limit = visit.micros() + micros;
        visit.pass(limit, false);
    }

    /// The time, which is never the same twice: who only waits for it to pass must not wait for ever.
    pub(super) fn time(&self) -> u64 {
        let own = thread::id();
        let mut visit = self.enter();
        let was_woken = visit.waiter(own).is_some();
        visit.waiters.retain(|waiter| waiter.thread != own);
        let next = visit.micros() + 1;
        if was_woken {
            // The thread that moved the clock waits for this, and leaves it to this one to let the others look.
            while visit.host.step(next) {}
            visit.changed = true;
            self.turn.notify_all();
        } else {
            visit.pass(next, false);
        }
        visit.micros()
    }

    /// Hands the stack a packet.
    pub(super) fn deliver(&self, packet: &[u8]) -> bool {
        let mut visit = self.enter_anew();
        let taken = visit.host.deliver(packet);
        visit.changed = true;
        visit.hand_over();
        taken
    }

    /// The next packet the stack sends, if it does within so many microseconds.
    pub(super) fn next_sent(&self, patience: u64) -> Option<janus_posix::Sent> {
        let mut visit = self.enter_anew();
        let limit = visit.micros() + patience;
        visit.pass(limit, true);
        visit.host.pop_sent()
    }

    /// Ends all waiting.
    pub(super) fn end(&self) {
        let mut visit = self.enter_anew();
        visit.ended = true;
        visit.waiters.clear();
        self.turn.notify_all();
    }
}

/// Steps of the clock that a waiting thread made itself.
#[derive(Default)]
struct Carried {
    limit: Option<u64>,
    /// It was this thread that let the last thing happen.
    here: bool,
}

impl Carried {
    /// Moves the clock to the next thing that happens, as far as that is allowed; the others look first.
    fn step(&mut self, visit: &mut Visit<'_>, own: i32) -> bool {
        let now = visit.micros();
        let limit = *self.limit.get_or_insert(now + CARRY_MAX);
        if now >= limit {
            return false;
        }
        let target = visit.first_until().unwrap_or(limit).clamp(now, limit);
        visit.host.step(target);
        visit.waiters.retain(|waiter| waiter.thread != own);
        visit.changed = true;
        visit.hand_over();
        self.here = true;
        true
    }
}
