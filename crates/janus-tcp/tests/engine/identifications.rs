//! An observer off the path, who gets packets of its own and sends others in strangers' names, learns nothing from the
//! identifications of its own (RFC 6864, RFC 7739): a counter in common would tell it which of its forgeries were answered, and so
//! where the victim's window is.

use std::net::Ipv4Addr;

use crate::support::family::{addr, over_both, socket};
use crate::support::{Craft, HERE, Host, PEER, Peer};
use janus_tcp::UdpId;
use janus_wire::tcp::Flags;
use janus_wire::{ipv4, ipv6};

const OBSERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const OTHER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);
/// More than fits a packet.
const LONG: usize = 4_000;
const ROUNDS: u32 = 40;

/// Whom a packet is for, and its identification, which only a part of a datagram has.
fn identification(packet: &[u8]) -> (Ipv4Addr, Option<u32>) {
    if packet[0] >> 4 == 6 {
        let ip = ipv6::parse(packet).expect("the engine's own header");
        let to = crate::support::family::back(ip.dst.into());
        return (to, ip.fragment.map(|fragment| fragment.id));
    }
    let ip = ipv4::parse(packet).expect("the engine's own header");
    assert_eq!(ip.dont_fragment(), !ip.is_fragment());
    if ip.dont_fragment() {
        // RFC 6864 section 4.1.
        assert_eq!(ip.id, 0, "a whole datagram's identification");
    }
    (ip.dst, ip.is_fragment().then_some(ip.id.into()))
}

struct Scene {
    host: Host,
    victim: Peer,
    udp: UdpId,
}

impl Scene {
    fn new() -> Scene {
        let mut host = Host::plain();
        let victim = Peer::open(&mut host, 4_000);
        let udp = host.stack.udp_bind(socket(HERE, 53)).expect("a free port");
        Scene { host, victim, udp }
    }

    fn datagram(&mut self, to: Ipv4Addr) {
        let to = socket(to, 4_000);
        let sent = (self.host.stack).udp_send(self.host.now, self.udp, Some(to), &[7; LONG]);
        assert_eq!(sent, Ok(LONG));
    }

    /// A segment in the victim's name: `beyond` is how far behind what is expected it begins.
    fn forge(&mut self, beyond: u32) {
        let mut forged = self.victim.segment(Flags::ACK);
        forged.seq += beyond;
        self.host.send(&forged);
    }
}

/// The packets that the observer gets: a reset, the answer to a ping in pieces, the end of a handshake, in each round one of
/// each; between them happens what `meanwhile` does.
fn seen(mut meanwhile: impl FnMut(&mut Scene, u32)) -> Vec<Vec<u8>> {
    let mut scene = Scene::new();
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let mut stray = Craft::new((OBSERVER, 5_000), Flags::ACK);
        stray.dst.1 = 81;
        scene.host.send(&stray);
        scene.host.send(&Craft::syn((OBSERVER, 5_001)));
        scene.datagram(OBSERVER);
        meanwhile(&mut scene, round);
        seen.extend(scene.host.packets());
    }
    seen.retain(|packet| identification(packet).0 == OBSERVER);
    // The reset, three parts, and at first a SYN-ACK.
    assert!(seen.len() > 4 * ROUNDS as usize);
    seen
}

fn an_observer_learns_nothing() {
    let alone = seen(|_, _| {});
    let in_window = seen(|scene, round| scene.forge(round));
    assert!(alone == in_window, "which forgeries are answered");
    let beyond = seen(|scene, round| scene.forge(1 << 30 | round));
    assert!(alone == beyond, "which forgeries are answered");
    let busy = seen(|scene, _| {
        let (conn, now) = (scene.victim.conn, scene.host.now);
        scene.host.stack.write(now, conn, &[1; 3]).expect("room");
    });
    assert!(alone == busy, "how much the victim gets");
    let resets = seen(|scene, round| {
        let mut stray = Craft::new((OTHER, 6_000 + round as u16), Flags::ACK);
        stray.dst.1 = 81;
        scene.host.send(&stray);
    });
    assert!(alone == resets, "how many strangers are refused");
    let datagrams = seen(|scene, _| {
        scene.datagram(PEER);
        scene.datagram(OTHER);
    });
    assert!(alone == datagrams, "how many datagrams go out in pieces");
}

#[test]
fn an_observers_own_packets_tell_nothing_of_others() {
    over_both(an_observer_learns_nothing);
}

/// RFC 6864 section 4.3, RFC 8200 section 4.5: one identification for all parts of a datagram and for no other datagram; to
/// one destination no order that it could go on with, to two destinations different ones.
fn datagrams_in_pieces() {
    let mut scene = Scene::new();
    let mut all: Vec<Vec<u32>> = Vec::new();
    for to in [OBSERVER, OTHER] {
        let mut ids = Vec::new();
        for _ in 0..200 {
            scene.datagram(to);
            let packets = scene.host.packets();
            let (whom, id) = identification(&packets[0]);
            assert_eq!((whom, packets.len()), (to, 3), "to {}", addr(to));
            assert!(packets.iter().all(|part| identification(part) == (to, id)));
            ids.push(id.expect("a part of a datagram"));
        }
        let mut different = ids.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), ids.len());
        all.push(ids);
    }
    let near = |two: &[u32]| two[0].abs_diff(two[1]) < 16;
    for ids in &all {
        assert!(ids.windows(2).filter(|two| near(two)).count() < 10);
    }
    let both = all[0].iter().zip(&all[1]);
    assert!(both.filter(|(one, other)| one == other).count() < 3);
}

#[test]
fn each_datagram_in_pieces_has_an_identification_of_its_own() {
    over_both(datagrams_in_pieces);
}
