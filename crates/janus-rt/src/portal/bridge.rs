//! One kernel connection and the Janus connection that carries it, or that it carries: bytes, half closes, resets and
//! back-pressure, each way. Bounded: at most one piece of [`PIECE`] bytes waits in either direction, everything else
//! waits in one of the two windows. Who accepts and who sleeps is the carrier's business.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use janus_mem::PacketBuf;
use janus_tcp::{ConnId, Error, Instant, Stack, Token};

/// Most bytes read from the kernel at a time, and the most that wait for the inner window.
pub(super) const PIECE: usize = 16 * 1024;
/// Pieces moved each way before the next bridge has its turn.
const PIECES_PER_TURN: usize = 16;

/// What the carrier does next with a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing more can move until an event or a token says so.
    Wait,
    /// More could move; others first.
    Again,
    /// Both ways ended in order: both handles are closed.
    Finished,
    /// One side broke off: the other has been told.
    Broken,
}

/// A way's state: bytes flow, then the end that was seen is passed on, then it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    Ending,
    Done,
}

/// Received inner bytes the kernel had no room for.
struct Held {
    buf: PacketBuf,
    at: usize,
    end: usize,
}

pub(super) struct Bridge {
    kernel: TcpStream,
    conn: ConnId,
    token: Token,
    connected: bool,
    /// What epoll (edge) said last and no call has denied since.
    readable: bool,
    writable: bool,
    broken: bool,
    /// Kernel to Janus.
    up: Way,
    up_held: Vec<u8>,
    up_sent: usize,
    /// Janus to kernel.
    down: Way,
    down_held: Option<Held>,
}

/// What one direction can still do in this turn.
enum Flow {
    Stuck,
    More,
    Broken,
}

impl Bridge {
    /// Pairs a kernel connection that stands with an inner one that does, or is being opened.
    pub(super) fn new(kernel: TcpStream, conn: ConnId, token: Token) -> Bridge {
        Bridge {
            kernel,
            conn,
            token,
            connected: false,
            readable: true,
            writable: true,
            broken: false,
            up: Way::Open,
            up_held: Vec::new(),
            up_sent: 0,
            down: Way::Open,
            down_held: None,
        }
    }

    /// Remembers what epoll reported.
    pub(super) fn changed(&mut self, readable: bool, writable: bool, broken: bool) {
        self.readable |= readable;
        self.writable |= writable;
        self.broken |= broken;
    }

    /// Moves what can be moved. After `Finished` or `Broken` the bridge is to be dropped.
    pub(super) fn pump(
        &mut self,
        now: Instant,
        stack: &mut Stack,
        scratch: &mut [u8; PIECE],
    ) -> Verdict {
        if self.broken && !matches!(self.kernel.take_error(), Ok(None)) {
            stack.abort(now, self.conn);
            return Verdict::Broken;
        }
        if !self.connected {
            match stack.is_connected(self.conn) {
                Ok(true) => {
                    self.connected = true;
                    // Whoever writes gathers already, on one side of the bridge or the other.
                    let _ = stack.set_nodelay(self.conn, true);
                }
                Ok(false) => {
                    stack.wait_read(self.conn, Some(self.token));
                    return Verdict::Wait;
                }
                Err(_) => return self.reset_kernel(now, stack),
            }
        }
        let (mut up, mut down) = (Flow::More, Flow::More);
        for _ in 0..PIECES_PER_TURN {
            if matches!(up, Flow::More) {
                up = self.pump_up(now, stack, scratch);
            }
            if matches!(down, Flow::More) {
                down = self.pump_down(now, stack);
            }
            match (&up, &down) {
                (Flow::Broken, _) | (_, Flow::Broken) => return self.reset_kernel(now, stack),
                (Flow::Stuck, Flow::Stuck) => return self.rest(now, stack),
                _ => {}
            }
        }
        Verdict::Again
    }

    fn rest(&mut self, now: Instant, stack: &mut Stack) -> Verdict {
        if self.up == Way::Done && self.down == Way::Done {
            stack.close(now, self.conn);
            return Verdict::Finished;
        }
        Verdict::Wait
    }

    /// One piece from the kernel to Janus.
    fn pump_up(&mut self, now: Instant, stack: &mut Stack, scratch: &mut [u8; PIECE]) -> Flow {
        if self.up_sent < self.up_held.len() {
            match stack.write(now, self.conn, &self.up_held[self.up_sent..]) {
                Ok(n) => self.up_sent += n,
                Err(Error::WouldBlock) => {
                    stack.wait_write(now, self.conn, Some(self.token));
                    return Flow::Stuck;
                }
                Err(_) => return Flow::Broken,
            }
            if self.up_sent < self.up_held.len() {
                return Flow::More;
            }
            // Most bridges never need this again: an idle one holds no memory.
            self.up_held = Vec::new();
            self.up_sent = 0;
        }
        match self.up {
            Way::Done => return Flow::Stuck,
            Way::Ending => {
                self.up = Way::Done;
                return match stack.shutdown_write(now, self.conn) {
                    Ok(()) => Flow::Stuck,
                    Err(_) => Flow::Broken,
                };
            }
            Way::Open => {}
        }
        if !self.readable {
            return Flow::Stuck;
        }
        match self.kernel.read(scratch) {
            Ok(0) => self.up = Way::Ending,
            Ok(n) => return self.write_up(now, stack, &scratch[..n]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Flow::Stuck;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Flow::Broken,
        }
        Flow::More
    }

    fn write_up(&mut self, now: Instant, stack: &mut Stack, bytes: &[u8]) -> Flow {
        let taken = match stack.write(now, self.conn, bytes) {
            Ok(n) => n,
            Err(Error::WouldBlock) => 0,
            Err(_) => return Flow::Broken,
        };
        if taken < bytes.len() {
            self.up_held.extend_from_slice(&bytes[taken..]);
        }
        Flow::More
    }

    /// One piece from Janus to the kernel.
    fn pump_down(&mut self, now: Instant, stack: &mut Stack) -> Flow {
        if let Some(held) = &mut self.down_held {
            if !self.writable {
                return Flow::Stuck;
            }
            match self.kernel.write(&held.buf.bytes()[held.at..held.end]) {
                Ok(n) => held.at += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.writable = false;
                    return Flow::Stuck;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Flow::Broken,
            }
            if held.at == held.end {
                self.down_held = None;
            }
            return Flow::More;
        }
        if self.down == Way::Done {
            return Flow::Stuck;
        }
        match stack.recv(now, self.conn) {
            Ok(Some(received)) => {
                let at = usize::from(received.off);
                self.down_held = Some(Held {
                    at,
                    end: at + usize::from(received.len),
                    buf: received.buf,
                });
                Flow::More
            }
            Ok(None) => {
                self.down = Way::Done;
                // Fails only when the client has gone; the other way will notice.
                let _ = self.kernel.shutdown(Shutdown::Write);
                Flow::Stuck
            }
            Err(Error::WouldBlock) => {
                stack.wait_read(self.conn, Some(self.token));
                Flow::Stuck
            }
            Err(_) => Flow::Broken,
        }
    }

    /// The inner connection is dead, or dies now: the client shall see a reset, not an orderly end.
    fn reset_kernel(&mut self, now: Instant, stack: &mut Stack) -> Verdict {
        stack.abort(now, self.conn);
        reset_on_drop(&self.kernel);
        Verdict::Broken
    }
}

/// With a linger time of zero, closing sends RST and keeps no state.
pub(super) fn reset_on_drop(kernel: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(kernel, Some(Duration::ZERO));
}
