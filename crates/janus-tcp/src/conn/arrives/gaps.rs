//! Text that meets a gap: what lies beyond one is kept, and what fills one takes along what waited behind it
//! (RFC 9293 section 3.10.7.4, SHLD-31). The store is `reorder`; what is said of it to the peer, `sack_blocks`.

use janus_mem::Frame;
use janus_wire::SeqNum;

use crate::conn::{Conn, effect};
use crate::store::cold::NONE;
use crate::store::hot::hot_flag;
use crate::store::pressure::Pressure;
use crate::store::reorder::Text;
use crate::wire::parse::Parsed;

/// Bytes of the receive buffer for which one packet buffer may wait beyond a gap: small texts are copied together, so
/// that a buffer holds this much unless it stands alone between two gaps.
const BYTES_PER_BUFFER: u32 = 1_024;
/// Packet buffers that may wait beyond a gap however small the receive buffer: about what Linux's initial one holds.
const LEAST_BUFFERS: u32 = 64;

impl Conn<'_> {
    /// Text for a connection that misses something, or will now. `fin`: a FIN stands at its end. `repeated`: what of
    /// it lay below what is expected.
    pub(super) fn text_meets_gap(
        &mut self,
        (p, mut text, fin): (&Parsed, Text, bool),
        repeated: Option<(SeqNum, SeqNum)>,
        frame: &mut Option<Frame>,
    ) {
        let Some(block) = self.reorder_block(text.len > 0 || fin) else {
            self.hot.set(hot_flag::ACK_NOW);
            self.queue();
            return;
        };
        let (reorders, mut memory) = self.blocks.reordering();
        if fin {
            reorders.note_fin(block, text.end(), &mut memory);
        }
        if let Some(end) = reorders.fin(block) {
            let left = (end - text.seq).max(0) as u32;
            text.len = left.min(u32::from(text.len)) as u16;
        }
        let in_order = text.seq == self.tcb.rcv_nxt;
        let mut twice = None;
        if let (Some(frame), true) = (frame.as_mut(), text.len > 0) {
            twice = reorders.fit(block, &mut text, frame, &mut memory);
        }
        if in_order {
            self.gap_filled((&text, p), frame);
        } else {
            self.keep_for_later(&text, frame);
        }
        self.settle_reordered();
        let repeated = repeated.or(twice);
        if repeated.is_some() {
            self.acknowledge_repeated(repeated);
        }
    }

    /// The block for what waits, made when something is to be kept.
    fn reorder_block(&mut self, keeps: bool) -> Option<u32> {
        let hot = &mut *self.hot;
        if hot.receiver.reorder == NONE && keeps {
            match self.blocks.reorders.attach(self.id) {
                Some(block) => hot.receiver.reorder = block,
                None => self.env.counters.dropped_reordered += 1,
            }
        }
        (hot.receiver.reorder != NONE).then_some(hot.receiver.reorder)
    }

    /// Text in order, and what waited for it.
    fn gap_filled(&mut self, (text, p): (&Text, &Parsed), frame: &mut Option<Frame>) {
        if !self.append(text, frame) {
            return;
        }
        let block = self.hot.receiver.reorder;
        let mut next = text.end();
        let (reorders, mut memory) = self.blocks.reordering();
        let inbox = &mut self.hot.receiver.inbox;
        if let Some(end) = reorders.deliver(block, next, inbox, &mut memory) {
            next = end;
        }
        self.tcb.rcv_nxt = next;
        self.data_came(p);
        self.hot.set(hot_flag::ACK_NOW);
        self.queue();
        if self.blocks.reorders.fin(block) == Some(next) {
            self.forget_reordered();
            self.fin_arrives();
        }
        self.wake_reader();
    }

    /// Text beyond a gap. The peer learns of it at once (RFC 5681 section 4.2).
    /// Keeps MAY-13, SHLD-31.
    fn keep_for_later(&mut self, text: &Text, frame: &mut Option<Frame>) {
        let block = self.hot.receiver.reorder;
        self.blocks.reorders.count(block);
        self.hot.set(hot_flag::ACK_NOW);
        self.queue();
        let Some(arrived) = frame.as_mut().filter(|_| text.len > 0) else {
            return;
        };
        let (reorders, mut memory) = self.blocks.reordering();
        let kept = reorders.join(block, text, arrived, &mut memory)
            || self.room_for_reordered(text) && self.keep_frame(block, text, frame);
        if kept {
            self.env.counters.reordered += 1;
            self.still_receives();
        } else {
            self.env.counters.dropped_reordered += 1;
        }
    }

    fn keep_frame(&mut self, block: u32, text: &Text, frame: &mut Option<Frame>) -> bool {
        let (reorders, mut memory) = self.blocks.reordering();
        let taken = frame.take();
        taken.is_some_and(|frame| reorders.keep(block, text, frame, &mut memory))
    }

    /// Makes room for one more packet buffer. At the connection's own bound what it holds highest goes; at that of all
    /// together, all of the connection that has waited longest. Nothing goes that was acknowledged, for that has left;
    /// what was only reported may (RFC 2018 section 8).
    fn room_for_reordered(&mut self, text: &Text) -> bool {
        if self.blocks.shortage.level == Pressure::Critical {
            self.env.counters.dropped_pressure += 1;
            return false;
        }
        let block = self.hot.receiver.reorder;
        // The window that was offered is honored, also when the block that knew how large the buffer has grown is gone.
        let offered = match self.blocks.shortage.level {
            Pressure::None => self.tcb.receive_window(),
            _ => 0,
        };
        let holds = self.view().receive_buffer().max(offered);
        let limit = holds / BYTES_PER_BUFFER + LEAST_BUFFERS;
        if self.blocks.reorders.has_room(block, limit) {
            return true;
        }
        if self.blocks.reorders.has_room(block, u32::MAX)
            || self.blocks.reorders.oldest() == Some(block)
        {
            let (reorders, mut memory) = self.blocks.reordering();
            let pruned = reorders.prune(block, text.seq, &mut memory);
            self.env.counters.reordered_pruned += u64::from(pruned);
        } else {
            self.env.counters.reordered_pruned += u64::from(self.blocks.prune_oldest());
            self.effects.add(effect::PRUNED);
        }
        self.blocks.reorders.has_room(block, limit)
    }

    /// Gives the block back when nothing waits in it.
    fn settle_reordered(&mut self) {
        let block = self.hot.receiver.reorder;
        if block != NONE && self.blocks.reorders.is_empty(block) {
            self.forget_reordered();
        }
    }

    /// Lets go of all that waits beyond a gap.
    pub(crate) fn forget_reordered(&mut self) {
        let block = core::mem::replace(&mut self.hot.receiver.reorder, NONE);
        if block != NONE {
            let (reorders, mut memory) = self.blocks.reordering();
            reorders.detach(block, &mut memory);
        }
    }
}
