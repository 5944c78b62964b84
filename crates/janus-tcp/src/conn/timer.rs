//! Deadlines of a busy connection: retransmission, persist, delayed acknowledgement, and the rules of time: keep-alive, patience,
//! the user timeout, memory pressure. An idle connection has no timer. The wheel itself is in `store`.

pub(crate) mod keepalive;
pub(crate) mod patience;
pub(crate) mod pressure;
pub(crate) mod uto;

use crate::conn::{Conn, effect};
use crate::store::cold::{EndReason, State, flag};
use crate::store::hot::{TimerKind, hot_flag};
use crate::store::rto;
use crate::store::segment::seg_flag;
use crate::time::Instant;

/// Records given up or repeated in one call; the rest is served by the next.
pub(crate) const MAX_PER_CALL: usize = 1_024;
/// Timeouts in a row after which IP is told that the way may be dead: R1 of RFC 9293 section 3.8.3 (SHLD-10; as Linux).
const R1: u8 = 3;

impl Conn<'_> {
    /// Starts the persist timer (RFC 9293 section 3.8.6.1) where no other timer runs for what is to be sent.
    #[cold]
    pub(crate) fn persist(&mut self) {
        let hot = &mut *self.hot;
        if hot.sender.flight.is_empty() && hot.timers.due_at == Instant::NEVER {
            let cold = &*self.tcb;
            hot.timers.due_at =
                self.env.now + rto::timeout(cold, self.rules.waits(), hot.timers.backoff);
            hot.timers.timer_kind = TimerKind::Persist;
        }
    }

    pub(crate) fn on_timer(&mut self) {
        let hot = &mut *self.hot;
        if hot.timers.ack_at <= self.env.now {
            hot.timers.ack_at = Instant::NEVER;
            self.delayed_in_vain();
            self.acknowledge();
        }
        if self.hot.timers.keep_until <= self.env.now {
            self.end_tuning();
        }
        if self.tcb.has(flag::ORPHAN) && self.orphan_is_too_old() {
            return;
        }
        let hot = &*self.hot;
        if hot.timers.due_at <= self.env.now {
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
    /// Keeps 6298-11, MUST-19, MUST-20, MUST-22, MUST-23, MUST-35, MUST-37, SHLD-10, SHLD-11, SHLD-16, SHLD-17,
    /// SHLD-30.
    fn on_retransmission_timeout(&mut self) {
        let waiting = self.hot.sender.unsent.head;
        if waiting.is_some()
            && self.hot.sender.flight.is_empty()
            && self.blocks.segments[waiting].has(seg_flag::CORKED)
        {
            // No window is shut: a cork's time is up.
            self.hot.timers.due_at = Instant::NEVER;
            self.queue();
            return;
        }
        self.env.counters.timeouts += 1;
        if self.out_of_patience() {
            return;
        }
        let counted = !self.counts_time_only();
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let opening = cold.state.is_opening();
        let probing = !opening && hot.sender.flight.is_empty();
        let limit = if opening {
            let wished = self.rules.profiles().get(cold.profile).syn_retries;
            let tries = wished.unwrap_or(self.rules.config().max_syn_retries);
            match cold.state {
                State::SynSent => tries.saturating_add(self.rules.config().syn_linear_timeouts),
                _ => tries,
            }
        } else if cold.has(flag::ORPHAN) {
            self.rules.config().max_orphan_retries
        } else {
            self.rules.config().max_retries
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
            self.end(EndReason::TimedOut);
            return;
        }
        if opening {
            hot.set(hot_flag::SYN);
        } else if probing {
            let waits = !hot.sender.unsent.is_empty() || cold.has(flag::FIN_QUEUED);
            if !waits && !self.still_put_off() {
                self.hot.timers.due_at = Instant::NEVER;
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
            || hot.timers.retries > self.rules.config().syn_linear_timeouts
        {
            hot.timers.backoff = hot.timers.backoff.saturating_add(1).min(30);
        }
        hot.timers.due_at =
            self.env.now + rto::timeout(cold, self.rules.waits(), hot.timers.backoff);
        self.hurry();
        let hot = &mut *self.hot;
        if !hot.sender.flight.is_empty() {
            hot.timers.rto_at = hot.timers.due_at;
        }
        if in_doubt {
            self.effects.add(effect::DOUBT_HOP);
        }
        self.queue();
    }
}
