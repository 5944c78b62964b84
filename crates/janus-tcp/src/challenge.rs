//! How many segments that fit nothing are answered: challenge ACKs (RFC 5961) and the acknowledgements that tell a
//! peer which is out of step where we are. Two limits, and a segment must pass both.
//!
//! *Of a flow*: one in [`Config::invalid_ack_interval`](crate::Config), as Linux's `tcp_invalid_ratelimit`: two
//! confused ends cannot keep each other busy, nor can a forger make one flow's traffic grow. Who was answered lately is
//! kept beside the connections, not in them: an idle one has no byte to spare. Entries never push each other out, or
//! one could see by one's own connection whether another's was answered; when there is no room, there is no answer.
//!
//! *Of the stack*: so many in a second, and how many is nobody's to know: who can count them out learns whether a
//! forged segment hit (CVE-2016-5696, RFC 5961 section 7).
//!
//! Probes of a window or of our being alive have their own entries and no limit of the stack: a flood of strays must
//! not make a peer believe us dead. So have repeated SYNs.

use core::time::Duration;

use crate::isn;
use crate::records::Record;
use crate::stack::Stack;
use crate::time::Instant;

/// Flows remembered as answered, in each interval and of each kind; how many there is room for, from half of it,
/// changes from interval to interval, as it does for the stack's limit and with the same reason.
const MAX_ANSWERED: usize = 2_048;
/// Places for them: half of them free, so that a search is short.
const PLACES: usize = 2 * MAX_ANSWERED;

/// Which of the answers that are limited one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Challenge ACKs, and acknowledgements of empty segments outside the window.
    Challenge,
    /// Answers to probes.
    Probe,
    /// SYN-ACKs for repeated SYNs.
    Repeat,
}

/// What the limits remember.
#[derive(Default)]
pub(crate) struct Limits {
    /// The second (since the start) that `sent` counts.
    second: Option<u64>,
    sent: u32,
    answered: [Answered; 3],
}

/// Who was answered in this interval and in the one before, and when.
#[derive(Default)]
struct Answered {
    interval: u64,
    room: usize,
    this: Flows,
    last: Flows,
}

/// A set of flows that forgets only as a whole: open addressing, never more than half full.
#[derive(Default)]
struct Flows {
    /// `(flow + 1, milliseconds)`; a zero is a free place. Empty until the first is entered.
    places: Vec<(u32, u32)>,
    len: usize,
}

impl Flows {
    fn place_of(&self, flow: u32) -> usize {
        let mut at = (flow.wrapping_mul(0x9e37_79b1) >> 16) as usize % PLACES;
        while self.places[at].0 != 0 && self.places[at].0 != flow.wrapping_add(1) {
            at = (at + 1) % PLACES;
        }
        at
    }

    fn time_of(&self, flow: u32) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let (taken, at_ms) = self.places[self.place_of(flow)];
        (taken != 0).then_some(at_ms)
    }

    fn enter(&mut self, flow: u32, at_ms: u32) {
        if self.places.is_empty() {
            self.places = vec![(0, 0); PLACES];
        }
        let at = self.place_of(flow);
        self.len += usize::from(self.places[at].0 == 0);
        self.places[at] = (flow.wrapping_add(1), at_ms);
    }

    fn clear(&mut self) {
        if self.len > 0 {
            self.places.fill((0, 0));
            self.len = 0;
        }
    }
}

impl Answered {
    /// Whether `flow` was not answered within `pause` before `now`, and can be remembered as answered.
    fn may(&mut self, flow: u32, now: Instant, pause: Duration, secret: u64) -> bool {
        let pause_ms = (pause.as_millis() as u64).clamp(1, 1 << 30);
        let interval = now.as_millis() / pause_ms;
        if interval != self.interval {
            core::mem::swap(&mut self.this, &mut self.last);
            self.this.clear();
            if interval != self.interval + 1 {
                self.last.clear();
            }
            self.interval = interval;
            self.room = 0;
        }
        if self.room == 0 {
            self.room = MAX_ANSWERED - (secret % (MAX_ANSWERED as u64 / 2)) as usize;
        }
        let now_ms = now.as_millis() as u32;
        let lately = self.this.time_of(flow).or_else(|| self.last.time_of(flow));
        if lately.is_some_and(|at_ms| u64::from(now_ms.wrapping_sub(at_ms)) < pause_ms) {
            return false;
        }
        self.this.len < self.room
    }

    fn note(&mut self, flow: u32, now: Instant) {
        self.this.enter(flow, now.as_millis() as u32);
    }
}

impl Stack {
    /// Whether a challenge ACK may be sent for a flow now; it counts as sent.
    pub(crate) fn may_challenge(&mut self, who: Record, now: Instant) -> bool {
        // First the flow's: what it refuses must not use up the others' (as Linux: tcp_send_challenge_ack).
        if !self.may_answer_again(who, Kind::Challenge, now) {
            self.counters.challenge_acks_limited += 1;
            return false;
        }
        self.may_acknowledge(now)
    }

    /// Whether the stack's limit lets one more go out this second; it counts as sent.
    pub(crate) fn may_acknowledge(&mut self, now: Instant) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        let most = self.config.challenge_acks_per_second;
        let limits = &mut self.limits;
        if limits.second != Some(second) {
            limits.second = Some(second);
            let held_back = isn::keyed(&self.secrets, second) % (u64::from(most) / 2 + 1);
            limits.sent = held_back as u32;
        }
        if limits.sent >= most {
            self.counters.challenge_acks_limited += 1;
            return false;
        }
        limits.sent += 1;
        self.counters.challenge_acks += 1;
        true
    }

    /// Whether a flow's last answer of this kind is long enough ago; if so this is its next.
    pub(crate) fn may_answer_again(&mut self, who: Record, kind: Kind, now: Instant) -> bool {
        let pause = self.config.invalid_ack_interval;
        if pause.is_zero() {
            return true;
        }
        let secret = isn::keyed(&self.secrets, !now.as_millis());
        let answered = &mut self.limits.answered[kind as usize];
        let flow = who.encode();
        let may = answered.may(flow, now, pause, secret);
        if may {
            answered.note(flow, now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(500);

    fn ask(answered: &mut Answered, flow: u32, ms: u64) -> bool {
        let now = Instant::from_millis(ms);
        let may = answered.may(flow, now, PAUSE, 0);
        if may {
            answered.note(flow, now);
        }
        may
    }

    #[test]
    fn a_flow_is_answered_once_in_the_interval_and_no_other_notices() {
        let mut answered = Answered::default();
        for start in [10_000u64, 10_500, 11_200, 70_000, 70_700] {
            assert!(ask(&mut answered, 1, start));
            for after in [0, 1, 250, 499] {
                assert!(!ask(&mut answered, 1, start + after));
            }
            assert!(ask(&mut answered, start as u32, start));
        }
    }

    #[test]
    fn refusals_do_not_prolong_the_wait() {
        let mut answered = Answered::default();
        let yes = (0..5_000).filter(|ms| ask(&mut answered, 7, 10_000 + ms));
        assert_eq!(yes.count(), 10);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_never_pushed_out() {
        let mut answered = Answered::default();
        let yes = (0..10_000).filter(|&flow| ask(&mut answered, flow, 10_000));
        assert_eq!(yes.count(), MAX_ANSWERED);
        for flow in 0..MAX_ANSWERED as u32 {
            assert!(!ask(&mut answered, flow, 10_400));
        }
        // Room again, for the same and for others.
        assert!(ask(&mut answered, 0, 10_600));
        assert!(ask(&mut answered, 9_999, 10_600));
    }
}
