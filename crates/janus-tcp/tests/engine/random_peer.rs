//! A peer that sends any segment in any order against the engine's public face: it never panics, never holds
//! more than its bounds, delivers a prefix of what was sent in order, forgets no connection at any moment, and leaves
//! nothing behind, also where packet buffers are few or with somebody else.

use core::time::Duration;
use std::net::Ipv4Addr;

use crate::support::{Craft, HERE, Host, PEER, PORT, family};
use janus_mem::PacketBuf;
use janus_tcp::{Config, ConnId, Interface};
use janus_wire::tcp::{Flags, Options};
use janus_wire::{SeqNum, checksum, ipv4, ipv6, proto};
use proptest::prelude::*;

const RECEIVE_BUFFER: u32 = 16_000;
const BUFFERS: u32 = 2_048;
/// The same of an engine that has few of everything.
const FEW_BUFFERS: u32 = 48;

/// One thing the peer (or the application, or time) does. Numbers are offsets from where the stream stands, so
/// that random ones hit the interesting edges.
#[derive(Clone, Debug)]
enum Act {
    Segment {
        seq: i32,
        ack: i32,
        flags: u8,
        window: u16,
        len: u16,
        timestamps: Option<(i32, u32)>,
        /// Blocks, from so far behind what the engine sent, and so long.
        sack: Vec<(u16, u16)>,
        ecn: u8,
        urgent: u16,
        /// The packet comes in two fragments, the second first.
        in_fragments: bool,
        junk: Vec<u8>,
    },
    /// An error about what the engine sent, or near it.
    Icmp {
        kind: (u8, u8),
        mtu: u16,
        seq: i32,
    },
    Read(usize),
    Write(usize),
    Shutdown,
    /// The application lets go.
    Close,
    /// Somebody else takes so many packet buffers; with 0, gives all back.
    Hoard(usize),
    Wait(u64),
}

fn offset() -> impl Strategy<Value = i32> {
    prop_oneof![
        8 => Just(0),
        3 => -3i32..3,
        1 => Just(1),
        3 => -3_000i32..3_000,
        1 => any::<i32>(),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let flags = prop_oneof![6 => Just(0x10u8), 3 => Just(0x18), 2 => Just(0x11), 1 => Just(0x02), 1 => Just(0x04), 1 => any::<u8>()];
    let timestamps = prop_oneof![
        4 => Just(Some((0, 0))),
        1 => Just(None),
        1 => (any::<i32>(), any::<u32>()).prop_map(Some),
    ];
    let junk = prop_oneof![
        6 => Just(Vec::new()),
        1 => any::<[u8; 2]>().prop_map(|[high, low]| vec![28, 4, high, low]),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let sack = prop_oneof![
        3 => Just(Vec::new()),
        1 => proptest::collection::vec((0u16..8_000, 0u16..3_000), 1..4),
    ];
    let marks = (
        prop_oneof![3 => Just(0u8), 1 => 0u8..4],
        prop_oneof![8 => Just(0u16), 1 => any::<u16>()],
        prop_oneof![8 => Just(false), 1 => Just(true)],
    );
    let len = prop_oneof![2 => 0u16..1_400, 1 => Just(0), 1 => 0u16..4];
    let window = prop_oneof![3 => any::<u16>(), 1 => 0u16..200];
    let segment = (
        offset(),
        offset(),
        flags,
        window,
        len,
        timestamps,
        sack,
        marks,
        junk,
    )
        .prop_map(
            |(seq, ack, flags, window, len, timestamps, sack, marks, junk)| Act::Segment {
                seq,
                ack,
                flags,
                window,
                len,
                timestamps,
                sack,
                ecn: marks.0,
                urgent: marks.1,
                in_fragments: marks.2,
                junk,
            },
        );
    let kind = prop_oneof![4 => Just((3u8, 4u8)), 1 => (3u8..4, 0u8..16), 1 => any::<(u8, u8)>()];
    let icmp =
        (kind, any::<u16>(), offset()).prop_map(|(kind, mtu, seq)| Act::Icmp { kind, mtu, seq });
    prop_oneof![
        12 => segment,
        1 => icmp,
        2 => (0usize..5_000).prop_map(Act::Read),
        3 => (1usize..5_000).prop_map(Act::Write),
        1 => Just(Act::Shutdown),
        1 => Just(Act::Close),
        2 => prop_oneof![Just(0), 1usize..60, Just(60)].prop_map(Act::Hoard),
        2 => (0u64..3_000).prop_map(Act::Wait),
    ]
}

/// A header from one side to the other, of the family that is being tried.
fn ip_header(next: u8, from: Ipv4Addr, to: Ipv4Addr, body: usize) -> Vec<u8> {
    let payload_len = body as u16;
    if family::is_v6() {
        let mut packet = vec![0; ipv6::LEN];
        let repr = ipv6::Repr {
            src: family::v6_of(from),
            dst: family::v6_of(to),
            proto: next,
            payload_len,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        ipv6::emit(&mut packet, &repr);
        return packet;
    }
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: from,
        dst: to,
        proto: next,
        payload_len,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut packet, &repr);
    packet
}

/// The packet in two fragments, the second first.
fn fragments(packet: &[u8]) -> [Vec<u8>; 2] {
    if family::is_v6() {
        return fragments_v6(packet);
    }
    const FIRST: usize = 16;
    let (header, body) = packet.split_at(ipv4::LEN);
    let piece = |field: u16, body: &[u8]| {
        let mut piece = header.to_vec();
        piece.extend_from_slice(body);
        let len = piece.len() as u16;
        piece[2..4].copy_from_slice(&len.to_be_bytes());
        piece[6..8].copy_from_slice(&field.to_be_bytes());
        piece[10..12].fill(0);
        let sum = checksum::ipv4_header(&piece[..ipv4::LEN]);
        piece[10..12].copy_from_slice(&sum.to_be_bytes());
        piece
    };
    let (first, second) = body.split_at(FIRST);
    [piece((FIRST / 8) as u16, second), piece(0x2000, first)]
}

/// The first has the whole TCP header where that is possible: without it the engine takes none (RFC 7112).
fn fragments_v6(packet: &[u8]) -> [Vec<u8>; 2] {
    let body = &packet[ipv6::LEN..];
    let (first, second) = body.split_at((body.len() - 1).min(64) / 8 * 8);
    let piece = |offset: usize, more: bool, body: &[u8]| {
        let repr = ipv6::Repr {
            src: family::v6_of(PEER),
            dst: family::v6_of(HERE),
            proto: proto::TCP,
            payload_len: (ipv6::FRAGMENT_LEN + body.len()) as u16,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        let fragment = ipv6::Fragment {
            offset: offset as u16,
            more,
            id: 7,
        };
        let mut piece = vec![0; ipv6::LEN + ipv6::FRAGMENT_LEN];
        ipv6::emit_fragment(&mut piece, &repr, fragment);
        piece.extend_from_slice(body);
        piece
    };
    [piece(first.len(), false, second), piece(0, true, first)]
}

/// An ICMP error about a segment of ours with that sequence number. Over IPv6, the kind that says the same, or any.
fn icmp_error((kind, code): (u8, u8), mtu: u16, seq: SeqNum) -> Vec<u8> {
    let v6 = family::is_v6();
    let too_big = (kind, code) == (3, 4);
    let mut message = match (v6, kind) {
        (true, _) if too_big => vec![2, 0, 0, 0],
        (true, 3) => vec![1, code, 0, 0],
        _ => vec![kind, code, 0, 0],
    };
    message.extend_from_slice(&u32::from(mtu).to_be_bytes());
    message.extend_from_slice(&ip_header(proto::TCP, HERE, PEER, 1_400));
    message.extend_from_slice(&PORT.to_be_bytes());
    message.extend_from_slice(&4_000u16.to_be_bytes());
    message.extend_from_slice(&seq.0.to_be_bytes());
    let (src, dst) = (family::v6_of(PEER), family::v6_of(HERE));
    let pseudo = match v6 {
        true => checksum::pseudo_v6(src, dst, proto::ICMPV6, message.len() as u32),
        false => 0,
    };
    let sum = checksum::finish(checksum::sum(&message, pseudo));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let of = if v6 { proto::ICMPV6 } else { proto::ICMP };
    let mut packet = ip_header(of, PEER, HERE, message.len());
    packet.extend_from_slice(&message);
    packet
}

struct Server {
    host: Host,
    conn: Option<ConnId>,
    closed: bool,
    hoard: Vec<PacketBuf>,
    /// The largest window that the peer ever offers.
    window_max: u16,
    /// Where the peer's stream began, and where the engine says both stand.
    irs: SeqNum,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    read: u32,
}

impl Server {
    fn new(timestamps: bool, few: bool) -> Server {
        let plenty = Config::default();
        let (max_hot, max_segments, buffers) = match few {
            true => (3, 40, FEW_BUFFERS),
            false => (plenty.max_hot, plenty.max_segments, BUFFERS),
        };
        let config = Config {
            max_hot,
            max_segments,
            receive_buffer: RECEIVE_BUFFER,
            send_buffer: 32_000,
            receive_buffer_max: 0,
            send_buffer_max: 0,
            timestamps,
            uto: timestamps,
            ..plenty
        };
        let irs = SeqNum(u32::MAX - 500);
        Server {
            host: Host::new(config, Interface::ip(1_500), buffers),
            conn: None,
            closed: false,
            hoard: Vec::new(),
            // One that was never as large as two segments is another matter to the sender (RFC 9293 section 3.8.6.2.1).
            window_max: if few { 200 } else { u16::MAX },
            irs,
            snd_nxt: SeqNum(0),
            rcv_nxt: irs,
            read: 0,
        }
    }

    fn segment(&self, (seq, ack): (SeqNum, SeqNum), flags: Flags, options: Options) -> Craft {
        let mut craft = Craft::new((PEER, 4_000), flags);
        (craft.seq, craft.ack, craft.options) = (seq, ack, options);
        craft.window = self.window_max.min(8_000);
        craft
    }

    /// Takes what the engine sends, and notes where it says the stream stands.
    fn collect(&mut self) {
        for seen in self.host.collect() {
            if seen.has(Flags::RST) {
                continue;
            }
            if self.conn.is_none() || (seen.end() - self.snd_nxt) > 0 {
                self.snd_nxt = seen.end();
            }
            if self.conn.is_none() || (seen.header.ack - self.rcv_nxt) > 0 {
                self.rcv_nxt = seen.header.ack;
            }
        }
        if self.conn.is_none() && !self.closed {
            let listener = self.host.listener;
            self.conn = self.host.stack.accept(listener).ok().map(|(conn, _)| conn);
        }
    }

    fn byte_at(&self, seq: SeqNum) -> u8 {
        let at = (seq - (self.irs + 1u32)) as u32;
        (at ^ (at >> 8)) as u8
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        match act {
            Act::Segment {
                seq,
                ack,
                flags,
                window,
                len,
                timestamps,
                sack,
                ecn,
                urgent,
                in_fragments,
                junk,
            } => {
                let seq = self.rcv_nxt + *seq as u32;
                let payload: Vec<u8> = (0..u32::from(*len))
                    .map(|i| self.byte_at(seq + i))
                    .collect();
                let mut options = Options::NONE;
                options.timestamps = timestamps.map(|(v, e)| {
                    (
                        1_000u32
                            .wrapping_add(self.host.now.as_millis() as u32)
                            .wrapping_add(v as u32),
                        e,
                    )
                });
                for (behind, len) in sack {
                    let left = self.snd_nxt + 0u32.wrapping_sub(u32::from(*behind));
                    options.sack.push(left, left + u32::from(*len));
                }
                let ack = self.snd_nxt + *ack as u32;
                let mut craft = self.segment((seq, ack), Flags(*flags), options);
                (craft.window, craft.payload) = ((*window).min(self.window_max), payload);
                (craft.ecn, craft.urgent) = (*ecn, *urgent);
                craft.junk.clone_from(junk);
                match in_fragments {
                    true => fragments(&craft.packet())
                        .iter()
                        .for_each(|piece| self.host.feed(piece)),
                    false => self.host.send(&craft),
                }
            }
            Act::Icmp { kind, mtu, seq } => {
                let packet = icmp_error(*kind, *mtu, self.snd_nxt + *seq as u32);
                self.host.feed(&packet);
            }
            Act::Read(n) => {
                let mut into = vec![0; *n];
                if let Some(Ok(got)) = self
                    .conn
                    .map(|c| self.host.stack.read(self.host.now, c, &mut into))
                {
                    for byte in &into[..got] {
                        let want = self.byte_at(self.irs + 1u32 + self.read);
                        prop_assert_eq!(*byte, want, "the stream is not what was sent");
                        self.read += 1;
                    }
                }
            }
            Act::Write(n) => {
                if let Some(conn) = self.conn {
                    let _refused = self.host.stack.write(self.host.now, conn, &vec![1; *n]);
                }
            }
            Act::Shutdown => {
                if let Some(conn) = self.conn {
                    let _refused = self.host.stack.shutdown_write(self.host.now, conn);
                }
            }
            Act::Close => {
                if let Some(conn) = self.conn.take() {
                    self.closed = true;
                    self.host.stack.close(self.host.now, conn);
                }
            }
            Act::Hoard(0) => self.give_back(),
            Act::Hoard(count) => {
                let pool = self.host.stack.pool();
                self.hoard.extend((0..*count).map_while(|_| pool.alloc()));
            }
            Act::Wait(ms) => {
                self.host.wait(Duration::from_millis(*ms));
            }
        }
        self.collect();
        Ok(())
    }

    fn give_back(&mut self) {
        for buf in self.hoard.drain(..) {
            self.host.stack.pool().free(buf);
        }
    }

    fn open(&mut self, timestamps: bool) {
        let mut options = Options {
            mss: Some(1_400),
            window_scale: (self.window_max > 200).then_some(3),
            sack_permitted: true,
            ..Options::NONE
        };
        let clock = 1_000u32.wrapping_add(self.host.now.as_millis() as u32);
        options.timestamps = timestamps.then_some((clock, 0));
        let syn = self.segment((self.irs, SeqNum(0)), Flags::SYN, options);
        self.host.send(&syn);
        self.collect();
        options = Options {
            timestamps: options.timestamps,
            ..Options::NONE
        };
        let ack = self.segment((self.rcv_nxt, self.snd_nxt), Flags::ACK, options);
        self.host.send(&ack);
        self.collect();
    }
}

/// A connection's whole life.
fn live(acts: &[Act], timestamps: bool, few: bool) -> Result<(), TestCaseError> {
    let mut server = Server::new(timestamps, few);
    server.open(timestamps);
    prop_assert!(server.conn.is_some(), "the handshake is done");
    for act in acts {
        server.act(act)?;
        let info = server.conn.and_then(|c| server.host.stack.info(c).ok());
        if let Some(info) = info {
            prop_assert!(
                info.unread <= RECEIVE_BUFFER + 0x80,
                "more unread than the window allowed"
            );
            prop_assert!(info.unsent + info.in_flight <= 32_000);
        }
        prop_assert!(
            server.host.held() <= 600 + server.hoard.len(),
            "one connection holds too many buffers"
        );
    }
    // The application lets go, the peer falls silent: within a day everything is gone, though what was taken is not there.
    if let Some(conn) = server.conn {
        server.host.stack.close(server.host.now, conn);
    }
    let (now, listener) = (server.host.now, server.host.listener);
    server.host.stack.unlisten(now, listener);
    server.host.a_silent_day();
    prop_assert_eq!(server.host.stack.connections(), 0);
    prop_assert_eq!(server.host.stack.hot_in_use(), 0);
    server.give_back();
    server.host.end(&[]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_breaks_the_engine(
        acts in proptest::collection::vec(act(), 1..120),
        timestamps in any::<bool>(),
        v6 in any::<bool>(),
        few in prop::bool::weighted(0.4),
    ) {
        family::over(v6, || live(&acts, timestamps, few))?;
    }

    #[test]
    fn any_bytes_are_survived(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..50)) {
        let mut server = Server::new(true, false);
        for bytes in frames {
            server.host.feed(&bytes);
        }
        server.host.end(&[]);
    }
}
