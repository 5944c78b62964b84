//! ICMP errors as they are read: what an error complains of, and the segment of ours that it quotes.

use janus_wire::{FlowKey, SeqNum, icmpv4, icmpv6};

use crate::store::cold::EndReason;

/// Meaning of an error, of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complaint {
    /// Why the peer is not reached.
    Unreachable(EndReason),
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
    key: FlowKey,
    seq: SeqNum,
    /// How long the quoted packet was, as far as the message tells.
    packet_len: u16,
}

impl IcmpError {
    pub(crate) fn complaint(&self) -> Complaint {
        self.complaint
    }

    /// A part of the way is missing, which may be put right.
    pub(crate) fn is_disruption(&self) -> bool {
        self.disruption
    }

    /// A SYN-ACK that met this is not repeated.
    pub(crate) fn ends_half_open(&self) -> bool {
        self.ends_half_open
    }

    /// The flow of the quoted segment.
    pub(crate) fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Sequence number of the quoted segment.
    pub(crate) fn seq(&self) -> SeqNum {
        self.seq
    }

    /// Length of the quoted packet, as far as the message tells.
    pub(crate) fn packet_len(&self) -> u16 {
        self.packet_len
    }

    /// An IPv4 message, if it is an error about a TCP segment. Source Quench and redirects are not (MUST-55, RFC 6633).
    /// Keeps MUST-55.
    pub(crate) fn from_v4(message: &icmpv4::Message<'_>) -> Option<IcmpError> {
        use icmpv4::{Message, unreachable};
        let complaint = match *message {
            Message::Unreachable { code, mtu, .. } => complaint_v4(code, mtu)?,
            Message::TimeExceeded { .. } => Complaint::Unreachable(EndReason::NoHost),
            Message::ParameterProblem { .. } => Complaint::Unreachable(EndReason::BadHeader),
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
            Message::TimeExceeded { .. } => (Complaint::Unreachable(EndReason::NoHost), false),
            Message::ParameterProblem { .. } => {
                (Complaint::Unreachable(EndReason::BadHeader), true)
            }
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
        codes::PORT => Complaint::Unreachable(EndReason::Refused),
        codes::PROTOCOL => Complaint::Unreachable(EndReason::NoProtocol),
        codes::SOURCE_ROUTE_FAILED => Complaint::Unreachable(EndReason::RouteFailed),
        codes::HOST_UNKNOWN => Complaint::Unreachable(EndReason::HostUnknown),
        codes::HOST_ISOLATED => Complaint::Unreachable(EndReason::HostIsolated),
        // Networks: unreachable, unknown, prohibited, not for this type of service.
        codes::NET | 6 | 9 | 11 => Complaint::Unreachable(EndReason::NoNetwork),
        0..=LAST => Complaint::Unreachable(EndReason::NoHost),
        _ => return None,
    })
}

/// Like [`complaint_v4`], but of RFC 4443 section 3.1, and whether it is hard: icmpv6_err_convert.
fn complaint_v6(code: u8) -> (Complaint, bool) {
    use icmpv6::unreachable as codes;
    let (why, hard) = match code {
        codes::NO_ROUTE => (EndReason::NoNetwork, false),
        codes::PROHIBITED | codes::POLICY | codes::REJECTED => (EndReason::Prohibited, true),
        codes::PORT => (EndReason::Refused, true),
        codes::BEYOND_SCOPE | codes::ADDRESS => (EndReason::NoHost, false),
        _ => (EndReason::BadHeader, true),
    };
    (Complaint::Unreachable(why), hard)
}
