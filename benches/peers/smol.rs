//! smoltcp 0.14 behind the load generator, used as well as it can be:
//!
//! * Built without what the work does not need: no IPv6, no wakers, no fragments, no logging, and no congestion control (its
//!   default), with this workspace's release profile.
//! * Frames come in without a copy, and are written in place where they are sent from. Checksums are computed and verified by
//!   smoltcp, as its default capabilities ask.
//! * A turn takes a burst in by `poll_ingress_single`, visits the sockets once, and sends by one pass of `poll_egress`; a bulk
//!   sender makes passes until nothing is left. `poll` would add a pass that finds nothing.
//! * All sockets exist from the start, with buffers of 2 KiB for echo: as many as connections, and for short ones as many
//!   again as a burst can begin before those that it ends listen again. A closed socket listens again at once, so the first
//!   sockets of the set, which smoltcp looks at first, are those in use.
//! * A visit to a socket is one look at its state. Wakers would save the look at idle ones, and cost each busy one more: smoltcp
//!   itself looks at all sockets for each packet and each pass.

use crate::behind::{BURST, Echo, buffers};
use crate::support::clock::Clock;
use crate::support::far::packet::{Ends, connection};
use crate::support::stream::{Application, Dir, Server};
use janus_mem::{Frame, Pool};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::{Socket, tcp};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of each buffer of an echo connection.
const ECHO_BUFFER: usize = 2_048;
/// Bytes of each buffer of a stream.
const STREAM_BUFFER: usize = 1 << 18;
/// Frames of streams on their way.
const STREAM_BUFFERS: u32 = 4_096;
/// Bytes of a frame, with some to spare.
const FRAME: usize = 1_536;
/// Ethernet's header and an MTU of 1,500.
const MTU: usize = 1_514;

/// Milliseconds that timestamps tell: smoltcp asks a plain function for them.
static NOW_MS: AtomicU32 = AtomicU32::new(1);

/// The device between smoltcp and the load generator.
struct Wire {
    /// Number of this turn's frames that were received.
    next: usize,
    sent: Vec<([u8; FRAME], usize)>,
    sent_len: usize,
}

struct Rx<'a>(&'a [u8]);

struct Tx<'a> {
    sent: &'a mut Vec<([u8; FRAME], usize)>,
    len: &'a mut usize,
}

impl phy::RxToken for Rx<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(self.0)
    }
}

impl phy::TxToken for Tx<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, work: F) -> R {
        if *self.len == self.sent.len() {
            self.sent.push(([0; FRAME], 0));
        }
        let (bytes, filled) = &mut self.sent[*self.len];
        *self.len += 1;
        *filled = len;
        work(&mut bytes[..len])
    }
}

impl Wire {
    fn tx(&mut self) -> Tx<'_> {
        Tx {
            sent: &mut self.sent,
            len: &mut self.sent_len,
        }
    }
}

/// The device while a turn's frames are lent to it.
struct Lent<'f> {
    wire: &'f mut Wire,
    frames: &'f [Frame],
}

impl Device for Lent<'_> {
    type RxToken<'a>
        = Rx<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Tx<'a>
    where
        Self: 'a;

    #[inline]
    fn receive(&mut self, _: Instant) -> Option<(Rx<'_>, Tx<'_>)> {
        let frame = self.frames.get(self.wire.next)?;
        self.wire.next += 1;
        Some((Rx(frame.data()), self.wire.tx()))
    }

    #[inline]
    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        Some(self.wire.tx())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut caps = DeviceCapabilities::default();
        caps.max_transmission_unit = MTU;
        caps.medium = Medium::Ethernet;
        caps
    }
}

/// An interface with sockets that listen.
struct Smol {
    interface: Interface,
    sockets: SocketSet<'static>,
    wire: Wire,
    port: u16,
    clock: Clock,
}

impl Smol {
    fn new(ends: &Ends, sockets: usize, buffer: usize) -> Self {
        let mut wire = Wire {
            next: 0,
            sent: Vec::new(),
            sent_len: 0,
        };
        let mut config = Config::new(EthernetAddress(ends.server_mac.0).into());
        config.random_seed = 7;
        let mut device = Lent {
            wire: &mut wire,
            frames: &[],
        };
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(IpAddress::Ipv4(*ends.server.ip()), 24);
            addresses.push(own).expect("room for one");
        });
        let routes = interface.routes_mut();
        routes
            .add_default_ipv4_route(ends.gateway_four())
            .expect("room for one");
        let mut set = SocketSet::new(Vec::with_capacity(sockets));
        for _ in 0..sockets {
            let room = || tcp::SocketBuffer::new(vec![0; buffer]);
            let mut socket = tcp::Socket::new(room(), room());
            socket.set_nagle_enabled(false);
            if ends.timestamps {
                socket.set_tsval_generator(Some(|| NOW_MS.load(Ordering::Relaxed)));
            }
            socket.listen(ends.server.port()).expect("a port");
            set.add(socket);
        }
        Self {
            interface,
            sockets: set,
            wire,
            port: ends.server.port(),
            clock: Clock::patient(),
        }
    }

    fn now(&mut self) -> Instant {
        let now = Instant::from_micros(self.clock.turn().as_nanos() as i64 / 1_000);
        NOW_MS.store(now.total_millis() as u32 + 1, Ordering::Relaxed);
        now
    }

    /// Takes a burst in; whether a socket may have changed.
    fn ingress(&mut self, now: Instant, frames: &[Frame]) -> bool {
        self.wire.next = 0;
        let mut device = Lent {
            wire: &mut self.wire,
            frames,
        };
        let mut changed = false;
        loop {
            let single = self
                .interface
                .poll_ingress_single(now, &mut device, &mut self.sockets);
            match single {
                PollIngressSingleResult::None => return changed,
                PollIngressSingleResult::PacketProcessed => {}
                PollIngressSingleResult::SocketStateChanged => changed = true,
            }
        }
    }

    /// Makes one pass over the sockets that sends at most a segment of each; whether any was sent.
    fn egress(&mut self, now: Instant) -> bool {
        let mut device = Lent {
            wire: &mut self.wire,
            frames: &[],
        };
        let passed = self
            .interface
            .poll_egress(now, &mut device, &mut self.sockets);
        passed == PollResult::SocketStateChanged
    }

    fn sent(&self) -> impl Iterator<Item = &[u8]> {
        let sent = &self.wire.sent[..self.wire.sent_len];
        sent.iter().map(|(bytes, len)| &bytes[..*len])
    }
}

/// smoltcp with an application that echoes.
pub struct SmolEcho {
    smol: Smol,
    data: Box<[u8; ECHO_BUFFER]>,
}

impl SmolEcho {
    /// Returns a server with sockets for `held` connections that stay and `window` short ones at a time.
    pub fn new(ends: &Ends, held: u32, window: u32) -> Self {
        let short = window as usize + BURST.min(window as usize);
        let sockets = held as usize + if held == 0 { short } else { 0 };
        Self {
            smol: Smol::new(ends, sockets, ECHO_BUFFER),
            data: Box::new([0; ECHO_BUFFER]),
        }
    }

    /// Gives it another time.
    pub fn set_clock(&mut self, clock: Clock) {
        self.smol.clock = clock;
    }

    fn serve(&mut self) {
        let port = self.smol.port;
        for (_, socket) in self.smol.sockets.iter_mut() {
            let Socket::Tcp(socket) = socket;
            match socket.state() {
                tcp::State::Closed => socket.listen(port).expect("a port"),
                tcp::State::Established | tcp::State::CloseWait => {
                    serve(socket, &mut self.data[..])
                }
                _ => {}
            }
        }
    }
}

/// Echoes what is there; closes when the peer has.
#[inline]
fn serve(socket: &mut tcp::Socket<'_>, data: &mut [u8]) {
    while socket.can_recv() {
        let n = socket.recv_slice(data).unwrap_or(0);
        if socket.send_slice(&data[..n]) != Ok(n) {
            return socket.abort();
        }
    }
    if socket.state() == tcp::State::CloseWait {
        socket.close();
    }
}

impl Echo for SmolEcho {
    fn turn(&mut self, frames: &[Frame]) {
        let now = self.smol.now();
        if self.smol.ingress(now, frames) {
            self.serve();
        }
        self.smol.egress(now);
    }

    fn sent(&self) -> impl Iterator<Item = &[u8]> {
        self.smol.sent()
    }

    fn end_turn(&mut self) {
        self.smol.wire.sent_len = 0;
    }
}

/// smoltcp with an application that reads or writes streams.
pub struct SmolStreams {
    smol: Smol,
    pool: Pool,
    data: Vec<u8>,
}

impl SmolStreams {
    pub fn new(ends: &Ends, conns: usize) -> Self {
        Self {
            smol: Smol::new(ends, conns, STREAM_BUFFER),
            pool: buffers(STREAM_BUFFERS),
            data: vec![0; 1 << 16],
        }
    }

    fn work(&mut self, dir: Dir, app: &mut Application) {
        for (_, socket) in self.smol.sockets.iter_mut() {
            let Socket::Tcp(socket) = socket;
            let Some(peer) = socket.remote_endpoint() else {
                continue;
            };
            let IpAddress::Ipv4(address) = peer.addr;
            let conn = connection(address.to_bits(), peer.port).expect("one of ours") as usize;
            match dir {
                Dir::Rx { lent: false } => {
                    while socket.can_recv() {
                        let n = socket.recv_slice(&mut self.data).expect("open");
                        app.not_counted_compare(conn, [&self.data[..n]]);
                    }
                }
                Dir::Rx { lent: true } => {
                    while socket.can_recv() {
                        let taken = socket.recv(|bytes| {
                            app.not_counted_compare(conn, [&*bytes]);
                            (bytes.len(), ())
                        });
                        taken.expect("open");
                    }
                }
                Dir::Tx => {
                    while socket.can_send() {
                        let n = socket.send_slice(app.to_write(conn)).expect("open");
                        app.wrote(conn, n);
                    }
                }
            }
        }
    }
}

impl Server for SmolStreams {
    fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn turn(
        &mut self,
        _: janus_tcp::Instant,
        work: Option<Dir>,
        frames: &mut Vec<Frame>,
        app: &mut Application,
    ) {
        let now = self.smol.now();
        self.smol.ingress(now, frames);
        if let Some(dir) = work {
            self.work(dir, app);
        }
        while self.smol.egress(now) && self.smol.wire.sent_len < 4 * BURST {}
    }

    fn sent(&self, each: &mut dyn FnMut(&[u8])) {
        self.smol.sent().for_each(each);
    }

    fn end_turn(&mut self) {
        self.smol.wire.sent_len = 0;
    }

    fn accept(&mut self) -> usize {
        let is_open = |socket: &Socket<'_>| {
            let Socket::Tcp(socket) = socket;
            socket.state() == tcp::State::Established
        };
        self.smol.sockets.iter().filter(|(_, s)| is_open(s)).count()
    }
}
