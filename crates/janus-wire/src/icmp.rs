//! Parts that ICMP has in both families: the datagram that an error quotes, echoes, and the bytes of an error. Types, codes and
//! checksums are each family's own.

use crate::flow::FlowKeyOf;
use crate::{Malformed, Result, SeqNum, be16, be32, proto};

/// Bytes of every message's fixed part.
pub const LEN: usize = 8;

/// The datagram that an error speaks of, as far as it was sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote<A> {
    /// Source: our address, if the error is ours.
    pub src: A,
    /// Destination: the peer.
    pub dst: A,
    /// Protocol of the quoted datagram, behind its extension headers.
    pub proto: u8,
    /// First two bytes of its payload; a port in TCP and UDP.
    pub src_port: u16,
    /// Next two bytes.
    pub dst_port: u16,
    /// Next four bytes: TCP's sequence number, which RFC 5927 section 4 compares with the window.
    pub seq: SeqNum,
    /// Length of the datagram in bytes by its own header: what a router that names no MTU makes us guess from.
    pub total_len: u16,
}

impl<A: Copy> Quote<A> {
    /// Reads the first eight bytes of the payload, all that RFC 792 promises, which begin at `at` of `bytes`.
    pub(crate) fn of(
        ends: (A, A),
        proto: u8,
        total_len: u16,
        bytes: &[u8],
        at: usize,
    ) -> Result<Self> {
        let payload = bytes.get(at..).and_then(|b| b.first_chunk::<8>());
        let payload = payload.ok_or(Malformed::Truncated)?;
        Ok(Self {
            src: ends.0,
            dst: ends.1,
            proto,
            src_port: be16(payload, 0),
            dst_port: be16(payload, 2),
            seq: SeqNum(be32(payload, 4)),
            total_len,
        })
    }

    /// The TCP connection the quoted segment belongs to, as its sender (we) names it.
    #[inline]
    pub fn flow(&self) -> Option<FlowKeyOf<A>> {
        (self.proto == proto::TCP).then_some(FlowKeyOf {
            peer: self.dst,
            local: self.src,
            peer_port: self.dst_port,
            local_port: self.src_port,
        })
    }

    /// The port of the UDP socket that sent the quoted datagram.
    #[inline]
    pub fn socket(&self) -> Option<u16> {
        (self.proto == proto::UDP).then_some(self.src_port)
    }
}

/// Writes an echo at the start of `out`, all but the checksum, and returns its bytes.
pub(crate) fn put_echo<'o>(
    out: &'o mut [u8],
    kind: u8,
    ident: u16,
    sequence: u16,
    data: &[u8],
) -> &'o mut [u8] {
    let out = &mut out[..LEN + data.len()];
    out[..4].copy_from_slice(&[kind, 0, 0, 0]);
    out[4..6].copy_from_slice(&ident.to_be_bytes());
    out[6..8].copy_from_slice(&sequence.to_be_bytes());
    out[8..].copy_from_slice(data);
    out
}

/// Writes an error about `datagram` at the start of `out`, all but the checksum, and returns its bytes. At most `most` bytes are quoted.
pub(crate) fn put_error<'o>(
    out: &'o mut [u8],
    (kind, code): (u8, u8),
    word: u32,
    datagram: &[u8],
    most: usize,
) -> &'o mut [u8] {
    let room = out.len().checked_sub(LEN).expect("room for an ICMP header");
    let quoted = datagram.len().min(most).min(room);
    let out = &mut out[..LEN + quoted];
    out[..4].copy_from_slice(&[kind, code, 0, 0]);
    out[4..8].copy_from_slice(&word.to_be_bytes());
    out[8..].copy_from_slice(&datagram[..quoted]);
    out
}
