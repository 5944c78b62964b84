//! Names of connections that are carried, and of queues of them. The carrier's end of a pair is bound to one that holds the addresses, so that a
//! process that has the other end can ask the kernel for them, however it came by it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{OwnedFd, RawFd};

use rustix::net::{SocketAddrUnix, bind, getpeername};

use crate::kernel;

const CONNECTION: &[u8] = b"janus-connection/";
const LISTENER: &[u8] = b"janus-listener/";
/// Makes the name one of a kind: a number drawn by lot, and the process's.
const UNIQUE: usize = 12;
/// Family, address and port of one end.
const END: usize = 1 + 16 + 2;

/// Addresses of a connection: its own, and its peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// This side's.
    pub local: SocketAddr,
    /// The other side's.
    pub peer: SocketAddr,
}

impl Names {
    /// Names the carrier's end. Without a name nothing else is lost.
    pub(super) fn give(self, to: &OwnedFd) {
        give(CONNECTION, &[self.local, self.peer], to);
    }

    /// Those of the connection that this descriptor stands for, if it is one that is carried.
    pub fn of(fd: RawFd) -> Option<Names> {
        let told = told(fd, CONNECTION)?;
        let (local, peer) = told.split_at_checked(END)?;
        Some(Names {
            local: end(local)?,
            peer: end(peer)?,
        })
    }

    /// Names the giving end of a listener's queue.
    pub(super) fn give_listener(local: SocketAddr, to: &OwnedFd) {
        give(LISTENER, &[local], to);
    }

    /// The address of the listener from whose queue this descriptor takes, if it does.
    pub fn of_listener(fd: RawFd) -> Option<SocketAddr> {
        end(&told(fd, LISTENER)?)
    }
}

fn give(begin: &[u8], addresses: &[SocketAddr], to: &OwnedFd) {
    let mut name = begin.to_vec();
    let mut lot = [0; 8];
    let _ = rustix::rand::getrandom(&mut lot, rustix::rand::GetRandomFlags::empty());
    name.extend(lot);
    name.extend(std::process::id().to_ne_bytes());
    for address in addresses {
        name.push(if address.is_ipv4() { 4 } else { 6 });
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        name.extend(ip.octets());
        name.extend(address.port().to_be_bytes());
    }
    if let Ok(name) = SocketAddrUnix::new_abstract_name(&name) {
        let _ = bind(to, &name);
    }
}

/// The addresses in the name of the other end.
fn told(fd: RawFd, begin: &[u8]) -> Option<Vec<u8>> {
    let peer = getpeername(kernel::named(fd).ok()?).ok()??;
    let peer = SocketAddrUnix::try_from(peer).ok()?;
    let name = peer.abstract_name()?.strip_prefix(begin)?;
    Some(name.get(UNIQUE..)?.to_vec())
}

fn end(bytes: &[u8]) -> Option<SocketAddr> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn the_other_end_tells_the_names() {
        for (local, peer) in [
            ("192.0.2.1:80", "192.0.2.2:40000"),
            ("[2001:db8::1]:65535", "[2001:db8::2]:1"),
            ("[::ffff:192.0.2.1]:80", "[::ffff:192.0.2.2]:81"),
        ] {
            let names = Names {
                local: local.parse().unwrap(),
                peer: peer.parse().unwrap(),
            };
            let ends: Vec<_> = (0..2)
                .map(|_| super::super::pair(Some(names)).unwrap())
                .collect();
            for (theirs, ours) in &ends {
                assert_eq!(Names::of(theirs.as_raw_fd()), Some(names));
                assert_eq!(Names::of(ours.as_raw_fd()), None);
            }
        }
        let (theirs, _ours) = super::super::pair(None).unwrap();
        assert_eq!(Names::of(theirs.as_raw_fd()), None);
        assert_eq!(Names::of(-1), None);
    }
}
