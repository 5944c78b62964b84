//! ARP for IPv4 over Ethernet (RFC 826): one fixed packet of 28 bytes. The cache of answers lives in the stack.

use crate::ethernet::MacAddr;
use crate::{Malformed, Result, be16, be32};
use core::net::Ipv4Addr;

/// Bytes of a packet; a frame may carry padding behind it.
pub const LEN: usize = 28;

/// Operation: a request, a reply, or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Asks which host has the target address.
    Request,
    /// The sender has it.
    Reply,
    /// Anything else (RARP and the like); never answered.
    Other(u16),
}

impl Op {
    const fn from_wire(value: u16) -> Self {
        match value {
            1 => Self::Request,
            2 => Self::Reply,
            other => Self::Other(other),
        }
    }

    const fn to_wire(self) -> u16 {
        match self {
            Self::Request => 1,
            Self::Reply => 2,
            Self::Other(value) => value,
        }
    }
}

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Operation.
    pub op: Op,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// Protocol address of the sender.
    pub sender_ip: Ipv4Addr,
    /// Hardware address asked for, zero in a request.
    pub target_mac: MacAddr,
    /// Protocol address asked for.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Reads a packet; padding behind it is ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let p = bytes.first_chunk::<LEN>().ok_or(Malformed::Truncated)?;
        // Hardware type Ethernet, protocol type IPv4, address lengths 6 and 4.
        if be16(p, 0) != 1 || be16(p, 2) != crate::ethernet::ethertype::IPV4 {
            return Err(Malformed::Version);
        }
        if p[4] != 6 || p[5] != 4 {
            return Err(Malformed::Length);
        }
        Ok(Self {
            op: Op::from_wire(be16(p, 6)),
            sender_mac: MacAddr([p[8], p[9], p[10], p[11], p[12], p[13]]),
            sender_ip: Ipv4Addr::from_bits(be32(p, 14)),
            target_mac: MacAddr([p[18], p[19], p[20], p[21], p[22], p[23]]),
            target_ip: Ipv4Addr::from_bits(be32(p, 24)),
        })
    }

    /// Writes the packet at the start of `out` and returns [`LEN`].
    ///
    /// # Panics
    /// When `out` is shorter than [`LEN`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..LEN];
        out[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        out[6..8].copy_from_slice(&self.op.to_wire().to_be_bytes());
        out[8..14].copy_from_slice(&self.sender_mac.0);
        out[14..18].copy_from_slice(&self.sender_ip.octets());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..28].copy_from_slice(&self.target_ip.octets());
        LEN
    }

    /// The reply that tells the asker that `mac` has the address it asked for.
    pub const fn reply(&self, mac: MacAddr) -> Self {
        Self {
            op: Op::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: Packet = Packet {
        op: Op::Request,
        sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        sender_ip: Ipv4Addr::new(192, 0, 2, 1),
        target_mac: MacAddr::ZERO,
        target_ip: Ipv4Addr::new(192, 0, 2, 2),
    };

    #[test]
    fn goes_round_with_padding() {
        let mut bytes = [0xee; 46];
        assert_eq!(REQUEST.emit(&mut bytes), LEN);
        assert_eq!(Packet::parse(&bytes), Ok(REQUEST));
        assert_eq!(Packet::parse(&bytes[..27]), Err(Malformed::Truncated));
        bytes[4] = 8;
        assert_eq!(Packet::parse(&bytes), Err(Malformed::Length));
        bytes[0] = 9;
        assert_eq!(Packet::parse(&bytes), Err(Malformed::Version));
    }

    #[test]
    fn reply_swaps_the_ends() {
        let mac = MacAddr([2, 0, 0, 0, 0, 2]);
        let reply = REQUEST.reply(mac);
        assert_eq!(
            (reply.op, reply.sender_mac, reply.sender_ip),
            (Op::Reply, mac, REQUEST.target_ip)
        );
        assert_eq!(
            (reply.target_mac, reply.target_ip),
            (REQUEST.sender_mac, REQUEST.sender_ip)
        );
    }

    proptest! {
        #[test]
        fn whatever_parses_is_written_back_the_same(mut bytes: [u8; LEN], sane: bool) {
            if sane {
                bytes[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                let mut out = [0; LEN];
                packet.emit(&mut out);
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
