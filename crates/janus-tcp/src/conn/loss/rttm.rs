//! RTTM, round-trip time measurement: RFC 6298 section 3 and RFC 7323 section 4. Which of two clocks an
//! acknowledgement is measured by, and when it is not believed. What is made of a measurement is in `rto`.
//!
//! The segment's own clock, microseconds since it was sent, is the better one, and counts whenever nothing that is
//! acknowledged was sent twice. Else it cannot be told which of its transmissions arrived, and nothing may be
//! measured by it (Karn's algorithm); but the peer echoes the timestamp of that transmission, so with the timestamps
//! option a round trip is measured after a loss too, in milliseconds. Linux chooses the same way.

use crate::congestion;
use crate::conn::Conn;
use crate::store::cold::flag;
use crate::store::rto;
use crate::wire::parse::Parsed;

/// No echo is older. A peer that claims so has not echoed what it got.
const OLDEST_ECHO_MS: u32 = 120_000;
/// How far off a measurement in whole milliseconds can be.
const TICK_US: u32 = 1_000;

/// When the segments were sent that an acknowledgement takes out of flight.
pub(crate) struct Acked {
    /// Microseconds since the last transmission of the newest and of the oldest; the first is the greater where there is
    /// none.
    newest_us: u32,
    oldest_us: u32,
    /// One of them was sent more than once.
    resent: bool,
    /// Our FIN is in one of them.
    fin: bool,
}

impl Default for Acked {
    fn default() -> Acked {
        Acked {
            newest_us: u32::MAX,
            oldest_us: 0,
            resent: false,
            fin: false,
        }
    }
}

impl Acked {
    /// One more, whose last transmission is that old.
    #[inline]
    pub(crate) fn add(&mut self, age_us: u32, resent: bool) {
        self.resent |= resent;
        self.newest_us = self.newest_us.min(age_us);
        self.oldest_us = self.oldest_us.max(age_us);
    }

    /// Notes whether our FIN is in one of them.
    #[inline(always)]
    pub(crate) fn add_fin(&mut self, is_there: bool) {
        self.fin |= is_there;
    }

    #[inline(always)]
    pub(crate) fn has_fin(&self) -> bool {
        self.fin
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.newest_us > self.oldest_us
    }
}

impl Conn<'_> {
    /// `p` acknowledges or SACKs something new; `sacked_sent_us`: of what it SACKs and was sent once, when the first was sent. Takes a round trip from it, if it gives one. Only that ends the backoff
    /// (RFC 6298 section 5).
    /// Keeps 6298-7, 6298-8.
    #[inline(always)]
    pub(crate) fn measure(&mut self, p: &Parsed, acked: &Acked, sacked_sent_us: Option<u32>) {
        let mut from_sack = Acked::default();
        let mut acked = acked;
        if let (true, Some(sent_us)) = (acked.resent || acked.is_empty(), sacked_sent_us) {
            // A segment that is SACKed at once and was sent once measures as well, and in microseconds.
            from_sack.add(self.env.now_us.wrapping_sub(sent_us), false);
            acked = &from_sack;
        }
        if acked.is_empty() {
            return;
        }
        let rtt_us = if !acked.resent {
            // Of several, the one that waited longest for this acknowledgement, as the timer will.
            acked.oldest_us
        } else {
            let uses = self.tcb.has(flag::TIMESTAMPS);
            let echo = p.timestamps().filter(|_| uses).map(|(_, echo)| echo);
            let Some(rtt_us) = echo.and_then(|echo| self.echoed(echo, acked.newest_us)) else {
                return;
            };
            rtt_us
        };
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        hot.timers.backoff = 0;
        hot.note_rtt(rtt_us, self.env.now_ms);
        let round_is_over = rto::sample_of_many(cold, hot, p.ack(), rtt_us);
        congestion::on_rtt(&mut hot.congestion, rtt_us, round_is_over);
    }

    /// The age of the timestamp that an acknowledgement echoes, in microseconds. It cannot be younger than the newest
    /// transmission of what is acknowledged: the peer remembers the timestamps of what advances its stream only (RFC
    /// 7323 section 4.3). So the future and nearly all the past that a peer might claim are not believed.
    #[inline(never)]
    fn echoed(&self, echo: u32, newest_us: u32) -> Option<u32> {
        let base = self.hot.timers.stamps;
        let age_ms = self.rules.age_ms(base, self.env.now_ms, echo);
        if echo == 0 || age_ms > OLDEST_ECHO_MS {
            return None;
        }
        // A round trip of no tick took less than one.
        let age_us = age_ms.max(1) * TICK_US;
        (age_us + TICK_US > newest_us).then_some(age_us)
    }
}

#[cfg(test)]
mod tests;
