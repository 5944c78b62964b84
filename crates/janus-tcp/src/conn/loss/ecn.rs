//! ECN, RFC 3168 as TCP uses it: routers mark packets instead of dropping them, the receiver tells the sender, and the
//! sender halves its speed without having lost anything. Here: who may be told so (section 6.1.1), what the receiver
//! echoes (6.1.3) and which packets may be marked (6.1.2, 6.1.4 to 6.1.6). How far the window falls is in
//! `congestion`.
//!
//! A connection without ECN pays one test of a flag for each segment that comes or goes.

use janus_wire::tcp::Flags;
use janus_wire::{ipv4, ipv6};

use crate::conn::Conn;
use crate::rules::config::{Config, Ecn};
use crate::store::cold::{Tcb, flag};
use crate::wire::parse::Parsed;

/// Codepoints of the IP header (section 5). Of the two that say "capable", ECT(0) is TCP's (RFC 8311 section 3.3).
pub(crate) const NOT_ECT: u8 = 0b00;
const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// Both of TCP's flags: what a SYN offers.
const OFFER: Flags = Flags(Flags::ECE.0 | Flags::CWR.0);

/// Returns the ECN flags of a SYN of ours. A retransmitted SYN carries none: some networks drop the first for its flags
/// (section 6.1.1.1).
pub(crate) fn syn_flags(config: &Config, repeats: u8) -> Flags {
    if config.ecn == Ecn::On && repeats == 0 {
        OFFER
    } else {
        Flags(0)
    }
}

/// Returns the ECN flags of a SYN-ACK of ours.
/// Keeps 3168-7.
pub(crate) fn syn_ack_flags(agreed: u8) -> Flags {
    if agreed & flag::ECN != 0 {
        Flags::ECE
    } else {
        Flags(0)
    }
}

/// Returns the ECN agreement of a SYN, or of the answer to ours: [`flag::ECN`] or nothing.
/// Keeps 3168-11, 3168-8, SHLD-8.
pub(crate) fn agreed(config: &Config, p: &Parsed) -> u8 {
    let answers = p.flags().contains(Flags::ACK);
    let both = Flags(p.flags().0 & OFFER.0);
    let agrees = match config.ecn {
        Ecn::Off => false,
        // A broken peer reflects both flags (section 6.1.1). One that was not offered anything answers nothing.
        _ if answers => config.ecn == Ecn::On && both == Flags::ECE,
        // A SYN must not be marked as capable: one that is went through something that sets bits at will.
        Ecn::Passive | Ecn::On => both == OFFER && p.ecn() == NOT_ECT,
    };
    if agrees { flag::ECN } else { 0 }
}

impl Tcb {
    /// ECE for what we send, while a mark that we saw has not been answered with CWR.
    #[inline]
    pub(crate) fn ece(&self) -> Flags {
        if self.owes_ece() {
            Flags::ECE
        } else {
            Flags(0)
        }
    }
}

/// Makes a written packet one that routers may mark.
pub(crate) fn set_capable(packet: &mut [u8]) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4::set_ecn(packet, ECT_0),
        Some(6) => ipv6::set_ecn(packet, ECT_0),
        _ => {}
    }
}

impl Conn<'_> {
    /// A segment came on a connection with ECN (section 6.1.3): CWR ends the echo, a mark begins it, and only data
    /// counts. True when the sender should not wait for our acknowledgement: its window may have become small.
    /// Keeps 3168-10.
    pub(crate) fn marks_of(&mut self, p: &Parsed) -> bool {
        if p.payload_len() == 0 {
            return false;
        }
        let cold = &mut *self.tcb;
        let mut answer_now = p.flags().contains(Flags::CWR);
        if answer_now {
            cold.set_owes_ece(false);
        }
        if p.ecn() == CE {
            answer_now |= !cold.owes_ece();
            cold.set_owes_ece(true);
            self.env.counters.marks_in += 1;
        }
        answer_now
    }
}

#[cfg(test)]
mod tests;
