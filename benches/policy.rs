//! What the rules of the polling cores cost a packet: one core in combined placement takes bursts of 64 segments from a device
//! that has them ready, without rules and with each of them, in turn. The figure that counts is the difference.

mod support;

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use janus_csb::{Balancer, Limits, Ring};
use janus_io::park::Parker;
use janus_io::policy::{Policy, Prefix, Rules, SynLimit};
use janus_io::steer::Steerer;
use janus_io::{BURST, Batch, Caps, Port, Queue, combined};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::{FlowNames, Link, MICROSOFT_KEY, SeqNum, Toeplitz, ipv4, proto, tcp};
use support::Scale;
use support::report::Report;

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Segments that the device has, each of another source.
const SEGMENTS: usize = 4096;

/// A device that always has a burst.
struct Ready {
    caps: Caps,
    segments: Vec<[u8; 64]>,
    next: usize,
}

impl Queue for Ready {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        while !out.is_full() {
            let Some(buf) = pool.alloc() else { return };
            let mut frame = Frame::new(buf, 64);
            frame.data_mut().copy_from_slice(&self.segments[self.next]);
            self.next = (self.next + 1) % SEGMENTS;
            let _ = out.push(frame);
        }
    }

    fn tx_burst(&mut self, _: &mut Pool, _: &mut Batch, _: &mut Batch) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A segment to the server, of 64 bytes with its payload.
fn segment(source: Ipv4Addr, flags: tcp::Flags) -> [u8; 64] {
    let mut bytes = [0; 64];
    let header = ipv4::Repr {
        src: source,
        dst: SERVER,
        proto: proto::TCP,
        payload_len: 44,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(&mut bytes, &header);
    let header = tcp::Header {
        src_port: 40_000,
        dst_port: 80,
        seq: SeqNum(1),
        ack: SeqNum(1),
        flags,
        window: 1000,
        urgent: 0,
        header_len: tcp::LEN,
    };
    tcp::emit(
        &mut bytes[ipv4::LEN..],
        &header,
        &tcp::options::Options::NONE,
    );
    bytes
}

/// A core with its port, under rules.
struct Side {
    name: &'static str,
    networks: usize,
    port: Port,
    pool: Pool,
    frames: Vec<Frame>,
    ns: Vec<f64>,
}

impl Side {
    fn new(name: &'static str, rules: Rules, flags: tcp::Flags) -> Side {
        let networks = rules.allow.len() + rules.deny.len();
        let source = |i: usize| {
            Ipv4Addr::from_bits(0x0a00_0000 + (i as u32).wrapping_mul(0x3021) % 0x00ff_ffff)
        };
        let segments = (0..SEGMENTS).map(|i| segment(source(i), flags)).collect();
        let caps = Caps {
            link: Link::Ip,
            mtu: 1500,
            mac: None,
            tx_checksum: true,
            rx_checksum: true,
            tso: false,
            gro: false,
            name: "ready".into(),
        };
        let device = Ready {
            caps,
            segments,
            next: 0,
        };
        let mut balancer = Balancer::new(Ring::uniform(1, 32, 1), Limits::default());
        let begin = Instant::now();
        let clock = Arc::new(move || begin.elapsed().as_nanos() as u64);
        let stage = Policy::new(rules, [1, 2]).stage(1, clock);
        let names = FlowNames::new([1, 2]);
        let steerer = Steerer::new(
            Toeplitz::new(&MICROSOFT_KEY),
            names,
            balancer.io_end(),
            Link::Ip,
        );
        let bell = Parker::new().expect("a bell").unparker();
        let ports = combined(
            vec![Box::new(device)],
            vec![steerer.behind(stage)],
            &[bell],
            64,
        );
        Side {
            name,
            networks,
            port: ports.into_iter().next().expect("one port"),
            pool: Depot::new(1024, &Growth::Inline).expect("buffers").pool(),
            frames: Vec::with_capacity(2 * BURST),
            ns: Vec::new(),
        }
    }

    fn run(&mut self, bursts: usize) {
        let begin = Instant::now();
        for _ in 0..bursts {
            self.port.receive(&mut self.pool, &mut self.frames);
            for frame in self.frames.drain(..) {
                self.pool.free(black_box(frame).buf);
            }
        }
        let packets = (bursts * BURST) as f64;
        self.ns.push(begin.elapsed().as_nanos() as f64 / packets);
    }
}

/// So many networks, some of which hold sources of the segments: all let in.
fn list(count: usize) -> Rules {
    let network = |i: usize| {
        let first = 0x0a00_0000 + (i as u32) * 512;
        Prefix::new(Ipv4Addr::from_bits(first).into(), 24).expect("a network")
    };
    Rules {
        allow: (0..count).map(network).collect(),
        deny: vec!["203.0.113.0/24".parse().expect("a network")],
        ..Rules::default()
    }
}

fn main() {
    let scale = Scale::get();
    let (rounds, bursts) = scale.pick((1, 10), (15, 4_000), (41, 20_000));
    let martians = Rules {
        drop_martians: true,
        own: vec![SERVER.into()],
        ..Rules::default()
    };
    let limited = Rules {
        syn_limit: Some(SynLimit::new(u32::MAX)),
        ..Rules::default()
    };
    let mut sides = vec![
        Side::new("none", Rules::default(), tcp::Flags::ACK),
        Side::new("martians", martians, tcp::Flags::ACK),
        Side::new("list", list(9), tcp::Flags::ACK),
        Side::new("list", list(999), tcp::Flags::ACK),
        Side::new("list", list(99_999), tcp::Flags::ACK),
        Side::new("syn_rate, no SYN", limited.clone(), tcp::Flags::ACK),
        Side::new("syn_rate, all SYNs", limited, tcp::Flags::SYN),
    ];
    for _ in 0..rounds {
        for side in &mut sides {
            side.run(bursts);
        }
    }
    let mut report = Report::new("policy");
    for side in &sides {
        let counters = side.port.counters().expect("it polls by itself");
        assert_eq!(
            counters.delivered.get(),
            counters.received.get(),
            "{}: all are let in",
            side.name
        );
        let params = [
            ("rules", side.name.into()),
            ("networks", side.networks.into()),
        ];
        report.median("ns_per_packet", &side.ns, "ns", &params);
    }
    report.finish();
}
