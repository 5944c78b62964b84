//! Segments from and to IPv6 addresses that no connection can have (RFC 9293 MUST-57, MUST-63; RFC 4291 section 2). IPv4's
//! are in `attacks.rs`.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::support::family::{over_both, socket, v6_of};
use crate::support::{Craft, HERE, Host, PEER, PORT, Peer};
use janus_tcp::Error;
use janus_wire::tcp::{self, Flags};
use janus_wire::{checksum, ipv6};

/// The packet with other addresses, its checksum right for them.
fn between(craft: &Craft, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut packet = craft.packet();
    assert_eq!(packet[0] >> 4, 6);
    packet[8..24].copy_from_slice(&src.octets());
    packet[24..40].copy_from_slice(&dst.octets());
    let segment = &mut packet[ipv6::LEN..];
    segment[16..18].fill(0);
    tcp::fill_checksum_v6(segment, src, dst);
    assert_eq!(checksum::tcp_v6(src, dst, segment), 0);
    packet
}

/// `::`, the loopback, ourselves, groups, and IPv4 addresses in disguise.
fn nobodies() -> [Ipv6Addr; 7] {
    [
        Ipv6Addr::UNSPECIFIED,
        Ipv6Addr::LOCALHOST,
        v6_of(HERE),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 1, 2),
        Ipv4Addr::new(198, 51, 100, 9).to_ipv6_mapped(),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0xc633, 0x6409),
    ]
}

fn sources_and_destinations() {
    if !crate::support::family::is_v6() {
        return;
    }
    let mut host = Host::plain();
    let mut victim = Peer::open(&mut host, 4_000);
    let mut dropped = 0;
    for flags in [
        Flags::SYN,
        Flags::ACK,
        Flags::SYN | Flags::ACK,
        Flags(0),
        Flags::RST,
    ] {
        for port in [PORT, 81] {
            let mut craft = Craft::new((PEER, port), flags);
            craft.dst.1 = port;
            for source in nobodies() {
                host.feed(&between(&craft, source, v6_of(HERE)));
                assert!(host.collect().is_empty(), "{source} is answered");
                dropped += 1;
            }
            let others = nobodies().into_iter().filter(|&to| to != v6_of(HERE));
            for target in others.chain([v6_of(PEER)]) {
                host.feed(&between(&craft, v6_of(PEER), target));
                assert!(host.collect().is_empty(), "{target} answers");
                dropped += 1;
            }
        }
    }
    assert_eq!(host.stack.counters().dropped_address, dropped);
    assert_eq!(host.stack.half_open(), 0);
    // The same from where it can be is answered.
    let syn = Craft::syn((PEER, 4_001));
    host.feed(&between(&syn, v6_of(PEER), v6_of(HERE)));
    assert_eq!(host.collect().len(), 1);
    // MUST-46: nor is a connection opened there.
    let local = socket(HERE, 5_000);
    for nobody in nobodies() {
        if nobody == v6_of(HERE) || nobody == Ipv6Addr::LOCALHOST {
            continue;
        }
        let refused = host.stack.connect(host.now, local, (nobody, 80));
        assert_eq!(refused, Err(Error::InvalidAddress), "{nobody}");
    }
    victim.expect_unharmed(&mut host);
    host.end(&[victim.conn]);
}

#[test]
fn ipv6_addresses_that_cannot_be_are_not_answered() {
    over_both(sources_and_destinations);
}
