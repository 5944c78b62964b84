//! The two families of a socket: which addresses it takes, and how it spells those of the other. A socket of AF_INET6
//! reaches IPv4 as `::ffff:a.b.c.d` (RFC 3493 section 3.7) unless IPV6_V6ONLY is on; the stack below knows no such
//! addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::errno::Errno;

/// Address family that a socket was made for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Family {
    pub(crate) v6: bool,
    /// IPV6_V6ONLY.
    pub(crate) v6_only: bool,
}

impl Family {
    /// The wildcard address.
    pub(crate) fn any(self) -> IpAddr {
        match self.v6 {
            false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// Converts the program's address to the stack's. `refused`: the error for a mapped address on a socket for IPv6
    /// only.
    pub(crate) fn inner(self, address: SocketAddr, refused: Errno) -> Result<SocketAddr, Errno> {
        match (self.v6, address) {
            (false, SocketAddr::V4(_)) => Ok(address),
            (true, SocketAddr::V6(at)) => match at.ip().to_ipv4_mapped() {
                Some(_) if self.v6_only => Err(refused),
                Some(ip) => Ok(SocketAddr::new(ip.into(), at.port())),
                None => Ok(SocketAddr::new(IpAddr::V6(*at.ip()), at.port())),
            },
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// Converts the stack's address to the program's.
    pub(crate) fn outer(self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(at) if self.v6 => {
                SocketAddr::new(at.ip().to_ipv6_mapped().into(), at.port())
            }
            _ => address,
        }
    }

    /// Whether a socket of this family at `own` stands where one of `other`'s would at `at`: one family and the same
    /// address or a wildcard, or the wildcard of both families beside any of IPv4 (inet_rcv_saddr_equal).
    pub(crate) fn overlaps(self, own: IpAddr, other: Family, at: IpAddr) -> bool {
        let takes_all = |family: Family, ip: IpAddr| {
            family.v6 && !family.v6_only && ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        };
        if own.is_ipv4() == at.is_ipv4() {
            own == at || own.is_unspecified() || at.is_unspecified()
        } else {
            takes_all(self, own) || takes_all(other, at)
        }
    }
}
