//! Which ports of our addresses are ours, and how people write that. What the filter makes of it is `program.rs`.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::parse_error::ParseError;

/// Ports of each protocol; without any, all of an address is meant. As text: `80,443,8000-8080,53/udp`; what names no protocol
/// is TCP's.
///
/// ```
/// let ports: janus_io::xdp::Ports = "80,8000-8080,53/udp".parse().unwrap();
/// assert_eq!(ports.tcp, [80..=80, 8000..=8080]);
/// assert_eq!(ports.udp, [53..=53]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Ranges of TCP.
    pub tcp: Vec<RangeInclusive<u16>>,
    /// Ranges of UDP.
    pub udp: Vec<RangeInclusive<u16>>,
}

impl Ports {
    /// None are named: all are meant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ranges, of both protocols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tcp.len() + self.udp.len()
    }
}

impl FromStr for Ports {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Ports, ParseError> {
        let mut ports = Ports::default();
        for part in text.split(',') {
            let part = part.trim();
            let (numbers, protocol) = part.split_once('/').unwrap_or((part, "tcp"));
            let list = match protocol.trim() {
                "tcp" => &mut ports.tcp,
                "udp" => &mut ports.udp,
                _ => return Err(wrong(part)),
            };
            list.push(range(numbers).ok_or_else(|| wrong(part))?);
        }
        Ok(ports)
    }
}

fn wrong(part: &str) -> ParseError {
    ParseError::new(format!(
        "`{part}` is not a port, or a range like 8000-8080, of TCP or, with `/udp` behind it, of UDP"
    ))
}

/// A port, or the first and the last of several.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (0 < first && first <= last).then_some(first..=last)
}
