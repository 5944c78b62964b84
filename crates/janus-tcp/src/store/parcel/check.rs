//! Whether a parcel makes sense: what a stack relies on in its own stores, asked of what comes from outside. Each parcel that a stack makes
//! is asked too while debugging, so that the two do not part.

use core::time::Duration;
use std::collections::BTreeSet;

use super::{Busy, Connection, Content, Marked, Parcel, Place};
use crate::rules::interface::LEAST_SEGMENT;
use crate::store::cold::{State, Tcb, flag};
use crate::store::half_open::{HalfOpen, MAX_TRIES, NO_SCALE};
use crate::store::hot::{TimerKind, hot_flag};
use crate::store::keys::HotId;
use crate::store::segment::{Segment, Ticket, seg_flag};
use crate::store::time_wait::TimeWait;
use crate::time::Instant;

/// The largest window scale there is (RFC 7323 section 2.3).
const SCALE_MAX: u8 = 14;
/// No window is larger.
const WINDOW_MAX: u32 = 0xffff << SCALE_MAX;
/// No deadline is further away, whatever is configured: a connection would be held for ever by it.
const FURTHEST: Duration = Duration::from_secs(24 * 3_600);
/// Bytes that wait to be sent or read: beyond all that a buffer may hold, and far from where sums go round.
const QUEUE_MAX: u64 = 1 << 30;

impl Parcel {
    /// Whether a stack may take it in.
    pub(crate) fn is_sound(&self) -> bool {
        match &self.content {
            Content::Connection(conn) => {
                let busy = conn.busy.as_deref();
                conn.is_sound() && busy.is_none_or(|busy| busy.is_due_after(self.made))
            }
            Content::HalfOpen(record) => {
                let sent_at = record.sent_at;
                is_sound_half_open(record) && sent_at <= self.made
            }
            Content::TimeWait(record) => is_sound_time_wait(record),
        }
    }
}

fn is_sound_half_open(record: &HalfOpen) -> bool {
    let scale = |scale: u8| scale <= SCALE_MAX;
    let options = flag::TIMESTAMPS | flag::SACK | flag::ECN;
    (1..=MAX_TRIES as u8).contains(&record.tries)
        && (scale(record.peer_scale) || record.peer_scale == NO_SCALE)
        && scale(record.own_scale)
        && record.flags & !options == 0
        && record.mss >= LEAST_SEGMENT
}

fn is_sound_time_wait(record: &TimeWait) -> bool {
    let expires = record.expires;
    record.scale <= SCALE_MAX && expires != Instant::NEVER
}

impl Connection {
    fn is_sound(&self) -> bool {
        let Connection { tcb, busy, .. } = self;
        let owned = self.place == Place::Owned;
        is_sound_record(tcb)
            && tcb.has(flag::ORPHAN) == (self.place == Place::Orphan)
            && (owned || self.rest.is_none())
            && (tcb.state != State::Closed || self.place != Place::Orphan)
            && self.options.as_ref().is_none_or(|o| o.check().is_ok())
            && match busy {
                Some(busy) => busy.is_sound(tcb),
                None => is_sound_at_rest(tcb),
            }
    }
}

fn is_sound_record(tcb: &Tcb) -> bool {
    tcb.block & HotId::MARK == 0
        && tcb.state != State::TimeWait
        && tcb.mss >= LEAST_SEGMENT
        && tcb.send_scale() <= SCALE_MAX
        && tcb.receive_scale() <= SCALE_MAX
        && tcb.snd_wnd() <= WINDOW_MAX
        && (tcb.rcv_adv - tcb.rcv_nxt).unsigned_abs() <= WINDOW_MAX
        && has_peers_end(tcb)
        && (tcb.state != State::SynSent || tcb.srtt_us() == 0)
}

/// Whether the state is one behind the peer's FIN if that has come.
fn has_peers_end(tcb: &Tcb) -> bool {
    let behind = matches!(
        tcb.state,
        State::CloseWait | State::Closing | State::LastAck
    );
    tcb.state == State::Closed || tcb.has(flag::PEER_FIN) == behind
}

/// Whether a connection can be without all that a busy one has.
fn is_sound_at_rest(tcb: &Tcb) -> bool {
    let open = matches!(
        tcb.state,
        State::Closed | State::Established | State::FinWait2 | State::CloseWait
    );
    open && !tcb.has(flag::FIN_QUEUED) && !tcb.has(flag::ORPHAN)
}

impl Busy {
    fn is_sound(&self, tcb: &Tcb) -> bool {
        let hot = &self.hot;
        self.are_queues_sound(tcb)
            && self.are_buffers_sound()
            && self.are_timers_sound(tcb)
            && self.are_marks_sound(tcb)
            && hot.sender.mss_full >= tcb.mss
            && hot.congestion.cwnd() > 0
            && u64::from(hot.receiver.unacked_bytes) <= QUEUE_MAX
            && self.urgent.is_some() <= hot.has(hot_flag::URGENT)
            && self.tuning.is_none_or(|t| u64::from(t.buffer) <= QUEUE_MAX)
            && self
                .beyond
                .as_ref()
                .is_none_or(|beyond| beyond.is_sound(tcb.rcv_nxt))
    }

    /// Whether all deadlines are to be met: some may have passed.
    fn is_due_after(&self, made: Instant) -> bool {
        let timers = &self.hot.timers;
        let deadlines = [
            timers.due_at,
            timers.rto_at,
            timers.ack_at,
            timers.keep_until,
        ];
        let mut deadlines = deadlines.into_iter();
        deadlines.all(|at| at == Instant::NEVER || at <= made + FURTHEST)
    }

    /// The numbers of what is in flight follow each other, from the oldest that is not acknowledged to the next that is sent.
    fn are_queues_sound(&self, tcb: &Tcb) -> bool {
        let (una, nxt) = (self.hot.sender.snd_una, tcb.snd_nxt);
        let mut end = None;
        for seg in &self.flight {
            if end.is_some_and(|end| seg.seq != end) {
                return false;
            }
            end = Some(seg.end());
        }
        let first = self.flight.first();
        let in_flight = self.flight.iter().map(|seg| u64::from(seg.space())).sum();
        let reaches = |sum: u64| sum <= QUEUE_MAX;
        let texts = |queue: &[Segment]| queue.iter().map(|seg| u64::from(seg.len)).sum();
        // A SYN is in flight without a segment.
        let opening = tcb.state.is_opening();
        let bare = opening || tcb.state == State::Closed;
        first.is_none_or(|first| first.seq.le(una) && first.end().gt(una))
            && end.map_or(bare || una == nxt, |end| end == nxt)
            && (!opening || una + 1 == nxt)
            && self.is_end_sound(tcb)
            && una.le(nxt)
            && reaches(in_flight)
            && reaches(texts(&self.unsent))
            && reaches(texts(&self.inbox))
            && self.is_pipe_sound()
    }

    /// Neither what was SACKed nor what is lost is in the pipe, nor what duplicates have told of.
    fn is_pipe_sound(&self) -> bool {
        let left = seg_flag::LOST | seg_flag::SACKED;
        let in_it = self.flight.iter().filter(|seg| !seg.has(left));
        let most: u64 = in_it.map(|seg| u64::from(seg.len)).sum();
        let told = self.doubt.as_ref().map_or(0, |it| it.block.sacked_bytes);
        u64::from(self.hot.sender.pipe) + u64::from(told) <= most
    }

    /// A FIN ends what is queued, in the states that wait for its acknowledgement and in no others; where it is acknowledged nothing is queued.
    fn is_end_sound(&self, tcb: &Tcb) -> bool {
        let is_fin = |seg: &Segment| seg.has(seg_flag::FIN);
        let mut queued = self.flight.iter().chain(&self.unsent).rev();
        let fin = queued.next().is_some_and(is_fin);
        let empty = self.flight.is_empty() && self.unsent.is_empty();
        let (wanted, over) = match tcb.state {
            State::FinWait1 | State::Closing | State::LastAck => (true, false),
            State::FinWait2 | State::Closed => (false, true),
            // It waits until the handshake is done.
            State::SynReceived => (tcb.has(flag::FIN_QUEUED), false),
            _ => (false, false),
        };
        u8::from(fin) + u8::from(tcb.has(flag::FIN_QUEUED)) == u8::from(wanted)
            && (empty || !over)
            && !queued.any(is_fin)
    }

    fn are_buffers_sound(&self) -> bool {
        let on_wire = self.flight.iter().zip(0..);
        let on_wire = on_wire.filter(|(seg, _)| seg.has(seg_flag::AWAY));
        let marks = seg_flag::AWAY | seg_flag::LOST | seg_flag::SACKED;
        let at_home = |seg: &Segment| seg.is_sound() && !seg.has(marks);
        let tickets: BTreeSet<Ticket> = self.away.iter().map(|(_, ticket)| *ticket).collect();
        self.flight.iter().all(Segment::is_sound)
            && on_wire
                .map(|(_, place)| place)
                .eq(self.away.iter().map(|(place, _)| *place))
            && tickets.len() == self.away.len()
            && self.unsent.iter().chain(&self.inbox).all(at_home)
    }

    /// Debts and waits have a timer, or their turn.
    fn are_timers_sound(&self, tcb: &Tcb) -> bool {
        let timers = &self.hot.timers;
        let queued = self.hot.has(hot_flag::QUEUED | hot_flag::STARVED);
        let driven = queued || timers.soonest() != Instant::NEVER;
        let due = timers.due_at != Instant::NEVER;
        let opening = tcb.state.is_opening();
        let wishes = hot_flag::ACK_NOW | hot_flag::PROBE | hot_flag::SYN | hot_flag::LOSSES;
        let owes = self.hot.has(wishes)
            || !self.unsent.is_empty()
            || tcb.has(flag::FIN_QUEUED)
            || tcb.has(flag::ORPHAN);
        let over = tcb.state == State::Closed;
        (!owes || driven)
            && (!over || queued || self.hot.flags & !hot_flag::URGENT == 0)
            && (queued || !self.hot.has(hot_flag::ACK_NOW | hot_flag::PROBE))
            && (opening || !self.hot.has(hot_flag::SYN))
            && (!opening && self.flight.is_empty() || due || queued)
            && (!opening || self.is_opening_sound())
            && (over || self.may_be_next(timers.timer_kind, due))
    }

    /// A SYN is all that is sent.
    fn is_opening_sound(&self) -> bool {
        let others = hot_flag::ACK_NOW | hot_flag::PROBE | hot_flag::LOSSES | hot_flag::RECOVERY;
        let only_timeout = self.hot.timers.timer_kind == TimerKind::Rto;
        self.flight.is_empty() && only_timeout && !self.hot.has(others)
    }

    /// Something else than the timeout is next while there is one, or nothing is.
    fn may_be_next(&self, kind: TimerKind, due: bool) -> bool {
        let timeout = self.hot.timers.rto_at != Instant::NEVER;
        match kind {
            TimerKind::Reorder => due && timeout && self.recovery.is_some(),
            TimerKind::Tlp => due && timeout,
            TimerKind::Rto | TimerKind::Persist => true,
        }
    }

    /// Places lie in the lists they are places of, and counts are those of the marks. Losses are marked in a block of their own with SACK, and
    /// without it there are none but those of a timeout.
    fn are_marks_sound(&self, tcb: &Tcb) -> bool {
        let (flight, unsent) = (self.flight.len() as u32, self.unsent.len() as u32);
        let within = |marked: &Marked| {
            let places = [marked.sack_hint, marked.lost_from, marked.decided];
            let mut places = places.into_iter().flatten();
            places.all(|place| place < flight) && marked.block.resent <= flight
        };
        let sacked = || self.flight.iter().filter(|seg| seg.has(seg_flag::SACKED));
        let counts = (
            sacked().count() as u32,
            sacked().map(|seg| u32::from(seg.len)).sum::<u32>(),
        );
        let counted = self.recovery.as_ref().map_or((0, 0), |marked| {
            (marked.block.sacked, marked.block.sacked_bytes)
        });
        let lost = self.flight.iter().filter(|seg| seg.has(seg_flag::LOST));
        let lost = lost.count() as u32;
        let sack = tcb.has(flag::SACK);
        counts == counted
            && self
                .recovery
                .as_ref()
                .is_none_or(|marked| sack && marked.block.lost <= lost)
            && self.probe.is_none_or(|probe| probe < flight + unsent)
            && self.recovery.iter().chain(&self.doubt).all(within)
            && self.doubt.is_some() == self.hot.doubted
            && !(sack && self.hot.doubted)
    }
}
