//! A server whose address goes while it has flows of every kind, and whose next one serves.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::stack::Stack;
use crate::testing::{A, B, B_V6, Pair};
use crate::time::Instant;
use crate::{Config, Error};

const NEW: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 99);

fn addressing(addr: impl Into<IpAddr>) -> Addressing {
    Addressing {
        addresses: vec![IpCidr::new(addr, 24)],
        mtu: 1_500,
        ..Addressing::default()
    }
}

/// All of it, a few places at a time; how many times it was asked.
fn end_all(stack: &mut Stack, now: Instant, budget: usize) -> usize {
    let (mut cursor, mut slices) = (0, 1);
    while let Some(next) = stack.end_homeless(now, cursor, budget) {
        cursor = next;
        slices += 1;
    }
    slices
}

#[test]
fn flows_of_an_address_that_is_gone_end_without_a_word() {
    let mut pair = Pair::new(&Config::default(), 1);
    let (_, open) = pair.open(40_000);
    let (_, reading) = pair.open(40_001);
    // One waits to be accepted, one is half through.
    pair.connect(40_002);
    pair.run_for(Duration::from_secs(1));
    pair.connect(40_003);
    pair.step();
    assert_eq!(
        (pair.b.stack.half_open(), pair.b.stack.connections()),
        (1, 3)
    );
    pair.b
        .stack
        .write(pair.now, open, b"not to be sent")
        .unwrap();
    pair.b.stack.wait_read(reading, Some(crate::Token(7)));

    pair.b.stack.readdress(addressing(NEW));
    let out_before = pair.b.stack.counters().segments_out;
    assert!(end_all(&mut pair.b.stack, pair.now, 2) > 1, "in slices");
    let mut buf = [0; 16];
    for conn in [open, reading] {
        let failed = pair.b.stack.read(pair.now, conn, &mut buf);
        assert_eq!(failed, Err(Error::NetworkUnreachable));
    }
    assert_eq!(
        pair.b.stack.pop_ready(),
        Some(crate::Token(7)),
        "who waits learns it"
    );
    assert_eq!(pair.b.stack.half_open(), 0);
    // Nothing leaves, and what comes for the old address is nobody's.
    let dropped = pair.b.stack.counters().dropped_address;
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.b.stack.counters().segments_out, out_before);
    assert!(pair.b.stack.counters().dropped_address > dropped);
    for conn in [open, reading] {
        pair.b.stack.close(pair.now, conn);
    }
    // The next address serves at once.
    let remote = SocketAddr::from((NEW, 80));
    let local = SocketAddr::from((A, 40_010));
    let again = pair.a.stack.connect(pair.now, local, remote).unwrap();
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.a.stack.is_connected(again), Ok(true));
    // The one that nobody had accepted ended as if its peer had reset it: who accepts it learns why.
    let (gone, peer) = pair.b.stack.accept(pair.listener).unwrap();
    assert_eq!(peer.port(), 40_002);
    let failed = pair.b.stack.read(pair.now, gone, &mut buf);
    assert_eq!(failed, Err(Error::NetworkUnreachable));
    let (_, peer) = pair.b.stack.accept(pair.listener).unwrap();
    assert_eq!(peer.port(), 40_010);
}

#[test]
fn flows_of_an_address_that_stays_live_on() {
    let mut pair = Pair::new(&Config::default(), 2);
    let (a, b) = pair.open(40_000);
    let mut more = addressing(NEW);
    more.addresses
        .extend([IpCidr::new(B, 24), IpCidr::new(B_V6, 64)]);
    more.gateway = Some(A);
    pair.b.stack.readdress(more);
    end_all(&mut pair.b.stack, pair.now, 1_000);
    assert_eq!(
        pair.b
            .stack
            .interface()
            .next_hop(IpAddr::from([198, 51, 100, 1])),
        IpAddr::V4(A)
    );
    pair.a.stack.write(pair.now, a, b"still there").unwrap();
    pair.run_for(Duration::from_secs(1));
    let mut buf = [0; 16];
    assert_eq!(pair.b.stack.read(pair.now, b, &mut buf), Ok(11));
}

#[test]
fn time_wait_goes_with_its_address() {
    let mut pair = Pair::new(&Config::default(), 3);
    let (a, b) = pair.open(40_000);
    pair.b.stack.close(pair.now, b);
    pair.run_for(Duration::from_millis(100));
    pair.a.stack.close(pair.now, a);
    pair.run_for(Duration::from_millis(100));
    assert_eq!(pair.b.stack.in_time_wait(), 1);
    pair.b.stack.readdress(addressing(NEW));
    end_all(&mut pair.b.stack, pair.now, 1_000);
    assert_eq!(
        (pair.b.stack.in_time_wait(), pair.b.stack.flows_held()),
        (0, 0)
    );
    // The other side is over by itself.
    pair.assert_clean();
}
