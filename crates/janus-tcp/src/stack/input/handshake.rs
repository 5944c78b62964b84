//! Opening: what arrives where no flow is; cookies that go out and come back. RFC 9293 sections 3.10.7.1 and 3.10.7.2. The answer
//! to our own SYN is in `conn/arrives/handshake.rs`, the listening side in `passive`, TIME-WAIT in `time_wait`.

use janus_mem::Frame;
use janus_wire::tcp::{Flags, Options};
use janus_wire::{FlowKey, SeqNum, StampBase};

use crate::rules::config::SynCookies;
use crate::rules::profile::DEFAULT;
use crate::stack::Stack;
use crate::stack::input::cookie::{Offer, judge, make};
use crate::store::half_open::HalfOpen;
use crate::store::keys::ConnSlot;
use crate::store::listener::ListenerId;
use crate::store::outgoing::Outgoing;
use crate::store::records::Record;
use crate::wire::parse::Parsed;

impl Stack {
    /// A segment for which no flow exists: the LISTEN and CLOSED states (sections 3.10.7.1 and .2).
    /// `old` is how far a connection in TIME-WAIT had sent that makes room for this one. Gives the connection that a
    /// cookie opened, to which the segment's text still has to go.
    pub(crate) fn no_flow(
        &mut self,
        p: &Parsed,
        frame: &Frame,
        old: Option<SeqNum>,
    ) -> Option<ConnSlot> {
        let listener = self.index.listeners.find(p.key(), p.hash());
        if p.flags().contains(Flags::RST) {
            self.goes_back();
            return None;
        }
        match listener {
            Some(id) if p.flags().contains(Flags::ACK) => return self.cookie_arrives(id, p),
            Some(id) if p.flags().contains(Flags::SYN) => {
                self.syn_for_listener(id, p, frame, old);
            }
            Some(_) => _ = self.goes_back(),
            None => self.reset_reply(p),
        }
        None
    }

    /// The acknowledgement of a flow that is only a record, with its `numbers`, SEQ and ACK; `stamps` is what its
    /// timestamps are counted from, and TS.Recent, if it uses them.
    pub(crate) fn ack_for_record(
        &mut self,
        key: FlowKey,
        numbers: (SeqNum, SeqNum),
        window: u16,
        stamps: Option<(StampBase, u32)>,
    ) {
        let timestamps =
            stamps.map(|(base, echo)| (self.rules.timestamp(base, self.env.now_ms), echo));
        let options = Options {
            timestamps,
            ..Options::NONE
        };
        let segment = Outgoing::new(key, numbers, Flags::ACK, window, options, DEFAULT);
        self.ip().reply(&segment);
    }

    /// Whether the segment in hand, for which there is no use here, goes back to who brought it.
    pub(super) fn goes_back(&mut self) -> bool {
        self.unwanted = self.unwanted.map(|_| true);
        self.unwanted.is_some()
    }

    /// RST for a segment that belongs to nothing (section 3.10.7.1), unless it may be another program's.
    pub(crate) fn reset_reply(&mut self, p: &Parsed) {
        if !self.goes_back()
            && let Some(reset) = Outgoing::reset_for(p)
        {
            self.ip().reply(&reset);
        }
    }

    /// Whether a SYN is to be answered without keeping anything. `crowded`: there is no room for another record, or its listener has
    /// its share of them.
    #[inline]
    pub(crate) fn wants_cookie(&self, crowded: bool) -> bool {
        match self.rules.config().syn_cookies {
            SynCookies::Always => true,
            SynCookies::Never => false,
            SynCookies::Pressure => crowded,
        }
    }

    /// Answers a SYN with a cookie. `record` is what would have been kept.
    pub(crate) fn send_cookie(&mut self, p: &Parsed, mut record: HalfOpen) {
        let offer = Offer {
            mss: record.mss,
            peer_scale: record.peer_scale,
            flags: record.flags,
        }
        .as_kept(p.key());
        (record.peer_scale, record.flags) = (offer.peer_scale, offer.flags);
        record.iss = make(self.rules.secrets(), p.key(), p.seq(), offer, self.env.now);
        let clock = self.rules.timestamp(record.stamps, self.env.now_ms);
        self.rules.secrets().note_cookie(self.env.now);
        self.env.counters.cookies_sent += 1;
        self.syn_ack(
            p.key(),
            &record,
            offer.timestamp(clock, self.rules.secrets().stamps().bits()),
        );
    }

    /// Returns the offer that the acknowledgement brings back, if it acknowledges a cookie.
    fn cookie_in(&mut self, p: &Parsed) -> Option<Offer> {
        let expected = match self.rules.config().syn_cookies {
            SynCookies::Never => false,
            SynCookies::Always => true,
            SynCookies::Pressure => self.rules.secrets().cookie_may_be_good(self.env.now),
        };
        if !expected || p.flags().contains(Flags::SYN) {
            return None;
        }
        let (irs, iss) = (p.seq() + u32::MAX, p.ack() + u32::MAX);
        let echo = p.timestamps().map(|(_, echo)| echo);
        let offer = judge(self.rules.secrets(), p.key(), irs, iss, echo, self.env.now);
        self.env.counters.cookies_bad += u64::from(offer.is_none());
        offer
    }

    /// An acknowledgement of something else than the SYN-ACK of this half-open record. When a SYN was answered by a cookie and,
    /// repeated, found room for a record, the peer may have the cookie's number, and its connection must not be reset: the record
    /// makes way.
    pub(crate) fn cookie_beside(&mut self, slot: u32, p: &Parsed) -> Option<ConnSlot> {
        let Some(offer) = self.cookie_in(p) else {
            self.reset_reply(p);
            return None;
        };
        let listener = self.index.half_open.get(slot).listener();
        self.drop_half_open(slot);
        let conn = self.open_by_cookie(listener, offer, p);
        self.moved(p.key());
        conn
    }

    /// An acknowledgement for a listener that knows nothing of it. Gives the connection it opens, to which the
    /// segment's text still has to go.
    pub(crate) fn cookie_arrives(&mut self, id: ListenerId, p: &Parsed) -> Option<ConnSlot> {
        let Some(offer) = self.cookie_in(p) else {
            self.reset_reply(p);
            return None;
        };
        self.open_by_cookie(id, offer, p)
    }

    /// The connection that a cookie found good opens, if there is a place for it.
    fn open_by_cookie(&mut self, id: ListenerId, offer: Offer, p: &Parsed) -> Option<ConnSlot> {
        let (irs, iss) = (p.seq() + u32::MAX, p.ack() + u32::MAX);
        let record = HalfOpen {
            irs,
            iss,
            ts_recent: p.timestamps().map_or(0, |(value, _)| value),
            sent_at: self.env.now,
            stamps: self.rules.stamp_base(p.key()),
            mss: offer.mss.min(
                self.rules
                    .largest_segment(p.key(), self.index.listeners.profile(id)),
            ),
            peer_scale: offer.peer_scale,
            own_scale: self.rules.window_scale(self.index.listeners.profile(id)),
            flags: offer.flags,
            ..HalfOpen::of(id)
        };
        // Without a place for it the segment is dropped: the peer thinks it is connected and will say so again.
        let conn = self.make_accepted(id, &record, p)?;
        if !self.file(p.hash(), Record::Connection(conn)) {
            self.unmake(conn);
            return None;
        }
        self.env.counters.cookies_accepted += 1;
        self.stand_in_queue(id, &record, conn);
        Some(conn)
    }
}
