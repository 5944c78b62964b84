//! The process: built from the settings at its first call, ended at its last.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use janus::{BoxError, Builder, Handle, Permit, SeatCrew, Seats};

use crate::afterlife::{Copies, Side};
use crate::core::Core;
use crate::guardian::Guardian;
use crate::held::Held;
use crate::pump::{Carrier, Pump};
use crate::sleep::Sleeper;
use crate::{kernel, own};

/// A process that ends has let its device go by then.
const LEAVES_DEVICE_WITHIN: Duration = Duration::from_secs(3);
const DEVICE_AGAIN: Duration = Duration::from_millis(10);

/// All that a process has of Janus: one core, what is open, a guardian.
pub struct Process {
    pub(crate) core: Arc<Core>,
    pub(crate) rest: Mutex<Option<Rest>>,
    /// Descriptors that were opened when it started.
    started_with: Vec<RawFd>,
    /// Bytes of address space that were taken then.
    reserved: u64,
}

pub(crate) struct Rest {
    handle: Handle,
    pub(crate) pump: Pump,
    crew: SeatCrew,
    guardian: Guardian,
}

impl Process {
    /// Opens the device and starts what is needed. The number of cores is one, whatever the settings say.
    ///
    /// # Errors
    /// Those of [`Builder::build_seats`]: settings, the device, the system.
    pub fn start(builder: Builder) -> Result<Process, BoxError> {
        Process::start_with(|| builder.cores(1).build_seats())
    }

    /// Starts one in a child that was forked from another ([`Child::serves`](crate::Child::serves)). Without a permit it gets the device of its parent, which is
    /// about to end.
    ///
    /// # Errors
    /// Those of [`Builder::build_seats_of_child`].
    pub fn start_in_child(
        builder: impl Fn() -> Builder + Sync,
        parent: &Handle,
        permit: Option<&Permit>,
    ) -> Result<Process, BoxError> {
        // Of the thread that forked: its bell was closed.
        Sleeper::forget_mine();
        let until = Instant::now() + LEAVES_DEVICE_WITHIN;
        loop {
            let build = || builder().build_seats_of_child(parent, permit.cloned());
            match Process::start_with(build) {
                Err(_) if permit.is_none() && Instant::now() < until => {
                    std::thread::sleep(DEVICE_AGAIN);
                }
                started => return started,
            }
        }
    }

    fn start_with(
        build: impl FnOnce() -> Result<Seats, BoxError> + Send,
    ) -> Result<Process, BoxError> {
        Seats::keep_descriptors_by(own::keep, own::forget);
        Seats::keep_memory_from_children();
        let _begins = own::Begins::now();
        let before = kernel::open_descriptors();
        let size = kernel::address_space();
        let file = std::fs::File::open("/dev/null")?.into();
        // Threads that are begun here are sent no signals: those are the program's, and end the waits of its threads.
        let held = Held::now();
        // The thread that calls may have a small stack: varnish's have 80 KiB.
        let open = || {
            std::thread::scope(|scope| {
                let opening =
                    std::thread::Builder::new().spawn_scoped(scope, || Process::open(build()?))?;
                opening
                    .join()
                    .unwrap_or_else(|why| std::panic::resume_unwind(why))
            })
        };
        let mut process = own::above(&file, open)?;
        drop(held);
        drop(file);
        process.reserved = kernel::address_space().saturating_sub(size);
        process.started_with = kernel::open_descriptors();
        let is_ours = |fd: &RawFd| !before.contains(fd) && own::may_be(*fd);
        process.started_with.retain(is_ours);
        process.started_with.iter().for_each(|fd| own::note(*fd));
        Ok(process)
    }

    fn open(seats: Seats) -> Result<Process, BoxError> {
        let (handle, seats, crew) = seats.into_parts();
        let seat = seats.into_iter().next().ok_or("a runtime without a core")?;
        let core = Arc::new(Core::new(seat).map_err(|error| error.text())?);
        let guardian = Guardian::start(core.clone()).map_err(|error| error.text())?;
        let pump = Pump::start(core.clone()).map_err(|error| error.text())?;
        let rest = Rest {
            handle,
            pump,
            crew,
            guardian,
        };
        Ok(Process {
            core,
            rest: Mutex::new(Some(rest)),
            started_with: Vec::new(),
            reserved: 0,
        })
    }

    /// A process once more, for a thread of ours that makes calls: it ends nothing.
    pub(crate) fn again(core: Arc<Core>) -> Process {
        Process {
            core,
            rest: Mutex::new(None),
            started_with: Vec::new(),
            reserved: 0,
        }
    }

    /// Whether a descriptor is one of ours. Takes no lock.
    #[inline]
    pub fn has(&self, fd: RawFd) -> bool {
        self.core.ours.has(fd)
    }

    /// Descriptors that Janus works with itself, in their order. Who closes all that he has leaves these.
    pub fn own_descriptors(&self) -> Vec<RawFd> {
        own::all()
    }

    /// Whether a descriptor is one that Janus works with itself: the program was never given it.
    #[inline]
    pub fn keeps(&self, fd: RawFd) -> bool {
        own::is(fd)
    }

    /// Bytes of address space that it took when it was started, nearly all of it reserved only.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The runtime underneath: reports, settings.
    pub fn handle(&self) -> Option<Handle> {
        let rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        rest.as_ref().map(|rest| rest.handle.clone())
    }

    /// Where a client outside finds what listens on `local`.
    pub fn reachable_at(&self, local: SocketAddr) -> SocketAddr {
        let mut inner = self.core.lock();
        inner.seat().map_or(local, |seat| seat.reachable_at(local))
    }

    /// Time that connections may take to end in order.
    pub(crate) fn close_time(&self) -> Duration {
        let mut inner = self.core.lock();
        inner
            .seat()
            .map_or(Duration::ZERO, |seat| seat.close_time())
    }

    /// Closes what the program has open, but for what listens.
    fn close_connections(&self) {
        let inner = self.core.lock();
        let mut open = inner.descriptors.all();
        let is_listener = |fd| {
            let socket = inner.descriptors.socket(fd);
            socket.is_ok_and(|socket| inner.listening.contains_key(&socket))
        };
        open.retain(|fd| !own::is(*fd) && !is_listener(*fd));
        drop(inner);
        self.close_all(open);
    }

    fn close_all(&self, open: Vec<RawFd>) {
        for fd in open {
            // Another thread may have closed it.
            let _ = self.close_at_once(fd);
        }
    }

    /// Closes listeners, here and where children have them: these may listen there themselves.
    fn close_listeners(&self) {
        let inner = self.core.lock();
        let listening: Vec<i32> = inner.listening.keys().copied().collect();
        let mut open = inner.descriptors.all();
        drop(inner);
        open.retain(|fd| !own::is(*fd));
        self.close_all(open);
        let mut inner = self.core.lock();
        for socket in listening {
            if inner.descriptors.forget_names(socket) {
                let _ = inner.end(socket);
            }
        }
        inner.settle();
    }

    /// Closes all that is open, and waits until what was written has been acknowledged, as long as `close_ms` says. From then on every call
    /// says EBADF.
    ///
    /// # Errors
    /// The first thing that went wrong in the runtime's life.
    pub fn end(&self) -> Result<(), BoxError> {
        self.end_as(None, false)
    }

    /// [`Process::end`]; connections that other processes use go on in a copy of this one, if `copies` can make one and the device is a daemon's.
    ///
    /// # Errors
    /// Those of that.
    pub fn end_outlived(&self, copies: Option<Copies>) -> Result<(), BoxError> {
        self.end_as(copies, false)
    }

    /// [`Process::end_outlived`] of a program that becomes another, to which something was [left](Process::leave): that goes on in the copy too.
    ///
    /// # Errors
    /// Those of that.
    pub fn end_by_exec(&self, copies: Option<Copies>) -> Result<(), BoxError> {
        self.end_as(copies, true)
    }

    fn end_as(&self, copies: Option<Copies>, leaves: bool) -> Result<(), BoxError> {
        let rest = self
            .rest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(Rest {
            handle,
            mut crew,
            guardian,
            pump,
        }) = rest
        else {
            return Ok(());
        };
        self.close_connections();
        let carrier = match leaves {
            true => pump.rests(),
            // It may carry others' for a while.
            false => pump.ends(),
        };
        let (mut guardian, mut side) = (Some(guardian), None);
        if let Some(mut carrier) = carrier {
            let mut copy = |carrier: &mut Carrier| {
                // It would be a thread too many.
                drop(guardian.take());
                self.copy(&mut crew, carrier, copies?)
            };
            if leaves {
                side = copy(&mut carrier);
                if side == Some(Side::Copy) {
                    carrier.hands_over();
                }
            }
            if side != Some(Side::Original) {
                let outlives = !leaves && self.core.shares_ports && carrier.is_needed();
                if side.is_none() && !outlives {
                    self.keeps_ports();
                }
                self.close_listeners();
                if outlives {
                    side = copy(&mut carrier);
                }
                match side {
                    Some(Side::Original) => {}
                    None if !outlives => {}
                    _ => carrier.carries_on(),
                }
            }
            if side == Some(Side::Original) {
                // The copy has all of it.
                std::mem::forget((crew, carrier));
                return Ok(());
            }
            carrier.end();
        }
        self.close_listeners();
        drop(guardian);
        let mut inner = self.core.lock();
        // Calls that wait, and children, had them yet.
        for socket in inner.descriptors.unhold_all() {
            let _ = inner.end(socket);
        }
        let seat = inner.seat.take();
        inner.sleepers.wake_all();
        drop(inner);
        self.started_with.iter().for_each(|fd| own::forget(*fd));
        let ended = crew.end(&handle, seat.into_iter().collect());
        match side {
            Some(Side::Copy) => kernel::exit(),
            _ => ended,
        }
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Process")
    }
}
