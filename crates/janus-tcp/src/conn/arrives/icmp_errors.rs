//! ICMP errors that come in: whether one is believed (RFC 5927), and what it then means for the connection it speaks of
//! (RFC 9293 section 3.9.2.2, RFC 1122 section 4.2.3.9, RFC 5461).
//!
//! Anybody can send one, so it must quote a sequence number that we have outstanding, or it is dropped. An established
//! connection is never ended by one: the network may recover, or the message be forged. What it said is remembered and
//! told if the peer never answers again. An attempt to connect ends, as on Linux: the user can try the next address.
//! That soft errors too end an attempt is stricter than MUST-56 reads; RFC 5461 section 4 has the reasons.

use core::time::Duration;

use janus_wire::SeqNum;

use crate::conn::Conn;
use crate::ip::icmp_errors::{Complaint, IcmpError};
use crate::store::hot::TimerKind;
use crate::store::{pmtu, rto};

/// How long repeats that met a missing way are not counted: about what the default number of doubled timeouts takes.
const PATIENCE: Duration = Duration::from_secs(900);

impl Conn<'_> {
    /// RFC 5927 section 4.1: what it quotes must be something we have said and the peer has not acknowledged, or an
    /// acknowledgement, which stands at SND.NXT. True when the error was taken seriously.
    /// Keeps MUST-47, MUST-56, SHLD-26.
    pub(crate) fn blamed(&mut self, error: &IcmpError) -> bool {
        let cold = &*self.tcb;
        let una = self.hot.sender.snd_una;
        if (error.seq() - una) < 0 || (error.seq() - cold.snd_nxt) > 0 {
            return false;
        }
        let opening = cold.state.is_opening();
        match error.complaint() {
            Complaint::TooBig(_) if opening => false,
            Complaint::TooBig(mtu) => self.packet_too_big(error, mtu),
            Complaint::Unreachable(why) if opening && error.seq() == una => {
                self.env.counters.icmp_refusals += 1;
                self.end(why);
                true
            }
            Complaint::Unreachable(why) => {
                self.hot.path.soft_error = why;
                if error.is_disruption() && error.seq() == una {
                    self.take_back_backoff();
                }
                true
            }
        }
    }

    /// RFC 6069 section 4: what was sent again met a way that is missing, not congestion, so its timeout is not to be
    /// doubled for it. The next repeat comes that much sooner, at once when it would be late already.
    fn take_back_backoff(&mut self) {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let head = hot.sender.flight.head;
        if head.is_none() || hot.timers.retries == 0 || hot.timers.backoff == 0 {
            return;
        }
        hot.timers.backoff -= 1;
        // Nor is it counted against the connection's patience, which is that of so many doubled timeouts; but no router can
        // prolong it for ever.
        let since_ms = self.env.now_ms.wrapping_sub(hot.congestion.acked_ms());
        if Duration::from_millis(since_ms.into()) < PATIENCE {
            hot.timers.retries -= 1;
        }
        let waited_us = self
            .env
            .now_us
            .wrapping_sub(self.blocks.segments[head].sent_us);
        let timeout = rto::timeout(cold, self.rules.waits(), hot.timers.backoff);
        let left = timeout.saturating_sub(Duration::from_micros(waited_us.into()));
        hot.timers.rto_at = self.env.now + left;
        hot.timers.due_at = hot.timers.rto_at;
        hot.timers.timer_kind = TimerKind::Rto;
        self.env.counters.backoffs_taken_back += 1;
    }

    /// RFC 1191 and RFC 8201, with RFC 5927 section 7's care: the quoted segment is in flight, and was really larger
    /// than what the message says got through. The size never falls below what every host must take anyway, so that a
    /// forger who guessed the sequence number gains little.
    /// Keeps 7323-28.
    fn packet_too_big(&mut self, error: &IcmpError, mtu: u32) -> bool {
        let Some(len) = self.segment_in_flight(error.seq()) else {
            return false;
        };
        let sent = self.packet_len(len);
        let peer = self.key.get().peer();
        let mtu = match u16::try_from(mtu).unwrap_or(u16::MAX) {
            0 if peer.is_ipv4() => pmtu::plateau_below(error.packet_len().min(sent)),
            mtu => mtu,
        };
        let v6_too_small = mtu < pmtu::SMALLEST_V6 && peer.is_ipv6();
        if v6_too_small || mtu.max(pmtu::smallest(peer)) >= sent {
            return false;
        }
        if self.env.paths.sizes.told(peer, mtu, self.env.now) {
            self.env.counters.paths_shrunk += 1;
        }
        self.path_shrank();
        true
    }

    /// The payload of the segment in flight that begins at `seq`.
    fn segment_in_flight(&self, seq: SeqNum) -> Option<u16> {
        let mut at = self.hot.sender.flight.head;
        while at.is_some() && (self.blocks.segments[at].seq - seq) < 0 {
            at = self.blocks.segments[at].next;
        }
        let seg = (at.is_some()).then(|| &self.blocks.segments[at])?;
        (seg.seq == seq).then_some(seg.len)
    }
}
