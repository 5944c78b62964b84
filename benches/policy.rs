//! What the rules of the polling cores cost a packet: one core in combined placement takes bursts of 64 segments from a device
//! that has them ready, with no stage at all, with one that has no rules, and with each of them, in turn. The figure that counts is
//! the difference; `over_no_stage` is the median of the rounds' ratios. Instructions are asked of valgrind, where it is installed
//! (`policy callgrind 4 1 1100`: family, side, bursts).

mod support;

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use janus_csb::{Balancer, Limits, Ring};
use janus_io::park::Parker;
use janus_io::policy::{Policy, Prefix, Rules, SynLimit};
use janus_io::steer::Steerer;
use janus_io::{BURST, Batch, Caps, Port, Queue, combined};
use janus_mem::{Depot, Frame, Growth, Pool};
use janus_wire::{FlowNames, Link, MICROSOFT_KEY, SeqNum, Toeplitz, ipv4, ipv6, proto, tcp};
use support::report::Report;
use support::{Scale, valgrind};

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
/// Bursts of a run under valgrind: the difference of the two is counted, so that the start is not.
const COUNTED: [usize; 2] = [100, 1_100];
/// Segments that the device has, each of another source.
const SEGMENTS: usize = 4096;

/// Frames of a burst: behind a full one of SYNs the core would look for others, and drop SYNs for them.
const AT_ONCE: usize = BURST - 1;

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
        while !out.is_full() && out.len() < AT_ONCE {
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
fn segment(source: IpAddr, flags: tcp::Flags) -> [u8; 64] {
    let mut bytes = [0; 64];
    let at = match source {
        IpAddr::V4(src) => ipv4::emit(
            &mut bytes,
            &ipv4::Repr {
                src,
                dst: SERVER,
                proto: proto::TCP,
                payload_len: 44,
                ttl: 64,
                tos: 0,
                id: 0,
                dont_fragment: true,
            },
        ),
        IpAddr::V6(src) => ipv6::emit(
            &mut bytes,
            &ipv6::Repr {
                src,
                dst: SERVER_V6,
                proto: proto::TCP,
                payload_len: 24,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
            },
        ),
    };
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
    tcp::emit(&mut bytes[at..], &header, &tcp::options::Options::NONE);
    bytes
}

/// The family of a side's segments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn number(self) -> usize {
        match self {
            Family::V4 => 4,
            Family::V6 => 6,
        }
    }

    /// One of many sources, spread over the networks of [`list`] and between them.
    fn source(self, i: usize) -> IpAddr {
        let place = (i as u32).wrapping_mul(0x3021) % 0x00ff_ffff;
        match self {
            Family::V4 => Ipv4Addr::from_bits(0x0a00_0000 + place).into(),
            Family::V6 => {
                Ipv6Addr::from_bits(0x2001_0db9 << 96 | u128::from(place) << 64 | 7).into()
            }
        }
    }

    /// Networks, every second one of [`source`](Self::source)'s.
    fn network(self, i: usize) -> Prefix {
        let place = i as u32 * 512;
        let network = match self {
            Family::V4 => Prefix::new(Ipv4Addr::from_bits(0x0a00_0000 + place).into(), 24),
            Family::V6 => {
                let bits = 0x2001_0db9 << 96 | u128::from(place) << 64;
                Prefix::new(Ipv6Addr::from_bits(bits).into(), 56)
            }
        };
        network.expect("a network")
    }
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
    /// Behind a stage with these rules, or behind none.
    fn new(name: &'static str, family: Family, rules: Option<Rules>, flags: tcp::Flags) -> Side {
        let networks = rules
            .iter()
            .map(|rules| rules.allow.len() + rules.deny.len())
            .sum();
        let segments = (0..SEGMENTS)
            .map(|i| segment(family.source(i), flags))
            .collect();
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
        let names = FlowNames::new([1, 2]);
        let key = Toeplitz::new(&MICROSOFT_KEY);
        let steerer = Steerer::new(key, names, balancer.io_end(), Link::Ip);
        let steerer = match rules {
            Some(rules) => steerer.behind(Policy::new(rules, [1, 2]).stage(1, clock)),
            None => steerer,
        };
        let bell = Parker::new().expect("a bell").unparker();
        let ports = combined(vec![Box::new(device)], vec![steerer], &[bell], 64);
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
        let packets = (bursts * AT_ONCE) as f64;
        self.ns.push(begin.elapsed().as_nanos() as f64 / packets);
    }
}

/// So many networks, some of which hold sources of the segments: all let in.
fn list(family: Family, count: usize) -> Rules {
    Rules {
        allow: (0..count).map(|i| family.network(i)).collect(),
        deny: vec!["203.0.113.0/24".parse().expect("a network")],
        ..Rules::default()
    }
}

/// What is compared, for one family: the side at this place of the list. The first is what the others are held against.
fn side(family: Family, at: usize) -> Option<Side> {
    let martians = || Rules {
        drop_martians: true,
        own: vec![SERVER.into(), SERVER_V6.into()],
        ..Rules::default()
    };
    let limited = || Rules {
        syn_limit: Some(SynLimit::new(u32::MAX)),
        ..Rules::default()
    };
    let (acks, syns) = (tcp::Flags::ACK, tcp::Flags::SYN);
    let (name, rules, flags) = match at {
        0 => ("no stage", None, acks),
        1 => ("none", Some(Rules::default()), acks),
        2 => ("martians", Some(martians()), acks),
        3 => ("list", Some(list(family, 9)), acks),
        4 => ("list", Some(list(family, 999)), acks),
        5 => ("list", Some(list(family, 99_999)), acks),
        6 => ("syn_rate, no SYN", Some(limited()), acks),
        7 => ("syn_rate, all SYNs", Some(limited()), syns),
        _ => return None,
    };
    Some(Side::new(name, family, rules, flags))
}

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "callgrind");
    if arguments.next().is_some() {
        return under_valgrind(arguments);
    }
    let scale = Scale::get();
    let (rounds, bursts) = scale.pick((1, 10), (15, 2_000), (41, 20_000));
    let mut report = Report::new("policy");
    for family in [Family::V4, Family::V6] {
        let mut sides: Vec<Side> = (0..).map_while(|at| side(family, at)).collect();
        for round in 0..rounds {
            let count = sides.len();
            (0..count).for_each(|i| sides[(round + i) % count].run(bursts));
        }
        for (at, side) in sides.iter().enumerate() {
            let counters = side.port.counters().expect("it polls by itself");
            let (delivered, received) = (counters.delivered.get(), counters.received.get());
            assert_eq!(delivered, received, "{}: all are let in", side.name);
            let params = [
                ("rules", side.name.into()),
                ("networks", side.networks.into()),
                ("ip", family.number().into()),
            ];
            report.median("ns_per_packet", &side.ns, "ns", &params);
            let over = side.ns.iter().zip(&sides[0].ns);
            let over: Vec<f64> = over.map(|(with, without)| with / without).collect();
            report.median("over_no_stage", &over, "ratio", &params);
            // The quick run counts only what a core without rules pays.
            if scale.pick(false, at < 2, true)
                && let Some(counted) = instructions(family, at)
            {
                report.row("instructions_per_packet", counted, "count", &params);
            }
        }
    }
    report.finish();
}

/// Runs one side and ends; what valgrind counts.
fn under_valgrind(mut arguments: impl Iterator<Item = String>) {
    let mut number = || arguments.next().and_then(|text| text.parse().ok());
    let [ip, at, bursts] = [(); 3].map(|()| number().expect("family, side, bursts"));
    let family = if ip == 4 { Family::V4 } else { Family::V6 };
    side(family, at).expect("a side").run(bursts);
}

/// Instructions of one more packet of a side.
fn instructions(family: Family, at: usize) -> Option<f64> {
    let counted = COUNTED.map(|bursts| {
        let numbers = [family.number(), at, bursts].map(|number| number.to_string());
        let [ip, at, bursts] = numbers;
        let arguments = ["callgrind".into(), ip, at, bursts];
        valgrind::instructions(&arguments).map(|(counted, _)| counted)
    });
    let [Some(few), Some(many)] = counted else {
        return None;
    };
    let packets = (COUNTED[1] - COUNTED[0]) * AT_ONCE;
    Some((many - few) as f64 / packets as f64)
}
