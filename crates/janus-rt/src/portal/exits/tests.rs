//! Frames that no honest shard sends, and honest ones at the worst moment, given to a carrier that the test moves by hand.
//! Whatever comes, nothing panics, no buffer is lost, no kernel connection stays behind, and the tables agree with each other.

mod scene;

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};

use janus_wire::tcp::Flags;
use janus_wire::{Link, classify, icmpv4, icmpv6, ipv4};

use super::*;
use crate::lockstep::rng::Rng;
use crate::portal::carrier::Door;
use scene::*;

#[test]
fn a_syn_that_comes_thrice_opens_once_and_the_last_counts() {
    let mut scene = Scene::new("loopback");
    let (listener, to) = listener();
    let thrice = [7, 1_000_000, 2_000_000].map(|isn| syn(shard(4000), to, isn));
    let answers = scene.give_for(1, &thrice);
    let [answer] = &answers[..] else {
        panic!("{} answers", answers.len());
    };
    let (flags, isn, ack) = told(answer);
    assert_eq!((flags, ack), (Flags::SYN | Flags::ACK, 2_000_001));
    let _kernel = accept(&listener);
    // Another one now is an old duplicate to the inner stack; it opens nothing.
    scene.give(&[syn(shard(4000), to, 3_000_000)]);
    scene.give(&[segment(
        shard(4000),
        to,
        Flags::ACK,
        2_000_001,
        isn.wrapping_add(1),
    )]);
    assert_eq!(
        (scene.carrier.counters.opened, scene.open_passages()),
        (1, 1)
    );
    assert!(accepted(&listener).is_empty());
    scene.end();
}

#[test]
fn what_belongs_to_nothing_does_nothing() {
    let mut scene = Scene::new("any");
    let (listener, to) = listener();
    let from = shard(4001);
    for flags in [
        Flags::RST,
        Flags::RST | Flags::SYN,
        Flags::RST | Flags::ACK | Flags::FIN,
        Flags::ACK,
        Flags::SYN | Flags::ACK,
        Flags::FIN,
        Flags(0),
        Flags(0xff),
    ] {
        let answers = scene.give(&[segment(from, to, flags, 5, 6)]);
        assert!(
            answers
                .iter()
                .all(|answer| told(answer).0.contains(Flags::RST))
        );
        assert_eq!(scene.open_passages(), 0, "{flags}");
    }
    assert!(accepted(&listener).is_empty());
    scene.end();
}

#[test]
fn beyond_the_reach_is_said_at_once_and_nothing_leaves() {
    let mut scene = Scene::new("loopback");
    for (from, to, code) in [
        ("192.0.2.7:1", "198.51.100.7:80", icmpv4::unreachable::NET),
        ("192.0.2.7:1", "0.0.0.0:80", icmpv4::unreachable::NET),
        (
            "192.0.2.7:1",
            "255.255.255.255:80",
            icmpv4::unreachable::NET,
        ),
        (
            "[2001:db8::7]:1",
            "[2001:db8::8]:80",
            icmpv6::unreachable::NO_ROUTE,
        ),
        (
            "[2001:db8::7]:1",
            "[::ffff:198.51.100.7]:80",
            icmpv6::unreachable::NO_ROUTE,
        ),
    ] {
        let (from, to) = (at(from), at(to));
        let complaints = scene.give(&[syn(from, to, 1)]);
        let said: Vec<_> = complaints
            .iter()
            .filter_map(|frame| complaint_in(frame))
            .collect();
        assert_eq!(said, [(code, FlowKey::new(to, from).unwrap())], "{to}");
        assert_eq!(scene.open_passages(), 0);
    }
    assert_eq!(scene.carrier.counters.out_of_reach, 5);
    scene.end();
}

/// An IPv4 address in disguise is that address: a list of IPv6 networks does not take it in.
#[test]
fn a_disguised_address_is_what_it_is() {
    let (listener, to) = listener();
    let disguised = |ip: Ipv4Addr| SocketAddr::new(ip.to_ipv6_mapped().into(), to.port());
    let from = at("[2001:db8::7]:9");
    let mut scene = Scene::new("::/0");
    scene.give(&[syn(from, disguised(Ipv4Addr::new(198, 51, 100, 7)), 1)]);
    assert_eq!(scene.carrier.counters.out_of_reach, 1);
    scene.give(&[syn(from, disguised(Ipv4Addr::LOCALHOST), 1)]);
    assert_eq!(scene.carrier.counters.out_of_reach, 1);
    accept(&listener);
    scene.end();
}

#[test]
fn a_flood_finds_bounds() {
    let mut scene = Scene::new("loopback");
    let far = at("198.51.100.7:80");
    for round in 0..20 {
        let flood: Vec<_> = (0..200).map(|i| syn(shard(1024 + i), far, round)).collect();
        scene.give(&flood);
    }
    let refused = scene.carrier.counters.out_of_reach;
    assert!(refused > 1000, "{refused} were seen");
    // No slot is left: the SYN waits for its repetition, and costs nothing.
    let (listener, to) = listener();
    let taken = scene.carrier.passages.len();
    let hidden = std::mem::take(&mut scene.carrier.free);
    scene.carrier.passages.resize_with(BRIDGES_MAX, || None);
    scene.send(&[syn(shard(4000), to, 1)]);
    scene.carrier.turn();
    assert_eq!(scene.carrier.counters.full, 1);
    assert_eq!(scene.carrier.inner.mailbox.shortages().portal_full.get(), 1);
    assert!(accepted(&listener).is_empty());
    scene.carrier.passages.truncate(taken);
    scene.carrier.free = hidden;
    let answers = scene.give_for(1, &[syn(shard(4000), to, 1)]);
    assert_eq!(told(&answers[0]).0, Flags::SYN | Flags::ACK);
    scene.end();
}

/// The carrier moves all connections' bytes through one memory: what could not be handed to a client that has just gone is
/// nobody's, least of all the next one's.
#[test]
fn what_a_client_that_broke_off_did_not_get_goes_to_nobody() {
    let mut scene = Scene::new("loopback");
    let (listener, to) = listener();
    let mut open = |port: u16| {
        let answers = scene.give_for(1, &[syn(shard(port), to, 100)]);
        let (_, isn, _) = told(&answers[0]);
        let numbers = (101, isn.wrapping_add(1));
        scene.give(&[segment(shard(port), to, Flags::ACK, numbers.0, numbers.1)]);
        (shard(port), numbers, accept(&listener))
    };
    let (gone, others) = (open(4000), [open(4001), open(4002)]);
    let (from, (seq, ack), kernel) = gone;
    reset_on_drop(&kernel);
    drop(kernel);
    // The carrier has not slept: it learns of the reset by writing.
    scene.send(&[data(
        from,
        to,
        Flags::ACK,
        seq,
        ack,
        b"for the one who has gone",
    )]);
    scene.carrier.turn();
    for (from, (seq, ack), kernel) in &others {
        let text = format!("for {from} alone");
        scene.give(&[data(
            *from,
            to,
            Flags::ACK | Flags::FIN,
            *seq,
            *ack,
            text.as_bytes(),
        )]);
        kernel.set_nonblocking(false).unwrap();
        kernel.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut read = String::new();
        (&*kernel).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
    }
    scene.end();
}

/// Each attempt waits for the shard by its own time, not by that of one with the same ports that was given up before it, while
/// an older one of others still waits.
#[test]
fn who_is_not_answered_is_given_up_at_his_own_time() {
    let mut scene = Scene::new("loopback");
    let (listener, to) = listener();
    let from = shard(4002);
    scene.give_for(1, &[syn(shard(4001), to, 1)]);
    let older = accept(&listener);
    scene.give_for(1, &[syn(from, to, 1)]);
    scene.give(&[segment(from, to, Flags::RST, 2, 0)]);
    let ended = |scene: &Scene| (scene.carrier.counters.given_up, scene.open_passages());
    assert_eq!(ended(&scene), (1, 1));
    assert!(was_reset(&accept(&listener)));
    scene.pass(Duration::from_secs(20));
    scene.give_for(1, &[syn(from, to, 1_000_000)]);
    let second = accept(&listener);
    scene.pass(Duration::from_secs(15));
    scene.give(&[]);
    assert_eq!(ended(&scene), (2, 1), "only the older one");
    assert!(was_reset(&older));
    scene.pass(Duration::from_secs(16));
    scene.give(&[]);
    assert_eq!(ended(&scene), (3, 0));
    assert!(was_reset(&second));
    scene.end();
}

/// What the kernel refuses at once, and what it finds refused, comes back as what a router would say, and leaves nothing.
#[test]
fn what_the_kernel_refuses_is_told() {
    let mut scene = Scene::new("any");
    let (closed, nobody) = listener();
    drop(closed);
    for (to, code) in [
        (at("255.255.255.255:80"), icmpv4::unreachable::NET),
        (nobody, icmpv4::unreachable::PORT),
    ] {
        let from = shard(4011);
        let told = scene.give_for(1, &[syn(from, to, 1)]);
        let told: Vec<_> = told
            .iter()
            .filter_map(|frame| complaint_in(frame))
            .collect();
        assert_eq!(told, [(code, FlowKey::new(to, from).unwrap())], "{to}");
        assert_eq!(scene.open_passages(), 0);
    }
    assert_eq!(scene.carrier.counters.failed_outside, 2);
    scene.end();
}

/// Behind one that waits, attempts that come and go leave nothing.
#[test]
fn who_came_and_went_is_not_remembered() {
    let mut scene = Scene::new("loopback");
    let (_listener, to) = listener();
    scene.give_for(1, &[syn(shard(4003), to, 1)]);
    let gone = FlowKey::new(shard(4004), to).unwrap();
    let now = scene.clock.now();
    let room = ANSWERED_MAX - scene.carrier.exits.answered.len();
    let came = std::iter::repeat_n((now, gone), room);
    scene.carrier.exits.answered.extend(came);
    scene.give_for(1, &[syn(shard(4005), to, 1)]);
    assert_eq!(scene.carrier.exits.answered.len(), 2);
    scene.pass(Duration::from_secs(31));
    scene.give(&[]);
    assert_eq!(scene.carrier.counters.given_up, 2);
    scene.end();
}

/// The server breaks off while the shard has not yet heard that the connection stands: it is a reset for it all the same.
#[test]
fn a_reset_before_the_shard_knows_is_not_taken_for_an_end() {
    let mut scene = Scene::new("loopback");
    let (listener, to) = listener();
    let from = shard(4006);
    let answers = scene.give_for(1, &[syn(from, to, 1)]);
    let (_, isn, _) = told(&answers[0]);
    let kernel = accept(&listener);
    reset_on_drop(&kernel);
    drop(kernel);
    // The kernel tells the carrier meanwhile.
    scene.give(&[]);
    scene.give(&[segment(from, to, Flags::ACK, 2, isn.wrapping_add(1))]);
    scene.until("the passage ends", |scene| scene.open_passages() == 0);
    assert_eq!(
        (scene.carrier.counters.broken, scene.open_passages()),
        (1, 0)
    );
    scene.end();
}

/// A SYN in fragments is put together by the inner stack only, past the table of openings: nothing stands behind it.
#[test]
fn a_syn_in_fragments_opens_nothing() {
    let mut scene = Scene::new("loopback");
    let (listener, to) = listener();
    // So that somebody listens inside.
    scene.give_for(1, &[syn(shard(4007), to, 1)]);
    let _kernel = accept(&listener);
    let from = shard(4008);
    let whole = syn(from, to, 1);
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (from.ip(), to.ip()) else {
        unreachable!("both are of IPv4");
    };
    let piece = |offset: usize, len: usize, more| {
        let mut bytes = vec![0; ipv4::LEN];
        ipv4::emit_fragment(&mut bytes, &ip_header(src, dst, len), offset as u16, more);
        bytes.extend_from_slice(&whole[ipv4::LEN + offset..ipv4::LEN + offset + len]);
        bytes
    };
    let answers = scene.give(&[piece(0, 16, true), piece(16, 4, false)]);
    for answer in &answers {
        let (flags, isn, ack) = told(answer);
        if flags == Flags::SYN | Flags::ACK {
            scene.give(&[segment(from, to, Flags::ACK, ack, isn.wrapping_add(1))]);
        }
    }
    assert_eq!(
        (scene.open_passages(), scene.carrier.counters.opened),
        (1, 0)
    );
    assert!(accepted(&listener).is_empty());
    scene.end();
}

/// A SYN between the two ends of a connection that a client of a door has: the connection stays, the SYN meets nobody.
#[test]
fn a_syn_on_a_doors_connection_leaves_it_alone() {
    let mut scene = Scene::new("loopback");
    let (door, server) = listener();
    let id = DoorId {
        port: server.port(),
        number: 0,
    };
    let door = Door {
        listener: door,
        ready: true,
    };
    scene.carrier.doors.insert(id, door);
    let client = TcpStream::connect(server).unwrap();
    let from = client.local_addr().unwrap();
    scene.until("the door's SYN", |scene| !scene.got.is_empty());
    let (flags, isn, _) = told(&std::mem::take(&mut scene.got)[0]);
    assert_eq!(flags, Flags::SYN);
    scene.give_for(1, &[syn(server, from, 77)]);
    let ack = isn.wrapping_add(1);
    let opens = segment(server, from, Flags::SYN | Flags::ACK, 500, ack);
    let answers = scene.give_for(1, &[opens]);
    assert_eq!(told(&answers[0]), (Flags::ACK, ack, 501));
    scene.give_for(1, &[syn(server, from, 78)]);
    assert_eq!(
        (scene.open_passages(), scene.carrier.counters.broken),
        (1, 0)
    );
    drop(client);
    scene.until("the client's end", |scene| {
        let mut answers = scene.got.iter();
        answers.any(|answer| told(answer).0.contains(Flags::FIN))
    });
    scene.end();
}

/// Honest frames bent at random, with honest ones between them, and time that passes.
#[test]
fn bent_frames_break_nothing() {
    for seed in 0..24 {
        let (listener, to) = listener();
        let outcome = std::panic::catch_unwind(|| bend(seed, &listener, to));
        if let Err(panic) = outcome {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn bend(seed: u64, listener: &TcpListener, to: SocketAddr) {
    let mut rng = Rng::new(seed);
    let mut scene = Scene::new("loopback");
    let closed = at("127.0.0.1:9");
    let v6 = (at("[2001:db8::7]:9"), at("[2001:db8::8]:9"));
    let mut numbers: HashMap<u16, (u32, u32)> = HashMap::new();
    for _ in 0..150 {
        let mut frames = Vec::new();
        for _ in 0..1 + rng.below(4) {
            let from = shard(5000 + rng.below(6) as u16);
            let (seq, ack) = match numbers.get(&from.port()) {
                Some(known) if !rng.one_in(4) => *known,
                _ => (rng.next() as u32, rng.next() as u32),
            };
            let flags = [
                Flags::SYN,
                Flags::SYN,
                Flags::ACK,
                Flags::ACK | Flags::FIN,
                Flags::RST,
                Flags(rng.next() as u8),
            ][rng.below(6) as usize];
            let (from, to) = match rng.below(8) {
                0 => (from, closed),
                1 => v6,
                _ => (from, to),
            };
            let mut bytes = segment(from, to, flags, seq, ack);
            if rng.one_in(3) {
                for _ in 0..1 + rng.below(4) {
                    let place = rng.below(bytes.len() as u64) as usize;
                    bytes[place] = rng.next() as u8;
                }
                bytes.truncate(1 + rng.below(bytes.len() as u64) as usize);
            }
            if leads_to(&bytes, &[to, closed]) {
                frames.push(bytes);
            }
        }
        for answer in scene.give(&frames) {
            if let Some((flow, _)) = classify(&answer, Link::Ip).segment()
                && let FlowKey::V4(_) = flow
            {
                let (flags, seq, ack) = told(&answer);
                let next = seq.wrapping_add(u32::from(flags.contains(Flags::SYN)));
                numbers.insert(flow.local_port(), (ack, next));
            }
        }
        if rng.one_in(40) {
            scene.pass(Duration::from_secs(rng.below(40)));
        }
        accepted(listener);
    }
    scene.end();
}

/// Whether what this opens, if it opens anything, is known to the test: no stranger on this machine shall be called.
fn leads_to(bytes: &[u8], known: &[SocketAddr]) -> bool {
    match sign(bytes) {
        Some((flow, Sign::Opens)) => {
            known.contains(&flow.local_addr()) || !flow.local().is_loopback()
        }
        _ => true,
    }
}
