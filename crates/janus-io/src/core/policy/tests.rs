use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;
use crate::backend::wire::{self, Config};
use crate::batch::BURST;
use crate::core::port::{Port, combined, split};
use crate::park::Parker;
use crate::queue::{Backend, Batch, Queue};
use crate::testing::{CLIENT, SERVER, arp, balancer, frame, pool, request, segment, steerer_of};
use crate::{IoCore, IoCounters};
use janus_csb::Balancer;
use janus_mem::{Frame, Pool};
use janus_wire::arp::Op;
use janus_wire::classify::Icmp;
use janus_wire::{Link, ipv6, proto};

const LINK: Link = Link::Ethernet;

fn prefixes(text: &str) -> Vec<Prefix> {
    text.split_whitespace()
        .map(|prefix| prefix.parse().unwrap())
        .collect()
}

fn lets_in(lists: &Lists, source: IpAddr) -> bool {
    match source {
        IpAddr::V4(source) => lists.lets_in_v4(source),
        IpAddr::V6(source) => lists.lets_in_v6(source),
    }
}

fn lists(allow: &str, deny: &str) -> Lists {
    Lists::new(&prefixes(allow), &prefixes(deny)).unwrap()
}

#[test]
fn prefixes_are_read_and_written() {
    for good in [
        "0.0.0.0/0",
        "192.0.2.0/24",
        "192.0.2.7/32",
        "::/0",
        "2001:db8::/32",
        "::1/128",
    ] {
        assert_eq!(good.parse::<Prefix>().unwrap().to_string(), good);
    }
    assert_eq!(
        "192.0.2.7".parse::<Prefix>().unwrap().to_string(),
        "192.0.2.7/32"
    );
    assert_eq!(" 2001:db8::7 ".parse::<Prefix>().unwrap().bits(), 128);
    for wrong in [
        "",
        "/",
        "/8",
        "10.0.0.0/",
        "10.0.0.0/33",
        "::/129",
        "10/8",
        "10.0.0.0/-1",
        "example",
    ] {
        let error = wrong.parse::<Prefix>().unwrap_err().to_string();
        assert!(error.contains("is not a network like"), "{wrong}: {error}");
    }
    let error = "10.1.2.3/8".parse::<Prefix>().unwrap_err().to_string();
    assert!(error.contains("`10.0.0.0/8` or `10.1.2.3`"), "{error}");
    let error = "2001:db8::1/32".parse::<Prefix>().unwrap_err().to_string();
    assert!(
        error.contains("`2001:db8::/32` or `2001:db8::1`"),
        "{error}"
    );
    let alone = Prefix::from(Ipv4Addr::new(192, 0, 2, 7));
    assert_eq!("192.0.2.7".parse(), Ok(alone));
    assert_eq!(Prefix::new(Ipv4Addr::new(10, 0, 0, 1).into(), 8), None);
    assert_eq!(Prefix::new(Ipv4Addr::new(10, 0, 0, 0).into(), 64), None);
}

#[test]
fn the_longest_prefix_decides() {
    let lets_in = |lists: &Lists, text: &str| lets_in(lists, text.parse().unwrap());
    let both = lists(
        "10.1.0.0/16 10.1.2.3",
        "10.0.0.0/8 10.1.2.0/24 2001:db8::/32",
    );
    for (address, expected) in [
        ("9.255.255.255", true),
        ("10.0.0.0", false),
        ("10.0.255.255", false),
        ("10.1.0.0", true),
        ("10.1.2.2", false),
        ("10.1.2.3", true),
        ("10.1.2.4", false),
        ("10.1.3.0", true),
        ("10.2.0.0", false),
        ("10.255.255.255", false),
        ("11.0.0.0", true),
        ("2001:db7:ffff::", true),
        ("2001:db8::", false),
        ("2001:db9::", true),
        ("::", true),
    ] {
        assert_eq!(lets_in(&both, address), expected, "{address}");
    }
    // Only an allow list: nobody else, of neither family.
    let only = lists("192.0.2.0/24", "");
    assert!(lets_in(&only, "192.0.2.255"));
    assert!(!lets_in(&only, "192.0.3.0") && !lets_in(&only, "2001:db8::1"));
    // Of equal prefixes the denial counts, in whatever order.
    assert!(!lets_in(&lists("10.0.0.0/8", "10.0.0.0/8"), "10.0.0.1"));
    let all = lists("", "0.0.0.0/0 ::/0");
    assert!(!lets_in(&all, "255.255.255.255") && !lets_in(&all, "ffff::"));
    assert!(Lists::new(&[], &[]).is_none());
}

/// What the lists mean, said once more without any cleverness.
fn by_hand(allow: &[Prefix], deny: &[Prefix], source: IpAddr) -> bool {
    let longest = |list: &[Prefix]| {
        let holding = list.iter().filter(|prefix| prefix.contains(source));
        holding
            .map(|prefix| i32::from(prefix.bits()))
            .max()
            .unwrap_or(-1)
    };
    match (longest(allow), longest(deny)) {
        (-1, -1) => !deny.is_empty(),
        (allowed, denied) => allowed > denied,
    }
}

/// Prefixes in few places, so that they hold each other often.
fn any_prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (0..8_u32, 0..=32_u8, any::<bool>()).prop_map(|(place, bits, low)| {
        let address = (place << 29) | (u32::from(low) * 0x0103_0307);
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        Prefix::new(Ipv4Addr::from_bits(address & mask).into(), bits).unwrap()
    });
    let v6 = (0..8_u128, 0..=128_u8, any::<bool>()).prop_map(|(place, bits, low)| {
        let address = (place << 125) | (u128::from(low) * 0x0103_0307_0000_0000_0000_0001);
        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        Prefix::new(Ipv6Addr::from_bits(address & mask).into(), bits).unwrap()
    });
    prop_oneof![v4, v6]
}

proptest! {
    #[test]
    fn the_search_says_what_the_lists_say(
        allow in prop::collection::vec(any_prefix(), 0..12),
        deny in prop::collection::vec(any_prefix(), 0..12),
        v4 in any::<u32>(),
        v6 in any::<u128>(),
    ) {
        let Some(lists) = Lists::new(&allow, &deny) else { return Ok(()) };
        let mut asked: Vec<IpAddr> = vec![Ipv4Addr::from_bits(v4).into(), Ipv6Addr::from_bits(v6).into()];
        // The ends of each prefix and what is beside them.
        for prefix in allow.iter().chain(&deny) {
            match prefix.address() {
                IpAddr::V4(first) => {
                    let rest = u32::MAX.checked_shr(prefix.bits().into()).unwrap_or(0);
                    let (first, last) = (first.to_bits(), first.to_bits() | rest);
                    asked.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)]
                        .map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits))));
                }
                IpAddr::V6(first) => {
                    let rest = u128::MAX.checked_shr(prefix.bits().into()).unwrap_or(0);
                    let (first, last) = (first.to_bits(), first.to_bits() | rest);
                    asked.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)]
                        .map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits))));
                }
            }
        }
        for source in asked {
            prop_assert_eq!(lets_in(&lists, source), by_hand(&allow, &deny, source), "{}", source);
        }
    }
}

#[test]
fn martians_are_told_by_their_addresses() {
    let own = ["192.0.2.1", "2001:db8::1"].map(|own| own.parse().unwrap());
    let martians = MartianTable::new(&own);
    let martian = |from: &str, to: &str, reach| match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => martians.is_martian_v4(from, to, reach),
        (IpAddr::V6(from), IpAddr::V6(to)) => martians.is_martian_v6(from, to, reach),
        _ => panic!("one family"),
    };
    let (host, host_v6) = ("192.0.2.1", "2001:db8::1");
    for from in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.255.255.255",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        host,
    ] {
        assert!(
            martian(from, host, Reach::Single) && martian(from, host, Reach::Any),
            "{from}"
        );
    }
    for from in [
        "1.0.0.1",
        "10.0.0.1",
        "126.0.0.1",
        "128.0.0.1",
        "169.254.0.1",
        "192.0.2.2",
        "223.255.255.1",
    ] {
        assert!(!martian(from, host, Reach::Single), "{from}");
    }
    for from in [
        "::",
        "::1",
        "ff02::1",
        "::ffff:192.0.2.7",
        "::192.0.2.7",
        host_v6,
    ] {
        assert!(martian(from, host_v6, Reach::Any), "{from}");
    }
    for from in ["2001:db8::2", "fe80::1", "fd00::1", "64:ff9b::c000:207"] {
        assert!(!martian(from, host_v6, Reach::Single), "{from}");
    }
    // Destinations: groups and the broadcast are for others than TCP.
    for (from, to) in [
        ("192.0.2.7", "224.0.0.1"),
        ("192.0.2.7", "255.255.255.255"),
        ("2001:db8::7", "ff02::1"),
    ] {
        assert!(
            martian(from, to, Reach::Single) && !martian(from, to, Reach::Any),
            "{to}"
        );
    }
    for (from, to) in [
        ("192.0.2.7", "127.0.0.1"),
        ("192.0.2.7", "0.0.0.0"),
        ("192.0.2.7", "241.0.0.1"),
        ("2001:db8::7", "::1"),
        ("2001:db8::7", "::"),
        ("2001:db8::7", "::ffff:192.0.2.1"),
    ] {
        assert!(martian(from, to, Reach::Any), "{to}");
    }
}

/// A clock that tests move.
fn clock() -> (Arc<AtomicU64>, Arc<ClockFn>) {
    let time = Arc::new(AtomicU64::new(1 << 30));
    let read = time.clone();
    (time, Arc::new(move || read.load(Ordering::Relaxed)))
}

/// Cores that poll the wire, and for how many shards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polled {
    /// A core of its own, for two.
    Dedicated,
    /// Each of two for both.
    Each,
    /// One that is alone: it steers nothing.
    Alone,
}

/// Shards over a wire behind a policy, and the far end.
struct Guarded {
    _balancer: Balancer,
    ports: Vec<(Port, Pool)>,
    io_core: Option<IoCore>,
    far: Box<dyn Queue>,
    pool: Pool,
}

impl Guarded {
    fn new(policy: &Policy, clock: &Arc<ClockFn>, polled: Polled) -> Guarded {
        let queues = if polled == Polled::Each { 2 } else { 1 };
        let shards = if polled == Polled::Alone { 1 } else { 2 };
        let config = Config {
            link: LINK,
            queues: [queues, 1],
            ..Config::default()
        };
        let (near, far) = wire::pair(config).unwrap();
        let near = Box::new(near).open(queues).unwrap();
        let mut balancer = balancer(shards);
        let steerers: Vec<_> = (0..queues)
            .map(|_| steerer_of(&mut balancer, LINK).behind(policy.stage(1, clock.clone())))
            .collect();
        let bells: Vec<_> = (0..shards)
            .map(|_| Parker::new().unwrap().unparker())
            .collect();
        let (io_core, ports) = if polled == Polled::Dedicated {
            let (mut cores, ports) = split(near, vec![pool(1024)], steerers, &bells, 256).unwrap();
            (cores.pop(), ports)
        } else {
            (None, combined(near, steerers, &bells, 256))
        };
        Guarded {
            _balancer: balancer,
            ports: ports.into_iter().map(|port| (port, pool(1024))).collect(),
            io_core,
            far: Box::new(far).open(1).unwrap().remove(0),
            pool: pool(1024),
        }
    }

    /// Sends frames from the far end; how many came through to shards.
    fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        let (mut batch, mut done) = (Batch::new(), Batch::new());
        for burst in frames.chunks(BURST) {
            batch.extend(burst.iter().map(|bytes| frame(&mut self.pool, bytes)));
            self.far.tx_burst(&mut self.pool, &mut batch, &mut done);
            assert!(batch.is_empty());
        }
        let mut got: Vec<Frame> = Vec::new();
        for _ in 0..20 {
            if let Some(core) = &mut self.io_core {
                core.turn();
            }
            for (port, pool) in &mut self.ports {
                port.receive(pool, &mut got);
            }
        }
        let came = got.len();
        for frame in got {
            self.pool.free(frame.buf);
        }
        came
    }

    fn sum(&self, of: impl Fn(&IoCounters) -> u64) -> u64 {
        let own = self.ports.iter().filter_map(|(port, _)| port.counters());
        let io = self.io_core.iter().map(IoCore::counters);
        own.chain(io).map(|counters| of(counters)).sum()
    }
}

fn syn(from: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut bytes = segment(LINK, (from, port), (SERVER, 80), 1, 0);
    bytes[14 + 20 + 13] = Flags::SYN.0;
    bytes
}

fn however_polled(test: impl Fn(Polled)) {
    [Polled::Dedicated, Polled::Each, Polled::Alone]
        .into_iter()
        .for_each(test);
}

#[test]
fn every_refusal_is_counted_by_its_cause() {
    however_polled(|polled| {
        let rules = Rules {
            drop_martians: true,
            own: vec![SERVER.into()],
            deny: prefixes("203.0.113.0/24"),
            syn_limit: Some(SynLimit::new(3)),
            ..Rules::default()
        };
        let (time, clock) = clock();
        let mut guarded = Guarded::new(&Policy::new(rules, [1, 2]), &clock, polled);
        let from = |src: [u8; 4]| segment(LINK, (src.into(), 9), (SERVER, 80), 1, 0);
        assert_eq!(
            guarded.send(&[from([127, 0, 0, 1]), from(SERVER.octets())]),
            0
        );
        assert_eq!(guarded.sum(|c| c.dropped_martian.get()), 2);
        assert_eq!(
            guarded.send(&[from([203, 0, 113, 9]), syn([203, 0, 113, 8].into(), 7)]),
            0
        );
        assert_eq!(guarded.sum(|c| c.dropped_denied.get()), 2);
        // What goes on and what is answered is not what opens.
        let all: Vec<_> = (0..10).map(|port| request(LINK, 1000 + port, 1)).collect();
        assert_eq!(guarded.send(&all), 10);
        if polled != Polled::Each {
            let syns: Vec<_> = (0..10).map(|port| syn(CLIENT, 1000 + port)).collect();
            assert_eq!(guarded.send(&syns), 3);
            assert_eq!(guarded.sum(|c| c.dropped_syn_rate.get()), 7);
            time.fetch_add(1_000_000_000, Ordering::Relaxed);
            assert_eq!(guarded.send(&syns), 3);
        }
        // The link's own traffic is let in whatever the lists say.
        // Of a shard that is alone the stack says what is wrong with a frame.
        let (everyone, malformed) = match polled {
            Polled::Alone => (1, 1),
            _ => (2, 0),
        };
        assert_eq!(guarded.send(&[arp(Op::Request)]), everyone);
        assert_eq!(guarded.send(&[vec![0; 5]]), malformed);
        let dropped = guarded.sum(|c| c.dropped_malformed.get());
        assert_eq!(dropped, 1 - malformed as u64);
        let lost = guarded.sum(|c| c.dropped_full.get() + c.dropped_unknown.get());
        assert_eq!(lost, 0);
    });
}

/// Rules change while packets come; each core hears of it before its next burst.
#[test]
fn rules_can_change_under_way() {
    however_polled(|polled| {
        let (_, clock) = clock();
        let policy = Policy::new(Rules::default(), [1, 2]);
        let mut guarded = Guarded::new(&policy, &clock, polled);
        let all: Vec<_> = (0..20).map(|port| request(LINK, 1000 + port, 1)).collect();
        assert_eq!(guarded.send(&all), 20);
        let closed = Rules {
            allow: prefixes("10.0.0.0/8"),
            ..Rules::default()
        };
        policy.set(closed.clone());
        assert_eq!(policy.rules(), closed);
        assert_eq!(guarded.send(&all), 0);
        assert_eq!(guarded.sum(|c| c.dropped_denied.get()), 20);
        policy.set(Rules::default());
        assert_eq!(guarded.send(&all), 20);
    });
}

/// A change of the lists forgives nobody the SYNs of the last second.
#[test]
fn rates_outlive_a_change_of_the_lists() {
    let limit = Some(SynLimit::new(2));
    let policy = Policy::new(
        Rules {
            syn_limit: limit,
            ..Rules::default()
        },
        [1, 2],
    );
    let (_, clock) = clock();
    let mut guarded = Guarded::new(&policy, &clock, Polled::Dedicated);
    let syns: Vec<_> = (0..5).map(|port| syn(CLIENT, 1000 + port)).collect();
    assert_eq!(guarded.send(&syns), 2);
    let deny = prefixes("203.0.113.0/24");
    policy.set(Rules {
        syn_limit: limit,
        deny,
        ..Rules::default()
    });
    assert_eq!(guarded.send(&syns), 0);
    policy.set(Rules {
        syn_limit: Some(SynLimit::new(4)),
        ..Rules::default()
    });
    assert_eq!(guarded.send(&syns), 4);
}

/// A neighbour solicitation from an address that is not let in, and a ping from there.
#[test]
fn neighbors_are_heard_though_denied() {
    let rules = Rules {
        drop_martians: true,
        deny: prefixes("::/0"),
        ..Rules::default()
    };
    let (_, clock) = clock();
    let mut stage = Policy::new(rules, [1, 2]).stage(1, clock);
    let mut watched = stage.burst();
    let (src, dst) = (
        "fe80::7".parse().unwrap(),
        "ff02::1:ff00:1".parse().unwrap(),
    );
    let icmp = |neighbor| {
        Class::Icmp6(Icmp {
            l3_offset: 0,
            src,
            dst,
            neighbor,
            quoted: None,
            socket: None,
        })
    };
    assert_eq!(watched.refuses(&icmp(true)), None);
    assert_eq!(watched.refuses(&icmp(false)), Some(Cause::Denied));
    // And by its bytes, as the steering sees it.
    let mut bytes = vec![0; ipv6::LEN + 24];
    bytes[0] = 0x60;
    bytes[5] = 24;
    bytes[6] = proto::ICMPV6;
    bytes[7] = 255;
    bytes[8..24].copy_from_slice(&src.octets());
    bytes[24..40].copy_from_slice(&dst.octets());
    bytes[40] = 135; // neighbor solicitation
    let class = janus_wire::classify(&bytes, Link::Ip);
    assert_eq!(watched.refuses(&class), None, "{class:?}");
}

proptest! {
    /// Whatever comes: no panic, and without rules nothing is refused.
    #[test]
    fn any_bytes_are_judged(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        version in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()],
    ) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = version;
        }
        let class = janus_wire::classify(&bytes, Link::Ip);
        prop_assert_eq!(Open.refuses(&class), None);
        let (_, clock) = clock();
        let rules = Rules {
            drop_martians: true,
            allow: prefixes("10.0.0.0/8 ::/1"),
            deny: prefixes("10.1.0.0/16 8000::/1"),
            syn_limit: Some(SynLimit::new(1)),
            ..Rules::default()
        };
        let mut stage = Policy::new(rules, [1, 2]).stage(1, clock);
        let _ = stage.burst().refuses(&class);
    }
}
