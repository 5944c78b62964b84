//! The place of the tests: a carrier without its thread, the shards' end of its wire, and what can be sent over that.

use std::collections::HashSet;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use janus_io::{Backend, Batch, Queue, wire};
use janus_mem::{Depot, Growth, Pool};
use janus_tcp::{Config, Interface, Secrets, Stack};
use janus_wire::tcp::options::Options;
use janus_wire::tcp::{self, Flags};
use janus_wire::{SeqNum, icmpv4, icmpv6, ipv4, ipv6, proto};

use super::super::*;
use crate::clock::Clock;
use crate::portal::carrier::Inner;
use crate::portal::events::Doorbell;

pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How much of the carrier's time passes with each turn.
const TURN: Duration = Duration::from_micros(100);

/// A carrier, and the shards' end of its wire.
pub(super) struct Scene {
    pub(super) carrier: Carrier,
    queue: Box<dyn Queue>,
    pool: Pool,
    depot: Arc<Depot>,
    pub(super) clock: Clock,
    time: &'static AtomicU64,
    /// What came out to the shards and was not asked for yet.
    pub(super) got: Vec<Vec<u8>>,
}

impl Scene {
    pub(super) fn new(reach: &str) -> Scene {
        let depot = Depot::new(2048, &Growth::Inline).unwrap();
        let (near, far) = wire::pair(wire::Config::default()).unwrap();
        let open = |end: wire::End| Box::new(end).open(1).unwrap();
        let time: &'static AtomicU64 = Box::leak(Box::default());
        let clock = Clock::Virtual(time);
        let mut config = small();
        answers_all(&mut config, 1024);
        let inner = Inner {
            queues: open(far),
            stack: stack(config, &depot, 1),
            pool: depot.pool(),
            clock,
            reach: reach.parse().unwrap(),
            mailbox: crate::portal::tests::mailbox(),
        };
        let (_, commands) = channel();
        let carrier = Carrier::new(inner, commands, Arc::new(Doorbell::new().unwrap()));
        Scene {
            carrier: carrier.unwrap(),
            queue: open(near).remove(0),
            pool: depot.pool(),
            depot,
            clock,
            time,
            got: Vec::new(),
        }
    }

    /// Puts frames onto the wire at once; the carrier has not looked yet.
    pub(super) fn send(&mut self, frames: &[Vec<u8>]) {
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        for burst in frames.chunks(32) {
            for bytes in burst {
                let mut frame =
                    Frame::new(self.pool.alloc().expect("a buffer"), bytes.len() as u16);
                frame.data_mut().copy_from_slice(bytes);
                assert!(batch.push(frame).is_ok());
            }
            self.queue.tx_burst(&mut self.pool, &mut batch, &mut done);
            assert!(batch.is_empty() && done.is_empty());
        }
    }

    /// Moves the carrier once, and takes what it sent.
    pub(super) fn turn(&mut self) {
        self.pass(TURN);
        self.carrier.turn();
        self.carrier.sleep(true).unwrap();
        self.check();
        let mut arrived = Batch::new();
        self.queue.rx_burst(&mut self.pool, &mut arrived);
        for frame in arrived.pull() {
            self.got.push(frame.data().to_vec());
            self.pool.free(frame.buf);
        }
    }

    /// Sends frames and waits for so many, which may need the kernel.
    pub(super) fn give_for(&mut self, count: usize, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.send(frames);
        self.until("an answer", |scene| scene.got.len() >= count);
        self.give(&[])
    }

    /// Sends frames and gives everything a few turns.
    pub(super) fn give(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        self.send(frames);
        (0..8).for_each(|_| self.turn());
        std::mem::take(&mut self.got)
    }

    pub(super) fn pass(&self, time: Duration) {
        self.time
            .fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Scene) -> bool) {
        let begin = std::time::Instant::now();
        while !done(self) {
            assert!(
                begin.elapsed() < PATIENCE,
                "{what}: not within {PATIENCE:?}"
            );
            self.turn();
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub(super) fn open_passages(&self) -> usize {
        self.carrier.passages.iter().flatten().count()
    }

    /// The tables agree with each other, and their bounds hold.
    pub(super) fn check(&self) {
        let Carrier {
            passages,
            free,
            exits,
            ..
        } = &self.carrier;
        let distinct: HashSet<u32> = free.iter().copied().collect();
        assert_eq!(distinct.len(), free.len(), "a slot is free twice");
        assert!(free.iter().all(|slot| passages[*slot as usize].is_none()));
        let occupied = passages.iter().flatten().count();
        assert_eq!(occupied + free.len(), passages.len(), "a slot is lost");
        let mut named = 0;
        let mut openings: HashMap<u16, u32> = HashMap::new();
        for (slot, passage) in passages.iter().enumerate() {
            let flow = match passage {
                Some(Passage::Opening(opening)) => {
                    if opening.is_answered() {
                        *openings.entry(opening.flow.local_port()).or_default() += 1;
                    }
                    opening.flow
                }
                Some(Passage::Open(_, Some(flow))) => *flow,
                Some(Passage::Open(_, None)) | None => continue,
            };
            named += 1;
            assert_eq!(exits.flows.get(&flow), Some(&(slot as u32)), "{flow:?}");
        }
        assert_eq!(exits.flows.len(), named, "a flow without a passage");
        let listening = exits
            .inside
            .iter()
            .map(|(port, inside)| (*port, inside.openings));
        assert_eq!(listening.collect::<HashMap<_, _>>(), openings);
        assert!(exits.complaints.len() <= COMPLAINTS_MAX);
        assert!(exits.answered.len() <= ANSWERED_MAX);
    }

    /// Ends it: every buffer comes home.
    pub(super) fn end(mut self) {
        (0..8).for_each(|_| self.turn());
        let depot = self.depot.clone();
        drop(self);
        assert_eq!(depot.stats().outstanding, 0, "buffers that nobody has");
    }
}

pub(super) fn small() -> Config {
    Config {
        max_connections: 1024,
        max_hot: 1024,
        max_half_open: 256,
        max_time_wait: 256,
        max_segments: 4096,
        ..Config::default()
    }
}

pub(super) fn stack(config: Config, depot: &Arc<Depot>, seed: u64) -> Stack {
    let secrets = Secrets::from_seed(seed);
    let stack = Stack::new(
        config,
        Interface::ip(1500),
        secrets,
        depot.pool(),
        &Growth::Inline,
    );
    stack.unwrap()
}

/// A segment without options, its checksum right.
pub(super) fn segment(
    from: SocketAddr,
    to: SocketAddr,
    flags: Flags,
    seq: u32,
    ack: u32,
) -> Vec<u8> {
    data(from, to, flags, seq, ack, &[])
}

/// The same with data.
pub(super) fn data(
    from: SocketAddr,
    to: SocketAddr,
    flags: Flags,
    seq: u32,
    ack: u32,
    payload: &[u8],
) -> Vec<u8> {
    let len = tcp::LEN + payload.len();
    let header = tcp::Header {
        src_port: from.port(),
        dst_port: to.port(),
        seq: SeqNum(seq),
        ack: SeqNum(ack),
        flags,
        window: 1000,
        urgent: 0,
        header_len: tcp::LEN,
    };
    let mut bytes = vec![0; ipv6::LEN + len];
    match (from.ip(), to.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.truncate(ipv4::LEN + len);
            ipv4::emit(&mut bytes, &ip_header(src, dst, len));
            let segment = &mut bytes[ipv4::LEN..];
            tcp::emit(segment, &header, &Options::NONE);
            segment[tcp::LEN..].copy_from_slice(payload);
            tcp::fill_checksum_v4(segment, src, dst);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let ip = ipv6::Repr {
                src,
                dst,
                proto: proto::TCP,
                payload_len: len as u16,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
            };
            ipv6::emit(&mut bytes, &ip);
            let segment = &mut bytes[ipv6::LEN..];
            tcp::emit(segment, &header, &Options::NONE);
            segment[tcp::LEN..].copy_from_slice(payload);
            tcp::fill_checksum_v6(segment, src, dst);
        }
        _ => panic!("one family"),
    }
    bytes
}

pub(super) fn ip_header(src: Ipv4Addr, dst: Ipv4Addr, len: usize) -> ipv4::Repr {
    ipv4::Repr {
        src,
        dst,
        proto: proto::TCP,
        payload_len: len as u16,
        ttl: 64,
        tos: 0,
        id: 7,
        dont_fragment: false,
    }
}

pub(super) fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

pub(super) fn syn(from: SocketAddr, to: SocketAddr, isn: u32) -> Vec<u8> {
    segment(from, to, Flags::SYN, isn, 0)
}

/// A kernel's listener, and a port of this machine's where nobody is.
pub(super) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

/// Where shards' connections come from: not this machine's address, so that the kernel's ports are its own affair.
pub(super) fn shard(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 7], port))
}

/// Who comes to the kernel's listener next.
pub(super) fn accept(listener: &TcpListener) -> TcpStream {
    let begin = std::time::Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return stream,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begin.elapsed() < PATIENCE, "nobody came");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Everybody who waits at the kernel's listener.
pub(super) fn accepted(listener: &TcpListener) -> Vec<TcpStream> {
    std::iter::from_fn(|| listener.accept().ok())
        .map(|(stream, _)| stream)
        .collect()
}

pub(super) fn was_reset(stream: &TcpStream) -> bool {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = (&*stream).read(&mut [0; 1]);
    matches!(end, Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

/// The code of an ICMP "unreachable" and the flow it is about, as the shard names it.
pub(super) fn complaint_in(frame: &[u8]) -> Option<(u8, FlowKey)> {
    if let Ok(ip) = ipv4::parse(frame) {
        return match icmpv4::parse(ip.payload()) {
            Ok(icmpv4::Message::Unreachable { code, quote, .. }) => {
                Some((code, FlowKey::V4(quote.flow()?)))
            }
            _ => None,
        };
    }
    let ip = ipv6::parse(frame).ok()?;
    match icmpv6::parse(ip.payload()) {
        Ok(icmpv6::Message::Unreachable { code, quote }) => {
            Some((code, FlowKey::V6(quote.flow()?)))
        }
        _ => None,
    }
}

/// The flags and the numbers of a segment.
pub(super) fn told(frame: &[u8]) -> (Flags, u32, u32) {
    let ip = ipv4::parse(frame).unwrap();
    let (header, ..) = tcp::parse(ip.payload()).unwrap();
    (header.flags, header.seq.0, header.ack.0)
}
