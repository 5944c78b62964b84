//! Owners that a polling core learns from SYN-ACKs that leave through it.

use super::*;
use janus_csb::Ring;

/// A SYN-ACK from our port 80 to the client's `port`.
fn syn_ack(link: Link, port: u16) -> Vec<u8> {
    let mut bytes = segment(link, (SERVER, 80), (CLIENT, port), 1, 0);
    let flags = link.header_len() + ipv4::LEN + 13;
    bytes[flags] = 0x12;
    bytes
}

#[test]
fn a_syn_ack_says_who_owns_the_flow_while_an_update_is_pending() {
    let mut pool = pool(64);
    for link in [Link::Ip, Link::Ethernet] {
        let (mut balancer, mut steerer) = steerer(3, link);
        let _ends = [0, 1, 2].map(|shard| balancer.shard_end(ShardId(shard)));
        let next = Ring::uniform(3, 64, 2);
        let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
        let key = |port| toeplitz.key_v4(CLIENT, SERVER, port, 80);
        let published = balancer.current().published().ring().clone();
        let moves = |port: &u16| published.owner(key(*port)) != next.owner(key(*port));
        let mut moving = (1000..).filter(moves);
        let (early, late) = (moving.next().unwrap(), moving.next().unwrap());

        // Without an update nothing need be learned: the ring says it.
        let answer = frame(&mut pool, &syn_ack(link, early));
        steerer.learn(&[answer], next.owner(key(early)));
        balancer
            .begin(|draft| draft.set_ring(next.clone()))
            .unwrap();
        assert!(steerer.refresh());
        let mut arrives = |steerer: &Steerer, port| {
            let mut frame = frame(&mut pool, &request(link, port, 1));
            let route = steerer.route(&mut frame);
            (route, Tag::from_bits(frame.tag).is_hint())
        };
        let old = |port| (Route::Shard(published.owner(key(port))), false);
        assert_eq!(arrives(&steerer, early), old(early));
        assert_eq!(arrives(&steerer, late), old(late));

        let owner = next.owner(key(late));
        let mut pool = crate::testing::pool(64);
        let data = frame(
            &mut pool,
            &segment(link, (SERVER, 80), (CLIENT, early), 1, 0),
        );
        let answer = frame(&mut pool, &syn_ack(link, late));
        steerer.learn(&[data, answer], owner);
        assert_eq!(arrives(&steerer, late), (Route::Shard(owner), true));
        assert_eq!(arrives(&steerer, early), old(early), "data says nothing");
    }
}
