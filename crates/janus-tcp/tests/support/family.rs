//! One test, both families: addresses are written as IPv4's, and in the test binary `over_v6`, or while [`over_both`] says
//! so, each stands for the IPv6 address that ends with it. So what is asserted of one family is asserted of both.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Of the network reserved for documentation.
const NETWORK: u128 = 0x2001_0db8 << 96;

/// The binary that runs the tests of others over IPv6.
const ALWAYS_V6: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"over_v6");

thread_local! {
    static V6: Cell<bool> = const { Cell::new(ALWAYS_V6) };
}

pub(crate) fn is_v6() -> bool {
    V6.get()
}

/// Runs a test over one family.
pub(crate) fn over<T>(v6: bool, test: impl FnOnce() -> T) -> T {
    V6.set(v6);
    let result = test();
    V6.set(ALWAYS_V6);
    result
}

/// Runs a test over IPv4, then over IPv6.
pub(crate) fn over_both(test: impl Fn()) {
    for v6 in [false, true] {
        over(v6, &test);
    }
}

pub(crate) fn v6_of(addr: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(NETWORK | u128::from(addr.to_bits()))
}

/// What the address stands for now.
pub(crate) fn addr(addr: Ipv4Addr) -> IpAddr {
    if !is_v6() {
        IpAddr::V4(addr)
    } else if addr.is_unspecified() {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V6(v6_of(addr))
    }
}

pub(crate) fn socket(ip: Ipv4Addr, port: u16) -> SocketAddr {
    SocketAddr::new(addr(ip), port)
}

/// The address that `addr` stands for.
pub(crate) fn back(addr: IpAddr) -> Ipv4Addr {
    match addr {
        IpAddr::V4(addr) => addr,
        IpAddr::V6(addr) => Ipv4Addr::from_bits(addr.to_bits() as u32),
    }
}
