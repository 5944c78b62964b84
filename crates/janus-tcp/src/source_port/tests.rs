//! Ports that lead elsewhere are passed over, ports in use too, and the error says which it was.

use std::net::Ipv4Addr;

use super::*;
use crate::Config;
use crate::pair::{A, A_V6, B, B_V6, Pair};

/// As a ring would: by the whole tuple, a quarter of the ports.
fn ours(flow: &FlowKey) -> bool {
    assert!([A.into(), IpAddr::V6(A_V6)].contains(&flow.local()));
    flow.local_port() % 4 == 3
}

fn connect(pair: &mut Pair, ports: core::ops::Range<u16>) -> Result<u16, Error> {
    let (any, there) = match pair.v6 {
        false => (A.into(), IpAddr::V4(B)),
        true => (IpAddr::V6(A_V6), IpAddr::V6(B_V6)),
    };
    let any = if ports.start.is_multiple_of(2) {
        any
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let (now, options) = (pair.now, SocketOptions::default());
    let remote = SocketAddr::new(there, 80);
    let stack = &mut pair.a.stack;
    let conn = stack.connect_from(now, any, remote, &options, ports, ours)?;
    Ok(stack.cold.key(conn.index).local_port())
}

#[test]
fn the_first_free_port_that_leads_here() {
    for v6 in [false, true] {
        let mut pair = Pair::new(&Config::default(), 1);
        pair.v6 = v6;
        assert_eq!(connect(&mut pair, 40_000..40_100), Ok(40_003));
        assert_eq!(pair.a.stack.counters().ports_elsewhere, 3);
        assert_eq!(connect(&mut pair, 40_001..40_100), Ok(40_007));
        assert_eq!(connect(&mut pair, 40_000..40_008), Err(Error::AddrInUse));
        assert_eq!(connect(&mut pair, 40_008..40_011), Err(Error::NoSourcePort));
        assert_eq!(connect(&mut pair, 40_000..40_000), Err(Error::NoSourcePort));
        assert_eq!(pair.a.stack.connections(), 2);
    }
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
        stack.connect_from(now, local, remote, &options, 1..=u16::MAX, all)
    };
    let foreign = from(B.into(), B.into());
    assert_eq!(foreign, Err(Error::AddrNotAvailable));
    let group = from(A.into(), Ipv4Addr::new(224, 0, 0, 1).into());
    assert_eq!(group, Err(Error::InvalidAddress));
    assert_eq!(asked, 1);
}
