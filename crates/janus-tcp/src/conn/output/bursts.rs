//! Where a burst ends, the peer is told with PSH that nothing follows at once (RFC 9293 section 3.9.1.2 lets a sender
//! push wherever it likes). A receiver that gathers segments before it looks at them then does not wait for more, and one
//! that delays acknowledgements sees the end of a burst. As in Linux, where a burst is what is handed to the device
//! as one piece: about a millisecond's worth at the rate the congestion window allows, [`crate::Config::burst_least`] segments at least, half the
//! window at most; and a segment that leaves alone says nothing.

use janus_wire::tcp::Flags;
use janus_wire::{checksum, ipv4, ipv6};

use crate::conn::Conn;
use crate::store::flows::KeyRef;
use crate::wire::Wire;

/// The longest piece, in bytes.
const PIECE_MAX: u64 = 65_536;
/// A piece is what leaves in a second divided by two to this power.
const PIECE_SHIFT: u32 = 10;
/// Round trips below about two milliseconds allow longer pieces: the longest, halved for each so many microseconds
/// (as a power of two).
const NEAR_SHIFT: u32 = 9;
/// Where a TCP header has its flags, and the checksum that covers them.
const FLAGS_AT: usize = 13;
const CHECKSUM_AT: usize = 16;

/// New segments of one connection that leave one behind the other.
#[derive(Default)]
pub(crate) struct Burst {
    /// Segments of the piece so far.
    sent: u32,
    /// Segments that make a piece; 0 = not determined yet.
    piece: u32,
    /// Where the last one lies among the frames handed out, if it does.
    last: Option<usize>,
}

impl Burst {
    /// Segments have left since the last piece ended.
    #[inline(always)]
    pub(crate) fn is_begun(&self) -> bool {
        self.sent > 0
    }

    /// A segment has left; `last` says where it is. A short one ends the piece, as what follows does not belong to the
    /// same stretch of writing.
    #[inline(always)]
    pub(crate) fn sent(
        &mut self,
        conn: &Conn<'_>,
        last: Option<usize>,
        full: bool,
        wire: &mut Wire<'_>,
    ) {
        self.sent += 1;
        self.last = last;
        // One that leaves alone, as most answers do, need not know how long a piece is.
        if self.sent > 1 && full && self.piece == 0 {
            self.piece = conn.piece();
            if self.piece == 1 {
                // Then the one before was a piece of its own.
                self.sent = 1;
            }
        }
        if !full || self.piece > 0 && self.sent >= self.piece {
            self.end(conn, wire);
        }
    }

    /// Nothing more can be sent now.
    #[inline(always)]
    pub(crate) fn end(&mut self, conn: &Conn<'_>, wire: &mut Wire<'_>) {
        let last = self.last.take();
        let several = core::mem::take(&mut self.sent) > 1;
        if several && conn.rules.config().burst_least.is_some() {
            push_last(conn, last, wire);
        }
    }
}

/// Tells the peer that nothing follows the frame at `last` at once.
#[inline(never)]
fn push_last(conn: &Conn<'_>, last: Option<usize>, wire: &mut Wire<'_>) {
    let (link, summed) = (wire.envelope().link_len(), !wire.envelope().tx_checksum());
    let Some(frame) = last.and_then(|at| wire.frame_mut(at)) else {
        return;
    };
    let ip = match conn.key {
        KeyRef::V4(_) => ipv4::LEN,
        KeyRef::V6(_) => ipv6::LEN,
    };
    let tcp = usize::from(frame.buf.off()) + link + ip;
    push(&mut frame.buf.bytes_mut()[tcp..], summed);
}

/// Sets PSH in a written segment. The checksum is the device's, or is there already.
fn push(tcp: &mut [u8], summed: bool) {
    let old = u16::from_be_bytes([tcp[FLAGS_AT - 1], tcp[FLAGS_AT]]);
    let new = old | u16::from(Flags::PSH.0);
    tcp[FLAGS_AT] = new as u8;
    if summed {
        let field = u16::from_be_bytes([tcp[CHECKSUM_AT], tcp[CHECKSUM_AT + 1]]);
        let field = checksum::update(field, old, new);
        tcp[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&field.to_be_bytes());
    }
}

impl Conn<'_> {
    /// How many segments make a piece.
    #[inline(never)]
    fn piece(&self) -> u32 {
        let (cold, hot) = (&*self.tcb, &*self.hot);
        let srtt_us = u64::from(cold.srtt_us());
        let window = u64::from(hot.congestion.cwnd().max(hot.sender.pipe));
        // Twice the window a round trip while it grows fast, a fifth more than it afterwards.
        let fifths = if hot.congestion.cwnd() < hot.congestion.ssthresh() / 2 {
            10
        } else {
            6
        };
        let bytes = match (window * 1_000_000 / 5 * fifths).checked_div(srtt_us) {
            Some(rate) => {
                let near = PIECE_MAX.checked_shr((srtt_us >> NEAR_SHIFT).min(63) as u32);
                (rate >> PIECE_SHIFT) + near.unwrap_or(0)
            }
            None => PIECE_MAX,
        };
        let mss = u64::from(cold.payload_mss()).max(1);
        let worth = (bytes.min(PIECE_MAX) / mss) as u32;
        let half = u64::from(hot.congestion.cwnd()) / 2 / mss;
        worth
            .max(self.rules.config().burst_least.unwrap_or(0).into())
            .min((half as u32).max(1))
    }
}

#[cfg(test)]
mod tests;
