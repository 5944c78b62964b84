//! Ports that lead elsewhere are passed over, ports in use too, and the error says which it was; all are found, and none is foreseen.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use janus_wire::FlowKey;

use super::*;
use crate::Config;
use crate::DYNAMIC_FIRST;
use crate::rules::error::Error;
use crate::rules::profile::SocketOptions;
use crate::testing::{A, A_V6, B, B_V6, Pair, slot};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
const VICTIM: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

/// As a ring would: by a hash, a quarter of the ports.
fn ours(flow: &FlowKey) -> bool {
    assert!([A.into(), IpAddr::V6(A_V6)].contains(&flow.local()));
    u32::from(flow.local_port()).wrapping_mul(0x9e37_79b1) >> 30 == 3
}

/// Opens a connection to port 80 of `to`; the port it got.
fn connect(
    pair: &mut Pair,
    to: IpAddr,
    leads_here: impl FnMut(&FlowKey) -> bool,
) -> Result<u16, Error> {
    let any = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => IpAddr::V6(A_V6),
    };
    let (now, options) = (pair.now, SocketOptions::default());
    let remote = SocketAddr::new(to, 80);
    let stack = &mut pair.a.stack;
    let conn = stack.connect_from(now, any, remote, &options, leads_here)?;
    Ok(stack.store.tcbs.key(slot(conn)).local_port())
}

#[test]
fn a_free_port_that_leads_here() {
    for to in [IpAddr::V4(B), IpAddr::V6(B_V6)] {
        let mut pair = Pair::new(&Config::default(), 1);
        pair.v6 = to.is_ipv6();
        let first = connect(&mut pair, to, ours).expect("a port");
        let only = |port| move |flow: &FlowKey| flow.local_port() == port;
        assert_eq!(connect(&mut pair, to, only(first)), Err(Error::AddrInUse));
        let last = connect(&mut pair, to, only(u16::MAX));
        assert_eq!(last, Ok(u16::MAX));
        let before = pair.a.stack.counters().ports_elsewhere;
        let none = connect(&mut pair, to, |_| false);
        assert_eq!(none, Err(Error::NoSourcePort));
        let asked = pair.a.stack.counters().ports_elsewhere - before;
        assert_eq!(asked, u64::from(PortBlock::DYNAMIC.count));
        assert_eq!(pair.a.stack.connections(), 2);
    }
}

/// With a quarter of the ports ours, one in four is asked about in vain until they get scarce; the last one is found too.
#[test]
fn all_that_lead_here_are_found_and_few_others_are_asked_about() {
    let mut pair = Pair::new(&Config::default(), 1);
    let mut ports = BTreeSet::new();
    let mut asked = 0;
    for opened in 0..PortBlock::DYNAMIC.count / 4 - 100 {
        let leads_here = |flow: &FlowKey| {
            asked += 1;
            ours(flow)
        };
        let port = connect(&mut pair, SERVER, leads_here).expect("a port");
        assert!(port >= DYNAMIC_FIRST && ports.insert(port));
        if opened == 500 {
            assert!((3 * opened..5 * opened).contains(&asked), "{asked}");
        }
        pair.a.stack.transmit(pair.now, &mut Vec::new(), 64);
    }
    // Of how many a hash gives there are a few more or less.
    let end = loop {
        match connect(&mut pair, SERVER, ours) {
            Ok(port) => assert!(ports.insert(port)),
            Err(error) => break error,
        }
        pair.a.stack.transmit(pair.now, &mut Vec::new(), 64);
    };
    assert_eq!(end, Error::AddrInUse);
    let flow = |port| FlowKey::new(SocketAddr::new(SERVER, 80), SocketAddr::new(A.into(), port));
    let all = (DYNAMIC_FIRST..=u16::MAX).filter(|&port| ours(&flow(port).expect("one family")));
    assert!(ports.into_iter().eq(all));
    // To another port of the peer they are all free.
    assert!(connect(&mut pair, VICTIM, ours).is_ok());
}

/// RFC 6056 section 3.3: who sees the ports of connections to itself cannot foresee those to others, nor its own next.
#[test]
fn no_port_is_foreseen() {
    let (mut others, mut own) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..256 {
        let mut pair = Pair::new(&Config::default(), seed);
        let mut port = |to| connect(&mut pair, to, |_| true).expect("a port");
        let (seen, next) = (port(SERVER), port(SERVER));
        own.insert(next.wrapping_sub(seen));
        others.insert(port(VICTIM).wrapping_sub(next));
    }
    // Of 256 distances among 16,384, two are equal twice on average; half of the strides are never taken.
    assert!(others.len() > 240, "{others:?}");
    assert!(own.len() > 230, "{own:?}");
}

#[test]
fn other_errors_end_the_search() {
    let mut pair = Pair::new(&Config::default(), 1);
    let (now, options) = (pair.now, SocketOptions::default());
    let mut asked = 0;
    let mut from = |local: IpAddr, remote: IpAddr| {
        let remote = SocketAddr::new(remote, 80);
        let all = |_: &FlowKey| {
            asked += 1;
            true
        };
        let stack = &mut pair.a.stack;
        stack.connect_from(now, local, remote, &options, all)
    };
    let foreign = from(B.into(), B.into());
    assert_eq!(foreign, Err(Error::AddrNotAvailable));
    let group = from(A.into(), Ipv4Addr::new(224, 0, 0, 1).into());
    assert_eq!(group, Err(Error::InvalidAddress));
    assert_eq!(asked, 1);
}
