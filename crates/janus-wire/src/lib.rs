//! Frame formats, checksums and flow hashes: bytes in, plain values out, and back.
//!
//! Everything here is a pure function of its arguments. Nothing here keeps state, allocates per packet, knows a
//! connection, or reads a clock. No input can panic or loop longer than its own length; a frame that makes no sense is
//! a [`Malformed`] value.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod arp;
pub mod checksum;
pub mod classify;
pub mod dhcp;
pub mod ethernet;
pub mod flow;
mod flow_name;
pub mod icmp;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod seq;
pub mod siphash;
pub mod stamps;
pub mod table_hash;
pub mod tcp;
pub mod toeplitz;
pub mod udp;
pub mod usual;

use core::fmt;

pub use classify::{Class, Link, classify};
pub use ethernet::MacAddr;
pub use flow::{FlowKey, FlowKeyOf, FlowKeyV4, FlowKeyV6};
pub use flow_name::FlowNames;
pub use seq::SeqNum;
pub use stamps::{StampBase, Stamps};
pub use table_hash::TableHash;
pub use toeplitz::{MICROSOFT_KEY, Toeplitz};

/// Why bytes could not be read as the format they were offered as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Malformed {
    /// Fewer bytes than the fixed part of the header.
    Truncated,
    /// A version or hardware field names another protocol.
    Version,
    /// A length field contradicts the bytes that are there.
    Length,
    /// The checksum does not hold.
    Checksum,
    /// More nested headers than this parser is willing to walk.
    TooDeep,
    /// Asks to be routed on to another host.
    Routed,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "shorter than its fixed header",
            Self::Version => "version or type field names another protocol",
            Self::Length => "length field contradicts the bytes present",
            Self::Checksum => "checksum does not hold",
            Self::TooDeep => "more nested headers than are walked",
            Self::Routed => "asks to be routed on to another host",
        })
    }
}

impl core::error::Error for Malformed {}

/// Shorthand of this crate: every parser fails with [`Malformed`].
pub type Result<T> = core::result::Result<T, Malformed>;

/// IP protocol numbers that the stack knows.
pub mod proto {
    /// Internet Control Message Protocol.
    pub const ICMP: u8 = 1;
    /// Transmission Control Protocol.
    pub const TCP: u8 = 6;
    /// User Datagram Protocol.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
}

/// Two bytes at `at` in network order; the caller's array type proves that they are there.
#[inline(always)]
pub(crate) const fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes at `at` in network order.
#[inline(always)]
pub(crate) const fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
