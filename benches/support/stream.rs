//! Streams on a stack alone, in the turns that a shard has, behind a far end that sends what the windows let it, acknowledges at the end
//! of a turn, and compares every byte. It keeps nothing that it sent, so what the server drops never comes; what the server lost on the
//! way it asks for with SACK. A test may spoil what goes either way. Each stack that can be measured is a [`Server`]; Janus's engine is
//! in `stream/engine.rs`.

mod engine;

use super::clock::Clock;
use super::far::packet::{Answer, Crafter, Ends, Segment, Wrong, read, with_sack};
use super::far::six;
use super::thread_time::thread_time;
use janus_mem::{Frame, HEADROOM, PacketBuf, Pool};
use janus_tcp::Instant;
use janus_wire::tcp::{Flags, LEN as TCP, options};
use std::time::Duration;

pub use engine::Janus;

/// Frames exchanged at a time.
pub const BURST: usize = 64;
const ETH: usize = 14;
/// Bytes of an IPv4 header, which is also what the far end makes of one of IPv6.
const IP: usize = 20;
/// Bytes by which a header of IPv6 is longer.
const LONGER: usize = 20;
/// Bytes of timestamps in a TCP header.
const TS: usize = 12;
/// Most bytes of a packet.
const MTU: usize = 1_500;
/// The stream repeats itself after so many bytes.
const PERIOD: usize = 1 << 16;
/// Most the application writes at a time.
const WRITE: usize = 1 << 14;
/// Most the far end has under way for a connection.
const FAR_FLIGHT: u32 = 1 << 19;
/// Longest time that what is under way takes to come: several retransmission timeouts.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Deed of a test on a frame on its way; false loses the frame.
pub type Tamper = Box<dyn FnMut(&mut [u8]) -> bool>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dir {
    Rx { lent: bool },
    Tx,
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
    /// Bytes that it has read or written, modulo 2^32, for each connection.
    moved: Vec<u32>,
    /// Time spent outside the server.
    outside: Duration,
    /// Payload moved.
    pub bytes: u64,
    /// Bytes and frames that are not what they should be, and streams of which something never came.
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
            moved: vec![0; conns],
            outside: Duration::ZERO,
            bytes: 0,
            wrong: 0,
        }
    }

    /// Compares what was read, in one go or in pieces, with what was sent. It is in the middle of what is counted:
    /// [`valgrind`](super::valgrind) leaves it out by its name. To look at the clock takes a part of a segment's time, so
    /// there is one call for all that is read at a time.
    #[inline(never)]
    pub fn not_counted_compare<'a>(
        &mut self,
        conn: usize,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let start = std::time::Instant::now();
        for piece in pieces {
            self.compare(conn, piece);
        }
        self.outside += start.elapsed();
    }

    fn compare(&mut self, conn: usize, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let at = self.place(conn);
            let n = bytes.len().min(PERIOD - at);
            self.wrong += u64::from(self.stream[at..at + n] != bytes[..n]);
            self.wrote(conn, n);
            bytes = &bytes[n..];
        }
    }

    /// Where it stands in the stream that it reads or writes.
    fn place(&self, conn: usize) -> usize {
        self.moved[conn] as usize % PERIOD
    }

    /// Returns what is to be written next.
    pub fn to_write(&self, conn: usize) -> &[u8] {
        let at = self.place(conn);
        &self.stream[at..at + WRITE]
    }

    /// Notes that `n` bytes of it were written.
    pub fn wrote(&mut self, conn: usize, n: usize) {
        self.moved[conn] = self.moved[conn].wrapping_add(n as u32);
    }
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
    /// Sequence numbers of the piece that it has got beyond a gap: first, and first after.
    beyond: Option<(u32, u32)>,
    /// Where both streams begin.
    first: u32,
    first_there: u32,
    ts_echo: u32,
    /// Bits by which the window that the server offers is shifted.
    scale: u8,
}

/// The far end of all connections.
struct Peers {
    ends: Ends,
    crafter: Crafter,
    conns: Vec<Far>,
    /// The server's questions for addresses.
    questions: Vec<Vec<u8>>,
}

impl Peers {
    /// Bytes of a full segment.
    fn payload(&self) -> usize {
        let longer = if self.ends.six { LONGER } else { 0 };
        let ts = if self.ends.timestamps { TS } else { 0 };
        MTU - IP - longer - TCP - ts
    }

    /// Takes a frame that the server sent.
    fn take(&mut self, app: &mut Application, frame: &[u8]) {
        if self.ends.six {
            return self.take_six(app, frame);
        }
        match read(&self.ends, frame) {
            Ok(answer) => self.look_at(app, frame, &answer),
            Err(wrong) => self.refuse(app, frame, wrong),
        }
    }

    #[inline(never)]
    fn take_six(&mut self, app: &mut Application, frame: &[u8]) {
        let mut four = [0; ETH + MTU];
        let len = six::to_four(frame, &mut four);
        match len.and_then(|len| read(&self.ends, &four[..len])) {
            Ok(answer) => self.look_at(app, &four, &answer),
            Err(wrong) => self.refuse(app, frame, wrong),
        }
    }

    fn refuse(&mut self, app: &mut Application, frame: &[u8], wrong: Wrong) {
        match wrong {
            Wrong::Checksum => app.wrong += 1,
            Wrong::NotOurs => self.questions.push(frame.to_vec()),
        }
    }

    /// Writes the answer to a question for the far end's hardware address: only that is no segment.
    fn tell(&self, question: &[u8], to: &mut [u8]) -> Option<usize> {
        if self.ends.six {
            six::advertisement(&self.ends, question, to)
        } else {
            self.crafter.arp_reply(question, to)
        }
    }

    fn look_at(&mut self, app: &mut Application, frame: &[u8], answer: &Answer<'_>) {
        // Timestamps never go back (PAWS), and SACK tells of nothing that was not sent.
        let conn = answer.conn as usize;
        let far = &self.conns[conn];
        let syn = answer.flags.contains(Flags::SYN);
        let ts = answer.ts.map_or(far.ts_echo, |(value, _)| value);
        let goes_back = !syn && (ts.wrapping_sub(far.ts_echo) as i32) < 0;
        app.wrong += u64::from(answer.ts.is_some() != self.ends.timestamps || goes_back);
        app.wrong += self.wrong_sacks(frame, answer);
        let far = &mut self.conns[conn];
        far.ts_echo = ts;
        let window = u32::from(u16::from_be_bytes([frame[48], frame[49]]));
        far.acked = answer.ack;
        if syn {
            far.edge = answer.ack.wrapping_add(window);
            far.expects = answer.seq.wrapping_add(1);
            far.first_there = far.expects;
            far.scale = options_of(frame).window_scale.unwrap_or(0);
            return;
        }
        far.edge = answer.ack.wrapping_add(window << far.scale);
        let len = answer.payload.len() as u32;
        if len == 0 {
            return;
        }
        // Whatever was there before is compared no second time.
        let end = answer.seq.wrapping_add(len);
        let is_next = answer.seq == far.expects;
        let follows = far.beyond.is_none_or(|(_, right)| right == answer.seq);
        let ahead = answer.seq.wrapping_sub(far.expects) as i32 > 0;
        far.unacked += 1;
        if is_next {
            far.expects = end;
            if let Some((_, right)) = far.beyond.filter(|(left, _)| *left == end) {
                far.expects = right;
                far.beyond = None;
            }
        } else if ahead && follows {
            let left = far.beyond.map_or(answer.seq, |(left, _)| left);
            far.beyond = Some((left, end));
        } else {
            return;
        }
        let at = answer.seq.wrapping_sub(far.first_there) as usize % PERIOD;
        let sent = &app.stream[at..at + answer.payload.len()];
        app.wrong += u64::from(sent != answer.payload);
        app.bytes += u64::from(len);
    }

    /// Number of edges of the server's SACK blocks at which no segment under way begins or ends.
    fn wrong_sacks(&self, frame: &[u8], answer: &Answer<'_>) -> u64 {
        let plain = if self.ends.timestamps { TCP + TS } else { TCP };
        if header_len(frame) <= plain || answer.flags.contains(Flags::SYN) {
            return 0;
        }
        let far = &self.conns[answer.conn as usize];
        let flight = far.next.wrapping_sub(answer.ack);
        let is_wrong = |edge: u32| {
            let segments = edge.wrapping_sub(far.first) as usize % self.payload();
            segments != 0 || edge.wrapping_sub(answer.ack).wrapping_sub(1) >= flight
        };
        let sack = options_of(frame).sack;
        let edges = sack
            .as_slice()
            .iter()
            .flat_map(|(left, right)| [left.0, right.0]);
        edges.filter(|edge| is_wrong(*edge)).count() as u64
    }

    /// Number of streams of which something is under way.
    fn unfinished(&self, app: &Application, dir: Dir) -> u64 {
        let is_under_way = |(far, moved): &(&Far, &u32)| match dir {
            Dir::Rx { .. } => far.acked != far.next,
            Dir::Tx => far.expects != far.first_there.wrapping_add(**moved),
        };
        let both = self.conns.iter().zip(&app.moved);
        both.filter(is_under_way).count() as u64
    }
}

/// Bytes of a frame's TCP header.
fn header_len(frame: &[u8]) -> usize {
    usize::from(frame[ETH + IP + 12] >> 4) * 4
}

fn options_of(frame: &[u8]) -> options::Options {
    options::parse(&frame[ETH + IP + TCP..ETH + IP + header_len(frame)])
}

/// Some connections whose bytes all go one way: the server, the application that reads or writes, and the far end.
pub struct Streams<S = Janus> {
    pub server: S,
    pub app: Application,
    peers: Peers,
    /// On their way to the server.
    frames: Vec<Frame>,
    pub clock: Clock,
    /// True while nothing new is sent or written.
    quiet: bool,
    /// Deeds on the way to the server, and from it.
    pub tamper_in: Option<Tamper>,
    pub tamper_out: Option<Tamper>,
}

impl Streams {
    /// Returns `conns` streams on Janus's engine.
    pub fn new(conns: usize) -> Self {
        Self::new_at(Ends::default(), conns)
    }

    /// Returns them between these ends.
    pub fn new_at(ends: Ends, conns: usize) -> Self {
        Self::on(Janus::new(&ends), ends, conns)
    }
}

impl<S: Server> Streams<S> {
    /// Returns `conns` streams on any server.
    pub fn on(server: S, ends: Ends, conns: usize) -> Self {
        Self {
            server,
            app: Application::new(conns),
            peers: Peers {
                crafter: Crafter::new(&ends),
                ends,
                conns: vec![Far::default(); conns],
                questions: Vec::new(),
            },
            frames: Vec::with_capacity(8 * BURST),
            clock: Clock::real(),
            quiet: false,
            tamper_in: None,
            tamper_out: None,
        }
    }

    /// Bytes of a full segment.
    pub fn payload(&self) -> usize {
        self.peers.payload()
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
        let Peers {
            ends,
            crafter,
            conns,
            ..
        } = &mut self.peers;
        let far = &mut conns[conn];
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
            crafter.syn(out, &segment)
        } else {
            crafter.segment(out, &segment, payload)
        };
        let written = match far.beyond {
            Some(range) if len == 0 => with_sack(out, written, range),
            _ => written,
        };
        far.next = far
            .next
            .wrapping_add(len as u32 + u32::from(flags.contains(Flags::SYN)));
        let mut frame = Frame::new(buf, written as u16);
        if ends.six {
            six::to_six(&mut frame);
        }
        self.frames.push(frame);
    }

    /// Opens all connections.
    pub fn open(&mut self) {
        let conns = self.peers.conns.len();
        for conn in 0..conns {
            self.craft(conn, Flags::SYN, 0);
        }
        let mut acknowledged = vec![false; conns];
        let mut opened = 0;
        for _ in 0..8 {
            self.turn_with(None);
            for (conn, done) in acknowledged.iter_mut().enumerate() {
                let far = &mut self.peers.conns[conn];
                if far.expects != 0 && !core::mem::replace(done, true) {
                    far.first = far.next;
                    self.craft(conn, Flags::ACK, 0);
                }
            }
            opened = self.server.accept();
        }
        assert_eq!(opened, conns, "all are open");
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
        if dir != Dir::Tx && !self.quiet {
            self.outside(|streams| streams.send());
        }
        self.turn_with((dir != Dir::Tx || !self.quiet).then_some(dir));
    }

    fn turn_with(&mut self, work: Option<Dir>) {
        if let Some(tamper) = &mut self.tamper_in {
            let lost = self
                .frames
                .extract_if(.., |frame| !tamper(frame.data_mut()));
            lost.for_each(|frame| self.server.pool().free(frame.buf));
        }
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
        let payload = self.payload();
        for i in 0..BURST {
            let conn = i % self.peers.conns.len();
            let far = &self.peers.conns[conn];
            let room = far.edge.wrapping_sub(far.next) as i32;
            let flight = far.next.wrapping_sub(far.acked);
            if room >= payload as i32 && flight < FAR_FLIGHT {
                self.craft(conn, Flags::ACK, payload);
            }
        }
    }

    /// The far end takes what the server sent, and answers its questions for addresses.
    fn receive(&mut self) {
        for frame in self.frames.drain(..) {
            self.server.pool().free(frame.buf);
        }
        let (peers, app) = (&mut self.peers, &mut self.app);
        match &mut self.tamper_out {
            None => self.server.sent(&mut |frame| peers.take(app, frame)),
            // The bytes are the retransmit queue's.
            Some(tamper) => self.server.sent(&mut |frame| {
                let mut copy = frame.to_vec();
                if tamper(&mut copy) {
                    peers.take(app, &copy);
                }
            }),
        }
        for question in core::mem::take(&mut self.peers.questions) {
            let Some(mut buf) = self.server.pool().alloc() else {
                continue;
            };
            let to = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
            match self.peers.tell(&question, to) {
                Some(len) => self.frames.push(Frame::new(buf, len as u16)),
                None => {
                    self.app.wrong += 1;
                    self.server.pool().free(buf);
                }
            }
        }
    }

    /// Begins nothing more, and lets come what is under way; a stream of which something never comes is a wrong answer.
    pub fn settle(&mut self, dir: Dir) {
        let begin = self.clock.now();
        self.quiet = true;
        while self.peers.unfinished(&self.app, dir) > 0
            && self.clock.now().saturating_since(begin) < SETTLE_MAX
        {
            self.turn(dir);
        }
        self.quiet = false;
        self.app.wrong += self.peers.unfinished(&self.app, dir);
    }

    /// The far end acknowledges what came in the turn.
    fn acknowledge(&mut self) {
        for conn in 0..self.peers.conns.len() {
            if core::mem::take(&mut self.peers.conns[conn].unacked) > 0 {
                self.craft(conn, Flags::ACK, 0);
            }
        }
    }
}
