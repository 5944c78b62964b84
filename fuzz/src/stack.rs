//! The engine under bytes: raw frames, and well-formed segments with any contents in any state. It must not panic, must not
//! hold more than its bounds, must forget no connection at any moment, and must let everything go in the end.

mod parcel;

pub use parcel::{is_parcel, parcel, samples};

use janus_mem::{Depot, Frame, Growth, HEADROOM, PacketBuf, Pool, SLOT_SIZE};
use janus_sim::segment::{self, Flags, Segment, TcpOption};
use janus_tcp::{
    Config, ConnId, Error, Instant, Interface, IpCidr, ListenerId, Local, Secrets, Stack,
    SynCookies, Token,
};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const HERE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const PORT: u16 = 80;
const PEER_PORT: u16 = 4_000;
/// Packet buffers, in plenty and few.
const BUFFERS: [u32; 2] = [1_024, 48];
const FRAME_MAX: usize = SLOT_SIZE - HEADROOM as usize;
/// Steps of one input; what follows is not looked at.
const STEPS_MAX: usize = 400;
/// Timers served at the end before something is believed to go on for ever.
const TURNS_MAX: usize = 20_000;
/// Virtual time after which nothing may be left of connections whose owners let go and whose peers are silent.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The engine, a listener, and the far end as the engine has shown it so far.
struct Bench {
    now: Instant,
    stack: Stack,
    depot: Arc<Depot>,
    /// The device's buffers.
    device: Pool,
    listeners: Vec<ListenerId>,
    conns: Vec<ConnId>,
    /// Packet buffers that are with somebody else.
    hoard: Vec<PacketBuf>,
    buffers: usize,
    /// Packet buffers that may be held because a connection brought them along.
    brought: usize,
    /// The window that the far end offers, and which bits of one that is drawn count.
    window: u16,
    window_mask: u16,
    /// Next numbers the engine sends and expects.
    theirs: u32,
    ours: u32,
}

/// The input, a piece at a time; zeros when it is used up.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn long(&mut self) -> u32 {
        u32::from(self.word()) << 16 | u32::from(self.word())
    }
}

/// How the engine is set up: the lowest bits choose options, the eighth that everything is scarce.
fn config(choice: u16) -> Config {
    let scarce = choice & SCARCE != 0;
    Config {
        max_connections: if scarce { 6 } else { 64 },
        max_hot: if scarce { 4 } else { 32 },
        max_half_open: 8,
        max_time_wait: if scarce { 2 } else { 8 },
        max_segments: if scarce { 40 } else { 2_048 },
        max_reordered: 256,
        receive_buffer: 16_000,
        send_buffer: 16_000,
        timestamps: choice & 1 == 0,
        uto: choice & 32 != 0,
        sack: choice & 2 == 0,
        ecn: if choice & 4 == 0 {
            janus_tcp::Ecn::On
        } else {
            janus_tcp::Ecn::Passive
        },
        syn_cookies: if choice & 24 == 24 {
            SynCookies::Always
        } else {
            SynCookies::Pressure
        },
        ..Config::default()
    }
}

/// Of a set-up: few connections, hot blocks, segments and packet buffers.
const SCARCE: u16 = 1 << 8;

impl Bench {
    fn new(choice: u16, ethernet: bool) -> Bench {
        let (config, scarce) = (config(choice), choice & SCARCE != 0);
        let buffers = BUFFERS[usize::from(scarce)];
        let depot = Depot::new(buffers, &Growth::Inline).expect("memory");
        let device = Depot::new(BUFFERS[0], &Growth::Inline)
            .expect("memory")
            .pool();
        let mut interface = Interface::ip(1_500);
        if ethernet {
            interface.link = janus_wire::Link::Ethernet;
            interface.mac = janus_wire::MacAddr([2, 0, 0, 0, 0, 2]);
        }
        interface.any_local = false;
        interface.addresses = vec![IpCidr::new(HERE, 24), IpCidr::new(HERE_V6, 64)];
        let secrets = Secrets::from_seed(7);
        let stack = Stack::new(config, interface, secrets, depot.pool(), &Growth::Inline);
        let mut stack = stack.expect("memory");
        let here: [SocketAddr; 2] = [(HERE, PORT).into(), (HERE_V6, PORT).into()];
        let listeners = here.map(|here| stack.listen(here, 16).expect("a free port"));
        Bench {
            now: Instant::from_millis(5_000),
            stack,
            depot,
            device,
            listeners: listeners.to_vec(),
            conns: Vec::new(),
            hoard: Vec::new(),
            buffers: buffers as usize,
            brought: 0,
            // One that was never as large as two segments is another matter to the sender (RFC 9293 section 3.8.6.2.1).
            window: if scarce { 100 } else { 8_000 },
            window_mask: if scarce { 0x1ff } else { 0xffff },
            theirs: 0,
            ours: u32::MAX - 300,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(FRAME_MAX)];
        let Some(mut buf) = self.device.alloc() else {
            return;
        };
        let at = usize::from(HEADROOM);
        buf.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        let mut frames = vec![Frame::new(buf, bytes.len() as u16)];
        self.stack.input(self.now, &mut frames, &mut Local);
        self.audit();
    }

    fn audit(&self) {
        if let Err(forgotten) = self.stack.audit() {
            panic!("forgotten: {forgotten}");
        }
    }

    /// Takes what the engine sends, and what it hands to applications.
    fn turn(&mut self) {
        let mut out = Vec::new();
        self.stack.transmit(self.now, &mut out, 4_096);
        for frame in out {
            if let Ok(sent) = segment::decode(frame.data()) {
                self.note(&sent);
            }
            match frame.is_lent() {
                true => self.stack.completed(frame),
                false => self.stack.pool().free(frame.buf),
            }
        }
        for listener in &self.listeners {
            while let Ok((conn, _)) = self.stack.accept(*listener) {
                self.conns.push(conn);
            }
        }
        while self.stack.pop_ready().is_some() {}
        self.audit();
        self.stack.pool().flush();
        self.device.flush();
        let received = self.device.depot().stats().outstanding;
        assert!(
            received <= BUFFERS[0] as usize / 2 + self.brought,
            "{received} packet buffers held"
        );
        if self.buffers == BUFFERS[0] as usize {
            let held = self.depot.stats().outstanding - self.hoard.len();
            let most = self.buffers / 2 + self.brought;
            assert!(held <= most, "{held} packet buffers held");
        }
    }

    /// Somebody else takes so many of the stack's packet buffers, or gives all of them back.
    fn hoard(&mut self, count: usize) {
        if count == 0 {
            let hoard = std::mem::take(&mut self.hoard);
            hoard
                .into_iter()
                .for_each(|buf| self.stack.pool().free(buf));
        }
        for _ in 0..count {
            self.hoard.extend(self.stack.pool().alloc());
        }
    }

    /// Where the engine says both streams stand.
    fn note(&mut self, sent: &Segment) {
        if sent.flags.contains(Flags::RST) {
            return;
        }
        self.theirs = sent.seq.wrapping_add(sent.sequence_len());
        if sent.flags.contains(Flags::ACK) {
            self.ours = sent.ack;
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.stack.advance(self.now);
        self.audit();
    }

    /// Everyone lets go and falls silent: within a day everything is gone.
    fn end(mut self) {
        self.turn();
        let end = self.now + DAY;
        for conn in std::mem::take(&mut self.conns) {
            self.stack.close(self.now, conn);
        }
        for listener in std::mem::take(&mut self.listeners) {
            self.stack.unlisten(self.now, listener);
        }
        for _ in 0..TURNS_MAX {
            self.turn();
            let Some(next) = self.stack.next_deadline() else {
                break;
            };
            self.now = self.now.max(next);
            self.stack.advance(self.now);
        }
        self.turn();
        assert!(self.now <= end, "more than a day");
        self.hoard(0);
        self.stack.pool().flush();
        assert_eq!(self.stack.next_deadline(), None, "a timer without end");
        assert_eq!(self.stack.connections(), 0, "connections are left");
        assert_eq!(self.stack.half_open(), 0, "half-open records are left");
        assert_eq!(self.stack.in_time_wait(), 0, "TIME-WAIT records are left");
        assert_eq!(self.stack.hot_in_use(), 0, "hot blocks are left");
        assert_eq!(self.stack.segments_in_use(), 0, "segments are left");
        assert_eq!(self.depot.stats().outstanding, 0, "buffers are left");
    }
}

/// Raw frames: how the engine is set up, then a length, that many bytes, a pause; again and again.
pub fn frames(data: &[u8]) {
    let mut input = Bytes(data);
    let setup = input.byte();
    let mut bench = Bench::new(setup.into(), setup & 64 != 0);
    if setup & 128 != 0 {
        bench.connect();
    }
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        let len = usize::from(input.word() & 0x7ff).min(input.0.len());
        let (frame, rest) = input.0.split_at(len);
        bench.feed(frame);
        input.0 = rest;
        bench.wait(Duration::from_millis(u64::from(input.byte())));
        bench.turn();
    }
    bench.end();
}

/// Segments that every check of form lets through, at places near where the streams stand, between calls of an
/// application: in every state, in any order.
pub fn segments(data: &[u8]) {
    let mut input = Bytes(data);
    let setup = input.byte();
    let scarce = if setup & 0xc0 == 0xc0 { SCARCE } else { 0 };
    let mut bench = Bench::new(u16::from(setup) | scarce, false);
    match setup & 0xc0 {
        0x40 => bench.connect(),
        0x80 | 0xc0 => bench.be_connected_to(),
        _ => {}
    }
    for _ in 0..STEPS_MAX {
        if input.0.is_empty() {
            break;
        }
        bench.step(&mut input);
        bench.turn();
    }
    bench.end();
}

impl Bench {
    fn connect(&mut self) {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT + 1));
        let remote = SocketAddr::from((PEER, PEER_PORT));
        let conn = self.stack.connect(self.now, local, remote);
        self.conns.extend(conn.ok());
        self.turn();
    }

    fn be_connected_to(&mut self) {
        let options = vec![TcpOption::Mss(1_400), TcpOption::SackPermitted];
        let syn = self.segment(0, Flags::SYN, options);
        self.feed(&segment::encode(&syn));
        self.turn();
        let ack = self.segment(0, Flags::ACK, Vec::new());
        self.feed(&segment::encode(&ack));
        self.turn();
    }

    fn segment(&self, port: u16, flags: Flags, options: Vec<TcpOption>) -> Segment {
        Segment {
            source: PEER.into(),
            destination: HERE.into(),
            tos: 0,
            ttl: 64,
            flow_label: 0,
            source_port: PEER_PORT,
            destination_port: PORT + port,
            seq: self.ours,
            ack: self.theirs,
            flags,
            window: self.window,
            urgent: 0,
            options,
            payload: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Bytes<'_>) {
        let what = input.byte();
        let conn = self.conns.last().copied();
        let now = self.now;
        match (what & 15, conn) {
            (0, Some(conn)) => {
                let mut into = vec![0; usize::from(input.word() & 0x1fff)];
                let _ = self.stack.read(now, conn, &mut into);
            }
            (1, Some(conn)) => {
                let bytes = vec![7; usize::from(input.word() & 0x1fff)];
                let _ = self.stack.write(now, conn, &bytes);
            }
            (2, Some(conn)) => {
                let _ = self.stack.shutdown_write(now, conn);
            }
            (3, Some(conn)) if what & 16 != 0 => {
                self.conns.pop();
                match what & 32 {
                    0 => self.stack.close(now, conn),
                    _ => self.stack.abort(now, conn),
                }
            }
            (4, Some(conn)) if what & 32 != 0 => {
                let _ = self.stack.set_nodelay(conn, what & 16 != 0);
            }
            (4, Some(conn)) => {
                if self.stack.write(now, conn, &[7]) == Err(Error::WouldBlock) {
                    self.stack.wait_write(now, conn, Some(Token(4)));
                }
            }
            (7, _) => self.hoard(usize::from(what >> 4) * 4),
            (5 | 6, _) => self.wait(Duration::from_millis(u64::from(input.word()))),
            _ => self.any_segment(what, input),
        }
    }

    fn any_segment(&mut self, what: u8, input: &mut Bytes<'_>) {
        let near = |input: &mut Bytes<'_>, choice: u8| match choice & 3 {
            0 | 1 => 0,
            // One in eight is one too high.
            2 => match input.byte() {
                near @ 0..0xe0 => u32::from(near).wrapping_sub(128),
                _ => 1,
            },
            _ => (input.word() as i16 as i32) as u32,
        };
        let mut segment = self.segment(0, Flags(input.byte().into()), Vec::new());
        segment.destination_port += u16::from(what >> 7);
        segment.seq = segment.seq.wrapping_add(near(input, what >> 4));
        segment.ack = segment.ack.wrapping_add(near(input, what >> 6));
        segment.window = input.word() & self.window_mask;
        let form = input.byte();
        segment.tos = form & 3;
        segment.urgent = if form & 4 != 0 { input.word() } else { 0 };
        segment.options = self.options(form, input);
        let len = match form >> 6 {
            0 => 0,
            1 => u16::from(input.byte()),
            _ => input.word() % 1_400,
        };
        segment.payload = vec![form; usize::from(len)];
        self.feed(&segment::encode(&segment));
    }

    fn options(&self, form: u8, input: &mut Bytes<'_>) -> Vec<TcpOption> {
        let mut options = Vec::new();
        if form & 8 != 0 {
            let val = 1_000_u32.wrapping_add(self.now.as_millis() as u32);
            let ecr = u32::from(input.word());
            options.push(TcpOption::Timestamps { val, ecr });
        }
        if form & 16 != 0 {
            let blocks = (0..1 + input.byte() % 3).map(|_| {
                let left = self.theirs.wrapping_sub(u32::from(input.word()));
                (left, left.wrapping_add(u32::from(input.word())))
            });
            options.push(TcpOption::Sack(blocks.collect()));
        } else if form & 32 != 0 {
            options.push(TcpOption::Mss(input.word()));
            options.push(TcpOption::WindowScale(input.byte()));
            options.push(TcpOption::SackPermitted);
            if form & 8 == 0 {
                let (kind, mut data) = (input.byte() | 64, input.long().to_be_bytes().to_vec());
                // One in four is a user timeout.
                let kind = if kind & 48 == 48 { 28 } else { kind };
                data.truncate(if kind == 28 { 2 } else { 4 });
                options.push(TcpOption::Other { kind, data });
            }
        }
        options
    }
}
