//! Streams on the engine alone, in the turns that a shard has, behind a far end that sends what the windows let it, acknowledges at the end
//! of a turn, and compares every byte. It keeps nothing that it sent, so what the server drops never comes; what the server lost on the
//! way it asks for with SACK. A test may spoil what goes either way.

use super::clock::Clock;
use super::far::packet::{Answer, Crafter, Ends, Segment, Wrong, connection, read, with_sack};
use super::far::six;
use super::meter::process_cpu;
use janus_mem::{Depot, Frame, Growth, HEADROOM, PacketBuf};
use janus_tcp::{
    Config, ConnId, Error, Instant, Interface, IpCidr, ListenerId, Local, Secrets, Stack,
};
use janus_wire::tcp::{Flags, options};
use std::net::IpAddr;
use std::time::Duration;

/// Frames exchanged at a time.
const BURST: usize = 64;
/// Bytes of a segment.
pub const PAYLOAD: usize = 1_448;
/// Bytes of a segment over IPv6, whose header is longer.
pub const PAYLOAD_SIX: usize = 1_428;
/// A whole frame of the server's.
const FRAME_MAX: usize = 1_514;
/// The stream repeats itself after so many bytes.
const PERIOD: usize = 1 << 16;
/// What the application writes at a time.
const WRITE: usize = 1 << 14;
const BUFFERS: u32 = 32_768;
/// Most the far end has under way for a connection.
const FAR_FLIGHT: u32 = 1 << 19;
/// Longest time that what is under way takes to come: several retransmission timeouts.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Deed of a test on a frame on its way; false loses the frame.
pub type Tamper = Box<dyn FnMut(&mut [u8]) -> bool>;

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
    /// Sequence numbers of the piece that it has got beyond a gap: first, and first after.
    beyond: Option<(u32, u32)>,
    /// Where both streams begin.
    first: u32,
    first_there: u32,
    ts_echo: u32,
    /// Where the application on the server stands in the stream that it reads or writes.
    place: usize,
    /// Bytes that the application on the server has written, modulo 2^32.
    written: u32,
}

/// Some connections whose bytes all go one way: the engine alone, the application that reads or writes, and the far end.
pub struct Streams {
    pub stack: Stack,
    listener: ListenerId,
    ends: Ends,
    crafter: Crafter,
    far: Vec<Far>,
    conns: Vec<(ConnId, usize)>,
    stream: Vec<u8>,
    /// On their way to the server, and from it.
    frames: Vec<Frame>,
    out: Vec<Frame>,
    data: Vec<u8>,
    pub clock: Clock,
    /// Time spent outside the server.
    outside: Duration,
    /// Payload moved.
    pub bytes: u64,
    /// Bytes and frames that are not what they should be, and streams of which something never came.
    pub wrong: u64,
    /// True while nothing new is sent or written.
    quiet: bool,
    /// Deeds on the way to the server, and from it.
    pub tamper_in: Option<Tamper>,
    pub tamper_out: Option<Tamper>,
}

impl Streams {
    pub fn new(conns: usize) -> Self {
        Self::new_at(Ends::default(), conns)
    }

    /// Builds both ends between these addresses.
    pub fn new_at(ends: Ends, conns: usize) -> Self {
        let interface = Interface {
            link: janus_wire::Link::Ethernet,
            mac: ends.server_mac,
            any_local: false,
            addresses: vec![IpCidr::new(ends.server_ip(), ends.server_prefix())],
            gateway: Some(ends.gateway_four()),
            gateway_v6: Some(six::address(ends.gateway_four())),
            ..Interface::ip(1_500)
        };
        let growth = Growth::Inline;
        let pool = Depot::new(BUFFERS, &growth).expect("memory").pool();
        let secrets = Secrets::from_seed(7);
        let mut stack =
            Stack::new(Config::default(), interface, secrets, pool, &growth).expect("memory");
        let listener = stack
            .listen(ends.listen_at(), 64)
            .expect("the port is free");
        let mut word = 1_u32;
        let mut byte = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (word >> 24) as u8
        };
        let mut stream: Vec<u8> = (0..PERIOD).map(|_| byte()).collect();
        stream.extend_from_within(..WRITE);
        Self {
            stack,
            listener,
            crafter: Crafter::new(&ends),
            ends,
            far: vec![Far::default(); conns],
            conns: Vec::new(),
            stream,
            frames: Vec::with_capacity(8 * BURST),
            out: Vec::with_capacity(8 * BURST),
            data: vec![0; 1 << 16],
            clock: Clock::real(),
            outside: Duration::ZERO,
            bytes: 0,
            wrong: 0,
            quiet: false,
            tamper_in: None,
            tamper_out: None,
        }
    }

    /// Bytes of a segment.
    pub fn payload(&self) -> usize {
        if self.ends.six { PAYLOAD_SIX } else { PAYLOAD }
    }

    /// The far end crafts a segment.
    fn craft(&mut self, conn: usize, flags: Flags, len: usize) {
        let Some(buf) = self.stack.pool().alloc() else {
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
        let payload = &self.stream[at..at + len];
        let written = if flags.contains(Flags::SYN) {
            self.crafter.syn(out, &segment)
        } else {
            self.crafter.segment(out, &segment, payload)
        };
        let written = match far.beyond {
            Some(range) if len == 0 => with_sack(out, written, range),
            _ => written,
        };
        far.next = far
            .next
            .wrapping_add(len as u32 + u32::from(flags.contains(Flags::SYN)));
        let mut frame = Frame::new(buf, written as u16);
        if self.ends.six {
            six::to_six(&mut frame);
        }
        self.frames.push(frame);
    }

    /// All connections are opened, and those accepted told apart by their ports.
    pub fn open(&mut self) {
        for conn in 0..self.far.len() {
            self.craft(conn, Flags::SYN, 0);
        }
        for _ in 0..8 {
            self.turn(Dir::Tx, false);
            for conn in 0..self.far.len() {
                if self.far[conn].expects != 0 && self.conns.len() < self.far.len() {
                    self.far[conn].first = self.far[conn].next;
                    self.craft(conn, Flags::ACK, 0);
                }
            }
            while let Ok((id, peer)) = self.stack.accept(self.listener) {
                let addr = match peer.ip() {
                    IpAddr::V4(addr) => Some(addr),
                    IpAddr::V6(addr) => six::stands_for(addr),
                };
                let conn = addr.and_then(|addr| connection(addr.to_bits(), peer.port()));
                self.conns.push((id, conn.expect("one of ours") as usize));
            }
        }
        assert_eq!(self.conns.len(), self.far.len(), "all are open");
    }

    /// For about so long; the payload bytes moved and the server's nanoseconds.
    pub fn run(&mut self, dir: Dir, time: Duration) -> (f64, f64) {
        let (bytes, outside) = (self.bytes, self.outside);
        let (start, cpu) = (std::time::Instant::now(), process_cpu());
        while start.elapsed() < time {
            for _ in 0..16 {
                self.turn(dir, true);
            }
        }
        // The far end is timed by the wall clock; a busy machine takes its share of that as of the rest.
        let (wall, cpu) = (start.elapsed(), process_cpu() - cpu);
        let share = 1.0 - (self.outside - outside).as_secs_f64() / wall.as_secs_f64();
        ((self.bytes - bytes) as f64, cpu.as_nanos() as f64 * share)
    }

    /// One turn of the loop: in, application, timers, out.
    pub fn turn(&mut self, dir: Dir, loaded: bool) {
        if loaded && dir != Dir::Tx {
            self.outside(|streams| streams.send());
        }
        if let Some(tamper) = &mut self.tamper_in {
            let lost = self
                .frames
                .extract_if(.., |frame| !tamper(frame.data_mut()));
            lost.for_each(|frame| self.stack.pool().free(frame.buf));
        }
        let mut out = core::mem::take(&mut self.out);
        self.counted_turn(dir, loaded, &mut out);
        self.outside(|streams| streams.receive(&out));
        self.counted_end(&mut out);
        self.out = out;
        self.outside(|streams| streams.acknowledge());
    }

    /// The engine's and the application's part of a turn; [`valgrind`](super::valgrind) counts it by its name.
    #[inline(never)]
    fn counted_turn(&mut self, dir: Dir, loaded: bool, out: &mut Vec<Frame>) {
        let now = self.clock.turn();
        self.stack.input(now, &mut self.frames, &mut Local);
        while self.stack.pop_ready().is_some() {}
        if loaded {
            for i in 0..self.conns.len() {
                match dir {
                    Dir::Rx { lent } => self.take(now, i, lent),
                    Dir::Tx if self.quiet => {}
                    Dir::Tx => self.write(now, i),
                }
            }
        }
        self.stack.advance(now);
        self.stack.transmit(now, out, 4 * BURST);
    }

    /// What was sent comes home.
    #[inline(never)]
    fn counted_end(&mut self, out: &mut Vec<Frame>) {
        for frame in out.drain(..) {
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.stack.pool().free(frame.buf);
            }
        }
    }

    fn outside(&mut self, work: impl FnOnce(&mut Self)) {
        let start = std::time::Instant::now();
        work(self);
        self.outside += start.elapsed();
    }

    /// The far end sends what the windows let it, a burst in all.
    fn send(&mut self) {
        let payload = self.payload();
        for i in 0..if self.quiet { 0 } else { BURST } {
            let conn = i % self.far.len();
            let far = &self.far[conn];
            let room = far.edge.wrapping_sub(far.next) as i32;
            let flight = far.next.wrapping_sub(far.acked);
            if room >= payload as i32 && flight < FAR_FLIGHT {
                self.craft(conn, Flags::ACK, payload);
            }
        }
    }

    /// The far end takes what the server sent.
    fn receive(&mut self, out: &[Frame]) {
        for frame in out {
            match &mut self.tamper_out {
                None => self.receive_one(frame.data()),
                Some(tamper) => {
                    // The bytes are the retransmit queue's.
                    let mut copy = frame.data().to_vec();
                    if tamper(&mut copy) {
                        self.receive_one(&copy);
                    }
                }
            }
        }
    }

    fn receive_one(&mut self, frame: &[u8]) {
        if self.ends.six {
            return self.receive_six(frame);
        }
        match read(&self.ends, frame) {
            Ok(answer) => self.look_at(frame, &answer),
            Err(wrong) => self.refuse(frame, wrong),
        }
    }

    #[inline(never)]
    fn receive_six(&mut self, frame: &[u8]) {
        let mut four = [0; FRAME_MAX];
        let len = six::to_four(frame, &mut four);
        match len.and_then(|len| read(&self.ends, &four[..len])) {
            Ok(answer) => self.look_at(&four, &answer),
            Err(wrong) => self.refuse(frame, wrong),
        }
    }

    fn refuse(&mut self, frame: &[u8], wrong: Wrong) {
        match wrong {
            Wrong::Checksum => self.wrong += 1,
            Wrong::NotOurs => self.tell(frame),
        }
    }

    /// Answers the question for the far end's hardware address: only that is no segment.
    fn tell(&mut self, frame: &[u8]) {
        let Some(mut buf) = self.stack.pool().alloc() else {
            return;
        };
        let to = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
        let len = if self.ends.six {
            six::advertisement(&self.ends, frame, to)
        } else {
            self.crafter.arp_reply(frame, to)
        };
        match len {
            Some(len) => self.frames.push(Frame::new(buf, len as u16)),
            None => self.wrong += 1,
        }
    }

    fn look_at(&mut self, frame: &[u8], answer: &Answer<'_>) {
        // Timestamps never go back (PAWS), and SACK tells of nothing that was not sent.
        let far = &self.far[answer.conn as usize];
        let syn = answer.flags.contains(Flags::SYN);
        let ts = answer.ts.map_or(far.ts_echo, |(value, _)| value);
        let goes_back = !syn && (ts.wrapping_sub(far.ts_echo) as i32) < 0;
        self.wrong += u64::from(answer.ts.is_none() || goes_back);
        self.wrong += self.wrong_sacks(frame, answer);
        let far = &mut self.far[answer.conn as usize];
        far.ts_echo = ts;
        let window = u32::from(u16::from_be_bytes([frame[48], frame[49]]));
        far.acked = answer.ack;
        far.edge = answer
            .ack
            .wrapping_add(if syn { window } else { window << 7 });
        if syn {
            far.expects = answer.seq.wrapping_add(1);
            far.first_there = far.expects;
            return;
        }
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
        let sent = &self.stream[at..at + answer.payload.len()];
        self.wrong += u64::from(sent != answer.payload);
        self.bytes += u64::from(len);
    }

    /// Number of edges of the server's SACK blocks at which no segment under way begins or ends.
    fn wrong_sacks(&self, frame: &[u8], answer: &Answer<'_>) -> u64 {
        const PLAIN: u8 = 32 / 4;
        const OPTIONS: usize = 14 + 20 + 20;
        let words = frame[46] >> 4;
        if words <= PLAIN || answer.flags.contains(Flags::SYN) {
            return 0;
        }
        let far = &self.far[answer.conn as usize];
        let flight = far.next.wrapping_sub(answer.ack);
        let is_wrong = |edge: u32| {
            let segments = edge.wrapping_sub(far.first) as usize % self.payload();
            segments != 0 || edge.wrapping_sub(answer.ack).wrapping_sub(1) >= flight
        };
        let end = 14 + 20 + usize::from(words) * 4;
        let sack = options::parse(&frame[OPTIONS..end]).sack;
        let edges = sack
            .as_slice()
            .iter()
            .flat_map(|(left, right)| [left.0, right.0]);
        edges.filter(|edge| is_wrong(*edge)).count() as u64
    }

    /// Begins nothing more, and lets come what is under way; a stream of which something never comes is a wrong answer.
    pub fn settle(&mut self, dir: Dir) {
        let begin = self.clock.now();
        self.quiet = true;
        while self.unfinished(dir) > 0 && self.clock.now().saturating_since(begin) < SETTLE_MAX {
            self.turn(dir, true);
        }
        self.quiet = false;
        self.wrong += self.unfinished(dir);
    }

    /// Number of streams of which something is under way.
    fn unfinished(&self, dir: Dir) -> u64 {
        let is_under_way = |far: &&Far| match dir {
            Dir::Rx { .. } => far.acked != far.next,
            Dir::Tx => far.expects != far.first_there.wrapping_add(far.written),
        };
        self.far.iter().filter(is_under_way).count() as u64
    }

    /// The far end acknowledges every second segment, and what is left at the end of a turn.
    fn acknowledge(&mut self) {
        for conn in 0..self.far.len() {
            if core::mem::take(&mut self.far[conn].unacked) > 0 {
                self.craft(conn, Flags::ACK, 0);
            }
        }
    }

    /// The application takes all there is.
    fn take(&mut self, now: Instant, i: usize, lent: bool) {
        let (id, conn) = self.conns[i];
        let mut data = core::mem::take(&mut self.data);
        loop {
            if !lent {
                match self.stack.read(now, id, &mut data) {
                    Ok(n @ 1..) => self.not_counted_compare(conn, &data[..n]),
                    Ok(_) | Err(Error::WouldBlock) => break,
                    Err(error) => panic!("{error:?}"),
                }
                continue;
            }
            match self.stack.recv(now, id) {
                Ok(Some(got)) => {
                    let (from, len) = (usize::from(got.off), usize::from(got.len));
                    let bytes = &got.buf.bytes()[from..from + len];
                    self.not_counted_compare(conn, bytes);
                    self.stack.pool().free(got.buf);
                }
                Ok(None) | Err(Error::WouldBlock) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        self.data = data;
    }

    /// In the middle of what is counted: [`valgrind`](super::valgrind) leaves it out by its name.
    #[inline(never)]
    fn not_counted_compare(&mut self, conn: usize, bytes: &[u8]) {
        self.outside(|streams| streams.compare(conn, bytes));
    }

    fn compare(&mut self, conn: usize, mut bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let place = &mut self.far[conn].place;
        while !bytes.is_empty() {
            let n = bytes.len().min(PERIOD - *place);
            self.wrong += u64::from(self.stream[*place..*place + n] != bytes[..n]);
            *place = (*place + n) % PERIOD;
            bytes = &bytes[n..];
        }
    }

    /// The application writes all it can.
    fn write(&mut self, now: Instant, i: usize) {
        let (id, conn) = self.conns[i];
        loop {
            let at = self.far[conn].place;
            match self.stack.write(now, id, &self.stream[at..at + WRITE]) {
                Ok(n) => {
                    let far = &mut self.far[conn];
                    far.place = (at + n) % PERIOD;
                    far.written = far.written.wrapping_add(n as u32);
                }
                Err(Error::WouldBlock) => return,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}
