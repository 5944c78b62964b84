//! Datagrams between two stacks.

use core::time::Duration;
use std::net::SocketAddr;

use janus_wire::{checksum, ipv4, ipv6, proto, udp};

use crate::testing::{A, A_V6, B, B_V6, Pair};
use crate::{Config, Error, Token, UdpId};

const LONG: Duration = Duration::from_secs(1);

fn pair() -> Pair {
    Pair::new(&Config::default(), 7)
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Sockets at these addresses on both sides.
fn sockets(pair: &mut Pair, a: &str, b: &str) -> (UdpId, UdpId) {
    let a = pair.a.stack.udp_bind(at(a)).expect("free");
    let b = pair.b.stack.udp_bind(at(b)).expect("free");
    (a, b)
}

/// What socket `id` of `b` has received, oldest first.
fn received_by_b(pair: &mut Pair, id: UdpId) -> Vec<(SocketAddr, Vec<u8>)> {
    let stack = &mut pair.b.stack;
    std::iter::from_fn(|| {
        let datagram = stack.udp_receive(id).ok()?;
        let seen = (datagram.peer, datagram.bytes().to_vec());
        stack.udp_done(datagram);
        Some(seen)
    })
    .collect()
}

#[test]
fn they_go_both_ways_in_both_families() {
    let mut pair = pair();
    let (a, b) = sockets(&mut pair, "[::]:5000", "[::]:53");
    for (to, from) in [
        (SocketAddr::from((B, 53)), SocketAddr::from((A, 5000))),
        (SocketAddr::from((B_V6, 53)), SocketAddr::from((A_V6, 5000))),
    ] {
        let now = pair.now;
        assert_eq!(pair.b.stack.udp_receive(b).err(), Some(Error::WouldBlock));
        assert_eq!(pair.a.stack.udp_send(now, a, Some(to), b"who?"), Ok(4));
        pair.run_for(LONG);
        assert_eq!(pair.b.stack.udp_buffers(), 1);
        assert_eq!(pair.b.stack.udp_peek(b).unwrap().bytes(), b"who?");
        let got = pair.b.stack.udp_receive(b).unwrap();
        assert_eq!(
            (got.peer, got.local, got.bytes()),
            (from, to.ip(), &b"who?"[..])
        );
        let now = pair.now;
        let peer = got.peer;
        pair.b.stack.udp_done(got);
        assert_eq!(pair.b.stack.udp_buffers(), 0);
        // An empty one is a datagram too.
        pair.b.stack.udp_send(now, b, Some(peer), b"").unwrap();
        pair.run_for(LONG);
        let got = pair.a.stack.udp_receive(a).unwrap();
        assert_eq!((got.peer, got.bytes()), (to, &b""[..]));
        drop(got);
    }
    assert_eq!(pair.a.stack.counters().datagrams_out, 2);
    assert_eq!(pair.a.stack.counters().datagrams_in, 2);
    pair.assert_clean();
}

#[test]
fn where_nobody_listens_the_connected_sender_is_told_once() {
    for to in [SocketAddr::from((B, 99)), SocketAddr::from((B_V6, 99))] {
        let mut pair = pair();
        let (a, _) = sockets(&mut pair, "[::]:5000", "[::]:53");
        let now = pair.now;
        // One that is not connected hears nothing: it could not tell which of its datagrams it was.
        pair.a.stack.udp_send(now, a, Some(to), b"x").unwrap();
        pair.run_for(LONG);
        assert_eq!(pair.a.stack.udp_is_readable(a), Ok(false));
        pair.a.stack.udp_connect(a, Some(to)).unwrap();
        let now = pair.now;
        pair.a.stack.udp_send(now, a, None, b"x").unwrap();
        pair.run_for(LONG);
        assert_eq!(pair.a.stack.udp_is_readable(a), Ok(true));
        let told = pair.a.stack.udp_receive(a).err();
        assert_eq!(told, Some(Error::ConnectionRefused));
        assert_eq!(pair.a.stack.udp_receive(a).err(), Some(Error::WouldBlock));
        assert_eq!(pair.b.stack.counters().icmp_errors_out, 2);
    }
}

#[test]
fn a_connected_socket_hears_its_peer_only() {
    let mut pair = pair();
    let (a, b) = sockets(&mut pair, "0.0.0.0:5000", "0.0.0.0:53");
    let other = pair.a.stack.udp_bind(at("0.0.0.0:5001")).unwrap();
    let to = Some(SocketAddr::from((B, 53)));
    let now = pair.now;
    pair.a.stack.udp_send(now, other, to, b"before").unwrap();
    pair.a.stack.udp_send(now, a, to, b"before too").unwrap();
    pair.run_for(LONG);
    let peer = SocketAddr::from((A, 5000));
    pair.b.stack.udp_connect(b, Some(peer)).unwrap();
    assert_eq!(pair.b.stack.udp_peer(b), Ok(Some(peer)));
    let now = pair.now;
    pair.a.stack.udp_send(now, other, to, b"stranger").unwrap();
    pair.a.stack.udp_send(now, a, to, b"friend").unwrap();
    pair.run_for(LONG);
    let got = received_by_b(&mut pair, b);
    let expected = [(peer, b"before too".to_vec()), (peer, b"friend".to_vec())];
    assert_eq!(got, expected);
    assert_eq!(pair.b.stack.udp_send(now, b, None, b"x"), Ok(1));
    pair.b.stack.udp_connect(b, None).unwrap();
    let unsaid = pair.b.stack.udp_send(now, b, None, b"x");
    assert_eq!(unsaid, Err(Error::NotConnected));
}

#[test]
fn the_nearest_socket_gets_it() {
    let mut pair = pair();
    let (a, _) = sockets(&mut pair, "0.0.0.0:5000", "0.0.0.0:54");
    let stack = &mut pair.b.stack;
    let all = stack.udp_bind(at("0.0.0.0:53")).unwrap();
    assert_eq!(stack.udp_bind(at("192.0.2.2:53")), Err(Error::AddrInUse));
    assert_eq!(stack.udp_bind(at("[::]:53")), Err(Error::AddrInUse));
    // The other family's addresses are others.
    let six = stack.udp_bind(at("[2001:db8::2]:53")).unwrap();
    assert_eq!(
        stack.udp_bind(at("[2001:db8::9]:53")),
        Err(Error::AddrNotAvailable)
    );
    assert_eq!(stack.udp_bind(at("0.0.0.0:0")), Err(Error::InvalidAddress));
    let now = pair.now;
    let to = Some(SocketAddr::from((B, 53)));
    pair.a.stack.udp_send(now, a, to, b"four").unwrap();
    pair.run_for(LONG);
    assert_eq!(received_by_b(&mut pair, all).len(), 1);
    assert!(received_by_b(&mut pair, six).is_empty());
    let wrong = Some(SocketAddr::from((B_V6, 53)));
    let refused = pair.a.stack.udp_send(now, a, wrong, b"six");
    assert_eq!(refused, Err(Error::InvalidAddress));
    for nowhere in [
        "192.0.2.255:53",
        "224.0.0.1:53",
        "192.0.2.2:0",
        "0.0.0.0:53",
    ] {
        let refused = pair.a.stack.udp_send(now, a, Some(at(nowhere)), b"x");
        assert_eq!(refused, Err(Error::InvalidAddress), "{nowhere}");
    }
}

#[test]
fn a_queue_has_its_bound_and_what_is_beyond_is_counted() {
    let mut pair = pair();
    let (a, b) = sockets(&mut pair, "0.0.0.0:5000", "0.0.0.0:53");
    let to = Some(SocketAddr::from((B, 53)));
    let now = pair.now;
    for n in 0..300u16 {
        let sent = pair.a.stack.udp_send(now, a, to, &n.to_be_bytes());
        assert_eq!(sent, Ok(2));
    }
    pair.run_for(LONG);
    assert_eq!(pair.b.stack.counters().dropped_datagrams_full, 44);
    let got = received_by_b(&mut pair, b);
    assert_eq!(got.len(), 256);
    assert_eq!(got[255].1, 255u16.to_be_bytes());
    pair.assert_clean();
}

#[test]
fn long_ones_go_in_fragments_and_too_long_ones_not_at_all() {
    let mut pair = pair();
    let (a, b) = sockets(&mut pair, "[::]:5000", "[::]:53");
    for (to, longest) in [
        (SocketAddr::from((B, 53)), 65_507),
        (SocketAddr::from((B_V6, 53)), 65_527),
    ] {
        for len in [1_473, 5_000, 40_000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 / 3) as u8).collect();
            let now = pair.now;
            pair.a.stack.udp_send(now, a, Some(to), &bytes).unwrap();
            pair.run_for(LONG);
            let got = received_by_b(&mut pair, b);
            assert!(got.len() == 1 && got[0].1 == bytes, "{to}, {len} bytes");
        }
        let too_long = vec![0; longest + 1];
        let refused = pair.a.stack.udp_send(pair.now, a, Some(to), &too_long);
        assert_eq!(refused, Err(Error::MessageTooLong));
    }
    assert!(pair.b.stack.counters().fragments_in > 6);
    pair.assert_clean();
}

#[test]
fn what_is_damaged_on_the_way_is_nobodys() {
    let mut pair = pair();
    let (a, b) = sockets(&mut pair, "0.0.0.0:5000", "0.0.0.0:53");
    let to = SocketAddr::from((A, 5000));
    let now = pair.now;
    pair.b.stack.udp_send(now, b, Some(to), b"damaged").unwrap();
    for frame in pair.under_way_to_a() {
        *frame.last_mut().unwrap() ^= 1;
    }
    pair.run_for(LONG);
    assert_eq!(pair.a.stack.udp_receive(a).err(), Some(Error::WouldBlock));
    assert_eq!(pair.a.stack.counters().icmp_errors_out, 0);
    // Over IPv4 the sender may leave the checksum out.
    let now = pair.now;
    pair.b.stack.udp_send(now, b, Some(to), b"plain").unwrap();
    for frame in pair.under_way_to_a() {
        frame[26..28].fill(0);
    }
    pair.run_for(LONG);
    let got = pair.a.stack.udp_receive(a).unwrap();
    assert_eq!(got.bytes(), b"plain");
}

/// Leaves in a packet with a datagram what a kernel does that relies on its device: the sum of the pseudo header.
fn leave_to_the_device(packet: &mut [u8]) {
    let six = packet[0] >> 4 == 6;
    let at = if six { ipv6::LEN } else { ipv4::LEN };
    let sum = match six {
        true => {
            let ip = ipv6::parse(packet).unwrap();
            checksum::pseudo_v6(ip.src, ip.dst, proto::UDP, ip.payload().len() as u32)
        }
        false => {
            let ip = ipv4::parse(packet).unwrap();
            checksum::pseudo_v4(ip.src, ip.dst, proto::UDP, ip.payload().len() as u16)
        }
    };
    let field = &mut packet[at + udp::CHECKSUM_AT..at + udp::LEN];
    field.copy_from_slice(&(!checksum::finish(sum)).to_be_bytes());
}

#[test]
fn a_checksum_that_is_left_to_the_device_is_the_devices_word() {
    for vouches in [true, false] {
        let mut pair = pair();
        let (a, b) = sockets(&mut pair, "[::]:5000", "[::]:53");
        pair.a.stack.rules_mut().interface_mut().rx_checksum = vouches;
        for to in [A.into(), A_V6.into()] {
            // The second is for a port that nobody has: its sender is told, if it is believed.
            for port in [5_000, 5_001] {
                let to = Some(SocketAddr::new(to, port));
                let now = pair.now;
                pair.b.stack.udp_send(now, b, to, b"in part").unwrap();
                pair.under_way_to_a()
                    .for_each(|frame| leave_to_the_device(frame));
                pair.run_for(LONG);
            }
            let got = pair.a.stack.udp_receive(a);
            match vouches {
                true => assert_eq!(got.unwrap().bytes(), b"in part"),
                false => assert_eq!(got.err(), Some(Error::WouldBlock)),
            }
        }
        let counters = pair.a.stack.counters();
        let each = |count: u64| if vouches { (count, 0) } else { (0, count) };
        assert_eq!(
            (counters.datagrams_in, counters.dropped_checksum / 2),
            each(2)
        );
        assert_eq!(counters.dropped_datagrams_port, each(2).0);
        assert_eq!(counters.icmp_errors_out, each(2).0);
        pair.assert_clean();
    }
}

#[test]
fn over_v6_none_may_be_left_out_whoever_vouches() {
    let mut pair = pair();
    let (_, b) = sockets(&mut pair, "[::]:5000", "[::]:53");
    pair.a.stack.rules_mut().interface_mut().rx_checksum = true;
    let to = Some(SocketAddr::from((A_V6, 5000)));
    let now = pair.now;
    pair.b.stack.udp_send(now, b, to, b"none").unwrap();
    for packet in pair.under_way_to_a() {
        packet[ipv6::LEN + udp::CHECKSUM_AT..ipv6::LEN + udp::LEN].fill(0);
    }
    pair.run_for(LONG);
    assert_eq!(pair.a.stack.counters().dropped_checksum, 1);
    assert_eq!(pair.a.stack.counters().datagrams_in, 0);
}

/// No device can have looked at the whole of it.
#[test]
fn pieces_are_checked_whoever_vouches() {
    for to in [SocketAddr::from((A, 5000)), SocketAddr::from((A_V6, 5000))] {
        let mut pair = pair();
        let (a, b) = sockets(&mut pair, "[::]:5000", "[::]:53");
        pair.a.stack.rules_mut().interface_mut().rx_checksum = true;
        for damage in [0, 1] {
            let now = pair.now;
            pair.b
                .stack
                .udp_send(now, b, Some(to), &[7; 4_000])
                .unwrap();
            let last = pair.under_way_to_a().last().unwrap();
            *last.last_mut().unwrap() ^= damage;
            pair.run_for(LONG);
        }
        assert_eq!(pair.a.stack.udp_receive(a).unwrap().bytes(), [7; 4_000]);
        assert_eq!(pair.a.stack.udp_receive(a).err(), Some(Error::WouldBlock));
        assert_eq!(pair.a.stack.counters().dropped_checksum, 1);
        pair.assert_clean();
    }
}

/// Each way to be lost has a counter of its own, and there is no other.
#[test]
fn whatever_is_dropped_is_counted_by_its_cause() {
    let config = Config {
        datagrams_elsewhere: true,
        ..Config::default()
    };
    let mut pair = Pair::new(&config, 7);
    let (a, b) = sockets(&mut pair, "0.0.0.0:5000", "0.0.0.0:53");
    let send = |pair: &mut Pair, port: u16, bytes: &[u8], spoil: fn(&mut Vec<u8>)| {
        let to = Some(SocketAddr::from((A, port)));
        let now = pair.now;
        pair.b.stack.udp_send(now, b, to, bytes).unwrap();
        pair.under_way_to_a().for_each(spoil);
        pair.run_for(Duration::from_millis(20));
    };
    let nothing: fn(&mut Vec<u8>) = |_| {};
    send(&mut pair, 5_001, b"x", nothing);
    send(&mut pair, 5_000, b"x", |packet| {
        *packet.last_mut().unwrap() ^= 1
    });
    // Shorter than its header, and longer than its packet.
    send(&mut pair, 5_000, b"x", |packet| packet[ipv4::LEN + 5] = 7);
    send(&mut pair, 5_000, b"x", |packet| packet[ipv4::LEN + 5] = 10);
    let count = |pair: &Pair| {
        let c = pair.a.stack.counters();
        [
            c.dropped_datagrams_port,
            c.dropped_checksum,
            c.dropped_malformed,
            c.dropped_datagrams_full,
            c.dropped_datagrams_memory,
            c.dropped_datagrams_astray,
            c.dropped_datagrams_unread,
            c.dropped_protocol,
        ]
    };
    assert_eq!(count(&pair), [1, 1, 2, 0, 0, 0, 0, 0]);
    // In pieces for another stack, which never takes them.
    for _ in 0..66 {
        send(&mut pair, 5_001, &[0; 2_000], nothing);
    }
    assert_eq!(count(&pair), [1, 1, 2, 0, 0, 2, 0, 0]);
    // One socket's queue, and an eighth of all packet buffers.
    for _ in 0..257 {
        send(&mut pair, 5_000, b"x", nothing);
    }
    assert_eq!(count(&pair), [1, 1, 2, 1, 0, 2, 0, 0]);
    let others = [5_002, 5_003].map(|port| {
        let local = SocketAddr::from((A, port));
        pair.a.stack.udp_bind(local).expect("free")
    });
    for _ in 0..129 {
        send(&mut pair, 5_002, b"x", nothing);
        send(&mut pair, 5_003, b"x", nothing);
    }
    assert_eq!(count(&pair), [1, 1, 2, 1, 2, 2, 0, 0]);
    pair.a.stack.udp_close(others[0]);
    let stranger = Some(SocketAddr::from((B, 54)));
    pair.a.stack.udp_connect(others[1], stranger).unwrap();
    pair.a.stack.udp_close(a);
    assert_eq!(count(&pair), [1, 1, 2, 1, 2, 2, 512, 0]);
    assert_eq!(pair.a.stack.udp_buffers(), 0);
    pair.assert_clean();
}

#[test]
fn a_closed_socket_leaves_nothing_behind() {
    let mut pair = pair();
    let (a, b) = sockets(&mut pair, "0.0.0.0:5000", "0.0.0.0:53");
    let to = Some(SocketAddr::from((B, 53)));
    let now = pair.now;
    for _ in 0..3 {
        pair.a.stack.udp_send(now, a, to, b"unread").unwrap();
    }
    pair.run_for(LONG);
    pair.b.stack.udp_close(b);
    assert_eq!(pair.b.stack.udp_buffers(), 0);
    assert_eq!(pair.b.stack.udp_receive(b).err(), Some(Error::Stale));
    let again = pair.b.stack.udp_bind(at("0.0.0.0:53")).unwrap();
    assert_ne!(again, b);
    assert_eq!(pair.b.stack.udp_is_readable(b), Err(Error::Stale));
    assert_eq!(pair.b.stack.udp_is_readable(again), Ok(false));
    pair.assert_clean();
}

#[test]
fn who_waits_is_told() {
    let mut pair = pair();
    let (a, b) = sockets(&mut pair, "0.0.0.0:5000", "0.0.0.0:53");
    let to = Some(SocketAddr::from((A, 5000)));
    pair.b.stack.udp_send(pair.now, b, to, b"x").unwrap();
    let sent: Vec<Vec<u8>> = pair.under_way_to_a().map(|frame| frame.clone()).collect();
    let stack = &mut pair.a.stack;
    stack.udp_wait_read(a, Some(Token(5)));
    let mut buf = stack.pool().alloc().unwrap();
    buf.bytes_mut()[128..128 + sent[0].len()].copy_from_slice(&sent[0]);
    let frame = janus_mem::Frame::new(buf, sent[0].len() as u16);
    stack.input(pair.now, &mut vec![frame], &mut crate::Local);
    assert_eq!(stack.pop_ready(), Some(Token(5)));
    // With the queue of what leaves half full no more is taken.
    let to = Some(SocketAddr::from((B, 53)));
    let mut sent = 0;
    while stack.udp_send(pair.now, a, to, b"y").is_ok() {
        sent += 1;
    }
    assert_eq!(sent, super::REPLIES_FULL);
    assert_eq!(stack.udp_is_writable(a), Ok(false));
    stack.udp_wait_write(a, Some(Token(6)));
    assert_eq!(stack.pop_ready(), None);
    let mut out = Vec::new();
    stack.transmit(pair.now, &mut out, 10);
    assert_eq!(stack.pop_ready(), Some(Token(6)));
    assert_eq!(stack.udp_send(pair.now, a, to, b"y"), Ok(1));
}

#[test]
fn numbers_that_are_drawn_do_not_repeat() {
    let mut pair = pair();
    let drawn: Vec<u64> = (0..100).map(|_| pair.a.stack.next_random(0)).collect();
    let mut seen: Vec<u16> = drawn.iter().map(|&n| n as u16).collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 95, "{}", seen.len());
    let same_again = Pair::new(&Config::default(), 7).a.stack.next_random(0);
    assert_eq!(drawn[0], same_again);
    assert_ne!(
        drawn[0],
        Pair::new(&Config::default(), 7).a.stack.next_random(1)
    );
}
