//! Loss of what was sent: how it is found, how it is repaired, and what a mistake is undone by.

pub(crate) mod ecn;
pub(crate) mod frto;
pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod recovery;
pub(crate) mod rttm;
pub(crate) mod sack;
pub(crate) mod tlp;
pub(crate) mod undo;
pub(crate) mod window;

use janus_wire::SeqNum;

use crate::store::recovery::Sent;

/// Facts of one acknowledgement, gathered while it is read.
#[derive(Clone, Copy, Default)]
pub(crate) struct AckSummary {
    /// Payload known to be delivered that was not before, acknowledged or SACKed.
    delivered: u32,
    /// SND.UNA has moved.
    advanced: bool,
    /// Milliseconds since the timestamp was sent that it echoes.
    echo_age_ms: Option<u32>,
    /// Something was SACKed anew.
    sacked: bool,
    /// Something was delivered that was sent once, before the last timeout.
    original: bool,
    /// Range that the peer received twice, as it says (RFC 2883).
    duplicate: Option<(SeqNum, SeqNum)>,
    /// Of what is delivered now, that which was sent last.
    newest: Option<Sent>,
    /// When that was sent which was delivered last, in the order of reading (µs); with `newest` only.
    last_sent_us: u32,
    /// Of what is SACKed now and was sent once, when the first was sent (µs).
    sacked_sent_us: Option<u32>,
    /// End of the furthest sequence number delivered now.
    end: Option<SeqNum>,
}

impl AckSummary {
    /// The summary of an acknowledgement of which nothing is known yet but whether SND.UNA moves.
    #[inline(always)]
    pub(crate) fn begin(advanced: bool) -> AckSummary {
        AckSummary {
            advanced,
            ..AckSummary::default()
        }
    }

    /// When the first was sent of what is SACKed now and was sent once (µs).
    #[inline(always)]
    pub(crate) fn sacked_sent_us(&self) -> Option<u32> {
        self.sacked_sent_us
    }

    /// Notes how many milliseconds ago the timestamp was sent that it echoes.
    #[inline(always)]
    pub(crate) fn note_echo(&mut self, age_ms: Option<u32>) {
        self.echo_age_ms = age_ms;
    }

    /// Notes payload that was not known to be delivered before.
    #[inline(always)]
    pub(crate) fn note_delivered(&mut self, bytes: u32) {
        self.delivered += bytes;
    }

    /// Notes whether something delivered was sent once, before the last timeout.
    #[inline(always)]
    pub(crate) fn note_original(&mut self, original: bool) {
        self.original |= original;
    }
}
