//! How a frame that several segments were joined into is cut again: how many there are, which part of the payload each has,
//! and its headers. The checksum of TCP stays what it was: whoever joins them vouches for the bytes.

use core::ops::Range;

use janus_wire::tcp::Flags;
use janus_wire::{checksum, ipv6};

use super::{FLAGS_AT, Layout, frame_len, layout};

/// The longest headers that are copied: of the link with two tags, of IP with all options, of TCP with all options.
pub(crate) const HEADERS_MAX: usize = 256;

/// Joined frame that is to be cut.
pub(crate) struct Cut {
    pub(crate) layout: Layout,
    /// Payload of each segment but the last.
    pub(crate) size: usize,
    /// Payload of all.
    total: usize,
    /// The headers as they came.
    headers: [u8; HEADERS_MAX],
}

impl Cut {
    /// A frame of `len` bytes that begins with `head`, to be cut into segments with `size` bytes of payload. `None` where that
    /// makes no sense.
    pub(crate) fn new(head: &[u8], len: usize, size: usize) -> Option<Cut> {
        let layout = layout(head)?;
        let total = len.checked_sub(layout.payload)?;
        let sound = size > 0 && total > 0 && layout.payload <= HEADERS_MAX;
        if !sound || frame_len(head, &layout) != len {
            return None;
        }
        let mut headers = [0; HEADERS_MAX];
        headers[..layout.payload].copy_from_slice(&head[..layout.payload]);
        Some(Cut {
            layout,
            size,
            total,
            headers,
        })
    }

    /// How many segments it makes.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.total.div_ceil(self.size)
    }

    /// The part of the payload that is the segment's.
    #[inline]
    pub(crate) fn part(&self, index: usize) -> Range<usize> {
        let from = index * self.size;
        from..self.total.min(from + self.size)
    }

    /// Bytes of the headers of each.
    #[inline]
    pub(crate) fn headers_len(&self) -> usize {
        self.layout.payload
    }

    /// Writes the headers of a segment at the beginning of `out`.
    pub(crate) fn write_headers(&self, index: usize, out: &mut [u8]) {
        let Layout {
            ip,
            tcp,
            payload,
            v6,
        } = self.layout;
        let out = &mut out[..payload];
        out.copy_from_slice(&self.headers[..payload]);
        let part = self.part(index);
        let word = |at: usize| u16::from_be_bytes([self.headers[at], self.headers[at + 1]]);
        let mut put = |at: usize, value: u16| out[at..at + 2].copy_from_slice(&value.to_be_bytes());
        if v6 {
            put(ip + 4, (payload - ip - ipv6::LEN + part.len()) as u16);
        } else {
            let len = (payload - ip + part.len()) as u16;
            let id = word(ip + 4).wrapping_add(index as u16);
            let field = checksum::update(word(ip + 10), word(ip + 2), len);
            put(ip + 2, len);
            put(ip + 4, id);
            put(ip + 10, checksum::update(field, word(ip + 4), id));
        }
        let sequence = u32::from(word(tcp + 4)) << 16 | u32::from(word(tcp + 6));
        let sequence = sequence.wrapping_add(part.start as u32);
        put(tcp + 4, (sequence >> 16) as u16);
        put(tcp + 6, sequence as u16);
        // PSH and FIN belong to the last segment; CWR, that the window was reduced, to the first (RFC 3168).
        let mut flags = Flags(self.headers[tcp + FLAGS_AT]);
        if part.end < self.total {
            flags = flags.without(Flags::PSH | Flags::FIN);
        }
        if index > 0 {
            flags = flags.without(Flags::CWR);
        }
        out[tcp + FLAGS_AT] = flags.0;
    }
}
