//! The admin port: `/metrics` and `/healthz` for the operator of the machine, on a socket of the kernel's and a thread of its own.
//! So it answers when every core is stalled, and until the last one has ended. It knows no more of HTTP than these two pages need,
//! and asks nothing of a core but its counters. One exchange is in `exchange`.

mod exchange;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, PipeReader, PipeWriter, pipe};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::config::ConfigError;
use crate::metrics::{Collector, Format};
use exchange::{Exchange, Page, Request, Response};

/// Connections open at a time. One more, and the one that has been there longest ends.
const OPEN_MAX: usize = 16;
/// Time between two rounds of questions to the cores, at least: that is what a flood of requests can cost them.
const ROUNDS_APART: Duration = Duration::from_millis(10);
/// Pause after the kernel refused a connection for want of something.
const REFUSED: Duration = Duration::from_millis(100);

/// An admin port that is open and not yet served.
pub(crate) struct AdminPort {
    listener: TcpListener,
    at: SocketAddr,
}

/// One that a thread serves.
pub(crate) struct Serving {
    thread: JoinHandle<()>,
    /// The thread ends when this is dropped.
    end: PipeWriter,
}

impl AdminPort {
    /// Opens the port.
    ///
    /// # Errors
    /// When the address is not this machine's or the port is taken; the error names the key.
    pub(crate) fn open(at: SocketAddr) -> Result<AdminPort, ConfigError> {
        let open = || {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            let at = listener.local_addr()?;
            Ok(AdminPort { listener, at })
        };
        open().map_err(|error: io::Error| {
            ConfigError::value("admin", format!("{at} cannot be listened on: {error}"))
        })
    }

    /// Address it is open at.
    pub(crate) fn at(&self) -> SocketAddr {
        self.at
    }

    /// Starts its thread.
    pub(crate) fn serve(self, metrics: Collector) -> io::Result<Serving> {
        let (ends, end) = pipe()?;
        let mut server = Server {
            listener: self.listener,
            ends,
            metrics,
            open: Vec::with_capacity(OPEN_MAX),
            accepts_at: None,
            asked: None,
        };
        let thread = std::thread::Builder::new().name("janus-admin".into());
        let thread = thread.spawn(move || server.run())?;
        Ok(Serving { thread, end })
    }
}

impl Serving {
    /// Closes the port and returns its thread, which ends.
    pub(crate) fn close(self) -> JoinHandle<()> {
        drop(self.end);
        self.thread
    }
}

struct Server {
    listener: TcpListener,
    /// At its end when the port is to be closed.
    ends: PipeReader,
    metrics: Collector,
    open: Vec<Exchange>,
    /// When connections are accepted again; `None`: now.
    accepts_at: Option<Instant>,
    /// When the cores were asked last.
    asked: Option<Instant>,
}

impl Server {
    fn run(&mut self) {
        loop {
            match self.wait() {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    eprintln!("janus: the admin port ends: {error}");
                    return;
                }
            }
            let now = Instant::now();
            let mut index = 0;
            while index < self.open.len() {
                match self.step(index, now) {
                    true => index += 1,
                    false => drop(self.open.swap_remove(index)),
                }
            }
            self.accept(now);
        }
    }

    /// Waits for something to do. True: it is the end.
    fn wait(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        self.accepts_at = self.accepts_at.filter(|at| *at > now);
        let times = self.open.iter().map(Exchange::until).chain(self.accepts_at);
        let wait = times.min().map(|at| at.saturating_duration_since(now));
        let wait = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        let listens = match self.accepts_at {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut fds = Vec::with_capacity(OPEN_MAX + 2);
        fds.push(PollFd::from_borrowed_fd(self.ends.as_fd(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.listener.as_fd(), listens));
        fds.extend(self.open.iter().map(Exchange::waits_for));
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) => Ok(!fds[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Goes on with a connection; false when it is over.
    fn step(&mut self, index: usize, now: Instant) -> bool {
        // What came while the cores were waited for is not late.
        if let Some(Request { page, head_only }) = self.open[index].receive() {
            self.metrics.collected.counters.requests.add(1);
            let response = match page {
                Ok(Page::Health) => self.health(),
                Ok(Page::Metrics(format)) => self.text(format),
                Err(response) => response,
            };
            self.open[index].answer(&response, head_only, Instant::now());
        }
        let goes_on = self.open[index].send();
        let late = goes_on && self.open[index].until() <= now;
        if late && self.open[index].is_under_way() {
            self.metrics.collected.counters.slow.add(1);
        }
        goes_on && !late
    }

    fn text(&mut self, format: Format) -> Response {
        self.keep_apart();
        let round = self.metrics.ask_and_wait();
        let text = self.metrics.text(&round, format);
        Response::new("200 OK", format.content_type(), text)
    }

    fn health(&mut self) -> Response {
        let unwell = |reason: String| {
            let text = format!("{reason}\n");
            Response::plain("503 Service Unavailable", text)
        };
        self.keep_apart();
        let round = self.metrics.ask_and_wait();
        // After the wait, as the end may begin during it.
        if !self.metrics.serving() {
            return unwell("shutting down".into());
        }
        let why = match self.metrics.silent(&round) {
            None => return Response::plain("200 OK", "ok\n".into()),
            Some(core) if self.metrics.is_blocked(core) => {
                format!("core {core}: one task keeps it")
            }
            Some(core) => format!("core {core}: it does not answer"),
        };
        unwell(format!("stalled: {why}"))
    }

    /// Waits until the cores may be asked again.
    fn keep_apart(&mut self) {
        if let Some(asked) = self.asked {
            std::thread::sleep(ROUNDS_APART.saturating_sub(asked.elapsed()));
        }
        self.asked = Some(Instant::now());
    }

    /// Takes the connections that wait, as many as may be open in one go.
    fn accept(&mut self, now: Instant) {
        for _ in 0..OPEN_MAX {
            if self.accepts_at.is_some() {
                return;
            }
            match self.listener.accept() {
                Ok((socket, _)) => {
                    self.make_room();
                    // One that cannot be set up is dropped.
                    self.open.extend(Exchange::begin(socket, now));
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => self.accepts_at = Some(now + REFUSED),
                },
            }
        }
    }

    /// Ends the connection whose time is up first, if too many are open: an operator's request comes at once and is answered at
    /// once, so it is one that keeps others waiting.
    fn make_room(&mut self) {
        if self.open.len() < OPEN_MAX {
            return;
        }
        let oldest = (0..self.open.len()).min_by_key(|index| self.open[*index].until());
        if let Some(oldest) = oldest {
            let oldest = self.open.swap_remove(oldest);
            if oldest.is_under_way() {
                self.metrics.collected.counters.crowded.add(1);
            }
        }
    }
}
