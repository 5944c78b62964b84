//! Frames out: replies first, then what each connection in the output queue has to say, once per turn. So all
//! that arrived in a batch is acknowledged by one segment (MUST-58, MUST-59), and that segment is the
//! application's answer when it has one by then.

pub(crate) mod bursts;
mod fin;
pub(crate) mod given;
pub(crate) mod resend;
pub(crate) mod resize;
pub(crate) mod send_buffer;
pub(crate) mod write;

use core::time::Duration;

use janus_mem::{Frame, LENT};
use janus_wire::SeqNum;
use janus_wire::tcp::options::SackBlocks;
use janus_wire::tcp::{Flags, Options};

use crate::congestion::reno::DUP_THRESHOLD;
use crate::conn::loss::{ecn, window};
use crate::conn::output::bursts::Burst;
use crate::conn::receive::delayed_ack::acknowledged;
use crate::conn::{Conn, Flushed};
use crate::rules::profile::DEFAULT;
use crate::store::cold::{NONE, State, Tcb, flag};
use crate::store::hot::{Ending, Hot, TimerKind, hot_flag};
use crate::store::keys::{Key, SegId};
use crate::store::outgoing::Outgoing;
use crate::store::rto;
use crate::store::segment::seg_flag;
use crate::time::Instant;
use crate::wire::{Plain, Wire};

/// How long a cork keeps a small segment: so long, or a retransmission timeout if that is longer (as Linux, whose manual
/// names the first only).
const CORK_LEAST: Duration = Duration::from_millis(200);

/// Longer than any cork keeps anything.
const LONG_AGO_US: u32 = 1 << 31;

impl Conn<'_> {
    /// Sends what can be sent now, and sets the timers that go with it.
    #[inline(always)]
    pub(crate) fn turn(&mut self, wire: &mut Wire<'_>) {
        let sent_to = self.tcb.snd_nxt;
        if self.flush(wire) == Flushed::Part {
            self.queue();
        }
        if self.tcb.snd_nxt != sent_to && self.hot.timers.timer_kind != TimerKind::Reorder {
            self.arm_retransmission(false);
        }
        if self.hot.sender.writer != NONE {
            self.offer_room();
        }
    }

    /// [`Conn::turn`] for those who are in no hurry.
    #[inline(never)]
    pub(crate) fn turn_apart(&mut self, wire: &mut Wire<'_>) {
        self.turn(wire);
    }

    /// All that one connection has to send now: nearly always new data, which acknowledges too, or an acknowledgement.
    #[inline(always)]
    fn flush(&mut self, wire: &mut Wire<'_>) -> Flushed {
        let (tcb, hot) = (&*self.tcb, &*self.hot);
        let usual = !hot.has(hot_flag::SYN | hot_flag::LOSSES | hot_flag::PROBE)
            && hot.loss.recovery.is_none()
            && tcb.state != State::Closed
            && !tcb.has(flag::FIN_QUEUED)
            && !tcb.owes_timeout();
        if !usual {
            return self.flush_all(wire);
        }
        if self.send_new(wire) == Flushed::Part {
            return Flushed::Part;
        }
        match self.hot.has(hot_flag::ACK_NOW) {
            true => self.flush_ack(wire),
            false => Flushed::All,
        }
    }

    /// Like [`Conn::flush`], with all that may be to say.
    #[inline(never)]
    fn flush_all(&mut self, wire: &mut Wire<'_>) -> Flushed {
        if self.hot.has(hot_flag::SYN) {
            self.send_syn();
            return Flushed::All;
        }
        if self.tcb.state == State::Closed {
            // The segment that ended it may have asked for an answer too (a mark that was answered, a repeat). What was
            // to be said has been said in its place; a wish that stays would keep the block for ever. An urgent mark in what is
            // unread is no wish.
            self.hot.flags &= hot_flag::QUEUED | hot_flag::STARVED | hot_flag::URGENT;
            return Flushed::All;
        }
        let opening = self.tcb.state == State::SynReceived;
        if self.tcb.has(flag::FIN_QUEUED) && !opening {
            self.queue_fin();
        }
        let new_first = self.hot.has(hot_flag::LOSSES) && self.new_goes_first();
        if self.hot.has(hot_flag::LOSSES) && !new_first && self.resend_lost(wire) == Flushed::Part {
            return Flushed::Part;
        }
        if self.has_probe_due() && self.send_probe(wire) == Flushed::Part {
            return Flushed::Part;
        }
        if self.tcb.owes_timeout() && self.timeout_needs_ack() {
            if wire.is_full() {
                return Flushed::Part;
            }
            let sack = self.sack_blocks();
            self.emit_ack(sack, wire);
        }
        if self.send_new_apart(wire) == Flushed::Part {
            return Flushed::Part;
        }
        if new_first && self.new_stayed() && self.resend_lost(wire) == Flushed::Part {
            return Flushed::Part;
        }
        if self.hot.has(hot_flag::PROBE) {
            self.probe();
        }
        match self.hot.has(hot_flag::ACK_NOW) {
            true => self.flush_ack(wire),
            false => Flushed::All,
        }
    }

    /// An acknowledgement that is owed, if no segment has brought it.
    #[inline(never)]
    fn flush_ack(&mut self, wire: &mut Wire<'_>) -> Flushed {
        if wire.is_full() {
            return Flushed::Part;
        }
        if self.hot.receiver.reorder != NONE {
            self.emit_untold(wire);
        }
        let sack = self.sack_blocks();
        self.emit_ack(sack, wire);
        Flushed::All
    }

    /// The SYN, or the SYN-ACK of a simultaneous open.
    /// Keeps 2018-1, 3168-12, SHLD-5.
    fn send_syn(&mut self) {
        let window = self.rules.first_window(self.tcb.profile);
        let mss = self
            .rules
            .largest_segment(&self.key.get(), self.tcb.profile);
        let scale = self.rules.window_scale(self.tcb.profile);
        let user_timeout = self
            .rules
            .timeout_in_syn(self.tcb.profile, self.hot.timers.retries);
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        hot.clear(hot_flag::SYN);
        let answering = cold.state == State::SynReceived;
        let key = self.key.get();
        let echo = if answering { cold.ts_recent } else { 0 };
        let timestamps = if answering {
            cold.has(flag::TIMESTAMPS)
        } else {
            self.rules.config().timestamps
        };
        let sack_permitted = if answering {
            cold.has(flag::SACK)
        } else {
            self.rules.config().sack
        };
        let scaled = if answering {
            cold.scales != 0
        } else {
            self.rules.config().window_scaling
        };
        hot.timers.rtt_off_max = self.env.now_us;
        if hot.timers.due_at == Instant::NEVER {
            hot.timers.due_at =
                self.env.now + rto::timeout(cold, self.rules.waits(), hot.timers.backoff);
            hot.timers.timer_kind = TimerKind::Rto;
        }
        let ack = if answering { cold.rcv_nxt } else { SeqNum(0) };
        let flags = if answering {
            Flags::SYN | Flags::ACK | ecn::syn_ack_flags(cold.flags)
        } else {
            Flags::SYN | ecn::syn_flags(self.rules.config(), hot.timers.retries)
        };
        let options = Options {
            mss: Some(mss),
            window_scale: scaled.then_some(scale),
            timestamps: timestamps.then(|| {
                (
                    self.rules.timestamp(hot.timers.stamps, self.env.now_ms),
                    echo,
                )
            }),
            sack_permitted,
            user_timeout,
            ..Options::NONE
        };
        let numbers = (cold.snd_nxt + u32::MAX, ack);
        let segment = Outgoing::new(key, numbers, flags, window, options, cold.profile);
        if answering {
            hot.clear(hot_flag::ACK_NOW);
        }
        self.answer(segment);
    }

    /// New segments, as the peer's window, the congestion window and Nagle's algorithm let them.
    /// Keeps 6675-5.
    #[inline(always)]
    fn send_new(&mut self, wire: &mut Wire<'_>) -> Flushed {
        let mut burst = Burst::default();
        let done = loop {
            let at = self.hot.sender.unsent.head;
            if at.is_none() {
                break Flushed::All;
            }
            let mut mss = self.tcb.payload_mss();
            let seg = &self.blocks.segments[at];
            if seg.len > mss {
                if !self.cut_before_send(at) {
                    break Flushed::All;
                }
                mss = self.tcb.payload_mss();
            }
            if !self.may_send(at, mss) {
                break Flushed::All;
            }
            if wire.is_full() {
                break Flushed::Part;
            }
            let before = wire.sent();
            let full = self.send_first_unsent(mss, wire);
            // A short one that leaves alone is no burst.
            if full || burst.is_begun() {
                let last = (wire.sent() > before).then_some(before);
                burst.sent(self, last, full, wire);
            }
        };
        burst.end(self, wire);
        done
    }

    /// [`Conn::send_new`] for those who are in no hurry.
    #[inline(never)]
    fn send_new_apart(&mut self, wire: &mut Wire<'_>) -> Flushed {
        self.send_new(wire)
    }

    /// The first unsent segment is sent. Returns whether it is a full one, of `mss` bytes.
    #[inline(always)]
    pub(crate) fn send_first_unsent(&mut self, mss: u16, wire: &mut Wire<'_>) -> bool {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        if hot.sender.flight.is_empty() {
            window::on_start(hot, cold, self.rules.config(), self.env.now_ms);
        }
        let sender = &mut hot.sender;
        let moved = self
            .blocks
            .segments
            .move_front(&mut sender.unsent, &mut sender.flight);
        let Some((at, seg)) = moved else {
            return false;
        };
        seg.seq = cold.snd_nxt;
        cold.snd_nxt = seg.end();
        hot.sender.pipe += u32::from(seg.len);
        let len = seg.len;
        if len < mss {
            hot.sender.small_end = cold.snd_nxt;
        } else if len > mss {
            hot.probe_leaves(cold.snd_nxt);
        }
        if hot.has(hot_flag::RECOVERY) && hot.loss.recovery.is_some() {
            let rec = &mut self.blocks.recovery[hot.loss.recovery];
            rec.prr_out = rec.prr_out.saturating_add(u32::from(len));
        }
        self.send_segment(Some(at), wire);
        len >= mss
    }

    /// The sender's side of silly-window avoidance (MUST-38), Nagle (SHLD-7), and both windows. Starts the
    /// persist timer when only the peer's window holds the segment back (MUST-36). Nagle's algorithm is
    /// Minshall's variant (RFC 9293 appendix A.3): a small segment waits for a small one only, so that the end
    /// of a large write does not wait for a delayed acknowledgement.
    /// Keeps 5681-1, 5681-2, 7323-10, 7323-12, MUST-34, MUST-38, MUST-60, SHLD-15, SHLD-29, SHLD-7.
    #[inline(always)]
    fn may_send(&mut self, at: Option<SegId>, mss: u16) -> bool {
        let urgent = self.sends_urgent();
        let (cold, seg) = (&*self.tcb, &self.blocks.segments[at]);
        let (len, last, followed) = (seg.len, seg.has(seg_flag::FIN), seg.next.is_some());
        let hot = &mut *self.hot;
        let usable = hot.usable_window(cold);
        // A FIN alone is outside a window that has no room at all.
        let least = u32::from(len.max(1));
        if least > usable {
            // To a peer whose window was never as large as two segments, what half of it holds counts as a full
            // segment (section 3.8.6.2.1, the second rule).
            if usable > 0 && usable >= hot.sender.max_snd_wnd / 2 {
                return self.cut_unsent(at, usable as u16);
            }
            self.persist();
            return false;
        }
        let beyond =
            hot.sender.pipe > 0 && hot.sender.pipe + u32::from(len) > hot.congestion.cwnd();
        if beyond
            && hot.sender.pipe + u32::from(len) > hot.congestion.cwnd() + limited_transmit(mss, hot)
        {
            return false;
        }
        let full = len >= mss;
        let small_in_flight = hot.sender.small_end.gt(hot.sender.snd_una);
        // A segment with another behind it can grow no more (tcp_write_xmit asks only the last).
        if full || last || urgent || followed || hot.sender.ending == Ending::Push {
            return true;
        }
        if hot.sender.ending == Ending::More {
            return self.corked_long_enough(at);
        }
        if cold.profile != DEFAULT && self.rules.profiles().get(cold.profile).cork {
            return self.corked_long_enough(at);
        }
        cold.has(flag::NODELAY) || hot.sender.flight.is_empty() || !small_in_flight
    }

    /// A small segment under a cork waits for more, but not for ever (Linux: 200 ms).
    /// Keeps MAY-16.
    fn corked_long_enough(&mut self, at: Option<SegId>) -> bool {
        let most = rto::timeout(self.tcb, self.rules.waits(), 0).max(CORK_LEAST);
        let now_us = self.env.now_us;
        let seg = &mut self.blocks.segments[at];
        if !seg.has(seg_flag::CORKED) {
            // Until it is sent this is when it was found to wait.
            seg.sent_us = now_us;
            seg.flags |= seg_flag::CORKED;
        }
        let waited = Duration::from_micros(now_us.wrapping_sub(seg.sent_us).into());
        if waited >= most {
            seg.flags &= !seg_flag::CORKED;
            // A segment that a timer releases is to be passed on (tcp_write_wakeup).
            seg.flags |= seg_flag::PSH;
            return true;
        }
        let hot = &mut *self.hot;
        if hot.sender.flight.is_empty() && hot.timers.due_at == Instant::NEVER {
            hot.timers.due_at = self.env.now + (most - waited);
        }
        false
    }

    /// A corked segment has waited long enough: switching Nagle's algorithm off pushes it (tcp(7)), though what is
    /// written later waits again.
    pub(crate) fn cork_is_over(&mut self) {
        let tail = self.hot.sender.unsent.tail;
        if tail.is_some() {
            let seg = &mut self.blocks.segments[tail];
            seg.sent_us = self.env.now_us.wrapping_sub(LONG_AGO_US);
            seg.flags |= seg_flag::CORKED;
        }
    }

    /// Hands a segment of `flight` out.
    /// Keeps 3168-14, 3168-15, 3168-2, 3168-3, 3168-9, 8985-8.
    #[inline(always)]
    pub(crate) fn send_segment(&mut self, at: Option<SegId>, wire: &mut Wire<'_>) {
        let rare = self.hot.receiver.reorder != NONE
            || self.hot.has(hot_flag::URGENT)
            || self.tcb.owes_timeout();
        let rare = rare.then(|| self.header_with_more(at));
        let window = match &rare {
            Some((header, _)) => header.window,
            None => self.window_to_offer(),
        };
        let now_us = self.env.now_us;
        let tcb = &mut *self.tcb;
        let seg = &mut self.blocks.segments[at];
        let Some(mut buf) = seg.buf.take() else {
            return;
        };
        let (off, len) = (seg.off, seg.len);
        let mut flags = Flags::ACK | tcb.ece();
        if seg.has(seg_flag::PSH) {
            flags |= Flags::PSH;
        }
        if seg.has(seg_flag::FIN) {
            flags |= Flags::FIN;
        }
        seg.sent_us = now_us;
        // Only new data may be marked: not what is sent again, nor what is empty (RFC 3168 sections 6.1.4 and 6.1.5).
        let may_be_marked = tcb.has(flag::ECN) && len > 0 && !seg.has(seg_flag::RESENT);
        seg.flags = (seg.flags | seg_flag::AWAY) & !seg_flag::LOST;
        if may_be_marked && self.hot.congestion.take_cwr() {
            flags |= Flags::CWR;
        }
        let (mut told, seq) = (true, seg.seq);
        let frame_len = match rare {
            None => {
                let timestamps = tcb.has(flag::TIMESTAMPS).then(|| {
                    let stamp = self
                        .rules
                        .timestamp(self.hot.timers.stamps, self.env.now_ms);
                    (stamp, tcb.ts_recent)
                });
                let plain = Plain::new((seq, tcb.rcv_nxt), flags, window, timestamps);
                let flow = (self.key, wire.label());
                wire.envelope()
                    .write_plain(&mut buf, (off, len), flow, plain)
            }
            Some((mut header, all_told)) => {
                told = all_told;
                header.carry(seq, flags);
                if self.hot.has(hot_flag::URGENT) {
                    self.point_at_urgent(&mut header);
                }
                wire.envelope()
                    .write(&mut buf, (off, len), &header, wire.label())
            }
        };
        if may_be_marked {
            let from = usize::from(buf.off()) + wire.envelope().link_len();
            ecn::set_capable(&mut buf.bytes_mut()[from..]);
        }
        self.env.counters.segments_out += 1;
        self.note_answer();
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        window::on_sent(hot, cold);
        if told {
            acknowledged(hot);
        }
        let mut frame = Frame::new(buf, frame_len);
        frame.tag = LENT;
        frame.key = SegId::number(at);
        wire.push(frame);
    }

    /// The header of a segment that may have more options than timestamps, and whether it tells of all that was received.
    #[inline(never)]
    fn header_with_more(&mut self, at: Option<SegId>) -> (Outgoing, bool) {
        let mut header = self.header_for();
        let len = self.blocks.segments[at].len;
        let told = self.blocks_beside(len, &mut header.options);
        if self.tcb.owes_timeout() {
            self.add_uto_option(len, &mut header.options);
        }
        (header, told)
    }

    /// Keeps 5681-21.
    pub(crate) fn emit_ack(&mut self, sack: SackBlocks, wire: &mut Wire<'_>) {
        let mut segment = self.header_for().with_sack(sack);
        if self.tcb.owes_timeout() {
            self.add_uto_option(0, &mut segment.options);
        }
        if self.hot.has(hot_flag::URGENT) {
            self.point_at_urgent(&mut segment);
        }
        if !wire.send_bare(&mut self.blocks.pool, &segment) {
            self.env.counters.dropped_no_buffer += 1;
            self.hot.clear(hot_flag::ACK_NOW);
            return;
        }
        self.env.counters.segments_out += 1;
        acknowledged(self.hot);
    }

    /// A window probe: an old sequence number, so that the peer must answer with where it is; or, when the
    /// window is open but too small for the segment, as much of the segment as fits.
    /// Keeps 3168-16, MUST-36.
    fn probe(&mut self) {
        self.hot.clear(hot_flag::PROBE);
        let window = self.tcb.snd_wnd();
        let head = self.hot.sender.unsent.head;
        let too_small =
            head.is_some() && window > 0 && window < u32::from(self.blocks.segments[head].len);
        // Without a buffer for the rest, the peer is asked all the same whether it is there.
        if too_small && self.cut_unsent(head, window as u16) {
            // The peer is to do with it what it can: more will not come before it has.
            self.blocks.segments[head].flags |= seg_flag::PSH;
            self.queue();
            return;
        }
        let mut segment = self.header_for();
        if self.hot.has(hot_flag::URGENT) {
            // One in its place, so that the peer heeds the pointer though its window is shut (Linux: tcp_write_wakeup).
            self.point_at_urgent(&mut segment);
            if let Some(ahead) = segment.urgent() {
                self.answer(segment.clone());
                segment.point_at(ahead.saturating_add(1));
            }
        }
        segment.seq = self.hot.sender.snd_una + u32::MAX;
        self.answer(segment);
    }

    /// A pure acknowledgement from where the connection stands, with the window as it was last offered.
    pub(crate) fn ack_as_offered(&self) -> Outgoing {
        let stamp = || self.timestamp();
        Outgoing::ack_with(self.tcb.window_field(), self.key.get(), self.tcb, stamp)
    }

    /// A pure acknowledgement from where the connection stands; data segments change what they need.
    #[inline(always)]
    pub(crate) fn header_for(&mut self) -> Outgoing {
        let window = self.window_to_offer();
        let stamp = || self.timestamp();
        Outgoing::ack_with(window, self.key.get(), self.tcb, stamp)
    }

    /// The window to offer now, as the header spells it. It is offered from then on.
    #[inline(always)]
    fn window_to_offer(&mut self) -> u16 {
        let (held, buffer) = (self.hot.receiver.inbox.bytes, self.view().receive_buffer());
        offer_window(self.tcb, held, buffer)
    }
}

/// Limited transmit (RFC 3042): the first two duplicate acknowledgements let out a new segment each, beyond the
/// congestion window. Where the peer SACKs, what it SACKs has left the pipe, which comes to the same.
/// Keeps 5681-12.
#[inline]
fn limited_transmit(mss: u16, hot: &Hot) -> u32 {
    if hot.has(hot_flag::RECOVERY) || hot.dup_acks >= DUP_THRESHOLD {
        return 0;
    }
    u32::from(hot.dup_acks) * u32::from(mss)
}

/// The window to offer, as the header spells it. Never takes back what was offered (SHLD-14), and moves only
/// in steps worth a segment (MUST-39).
/// Keeps 7323-11, 7323-7, MAY-8, MUST-39, SHLD-14.
#[inline]
fn offer_window(cold: &mut Tcb, held: u32, buffer: u32) -> u16 {
    if cold.has(flag::PEER_FIN) {
        return cold.window_field();
    }
    let scale = cold.receive_scale();
    let offered = cold.receive_window();
    let free = buffer.saturating_sub(held).min(0xffff << scale);
    let step = u32::from(cold.mss).min(buffer / 2);
    let wanted = if free >= offered + step {
        free
    } else {
        offered
    };
    // Rounded up. No window comes near 2^31.
    let field = ((wanted + ((1 << scale) - 1)) >> scale).min(0xffff);
    let edge = cold.rcv_nxt + (field << scale);
    if (edge - cold.rcv_adv) > 0 {
        cold.rcv_adv = edge;
    }
    field as u16
}
