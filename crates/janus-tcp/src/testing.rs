//! Test harness: two stacks and a wire between them that delays and loses, in virtual time.

mod tests;
mod v6;

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use janus_mem::{Depot, Frame, Growth};

use crate::store::keys::ConnSlot;
use crate::{Config, ConnId, Instant, Interface, IpCidr, ListenerId, Local, Secrets, Stack};

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub(crate) const A_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub(crate) const B_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const DELAY: Duration = Duration::from_millis(10);
const PORT: u16 = 80;

pub(crate) struct Host {
    pub(crate) stack: Stack,
    pub(crate) depot: Arc<Depot>,
    /// Frames on their way here, by arrival.
    arriving: VecDeque<(Instant, Vec<u8>)>,
}

pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) a: Host,
    pub(crate) b: Host,
    /// Frames lost of each thousand.
    pub(crate) loss: u64,
    /// Connections are opened over IPv6.
    pub(crate) v6: bool,
    seed: u64,
    pub(crate) listener: ListenerId,
}

fn host(addr: Ipv4Addr, addr_v6: Ipv6Addr, config: &Config, seed: u64) -> Host {
    let depot = Depot::new(4_096, &Growth::Inline).expect("memory");
    let mut interface = Interface::ip(1_500);
    interface.any_local = false;
    interface.addresses = vec![IpCidr::new(addr, 24), IpCidr::new(addr_v6, 64)];
    let secrets = Secrets::from_seed(seed);
    let stack = Stack::new(
        config.clone(),
        interface,
        secrets,
        depot.pool(),
        &Growth::Inline,
    );
    Host {
        stack: stack.expect("memory"),
        depot,
        arriving: VecDeque::new(),
    }
}

impl Pair {
    pub(crate) fn new(config: &Config, seed: u64) -> Pair {
        let mut b = host(B, B_V6, config, seed + 2);
        let local = (Ipv6Addr::UNSPECIFIED, PORT);
        let listener = b.stack.listen(local, 128).expect("a free port");
        let now = Instant::from_millis(1_000);
        Pair {
            now,
            a: host(A, A_V6, config, seed + 1),
            b,
            loss: 0,
            v6: false,
            seed,
            listener,
        }
    }

    pub(crate) fn connect(&mut self, port: u16) -> ConnId {
        let (any, there) = match self.v6 {
            false => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(B)),
            true => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(B_V6)),
        };
        let local = SocketAddr::new(any, port);
        let remote = SocketAddr::new(there, PORT);
        self.a
            .stack
            .connect(self.now, local, remote)
            .expect("a connection")
    }

    pub(crate) fn open(&mut self, port: u16) -> (ConnId, ConnId) {
        let a = self.connect(port);
        let mut b = None;
        for _ in 0..10_000 {
            self.step();
            b = b.or(self.b.stack.accept(self.listener).ok());
            if let (Ok(true), Some((b, _))) = (self.a.stack.is_connected(a), b) {
                return (a, b);
            }
        }
        panic!("no connection");
    }

    fn chance(&mut self, of_a_thousand: u64) -> bool {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % 1_000 < of_a_thousand
    }

    fn next_event(&self) -> Option<Instant> {
        let events = [
            self.a.arriving.front().map(|f| f.0),
            self.b.arriving.front().map(|f| f.0),
            self.a.stack.next_deadline(),
            self.b.stack.next_deadline(),
        ];
        events.into_iter().flatten().min()
    }

    /// Lets everything happen that happens within `time`.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        self.flush();
        while self.next_event().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
    }

    /// The next moment at which anything happens, and what both have to say to it.
    pub(crate) fn step(&mut self) {
        self.deliver();
        self.flush();
    }

    /// Sends what both have to send, then lets arrive what arrives next; the answers have still to be made.
    pub(crate) fn deliver(&mut self) {
        self.flush();
        let Some(next) = self.next_event() else {
            return;
        };
        self.now = self.now.max(next);
        for host in [&mut self.a, &mut self.b] {
            let mut frames = Vec::new();
            while host.arriving.front().is_some_and(|f| f.0 <= self.now) {
                let (_, bytes) = host.arriving.pop_front().expect("looked at");
                let mut buf = host.stack.pool().alloc().expect("a buffer");
                buf.bytes_mut()[128..128 + bytes.len()].copy_from_slice(&bytes);
                frames.push(Frame::new(buf, bytes.len() as u16));
            }
            host.stack.input(self.now, &mut frames, &mut Local);
            host.stack.advance(self.now);
            if self.loss > 0 {
                host.stack.check_recovery();
            }
            assert_eq!(host.stack.audit(), Ok(()));
            while host.stack.pop_ready().is_some() {}
        }
    }

    pub(crate) fn steps(&mut self, n: usize) {
        for _ in 0..n {
            self.step();
        }
    }

    /// What is on its way to `a`, for a test to change.
    pub(crate) fn under_way_to_a(&mut self) -> impl Iterator<Item = &mut Vec<u8>> {
        self.flush();
        self.a.arriving.iter_mut().map(|(_, bytes)| bytes)
    }

    fn flush(&mut self) {
        for from_a in [true, false] {
            let mut out = Vec::new();
            let host = if from_a { &mut self.a } else { &mut self.b };
            host.stack.transmit(self.now, &mut out, 10_000);
            for frame in out {
                let bytes = frame.data().to_vec();
                let host = if from_a { &mut self.a } else { &mut self.b };
                host.stack.ip().recycle(frame);
                let lost = self.chance(self.loss);
                let peer = if from_a { &mut self.b } else { &mut self.a };
                if !lost {
                    peer.arriving.push_back((self.now + DELAY, bytes));
                }
            }
        }
    }

    /// Runs until nothing is left to happen, and asserts that nothing is left behind.
    pub(crate) fn assert_clean(&mut self) {
        for _ in 0..100_000 {
            let deadlines = self
                .a
                .stack
                .next_deadline()
                .or(self.b.stack.next_deadline());
            let arriving = self.a.arriving.is_empty() && self.b.arriving.is_empty();
            let quiet = !self.a.stack.wants_transmit() && !self.b.stack.wants_transmit();
            if deadlines.is_none() && arriving && quiet {
                break;
            }
            self.step();
        }
        for host in [&mut self.a, &mut self.b] {
            let stack = &host.stack;
            assert_eq!(stack.connections(), 0, "connections left");
            assert_eq!(stack.hot_in_use(), 0, "hot blocks left");
            assert_eq!(stack.segments_in_use(), 0, "segments left");
            assert_eq!((stack.half_open(), stack.in_time_wait()), (0, 0));
            host.stack.pool().flush();
            assert_eq!(host.depot.stats().outstanding, 0, "buffers left");
        }
    }
}

/// The record of a connection.
pub(crate) fn slot(id: ConnId) -> ConnSlot {
    id.slot().expect("it names one")
}
