//! ICMP errors that we send: a port without a listener, an unknown protocol, a datagram that stayed in pieces.
//! RFC 1122 section 3.2.2 and RFC 4443 section 2.4 say about what none may be sent; how many go out is bounded, and the
//! exact number is randomized. Of the stacks that share a device one answers.

use std::net::IpAddr;

use janus_wire::{icmpv4, icmpv6, ipv4, ipv6, proto};

use crate::ip::Ip;
use crate::rules::isn;
use crate::time::Instant;

/// Errors that may go out at once after a pause.
const BURST: u64 = 50;
/// Longest message: what IPv6's smallest MTU takes.
pub(crate) const LONGEST: usize = 1_280;
/// ICMPv4 types up to this one are errors, but for these.
const LAST_ERROR_V4: u8 = 12;
const NO_ERRORS_V4: [u8; 4] = [0, 8, 9, 10];
/// ICMPv6 types below this one are errors (RFC 4443 section 2.1).
const FIRST_INFORMATION_V6: u8 = 128;
/// Where the "next header" of an IPv6 header stands.
const NEXT_HEADER_AT: u32 = 6;

/// Reason for an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The port of a UDP datagram has no listener.
    Port,
    /// The protocol is unknown.
    Protocol,
    /// The rest of a fragmented datagram did not come.
    ReassemblyTime,
}

/// How many errors may go out now: a bucket that fills with time, in thousandths of errors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    thousandths: u64,
    at: Instant,
}

impl Budget {
    /// Whether one may go out. `chance` makes its cost uncertain, from half to one and a half, so that an observer cannot learn
    /// from what is missing how many others there were (CVE-2020-25705).
    fn take(&mut self, per_second: u32, chance: u64, now: Instant) -> bool {
        let ms = now.saturating_since(self.at).as_millis() as u64;
        if ms > 0 {
            let more = ms.min(60_000) * u64::from(per_second);
            self.thousandths = (self.thousandths + more).min(BURST * 1_000);
            self.at = now;
        }
        if self.thousandths < 1_000 {
            return false;
        }
        self.thousandths -= (500 + chance % 1_001).min(self.thousandths);
        true
    }
}

impl Ip<'_> {
    /// Sends an error about `packet`, from its IP header on, which was addressed to us, if one may be sent.
    pub(crate) fn report(&mut self, report: Report, packet: &[u8]) {
        if !self.rules.interface().answers || !may_be_reported(packet) {
            return;
        }
        let chance = isn::keyed(
            self.rules.secrets(),
            self.env.now.as_nanos() ^ self.env.counters.icmp_errors_out,
        );
        let per_second = self.rules.config().icmp_errors_per_second;
        if !self.host.icmp_budget.take(per_second, chance, self.env.now) {
            self.env.counters.icmp_errors_limited += 1;
            return;
        }
        self.env.counters.icmp_errors_out += 1;
        let mut message = [0; LONGEST];
        if let Ok(ip) = ipv4::parse(packet) {
            let (src, dst) = (ip.dst, ip.src);
            let len = match report {
                Report::Port => {
                    icmpv4::emit_unreachable(&mut message, icmpv4::unreachable::PORT, 0, packet)
                }
                Report::Protocol => {
                    icmpv4::emit_unreachable(&mut message, icmpv4::unreachable::PROTOCOL, 0, packet)
                }
                Report::ReassemblyTime => icmpv4::emit_time_exceeded(&mut message, 1, packet),
            };
            let ends = (IpAddr::V4(src), IpAddr::V4(dst));
            self.send_datagram(ends, proto::ICMP, &message[..len]);
        } else if let Ok(ip) = ipv6::parse(packet) {
            let (src, dst) = (ip.dst, ip.src);
            let problem = match report {
                Report::Port => icmpv6::Problem::Unreachable(icmpv6::unreachable::PORT),
                Report::Protocol => icmpv6::Problem::Parameter {
                    code: icmpv6::parameter::NEXT_HEADER,
                    pointer: NEXT_HEADER_AT,
                },
                Report::ReassemblyTime => icmpv6::Problem::TimeExceeded(1),
            };
            let room = LONGEST - ipv6::LEN;
            let len = icmpv6::emit_error(&mut message[..room], src, dst, problem, packet);
            let ends = (IpAddr::V6(src), IpAddr::V6(dst));
            self.send_datagram(ends, proto::ICMPV6, &message[..len]);
        }
    }
}

/// Never about an ICMP error, nor about a fragment that is not the first; that it was for one address and from one was
/// seen when it came in.
fn may_be_reported(packet: &[u8]) -> bool {
    if let Ok(ip) = ipv4::parse(packet) {
        let kind = ip.payload().first().copied().unwrap_or(0);
        let is_error = kind <= LAST_ERROR_V4 && !NO_ERRORS_V4.contains(&kind);
        ip.fragment_offset() == 0 && !(ip.proto == proto::ICMP && is_error)
    } else if let Ok(ip) = ipv6::parse(packet) {
        let kind = ip.payload().first().copied().unwrap_or(0);
        let is_error = ip.proto == proto::ICMPV6 && kind < FIRST_INFORMATION_V6;
        ip.fragment.is_none_or(|fragment| fragment.offset == 0) && !is_error
    } else {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_answered_as_often_as_configured_and_not_a_fixed_number_of_times() {
        let mut budget = Budget::default();
        let mut counts = Vec::new();
        let mut chance = 1u64;
        for second in 1..=20u64 {
            let mut sent = 0;
            for ms in 0..1_000 {
                let now = Instant::from_millis(1_000 * second + ms);
                for _ in 0..10 {
                    chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    sent += u32::from(budget.take(100, chance >> 33, now));
                }
            }
            counts.push(sent);
        }
        let (least, most) = (counts[1..].iter().min(), counts[1..].iter().max());
        assert!(*least.unwrap() > 80 && *most.unwrap() < 140, "{counts:?}");
        assert!(least != most);
    }
}
