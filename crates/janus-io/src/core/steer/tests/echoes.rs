//! Packets that say by their echo whose they are.

use super::*;
use janus_wire::{FlowKey, FlowKeyV4, Stamps};

const SHARDS: u8 = 5;
const KEYS: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03);

/// A segment of the client's `port` with these flags, and timestamps that echo `echo`.
fn echoing(link: Link, port: u16, flags: u8, echo: u32) -> Vec<u8> {
    let mut bytes = segment(link, (CLIENT, port), (SERVER, 80), 1, 12);
    let tcp = link.header_len() + ipv4::LEN;
    bytes[tcp + 12] = 8 << 4;
    bytes[tcp + 13] = flags;
    bytes[tcp + 20..tcp + 24].copy_from_slice(&[1, 1, 8, 10]);
    bytes[tcp + 28..tcp + 32].copy_from_slice(&echo.to_be_bytes());
    bytes
}

fn flow(port: u16) -> FlowKey {
    FlowKey::V4(FlowKeyV4 {
        peer: CLIENT,
        local: SERVER,
        peer_port: port,
        local_port: 80,
    })
}

#[test]
fn what_echoes_goes_to_whom_it_names_and_the_rest_by_the_ring() {
    const ACK: u8 = 0x10;
    let mut pool = pool(256);
    let stamps = Stamps::new(KEYS).naming(0, SHARDS.into());
    for link in [Link::Ip, Link::Ethernet] {
        let (balancer, plain) = steerer(SHARDS.into(), link);
        let ring = balancer.current().published();
        let by_echoes = steerer(SHARDS.into(), link).1.by_echoes(stamps);
        for i in 0..40u16 {
            let (port, owner) = (1_000 + i, (i % u16::from(SHARDS)) as u8);
            let echo = Stamps::new(KEYS).naming(owner, SHARDS.into());
            let echo = echo.stamp(echo.base(echo.hash(&flow(port))), 77 * u32::from(i));
            let nobody = {
                // A number that no shard has, under the same hash.
                let last = echo ^ u32::from(owner);
                last ^ 7
            };
            let mut no_option = echoing(link, port, ACK, echo);
            no_option[link.header_len() + ipv4::LEN + 22] = 9;
            let claims = echoing(link, port, ACK, echo);
            let others = [
                echoing(link, port, 0x02, echo),
                echoing(link, port, 0x12, echo),
                echoing(link, port, 0x04, echo),
                echoing(link, port, ACK, nobody),
                no_option,
                arp(Op::Reply),
                claims[..20].to_vec(),
            ];
            let mut burst: Vec<Frame> = std::iter::once(&claims)
                .chain(&others)
                .map(|bytes| frame(&mut pool, bytes))
                .collect();
            let mut routes = [Route::Every; BURST];
            by_echoes.route_burst(&mut burst, &mut routes);
            let tag = Tag::from_bits(burst[0].tag);
            assert_eq!(routes[0], Route::Shard(ShardId(owner)));
            assert!(tag.is_claim() && tag.epoch() == ring.epoch());
            for (at, bytes) in others.iter().enumerate() {
                let mut alone = frame(&mut pool, bytes);
                assert_eq!(plain.route(&mut alone), routes[at + 1], "{at}");
                if matches!(routes[at + 1], Route::Shard(_)) {
                    let found = (burst[at + 1].key, burst[at + 1].tag);
                    assert_eq!(found, (alone.key, alone.tag));
                    assert!(!Tag::from_bits(found.1).is_claim());
                }
                pool.free(alone.buf);
            }
            burst.into_iter().for_each(|frame| pool.free(frame.buf));
        }
    }
}
