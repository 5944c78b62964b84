//! Deadlines: retransmission, persist and delayed-acknowledgement deadlines of hot blocks, repeated
//! SYN-ACKs, and the end of TIME-WAIT. An idle connection has no timer.

use crate::cold::{NONE, State, flag};
use crate::conn::{Conn, effect};
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

impl Conn<'_> {
    /// Starts the persist timer (RFC 9293 section 3.8.6.1) where no other timer runs for what is to be sent.
    #[cold]
    pub(crate) fn persist(&mut self) {
        let hot = &mut *self.hot;
        if hot.sender.flight.is_empty() && hot.timers.rto_at == Instant::ZERO {
            let cold = &*self.tcb;
            hot.timers.rto_at =
                self.now + rto::timeout(cold, &self.rules.config, hot.timers.backoff);
            hot.timers.timer_kind = TimerKind::Persist;
        }
    }

    fn on_timer(&mut self) {
        let hot = &mut *self.hot;
        if hot.timers.ack_at != Instant::ZERO && hot.timers.ack_at <= self.now {
            hot.timers.ack_at = Instant::ZERO;
            self.delayed_in_vain();
            self.acknowledge();
        }
        let keep_until = self.hot.timers.keep_until;
        if keep_until != Instant::ZERO && keep_until <= self.now {
            self.end_tuning();
        }
        if self.tcb.has(flag::ORPHAN) && self.orphan_is_too_old() {
            return;
        }
        let hot = &*self.hot;
        if hot.timers.rto_at != Instant::ZERO && hot.timers.rto_at <= self.now {
            match hot.timers.timer_kind {
                TimerKind::Tlp => self.on_probe_timeout(),
                TimerKind::Reorder => self.on_reordering_timeout(),
                TimerKind::Rto | TimerKind::Persist => {
                    self.on_retransmission_timeout();
                }
            }
        }
    }

    /// RFC 6298 section 5.4 to 5.7, the persist timer of RFC 9293 section 3.8.6.1, and their bounds.
    fn on_retransmission_timeout(&mut self) {
        let waiting = self.hot.sender.unsent.head;
        if waiting != NONE
            && self.hot.sender.flight.is_empty()
            && self.blocks.segments[waiting].has(seg_flag::CORKED)
        {
            // No window is shut: a cork's time is up.
            self.hot.timers.rto_at = Instant::ZERO;
            self.queue();
            return;
        }
        self.counters.timeouts += 1;
        if self.out_of_patience() {
            return;
        }
        let counted = !self.counts_time_only();
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let opening = matches!(cold.state, State::SynSent | State::SynReceived);
        let probing = !opening && hot.sender.flight.is_empty();
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
            hot.timers.probes
        } else {
            hot.timers.retries
        };
        if counted && tries >= limit {
            self.end(flag::TIMED_OUT);
            return;
        }
        if opening {
            hot.set(hot_flag::SYN);
        } else if probing {
            let waits = !hot.sender.unsent.is_empty() || cold.has(flag::FIN_QUEUED);
            if !waits && !self.still_put_off() {
                self.hot.timers.rto_at = Instant::ZERO;
                return;
            }
            let hot = &mut *self.hot;
            hot.set(hot_flag::PROBE);
            hot.timers.probes = hot.timers.probes.saturating_add(1);
        } else {
            let first = hot.timers.retries == 0 && (hot.timers.probes == 0 || !shut);
            hot.timers.probes = hot.timers.probes.saturating_add(u8::from(shut));
            self.on_data_timeout(first);
            self.suspect_path();
        }
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        if !shut || cold.has(flag::ORPHAN) {
            hot.timers.retries = hot.timers.retries.saturating_add(1);
        }
        let in_doubt = hot.timers.retries == R1;
        if cold.state != State::SynSent
            || hot.timers.retries > self.rules.config.syn_linear_timeouts
        {
            hot.timers.backoff = hot.timers.backoff.saturating_add(1).min(30);
        }
        hot.timers.rto_at = self.now + rto::timeout(cold, &self.rules.config, hot.timers.backoff);
        self.hurry();
        let hot = &mut *self.hot;
        if !hot.sender.flight.is_empty() {
            hot.timers.rtx_at = hot.timers.rto_at;
        }
        if in_doubt {
            self.effects.add(effect::DOUBT_HOP);
        }
        self.queue();
    }
}

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
            self.on_timer(hot);
        }
        fired.clear();
        self.schedule.fired = fired;
        self.sweep();
        self.repeat_syn_acks();
        self.feed_starved();
        self.ip().expire_fragments();
        while let Some(frame) = self.host.neighbors.pop_overdue(now) {
            self.counters.dropped_no_neighbor += 1;
            self.ip().recycle(frame);
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

    fn repeat_syn_acks(&mut self) {
        let first_wait = self.rules.config.rto_initial.as_nanos() as u64;
        for _ in 0..MAX_PER_CALL {
            let Some(id) = self.index.half_open.due(self.now, first_wait) else {
                break;
            };
            self.syn_ack_is_due(id);
        }
    }

    /// The timer of a hot block has fired.
    fn on_timer(&mut self, id: u32) {
        let hot = &mut self.store.hot[id];
        hot.timers.timer = None;
        let conn = hot.conn;
        if conn != NONE {
            self.with(conn, |c| c.on_timer());
        }
    }
}
