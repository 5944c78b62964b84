//! A stack with nothing around it, and packets made by hand: what a hostile peer's tests share. What a peer sends and
//! what must hold afterwards is in the tests.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod family;
pub(crate) mod target;
pub(crate) mod witness;

use core::time::Duration;
use std::net::Ipv4Addr;
use std::sync::Arc;

use janus_mem::{Depot, Frame, Growth, HEADROOM, Pool};
use janus_tcp::{
    Config, ConnId, Error, Instant, Interface, IpCidr, ListenerId, Local, Secrets, Stack,
};
use janus_wire::tcp::{self, Flags, Header, Options};
use janus_wire::{Link, MacAddr, SeqNum, checksum, ethernet, ipv4, ipv6, proto};

use target::Target;

pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
pub(crate) const PORT: u16 = 80;
pub(crate) const ROUTER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Virtual time after which nothing may be left of connections whose owners let go and whose peers are silent.
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Buffers of the device that hands packets in.
const DEVICE_BUFFERS: u32 = 16_384;

/// A segment to be sent to the stack.
#[derive(Clone, Debug)]
pub(crate) struct Craft {
    pub(crate) src: (Ipv4Addr, u16),
    pub(crate) dst: (Ipv4Addr, u16),
    pub(crate) seq: SeqNum,
    pub(crate) ack: SeqNum,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    /// The ECN field of the IP header.
    pub(crate) ecn: u8,
    pub(crate) options: Options,
    /// Follows the options, whole words of it, as far as the header has room.
    pub(crate) junk: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Craft {
    pub(crate) fn new(src: (Ipv4Addr, u16), flags: Flags) -> Craft {
        Craft {
            src,
            dst: (HERE, PORT),
            seq: SeqNum(0),
            ack: SeqNum(0),
            flags,
            window: 0xffff,
            urgent: 0,
            ecn: 0,
            options: Options::NONE,
            junk: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// A SYN with the options of an ordinary client, without timestamps.
    pub(crate) fn syn(src: (Ipv4Addr, u16)) -> Craft {
        let mut syn = Craft::new(src, Flags::SYN);
        syn.options.mss = Some(1_400);
        syn.options.window_scale = Some(3);
        syn
    }

    /// The IP packet.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let segment = self.segment();
        if family::is_v6() {
            self.in_v6(segment)
        } else {
            self.in_v4(segment)
        }
    }

    /// The TCP segment, without its checksum.
    fn segment(&self) -> Vec<u8> {
        let mut bytes = vec![0; 60 + self.payload.len()];
        let header = Header {
            src_port: self.src.1,
            dst_port: self.dst.1,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: self.urgent,
            header_len: 0,
        };
        let mut header_len = tcp::emit(&mut bytes, &header, &self.options);
        let room = (60 - header_len).min(self.junk.len()) / 4 * 4;
        bytes[header_len..header_len + room].copy_from_slice(&self.junk[..room]);
        header_len += room;
        bytes[12] = ((header_len / 4) as u8) << 4;
        let total = header_len + self.payload.len();
        bytes[header_len..total].copy_from_slice(&self.payload);
        bytes.truncate(total);
        bytes
    }

    fn in_v4(&self, mut segment: Vec<u8>) -> Vec<u8> {
        let (src, dst) = (self.src.0, self.dst.0);
        tcp::fill_checksum_v4(&mut segment, src, dst);
        let mut bytes = vec![0; ipv4::LEN];
        let repr = ipv4::Repr {
            src,
            dst,
            proto: proto::TCP,
            payload_len: segment.len() as u16,
            ttl: 64,
            tos: self.ecn,
            id: 0,
            dont_fragment: true,
        };
        ipv4::emit(&mut bytes, &repr);
        bytes.extend_from_slice(&segment);
        bytes
    }

    fn in_v6(&self, mut segment: Vec<u8>) -> Vec<u8> {
        let (src, dst) = (family::v6_of(self.src.0), family::v6_of(self.dst.0));
        tcp::fill_checksum_v6(&mut segment, src, dst);
        let mut bytes = vec![0; ipv6::LEN];
        let repr = ipv6::Repr {
            src,
            dst,
            proto: proto::TCP,
            payload_len: segment.len() as u16,
            hop_limit: 64,
            traffic_class: self.ecn,
            flow_label: 0,
        };
        ipv6::emit(&mut bytes, &repr);
        bytes.extend_from_slice(&segment);
        bytes
    }
}

/// A segment the stack sent, found sound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) from: (Ipv4Addr, u16),
    pub(crate) to: (Ipv4Addr, u16),
    pub(crate) header: Header,
    /// The ECN field of the IP header.
    pub(crate) ecn: u8,
    pub(crate) options: Options,
    pub(crate) payload: Vec<u8>,
}

impl Seen {
    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.header.flags.contains(flags)
    }

    /// First sequence number behind it.
    pub(crate) fn end(&self) -> SeqNum {
        let extra = u32::from(self.has(Flags::SYN)) + u32::from(self.has(Flags::FIN));
        self.header.seq + (self.payload.len() as u32 + extra)
    }
}

/// The stack under attack, a listener on [`PORT`], and the device its packets come from.
pub(crate) struct Host {
    pub(crate) now: Instant,
    pub(crate) stack: Stack,
    pub(crate) depot: Arc<Depot>,
    pub(crate) listener: ListenerId,
    pub(crate) device: Pool,
    /// Calls until the stack is audited again: the more connections, the seldomer.
    until_audit: usize,
}

impl Host {
    pub(crate) fn new(config: Config, interface: Interface, buffers: u32) -> Host {
        let depot = Depot::new(buffers, &Growth::Inline).expect("memory");
        let device = Depot::new(DEVICE_BUFFERS, &Growth::Inline)
            .expect("memory")
            .pool();
        let secrets = Secrets::from_seed(7);
        let mut stack =
            Stack::new(config, interface, secrets, depot.pool(), &Growth::Inline).expect("memory");
        let listener = stack
            .listen(family::socket(Ipv4Addr::UNSPECIFIED, PORT), 4_096)
            .expect("a free port");
        Host {
            now: Instant::from_millis(5_000),
            stack,
            depot,
            listener,
            device,
            until_audit: 0,
        }
    }

    /// Checks that no connection waits for nothing.
    pub(crate) fn audit(&mut self) {
        match self.until_audit.checked_sub(1) {
            Some(left) => self.until_audit = left,
            None => {
                self.stack.audit().expect("nothing is forgotten");
                self.until_audit = self.stack.connections() / 16;
            }
        }
    }

    /// One with an address of its own and plenty of everything.
    pub(crate) fn plain() -> Host {
        Host::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Host {
        Host::new(config, own_address(), 8_192)
    }

    /// Hands an IP packet in, whatever it is; on Ethernet, from the peers' router.
    pub(crate) fn feed(&mut self, packet: &[u8]) {
        if self.stack.interface().link == Link::Ip {
            return self.feed_frame(packet);
        }
        let mut frame = vec![0; ethernet::LEN];
        let header = ethernet::Header {
            dst: self.stack.interface().mac,
            src: ROUTER,
            ethertype: match packet.first() {
                Some(first) if first >> 4 == 6 => ethernet::ethertype::IPV6,
                _ => ethernet::ethertype::IPV4,
            },
        };
        header.emit(&mut frame);
        frame.extend_from_slice(packet);
        self.feed_frame(&frame);
    }

    pub(crate) fn feed_frame(&mut self, packet: &[u8]) {
        let mut buf = self
            .device
            .alloc_reserved()
            .expect("bounded use of received buffers");
        let start = usize::from(HEADROOM);
        buf.bytes_mut()[start..start + packet.len()].copy_from_slice(packet);
        let frame = Frame::new(buf, packet.len() as u16);
        self.stack.input(self.now, &mut vec![frame], &mut Local);
        self.audit();
    }

    pub(crate) fn send(&mut self, craft: &Craft) {
        self.feed(&craft.packet());
    }

    /// Takes the segments that the stack sends (one turn's worth), checked.
    pub(crate) fn collect(&mut self) -> Vec<Seen> {
        self.collect_some(1_000_000)
    }

    /// Takes at most so many of the frames it has to send.
    pub(crate) fn collect_some(&mut self, room: usize) -> Vec<Seen> {
        segments(&self.packets_some(room))
    }

    /// Takes the IP packets that the stack sends, whatever is in them.
    pub(crate) fn packets(&mut self) -> Vec<Vec<u8>> {
        self.packets_some(1_000_000)
    }

    /// Frames that were sent have arrived: those that are lent are the stack's again, the others are done with.
    pub(crate) fn take_back(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.stack.pool().free(frame.buf);
            }
        }
    }

    fn packets_some(&mut self, room: usize) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.stack.transmit(self.now, &mut out, room);
        let link = self.stack.interface().link.header_len();
        let is_ip = |frame: &&Frame| {
            let ip = [[8, 0], [0x86, 0xdd]];
            link == 0 || ip.iter().any(|ip| frame.data()[12..14] == ip[..])
        };
        let packets = out.iter().filter(is_ip);
        let packets = packets.map(|frame| frame.data()[link..].to_vec()).collect();
        self.take_back(out);
        self.audit();
        packets
    }

    /// Sends a segment and takes the answers.
    pub(crate) fn ask(&mut self, craft: &Craft) -> Vec<Seen> {
        self.send(craft);
        self.collect()
    }

    /// Lets time pass, and the stack serve all that is due then.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        for _ in 0..10_000 {
            self.stack.advance(self.now);
            self.audit();
            if self.stack.next_deadline().is_none_or(|at| at > self.now) {
                return;
            }
        }
        panic!("there is no end to what is due");
    }

    /// Packet buffers held: by the engine for sending, and of those the device handed in.
    pub(crate) fn held(&mut self) -> usize {
        self.stack.pool().flush();
        self.device.flush();
        self.depot.stats().outstanding + self.device.depot().stats().outstanding
    }

    /// Lets a day pass in which no peer says anything.
    pub(crate) fn a_silent_day(&mut self) {
        let end = self.now + DAY;
        self.collect();
        while let Some(next) = self.stack.next_deadline().filter(|at| *at < end) {
            self.now = self.now.max(next);
            self.wait(Duration::ZERO);
            self.collect();
        }
        self.now = end;
    }

    /// Everyone lets go and falls silent: within a day everything is gone.
    pub(crate) fn end(mut self, conns: &[ConnId]) {
        for &conn in conns {
            self.stack.close(self.now, conn);
        }
        self.stack.unlisten(self.now, self.listener);
        self.a_silent_day();
        assert_eq!(self.stack.audit(), Ok(()));
        assert_eq!(self.stack.next_deadline(), None, "a timer without end");
        assert_eq!(self.stack.connections(), 0, "connections are left");
        assert_eq!(self.stack.half_open(), 0, "half-open records are left");
        assert_eq!(self.stack.in_time_wait(), 0, "TIME-WAIT records are left");
        assert_eq!(self.stack.hot_in_use(), 0, "hot blocks are left");
        assert_eq!(self.stack.segments_in_use(), 0, "segments are left");
        assert_eq!(self.held(), 0, "packet buffers are left");
    }
}

pub(crate) fn own_address() -> Interface {
    Interface {
        any_local: false,
        addresses: vec![IpCidr::new(HERE, 24), IpCidr::new(family::v6_of(HERE), 120)],
        ..Interface::ip(1_500)
    }
}

/// The TCP segments among packets that were sent.
fn segments(packets: &[Vec<u8>]) -> Vec<Seen> {
    let is_tcp = |packet: &&Vec<u8>| match packet[0] >> 4 {
        4 => packet[9] == proto::TCP,
        _ => packet[6] == proto::TCP,
    };
    let segments = packets.iter().filter(is_tcp);
    segments.map(|packet| read(packet)).collect()
}

fn read(packet: &[u8]) -> Seen {
    let (src, dst, segment, sum, ecn) = if packet[0] >> 4 == 6 {
        let ip = ipv6::parse(packet).expect("the engine's own header");
        let sum = checksum::tcp_v6(ip.src, ip.dst, ip.payload());
        (
            ip.src.into(),
            ip.dst.into(),
            ip.payload(),
            sum,
            ip.traffic_class & 3,
        )
    } else {
        let ip = ipv4::parse(packet).expect("the engine's own header");
        assert!(ip.checksum_ok());
        let sum = checksum::tcp_v4(ip.src, ip.dst, ip.payload());
        (ip.src.into(), ip.dst.into(), ip.payload(), sum, ip.ecn())
    };
    assert_eq!(sum, 0, "the engine's own checksum");
    let (header, options, payload) = tcp::parse(segment).expect("the engine's own header");
    Seen {
        from: (family::back(src), header.src_port),
        to: (family::back(dst), header.dst_port),
        header,
        ecn,
        options: tcp::options::parse(options),
        payload: payload.to_vec(),
    }
}

/// The byte that stands at `at` of every honest stream.
pub(crate) fn byte_at(at: u32) -> u8 {
    (at ^ (at >> 8)) as u8
}

pub(crate) fn bytes_at(at: u32, len: usize) -> Vec<u8> {
    (at..).take(len).map(byte_at).collect()
}

/// The far end of a connection, which keeps to the protocol: the victim of those who do not.
pub(crate) struct Peer {
    pub(crate) at: (Ipv4Addr, u16),
    pub(crate) conn: ConnId,
    /// Next number it sends and next it expects.
    pub(crate) snd: SeqNum,
    pub(crate) rcv: SeqNum,
    pub(crate) irs: SeqNum,
    pub(crate) window: u16,
    /// The value of its next timestamp, if it uses them.
    pub(crate) clock: Option<u32>,
    pub(crate) sent: u32,
    /// Bytes of the stream that the application on our side has read, and that it got from there.
    pub(crate) read: u32,
    pub(crate) got: Vec<u8>,
}

impl Peer {
    /// Opens a connection with the SYN given.
    pub(crate) fn open_with(host: &mut dyn Target, syn: &Craft) -> Peer {
        Peer::try_open(host, syn).expect("the handshake is done")
    }

    pub(crate) fn try_open(host: &mut dyn Target, syn: &Craft) -> Option<Peer> {
        let answers = host.ask(syn);
        let answer = answers.iter().find(|s| s.to == syn.src)?;
        assert!(answer.has(Flags::SYN | Flags::ACK), "{answer:?}");
        let mut peer = Peer {
            at: syn.src,
            conn: ConnId {
                index: u32::MAX,
                generation: 0,
            },
            snd: syn.seq + 1u32,
            rcv: answer.end(),
            irs: answer.header.seq,
            window: syn.window,
            clock: syn.options.timestamps.map(|(value, _)| value),
            sent: 0,
            read: 0,
            got: Vec::new(),
        };
        host.send(&peer.segment(Flags::ACK));
        let (conn, from) = host.accept().ok()?;
        assert_eq!(from, family::socket(syn.src.0, syn.src.1));
        peer.conn = conn;
        Some(peer)
    }

    pub(crate) fn open(host: &mut dyn Target, port: u16) -> Peer {
        let mut syn = Craft::syn((PEER, port));
        syn.seq = SeqNum(u32::MAX - 500);
        Peer::open_with(host, &syn)
    }

    pub(crate) fn open_with_timestamps(host: &mut dyn Target, port: u16) -> Peer {
        let mut syn = Craft::syn((PEER, port));
        syn.seq = SeqNum(u32::MAX - 500);
        syn.options.timestamps = Some((1_000_000, 0));
        Peer::open_with(host, &syn)
    }

    /// A segment from where it stands.
    pub(crate) fn segment(&self, flags: Flags) -> Craft {
        let mut craft = Craft::new(self.at, flags);
        craft.seq = self.snd;
        craft.ack = self.rcv;
        craft.window = self.window;
        craft.options.timestamps = self.clock.map(|value| (value, 0));
        craft
    }

    /// The stream's bytes `from..from + len`, counted from the next to be sent.
    pub(crate) fn ahead(&self, from: u32, len: usize) -> Craft {
        let mut craft = self.segment(Flags::ACK);
        craft.seq = self.snd + from;
        craft.payload = bytes_at(self.sent + from, len);
        craft
    }

    /// Sends the next bytes of the stream, and takes the answers.
    pub(crate) fn say(&mut self, host: &mut dyn Target, len: usize) -> Vec<Seen> {
        host.send(&self.ahead(0, len));
        self.skip(len as u32);
        self.listen(host, true)
    }

    /// Notes that so much was sent.
    pub(crate) fn skip(&mut self, len: u32) {
        self.snd += len;
        self.sent += len;
    }

    /// Takes what the stack sends, keeps what is new in order, and acknowledges it if `answer`.
    pub(crate) fn listen(&mut self, host: &mut dyn Target, answer: bool) -> Vec<Seen> {
        let seen = host.collect();
        self.take(&seen);
        if answer
            && seen
                .iter()
                .any(|s| s.to == self.at && s.end() != s.header.seq)
        {
            host.send(&self.segment(Flags::ACK));
        }
        seen
    }

    pub(crate) fn take(&mut self, seen: &[Seen]) {
        for s in seen.iter().filter(|s| s.to == self.at) {
            let new = (s.end() - self.rcv).max(0) as usize;
            if s.header.seq.le(self.rcv) && new > 0 {
                let extra = usize::from(s.has(Flags::FIN));
                let old = (self.rcv - s.header.seq) as usize;
                self.got
                    .extend_from_slice(&s.payload[old.min(s.payload.len())..]);
                assert!(new <= s.payload.len() + extra);
                self.rcv = s.end();
            }
        }
    }

    /// The application reads all there is; it must be what was sent.
    pub(crate) fn expect_stream(&mut self, host: &mut dyn Target) {
        let mut into = [0; 4_096];
        loop {
            match host.read(self.conn, &mut into) {
                Ok(0) | Err(Error::WouldBlock) => return,
                Ok(n) => {
                    assert_eq!(
                        into[..n],
                        bytes_at(self.read, n),
                        "the stream is not what was sent"
                    );
                    self.read += n as u32;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// The application reads all there is, which ends at `end` of the stream or before.
    pub(crate) fn expect_stream_at_most(&mut self, host: &mut dyn Target, end: u32) {
        self.expect_stream(host);
        assert!(self.read <= end, "{} read of {end}", self.read);
    }

    /// It is as if nothing had happened: bytes go both ways.
    pub(crate) fn expect_unharmed(&mut self, host: &mut dyn Target) {
        self.say(host, 300);
        self.expect_stream(host);
        assert_eq!(self.read, self.sent, "all that was sent has come");
        let before = self.got.len();
        assert_eq!(host.write(self.conn, b"unharmed"), Ok(8));
        self.listen(host, true);
        assert_eq!(&self.got[before..], b"unharmed");
    }
}
