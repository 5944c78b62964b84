//! When a listener answers with cookies, and the acknowledgements that bring them back.
//!
//! Under [`SynCookies::Pressure`] a SYN gets a cookie when the stack's half-open records, or those of its listener, are
//! at their bound: no record is pushed out for it. An acknowledgement is judged only while a cookie that some shard sent may
//! still be good, so at other times a stray acknowledgement is not worth even a hash.

use janus_wire::tcp::Flags;

use super::{Offer, judge, make};
use crate::config::SynCookies;
use crate::half_open::HalfOpen;
use crate::listener::ListenerId;
use crate::parse::Parsed;
use crate::records::Record;
use crate::stack::Stack;

impl Stack {
    /// Whether a SYN for this listener is to be answered without keeping anything.
    pub(crate) fn wants_cookie(&mut self, id: ListenerId) -> bool {
        match self.rules.config.syn_cookies {
            SynCookies::Always => true,
            SynCookies::Never => false,
            SynCookies::Pressure => {
                self.index.half_open.to_evict().is_some()
                    || self.index.listeners.syn_queue_is_full(id)
            }
        }
    }

    /// Answers a SYN with a cookie. `record` is what would have been kept.
    pub(crate) fn send_cookie(&mut self, p: &Parsed, mut record: HalfOpen) {
        let offer = Offer {
            mss: record.mss,
            peer_scale: record.peer_scale,
            flags: record.flags,
        }
        .as_kept(&p.key);
        (record.peer_scale, record.flags) = (offer.peer_scale, offer.flags);
        record.iss = make(&self.rules.secrets, &p.key, p.seq, offer, self.now);
        let clock = self.rules.stamper.timestamp(&p.key, self.now);
        self.rules.secrets.recent_cookies.note(self.now);
        self.counters.cookies_sent += 1;
        self.syn_ack(
            p.key,
            &record,
            offer.timestamp(clock, self.rules.secrets.timestamps.bits()),
        );
    }

    /// Returns the offer that the acknowledgement brings back, if it acknowledges a cookie.
    fn cookie_in(&mut self, p: &Parsed) -> Option<Offer> {
        let expected = match self.rules.config.syn_cookies {
            SynCookies::Never => false,
            SynCookies::Always => true,
            SynCookies::Pressure => self.rules.secrets.recent_cookies.is_now(self.now),
        };
        if !expected || p.flags.contains(Flags::SYN) {
            return None;
        }
        let (irs, iss) = (p.seq + u32::MAX, p.ack + u32::MAX);
        let echo = p.timestamps.map(|(_, echo)| echo);
        let offer = judge(&self.rules.secrets, &p.key, irs, iss, echo, self.now);
        self.counters.cookies_bad += u64::from(offer.is_none());
        offer
    }

    /// An acknowledgement of something else than the SYN-ACK of this half-open record. When a SYN was answered by a cookie and,
    /// repeated, found room for a record, the peer may have the cookie's number, and its connection must not be reset: the record
    /// makes way.
    pub(crate) fn cookie_beside(&mut self, slot: u32, p: &Parsed) -> Option<u32> {
        let Some(offer) = self.cookie_in(p) else {
            self.reset_reply(p);
            return None;
        };
        let listener = ListenerId(self.index.half_open.get(slot).listener);
        self.drop_half_open(slot);
        let conn = self.open_by_cookie(listener, offer, p);
        self.moved(&p.key);
        conn
    }

    /// An acknowledgement for a listener that knows nothing of it. Gives the connection it opens, to which the
    /// segment's text still has to go.
    pub(crate) fn cookie_arrives(&mut self, id: ListenerId, p: &Parsed) -> Option<u32> {
        let Some(offer) = self.cookie_in(p) else {
            self.reset_reply(p);
            return None;
        };
        self.open_by_cookie(id, offer, p)
    }

    /// The connection that a cookie found good opens, if there is a place for it.
    fn open_by_cookie(&mut self, id: ListenerId, offer: Offer, p: &Parsed) -> Option<u32> {
        let (irs, iss) = (p.seq + u32::MAX, p.ack + u32::MAX);
        let record = HalfOpen {
            irs,
            iss,
            ts_recent: p.timestamps.map_or(0, |(value, _)| value),
            sent_at: self.now,
            listener: id.0,
            mss: offer.mss.min(
                self.rules
                    .largest_segment(&p.key, self.index.listeners.profile(id.0)),
            ),
            peer_scale: offer.peer_scale,
            own_scale: self.rules.window_scale(self.index.listeners.profile(id.0)),
            flags: offer.flags,
            ..HalfOpen::default()
        };
        // Without a place for it the segment is dropped: the peer thinks it is connected and will say so again.
        let conn = self.make_accepted(id, &record, p)?;
        if !self.file(p.hash, Record::Connection(conn)) {
            self.unmake(conn);
            return None;
        }
        self.counters.cookies_accepted += 1;
        self.stand_in_queue(id, conn);
        Some(conn)
    }
}
