//! Connections between addresses of one stack. Nothing of them may be handed out, and nothing of what a device brings may look like them.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use janus_mem::{Depot, Frame, Growth};
use janus_wire::{Link, MacAddr};

use crate::stack::api::readdress::Addressing;
use crate::{
    Config, ConnId, Error, Instant, Interface, IpCidr, ListenerId, Local, Secrets, SocketOptions,
    Stack,
};

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const NEIGHBOR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Loopback addresses are like others where they are among ours.
const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];
const PORT: u16 = 80;
/// Frames taken at a time.
const SOME: usize = 64;

/// A stack that talks to itself.
struct Alone {
    stack: Stack,
    depot: Arc<Depot>,
    now: Instant,
    listener: ListenerId,
}

fn interface(link: Link) -> Interface {
    Interface {
        link,
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        any_local: false,
        addresses: vec![
            IpCidr::new(FIRST, 24),
            IpCidr::new(SECOND, 24),
            IpCidr::new(V6, 64),
            IpCidr::new(LOOPBACK[0], 8),
            IpCidr::new(LOOPBACK[1], 128),
        ],
        ..Interface::ip(1_500)
    }
}

impl Alone {
    fn new(interface: Interface) -> Alone {
        let depot = Depot::new(8_192, &Growth::Inline).expect("memory");
        let (config, secrets) = (Config::default(), Secrets::from_seed(3));
        let pool = depot.pool();
        let mut stack =
            Stack::new(config, interface, secrets, pool, &Growth::Inline).expect("memory");
        let any = (Ipv6Addr::UNSPECIFIED, PORT);
        let listener = stack.listen(any, 4_096).expect("a free port");
        Alone {
            stack,
            depot,
            now: Instant::from_millis(1_000),
            listener,
        }
    }

    fn connect(&mut self, to: impl Into<SocketAddr>) -> ConnId {
        let to = to.into();
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let options = SocketOptions::default();
        let stack = &mut self.stack;
        let opened = stack.connect_from(self.now, any, to, &options, |_| true);
        opened.expect("a connection")
    }

    /// Takes what would be handed to the device.
    fn handed_out(&mut self) -> Vec<Frame> {
        let mut out = Vec::new();
        self.stack.transmit(self.now, &mut out, 10_000);
        assert_eq!(self.stack.audit(), Ok(()));
        out
    }

    /// Takes what is to come back in.
    fn looped(&mut self) -> Vec<Frame> {
        let mut looped = Vec::new();
        self.stack.take_looped(&mut looped, SOME);
        looped
    }

    fn input(&mut self, mut frames: Vec<Frame>) {
        self.stack.input(self.now, &mut frames, &mut Local);
        assert_eq!(self.stack.audit(), Ok(()));
    }

    /// Lets everything happen that happens at this moment. Nothing leaves.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            assert!(self.handed_out().is_empty(), "it leaves");
            let looped = self.looped();
            if looped.is_empty() && !self.stack.wants_transmit() {
                return;
            }
            self.input(looped);
        }
        panic!("it talks to itself without end");
    }

    /// Lets time pass.
    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while let Some(next) = self.stack.next_deadline().filter(|at| *at <= until) {
            self.now = self.now.max(next);
            self.stack.advance(self.now);
            self.settle();
        }
        self.now = until;
    }

    fn open(&mut self, to: impl Into<SocketAddr>) -> (ConnId, ConnId) {
        let client = self.connect(to);
        self.settle();
        let (server, _) = self.stack.accept(self.listener).expect("a connection");
        assert_eq!(self.stack.is_connected(client), Ok(true));
        (client, server)
    }

    /// Carries `bytes` from one end to the other.
    fn carry(&mut self, from: ConnId, to: ConnId, bytes: &[u8]) {
        let (mut sent, mut got) = (0, Vec::new());
        let mut into = vec![0; 65_536];
        for _ in 0..10_000 {
            match self.stack.write(self.now, from, &bytes[sent..]) {
                Ok(written) => sent += written,
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
            self.settle();
            while let Ok(read) = self.stack.read(self.now, to, &mut into) {
                got.extend_from_slice(&into[..read]);
            }
            if got.len() == bytes.len() {
                break;
            }
            // For a delayed acknowledgement.
            self.run_for(Duration::from_millis(1));
        }
        assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
    }

    fn end(mut self, conns: &[ConnId]) {
        for conn in conns {
            self.stack.close(self.now, *conn);
        }
        self.run_for(Duration::from_secs(24 * 3_600));
        let stack = &self.stack;
        assert_eq!(stack.next_deadline(), None);
        assert_eq!(stack.flows_held(), 0, "flows left");
        assert_eq!(stack.hot_in_use(), 0, "hot blocks left");
        assert_eq!(stack.segments_in_use(), 0, "segments left");
        self.stack.pool().flush();
        assert_eq!(self.depot.stats().outstanding, 0, "buffers left");
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn what_is_for_an_own_address_comes_back_in() {
    for link in [Link::Ip, Link::Ethernet] {
        let [lo, lo_v6] = LOOPBACK;
        for to in [FIRST.into(), SECOND.into(), V6.into(), lo, lo_v6] {
            let mut alone = Alone::new(interface(link));
            let (client, server) = alone.open((to, PORT));
            // From the address that is connected to.
            let from = alone.stack.local_addr(client).unwrap();
            assert_eq!(from.ip(), to);
            assert_eq!(alone.stack.peer_addr(server), Ok(from));
            let bytes = pattern(300_000);
            alone.carry(client, server, &bytes);
            alone.carry(server, client, &bytes);
            let counters = *alone.stack.counters();
            assert_eq!(counters.frames_out, 0);
            assert_eq!(counters.looped, counters.frames_in);
            assert!(counters.looped > 400, "{}", counters.looped);
            assert_eq!((counters.retransmissions, counters.timeouts), (0, 0));
            let drops = counters
                .iter()
                .filter(|(name, _)| name.starts_with("dropped"));
            assert!(drops.map(|(_, count)| count).sum::<u64>() == 0);
            alone.end(&[client, server]);
        }
    }
}

/// No checksum is asked of what nothing can have damaged, and no device fills it in.
#[test]
fn checksums_that_are_left_to_the_device_are_not_missed() {
    for (tx_checksum, rx_checksum) in [(true, false), (true, true), (false, true)] {
        for to in [IpAddr::from(FIRST), V6.into()] {
            let mut alone = Alone::new(Interface {
                tx_checksum,
                rx_checksum,
                ..interface(Link::Ethernet)
            });
            let (client, server) = alone.open((to, PORT));
            alone.carry(client, server, &pattern(50_000));
            alone.end(&[client, server]);
        }
    }
}

#[test]
fn where_nobody_listens_it_is_refused_at_once() {
    for to in [IpAddr::from(FIRST), V6.into()] {
        let mut alone = Alone::new(interface(Link::Ethernet));
        let client = alone.connect((to, 81));
        alone.settle();
        let refused = alone.stack.is_connected(client);
        assert_eq!(refused, Err(Error::ConnectionRefused));
        alone.end(&[client]);
    }
}

/// A device brings the same bytes: nothing may come from there in our name.
#[test]
fn a_device_brings_nothing_from_an_own_address() {
    for link in [Link::Ip, Link::Ethernet] {
        for to in [IpAddr::from(FIRST), V6.into()] {
            let mut alone = Alone::new(interface(link));
            let client = alone.connect((to, PORT));
            assert!(alone.handed_out().is_empty());
            let mut forged = alone.looped();
            assert_eq!(forged.len(), 1);
            forged[0].tag = 0;
            alone.input(forged);
            assert_eq!(alone.stack.half_open(), 0);
            assert_eq!(alone.stack.counters().dropped_address, 1);
            alone.end(&[client]);
        }
    }
}

/// The mark is about one's own: it does not let strangers in, nor anything to strangers.
#[test]
fn a_mark_lets_no_stranger_in() {
    let mut alone = Alone::new(interface(Link::Ip));
    let client = alone.connect((FIRST, PORT));
    assert!(alone.handed_out().is_empty());
    let mut looped = alone.looped();
    // Our addresses change while it waits.
    alone.stack.readdress(Addressing {
        addresses: vec![IpCidr::new(SECOND, 24)],
        mtu: 1_500,
        ..Addressing::default()
    });
    alone.input(core::mem::take(&mut looped));
    assert_eq!(alone.stack.counters().dropped_address, 1);
    let all = alone.stack.end_homeless(alone.now, 0, usize::MAX);
    assert_eq!(all, None);
    alone.end(&[client]);
}

#[test]
fn where_every_address_is_ours_all_leaves() {
    let mut alone = Alone::new(Interface {
        any_local: true,
        ..interface(Link::Ip)
    });
    let client = alone.connect((FIRST, PORT));
    let out = alone.handed_out();
    assert_eq!(out.len(), 1);
    assert!(!alone.stack.has_looped());
    drop(out);
    alone.stack.abort(alone.now, client);
}

#[test]
fn nobody_is_asked_where_an_own_address_is() {
    let mut alone = Alone::new(interface(Link::Ethernet));
    // The address of a neighbor that is known may become ours.
    let now = alone.now;
    alone
        .stack
        .ip()
        .neighbor_is(NEIGHBOR.into(), MacAddr([2; 6]), true);
    let stranger = alone.connect((NEIGHBOR, PORT));
    let out = alone.handed_out();
    assert_eq!((out.len(), out[0].data()[..6].to_vec()), (1, vec![2; 6]));
    drop(out);
    alone.stack.abort(now, stranger);
    alone.stack.close(now, stranger);
    let addresses = [FIRST, NEIGHBOR].map(|addr| IpCidr::new(addr, 24));
    alone.stack.readdress(Addressing {
        addresses: addresses.to_vec(),
        mtu: 1_500,
        ..Addressing::default()
    });
    drop(alone.handed_out());
    let (client, server) = alone.open((NEIGHBOR, PORT));
    alone.carry(client, server, &pattern(5_000));
    alone.end(&[client, server]);
}

/// A bounded number of frames waits to come back in; who sends more waits, loses nothing, and does not keep the stack busy.
#[test]
fn a_long_write_waits_for_what_it_has_sent() {
    let mut alone = Alone::new(interface(Link::Ip));
    let pairs: Vec<_> = (0..60).map(|_| alone.open((FIRST, PORT))).collect();
    let bytes = pattern(14_600);
    for (client, _) in &pairs {
        assert_eq!(
            alone.stack.write(alone.now, *client, &bytes),
            Ok(bytes.len())
        );
    }
    let before = alone.stack.counters().looped;
    assert!(alone.handed_out().is_empty());
    assert_eq!(alone.stack.counters().looped - before, 256);
    assert!(alone.stack.has_looped() && !alone.stack.wants_transmit());
    let looped = alone.looped();
    assert_eq!(looped.len(), SOME);
    assert!(alone.stack.wants_transmit());
    alone.input(looped);
    alone.settle();
    for (client, server) in &pairs {
        let mut got = vec![0; bytes.len()];
        assert_eq!(
            alone.stack.read(alone.now, *server, &mut got),
            Ok(bytes.len())
        );
        assert!(got == bytes);
        alone.stack.close(alone.now, *client);
    }
    assert_eq!(alone.stack.counters().retransmissions, 0);
    let servers: Vec<_> = pairs.into_iter().map(|(_, server)| server).collect();
    alone.end(&servers);
}

/// A device that takes nothing holds up those only who need it.
#[test]
fn a_device_without_room_is_not_waited_for() {
    let mut alone = Alone::new(interface(Link::Ip));
    let strangers: Vec<_> = (0..100).map(|_| alone.connect((NEIGHBOR, PORT))).collect();
    let client = alone.connect((FIRST, PORT));
    let bytes = pattern(20_000);
    let (mut server, mut written, mut got) = (None, 0, Vec::new());
    for _ in 0..100 {
        let mut out = Vec::new();
        alone.stack.transmit(alone.now, &mut out, 0);
        assert!(out.is_empty());
        let looped = alone.looped();
        alone.input(looped);
        server = server.or(alone.stack.accept(alone.listener).ok());
        if let Some((server, _)) = server {
            let sent = alone.stack.write(alone.now, client, &bytes[written..]);
            written += sent.unwrap_or(0);
            let mut into = [0; 4_096];
            while let Ok(read @ 1..) = alone.stack.read(alone.now, server, &mut into) {
                got.extend_from_slice(&into[..read]);
            }
        }
    }
    assert!(got == bytes, "{} bytes", got.len());
    drop(alone.handed_out());
    for conn in strangers.into_iter().chain([client]) {
        alone.stack.abort(alone.now, conn);
        alone.stack.close(alone.now, conn);
    }
    drop(alone.handed_out());
    let (server, _) = server.expect("a connection");
    alone.end(&[server]);
}

/// A connection may end while it waits so.
#[test]
fn who_waits_may_go() {
    let mut alone = Alone::new(interface(Link::Ip));
    let pairs: Vec<_> = (0..60).map(|_| alone.open((V6, PORT))).collect();
    for (client, _) in &pairs {
        alone
            .stack
            .write(alone.now, *client, &pattern(14_000))
            .unwrap();
    }
    assert!(alone.handed_out().is_empty());
    for (client, server) in &pairs {
        alone.stack.abort(alone.now, *client);
        alone.stack.close(alone.now, *client);
        alone.stack.close(alone.now, *server);
    }
    assert_eq!(alone.stack.audit(), Ok(()));
    alone.end(&[]);
}

/// Connections wait for room before they send a SYN; who answers cannot.
#[test]
fn answers_beyond_the_bound_are_dropped_and_counted() {
    let mut alone = Alone::new(interface(Link::Ip));
    let conns: Vec<_> = (0..4_200).map(|_| alone.connect((FIRST, 81))).collect();
    let mut syns = Vec::new();
    while syns.len() < conns.len() {
        assert!(alone.handed_out().is_empty());
        syns.extend(alone.looped());
    }
    let counters = *alone.stack.counters();
    assert_eq!((counters.looped, counters.dropped_loop_full), (4_200, 0));
    alone.input(syns);
    let counters = *alone.stack.counters();
    assert_eq!(
        (counters.looped, counters.dropped_loop_full),
        (4_200 + 4_096, 104)
    );
    // Repeats make it good.
    alone.run_for(Duration::from_secs(10));
    for conn in &conns {
        let refused = alone.stack.is_connected(*conn);
        assert_eq!(refused, Err(Error::ConnectionRefused));
    }
    alone.end(&conns);
}

/// The receiver's bytes are its own: the sender's are acknowledged, given back and used again before they are read.
#[test]
fn what_was_received_does_not_change() {
    let mut alone = Alone::new(interface(Link::Ip));
    let (client, server) = alone.open((FIRST, PORT));
    let bytes = pattern(20_000);
    alone.stack.write(alone.now, client, &bytes).unwrap();
    alone.run_for(Duration::from_secs(1));
    let pool = alone.stack.pool();
    let mut all: Vec<_> = core::iter::from_fn(|| pool.alloc()).collect();
    for buf in &mut all {
        buf.bytes_mut().fill(0xee);
    }
    drop(all);
    let mut got = vec![0; bytes.len()];
    assert_eq!(
        alone.stack.read(alone.now, server, &mut got),
        Ok(bytes.len())
    );
    assert!(got == bytes);
    alone.end(&[client, server]);
}

#[test]
fn what_is_lost_on_the_way_is_sent_again() {
    let mut alone = Alone::new(interface(Link::Ip));
    let (client, server) = alone.open((V6, PORT));
    let bytes = pattern(10_000);
    alone.stack.write(alone.now, client, &bytes).unwrap();
    assert!(alone.handed_out().is_empty());
    drop(alone.looped());
    // Then there is no buffer for a copy.
    let pool = alone.stack.pool();
    let all: Vec<_> = core::iter::from_fn(|| pool.alloc()).collect();
    alone.run_for(Duration::from_secs(2));
    assert!(alone.stack.counters().dropped_no_buffer > 0);
    drop(all);
    alone.run_for(Duration::from_secs(20));
    let mut got = vec![0; bytes.len()];
    assert_eq!(
        alone.stack.read(alone.now, server, &mut got),
        Ok(bytes.len())
    );
    assert!(got == bytes);
    alone.end(&[client, server]);
}

/// From an address and port to the same: it is connected with itself, as TCP has it (RFC 9293 section 3.5), if that is asked for, and not by
/// chance.
#[test]
fn a_connection_with_itself_is_no_accident() {
    let mut alone = Alone::new(interface(Link::Ip));
    let own = SocketAddr::from((FIRST, 55_555));
    let options = SocketOptions::default();
    let only = |flow: &janus_wire::FlowKey| flow.local_port() == own.port();
    let chance = alone
        .stack
        .connect_from(alone.now, FIRST.into(), own, &options, only);
    assert_eq!(chance, Err(Error::NoSourcePort));
    let itself = alone.stack.connect(alone.now, own, own).unwrap();
    alone.settle();
    assert_eq!(alone.stack.is_connected(itself), Ok(true));
    alone.carry(itself, itself, &pattern(5_000));
    alone.end(&[itself]);
}

#[test]
fn datagrams_come_back_in_too() {
    for to in [IpAddr::from(SECOND), V6.into()] {
        let mut alone = Alone::new(interface(Link::Ethernet));
        let any = |port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let asks = alone.stack.udp_bind(any(5_000)).unwrap();
        let answers = alone.stack.udp_bind(any(53)).unwrap();
        // One is longer than a packet.
        for len in [5, 4_000] {
            let (bytes, there) = (pattern(len), SocketAddr::new(to, 53));
            let sent = alone.stack.udp_send(alone.now, asks, Some(there), &bytes);
            assert_eq!(sent, Ok(len));
            alone.settle();
            let got = alone.stack.udp_receive(answers).unwrap();
            assert_eq!(got.peer, SocketAddr::new(to, 5_000));
            assert!(got.bytes() == bytes);
            alone.stack.udp_done(got);
        }
        // The sender hears that there is no socket.
        let nobody = SocketAddr::new(to, 54);
        alone.stack.udp_connect(asks, Some(nobody)).unwrap();
        alone.stack.udp_send(alone.now, asks, None, b"?").unwrap();
        alone.settle();
        let told = alone.stack.udp_take_error(asks);
        assert_eq!(told, Ok(Some(Error::ConnectionRefused)));
        // A sender without end has to wait.
        alone
            .stack
            .udp_connect(asks, Some(SocketAddr::new(to, 53)))
            .unwrap();
        let mut sent = 0;
        while alone.stack.udp_send(alone.now, asks, None, b"!").is_ok() {
            sent += 1;
        }
        assert_eq!(sent, 256);
        alone.settle();
        assert_eq!(alone.stack.udp_is_writable(asks), Ok(true));
        for id in [asks, answers] {
            alone.stack.udp_close(id);
        }
        alone.end(&[]);
    }
}
