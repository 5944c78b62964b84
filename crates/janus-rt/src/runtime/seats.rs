//! Cores that no thread of the runtime drives: a program that calls sockets from threads of its own has one behind a lock, and whoever holds
//! the lock is the core. What such calls mean is the caller's affair; here are the turn, the stack, and both ends of a sleep.

use std::fmt;
use std::future::pending;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread::sleep;
use std::time::Duration;

use janus_io::member::{Permit, Ports};
use janus_tcp::{Instant, Stack};

use super::launch::Crew;
use super::reload::Sources;
use super::{BoxError, Builder, Handle, Result};
use crate::clock::Clock;
use crate::config::{ConfigError, Effective, Settings, is_ours};
use crate::shard::{Shard, Step};

/// How long a port is waited for that other cores must learn of, and how often it is looked.
const SERVES_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_micros(50);
/// A daemon that lives has heard what is said to it by then.
const HEARS_WITHIN: Duration = Duration::from_millis(200);
/// Turns in one of which there is nothing to take, unless there is very much.
const TURNS: usize = 256;

/// Opens the name of the group of a program that has named none.
const OWN: &str = "own ";
/// The group of all programs of a user's that say so of a socket.
const REUSED: &str = "SO_REUSEPORT";

/// A runtime whose cores have no threads; see [`Builder::build_seats`].
pub struct Seats {
    handle: Handle,
    seats: Vec<Seat>,
    crew: Crew,
}

/// The rest of it: the threads that are no core's.
pub struct SeatCrew(Crew);

/// A core without a thread. Its holder takes turns with it, as often as he can and when a descriptor of
/// [`wakes_by`](Seat::wakes_by) says so.
pub struct Seat {
    shard: Shard,
    /// Time of the call that told it to sleep, unless there was a turn since.
    asleep: Option<Instant>,
}

// SAFETY: what is not `Send` in a shard are its reference counts and cells, and the shard owns every one of them: its only task is a main
// that never ends and keeps nothing, so no waker and no handle of them is outside. Thread-locals name it within a turn only.
unsafe impl Send for Seat {}

/// Settings of a program whose threads drive its cores.
pub(super) enum Seated {
    FromSources,
    /// Another's, which leaves it a port, or its device.
    AsParent(Arc<Settings>, Option<Permit>),
}

impl Seated {
    pub(super) fn settings(
        self,
        sources: &Sources,
    ) -> std::result::Result<(Settings, Effective), ConfigError> {
        match self {
            Seated::FromSources => {
                let (mut settings, effective) = sources.read()?;
                // Children, and a program that takes its place, are to have its ports: they are a group, and no other program is of it.
                let own = || format!("{OWN}{:016x}", RandomState::new().hash_one(0));
                settings.daemon_group.get_or_insert_with(own);
                Ok((settings, effective))
            }
            Seated::AsParent(settings, permit) => {
                let mut settings = Arc::unwrap_or_clone(settings);
                settings.permit = permit;
                Ok((settings, Effective::default()))
            }
        }
    }
}

/// Places at which TCP sockets of an unmodified program are Janus's: keys `program_ours` and `program_kernel`.
#[derive(Debug)]
pub struct Places(Settings);

impl Places {
    /// Whether a socket is that is bound or connected to `at`.
    pub fn takes(&self, at: SocketAddr) -> bool {
        takes(&self.0, at)
    }
}

pub(super) fn takes(settings: &Settings, at: SocketAddr) -> bool {
    is_ours(&settings.program_ours, &settings.program_kernel, at)
}

impl Builder {
    /// Reads which places are Janus's. Nothing is opened.
    ///
    /// # Errors
    /// For whatever [`build`](Builder::build) would not understand.
    pub fn places(mut self) -> std::result::Result<Places, ConfigError> {
        Ok(Places(self.sources().read()?.0))
    }

    /// Builds a runtime whose cores are driven by the program's own threads, and starts its other threads. It handles no signals.
    ///
    /// # Errors
    /// Those of [`build`](Builder::build), or what kept a thread from being started.
    pub fn build_seats(self) -> Result<Seats> {
        self.build_seated(Seated::FromSources)
    }

    /// [`build_seats`](Builder::build_seats) in a child that was forked from a program with seats. It has that program's settings, whatever has become of
    /// the environment and of files since, and is a member of its daemon by the right to this port, or has the device that was that program's.
    ///
    /// # Errors
    /// As for that.
    pub fn build_seats_of_child(self, parent: &Handle, permit: Option<Permit>) -> Result<Seats> {
        self.build_seated(Seated::AsParent(parent.0.settings.get(), permit))
    }

    fn build_seated(mut self, seated: Seated) -> Result<Seats> {
        self.seated = Some(seated);
        let prepared = self.signals(false).prepare(Clock::start())?;
        let handle = Handle(prepared.shared().clone());
        let (seeds, crew) = prepared.start()?;
        let seats = seeds.into_iter().map(|seed| {
            let mut shard = seed.grow(pending::<()>)?;
            shard.work.seated = true;
            let asleep = None;
            Ok(Seat { shard, asleep })
        });
        let seats = seats.collect::<Result<_, BoxError>>()?;
        Ok(Seats {
            handle,
            seats,
            crew,
        })
    }
}

impl Seats {
    /// Gives each descriptor that is opened after the start, as when a daemon is followed by another, the number that `keep` chooses: a program whose threads
    /// know nothing of the runtime may use any. `forget` is told before it is closed. For the whole process; the first who says so does.
    pub fn keep_descriptors_by(keep: fn(OwnedFd) -> OwnedFd, forget: fn(RawFd)) {
        janus_io::member::keep_descriptors_by(keep, forget);
    }

    /// Keeps the runtime's memory from children that are forked: programs whose children know nothing of it gain by that. For all that is built from now on.
    pub fn keep_memory_from_children() {
        janus_mem::unforked::keep_all_from_children();
    }

    /// The handle, one seat for each core, and the rest.
    pub fn into_parts(self) -> (Handle, Vec<Seat>, SeatCrew) {
        (self.handle, self.seats, SeatCrew(self.crew))
    }
}

impl SeatCrew {
    /// Ends all threads of the runtime until [`goes_on`](SeatCrew::goes_on), so that the process can be copied, which would leave them behind. False, and nothing
    /// is done: it cannot be, as it has a device of its own.
    pub fn rests(&mut self) -> bool {
        self.0.rests()
    }

    /// Calls what forks a copy, which gets the memory that children do not.
    ///
    /// # Errors
    /// As the system says; then nothing was called.
    pub fn with_memory_for_copies<R>(&self, fork: impl FnOnce() -> R) -> io::Result<R> {
        let _copied = janus_mem::unforked::Copied::by_forks()?;
        Ok(fork())
    }

    /// They go on.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn goes_on(&mut self) -> Result {
        self.0.goes_on()
    }

    /// They go on in a copy of the process, which has its place from now on.
    ///
    /// # Errors
    /// A thread cannot be started, there are no descriptors left, or the daemon cannot be told.
    pub fn goes_on_here(&mut self) -> Result {
        self.0.goes_on_here()
    }

    /// Ends the runtime: connections that are closed end in order for as long as `close_ms` says, the rest is reset.
    ///
    /// # Errors
    /// The first thing that went wrong in the runtime's life.
    pub fn end(self, handle: &Handle, seats: Vec<Seat>) -> Result {
        handle.stop();
        let mut seats = seats;
        while !seats.is_empty() {
            let mut worked = false;
            seats.retain_mut(|seat| {
                let _here = seat.shard.enter();
                let step = seat.shard.step();
                worked |= step == Step::Worked;
                step != Step::Ended
            });
            if !worked {
                sleep(LOOK);
            }
        }
        self.0.dismiss()
    }
}

impl Seat {
    /// Calls `call` with the core's stack and the time; after a turn, if the core slept.
    #[inline]
    pub fn on_stack<R>(&mut self, call: impl FnOnce(&mut Stack, Instant) -> R) -> R {
        if self.asleep.is_some() {
            self.turn();
        }
        let now = self.now();
        let ctx = &self.shard.ctx;
        ctx.now.set(now);
        call(&mut ctx.stack.borrow_mut(), now)
    }

    /// The time by the core's clock.
    #[inline]
    pub fn now(&self) -> Instant {
        self.shard.clock.now()
    }

    /// The time of the last call or turn.
    #[inline]
    pub fn called_at(&self) -> Instant {
        self.shard.ctx.now.get()
    }

    /// Takes what has come, serves timers, sends. Says whether anything moved.
    pub fn turn(&mut self) -> bool {
        self.wake();
        let _here = self.shard.enter();
        self.shard.turn()
    }

    /// Sends what calls on the stack have left to be sent.
    pub fn send(&mut self) {
        let now = self.shard.ctx.now.get();
        if self.asleep.is_none() && self.shard.ctx.stack.borrow().wants_transmit() {
            let _here = self.shard.enter();
            self.shard.send(now);
        }
    }

    /// When a turn is due although nothing comes.
    pub fn deadline(&self) -> Option<Instant> {
        self.shard.deadline()
    }

    /// Descriptors that become readable when a turn is due, once [`sleep`](Seat::sleep) was called: its bell, and its device's.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn wakes_by(&self) -> io::Result<Vec<OwnedFd>> {
        self.shard.wakes_by()
    }

    /// Says that there will be no turn and no call until a descriptor is readable or the time that is answered is up (`Some(None)`: for ever). `None`:
    /// there is something to do already.
    pub fn sleep(&mut self) -> Option<Option<Duration>> {
        self.wake();
        let timeout = self.shard.lie_down()?;
        self.asleep = Some(self.now());
        Some(timeout)
    }

    fn wake(&mut self) {
        if let Some(since) = self.asleep.take() {
            self.shard.wake_up(since);
        }
    }

    /// Opens a port to what stands outside of the core: the steering of packets, the portal. Gives the port where 0 is asked for. Connections
    /// come once the stack listens too.
    ///
    /// # Errors
    /// When the port is taken, or cannot be offered.
    pub fn open_port(&mut self, address: SocketAddr) -> io::Result<u16> {
        let ctx = self.shard.ctx.clone();
        let control = &ctx.shared.control;
        let port = control.bind(ctx.core, address)?;
        let until = self.now() + SERVES_WITHIN;
        while control.poll_serving(ctx.core, port, false, Waker::noop()) == Poll::Pending {
            if self.now() >= until {
                control.release(ctx.core, port);
                let late = "the other cores do not learn of the port";
                return Err(io::Error::new(io::ErrorKind::TimedOut, late));
            }
            if !self.turn() {
                sleep(LOOK);
            }
        }
        Ok(port)
    }

    /// Closes a port that has no listener any more.
    pub fn close_port(&mut self, port: u16) {
        let ctx = &self.shard.ctx;
        if ctx.shared.control.release(ctx.core, port) {
            ctx.forwarder.borrow_mut().leaving.add(port);
        }
    }

    /// Whether all has come that opens connections to ports which were closed: others know of it, and nothing of theirs waits to be taken. Takes turns for that.
    pub fn is_closed_to_others(&mut self) -> bool {
        let is_heard = |it: &Ports| it.is_heard();
        let member = self.shard.ctx.shared.member.as_ref();
        member.is_none_or(is_heard) && (0..TURNS).any(|_| !self.turn())
    }

    /// A connection at this address is to come from another program, which has [left](Seat::may_have) its port to this one.
    ///
    /// # Errors
    /// The daemon does not let it have the port, or there is none. [`io::ErrorKind::WouldBlock`]: not at the moment.
    pub fn may_bring(&self, local: SocketAddr) -> io::Result<()> {
        let member = self.shard.ctx.shared.member.as_ref();
        member.ok_or(io::ErrorKind::Unsupported)?.may_bring(local)
    }

    /// It has come: its end, and its peer's. Packets come for it once this is done.
    pub fn brings(&self, ends: (SocketAddr, SocketAddr)) {
        if let Some(member) = &self.shard.ctx.shared.member {
            member.brings(ends);
            let until = self.now() + HEARS_WITHIN;
            while !member.is_heard() && self.now() < until {
                sleep(LOOK);
            }
        }
    }

    /// Whether other programs may listen at the same ports of TCP as this one, if it leaves them to these: it is a daemon's member.
    pub fn shares_ports(&self) -> bool {
        self.shard.ctx.shared.member.is_some()
    }

    /// The permit by which another program may listen at this port too, once this one does.
    pub fn permit(&self, port: u16) -> Option<Permit> {
        self.shard.ctx.shared.member.as_ref()?.permit(port)
    }

    /// Says whether new connections to an open port are to come only while no other program takes any there.
    pub fn reserve_port(&self, port: u16, reserve: bool) {
        if let Some(member) = &self.shard.ctx.shared.member {
            member.reserve(port, reserve);
        }
    }

    /// Whether other programs of this user may listen at this port of TCP if they say the same of it, as by SO_REUSEPORT. A program that has named a group
    /// shares all of its ports with that.
    pub fn reuses_port(&self, port: u16, reuses: bool) {
        let shared = &self.shard.ctx.shared;
        let group = &shared.settings.get().daemon_group;
        let has_own = group.as_ref().is_some_and(|it| it.starts_with(OWN));
        if let Some(member) = shared.member.as_ref().filter(|_| has_own) {
            member.is_shared_in(port, reuses.then_some(REUSED));
        }
    }

    /// Another program leaves this one a port.
    pub fn may_have(&self, permit: Permit) {
        if let Some(member) = &self.shard.ctx.shared.member {
            member.may_have(permit);
        }
    }

    /// Says that another program listens at this one's open ports soon after its end: what opens connections there meanwhile is dropped, and comes
    /// again. No effect where no daemon has the device.
    pub fn is_succeeded(&self) {
        if let Some(member) = &self.shard.ctx.shared.member {
            member.is_succeeded();
        }
    }

    /// Time that connections may take to end in order: key `close_ms`.
    pub fn close_time(&self) -> Duration {
        self.shard.ctx.shared.settings.get().close
    }

    /// The address at which a client outside reaches what listens on `local`.
    pub fn reachable_at(&self, local: SocketAddr) -> SocketAddr {
        self.shard.ctx.reachable_at(local)
    }
}

impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seats({})", self.seats.len())
    }
}

impl fmt::Debug for SeatCrew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SeatCrew")
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seat({})", self.shard.ctx.core)
    }
}
