//! Segments that wait to be written: those without payload, and the fields of those that have one.

use janus_wire::tcp::options::SackBlocks;
use janus_wire::tcp::{Flags, Options};
use janus_wire::usual::UsualOptions;
use janus_wire::{FlowKey, SeqNum};

use crate::store::cold::{Tcb, flag};

/// The fields of a TCP segment that is to go out.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) key: FlowKey,
    pub(crate) seq: SeqNum,
    pub(crate) ack: SeqNum,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    /// The urgent pointer, which counts only with [`Flags::URG`].
    pub(crate) urgent: u16,
    pub(crate) options: Options,
    /// The set of socket options whose time to live and type of service the packet has.
    pub(crate) profile: u8,
}

/// A segment without payload whose options are usual ones.
pub(crate) struct Usual<'a> {
    pub(crate) key: &'a FlowKey,
    /// The flow label, which IPv6 has.
    pub(crate) label: u32,
    /// Sequence and acknowledgment number.
    pub(crate) numbers: (SeqNum, SeqNum),
    /// Control bits and window.
    pub(crate) control: (Flags, u16),
    pub(crate) options: UsualOptions,
    /// The set of socket options whose time to live and type of service the packet has.
    pub(crate) profile: u8,
}

impl Outgoing {
    /// A segment with nothing urgent.
    #[inline(always)]
    pub(crate) fn new(
        key: FlowKey,
        (seq, ack): (SeqNum, SeqNum),
        flags: Flags,
        window: u16,
        options: Options,
        profile: u8,
    ) -> Outgoing {
        Outgoing {
            key,
            seq,
            ack,
            flags,
            window,
            urgent: 0,
            options,
            profile,
        }
    }

    #[inline(always)]
    pub(crate) fn is_reset(&self) -> bool {
        self.flags.contains(Flags::RST)
    }

    /// The urgent pointer, if it counts.
    #[inline(always)]
    pub(crate) fn urgent(&self) -> Option<u16> {
        self.flags.contains(Flags::URG).then_some(self.urgent)
    }

    /// The segment carries what begins at `seq`, with these flags.
    #[inline(always)]
    pub(crate) fn carry(&mut self, seq: SeqNum, flags: Flags) {
        (self.seq, self.flags) = (seq, flags);
    }

    /// Urgent data ends so far ahead of the segment's number.
    #[inline(always)]
    pub(crate) fn point_at(&mut self, ahead: u16) {
        self.flags |= Flags::URG;
        self.urgent = ahead;
    }

    /// An acknowledgement from where the connection stands, with the window as it was last offered.
    pub(crate) fn ack_of(key: FlowKey, tcb: &Tcb, stamp: impl FnOnce() -> u32) -> Outgoing {
        Outgoing::ack_with(tcb.window_field(), key, tcb, stamp)
    }

    /// Like [`Outgoing::ack_of`], with this window field, and this timestamp where there are any.
    #[inline(always)]
    pub(crate) fn ack_with(
        window: u16,
        key: FlowKey,
        tcb: &Tcb,
        stamp: impl FnOnce() -> u32,
    ) -> Outgoing {
        Outgoing {
            key,
            seq: tcb.snd_nxt,
            ack: tcb.rcv_nxt,
            flags: Flags::ACK | tcb.ece(),
            window,
            urgent: 0,
            options: usual_options(tcb, stamp),
            profile: tcb.profile,
        }
    }

    /// Whether it only acknowledges.
    pub(crate) fn is_bare_ack(&self) -> bool {
        self.flags == Flags::ACK || self.flags == Flags::ACK | Flags::ECE
    }

    /// Like [`Outgoing::ack_of`], with SACK blocks.
    #[inline(always)]
    pub(crate) fn with_sack(mut self, sack: SackBlocks) -> Outgoing {
        self.options.sack = sack;
        self
    }

    /// A question whether the peer is there: a number it has acknowledged, and no data, so that it must say where it is
    /// (RFC 9293 section 3.8.4, SHLD-12).
    pub(crate) fn keepalive_of(key: FlowKey, tcb: &Tcb, stamp: impl FnOnce() -> u32) -> Outgoing {
        Outgoing {
            seq: tcb.snd_nxt + u32::MAX,
            flags: Flags::ACK,
            ..Outgoing::ack_of(key, tcb, stamp)
        }
    }

    /// The reset of a connection, if the peer knows of it.
    pub(crate) fn reset_of(
        key: FlowKey,
        tcb: &Tcb,
        stamp: impl FnOnce() -> u32,
    ) -> Option<Outgoing> {
        // Section 3.2 of RFC 7323 would have its option in a reset too.
        tcb.state.is_synchronized().then(|| Outgoing {
            flags: Flags::RST | Flags::ACK,
            window: 0,
            ..Outgoing::ack_of(key, tcb, stamp)
        })
    }
}

/// The options that all segments of the connection carry.
/// Keeps 2018-1, 7323-13, 7323-15, MUST-65.
#[inline]
fn usual_options(tcb: &Tcb, stamp: impl FnOnce() -> u32) -> Options {
    if !tcb.has(flag::TIMESTAMPS) {
        return Options::NONE;
    }
    Options::timestamps(stamp(), tcb.ts_recent)
}
