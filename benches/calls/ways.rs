//! Ways to serve sockets from a plain thread, each with the load at the other end of its device: the same calls of `janus-posix`, with more
//! and more around them.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use janus::{Builder, Handle, Seat, SeatCrew};
use janus_mem::Frame;
use janus_posix::{EpollEvent, Errno, Files, Sockets, abi};
use janus_process::Process;
use janus_tcp::{Config, Instant, Local, Stack};

use crate::support::clock::Clock;
use crate::support::engine::{ahead, bare};
use crate::support::far::packet::Ends;
use crate::support::far::plan::Plan;
use crate::support::far::{App, Far};
use crate::support::served::{Layout, builder};

type Result<T> = std::result::Result<T, Errno>;

/// Frames exchanged at a time.
const BURST: usize = 64;
/// Longest wait of a process for events, so that the benchmark ends.
const WAIT: Duration = Duration::from_millis(10);

/// The calls of an echo server.
pub(crate) trait Calls {
    fn listen(&mut self, at: SocketAddr) -> Result<i32>;
    fn epoll_create(&mut self) -> Result<i32>;
    fn epoll_add(&mut self, epoll: i32, fd: i32) -> Result<()>;
    /// Waits until there is an event, or for a while.
    fn epoll_wait(&mut self, epoll: i32, into: &mut [EpollEvent]) -> Result<usize>;
    fn accept(&mut self, listener: i32) -> Result<i32>;
    fn recv(&mut self, fd: i32, into: &mut [u8]) -> Result<usize>;
    fn send(&mut self, fd: i32, bytes: &[u8]) -> Result<usize>;
    fn close(&mut self, fd: i32) -> Result<()>;
    /// Ends what stands behind it.
    fn end(self: Box<Self>) {}
}

/// What has sockets, with turns that bring what has come and send what was written.
pub(crate) trait Core: Sized {
    fn call<R>(&mut self, call: impl FnOnce(&mut Sockets<'_>, Instant) -> R) -> R;
    fn turn(&mut self);
    /// After a call that may have left something to be sent.
    #[inline]
    fn called(&mut self) {}
    fn open_port(&mut self, _at: SocketAddr) {}
    fn end(self) {}
}

impl<C: Core> Calls for C {
    fn listen(&mut self, at: SocketAddr) -> Result<i32> {
        let listener = self.call(|sockets, _| {
            let kind = abi::SOCK_STREAM | abi::SOCK_NONBLOCK;
            let listener = sockets.socket(abi::AF_INET, kind, 0)?;
            sockets.bind(listener, at)?;
            sockets.listen(listener, 4_096)?;
            Ok::<i32, Errno>(listener)
        })?;
        self.open_port(at);
        Ok(listener)
    }

    fn epoll_create(&mut self) -> Result<i32> {
        self.call(|sockets, _| sockets.epoll_create(0))
    }

    fn epoll_add(&mut self, epoll: i32, fd: i32) -> Result<()> {
        let (op, events) = (abi::EPOLL_CTL_ADD, abi::EPOLLIN as u32);
        self.call(|sockets, now| sockets.epoll_ctl(now, epoll, op, fd, events, fd as u64))
    }

    fn epoll_wait(&mut self, epoll: i32, into: &mut [EpollEvent]) -> Result<usize> {
        let told = self.call(|sockets, now| sockets.epoll_wait(now, epoll, into))?;
        if told > 0 {
            return Ok(told);
        }
        self.turn();
        self.call(|sockets, now| sockets.epoll_wait(now, epoll, into))
    }

    fn accept(&mut self, listener: i32) -> Result<i32> {
        self.call(|sockets, _| Ok(sockets.accept4(listener, abi::SOCK_NONBLOCK)?.0))
    }

    fn recv(&mut self, fd: i32, into: &mut [u8]) -> Result<usize> {
        self.call(|sockets, now| sockets.recv(now, fd, into, 0))
    }

    fn send(&mut self, fd: i32, bytes: &[u8]) -> Result<usize> {
        let sent = self.call(|sockets, now| sockets.send(now, fd, bytes, 0));
        self.called();
        sent
    }

    fn close(&mut self, fd: i32) -> Result<()> {
        self.call(|sockets, now| sockets.close(now, fd))
    }

    fn end(self: Box<Self>) {
        Core::end(*self);
    }
}

/// Sockets over the engine alone; the clock is read once a turn.
pub(crate) struct Bare {
    stack: Stack,
    files: Files,
    far: Far,
    clock: Clock,
    frames: Vec<Frame>,
}

impl Bare {
    pub(crate) fn new(ends: &Ends, held: u32) -> (Bare, Arc<Plan>) {
        let plan = Arc::new(Plan::new(1, held));
        let far = Far::new(ends.clone(), App::Echo, Arc::clone(&plan), 0, held);
        let config = Config {
            max_connections: held + 65_536,
            ..Config::default()
        };
        let stack = bare(config, ends, 65_536, &ahead()).expect("memory for the benchmark");
        let bare = Bare {
            stack,
            files: Files::default(),
            far,
            // No timer comes due while other sides work.
            clock: Clock::patient(),
            frames: Vec::with_capacity(2 * BURST),
        };
        (bare, plan)
    }
}

impl Core for Bare {
    #[inline]
    fn call<R>(&mut self, call: impl FnOnce(&mut Sockets<'_>, Instant) -> R) -> R {
        let now = self.clock.now();
        call(&mut self.files.over(&mut self.stack), now)
    }

    fn turn(&mut self) {
        let now = self.clock.turn();
        let (stack, frames) = (&mut self.stack, &mut self.frames);
        stack.transmit(now, frames, 2 * BURST);
        self.far.take(frames.iter().map(Frame::data));
        for frame in frames.drain(..) {
            match frame.is_lent() {
                true => stack.completed(frame),
                false => stack.pool().free(frame.buf),
            }
        }
        self.far
            .give(stack.pool(), BURST, |frame| frames.push(frame));
        stack.input(now, frames, &mut Local);
        stack.advance(now);
    }
}

/// A core that this thread has to itself: what a process's calls go to, without what makes them calls of any thread. The clock is read
/// at each call.
pub(crate) struct Alone {
    /// What a call writes leaves at its end, as nobody knows when the next call comes; else with the next turn.
    at_once: bool,
    seat: Seat,
    files: Files,
    handle: Handle,
    crew: SeatCrew,
}

impl Alone {
    pub(crate) fn new(builder: Builder, at_once: bool) -> Alone {
        let seats = builder.build_seats().expect("a runtime");
        let (handle, mut seats, crew) = seats.into_parts();
        Alone {
            at_once,
            seat: seats.pop().expect("one core"),
            files: Files::default(),
            handle,
            crew,
        }
    }
}

impl Core for Alone {
    #[inline]
    fn call<R>(&mut self, call: impl FnOnce(&mut Sockets<'_>, Instant) -> R) -> R {
        let Alone { seat, files, .. } = self;
        seat.on_stack(|stack, now| call(&mut files.over(stack), now))
    }

    fn turn(&mut self) {
        self.seat.turn();
    }

    #[inline]
    fn called(&mut self) {
        if self.at_once {
            self.seat.send();
        }
    }

    fn open_port(&mut self, at: SocketAddr) {
        self.seat.open_port(at).expect("a free port");
    }

    fn end(self) {
        self.crew
            .end(&self.handle, vec![self.seat])
            .expect("an end in order");
    }
}

/// The same behind a lock that each call takes, and that no other thread ever asks for. What a call writes leaves at its end.
pub(crate) struct Locked(Mutex<Alone>);

impl Locked {
    pub(crate) fn new(builder: Builder) -> Locked {
        Locked(Mutex::new(Alone::new(builder, true)))
    }
}

impl Core for Locked {
    #[inline]
    fn call<R>(&mut self, call: impl FnOnce(&mut Sockets<'_>, Instant) -> R) -> R {
        // Not `get_mut`, which would know that nobody else can have it.
        let lock = &self.0;
        let mut alone = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let result = alone.call(call);
        alone.called();
        result
    }

    fn turn(&mut self) {
        let lock = &self.0;
        lock.lock().unwrap_or_else(PoisonError::into_inner).turn();
    }

    fn open_port(&mut self, at: SocketAddr) {
        let lock = &self.0;
        lock.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .open_port(at);
    }

    fn end(self) {
        Core::end(self.0.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A process: lock, guardian, descriptors, sleeps.
pub(crate) struct Whole(Process);

fn never() -> bool {
    false
}

impl Whole {
    pub(crate) fn new(builder: Builder) -> Whole {
        Whole(Process::start(builder).expect("a process"))
    }
}

impl Calls for Whole {
    fn listen(&mut self, at: SocketAddr) -> Result<i32> {
        let kind = abi::SOCK_STREAM | abi::SOCK_NONBLOCK;
        let listener = self.0.socket(abi::AF_INET, kind, 0)?;
        self.0.bind(listener, at)?;
        self.0.listen(listener, 4_096)?;
        Ok(listener)
    }

    fn epoll_create(&mut self) -> Result<i32> {
        self.0.epoll_create(0)
    }

    fn epoll_add(&mut self, epoll: i32, fd: i32) -> Result<()> {
        let event = EpollEvent {
            events: abi::EPOLLIN as u32,
            data: fd as u64,
        };
        self.0.epoll_ctl(epoll, abi::EPOLL_CTL_ADD, fd, event)
    }

    fn epoll_wait(&mut self, epoll: i32, into: &mut [EpollEvent]) -> Result<usize> {
        self.0.epoll_wait(epoll, into, Some(WAIT))
    }

    fn accept(&mut self, listener: i32) -> Result<i32> {
        Ok(self.0.accept4(listener, abi::SOCK_NONBLOCK, never)?.0)
    }

    fn recv(&mut self, fd: i32, into: &mut [u8]) -> Result<usize> {
        self.0.receive(fd, &mut [IoSliceMut::new(into)], 0, never)
    }

    fn send(&mut self, fd: i32, bytes: &[u8]) -> Result<usize> {
        self.0.send(fd, &[IoSlice::new(bytes)], 0, never)
    }

    fn close(&mut self, fd: i32) -> Result<()> {
        self.0.close(fd)
    }

    fn end(self: Box<Self>) {
        self.0.end().expect("an end in order");
    }
}

/// A way by its name.
pub(crate) fn start(name: &str, ends: &Ends, held: u32) -> (Box<dyn Calls>, Arc<Plan>) {
    if name == "sockets" {
        let (bare, plan) = Bare::new(ends, held);
        return (Box::new(bare), plan);
    }
    let (builder, plan) = builder(ends, Layout::COMBINED, App::Echo, held);
    let calls: Box<dyn Calls> = match name {
        "core" => Box::new(Alone::new(builder, false)),
        "at_once" => Box::new(Alone::new(builder, true)),
        "locked" => Box::new(Locked::new(builder)),
        _ => Box::new(Whole::new(builder)),
    };
    (calls, plan)
}
