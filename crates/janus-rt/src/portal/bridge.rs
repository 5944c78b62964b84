//! One kernel connection and the Janus connection that carries it, or that it carries: bytes, half closes, resets and back-pressure, each
//! way. Bounded: at most one piece waits in either direction, everything else waits in one of the two windows. Accepting and sleeping are
//! the carrier's business.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use janus_tcp::{ConnId, Error, Instant, Piece, Stack, Token};

/// Most bytes read from the kernel at a time: a call costs as much as copying some ten kilobytes.
const PIECE: usize = 64 * 1024;
/// Most received buffers handed to the kernel at a time, for the same reason.
const BUFFERS_OF_A_PIECE: usize = 32;
/// Pieces moved each way before the next bridge has its turn.
const PIECES_PER_TURN: usize = 4;

/// Next step of the carrier with a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing more can move until an event or a token says so.
    Wait,
    /// More could move; other bridges go first.
    Again,
    /// Both directions ended in order: both handles are closed.
    Finished,
    /// One side was reset: the other has been told.
    Broken,
}

/// State of one direction: bytes flow, then the end that was seen is passed on, then it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    Ending,
    Done,
}

/// Bytes that one side has given and the other had no room for. An idle bridge holds no memory.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    at: usize,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Keeps what follows the first `taken` bytes of `pieces`.
    fn keep_behind(&mut self, mut taken: usize, pieces: &[Piece]) {
        for piece in pieces {
            let bytes = bytes_of(piece);
            self.keep(&bytes[taken.min(bytes.len())..]);
            taken = taken.saturating_sub(bytes.len());
        }
    }

    fn skip(&mut self, n: usize) -> Flow {
        self.at += n;
        if self.is_empty() {
            *self = Held::default();
        }
        Flow::More
    }
}

/// Memory that all bridges use in turn, to move a piece.
pub(super) struct Scratch {
    bytes: Box<[u8]>,
    pieces: Vec<Piece>,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch {
            bytes: vec![0; PIECE].into_boxed_slice(),
            pieces: Vec::with_capacity(BUFFERS_OF_A_PIECE),
        }
    }
}

fn bytes_of(piece: &Piece) -> &[u8] {
    let off = usize::from(piece.off);
    &piece.buf.bytes()[off..off + usize::from(piece.len)]
}

/// Hands the kernel all pieces in one call.
fn send_all_of(kernel: &mut TcpStream, pieces: &[Piece]) -> std::io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); BUFFERS_OF_A_PIECE];
    for (slice, piece) in slices.iter_mut().zip(pieces) {
        *slice = IoSlice::new(bytes_of(piece));
    }
    kernel.write_vectored(&slices[..pieces.len()])
}

pub(super) struct Bridge {
    kernel: TcpStream,
    conn: ConnId,
    token: Token,
    connected: bool,
    /// Readiness that epoll (edge) reported last and no call has denied since.
    readable: bool,
    writable: bool,
    broken: bool,
    /// Kernel to Janus.
    up: Way,
    up_held: Held,
    /// Janus to kernel.
    down: Way,
    down_held: Held,
}

/// Result of one step in one direction, within this turn.
enum Flow {
    Stuck,
    More,
    Broken,
}

impl Bridge {
    /// Pairs an established kernel connection with an inner one that is established, or being opened.
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
            up_held: Held::default(),
            down: Way::Open,
            down_held: Held::default(),
        }
    }

    /// Returns whether the inner connection is not established yet.
    pub(super) fn is_entering(&self) -> bool {
        !self.connected
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
        scratch: &mut Scratch,
    ) -> Verdict {
        debug_assert!(scratch.pieces.is_empty(), "bytes of another bridge");
        if self.broken && !matches!(self.kernel.take_error(), Ok(None)) {
            stack.abort(now, self.conn);
            return Verdict::Broken;
        }
        if !self.connected {
            match stack.is_connected(self.conn) {
                Ok(true) => {
                    self.connected = true;
                    // The writer gathers already, on one side of the bridge or the other.
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
                down = self.pump_down(now, stack, scratch);
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

    /// Moves one piece from the kernel to Janus, at most as long as there is room for it inside.
    fn pump_up(&mut self, now: Instant, stack: &mut Stack, scratch: &mut Scratch) -> Flow {
        if !self.up_held.is_empty() {
            return match stack.write(now, self.conn, self.up_held.bytes()) {
                Ok(n) => self.up_held.skip(n),
                Err(Error::WouldBlock) => self.wait_for_room(now, stack),
                Err(_) => Flow::Broken,
            };
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
        let room = match stack.writable(self.conn) {
            Ok(0) => return self.wait_for_room(now, stack),
            Ok(room) => room.min(PIECE),
            Err(_) => return Flow::Broken,
        };
        match self.kernel.read(&mut scratch.bytes[..room]) {
            Ok(0) => self.up = Way::Ending,
            Ok(n) => match stack.write(now, self.conn, &scratch.bytes[..n]) {
                Ok(taken) => self.up_held.keep(&scratch.bytes[taken..n]),
                Err(Error::WouldBlock) => self.up_held.keep(&scratch.bytes[..n]),
                Err(_) => return Flow::Broken,
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Flow::Stuck;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Flow::Broken,
        }
        Flow::More
    }

    fn wait_for_room(&self, now: Instant, stack: &mut Stack) -> Flow {
        stack.wait_write(now, self.conn, Some(self.token));
        Flow::Stuck
    }

    /// Moves one piece from Janus to the kernel. Bytes the kernel has no room for stay in the inner window.
    fn pump_down(&mut self, now: Instant, stack: &mut Stack, scratch: &mut Scratch) -> Flow {
        if self.down == Way::Done || !self.writable {
            return Flow::Stuck;
        }
        if !self.down_held.is_empty() {
            let sent = self.kernel.write(self.down_held.bytes());
            return match self.taken_outside(sent) {
                Ok(n) => self.down_held.skip(n),
                Err(flow) => flow,
            };
        }
        if self.down == Way::Ending {
            self.down = Way::Done;
            // Fails only when the client has gone; the other way will notice.
            let _ = self.kernel.shutdown(Shutdown::Write);
            return Flow::Stuck;
        }
        let received = self.gather(now, stack, &mut scratch.pieces);
        if scratch.pieces.is_empty() {
            return received;
        }
        // Bytes received before an end or a reset go out before it.
        let sent = send_all_of(&mut self.kernel, &scratch.pieces);
        let taken = match self.taken_outside(sent) {
            Ok(taken) => Some(taken),
            Err(Flow::Broken) => None,
            Err(_) => Some(0),
        };
        if let Some(taken) = taken {
            self.down_held.keep_behind(taken, &scratch.pieces);
        }
        // In every case: the next bridge, another client's, uses the same memory.
        scratch.pieces.clear();
        match (taken, received) {
            (None, _) | (_, Flow::Broken) => Flow::Broken,
            _ => Flow::More,
        }
    }

    /// Takes what has arrived inside, a piece at most.
    fn gather(&mut self, now: Instant, stack: &mut Stack, pieces: &mut Vec<Piece>) -> Flow {
        while pieces.len() < BUFFERS_OF_A_PIECE {
            match stack.recv(now, self.conn) {
                Ok(Some(piece)) => pieces.push(piece),
                Ok(None) => {
                    self.down = Way::Ending;
                    return Flow::More;
                }
                Err(Error::WouldBlock) => {
                    stack.wait_read(self.conn, Some(self.token));
                    return Flow::Stuck;
                }
                Err(_) => return Flow::Broken,
            }
        }
        Flow::More
    }

    /// Reads what the kernel answered to a write.
    fn taken_outside(&mut self, sent: std::io::Result<usize>) -> Result<usize, Flow> {
        match sent {
            Ok(n) => Ok(n),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                Err(Flow::Stuck)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Err(Flow::More),
            Err(_) => Err(Flow::Broken),
        }
    }

    /// Nothing comes from inside any more. A client that waits for more shall see a reset.
    pub(super) fn is_left(&self) {
        if self.down != Way::Done {
            reset_on_drop(&self.kernel);
        }
    }

    /// Aborts the inner connection, if it is not dead yet: the client shall see a reset, not an orderly end.
    fn reset_kernel(&mut self, now: Instant, stack: &mut Stack) -> Verdict {
        stack.abort(now, self.conn);
        reset_on_drop(&self.kernel);
        Verdict::Broken
    }
}

/// Makes the kernel's close send RST and keep no state, by a linger time of zero.
pub(super) fn reset_on_drop(kernel: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(kernel, Some(Duration::ZERO));
}
