//! The four numbers that name a connection, seen from our end.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A TCP connection between addresses of one family. `peer` is always the remote end, whichever way a packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, align(4))]
pub struct FlowKeyOf<A> {
    /// Address of the remote end.
    pub peer: A,
    /// Our address.
    pub local: A,
    /// Port of the remote end.
    pub peer_port: u16,
    /// Our port.
    pub local_port: u16,
}

/// A TCP connection over IPv4.
pub type FlowKeyV4 = FlowKeyOf<Ipv4Addr>;

/// A TCP connection over IPv6.
pub type FlowKeyV6 = FlowKeyOf<Ipv6Addr>;

impl<A: Copy> FlowKeyOf<A> {
    /// Both ports, the peer's in the upper half.
    #[inline(always)]
    pub const fn ports(&self) -> u32 {
        (self.peer_port as u32) << 16 | self.local_port as u32
    }

    /// Returns the key of this connection as the other end names it.
    #[inline]
    pub const fn reversed(&self) -> Self {
        Self {
            peer: self.local,
            local: self.peer,
            peer_port: self.local_port,
            local_port: self.peer_port,
        }
    }
}

impl FlowKeyV4 {
    /// The key of no flow.
    pub const NONE: Self = Self {
        peer: Ipv4Addr::UNSPECIFIED,
        local: Ipv4Addr::UNSPECIFIED,
        peer_port: 0,
        local_port: 0,
    };

    /// Both addresses, the peer's in the upper half.
    #[inline(always)]
    pub const fn addresses(&self) -> u64 {
        (self.peer.to_bits() as u64) << 32 | self.local.to_bits() as u64
    }

    /// Whether it is the same connection: `==` in two comparisons of words as they lie in memory instead of four.
    #[inline(always)]
    pub const fn is(&self, other: &Self) -> bool {
        const fn ports(key: &FlowKeyV4) -> u32 {
            key.peer_port as u32 | (key.local_port as u32) << 16
        }
        self.addresses() == other.addresses() && ports(self) == ports(other)
    }
}

/// The key of no flow: all zero, which no packet that gets anywhere has.
impl Default for FlowKeyV4 {
    fn default() -> Self {
        Self::NONE
    }
}

/// The key of no flow, as that of IPv4.
impl Default for FlowKeyV6 {
    fn default() -> Self {
        Self {
            peer: Ipv6Addr::UNSPECIFIED,
            local: Ipv6Addr::UNSPECIFIED,
            peer_port: 0,
            local_port: 0,
        }
    }
}

/// A TCP connection of either family. Aligned so that a copy takes whole words.
#[repr(align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowKey {
    /// Over IPv4.
    V4(FlowKeyV4),
    /// Over IPv6.
    V6(FlowKeyV6),
}

impl FlowKey {
    /// The key of a connection between these ends; `None` when they are of different families.
    pub const fn new(peer: SocketAddr, local: SocketAddr) -> Option<Self> {
        let (peer_port, local_port) = (peer.port(), local.port());
        match (peer, local) {
            (SocketAddr::V4(peer), SocketAddr::V4(local)) => Some(Self::V4(FlowKeyV4 {
                peer: *peer.ip(),
                local: *local.ip(),
                peer_port,
                local_port,
            })),
            (SocketAddr::V6(peer), SocketAddr::V6(local)) => Some(Self::V6(FlowKeyV6 {
                peer: *peer.ip(),
                local: *local.ip(),
                peer_port,
                local_port,
            })),
            _ => None,
        }
    }

    /// Whether it is a connection over IPv6.
    #[inline(always)]
    pub const fn is_v6(&self) -> bool {
        matches!(self, Self::V6(_))
    }

    /// Address of the remote end.
    #[inline]
    pub const fn peer(&self) -> IpAddr {
        match self {
            Self::V4(key) => IpAddr::V4(key.peer),
            Self::V6(key) => IpAddr::V6(key.peer),
        }
    }

    /// Our address.
    #[inline]
    pub const fn local(&self) -> IpAddr {
        match self {
            Self::V4(key) => IpAddr::V4(key.local),
            Self::V6(key) => IpAddr::V6(key.local),
        }
    }

    /// Port of the remote end.
    #[inline]
    pub const fn peer_port(&self) -> u16 {
        match self {
            Self::V4(key) => key.peer_port,
            Self::V6(key) => key.peer_port,
        }
    }

    /// Our port.
    #[inline]
    pub const fn local_port(&self) -> u16 {
        match self {
            Self::V4(key) => key.local_port,
            Self::V6(key) => key.local_port,
        }
    }

    /// The remote end.
    #[inline]
    pub const fn peer_addr(&self) -> SocketAddr {
        SocketAddr::new(self.peer(), self.peer_port())
    }

    /// Our end.
    #[inline]
    pub const fn local_addr(&self) -> SocketAddr {
        SocketAddr::new(self.local(), self.local_port())
    }

    /// Returns the key of this connection as the other end names it.
    #[inline]
    pub const fn reversed(&self) -> Self {
        match self {
            Self::V4(key) => Self::V4(key.reversed()),
            Self::V6(key) => Self::V6(key.reversed()),
        }
    }
}

impl From<FlowKeyV4> for FlowKey {
    #[inline]
    fn from(key: FlowKeyV4) -> Self {
        Self::V4(key)
    }
}

impl From<FlowKeyV6> for FlowKey {
    #[inline]
    fn from(key: FlowKeyV6) -> Self {
        Self::V6(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_two_ends_of_one_family() {
        let v4 = |last, port| SocketAddr::new(Ipv4Addr::new(192, 0, 2, last).into(), port);
        let v6 = |last, port| {
            let addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            SocketAddr::new(addr.into(), port)
        };
        for (peer, local) in [(v4(1, 2), v4(3, 4)), (v6(1, 2), v6(3, 4))] {
            let key = FlowKey::new(peer, local).expect("one family");
            assert_eq!((key.peer_addr(), key.local_addr()), (peer, local));
            assert_eq!(FlowKey::new(local, peer), Some(key.reversed()));
            assert_eq!(key.is_v6(), peer.is_ipv6());
        }
        assert_eq!(FlowKey::new(v4(1, 2), v6(3, 4)), None);
    }

    #[test]
    fn reversing_twice_is_nothing() {
        let v4 = FlowKeyV4 {
            peer: Ipv4Addr::new(192, 0, 2, 1),
            local: Ipv4Addr::new(198, 51, 100, 2),
            peer_port: 40_000,
            local_port: 80,
        };
        assert_eq!(v4.reversed().reversed(), v4);
        assert_eq!(
            (v4.addresses(), v4.ports()),
            (0xc000_0201_c633_6402, 40_000 << 16 | 80)
        );
        let v6 = FlowKeyV6 {
            peer: Ipv6Addr::LOCALHOST,
            local: Ipv6Addr::UNSPECIFIED,
            peer_port: 1,
            local_port: 2,
        };
        assert_eq!(v6.reversed().reversed(), v6);
        assert_eq!(v6.reversed().ports(), 2 << 16 | 1);
    }
}
