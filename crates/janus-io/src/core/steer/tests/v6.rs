//! Decisions as over IPv4, but over IPv6: the NIC's hash of the longer addresses, errors by what they quote, neighbour messages
//! to all.

use std::net::Ipv6Addr;

use janus_wire::{SeqNum, icmpv6, ipv6, tcp};

use super::*;

const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 9);
const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

fn packet(src: Ipv6Addr, dst: Ipv6Addr, proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv6::LEN];
    let repr = ipv6::Repr {
        src,
        dst,
        proto,
        payload_len: payload.len() as u16,
        hop_limit: 255,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut bytes, &repr);
    bytes.extend_from_slice(payload);
    bytes
}

fn segment(from: (Ipv6Addr, u16), to: (Ipv6Addr, u16)) -> Vec<u8> {
    let mut bytes = [0; tcp::LEN];
    let header = tcp::Header {
        src_port: from.1,
        dst_port: to.1,
        seq: SeqNum(1),
        ack: SeqNum(0),
        flags: tcp::Flags::ACK,
        window: 1_000,
        urgent: 0,
        header_len: tcp::LEN,
    };
    tcp::emit(&mut bytes, &header, &tcp::Options::NONE);
    packet(from.0, to.0, proto::TCP, &bytes)
}

#[test]
fn segments_and_the_errors_about_them_go_to_one_shard() {
    let (balancer, steerer) = steerer(8, Link::Ip);
    let mut pool = pool(256);
    let mut used = [0; 8];
    for port in 1_000..1_100 {
        let mut segment_in = frame(&mut pool, &segment((CLIENT, port), (SERVER, 80)));
        let key = Toeplitz::new(&MICROSOFT_KEY).key_v6(CLIENT, SERVER, port, 80);
        let Route::Shard(shard) = steerer.route(&mut segment_in) else {
            panic!("a segment has a shard")
        };
        let owner = balancer.current().published().owner(key, 80);
        assert_eq!((shard, segment_in.key), (owner, key));
        used[shard.index()] += 1;
        // A router far away says that what we sent back was too large.
        let ours = segment((SERVER, 80), (CLIENT, port));
        let router = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);
        let mut error = vec![0; 200];
        let problem = icmpv6::Problem::TooBig(1_400);
        let len = icmpv6::emit_error(&mut error, router, SERVER, problem, &ours);
        let error = packet(router, SERVER, proto::ICMPV6, &error[..len]);
        let route = steerer.route(&mut frame(&mut pool, &error));
        assert_eq!(route, Route::Shard(shard));
    }
    assert!(used.iter().all(|n| *n > 2), "{used:?}");
}

#[test]
fn every_shard_hears_of_neighbors() {
    let (_balancer, steerer) = steerer(3, Link::Ip);
    let mut pool = pool(64);
    let group = icmpv6::solicited_node(SERVER);
    let mac = janus_wire::MacAddr([2, 0, 0, 0, 0, 9]);
    let mut message = vec![0; icmpv6::NEIGHBOUR_LEN];
    icmpv6::emit_solicitation(&mut message, CLIENT, group, SERVER, mac);
    let question = packet(CLIENT, group, proto::ICMPV6, &message);
    assert_eq!(
        steerer.route(&mut frame(&mut pool, &question)),
        Route::Every
    );
    let flags = icmpv6::Advertised::default();
    icmpv6::emit_advertisement(&mut message, CLIENT, SERVER, CLIENT, mac, flags);
    let answer = packet(CLIENT, SERVER, proto::ICMPV6, &message);
    assert_eq!(steerer.route(&mut frame(&mut pool, &answer)), Route::Every);
    let mut ping = vec![0; 64];
    let len = icmpv6::emit_echo_request(&mut ping, CLIENT, SERVER, 1, 1, b"hello");
    let ping = packet(CLIENT, SERVER, proto::ICMPV6, &ping[..len]);
    let route = steerer.route(&mut frame(&mut pool, &ping));
    assert!(matches!(route, Route::Shard(_)), "one is enough to answer");
}
