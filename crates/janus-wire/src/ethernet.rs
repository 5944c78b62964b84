//! Ethernet II headers. VLAN tags are skipped on the way in and never written.

use crate::{Malformed, Result, be16};
use core::fmt;

/// Bytes of an untagged header.
pub const LEN: usize = 14;
/// VLAN tags that are skipped before a frame counts as [`Malformed::TooDeep`]: one 802.1Q inside one 802.1ad.
pub const VLAN_TAGS_MAX: usize = 2;

/// EtherType values that the stack knows.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// 802.1Q VLAN tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag.
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// A hardware address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations of the link.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// No address known.
    pub const ZERO: Self = Self([0; 6]);

    /// Broadcast and multicast addresses have the group bit.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Returns the bytes behind the header of a frame that has no tag, carries IPv4, and is for one receiver.
#[inline(always)]
#[must_use]
pub fn ipv4_to_one(frame: &[u8]) -> Option<&[u8]> {
    to_one(frame, ethertype::IPV4)
}

/// Returns the bytes behind the header of a frame that has no tag, carries IPv6, and is for one receiver.
#[inline(always)]
#[must_use]
pub fn ipv6_to_one(frame: &[u8]) -> Option<&[u8]> {
    to_one(frame, ethertype::IPV6)
}

#[inline(always)]
fn to_one(frame: &[u8], ethertype: u16) -> Option<&[u8]> {
    let (h, packet) = frame.split_first_chunk::<LEN>()?;
    (be16(h, 12) == ethertype && h[0] & 1 == 0).then_some(packet)
}

/// An Ethernet II header, tags removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Receiver.
    pub dst: MacAddr,
    /// Sender.
    pub src: MacAddr,
    /// Protocol of the payload, see [`ethertype`].
    pub ethertype: u16,
}

impl Header {
    /// Reads the header; the second value is what follows it and its VLAN tags.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8])> {
        let (h, mut rest) = frame
            .split_first_chunk::<LEN>()
            .ok_or(Malformed::Truncated)?;
        let mut kind = be16(h, 12);
        let mut tags = 0;
        while kind == ethertype::VLAN || kind == ethertype::SERVICE_VLAN {
            if tags == VLAN_TAGS_MAX {
                return Err(Malformed::TooDeep);
            }
            tags += 1;
            let (tag, after) = rest.split_first_chunk::<4>().ok_or(Malformed::Truncated)?;
            kind = be16(tag, 2);
            rest = after;
        }
        let header = Self {
            dst: MacAddr([h[0], h[1], h[2], h[3], h[4], h[5]]),
            src: MacAddr([h[6], h[7], h[8], h[9], h[10], h[11]]),
            ethertype: kind,
        };
        Ok((header, rest))
    }

    /// The header as bytes, ready to be kept as a template.
    #[inline]
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        out[12..].copy_from_slice(&self.ethertype.to_be_bytes());
        out
    }

    /// Writes the header at the start of `out` and returns [`LEN`].
    ///
    /// # Panics
    /// When `out` is shorter than [`LEN`].
    #[inline]
    pub fn emit(self, out: &mut [u8]) -> usize {
        out[..LEN].copy_from_slice(&self.to_bytes());
        LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header = Header {
        dst: MacAddr([2, 0, 0, 0, 0, 1]),
        src: MacAddr([2, 0, 0, 0, 0, 2]),
        ethertype: ethertype::IPV4,
    };

    #[test]
    fn goes_round() {
        let mut frame = [0xaa; 20];
        assert_eq!(HEADER.emit(&mut frame), LEN);
        assert_eq!(Header::parse(&frame), Ok((HEADER, &[0xaa; 6][..])));
        assert_eq!(Header::parse(&frame[..13]), Err(Malformed::Truncated));
        assert_eq!(HEADER.dst.to_string(), "02:00:00:00:00:01");
        assert!(MacAddr::BROADCAST.is_group() && !HEADER.src.is_group());
    }

    #[test]
    fn two_vlan_tags_are_skipped_and_a_third_refused() {
        let mut frame = HEADER.to_bytes()[..12].to_vec();
        frame.extend([0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 8, 0x08, 0x00, 0x45]);
        assert_eq!(Header::parse(&frame), Ok((HEADER, &[0x45][..])));
        assert_eq!(Header::parse(&frame[..20]), Err(Malformed::Truncated));
        frame.splice(12..12, [0x81, 0x00, 0, 9]);
        assert_eq!(Header::parse(&frame), Err(Malformed::TooDeep));
    }

    proptest! {
        #[test]
        fn never_panics(frame in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::parse(&frame);
        }
    }
}
