//! The four numbers that name a connection, seen from our end.

use core::net::{Ipv4Addr, Ipv6Addr};

/// A TCP connection over IPv4. `peer` is always the remote end, whichever way a packet travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKeyV4 {
    /// Address of the remote end.
    pub peer: Ipv4Addr,
    /// Our address.
    pub local: Ipv4Addr,
    /// Port of the remote end.
    pub peer_port: u16,
    /// Our port.
    pub local_port: u16,
}

/// The key of no flow: all zero, which no packet that gets anywhere has.
impl Default for FlowKeyV4 {
    fn default() -> Self {
        Self {
            peer: Ipv4Addr::UNSPECIFIED,
            local: Ipv4Addr::UNSPECIFIED,
            peer_port: 0,
            local_port: 0,
        }
    }
}

impl FlowKeyV4 {
    /// Both addresses, the peer's in the upper half.
    #[inline(always)]
    pub const fn addresses(&self) -> u64 {
        (self.peer.to_bits() as u64) << 32 | self.local.to_bits() as u64
    }

    /// Both ports, the peer's in the upper half.
    #[inline(always)]
    pub const fn ports(&self) -> u32 {
        (self.peer_port as u32) << 16 | self.local_port as u32
    }

    /// The same connection as the other end names it.
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

/// A TCP connection over IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKeyV6 {
    /// Address of the remote end.
    pub peer: Ipv6Addr,
    /// Our address.
    pub local: Ipv6Addr,
    /// Port of the remote end.
    pub peer_port: u16,
    /// Our port.
    pub local_port: u16,
}

impl FlowKeyV6 {
    /// Both ports, the peer's in the upper half.
    #[inline(always)]
    pub const fn ports(&self) -> u32 {
        (self.peer_port as u32) << 16 | self.local_port as u32
    }

    /// The same connection as the other end names it.
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

#[cfg(test)]
mod tests {
    use super::*;

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
