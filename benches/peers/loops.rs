//! Echo servers of one thread over the kernel's sockets: a plain loop over epoll, and monoio.

use crate::support::kernel::Kernel;
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{SocketFlags, accept_with};
use std::net::TcpListener;

/// Bytes read at a time.
const READ: usize = 1_024;
/// Events taken at a time.
const EVENTS: usize = 256;
/// The listener among the events.
const LISTENER: u64 = u64::MAX;

/// Starts a loop over epoll: level-triggered, one `read` and one `write` for each request, `accept4` until nothing waits.
pub fn epoll() -> Kernel {
    Kernel::start("epoll-server", |listener| {
        EpollLoop::new(listener).expect("epoll").run();
    })
}

struct EpollLoop {
    epoll: OwnedFd,
    listener: TcpListener,
    /// Connections by their numbers among the events.
    conns: Vec<Option<OwnedFd>>,
    free: Vec<usize>,
}

impl EpollLoop {
    fn new(listener: TcpListener) -> std::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &listener,
            EventData::new_u64(LISTENER),
            EventFlags::IN,
        )?;
        Ok(Self {
            epoll,
            listener,
            conns: Vec::new(),
            free: Vec::new(),
        })
    }

    fn run(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            if epoll::wait(&self.epoll, room, None).is_err() {
                continue;
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    number => self.serve(number as usize),
                }
            }
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        while let Ok(conn) = accept_with(self.listener.as_fd(), flags) {
            let number = self.free.pop().unwrap_or_else(|| {
                self.conns.push(None);
                self.conns.len() - 1
            });
            let data = EventData::new_u64(number as u64);
            epoll::add(&self.epoll, &conn, data, EventFlags::IN).expect("a new socket");
            self.conns[number] = Some(conn);
        }
    }

    /// Echoes what is there; closes when the client has.
    fn serve(&mut self, number: usize) {
        let Some(conn) = &self.conns[number] else {
            return;
        };
        let mut bytes = [0; READ];
        let is_served = match rustix::io::read(conn, &mut bytes) {
            Ok(0) => false,
            Ok(n) => rustix::io::write(conn, &bytes[..n]) == Ok(n),
            Err(error) => error == rustix::io::Errno::AGAIN,
        };
        if !is_served {
            self.conns[number] = None;
            self.free.push(number);
        }
    }
}

/// Starts monoio, over io_uring where the kernel permits it. Returns the driver's name too.
pub fn monoio() -> (&'static str, Kernel) {
    let is_permitted = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
        .build()
        .is_ok();
    let server = Kernel::start("monoio-server", move |listener| {
        if is_permitted {
            // An io_uring waits by itself; from a socket that must not block it would get an error each time.
            listener.set_nonblocking(false).expect("a socket");
            let built = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build();
            built.expect("as before").block_on(serve(listener));
        } else {
            let built = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().build();
            built.expect("epoll").block_on(serve(listener));
        }
    });
    let driver = if is_permitted {
        "monoio, io_uring"
    } else {
        "monoio, epoll"
    };
    (driver, server)
}

async fn serve(listener: TcpListener) {
    let listener = monoio::net::TcpListener::from_std(listener).expect("a socket");
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            monoio::spawn(echo(stream));
        }
    }
}

/// Sends back what comes.
async fn echo(mut stream: monoio::net::TcpStream) {
    let mut buffer = Vec::with_capacity(READ);
    loop {
        let read;
        (read, buffer) = stream.read(buffer).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        let written;
        (written, buffer) = stream.write_all(buffer).await;
        if written.is_err() {
            return;
        }
        buffer.clear();
    }
}
