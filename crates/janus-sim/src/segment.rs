//! A TCP segment as a test sees it: every header field and the options exactly as they stand on the wire,
//! padding included, printed in packetdrill's syntax. Its codec is this crate's own, written from the RFCs and not
//! shared with the stack, so that a mistake in the stack's codec cannot hide from its tests.
//! What never lives here: any notion of a connection, of time, or of what a segment should look like.

use std::fmt;
use std::net::IpAddr;

mod codec;
#[cfg(test)]
mod tests;

pub use codec::{Damage, HEADER_LEN_MAX, PAYLOAD_MAX, decode, encode};

/// The control bits of RFC 9293 section 3.1, of RFC 3168 and of AccECN.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(pub u16);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push function.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement field is significant.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is significant.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo.
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced.
    pub const CWR: Flags = Flags(0x80);

    /// Accurate ECN's third bit; with CWR and ECE it is a counter there.
    pub const AE: Flags = Flags(0x100);

    /// Letters in the order in which they are printed; `.` stands for ACK.
    const LETTERS: [(Flags, char); 9] = [
        (Flags::FIN, 'F'),
        (Flags::SYN, 'S'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
        (Flags::AE, 'A'),
        (Flags::ACK, '.'),
    ];

    /// Returns the flags that encode a value of AccECN's ACE counter.
    pub const fn ace(counter: u8) -> Flags {
        Flags(((counter & 7) as u16) << 6)
    }

    /// The flag a script's letter stands for.
    pub fn from_letter(letter: char) -> Option<Flags> {
        Flags::LETTERS
            .iter()
            .find(|(_, l)| *l == letter)
            .map(|(flag, _)| *flag)
    }

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("-");
        }
        for (flag, letter) in Flags::LETTERS {
            if self.contains(flag) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

/// One TCP option, in the order and with the padding found on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TcpOption {
    /// End of option list (kind 0).
    Eol,
    /// Padding (kind 1).
    Nop,
    /// Maximum segment size (kind 2).
    Mss(u16),
    /// Window scale (kind 3).
    WindowScale(u8),
    /// SACK permitted (kind 4).
    SackPermitted,
    /// SACK blocks, left and right edges (kind 5).
    Sack(Vec<(u32, u32)>),
    /// Timestamps (kind 8).
    Timestamps {
        /// TSval.
        val: u32,
        /// TSecr.
        ecr: u32,
    },
    /// Any other kind, or a known one with a length its RFC does not give.
    Other {
        /// The option's kind.
        kind: u8,
        /// Bytes after kind and length.
        data: Vec<u8>,
    },
}

impl TcpOption {
    /// Bytes the option takes on the wire.
    pub fn wire_len(&self) -> usize {
        match self {
            TcpOption::Eol | TcpOption::Nop => 1,
            TcpOption::Mss(_) => 4,
            TcpOption::WindowScale(_) => 3,
            TcpOption::SackPermitted => 2,
            TcpOption::Sack(blocks) => 2 + 8 * blocks.len(),
            TcpOption::Timestamps { .. } => 10,
            TcpOption::Other { data, .. } => 2 + data.len(),
        }
    }
}

impl fmt::Display for TcpOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TcpOption::Eol => f.write_str("eol"),
            TcpOption::Nop => f.write_str("nop"),
            TcpOption::Mss(mss) => write!(f, "mss {mss}"),
            TcpOption::WindowScale(shift) => write!(f, "wscale {shift}"),
            TcpOption::SackPermitted => f.write_str("sackOK"),
            TcpOption::Sack(blocks) => {
                f.write_str("sack")?;
                blocks
                    .iter()
                    .try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            TcpOption::Timestamps { val, ecr } => write!(f, "TS val {val} ecr {ecr}"),
            TcpOption::Other { kind, data } => {
                match kind {
                    19 => f.write_str("md5 ")?,
                    34 => f.write_str("FO ")?,
                    _ => write!(f, "kind {kind} 0x")?,
                }
                data.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// Prints an option list between angle brackets; nothing at all for an empty one.
pub(crate) fn write_options(f: &mut fmt::Formatter<'_>, options: &[TcpOption]) -> fmt::Result {
    let Some((first, rest)) = options.split_first() else {
        return Ok(());
    };
    write!(f, " <{first}")?;
    rest.iter().try_for_each(|option| write!(f, ",{option}"))?;
    f.write_str(">")
}

/// A TCP segment inside an IP packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// IP source.
    pub source: IpAddr,
    /// IP destination.
    pub destination: IpAddr,
    /// The type-of-service byte: DSCP and ECN.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// IPv6's flow label; 0 over IPv4.
    pub flow_label: u32,
    /// TCP source port.
    pub source_port: u16,
    /// TCP destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number; meaningful with [`Flags::ACK`].
    pub ack: u32,
    /// Control bits.
    pub flags: Flags,
    /// The window field, unscaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// Options in wire order.
    pub options: Vec<TcpOption>,
    /// The data.
    pub payload: Vec<u8>,
}

impl Segment {
    /// The timestamps option, if there is one.
    pub fn timestamps(&self) -> Option<(u32, u32)> {
        self.options.iter().find_map(|option| match option {
            TcpOption::Timestamps { val, ecr } => Some((*val, *ecr)),
            _ => None,
        })
    }

    /// Sequence space taken: data, and one each for SYN and FIN (RFC 9293 section 3.4).
    pub fn sequence_len(&self) -> u32 {
        let phantom = |flag| u32::from(self.flags.contains(flag));
        self.payload.len() as u32 + phantom(Flags::SYN) + phantom(Flags::FIN)
    }
}

/// packetdrill's notation, without direction and time: `P. 1:1001(1000) ack 1 win 257 <nop,nop,TS val 1 ecr 2>`.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.payload.len();
        write!(
            f,
            "{} {}:{}({len})",
            self.flags,
            self.seq,
            self.seq.wrapping_add(len as u32)
        )?;
        if self.flags.contains(Flags::ACK) {
            write!(f, " ack {}", self.ack)?;
        }
        write!(f, " win {}", self.window)?;
        if self.flags.contains(Flags::URG) || self.urgent != 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        write_options(f, &self.options)
    }
}
