//! Streams on a stack alone, in the turns that a shard has, behind a far end that sends what the windows let it, acknowledges at the end
//! of a turn, and compares every byte. Each stack that can be measured is a [`Server`]; Janus's engine is in `stream/engine.rs`.

mod engine;

use super::clock::Clock;
use super::far::packet::{Crafter, Ends, Segment, read};
use super::thread_time::thread_time;
use janus_mem::{Frame, HEADROOM, PacketBuf, Pool};
use janus_tcp::Instant;
use janus_wire::tcp::{self, Flags};
use std::time::Duration;

pub use engine::Janus;

/// Frames exchanged at a time.
pub const BURST: usize = 64;
/// Bytes of a segment with timestamps.
pub const PAYLOAD: usize = 1_448;
/// Bytes of a segment without.
const PAYLOAD_PLAIN: usize = 1_460;
/// The stream repeats itself after so many bytes.
const PERIOD: usize = 1 << 16;
/// Most the application writes at a time.
const WRITE: usize = 1 << 14;
/// Most the far end has under way for a connection.
const FAR_FLIGHT: u32 = 1 << 19;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dir {
    Rx { lent: bool },
    Tx,
}

/// The far end of a connection.
#[derive(Clone, Copy, Default)]
struct Far {
    /// Its next number; what the server has acknowledged, and the end of the window it offers.
    next: u32,
    acked: u32,
    edge: u32,
    /// What it expects; segments since it acknowledged.
    expects: u32,
    unacked: u32,
    /// Where both streams begin.
    first: u32,
    first_there: u32,
    ts_echo: u32,
    /// Bits by which the window that the server offers is shifted.
    scale: u8,
}

/// A stack under test, and its end of the connections.
pub trait Server {
    /// Returns the buffers of the far end's frames.
    fn pool(&mut self) -> &mut Pool;
    /// Takes `frames` in, and lets the application read or write where that is asked for. Frames that are done with stay in
    /// `frames`, or go back to the pool.
    fn turn(
        &mut self,
        now: Instant,
        work: Option<Dir>,
        frames: &mut Vec<Frame>,
        app: &mut Application,
    );
    /// Calls `each` with every frame that the last turn sent.
    fn sent(&self, each: &mut dyn FnMut(&[u8]));
    /// Ends the turn: what was sent is no longer needed.
    fn end_turn(&mut self);
    /// Accepts what has come; returns how many connections are open.
    fn accept(&mut self) -> usize;
}

/// The application's end of all connections.
pub struct Application {
    stream: Vec<u8>,
    /// Where it stands in the stream that it reads or writes, for each connection.
    places: Vec<usize>,
    /// Time spent outside the server.
    outside: Duration,
    /// Payload moved.
    pub bytes: u64,
    /// Bytes and frames that are not what they should be.
    pub wrong: u64,
}

impl Application {
    fn new(conns: usize) -> Self {
        let mut word = 1_u32;
        let mut byte = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 24) as u8
        };
        let mut stream: Vec<u8> = (0..PERIOD).map(|_| byte()).collect();
        stream.extend_from_within(..WRITE);
        Self {
            stream,
            places: vec![0; conns],
            outside: Duration::ZERO,
            bytes: 0,
            wrong: 0,
        }
    }

    /// Compares what was read with what was sent. It is in the middle of what is counted:
    /// [`valgrind`](super::valgrind) leaves it out by its name.
    #[inline(never)]
    pub fn not_counted_compare(&mut self, conn: usize, bytes: &[u8]) {
        let start = std::time::Instant::now();
        self.compare(conn, bytes);
        self.outside += start.elapsed();
    }

    fn compare(&mut self, conn: usize, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let place = &mut self.places[conn];
        while !bytes.is_empty() {
            let n = bytes.len().min(PERIOD - *place);
            self.wrong += u64::from(self.stream[*place..*place + n] != bytes[..n]);
            *place = (*place + n) % PERIOD;
            bytes = &bytes[n..];
        }
    }

    /// Returns what is to be written next.
    pub fn to_write(&self, conn: usize) -> &[u8] {
        let at = self.places[conn];
        &self.stream[at..at + WRITE]
    }

    /// Notes that `n` bytes of it were written.
    pub fn wrote(&mut self, conn: usize, n: usize) {
        self.places[conn] = (self.places[conn] + n) % PERIOD;
    }
}

/// Some connections whose bytes all go one way: the server, the application that reads or writes, and the far end.
pub struct Streams<S> {
    pub server: S,
    pub app: Application,
    ends: Ends,
    crafter: Crafter,
    payload: usize,
    far: Vec<Far>,
    /// On their way to the server.
    frames: Vec<Frame>,
    pub clock: Clock,
}

impl Streams<Janus> {
    /// Returns `conns` streams on Janus's engine.
    pub fn new(conns: usize) -> Self {
        let ends = Ends::default();
        Self::on(Janus::new(&ends), ends, conns)
    }
}

impl<S: Server> Streams<S> {
    /// Returns `conns` streams on any server.
    pub fn on(server: S, ends: Ends, conns: usize) -> Self {
        Self {
            server,
            app: Application::new(conns),
            crafter: Crafter::new(&ends),
            payload: if ends.timestamps {
                PAYLOAD
            } else {
                PAYLOAD_PLAIN
            },
            ends,
            far: vec![Far::default(); conns],
            frames: Vec::with_capacity(8 * BURST),
            clock: Clock::real(),
        }
    }

    /// The far end crafts a segment.
    fn craft(&mut self, conn: usize, flags: Flags, len: usize) {
        let Some(buf) = self.server.pool().alloc() else {
            return;
        };
        self.craft_into(buf, conn, flags, len);
    }

    fn craft_into(&mut self, mut buf: PacketBuf, conn: usize, flags: Flags, len: usize) {
        let ts_val = self.clock.now().as_millis() as u32 + 1;
        let far = &mut self.far[conn];
        let segment = Segment {
            conn: conn as u32,
            seq: far.next,
            ack: far.expects,
            flags,
            ts_val,
            ts_echo: far.ts_echo,
        };
        let at = far.next.wrapping_sub(far.first) as usize % PERIOD;
        let out = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
        let payload = &self.app.stream[at..at + len];
        let written = if flags.contains(Flags::SYN) {
            self.crafter.syn(out, &segment)
        } else {
            self.crafter.segment(out, &segment, payload)
        };
        far.next = far
            .next
            .wrapping_add(len as u32 + u32::from(flags.contains(Flags::SYN)));
        self.frames.push(Frame::new(buf, written as u16));
    }

    /// Opens all connections.
    pub fn open(&mut self) {
        for conn in 0..self.far.len() {
            self.craft(conn, Flags::SYN, 0);
        }
        let mut acknowledged = vec![false; self.far.len()];
        let mut opened = 0;
        for _ in 0..8 {
            self.turn_with(None);
            for (conn, done) in acknowledged.iter_mut().enumerate() {
                if self.far[conn].expects != 0 && !core::mem::replace(done, true) {
                    self.far[conn].first = self.far[conn].next;
                    self.craft(conn, Flags::ACK, 0);
                }
            }
            opened = self.server.accept();
        }
        assert_eq!(opened, self.far.len(), "all are open");
    }

    /// Works for about so long; returns the payload bytes moved and the server's nanoseconds.
    pub fn run(&mut self, dir: Dir, time: Duration) -> (f64, f64) {
        let (bytes, outside) = (self.app.bytes, self.app.outside);
        let (start, cpu) = (std::time::Instant::now(), thread_time());
        while start.elapsed() < time {
            for _ in 0..16 {
                self.turn(dir);
            }
        }
        // The far end is timed by the wall clock; a busy machine takes its share of that as of the rest.
        let (wall, cpu) = (start.elapsed(), thread_time() - cpu);
        let share = 1.0 - (self.app.outside - outside).as_secs_f64() / wall.as_secs_f64();
        (
            (self.app.bytes - bytes) as f64,
            cpu.as_nanos() as f64 * share,
        )
    }

    /// One turn of the loop: in, application, timers, out.
    pub fn turn(&mut self, dir: Dir) {
        if dir != Dir::Tx {
            self.outside(|streams| streams.send());
        }
        self.turn_with(Some(dir));
    }

    fn turn_with(&mut self, work: Option<Dir>) {
        let now = self.clock.turn();
        self.server.turn(now, work, &mut self.frames, &mut self.app);
        self.outside(|streams| streams.receive());
        self.server.end_turn();
        self.outside(|streams| streams.acknowledge());
    }

    fn outside(&mut self, work: impl FnOnce(&mut Self)) {
        let start = std::time::Instant::now();
        work(self);
        self.app.outside += start.elapsed();
    }

    /// The far end sends what the windows let it, a burst in all.
    fn send(&mut self) {
        for i in 0..BURST {
            let conn = i % self.far.len();
            let far = &self.far[conn];
            let room = far.edge.wrapping_sub(far.next) as i32;
            let flight = far.next.wrapping_sub(far.acked);
            if room >= self.payload as i32 && flight < FAR_FLIGHT {
                self.craft(conn, Flags::ACK, self.payload);
            }
        }
    }

    /// The far end takes what the server sent. Questions for its hardware address are answered.
    fn receive(&mut self) {
        for frame in self.frames.drain(..) {
            self.server.pool().free(frame.buf);
        }
        let (ends, far, app) = (&self.ends, &mut self.far, &mut self.app);
        let mut questions = Vec::new();
        self.server.sent(&mut |frame| {
            if !take(ends, far, app, frame) {
                questions.push(frame.to_vec());
            }
        });
        for question in questions {
            let Some(mut buf) = self.server.pool().alloc() else {
                continue;
            };
            let to = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
            match self.crafter.arp_reply(&question, to) {
                Some(len) => self.frames.push(Frame::new(buf, len as u16)),
                None => self.app.wrong += 1,
            }
        }
    }

    /// The far end acknowledges what came in the turn.
    fn acknowledge(&mut self) {
        for conn in 0..self.far.len() {
            if core::mem::take(&mut self.far[conn].unacked) > 0 {
                self.craft(conn, Flags::ACK, 0);
            }
        }
    }
}

/// Lets the far end take a segment of the server's; false when `frame` is none.
fn take(ends: &Ends, far: &mut [Far], app: &mut Application, frame: &[u8]) -> bool {
    let Ok(answer) = read(ends, frame) else {
        return false;
    };
    let far = &mut far[answer.conn as usize];
    far.ts_echo = answer.ts.map_or(far.ts_echo, |(value, _)| value);
    let window = u32::from(u16::from_be_bytes([frame[48], frame[49]]));
    far.acked = answer.ack;
    if answer.flags.contains(Flags::SYN) {
        far.edge = answer.ack.wrapping_add(window);
        far.expects = answer.seq.wrapping_add(1);
        far.first_there = far.expects;
        far.scale = window_shift(frame);
        return true;
    }
    far.edge = answer.ack.wrapping_add(window << far.scale);
    let len = answer.payload.len();
    if len > 0 && answer.seq == far.expects {
        let at = far.expects.wrapping_sub(far.first_there) as usize % PERIOD;
        app.wrong += u64::from(app.stream[at..at + len] != *answer.payload);
        far.expects = far.expects.wrapping_add(len as u32);
        far.unacked += 1;
        app.bytes += len as u64;
    }
    true
}

/// Returns the shift that a SYN's option asks for.
fn window_shift(frame: &[u8]) -> u8 {
    let packet = janus_wire::ipv4::parse(&frame[janus_wire::ethernet::LEN..]);
    let packet = packet.expect("read before");
    let (_, options, _) = tcp::parse(packet.payload()).expect("read before");
    tcp::options::parse(options).window_scale.unwrap_or(0)
}
