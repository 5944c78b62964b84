mod echoes;
mod learned;
mod spread;
mod v6;

use super::*;
use crate::testing::{CLIENT, SERVER, arp, frame, pool, request, segment, steerer};
use core::net::Ipv4Addr;
use janus_csb::policy::{Heat, HeatBoard};
use janus_csb::{ShardId, Tag};
use janus_wire::arp::Op;
use janus_wire::{MICROSOFT_KEY, icmpv4, ipv4, proto};

fn icmp(payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv4::LEN + payload.len()];
    let repr = ipv4::Repr {
        src: CLIENT,
        dst: SERVER,
        proto: proto::ICMP,
        payload_len: payload.len() as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: false,
    };
    ipv4::emit(&mut bytes, &repr);
    bytes[ipv4::LEN..].copy_from_slice(payload);
    bytes
}

#[test]
fn segments_carry_their_flows_key_and_the_published_epoch() {
    let mut pool = pool(256);
    for link in [Link::Ip, Link::Ethernet] {
        let (mut balancer, mut steerer) = steerer(3, link);
        let mut used = [0; 3];
        for port in 1000..1050 {
            let mut frame = frame(&mut pool, &request(link, port, 1));
            let key = Toeplitz::new(&MICROSOFT_KEY).key_v4(CLIENT, SERVER, port, 80);
            let Route::Shard(shard) = steerer.route(&mut frame) else {
                panic!("a segment has a shard")
            };
            assert_eq!(
                (shard, frame.key),
                (balancer.current().published().owner(key, 80), key)
            );
            assert_eq!(
                Tag::from_bits(frame.tag),
                Tag::new(balancer.current().published().epoch(), false)
            );
            used[shard.index()] += 1;
        }
        assert!(used.iter().all(|n| *n > 5), "{used:?}");
        // Only shard 2 listens from now on.
        let _ends = [0, 1, 2].map(|shard| balancer.shard_end(ShardId(shard)));
        let change = balancer.start(|draft| _ = draft.listen(80, ShardId(2)));
        change.unwrap();
        let mut frame = frame(&mut pool, &request(link, 1000, 1));
        steerer.route(&mut frame);
        assert_eq!(
            Tag::from_bits(frame.tag).epoch().number(),
            0,
            "not before it is adopted, between bursts"
        );
        assert!(steerer.refresh());
        assert_eq!(steerer.route(&mut frame), Route::Shard(ShardId(2)));
        assert_eq!(Tag::from_bits(frame.tag).epoch().number(), 1);
    }
}

#[test]
fn an_icmp_error_goes_to_the_shard_it_speaks_of() {
    let (_balancer, steerer) = steerer(8, Link::Ip);
    let mut pool = pool(64);
    for port in 1000..1020 {
        let sent_by_us = segment(Link::Ip, (SERVER, 80), (CLIENT, port), 1, 0);
        let mut error = vec![0; 200];
        let len = icmpv4::emit_unreachable(
            &mut error,
            icmpv4::unreachable::FRAGMENTATION_NEEDED,
            1400,
            &sent_by_us,
        );
        let mut error = frame(&mut pool, &icmp(&error[..len]));
        let mut data = frame(&mut pool, &request(Link::Ip, port, 1));
        assert_eq!(steerer.route(&mut error), steerer.route(&mut data));
        assert_eq!(error.key, data.key);
    }
}

#[test]
fn what_is_no_segment() {
    let (_balancer, steerer) = steerer(3, Link::Ethernet);
    let mut pool = pool(64);
    let mut route = |bytes: &[u8]| steerer.route(&mut frame(&mut pool, bytes));
    assert_eq!(
        (route(&arp(Op::Request)), route(&arp(Op::Reply))),
        (Route::Every, Route::Every)
    );
    let good = request(Link::Ethernet, 1, 1);
    assert_eq!(route(&good[..20]), Route::Drop(Cause::Malformed));
    assert_eq!(route(&[]), Route::Drop(Cause::Malformed));
    let mut udp = good.clone();
    udp[14 + 9] = proto::UDP;
    assert_eq!(route(&udp), Route::Drop(Cause::Unknown));
    let mut ping = vec![0; 64];
    let len = icmpv4::emit_echo_request(&mut ping, 1, 1, b"ping");
    let bytes = [&good[..14], &icmp(&ping[..len])[..]].concat();
    assert!(matches!(route(&bytes), Route::Shard(_)));
}

#[test]
fn all_fragments_of_a_datagram_go_to_one_shard() {
    let (_balancer, steerer) = steerer(4, Link::Ethernet);
    let mut pool = pool(256);
    let mut route = |id: u8, word: [u8; 2]| {
        let mut fragment = request(Link::Ethernet, 1, 1);
        fragment[14 + 5] = id;
        fragment[14 + 6..14 + 8].copy_from_slice(&word);
        steerer.route(&mut frame(&mut pool, &fragment))
    };
    let first: Vec<Route> = (0..32).map(|id| route(id, [0x20, 0])).collect();
    for (id, first) in first.iter().enumerate() {
        assert!(matches!(first, Route::Shard(_)));
        // In the middle there are no ports, only whatever bytes of the payload.
        assert_eq!(route(id as u8, [0x20, 185]), *first);
        assert_eq!(route(id as u8, [0, 200]), *first);
    }
    assert!(first.iter().any(|other| *other != first[0]), "spread");
}

#[test]
fn a_burst_is_decided_like_its_frames_one_by_one() {
    let (_balancer, steerer) = steerer(5, Link::Ethernet);
    let mut pool = pool(256);
    let bytes = |i: u16| {
        if i.is_multiple_of(7) {
            arp(Op::Reply)
        } else {
            request(Link::Ethernet, i, 1)
        }
    };
    let mut burst: Vec<Frame> = (0..BURST as u16)
        .map(|i| frame(&mut pool, &bytes(i)))
        .collect();
    let mut routes = [Route::Every; BURST];
    steerer.route_burst(&mut burst, &mut routes);
    for (i, (in_burst, route)) in burst.iter().zip(routes).enumerate() {
        let mut alone = frame(&mut pool, &bytes(i as u16));
        assert_eq!(steerer.route(&mut alone), route);
        assert_eq!((alone.key, alone.tag), (in_burst.key, in_burst.tag));
        pool.free(alone.buf);
    }
}

/// A datagram of ours or for us, with these ports.
fn datagram(src: Ipv4Addr, dst: Ipv4Addr, sport: u16, dport: u16) -> Vec<u8> {
    let mut bytes = vec![0; ipv4::LEN + 8];
    let repr = ipv4::Repr {
        src,
        dst,
        proto: proto::UDP,
        payload_len: 8,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: false,
    };
    ipv4::emit(&mut bytes, &repr);
    let udp = &mut bytes[ipv4::LEN..];
    udp[..2].copy_from_slice(&sport.to_be_bytes());
    udp[2..4].copy_from_slice(&dport.to_be_bytes());
    udp[5] = 8;
    bytes
}

#[test]
fn a_datagram_goes_to_whoever_has_its_port() {
    let mut pool = pool(16);
    let (_balancer, steerer) = steerer(3, Link::Ip);
    let mut route = |steerer: &Steerer, bytes: &[u8]| {
        let mut frame = frame(&mut pool, bytes);
        let route = steerer.route(&mut frame);
        pool.free(frame.buf);
        route
    };
    let question = datagram(CLIENT, SERVER, 4_000, 53);
    // Without a table the stack does not speak UDP.
    assert_eq!(route(&steerer, &question), Route::Drop(Cause::Unknown));
    let sockets = Arc::new(SocketPorts::default());
    let steerer = steerer.with_sockets(sockets.clone());
    // No socket has the port: one shard must say so, and always the same one.
    assert_eq!(route(&steerer, &question), Route::Socket(ShardId(0)));
    sockets.give(53, ShardId(2));
    assert_eq!(route(&steerer, &question), Route::Socket(ShardId(2)));
    // A router's error about a datagram that was sent from that port.
    let sent = datagram(SERVER, CLIENT, 53, 4_000);
    let mut message = [0; 64];
    let len = icmpv4::emit_unreachable(&mut message, icmpv4::unreachable::PORT, 0, &sent);
    let complaint = icmp(&message[..len]);
    assert_eq!(route(&steerer, &complaint), Route::Socket(ShardId(2)));
    sockets.take(53);
    assert_eq!(route(&steerer, &question), Route::Socket(ShardId(0)));
}

/// One flow's packets among others' copies and refuse: what is sampled are the flow's.
#[test]
fn what_is_sampled_is_what_goes_to_a_shard() {
    let mut pool = pool(256);
    let link = Link::Ethernet;
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    let key = toeplitz.key_v4(CLIENT, SERVER, 1000, 80);
    let stamps = janus_wire::Stamps::new((1, 2)).naming(0, 3);
    for by_echoes in [false, true] {
        let board = std::sync::Arc::new(HeatBoard::new());
        let (_balancer, steerer) = steerer(3, link);
        let mut steerer = steerer.sampled(HeatSampler::new(board.clone()));
        if by_echoes {
            steerer = steerer.by_echoes(stamps);
        }
        let segments = (0..640).map(|_| request(link, 1000, 1));
        for bytes in segments.chain((0..640).map(|_| arp(Op::Reply))) {
            let mut frame = frame(&mut pool, &bytes);
            steerer.route(&mut frame);
            pool.free(frame.buf);
        }
        let (mut heat, mut alike) = (Heat::new(), Heat::new());
        heat.take(&board);
        (0..10).for_each(|_| alike.record(key));
        assert_eq!(format!("{heat:?}"), format!("{alike:?}"));
    }
}
