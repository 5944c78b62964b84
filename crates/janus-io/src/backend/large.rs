//! Frames larger than a packet, for devices whose other side cuts and joins TCP segments: which of the frames that are sent
//! may leave as one ([`join`]), and how one that arrived is cut into those it was joined of ([`cut`]). Here only, where the
//! parts of a TCP segment begin in an Ethernet frame. Pure arithmetic over headers: nothing is sent, received or kept.

pub(crate) mod cut;
pub(crate) mod join;

use janus_wire::{ethernet, ipv4, ipv6, proto, tcp};

/// Extension headers of IPv6 that are walked.
const EXTENSIONS_MAX: usize = 8;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;

/// Offset of the flags in a TCP header.
pub(crate) const FLAGS_AT: usize = 13;

/// Where the parts of a TCP segment begin, from the beginning of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The IP header.
    pub(crate) ip: usize,
    /// The TCP header.
    pub(crate) tcp: usize,
    /// The payload, behind the TCP header.
    pub(crate) payload: usize,
    pub(crate) v6: bool,
}

/// Finds the parts of a whole, unfragmented TCP segment. `head` is the frame, or as much of its beginning as is at hand, with
/// all headers; how long the packet is, is not looked at.
#[inline]
pub(crate) fn layout(head: &[u8]) -> Option<Layout> {
    let (header, packet) = ethernet::Header::parse(head).ok()?;
    let ip = head.len() - packet.len();
    let (headers, v6) = match header.ethertype {
        ethernet::ethertype::IPV4 => (before_tcp_v4(packet)?, false),
        ethernet::ethertype::IPV6 => (before_tcp_v6(packet)?, true),
        _ => return None,
    };
    let tcp = ip + headers;
    let words = head.get(tcp..tcp + tcp::LEN)?[12] >> 4;
    let payload = tcp + usize::from(words) * 4;
    let fits = usize::from(words) * 4 >= tcp::LEN && payload <= head.len();
    fits.then_some(Layout {
        ip,
        tcp,
        payload,
        v6,
    })
}

/// Bytes of the IPv4 header before a segment.
#[inline]
fn before_tcp_v4(packet: &[u8]) -> Option<usize> {
    let h = packet.first_chunk::<{ ipv4::LEN }>()?;
    let len = usize::from(h[0] & 0x0f) * 4;
    let whole = u16::from_be_bytes([h[6], h[7]]) & 0x3fff == 0;
    (h[0] >> 4 == 4 && len >= ipv4::LEN && whole && h[9] == proto::TCP).then_some(len)
}

/// Bytes of the IPv6 headers before a segment. A fragment header is none that is walked.
#[inline]
fn before_tcp_v6(packet: &[u8]) -> Option<usize> {
    let h = packet.first_chunk::<{ ipv6::LEN }>()?;
    if h[0] >> 4 != 6 {
        return None;
    }
    let (mut next, mut at) = (h[6], ipv6::LEN);
    for _ in 0..=EXTENSIONS_MAX {
        match next {
            proto::TCP => return Some(at),
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let extension = packet.get(at..at + 2)?;
                next = extension[0];
                at += (usize::from(extension[1]) + 1) * 8;
            }
            _ => return None,
        }
    }
    None
}

/// How long the frame is that the IP header at `ip` begins, by its own word.
#[inline]
pub(crate) fn frame_len(head: &[u8], layout: &Layout) -> usize {
    let word = |at: usize| usize::from(u16::from_be_bytes([head[at], head[at + 1]]));
    match layout.v6 {
        false => layout.ip + word(layout.ip + 2),
        true => layout.ip + ipv6::LEN + word(layout.ip + 4),
    }
}

#[cfg(test)]
mod tests;
