//! A peer that sends any segment in any order against the engine's public face: it never panics, never holds
//! more than its bounds, delivers a prefix of what was sent in order, and leaves nothing behind.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use janus_mem::{Depot, Frame, Growth, HEADROOM};
use janus_tcp::{Config, ConnId, Instant, Interface, ListenerId, Local, Secrets, Stack};
use janus_wire::tcp::{self, Flags, Options};
use janus_wire::{SeqNum, ipv4, proto};
use proptest::prelude::*;

const PEER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PORT: u16 = 80;
const RECEIVE_BUFFER: u32 = 16_000;
const BUFFERS: u32 = 2_048;

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
        junk: Vec<u8>,
    },
    Read(usize),
    Write(usize),
    Shutdown,
    Wait(u64),
}

fn offset() -> impl Strategy<Value = i32> {
    prop_oneof![
        8 => Just(0),
        3 => -3i32..3,
        3 => -3_000i32..3_000,
        1 => any::<i32>(),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let flags = prop_oneof![6 => Just(0x10u8), 3 => Just(0x18), 1 => Just(0x11), 1 => Just(0x02), 1 => Just(0x04), 1 => any::<u8>()];
    let timestamps = prop_oneof![
        4 => Just(Some((0, 0))),
        1 => Just(None),
        1 => (any::<i32>(), any::<u32>()).prop_map(Some),
    ];
    let junk =
        prop_oneof![6 => Just(Vec::new()), 1 => proptest::collection::vec(any::<u8>(), 0..40)];
    let segment = (
        offset(),
        offset(),
        flags,
        any::<u16>(),
        0u16..1_400,
        timestamps,
        junk,
    )
        .prop_map(
            |(seq, ack, flags, window, len, timestamps, junk)| Act::Segment {
                seq,
                ack,
                flags,
                window,
                len,
                timestamps,
                junk,
            },
        );
    prop_oneof![
        12 => segment,
        2 => (0usize..5_000).prop_map(Act::Read),
        2 => (1usize..5_000).prop_map(Act::Write),
        1 => Just(Act::Shutdown),
        2 => (0u64..3_000).prop_map(Act::Wait),
    ]
}

struct Server {
    now: Instant,
    stack: Stack,
    depot: Arc<Depot>,
    listener: ListenerId,
    conn: Option<ConnId>,
    /// Where the peer's stream began, and where the engine says both stand.
    irs: SeqNum,
    snd_nxt: SeqNum,
    rcv_nxt: SeqNum,
    read: u32,
}

impl Server {
    fn new(timestamps: bool) -> Server {
        let depot = Depot::new(BUFFERS, &Growth::Inline).expect("memory");
        let config = Config {
            receive_buffer: RECEIVE_BUFFER,
            send_buffer: 32_000,
            timestamps,
            ..Config::default()
        };
        let mut interface = Interface::ip(1_500);
        interface.any_local = true;
        let secrets = Secrets::from_seed(7);
        let mut stack =
            Stack::new(config, interface, secrets, depot.pool(), &Growth::Inline).expect("memory");
        let listener = stack
            .listen(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT), 16)
            .expect("a free port");
        let irs = SeqNum(u32::MAX - 500);
        Server {
            now: Instant::from_millis(5_000),
            stack,
            depot,
            listener,
            conn: None,
            irs,
            snd_nxt: SeqNum(0),
            rcv_nxt: irs,
            read: 0,
        }
    }

    fn send(
        &mut self,
        (seq, ack): (SeqNum, SeqNum),
        flags: Flags,
        window: u16,
        payload: &[u8],
        options: &Options,
        junk: &[u8],
    ) {
        let mut buf = self
            .stack
            .pool()
            .alloc()
            .expect("the engine holds fewer buffers than there are");
        let start = usize::from(HEADROOM);
        let bytes = &mut buf.bytes_mut()[start..];
        let mut header_len = tcp::emit(
            &mut bytes[ipv4::LEN..],
            &tcp::Header {
                src_port: 4_000,
                dst_port: PORT,
                seq,
                ack,
                flags,
                window,
                urgent: 0,
                header_len: 0,
            },
            options,
        );
        // Options of every malformed kind, inside the header's claimed length.
        let room = (60 - header_len).min(junk.len()) / 4 * 4;
        bytes[ipv4::LEN + header_len..ipv4::LEN + header_len + room].copy_from_slice(&junk[..room]);
        header_len += room;
        bytes[ipv4::LEN + 12] = ((header_len / 4) as u8) << 4;
        let total = ipv4::LEN + header_len + payload.len();
        bytes[ipv4::LEN + header_len..total].copy_from_slice(payload);
        let payload_len = (total - ipv4::LEN) as u16;
        let repr = ipv4::Repr {
            src: PEER,
            dst: HERE,
            proto: proto::TCP,
            payload_len,
            ttl: 64,
            tos: 0,
            id: 0,
            dont_fragment: true,
        };
        ipv4::emit(bytes, &repr);
        tcp::fill_checksum_v4(&mut bytes[ipv4::LEN..total], PEER, HERE);
        self.stack.input(
            self.now,
            &mut vec![Frame::new(buf, total as u16)],
            &mut Local,
        );
    }

    /// Takes what the engine sends, checks it, and notes where it says the stream stands.
    fn collect(&mut self) -> Result<(), TestCaseError> {
        let mut out = Vec::new();
        self.stack.transmit(self.now, &mut out, 1_000);
        for frame in out {
            let ip = ipv4::parse(frame.data()).expect("the engine's own header");
            prop_assert!(ip.checksum_ok());
            prop_assert_eq!(
                janus_wire::checksum::tcp_v4(ip.src, ip.dst, ip.payload()),
                0
            );
            let (header, _, payload) = tcp::parse(ip.payload()).expect("the engine's own header");
            if !header.flags.contains(Flags::RST) {
                let end = header.seq
                    + payload.len() as u32
                    + u32::from(header.flags.intersects(Flags::SYN | Flags::FIN));
                if self.conn.is_none() || (end - self.snd_nxt) > 0 {
                    self.snd_nxt = end;
                }
                if self.conn.is_none() || (header.ack - self.rcv_nxt) > 0 {
                    self.rcv_nxt = header.ack;
                }
            }
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.stack.pool().free(frame.buf);
            }
        }
        if self.conn.is_none() {
            self.conn = self.stack.accept(self.listener).ok().map(|(conn, _)| conn);
        }
        Ok(())
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
                            .wrapping_add(self.now.as_millis() as u32)
                            .wrapping_add(v as u32),
                        e,
                    )
                });
                let ack = self.snd_nxt + *ack as u32;
                self.send((seq, ack), Flags(*flags), *window, &payload, &options, junk);
            }
            Act::Read(n) => {
                let mut into = vec![0; *n];
                if let Some(Ok(got)) = self.conn.map(|c| self.stack.read(self.now, c, &mut into)) {
                    for byte in &into[..got] {
                        let want = self.byte_at(self.irs + 1u32 + self.read);
                        prop_assert_eq!(*byte, want, "the stream is not what was sent");
                        self.read += 1;
                    }
                }
            }
            Act::Write(n) => {
                if let Some(conn) = self.conn {
                    let _refused = self.stack.write(self.now, conn, &vec![1; *n]);
                }
            }
            Act::Shutdown => {
                if let Some(conn) = self.conn {
                    let _refused = self.stack.shutdown_write(self.now, conn);
                }
            }
            Act::Wait(ms) => {
                self.now = self.now + Duration::from_millis(*ms);
                self.stack.advance(self.now);
            }
        }
        self.collect()
    }

    fn open(&mut self, timestamps: bool) -> Result<(), TestCaseError> {
        let mut options = Options {
            mss: Some(1_400),
            window_scale: Some(3),
            ..Options::NONE
        };
        options.timestamps =
            timestamps.then_some((1_000u32.wrapping_add(self.now.as_millis() as u32), 0));
        self.send((self.irs, SeqNum(0)), Flags::SYN, 8_000, &[], &options, &[]);
        self.collect()?;
        options = Options {
            timestamps: options.timestamps,
            ..Options::NONE
        };
        self.send(
            (self.rcv_nxt, self.snd_nxt),
            Flags::ACK,
            8_000,
            &[],
            &options,
            &[],
        );
        self.collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_breaks_the_engine(acts in proptest::collection::vec(act(), 1..120), timestamps in any::<bool>()) {
        let mut server = Server::new(timestamps);
        server.open(timestamps)?;
        prop_assert!(server.conn.is_some(), "the handshake is done");
        for act in &acts {
            server.act(act)?;
            let info = server.conn.and_then(|c| server.stack.info(c).ok());
            if let Some(info) = info {
                prop_assert!(info.unread <= RECEIVE_BUFFER + 0x80, "more unread than the window allowed");
                prop_assert!(info.unsent + info.in_flight <= 32_000);
            }
            prop_assert!(server.depot.stats().outstanding <= 600, "one connection holds too many buffers");
        }
        // The application lets go, the peer falls silent: in time everything is gone.
        if let Some(conn) = server.conn {
            server.stack.close(server.now, conn);
        }
        server.stack.unlisten(server.now, server.listener);
        for _ in 0..2_000 {
            server.collect()?;
            let Some(next) = server.stack.next_deadline() else { break };
            server.now = server.now.max(next);
            server.stack.advance(server.now);
        }
        server.collect()?;
        prop_assert_eq!(server.stack.connections(), 0);
        prop_assert_eq!(server.stack.hot_in_use(), 0);
        prop_assert_eq!(server.stack.segments_in_use(), 0);
        server.stack.pool().flush();
        prop_assert_eq!(server.depot.stats().outstanding, 0);
    }

    #[test]
    fn any_bytes_are_survived(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..50)) {
        let mut server = Server::new(true);
        for bytes in frames {
            let mut buf = server.stack.pool().alloc().expect("a buffer");
            let start = usize::from(HEADROOM);
            buf.bytes_mut()[start..start + bytes.len()].copy_from_slice(&bytes);
            server.stack.input(server.now, &mut vec![Frame::new(buf, bytes.len() as u16)], &mut Local);
        }
        prop_assert_eq!(server.stack.connections(), 0);
        server.stack.pool().flush();
        prop_assert_eq!(server.depot.stats().outstanding, 0);
    }
}
