//! Addresses in the names of sockets of AF_UNIX, and in what is written about sockets for other programs.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of an address: family, address, port.
pub(crate) const ADDRESS: usize = 1 + 16 + 2;
/// Bytes that make a name one of a kind: a number drawn by lot, and the process's.
pub(crate) const UNIQUE: usize = 12;

/// A name that begins like this and that nothing else has.
pub(crate) fn unique(begin: &[u8]) -> Vec<u8> {
    let mut name = begin.to_vec();
    let mut lot = [0; 8];
    let _ = rustix::rand::getrandom(&mut lot, rustix::rand::GetRandomFlags::empty());
    name.extend(lot);
    name.extend(std::process::id().to_ne_bytes());
    name
}

pub(crate) fn put(text: &mut Vec<u8>, address: SocketAddr) {
    text.push(if address.is_ipv4() { 4 } else { 6 });
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    text.extend(ip.octets());
    text.extend(address.port().to_be_bytes());
}

pub(crate) fn get(bytes: &[u8]) -> Option<SocketAddr> {
    let (family, bytes) = bytes.split_first()?;
    let (ip, port) = bytes.split_first_chunk::<16>()?;
    let ip = Ipv6Addr::from(*ip);
    let ip = match family {
        4 => IpAddr::V4(ip.to_ipv4_mapped()?),
        _ => IpAddr::V6(ip),
    };
    Some(SocketAddr::new(
        ip,
        u16::from_be_bytes(port.try_into().ok()?),
    ))
}
