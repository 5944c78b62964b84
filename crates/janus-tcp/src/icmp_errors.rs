//! ICMP errors that come in: whether one is believed (RFC 5927), and what it then means for the connection it speaks of
//! (RFC 9293 section 3.9.2.2, RFC 1122 section 4.2.3.9, RFC 5461).
//!
//! Anybody can send one, so it must quote a sequence number that we have outstanding, or it is dropped. An established
//! connection is never ended by one: the network may recover, or the message be forged. What it said is remembered and
//! told if the peer never answers again. An attempt to connect ends, as on Linux: the user can try the next address.
//! That soft errors too end an attempt is stricter than MUST-56 reads; RFC 5461 section 4 has the reasons.

use core::time::Duration;

use janus_wire::{FlowKey, SeqNum, icmpv4, icmpv6};

use crate::cold::{NONE, State, flag};
use crate::conn::Conn;
use crate::hot::TimerKind;
use crate::pmtu;
use crate::records::Record;
use crate::rto;
use crate::stack::Stack;

/// How long repeats that met a missing way are not counted: about what the default number of doubled timeouts takes.
const PATIENCE: Duration = Duration::from_secs(900);

/// Meaning of an error, of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complaint {
    /// Why the peer is not reached: one of the reasons in [`flag`].
    Unreachable(u8),
    /// Too large for some link, which takes so much; 0 when the router does not say.
    TooBig(u32),
}

/// An error message, and what it quotes of our segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IcmpError {
    complaint: Complaint,
    /// A part of the way is missing, which may be put right: repeats that got nowhere were not lost to congestion (RFC
    /// 6069).
    disruption: bool,
    /// A SYN-ACK that met this is not repeated (Linux: tcp_req_err).
    ends_half_open: bool,
    pub(crate) key: FlowKey,
    seq: SeqNum,
    /// How long the quoted packet was, as far as the message tells.
    packet_len: u16,
}

impl IcmpError {
    /// An IPv4 message, if it is an error about a TCP segment. Source Quench and redirects are not (MUST-55, RFC 6633).
    pub(crate) fn from_v4(message: &icmpv4::Message<'_>) -> Option<IcmpError> {
        use icmpv4::{Message, unreachable};
        let complaint = match *message {
            Message::Unreachable { code, mtu, .. } => complaint_v4(code, mtu)?,
            Message::TimeExceeded { .. } => Complaint::Unreachable(flag::NO_HOST),
            Message::ParameterProblem { .. } => Complaint::Unreachable(flag::BAD_HEADER),
            _ => return None,
        };
        let missing = matches!(*message, Message::Unreachable { code, .. }
            if matches!(code, unreachable::NET | unreachable::HOST));
        let quote = message.quote()?;
        Some(IcmpError {
            complaint,
            disruption: missing,
            ends_half_open: missing,
            key: quote.flow()?.into(),
            seq: quote.seq,
            packet_len: quote.total_len,
        })
    }

    /// An IPv6 message, if it is an error about a TCP segment.
    pub(crate) fn from_v6(message: &icmpv6::Message<'_>) -> Option<IcmpError> {
        use icmpv6::{Message, unreachable};
        let (complaint, hard) = match *message {
            Message::PacketTooBig { mtu, .. } => (Complaint::TooBig(mtu), false),
            Message::Unreachable { code, .. } => complaint_v6(code),
            Message::TimeExceeded { .. } => (Complaint::Unreachable(flag::NO_HOST), false),
            Message::ParameterProblem { .. } => (Complaint::Unreachable(flag::BAD_HEADER), true),
            _ => return None,
        };
        let quote = message.quote()?;
        Some(IcmpError {
            complaint,
            disruption: matches!(*message, Message::Unreachable { code, .. } if code == unreachable::NO_ROUTE),
            ends_half_open: hard,
            key: quote.flow()?.into(),
            seq: quote.seq,
            packet_len: quote.total_len,
        })
    }
}

/// Returns the meaning of a code (RFC 1812 section 5.2.7.1), in Linux's reading: icmp_err_convert.
fn complaint_v4(code: u8, mtu: u16) -> Option<Complaint> {
    /// The last code there is.
    const LAST: u8 = 15;
    use icmpv4::unreachable as codes;
    Some(match code {
        codes::FRAGMENTATION_NEEDED => Complaint::TooBig(u32::from(mtu)),
        codes::PORT => Complaint::Unreachable(flag::REFUSED),
        codes::PROTOCOL => Complaint::Unreachable(flag::NO_PROTOCOL),
        codes::SOURCE_ROUTE_FAILED => Complaint::Unreachable(flag::ROUTE_FAILED),
        codes::HOST_UNKNOWN => Complaint::Unreachable(flag::HOST_UNKNOWN),
        codes::HOST_ISOLATED => Complaint::Unreachable(flag::HOST_ISOLATED),
        // Networks: unreachable, unknown, prohibited, not for this type of service.
        codes::NET | 6 | 9 | 11 => Complaint::Unreachable(flag::NO_NETWORK),
        0..=LAST => Complaint::Unreachable(flag::NO_HOST),
        _ => return None,
    })
}

/// Like [`complaint_v4`], but of RFC 4443 section 3.1, and whether it is hard: icmpv6_err_convert.
fn complaint_v6(code: u8) -> (Complaint, bool) {
    use icmpv6::unreachable as codes;
    let (why, hard) = match code {
        codes::NO_ROUTE => (flag::NO_NETWORK, false),
        codes::PROHIBITED | codes::POLICY | codes::REJECTED => (flag::PROHIBITED, true),
        codes::PORT => (flag::REFUSED, true),
        codes::BEYOND_SCOPE | codes::ADDRESS => (flag::NO_HOST, false),
        _ => (flag::BAD_HEADER, true),
    };
    (Complaint::Unreachable(why), hard)
}

impl Conn<'_> {
    /// RFC 5927 section 4.1: what it quotes must be something we have said and the peer has not acknowledged, or an
    /// acknowledgement, which stands at SND.NXT. True when the error was taken seriously.
    fn blamed(&mut self, error: &IcmpError) -> bool {
        let cold = &*self.tcb;
        let id = cold.hot;
        if id == NONE {
            // Nothing is on its way.
            return false;
        }
        let una = self.hot.sender.snd_una;
        if (error.seq - una) < 0 || (error.seq - cold.snd_nxt) > 0 {
            return false;
        }
        let opening = matches!(cold.state, State::SynSent | State::SynReceived);
        match error.complaint {
            Complaint::TooBig(_) if opening => false,
            Complaint::TooBig(mtu) => self.packet_too_big(error, mtu),
            Complaint::Unreachable(why) if opening && error.seq == una => {
                self.counters.icmp_refusals += 1;
                self.end(why);
                true
            }
            Complaint::Unreachable(why) => {
                self.hot.path.soft_error = why;
                if error.disruption && error.seq == una {
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
        if head == NONE || hot.timers.retries == 0 || hot.timers.backoff == 0 {
            return;
        }
        hot.timers.backoff -= 1;
        // Nor is it counted against the connection's patience, which is that of so many doubled timeouts; but no router can
        // prolong it for ever.
        let since_ms = (self.now.as_millis() as u32).wrapping_sub(hot.congestion.acked_ms);
        if Duration::from_millis(since_ms.into()) < PATIENCE {
            hot.timers.retries -= 1;
        }
        let waited_us =
            (self.now.as_micros() as u32).wrapping_sub(self.blocks.segments[head].sent_us);
        let timeout = rto::timeout(cold, &self.rules.config, hot.timers.backoff);
        let left = timeout.saturating_sub(Duration::from_micros(waited_us.into()));
        hot.timers.rtx_at = self.now + left;
        hot.timers.rto_at = hot.timers.rtx_at;
        hot.timers.timer_kind = TimerKind::Rto;
        self.counters.backoffs_taken_back += 1;
    }

    /// RFC 1191 and RFC 8201, with RFC 5927 section 7's care: the quoted segment is in flight, and was really larger
    /// than what the message says got through. The size never falls below what every host must take anyway, so that a
    /// forger who guessed the sequence number gains little.
    fn packet_too_big(&mut self, error: &IcmpError, mtu: u32) -> bool {
        let Some(len) = self.segment_in_flight(error.seq) else {
            return false;
        };
        let sent = self.packet_len(len);
        let peer = self.key.peer();
        let mtu = match u16::try_from(mtu).unwrap_or(u16::MAX) {
            0 if peer.is_ipv4() => pmtu::plateau_below(error.packet_len.min(sent)),
            mtu => mtu,
        };
        let v6_too_small = mtu < pmtu::SMALLEST_V6 && peer.is_ipv6();
        if v6_too_small || mtu.max(pmtu::smallest(peer)) >= sent {
            return false;
        }
        if self.paths.sizes.told(peer, mtu, self.now) {
            self.counters.paths_shrunk += 1;
        }
        self.path_shrank();
        true
    }

    /// The payload of the segment in flight that begins at `seq`.
    fn segment_in_flight(&self, seq: SeqNum) -> Option<u16> {
        let mut at = self.hot.sender.flight.head;
        while at != NONE && (self.blocks.segments[at].seq - seq) < 0 {
            at = self.blocks.segments[at].next;
        }
        let seg = (at != NONE).then(|| &self.blocks.segments[at])?;
        (seg.seq == seq).then_some(seg.len)
    }
}

impl Stack {
    /// An error whose checksum holds. False when it quotes a flow that is not here.
    pub(crate) fn icmp_error_arrives(&mut self, error: &IcmpError) -> bool {
        self.counters.icmp_errors_in += 1;
        let hash = self.index.hash.flow(&error.key);
        let heeded = match self.find(&error.key, hash) {
            None | Some(Record::Stub(_)) => return false,
            Some(Record::Connection(conn)) => self
                .with(conn, |c| c.blamed(error))
                // Nothing is on its way.
                .unwrap_or(false),
            Some(Record::HalfOpen(slot)) => self.half_open_blamed(slot, error),
            // Nothing is asked of the peer any more.
            Some(Record::TimeWait(_)) => false,
        };
        self.counters.icmp_errors_ignored += u64::from(!heeded);
        true
    }

    /// Handles an error about a SYN-ACK. No task waits for the answer, so the record goes as soon as it is clear that none
    /// will come; other errors change nothing.
    fn half_open_blamed(&mut self, slot: u32, error: &IcmpError) -> bool {
        let ends = error.ends_half_open && self.index.half_open.get(slot).iss == error.seq;
        if ends {
            self.counters.icmp_refusals += 1;
            self.drop_half_open(slot);
        }
        ends
    }
}
