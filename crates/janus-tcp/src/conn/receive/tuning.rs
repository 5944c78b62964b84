//! Buffers that follow what a path and an application take. Receiving: the window begins small and grows, for a
//! connection whose application reads all that comes, to twice what it read in a round trip and more while that still
//! grows (what Linux calls dynamic right-sizing), so that the sender is never held back by the window alone. It never
//! shrinks by itself and is never taken back. What may be written ahead is in `send_buffer`.
//!
//! A measurement lasts a round trip, and a hot block not that long; so a connection that gets full segments one after
//! the other keeps its block until they cease. What it keeps, beside the block, is a record of this file. One that is
//! idle keeps nothing: the window it was offered stands, and is where it begins again.

use core::time::Duration;

use crate::conn::{Conn, View};
use crate::rules::profile::DEFAULT;
use crate::store::cold::{Tcb, flag};
use crate::store::pressure::Pressure;
use crate::store::tuning::Tuning;
use crate::time::Instant;
use crate::wire::parse::Parsed;

/// Segments that may come in the first round trip without the window growing: the initial window (RFC 6928).
const FIRST_SEGMENTS: u32 = 10;
/// How long a connection is taken to receive still after a full segment: two round trips, within these bounds.
const KEEP_LEAST: Duration = Duration::from_millis(10);
const KEEP_MOST: Duration = Duration::from_secs(4);

impl View<'_> {
    /// Unread bytes that a connection may hold.
    #[inline(always)]
    pub(crate) fn receive_buffer(&self) -> u32 {
        let buffer = match self.hot.receiver.tuning {
            None => self
                .rules
                .profiles()
                .receive_buffer(self.tcb.profile, self.rules.config()),
            Some(tuning) => self.blocks.tunings[tuning].buffer,
        };
        let profile = self.tcb.profile;
        let buffer = match profile {
            DEFAULT => buffer,
            _ => buffer.min(
                self.rules
                    .profiles()
                    .get(profile)
                    .window_clamp
                    .unwrap_or(buffer),
            ),
        };
        self.pressed(buffer, self.tcb.mss)
    }
}

impl Conn<'_> {
    /// Full segments come one after the other: the connection is measured from now on, or still.
    #[inline]
    pub(crate) fn receives_in_bulk(&mut self, p: &Parsed) {
        // A size that the application gave is kept (and one that it gives later, from then on).
        let profile = self.tcb.profile;
        if profile != DEFAULT && self.rules.profiles().get(profile).receive_buffer.is_some() {
            self.end_tuning();
            return;
        }
        if self.hot.receiver.tuning.is_none() && !self.begin_tuning() {
            return;
        }
        self.measure_arrival(p);
        self.keep_tuning();
    }

    /// Data has come that waits for a gap to be filled: it is still received as fast, and will be read at once.
    #[inline]
    pub(crate) fn still_receives(&mut self) {
        if self.hot.receiver.tuning.is_some() {
            self.keep_tuning();
        }
    }

    fn keep_tuning(&mut self) {
        let rtt_us = self.receive_rtt_us();
        let keep = Duration::from_micros(2 * u64::from(rtt_us)).clamp(KEEP_LEAST, KEEP_MOST);
        self.hot.timers.keep_until = self.env.now + keep;
    }

    fn begin_tuning(&mut self) -> bool {
        let cold = &*self.tcb;
        let grows = self.rules.config().receive_buffer_max > self.rules.config().receive_buffer;
        if !grows || !self.rules.config().tune_receive_buffer {
            return false;
        }
        let Some(tuning) = self.blocks.tunings.alloc() else {
            return false;
        };
        let now_us = self.env.now_us;
        let buffer = self
            .rules
            .config()
            .receive_buffer
            .max(cold.receive_window());
        self.blocks.tunings[tuning] = Tuning {
            buffer: buffer.min(self.rules.config().receive_buffer_max),
            space: (FIRST_SEGMENTS * u32::from(cold.mss)).min(buffer),
            round_us: now_us,
            mark_us: now_us,
            mark: self.first_mark(cold),
            ..Tuning::default()
        };
        self.hot.receiver.tuning = Some(tuning);
        true
    }

    fn first_mark(&self, cold: &Tcb) -> u32 {
        if cold.has(flag::TIMESTAMPS) {
            0
        } else {
            cold.rcv_adv.0
        }
    }

    /// No full segments any more. Whoever calls settles the connection.
    #[inline]
    pub(crate) fn end_tuning(&mut self) {
        let hot = &mut *self.hot;
        hot.timers.keep_until = Instant::NEVER;
        if let Some(tuning) = hot.receiver.tuning.take() {
            self.blocks.tunings.free(tuning);
        }
    }

    /// The round trip: our timestamp that a full segment echoes is as old as that; without timestamps, a window's worth
    /// takes at least as long to come, so the shortest time is the best guess.
    fn measure_arrival(&mut self, p: &Parsed) {
        let cold = &*self.tcb;
        let tuning = &mut self.blocks.tunings[self.hot.receiver.tuning];
        let now_us = self.env.now_us;
        if cold.has(flag::TIMESTAMPS) {
            let Some((_, echo)) = p.timestamps() else {
                return;
            };
            if echo == tuning.mark || p.payload_len() < cold.payload_mss() {
                return;
            }
            tuning.mark = echo;
            let age_ms = self
                .rules
                .age_ms(self.hot.timers.stamps, self.env.now_ms, echo);
            // In a tick or two the handshake measured better; from hours ago or the future nothing was echoed.
            let tick_ms = 1 + self.rules.secrets().stamps().slack_ms();
            if age_ms > tick_ms && age_ms < 120_000 {
                tuning.smooth(age_ms * 1_000);
            }
        } else if (cold.rcv_nxt - janus_wire::SeqNum(tuning.mark)) >= 0 {
            let took_us = now_us.wrapping_sub(tuning.mark_us).max(1);
            if tuning.rtt_us == 0 || took_us < tuning.rtt_us {
                tuning.rtt_us = took_us;
            }
            tuning.mark = cold.rcv_adv.0;
            tuning.mark_us = now_us;
        }
    }

    /// The round trip as the receiver sees it, else as the sender in us did; 0 when neither did.
    #[inline]
    fn receive_rtt_us(&self) -> u32 {
        match self.blocks.tunings[self.hot.receiver.tuning].rtt_us {
            0 => self.tcb.srtt_us(),
            rtt_us => rtt_us,
        }
    }

    /// The application has taken bytes. After each round trip in which it took more than in the one before, the buffer
    /// grows.
    pub(crate) fn tune_by_reading(&mut self, taken: u32) {
        let rtt_us = self.receive_rtt_us();
        let cold = &*self.tcb;
        let tuning = &mut self.blocks.tunings[self.hot.receiver.tuning];
        tuning.copied = tuning.copied.saturating_add(taken);
        let now_us = self.env.now_us;
        if rtt_us == 0 || now_us.wrapping_sub(tuning.round_us) < rtt_us {
            return;
        }
        if tuning.copied > tuning.space {
            let wanted = tuning.wanted(u32::from(cold.mss));
            let most = self.rules.config().receive_buffer_max;
            if wanted > u64::from(tuning.buffer)
                && tuning.buffer < most
                && self.blocks.shortage.level == Pressure::None
            {
                tuning.buffer = wanted.min(u64::from(most)) as u32;
                self.env.counters.windows_grown += 1;
            }
            tuning.space = tuning.copied;
        }
        tuning.copied = 0;
        tuning.round_us = now_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_gets_twice_and_a_growing_one_more() {
        let steady = Tuning {
            copied: 100_000,
            space: 100_000,
            ..Tuning::default()
        };
        assert_eq!(steady.wanted(1_000), 216_000);
        let doubling = Tuning {
            copied: 100_000,
            space: 50_000,
            ..Tuning::default()
        };
        assert_eq!(doubling.wanted(1_000), 3 * 216_000);
    }
}
