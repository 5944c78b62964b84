//! What time does: retransmission, persist and delayed-acknowledgement deadlines of hot blocks, repeated
//! SYN-ACKs, and the end of TIME-WAIT. An idle connection has no timer.

use crate::cold::{NONE, State, flag};
use crate::hot::{TimerKind, hot_flag};
use crate::rto;
use crate::segment::seg_flag;
use crate::stack::Stack;
use crate::time::Instant;

/// Records given up or repeated in one call; the rest is served by the next.
pub(crate) const MAX_PER_CALL: usize = 1_024;
/// Timers of hot blocks served in one call; each may send, or end, a connection.
pub(crate) const MAX_FIRED: usize = 256;

/// Timeouts in a row after which IP is told that the way may be dead: R1 of RFC 9293 section 3.8.3 (SHLD-10; as Linux).
const R1: u8 = 3;

impl Stack {
    /// Serves deadlines that have passed, of each kind no more than a bound, so that packets need not wait for long however
    /// many have passed at once. While some are left [`Stack::next_deadline`] is not after `now`: the next call goes on, with
    /// those that have waited longest.
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        let mut fired = core::mem::take(&mut self.schedule.fired);
        self.schedule
            .wheel
            .advance_some(now, MAX_FIRED, |hot| fired.push(hot));
        for &hot in &fired {
            self.on_timer(hot, now);
        }
        fired.clear();
        self.schedule.fired = fired;
        self.sweep(now);
        self.repeat_syn_acks(now);
        self.feed_starved(now);
        self.expire_fragments(now);
        while let Some(frame) = self.host.neighbors.pop_overdue(now) {
            self.counters.dropped_no_neighbor += 1;
            self.recycle(frame);
        }
        for _ in 0..MAX_PER_CALL {
            let Some(id) = self.index.time_wait.due(now) else {
                break;
            };
            self.drop_time_wait(id);
        }
    }

    /// When [`Stack::advance`] has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let first_wait = self.rules.config.rto_initial.as_nanos() as u64;
        [
            self.schedule.wheel.next(),
            self.index.half_open.next_deadline(first_wait),
            self.index.time_wait.next_deadline(),
            self.host.neighbors.next_deadline(),
            self.next_sweep(),
            self.host.fragments.reassembly.next_deadline(),
            (!self.schedule.starved.is_empty()).then(|| self.schedule.retry.at()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn repeat_syn_acks(&mut self, now: Instant) {
        let first_wait = self.rules.config.rto_initial.as_nanos() as u64;
        for _ in 0..MAX_PER_CALL {
            let Some(id) = self.index.half_open.due(now, first_wait) else {
                break;
            };
            self.syn_ack_is_due(id, now);
        }
    }

    /// Puts the block's wheel entry at its earliest deadline, unless it fires before that anyway.
    #[inline(always)]
    pub(crate) fn arm(&mut self, id: u32) {
        let hot = &self.store.hot[id];
        let deadline = hot.deadline();
        if deadline != Instant::ZERO && (hot.timer.is_none() || hot.timer_at > deadline) {
            self.arm_at(id, deadline);
        }
    }

    #[inline(never)]
    fn arm_at(&mut self, id: u32, deadline: Instant) {
        let hot = &mut self.store.hot[id];
        if let Some(late) = hot.timer.take() {
            self.schedule.wheel.cancel(late);
        }
        let mut deadline = deadline;
        if hot.rto_at == deadline && matches!(hot.timer_kind, TimerKind::Rto | TimerKind::Persist) {
            hot.rto_at = deadline + self.schedule.crowds.delay(deadline, self.now);
            deadline = hot.deadline();
        }
        // The wheel has room for one entry per block.
        hot.timer = self.schedule.wheel.insert(deadline, id);
        hot.timer_at = deadline;
    }

    /// Starts the persist timer (RFC 9293 section 3.8.6.1) where no other timer runs for what is to be sent.
    #[cold]
    pub(crate) fn persist(&mut self, id: u32) {
        let hot = &mut self.store.hot[id];
        if hot.flight.is_empty() && hot.rto_at == Instant::ZERO {
            let cold = &self.store.tcbs[hot.conn];
            hot.rto_at = self.now + rto::timeout(cold, &self.rules.config, hot.backoff);
            hot.timer_kind = TimerKind::Persist;
            self.arm(id);
        }
    }

    fn on_timer(&mut self, id: u32, now: Instant) {
        let hot = &mut self.store.hot[id];
        hot.timer = None;
        if hot.conn == NONE {
            return;
        }
        if hot.ack_at != Instant::ZERO && hot.ack_at <= now {
            hot.ack_at = Instant::ZERO;
            hot.set(hot_flag::ACK_NOW);
            let conn = hot.conn;
            self.delayed_in_vain(conn, id);
            self.queue_output(id);
        }
        let keep_until = self.store.hot[id].keep_until;
        if keep_until != Instant::ZERO && keep_until <= now {
            self.end_tuning(id);
        }
        let hot = &self.store.hot[id];
        let conn = hot.conn;
        if self.store.tcbs[conn].has(flag::ORPHAN) && self.orphan_is_too_old(conn, id, now) {
            return;
        }
        let hot = &self.store.hot[id];
        if hot.rto_at != Instant::ZERO && hot.rto_at <= now {
            match hot.timer_kind {
                TimerKind::Tlp => self.on_probe_timeout(conn, id, now),
                TimerKind::Reorder => self.on_reordering_timeout(conn, id, now),
                TimerKind::Rto | TimerKind::Persist => {
                    self.on_retransmission_timeout(conn, id, now);
                }
            }
        }
        if self.store.tcbs[conn].hot == id {
            self.arm(id);
            self.settle(conn);
        }
    }

    /// RFC 6298 section 5.4 to 5.7, the persist timer of RFC 9293 section 3.8.6.1, and their bounds.
    fn on_retransmission_timeout(&mut self, conn: u32, id: u32, now: Instant) {
        let waiting = self.store.hot[id].unsent.head;
        if waiting != NONE
            && self.store.hot[id].flight.is_empty()
            && self.store.blocks.segments[waiting].has(seg_flag::CORKED)
        {
            // No window is shut: a cork's time is up.
            self.store.hot[id].rto_at = Instant::ZERO;
            self.queue_output(id);
            return;
        }
        self.counters.timeouts += 1;
        if self.out_of_patience(conn, id, now) {
            return;
        }
        let counted = !self.counts_time_only(conn);
        let (cold, hot) = (&mut self.store.tcbs[conn], &mut self.store.hot[id]);
        let opening = matches!(cold.state, State::SynSent | State::SynReceived);
        let probing = !opening && hot.flight.is_empty();
        let limit = if opening {
            let wished = self.rules.profiles.get(cold.profile).syn_retries;
            let tries = wished.unwrap_or(self.rules.config.max_syn_retries);
            match cold.state {
                State::SynSent => tries.saturating_add(self.rules.config.syn_linear_timeouts),
                _ => tries,
            }
        } else if cold.has(flag::ORPHAN) {
            self.rules.config.max_orphan_retries
        } else {
            self.rules.config.max_retries
        };
        // A peer that answers probes may keep its window shut for ever (MUST-37), but not an orphan's. What is sent
        // again into a window that shrank to nothing is a probe too (MUST-35, SHLD-17).
        let shut = !opening && cold.snd_wnd() == 0;
        let tries = if (probing || shut) && !cold.has(flag::ORPHAN) {
            hot.probes
        } else {
            hot.retries
        };
        if counted && tries >= limit {
            self.end(conn, flag::TIMED_OUT);
            return;
        }
        if opening {
            hot.set(hot_flag::SYN);
        } else if probing {
            let waits = !hot.unsent.is_empty() || cold.has(flag::FIN_QUEUED);
            if !waits && !self.still_put_off(conn, id) {
                self.store.hot[id].rto_at = Instant::ZERO;
                return;
            }
            let hot = &mut self.store.hot[id];
            hot.set(hot_flag::PROBE);
            hot.probes = hot.probes.saturating_add(1);
        } else {
            let first = hot.retries == 0 && (hot.probes == 0 || !shut);
            hot.probes = hot.probes.saturating_add(u8::from(shut));
            self.on_data_timeout(conn, id, first, now);
            self.suspect_path(conn, id, now);
        }
        let (cold, hot) = (&mut self.store.tcbs[conn], &mut self.store.hot[id]);
        if !shut || cold.has(flag::ORPHAN) {
            hot.retries = hot.retries.saturating_add(1);
        }
        let in_doubt = hot.retries == R1;
        if cold.state != State::SynSent || hot.retries > self.rules.config.syn_linear_timeouts {
            hot.backoff = hot.backoff.saturating_add(1).min(30);
        }
        hot.rto_at = now + rto::timeout(cold, &self.rules.config, hot.backoff);
        self.hurry(conn, id, now);
        let hot = &mut self.store.hot[id];
        if !hot.flight.is_empty() {
            hot.rtx_at = hot.rto_at;
        }
        if in_doubt {
            let hop = self
                .rules
                .interface
                .next_hop(self.store.tcbs.key(conn).peer());
            self.host.neighbors.doubt(hop, now);
        }
        self.queue_output(id);
    }
}
