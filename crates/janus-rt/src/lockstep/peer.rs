//! The far end: one stack with many addresses. Each of its tuples makes one connection after another, says in the first bytes which side
//! closes first, sends, and compares the echo. It counts successes and keeps failures.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use janus_io::{Backend, Batch, Queue, wire};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_tcp::{Config, ConnId, Error, Instant, Interface, ListenerId, Local, Secrets, Stack};

use super::Outside;
use super::net::{LATE_NS, Net};
use super::rng::Rng;

/// The runtime's address.
pub(crate) const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 80);
/// Bytes before the data: which side closes first, and how many bytes are to be echoed.
pub(crate) const HEADER: usize = 5;
/// Tuples handled in one turn.
const SLOTS_A_TURN: usize = 32;
/// Frames the peer receives or sends in one turn.
const FRAMES_A_TURN: usize = 32;
/// Longest pause between two writes.
const PAUSE_NS: u64 = 2_000_000;

/// Pause from the handshake to the first write: longer than most packets are delayed.
const FIRST_PAUSE: Duration = Duration::from_micros(300);

/// Like [`FIRST_PAUSE`], but in a calm network: longer than any packet is delayed, though both cores on its way are held up. A segment
/// that overtakes the acknowledgement with the cookie belongs to no connection and draws a reset.
const CALM_FIRST_PAUSE: Duration = Duration::from_nanos(LATE_NS);

/// Least time from the end of a connection to the next of its tuple: longer than a packet and an answer to it are delayed. A late segment
/// may else be taken for the next connection's, which is what the maximum segment lifetime is for (RFC 9293 section 3.4.3).
const QUIET: Duration = Duration::from_nanos(2 * LATE_NS);

/// Outcome of the connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) begun: u64,
    pub(crate) completed: u64,
    /// Failures: a connection reset, refused, or with bytes that were never sent.
    pub(crate) broken: Vec<String>,
    pub(crate) bytes: u64,
    /// Times a tuple was reused.
    pub(crate) reused: u64,
    /// Tuples, and when each was connected.
    pub(crate) connected: Vec<(SocketAddr, Instant)>,
}

pub(crate) struct Peer {
    rng: Rng,
    stack: Stack,
    pool: Pool,
    queue: Box<dyn Queue>,
    pub(crate) out: Net,
    back: Net,
    /// Echoes connections from the runtime.
    listener: Option<ListenerId>,
    echoes: Vec<(ConnId, Vec<u8>)>,
    slots: Vec<Slot>,
    next_slot: usize,
    /// No new connections are opened.
    pub(crate) closing: bool,
    pub(crate) tally: Tally,
    sending: Batch,
    frames: Vec<Frame>,
}

impl Outside for Peer {
    fn next_deadline(&self) -> Option<Instant> {
        let slots = self.slots.iter().filter_map(|slot| match &slot.state {
            SlotState::Idle { .. } if self.closing => None,
            SlotState::Idle { until } => Some(*until),
            SlotState::Talking(talk) if talk.sent < talk.says.len() => Some(talk.speaks_at),
            SlotState::Talking(_) | SlotState::Connecting { .. } => None,
        });
        let nets = [self.out.next_due(), self.back.next_due()];
        slots
            .chain(nets.into_iter().flatten())
            .chain(self.stack.next_deadline())
            .min()
    }

    fn stack(&self) -> Option<&Stack> {
        Some(&self.stack)
    }

    fn turn(&mut self, now: Instant) -> bool {
        let received = self.receive(now);
        let mut acted = false;
        for _ in 0..SLOTS_A_TURN.min(self.slots.len()) {
            acted |= self.serve_slot(self.next_slot, now);
            self.next_slot = (self.next_slot + 1) % self.slots.len();
        }
        acted |= self.echo(now);
        while self.stack.pop_ready().is_some() {}
        self.stack.advance(now);
        let sent = self.send(now);
        received | acted | sent
    }
}

/// State of one tuple.
struct Slot {
    local: SocketAddr,
    serial: u64,
    state: SlotState,
}

enum SlotState {
    Idle { until: Instant },
    Connecting { conn: ConnId },
    Talking(Talk),
}

struct Talk {
    conn: ConnId,
    /// All bytes that are sent, the header included.
    says: Vec<u8>,
    sent: usize,
    received: usize,
    server_ends: bool,
    speaks_at: Instant,
}

impl Peer {
    pub(crate) fn new(seed: u64, end: wire::End) -> Peer {
        let mut rng = Rng::new(seed);
        let depot = Depot::new(16 * 1024, &Growth::Inline).expect("memory");
        let config = Config {
            time_wait: Duration::from_millis(5),
            // A connection whose task goes from core to core is not closed at once.
            fin_wait_2: Some(Duration::from_secs(60)),
            ..Config::default()
        };
        let secrets = Secrets::from_seed(rng.next());
        let interface = Interface::ip(1500);
        let stack = Stack::new(config, interface, secrets, depot.pool(), &Growth::Inline);
        let queue = Box::new(end).open(1).expect("one queue").remove(0);
        Peer {
            stack: stack.expect("a stack"),
            pool: depot.pool(),
            queue,
            out: Net::new(rng.next()),
            back: Net::new(rng.next()),
            listener: None,
            echoes: Vec::new(),
            slots: Vec::new(),
            next_slot: 0,
            closing: false,
            tally: Tally::default(),
            sending: Batch::new(),
            frames: Vec::new(),
            rng,
        }
    }

    /// Adds a tuple that connects from now on.
    pub(crate) fn add(&mut self, address: Ipv4Addr, port: u16) {
        let until = Instant::ZERO + Duration::from_nanos(self.rng.below(PAUSE_NS));
        self.slots.push(Slot {
            local: SocketAddr::from((address, port)),
            serial: 0,
            state: SlotState::Idle { until },
        });
    }

    /// Echoes connections to `port` of any address from now on.
    pub(crate) fn serve(&mut self, port: u16) {
        let listener = self.stack.listen((Ipv4Addr::UNSPECIFIED, port), 1024);
        self.listener = Some(listener.expect("a free port"));
    }

    /// Bounds delays from now on, so that no packet outlives its connection.
    pub(crate) fn calm(&mut self) {
        (self.out.calm, self.back.calm) = (true, true);
    }

    /// Returns the connections that are open or being opened.
    pub(crate) fn live(&self) -> usize {
        let idle = |slot: &&Slot| !matches!(slot.state, SlotState::Idle { .. });
        self.slots.iter().filter(idle).count()
    }

    fn echo(&mut self, now: Instant) -> bool {
        let Some(listener) = self.listener else {
            return false;
        };
        let (stack, mut acted) = (&mut self.stack, false);
        while let Ok((conn, _)) = stack.accept(listener) {
            self.echoes.push((conn, Vec::new()));
        }
        self.echoes.retain_mut(|(conn, waits)| {
            let mut into = [0; 1024];
            match stack.read(now, *conn, &mut into) {
                Ok(0) => {
                    stack.close(now, *conn);
                    acted = true;
                    return false;
                }
                Ok(read) => waits.extend(&into[..read]),
                Err(Error::WouldBlock) => {}
                Err(_) => {
                    stack.close(now, *conn);
                    return false;
                }
            }
            if let Ok(written) = stack.write(now, *conn, waits) {
                waits.drain(..written);
                acted |= written > 0;
            }
            true
        });
        acted
    }

    fn receive(&mut self, now: Instant) -> bool {
        let mut batch = Batch::new();
        self.queue.rx_burst(&mut self.pool, &mut batch);
        let mut any = !batch.is_empty();
        for frame in batch.pull() {
            self.back.send(now, frame.data());
            self.pool.free(frame.buf);
        }
        while self.frames.len() < FRAMES_A_TURN
            && let Some(packet) = self.back.receive(now)
        {
            self.frames.push(frame(&mut self.pool, &packet));
        }
        any |= !self.frames.is_empty();
        self.stack.input(now, &mut self.frames, &mut Local);
        any
    }

    fn send(&mut self, now: Instant) -> bool {
        self.stack.transmit(now, &mut self.frames, FRAMES_A_TURN);
        let mut any = !self.frames.is_empty();
        for frame in self.frames.drain(..) {
            self.out.send(now, frame.data());
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.pool.free(frame.buf);
            }
        }
        while !self.sending.is_full()
            && let Some(packet) = self.out.receive(now)
        {
            let _ = self.sending.push(frame(&mut self.pool, &packet));
        }
        any |= !self.sending.is_empty();
        let mut done = Batch::new();
        self.queue
            .tx_burst(&mut self.pool, &mut self.sending, &mut done);
        any
    }

    fn serve_slot(&mut self, at: usize, now: Instant) -> bool {
        let slot = &mut self.slots[at];
        match &mut slot.state {
            SlotState::Idle { until } => {
                if self.closing || *until > now {
                    return false;
                }
                match self.stack.connect(now, slot.local, SERVER) {
                    Ok(conn) => {
                        self.tally.begun += 1;
                        self.tally.reused += u64::from(slot.serial > 0);
                        slot.serial += 1;
                        slot.state = SlotState::Connecting { conn };
                    }
                    // The tuple's last connection is in TIME-WAIT at this end.
                    Err(Error::AddrInUse) => *until = now + Duration::from_millis(1),
                    Err(error) => self.tally.broken.push(format!("no connection: {error}")),
                }
                true
            }
            SlotState::Connecting { conn } => match self.stack.is_connected(*conn) {
                Ok(false) => false,
                Ok(true) => {
                    self.tally.connected.push((slot.local, now));
                    let calm = self.out.calm;
                    let pause = if calm { CALM_FIRST_PAUSE } else { FIRST_PAUSE };
                    let seed = slot.serial ^ (at as u64) << 32;
                    slot.state = SlotState::Talking(talk(*conn, seed, now + pause));
                    true
                }
                Err(error) => self.broken(at, now, &format!("{error} while it connected")),
            },
            SlotState::Talking(talk) => match talk.go_on(&mut self.stack, &mut self.rng, now) {
                Ok(Progress::Done) => {
                    self.tally.completed += 1;
                    self.tally.bytes += talk.received as u64;
                    let pause = Duration::from_nanos(self.rng.below(PAUSE_NS));
                    slot.state = SlotState::Idle {
                        until: now + QUIET + pause,
                    };
                    true
                }
                Ok(Progress::Some) => true,
                Ok(Progress::None) => false,
                Err(problem) => self.broken(at, now, &problem),
            },
        }
    }

    fn broken(&mut self, at: usize, now: Instant, problem: &str) -> bool {
        let slot = &mut self.slots[at];
        let Slot { local, serial, .. } = slot;
        let text = format!("connection {serial} of {local} at {now:?}: {problem}");
        self.tally.broken.push(text);
        slot.state = SlotState::Idle {
            until: now + Duration::from_millis(100),
        };
        true
    }
}

enum Progress {
    None,
    Some,
    Done,
}

fn talk(conn: ConnId, seed: u64, speaks_at: Instant) -> Talk {
    let mut rng = Rng::new(seed);
    let len = 1 + rng.below(4_000) as usize;
    let server_ends = rng.one_in(2);
    let mut says = vec![u8::from(server_ends)];
    says.extend((len as u32).to_le_bytes());
    says.extend((0..len).map(|_| rng.next() as u8));
    Talk {
        conn,
        says,
        sent: 0,
        received: 0,
        server_ends,
        speaks_at,
    }
}

impl Talk {
    fn go_on(
        &mut self,
        stack: &mut Stack,
        rng: &mut Rng,
        now: Instant,
    ) -> Result<Progress, String> {
        let mut progress = Progress::None;
        if self.sent < self.says.len() && self.speaks_at <= now {
            let piece = 1 + rng.below(700) as usize;
            let end = (self.sent + piece).min(self.says.len());
            match stack.write(now, self.conn, &self.says[self.sent..end]) {
                Ok(written) => self.sent += written,
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(format!("{error} after {} bytes sent", self.sent)),
            }
            self.speaks_at = now + Duration::from_nanos(rng.below(PAUSE_NS));
            progress = Progress::Some;
        }
        let mut into = [0; 2048];
        match stack.read(now, self.conn, &mut into) {
            Err(Error::WouldBlock) => {}
            Err(error) => return Err(format!("{error} after {} bytes back", self.received)),
            Ok(0) => return self.ended(stack, now),
            Ok(read) => {
                let expected = self.says.get(HEADER + self.received..).unwrap_or_default();
                if !expected.starts_with(&into[..read]) {
                    return Err(format!("wrong bytes after {} right ones", self.received));
                }
                self.received += read;
                progress = Progress::Some;
            }
        }
        if !self.server_ends && HEADER + self.received == self.says.len() {
            stack.close(now, self.conn);
            return Ok(Progress::Done);
        }
        Ok(progress)
    }

    /// Checks a connection that the server has closed.
    fn ended(&self, stack: &mut Stack, now: Instant) -> Result<Progress, String> {
        if !self.server_ends || HEADER + self.received < self.says.len() {
            return Err(format!("ended after {} bytes", self.received));
        }
        stack.close(now, self.conn);
        Ok(Progress::Done)
    }
}

fn frame(pool: &mut Pool, packet: &[u8]) -> Frame {
    let buf = pool.alloc().expect("the peer has buffers");
    let mut frame = Frame::new(buf, packet.len() as u16);
    frame.data_mut().copy_from_slice(packet);
    frame
}
