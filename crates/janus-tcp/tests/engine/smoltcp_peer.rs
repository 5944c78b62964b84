//! The engine against a TCP nobody here wrote: smoltcp, over a lossy wire in virtual time, as client and as
//! server, data both ways.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use janus_mem::{Depot, Frame, Growth, HEADROOM};
use janus_tcp::{Config, ConnId, Instant, Interface, IpCidr, Local, Secrets, Stack};
use smoltcp::iface::{Config as SmolConfig, Interface as SmolInterface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{self, HardwareAddress};

/// Addresses of one family.
#[derive(Clone, Copy)]
struct Family {
    ours: IpAddr,
    theirs: IpAddr,
    any: IpAddr,
    prefix: u8,
}

const V4: Family = Family {
    ours: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    theirs: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
    any: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    prefix: 24,
};
const V6: Family = Family {
    ours: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    theirs: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
    any: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    prefix: 64,
};
/// Families, seeds, and frames lost of each thousand.
const RUNS: [(Family, u64, u64); 7] = [
    (V4, 1, 0),
    (V4, 2, 10),
    (V4, 3, 50),
    (V4, 4, 100),
    (V6, 1, 0),
    (V6, 2, 10),
    (V6, 3, 50),
];
const BYTES: usize = 1_000_000;

#[derive(Default)]
struct Wire {
    to_smoltcp: VecDeque<Vec<u8>>,
    from_smoltcp: Vec<Vec<u8>>,
}

struct Rx(Vec<u8>);
struct Tx<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _now: SmolInstant) -> Option<(Rx, Tx<'_>)> {
        let packet = self.to_smoltcp.pop_front()?;
        Some((Rx(packet), Tx(&mut self.from_smoltcp)))
    }

    fn transmit(&mut self, _now: SmolInstant) -> Option<Tx<'_>> {
        Some(Tx(&mut self.from_smoltcp))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut caps = DeviceCapabilities::default();
        caps.medium = Medium::Ip;
        caps.max_transmission_unit = 1_500;
        caps
    }
}

struct World {
    now: Instant,
    stack: Stack,
    wire: Wire,
    theirs: SmolInterface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    random: u64,
    loss: u64,
}

impl World {
    fn new(family: Family, seed: u64, loss: u64) -> World {
        let depot = Depot::new(4_096, &Growth::Inline).expect("memory");
        let mut interface = Interface::ip(1_500);
        interface.any_local = false;
        interface.addresses = vec![IpCidr::new(family.ours, family.prefix)];
        let secrets = Secrets::from_seed(seed);
        let stack = Stack::new(
            Config::default(),
            interface,
            secrets,
            depot.pool(),
            &Growth::Inline,
        );
        let mut wire = Wire::default();
        let mut config = SmolConfig::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut theirs = SmolInterface::new(config, &mut wire, SmolInstant::from_millis(1_000));
        theirs.update_ip_addrs(|addrs| {
            addrs
                .push(wire::IpCidr::new(family.theirs.into(), family.prefix))
                .expect("room for an address");
        });
        let mut sockets = SocketSet::new(Vec::new());
        let buffer = || SocketBuffer::new(vec![0; 64 << 10]);
        let socket = sockets.add(Socket::new(buffer(), buffer()));
        let now = Instant::from_millis(1_000);
        World {
            now,
            stack: stack.expect("memory"),
            wire,
            theirs,
            sockets,
            socket,
            random: seed,
            loss,
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn lost(&mut self) -> bool {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % 1_000 < self.loss
    }

    /// As many as are lost are overtaken by the next one.
    fn overtake(&mut self, packets: &mut [Vec<u8>]) {
        for next in 1..packets.len() {
            if self.lost() {
                packets.swap(next - 1, next);
            }
        }
    }

    /// A millisecond, in which each side hears what the other said before.
    fn step(&mut self) {
        let mut out = Vec::new();
        self.stack.transmit(self.now, &mut out, 1_000);
        let mut packets = Vec::new();
        for frame in out {
            if !self.lost() {
                packets.push(frame.data().to_vec());
            }
            if frame.is_lent() {
                self.stack.completed(frame);
            } else {
                self.stack.pool().free(frame.buf);
            }
        }
        self.overtake(&mut packets);
        self.wire.to_smoltcp.extend(packets);
        let now = SmolInstant::from_micros(self.now.as_micros() as i64);
        self.theirs.poll(now, &mut self.wire, &mut self.sockets);
        let mut frames = Vec::new();
        let mut packets = core::mem::take(&mut self.wire.from_smoltcp);
        self.overtake(&mut packets);
        for packet in packets {
            if self.lost() {
                continue;
            }
            let mut buf = self.stack.pool().alloc().expect("a buffer");
            let start = usize::from(HEADROOM);
            buf.bytes_mut()[start..start + packet.len()].copy_from_slice(&packet);
            frames.push(Frame::new(buf, packet.len() as u16));
        }
        self.now = self.now + Duration::from_millis(1);
        self.stack.input(self.now, &mut frames, &mut Local);
        self.stack.advance(self.now);
        while self.stack.pop_ready().is_some() {}
    }

    /// Sends a stream from each side, checks both, and closes from our side first.
    fn exchange(&mut self, conn: ConnId) {
        let stream: Vec<u8> = (0..BYTES).map(|i| (i ^ (i >> 8)) as u8).collect();
        let (mut ours, mut theirs) = (0, 0);
        let (mut got_here, mut got_there) = (Vec::new(), Vec::new());
        let mut chunk = [0; 4_096];
        for _ in 0..2_000_000 {
            if ours < BYTES {
                ours += self
                    .stack
                    .write(self.now, conn, &stream[ours..])
                    .unwrap_or(0);
            }
            while let Ok(n @ 1..) = self.stack.read(self.now, conn, &mut chunk) {
                got_here.extend_from_slice(&chunk[..n]);
            }
            let socket = self.socket();
            if theirs < BYTES && socket.can_send() {
                theirs += socket
                    .send_slice(&stream[theirs..])
                    .expect("an open socket");
            }
            while socket.can_recv() {
                let n = socket.recv_slice(&mut chunk).expect("bytes");
                got_there.extend_from_slice(&chunk[..n]);
            }
            if got_here.len() == BYTES && got_there.len() == BYTES {
                break;
            }
            self.step();
        }
        assert!(
            got_here == stream,
            "what smoltcp sent came as {} of {BYTES} bytes",
            got_here.len()
        );
        assert!(
            got_there == stream,
            "what we sent came as {} of {BYTES} bytes",
            got_there.len()
        );
        self.stack.close(self.now, conn);
        for _ in 0..2_000 {
            self.step();
        }
        self.socket().close();
        for _ in 0..200_000 {
            self.step();
            if self.stack.connections() + self.stack.in_time_wait() == 0 {
                break;
            }
        }
        assert_eq!((self.stack.connections(), self.stack.hot_in_use()), (0, 0));
    }
}

#[test]
fn smoltcp_connects_to_us() {
    for (family, seed, loss) in RUNS {
        let mut world = World::new(family, seed, loss);
        let any = SocketAddr::new(family.any, 80);
        let listener = world.stack.listen(any, 16).expect("a free port");
        let context = world.theirs.context();
        let socket = world.sockets.get_mut::<Socket<'_>>(world.socket);
        socket
            .connect(context, (family.ours, 80), 50_000)
            .expect("a fresh socket");
        let conn = (0..100_000).find_map(|_| {
            world.step();
            world.stack.accept(listener).ok()
        });
        let (conn, peer) = conn.expect("accepted");
        assert_eq!(peer, SocketAddr::new(family.theirs, 50_000));
        world.exchange(conn);
    }
}

#[test]
fn we_connect_to_smoltcp() {
    for (family, seed, loss) in RUNS {
        let mut world = World::new(family, seed, loss);
        world.socket().listen(80).expect("a fresh socket");
        let local = SocketAddr::new(family.any, 50_000);
        let conn = world
            .stack
            .connect(world.now, local, SocketAddr::new(family.theirs, 80));
        let conn = conn.expect("a connection");
        let opened = (0..100_000).any(|_| {
            world.step();
            world.stack.is_connected(conn) == Ok(true)
        });
        assert!(opened);
        world.exchange(conn);
    }
}
