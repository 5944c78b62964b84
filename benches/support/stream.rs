//! Streams on the engine alone, in the turns that a shard has, behind a far end that sends what the windows let it, acknowledges at the end
//! of a turn, and compares every byte.

use super::clock::Clock;
use super::far::packet::{Crafter, Ends, Segment, read};
use super::meter::process_cpu;
use janus_mem::{Depot, Frame, Growth, HEADROOM, PacketBuf};
use janus_tcp::{
    Config, ConnId, Error, Instant, Interface, IpCidr, ListenerId, Local, Secrets, Stack,
};
use janus_wire::tcp::Flags;
use std::net::IpAddr;
use std::time::Duration;

/// Frames exchanged at a time.
const BURST: usize = 64;
/// Bytes of a segment.
pub const PAYLOAD: usize = 1_448;
/// The stream repeats itself after so many bytes.
const PERIOD: usize = 1 << 16;
/// What the application writes at a time.
const WRITE: usize = 1 << 14;
const BUFFERS: u32 = 32_768;
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
    /// Where the application on the server stands in the stream that it reads or writes.
    place: usize,
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
    /// Bytes and frames that are not what they should be.
    pub wrong: u64,
}

impl Streams {
    pub fn new(conns: usize) -> Self {
        let ends = Ends::default();
        let interface = Interface {
            link: janus_wire::Link::Ethernet,
            mac: ends.server_mac,
            any_local: false,
            addresses: vec![IpCidr::new(IpAddr::V4(*ends.server.ip()), 24)],
            gateway: Some(std::net::Ipv4Addr::new(192, 0, 2, 2)),
            ..Interface::ip(1_500)
        };
        let growth = Growth::Inline;
        let pool = Depot::new(BUFFERS, &growth).expect("memory").pool();
        let secrets = Secrets::from_seed(7);
        let mut stack =
            Stack::new(Config::default(), interface, secrets, pool, &growth).expect("memory");
        let server = std::net::SocketAddr::V4(ends.server);
        let listener = stack.listen(server, 64).expect("the port is free");
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
        }
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
        far.next = far
            .next
            .wrapping_add(len as u32 + u32::from(flags.contains(Flags::SYN)));
        self.frames.push(Frame::new(buf, written as u16));
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
                let IpAddr::V4(addr) = peer.ip() else {
                    continue;
                };
                let conn = super::far::packet::connection(addr.to_bits(), peer.port());
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
        for i in 0..BURST {
            let conn = i % self.far.len();
            let far = &self.far[conn];
            let room = far.edge.wrapping_sub(far.next) as i32;
            let flight = far.next.wrapping_sub(far.acked);
            if room >= PAYLOAD as i32 && flight < FAR_FLIGHT {
                self.craft(conn, Flags::ACK, PAYLOAD);
            }
        }
    }

    /// The far end takes what the server sent.
    fn receive(&mut self, out: &[Frame]) {
        for frame in out {
            let Ok(answer) = read(&self.ends, frame.data()) else {
                // Only the question for the far end's hardware address is no segment.
                if let Some(mut buf) = self.stack.pool().alloc() {
                    let to = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
                    match self.crafter.arp_reply(frame.data(), to) {
                        Some(len) => self.frames.push(Frame::new(buf, len as u16)),
                        None => self.wrong += 1,
                    }
                }
                continue;
            };
            let far = &mut self.far[answer.conn as usize];
            far.ts_echo = answer.ts.map_or(far.ts_echo, |(value, _)| value);
            let window = u32::from(u16::from_be_bytes([frame.data()[48], frame.data()[49]]));
            let syn = answer.flags.contains(Flags::SYN);
            far.acked = answer.ack;
            far.edge = answer
                .ack
                .wrapping_add(if syn { window } else { window << 7 });
            if syn {
                far.expects = answer.seq.wrapping_add(1);
                far.first_there = far.expects;
                continue;
            }
            let len = answer.payload.len();
            if len > 0 && answer.seq == far.expects {
                let at = far.expects.wrapping_sub(far.first_there) as usize % PERIOD;
                self.wrong += u64::from(self.stream[at..at + len] != *answer.payload);
                far.expects = far.expects.wrapping_add(len as u32);
                far.unacked += 1;
                self.bytes += len as u64;
            }
        }
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
                Ok(n) => self.far[conn].place = (at + n) % PERIOD,
                Err(Error::WouldBlock) => return,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}
