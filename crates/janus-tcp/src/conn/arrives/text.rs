//! The seventh and eighth check of section 3.10.7.4: text and FIN, in order or kept until they are.

use janus_mem::Frame;
use janus_wire::tcp::Flags;

use crate::conn::receive::sack_blocks::repeated_part;
use crate::conn::{Conn, Linger};
use crate::rules::profile::DEFAULT;
use crate::store::cold::{EndReason, NONE, State, flag};
use crate::store::hot::hot_flag;
use crate::store::reorder::Text;
use crate::wire::parse::Parsed;

/// Received payloads up to this size are copied behind the last one when they fit: a peer that sends single
/// bytes must not pin a packet buffer for each.
const COPY_BELOW: usize = 512;

impl Conn<'_> {
    /// Takes text and FIN.
    #[inline(always)]
    pub(super) fn text_arrives(&mut self, p: &Parsed, frame: &mut Option<Frame>) {
        let tcb = &*self.tcb;
        let fits = p.seq() == tcb.rcv_nxt && u32::from(p.payload_len()) <= tcb.receive_window();
        let in_order = fits
            && self.hot.receiver.reorder == NONE
            && tcb.state.can_receive()
            && (p.payload_len() == 0 || !self.nobody_reads());
        if !in_order {
            return self.text_out_of_order(p, frame);
        }
        let text = Text {
            seq: p.seq(),
            off: p.payload_off(),
            len: p.payload_len(),
        };
        if self.append(&text, frame) {
            self.received(p, &text, p.flags().contains(Flags::FIN));
        }
    }

    /// Like [`Conn::text_arrives`], for what is not simply the next, or has no reader.
    /// Keeps SHLD-3.
    #[inline(never)]
    fn text_out_of_order(&mut self, p: &Parsed, frame: &mut Option<Frame>) {
        let cold = &*self.tcb;
        if !cold.state.can_receive() {
            // The peer's FIN has been: only repeats can come, and they want the ACK again.
            if (p.seq() - cold.rcv_nxt) < 0 {
                self.acknowledge_repeated(repeated_part(cold, p));
            }
            return;
        }
        // A FIN in its place is not new data; one beyond a gap promises some.
        let is_new = (p.seq() + u32::from(p.payload_len()) - cold.rcv_nxt) > 0;
        if is_new && self.nobody_reads() {
            // No reader is left (RFC 1122 section 4.2.2.13). Data waiting beyond a gap would keep an orphan for ever.
            self.reset_reply(p);
            self.end(EndReason::Reset);
            return;
        }
        let (text, fin) = self.cut(p);
        let repeated = repeated_part(self.tcb, p);
        if text.len == 0 && !fin {
            self.acknowledge_repeated(repeated);
            return;
        }
        if text.seq != self.tcb.rcv_nxt || self.hot.receiver.reorder != NONE {
            self.text_meets_gap((p, text, fin), repeated, frame);
            return;
        }
        if !self.append(&text, frame) {
            return;
        }
        self.received(p, &text, fin);
        // The end of the peer's stream is acknowledged without a word on what came twice before it (as Linux: tcp_fin).
        if repeated.is_some() && !fin {
            self.acknowledge_repeated(repeated);
        }
    }

    /// The next of the peer's stream is here, and perhaps its end.
    #[inline(always)]
    fn received(&mut self, p: &Parsed, text: &Text, fin: bool) {
        self.tcb.rcv_nxt = text.end();
        if fin {
            self.fin_arrives();
        } else {
            self.owe_ack(p, u32::from(text.len));
        }
        self.wake_reader();
    }

    /// The owner has let go, or has shut both directions.
    #[inline(always)]
    fn nobody_reads(&self) -> bool {
        let cold = &*self.tcb;
        let read_shut = || {
            cold.profile != DEFAULT
                && cold.state != State::Established
                && self.rules.profiles().get(cold.profile).read_shut
        };
        cold.has(flag::ORPHAN) || read_shut()
    }

    /// Cuts off what was received before and what lies beyond the window. Says whether a FIN is left at its end.
    fn cut(&self, p: &Parsed) -> (Text, bool) {
        let cold = &*self.tcb;
        let mut fin = p.flags().contains(Flags::FIN);
        let mut text = Text {
            seq: p.seq(),
            off: p.payload_off(),
            len: p.payload_len(),
        };
        let old = (cold.rcv_nxt - text.seq).max(0) as u32;
        if old > 0 {
            fin &= old <= u32::from(text.len);
            let cut = old.min(u32::from(text.len)) as u16;
            text.off += cut;
            text.len -= cut;
            text.seq = cold.rcv_nxt;
        }
        let room = (cold.rcv_adv - text.seq).max(0) as u32;
        if u32::from(text.len) > room {
            text.len = room as u16;
            fin = false;
        }
        (text, fin)
    }

    /// In-order text joins what the application has not read. False when there is no place for it.
    #[inline(always)]
    pub(super) fn append(&mut self, text: &Text, frame: &mut Option<Frame>) -> bool {
        if text.len == 0 {
            return true;
        }
        let Some(arrived) = frame.take() else {
            return false;
        };
        let from = usize::from(text.off);
        if self.join_last(&arrived.buf.bytes()[from..from + usize::from(text.len)]) {
            self.blocks.pool.free(arrived.buf);
            return true;
        }
        if !self.may_keep_buffer() {
            self.env.counters.dropped_pressure += 1;
            self.hot.set(hot_flag::ACK_NOW);
            self.queue();
            self.blocks.pool.free(arrived.buf);
            return false;
        }
        let hot = &mut *self.hot;
        let place = (text.off, text.len);
        let inbox = &mut hot.receiver.inbox;
        match self.blocks.segments.append(inbox, arrived.buf, place, 0) {
            Ok(_) => true,
            Err(buf) => {
                self.env.counters.dropped_receive_full += 1;
                self.blocks.pool.free(buf);
                false
            }
        }
    }

    /// Copies a small payload behind the last unread one, when it fits there.
    fn join_last(&mut self, bytes: &[u8]) -> bool {
        let inbox = &mut self.hot.receiver.inbox;
        if inbox.tail.is_none() || bytes.len() > COPY_BELOW {
            return false;
        }
        let last = &mut self.blocks.segments[inbox.tail];
        let end = usize::from(last.off) + usize::from(last.len);
        let Some(place) = last
            .buf
            .as_mut()
            .and_then(|buf| buf.bytes_mut().get_mut(end..end + bytes.len()))
        else {
            return false;
        };
        place.copy_from_slice(bytes);
        last.len += bytes.len() as u16;
        inbox.bytes += bytes.len() as u32;
        true
    }

    /// Eighth, FIN: the peer sends no more.
    pub(super) fn fin_arrives(&mut self) {
        let cold = &mut *self.tcb;
        cold.rcv_nxt += 1u32;
        if (cold.rcv_adv - cold.rcv_nxt) < 0 {
            cold.rcv_adv = cold.rcv_nxt;
        }
        cold.set(flag::PEER_FIN);
        let state = cold.state;
        match state {
            State::Established => cold.state = State::CloseWait,
            State::FinWait1 => cold.state = State::Closing,
            _ => {}
        }
        if state == State::FinWait2 {
            self.answer_ack();
            self.linger(Linger::TimeWait);
        } else {
            self.acknowledge();
        }
    }
}
