//! SACK blocks of outgoing acknowledgements: the blocks of RFC 2018 section 4, before them the stretch
//! that came twice (D-SACK, RFC 2883). They are read from the store whenever an acknowledgement is written, so that they
//! are always true. A pure acknowledgement has room for them; a segment with data carries them when it is short
//! enough, and else a pure one goes beside it.

use janus_wire::SeqNum;
use janus_wire::tcp::options::{LEN_MAX, SACK_BLOCKS_MAX, SackBlocks};
use janus_wire::tcp::{Flags, Options};

use crate::conn::Conn;
use crate::conn::receive::delayed_ack::acknowledged;
use crate::store::cold::{NONE, Tcb, flag};
use crate::wire::Wire;
use crate::wire::parse::Parsed;

/// Blocks that fit the options of a connection.
#[inline]
pub(crate) fn blocks_max(cold: &Tcb) -> u8 {
    let others = if cold.has(flag::TIMESTAMPS) { 12 } else { 0 };
    (((LEN_MAX - others - 4) / 8) as u8).min(SACK_BLOCKS_MAX as u8)
}

/// Part of a segment that has been acknowledged before, its FIN's number too (Linux: tcp_send_dupack).
#[inline]
pub(crate) fn repeated_part(cold: &Tcb, p: &Parsed) -> Option<(SeqNum, SeqNum)> {
    if p.seq().ge(cold.rcv_nxt) || p.space() == 0 || p.flags().contains(Flags::SYN) {
        return None;
    }
    Some((p.seq(), (p.seq() + p.space()).earlier(cold.rcv_nxt)))
}

/// Acknowledgements beside the first for one batch.
const MORE_ACKS_MAX: u8 = 16;

impl Conn<'_> {
    /// The blocks for the next acknowledgement.
    pub(crate) fn sack_blocks(&mut self) -> SackBlocks {
        self.blocks_after(SackBlocks::NONE)
    }

    /// Lets a segment with `len` bytes of data tell of what waits, if all of that fits beside them: the payload was cut
    /// before. False when it does not, and an acknowledgement of its own has to.
    #[inline]
    pub(crate) fn blocks_beside(&mut self, len: u16, options: &mut Options) -> bool {
        if self.hot.receiver.reorder == NONE {
            return true;
        }
        let sack = self.sack_blocks();
        let more = Options { sack, ..*options };
        let fits = more.emitted_len() + usize::from(len) <= usize::from(self.tcb.mss);
        if fits {
            *options = more;
        }
        fits
    }

    /// Keeps 2018-2.
    fn blocks_after(&mut self, mut blocks: SackBlocks) -> SackBlocks {
        let cold = &*self.tcb;
        if !cold.has(flag::SACK) {
            return blocks;
        }
        let (block, most) = (self.hot.receiver.reorder, usize::from(blocks_max(cold)));
        if block != NONE {
            self.blocks.reorders.report(block, |left, right| {
                blocks.push(left, right);
                blocks.len() < most
            });
        }
        blocks
    }

    /// Something came that was here already: the peer is told what (RFC 2883 section 4), which tells it that it need not
    /// have sent it.
    pub(crate) fn acknowledge_repeated(&mut self, repeated: Option<(SeqNum, SeqNum)>) {
        if repeated.is_some() {
            self.acknowledge_repeats_quickly();
        }
        if self.is_over() {
            return;
        }
        match repeated {
            Some(twice) if self.rules.config().dsack && self.tcb.has(flag::SACK) => {
                self.answer_repeated(twice);
            }
            _ => self.acknowledge(),
        }
    }

    /// Facts of a batch with gaps that one acknowledgement at the end of the turn cannot carry go into more before it: to a
    /// peer that reads SACK blocks, ranges that it could not name; to one that counts acknowledgements (RFC 5681 section
    /// 3.2), one for each segment. All of them say what holds after the batch (MUST-59).
    pub(crate) fn emit_untold(&mut self, wire: &mut Wire<'_>) {
        let (cold, block) = (&*self.tcb, self.hot.receiver.reorder);
        let (fresh, arrivals) = self.blocks.reorders.untold(block);
        let (permitted, most) = (cold.has(flag::SACK), blocks_max(cold));
        let wanted = if permitted {
            // Those that the last one names may not be the highest.
            if fresh > most {
                fresh.div_ceil(most)
            } else {
                0
            }
        } else {
            arrivals.saturating_sub(1)
        };
        let mut from = None;
        for _ in 0..wanted.min(MORE_ACKS_MAX) {
            if wire.room() <= 1 {
                return;
            }
            let mut blocks = SackBlocks::NONE;
            if permitted {
                from = self
                    .blocks
                    .reorders
                    .report_below(block, from, |left, right| {
                        blocks.push(left, right);
                        blocks.len() < usize::from(most)
                    });
            }
            self.emit_ack(blocks, wire);
        }
        self.blocks.reorders.told(block);
    }

    /// An acknowledgement before the end of the turn, which says what came twice.
    fn answer_repeated(&mut self, (left, right): (SeqNum, SeqNum)) {
        let mut first = SackBlocks::NONE;
        first.push(left, right);
        let segment = self.header_for();
        let segment = segment.with_sack(self.blocks_after(first));
        acknowledged(self.hot);
        self.answer(segment);
    }
}
