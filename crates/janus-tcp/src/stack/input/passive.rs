//! The listening side of the handshake: a SYN for a listener, the half-open record it makes, and the acknowledgement
//! that makes this a connection. RFC 9293 sections 3.10.7.2 and 3.10.7.4 (SYN-RECEIVED). What is done without a record
//! is in `cookie`.

use janus_mem::Frame;
use janus_wire::tcp::{Flags, Options};
use janus_wire::usual::UsualOptions;
use janus_wire::{FlowKey, SeqNum};

use crate::congestion;
use crate::conn::loss::ecn;
use crate::rules::isn;
use crate::rules::profile::DEFAULT;
use crate::stack::Stack;
use crate::store::challenge::Kind;
use crate::store::cold::{State, Tcb, flag};
use crate::store::half_open::{HalfOpen, MAX_TRIES, NO_SCALE};
use crate::store::keys::ConnSlot;
use crate::store::listener::ListenerId;
use crate::store::outgoing::{Outgoing, Usual};
use crate::store::records::Record;
use crate::store::rto;
use crate::wire::parse::Parsed;

impl Stack {
    /// Second and third check of section 3.10.7.2: a SYN creates a half-open record.
    /// Keeps 7323-9.
    pub(crate) fn syn_for_listener(
        &mut self,
        id: ListenerId,
        p: &Parsed,
        frame: &Frame,
        old: Option<SeqNum>,
    ) {
        let Some(listener) = self.index.listeners.get(id) else {
            return;
        };
        // A SYN with FIN is no way to open (it is how some scans look).
        if p.flags().contains(Flags::FIN) {
            return;
        }
        if listener.queue.len() >= listener.backlog {
            self.env.counters.dropped_accept_full += 1;
            return;
        }
        let (profile, crowded) = (listener.profile, listener.is_crowded());
        let options = p.all_options(frame);
        let (first, stamps) = self.rules.first_numbers(p.key(), self.env.now);
        let record = HalfOpen {
            irs: p.seq(),
            iss: isn::beyond(first, old),
            ts_recent: options.timestamps.map_or(0, |(value, _)| value),
            sent_at: self.env.now,
            stamps,
            mss: self.rules.usable_mss(p.key(), &options, profile),
            own_scale: self.rules.window_scale(profile),
            peer_scale: options
                .window_scale
                .filter(|_| self.rules.config().window_scaling)
                .map_or(NO_SCALE, |scale| scale.min(14)),
            flags: self.rules.agreed(&options) | ecn::agreed(self.rules.config(), p),
            user_timeout: options.user_timeout,
            tries: 1,
            ..HalfOpen::of(id)
        };
        // A peer that had a connection is no forger; and a cookie's number knows nothing of the old ones.
        let to_evict = self.index.half_open.to_evict();
        if old.is_none() && self.wants_cookie(crowded || to_evict.is_some()) {
            self.send_cookie(p, record);
            return;
        }
        if let Some(oldest) = to_evict {
            self.env.counters.half_open_evicted += 1;
            self.drop_half_open(oldest);
        }
        let Some(slot) = self.index.half_open.insert(p.key(), record) else {
            self.env.counters.dropped_table_full += 1;
            return;
        };
        if !self.file(p.hash(), Record::HalfOpen(slot)) {
            self.index.half_open.remove(slot);
            return;
        }
        if old.is_some() {
            self.moved(p.key());
        }
        self.index.listeners.half_opened(id);
        let clock = self.rules.timestamp(stamps, self.env.now_ms);
        self.syn_ack(p.key(), &record, clock);
    }

    /// Sends the SYN-ACK of a half-open record once more.
    pub(crate) fn send_syn_ack(&mut self, slot: u32) {
        let record = *self.index.half_open.get(slot);
        let key = self.index.half_open.key(slot);
        let clock = self.rules.timestamp(record.stamps, self.env.now_ms);
        self.syn_ack(&key, &record, clock);
    }

    /// The SYN-ACK that a record describes, with the timestamp `clock` if it has timestamps.
    /// Keeps 2018-1, 3168-12, MAY-3, SHLD-5.
    pub(crate) fn syn_ack(&mut self, key: &FlowKey, record: &HalfOpen, clock: u32) {
        let scaled = record.peer_scale != NO_SCALE;
        let profile = self.index.listeners.profile(record.listener());
        let mss = self.rules.largest_segment(key, profile);
        let repeats = record.tries.saturating_sub(1);
        let user_timeout = self.rules.timeout_in_syn(profile, repeats);
        let window = self.rules.first_window(profile);
        let flags = Flags::SYN | Flags::ACK | ecn::syn_ack_flags(record.flags);
        let numbers = (record.iss, record.irs + 1);
        if scaled && record.has(flag::SACK) && user_timeout.is_none() {
            let (timestamps, scale) = ((clock, record.ts_recent), record.own_scale);
            let options = match record.has(flag::TIMESTAMPS) {
                true => UsualOptions::Syn {
                    mss,
                    timestamps,
                    scale,
                },
                false => UsualOptions::PlainSyn { mss, scale },
            };
            let segment = Usual {
                key,
                label: record.stamps.flow_label(),
                numbers,
                control: (flags, window),
                options,
                profile,
            };
            self.ip().reply_usual(&segment);
            return;
        }
        let options = Options {
            mss: Some(mss),
            window_scale: scaled.then_some(record.own_scale),
            timestamps: record
                .has(flag::TIMESTAMPS)
                .then_some((clock, record.ts_recent)),
            sack_permitted: record.has(flag::SACK),
            user_timeout,
            ..Options::NONE
        };
        let segment = Outgoing::new(*key, numbers, flags, window, options, profile);
        self.ip().reply(&segment);
    }

    /// A segment for a half-open record: the SYN-RECEIVED state of section 3.10.7.4.
    /// Gives the connection it became, if there is text that still has to go to it.
    /// Keeps MUST-11.
    #[inline(always)]
    pub(crate) fn half_open_arrives(&mut self, slot: u32, p: &Parsed) -> Option<ConnSlot> {
        let mut record = *self.index.half_open.get(slot);
        let next = record.irs + 1;
        let who = Record::HalfOpen(slot);
        // First, sequence number; a repeated SYN is answered with the SYN-ACK again.
        if p.flags().contains(Flags::SYN)
            && !p.flags().contains(Flags::ACK)
            && p.seq() == record.irs
        {
            if self.may_answer_again(who, Kind::Repeat) {
                self.send_syn_ack(slot);
            }
            return None;
        }
        if p.seq() != next && !self.reaches_window(&record, p) {
            if !p.flags().contains(Flags::RST) && self.may_challenge(who) {
                self.half_open_ack(*p.key(), &record);
            }
            return None;
        }
        // Second, RST: exactly at the window's edge it ends the attempt (RFC 5961 section 3).
        if p.flags().contains(Flags::RST) {
            if p.seq() == next {
                self.env.counters.resets_in += 1;
                self.drop_half_open(slot);
            } else if self.may_challenge(who) {
                self.half_open_ack(*p.key(), &record);
            }
            return None;
        }
        // Fourth, SYN in the window: challenge (RFC 5961 section 4).
        if p.flags().contains(Flags::SYN) {
            if self.may_challenge(who) {
                self.half_open_ack(*p.key(), &record);
            }
            return None;
        }
        // Fifth, ACK: it must acknowledge our SYN and nothing else.
        if !p.flags().contains(Flags::ACK) {
            return None;
        }
        if p.ack() != record.iss + 1 {
            return self.cookie_beside(slot, p);
        }
        if record.has(flag::TIMESTAMPS) {
            match p.timestamps() {
                Some((_, echo)) if !self.echoes_syn_ack(&record, echo) => {
                    self.env.counters.dropped_paws += 1;
                    if self.may_challenge(who) {
                        self.half_open_ack(*p.key(), &record);
                    }
                    return None;
                }
                Some((v, _)) if v.wrapping_sub(record.ts_recent) as i32 >= 0 => {
                    if p.seq().le(next) {
                        record.ts_recent = v;
                    }
                }
                _ => {
                    self.env.counters.dropped_paws += 1;
                    return None;
                }
            }
        }
        // Linux: tcp_check_req. The repeated SYN-ACKs, when data is waited for no longer, ask for another.
        let defer = self.index.listeners.defer_tries(record.listener());
        if record.tries <= defer && p.space() == 0 {
            self.env.counters.deferred += u64::from(!record.acked);
            self.index.half_open.get_mut(slot).acked = true;
            return None;
        }
        let conn = self.establish(slot, &record, p)?;
        // Nearly all bring nothing that has not been taken now.
        let more = p.space() > 0 || p.flags().contains(Flags::URG) || p.has_more_options();
        more.then_some(conn)
    }

    /// Whether a segment that does not begin where the window of a half-open record does has a part in it.
    #[cold]
    fn reaches_window(&self, record: &HalfOpen, p: &Parsed) -> bool {
        let profile = self.index.listeners.profile(record.listener());
        let window = self.rules.first_window(profile);
        let ahead = p.seq() - (record.irs + 1);
        let reaches_in = ahead < 0 && ahead + p.space() as i32 > 0;
        ahead >= 0 && ahead < i32::from(window) || reaches_in
    }

    /// Whether the timestamp that is echoed can be a SYN-ACK's of this record. An older one is of the tuple's connection before this: a repeat of
    /// its SYN came late, and our new number may be what its peer still acknowledges (Linux: tcp_check_req; so some echo nothing).
    #[inline(always)]
    fn echoes_syn_ack(&self, record: &HalfOpen, echo: u32) -> bool {
        let age = self.rules.age_ms(record.stamps, self.env.now_ms, echo);
        let sent_ms = record.sent_at.as_millis() as u32;
        let least =
            self.env.now_ms.wrapping_sub(sent_ms) + self.rules.secrets().stamps().slack_ms();
        age <= least || echo == 0 || record.tries > 1 && age <= least + self.waited_ms(record)
    }

    /// Time from a record's first SYN-ACK to its last.
    #[cold]
    fn waited_ms(&self, record: &HalfOpen) -> u32 {
        let first = self.rules.config().rto_initial.as_millis() as u32;
        // With a timer that may be late.
        first.saturating_mul(1 << record.tries.min(MAX_TRIES as u8))
    }

    /// A SYN-ACK has not been answered in time: it is sent again, or the record given up. One that was answered, but by no
    /// data yet, is left in peace until the listener's patience ends (Linux: syn_ack_recalc).
    pub(crate) fn syn_ack_is_due(&mut self, slot: u32) {
        let record = *self.index.half_open.get(slot);
        let listener = record.listener();
        let defer = self.index.listeners.defer_tries(record.listener());
        let deferring = record.acked && record.tries <= defer;
        let tries = self.index.listeners.syn_ack_tries(listener);
        let tired = record.tries
            >= tries.min(self.rules.config().max_syn_ack_retries.saturating_add(1))
            && !deferring;
        if tired || !self.index.half_open.try_again(slot, self.env.now) {
            self.env.counters.half_open_expired += 1;
            self.drop_half_open(slot);
            return;
        }
        if record.tries == 1 {
            self.index.listeners.half_open_aged(listener);
        }
        if !record.acked || record.tries >= defer {
            self.env.counters.retransmissions += 1;
            self.send_syn_ack(slot);
        }
    }

    fn half_open_ack(&mut self, key: FlowKey, record: &HalfOpen) {
        let stamps = record
            .has(flag::TIMESTAMPS)
            .then_some((record.stamps, record.ts_recent));
        let (seq, ack) = (record.iss + 1, record.irs + 1);
        let window = self
            .rules
            .first_window(self.index.listeners.profile(record.listener()));
        self.ack_for_record(key, (seq, ack), window, stamps);
    }

    /// The half-open record becomes a connection and stands in the accept queue.
    /// Keeps 7323-1, 7323-5.
    #[inline(always)]
    fn establish(&mut self, slot: u32, record: &HalfOpen, p: &Parsed) -> Option<ConnSlot> {
        let (key, listener) = (p.key(), record.listener());
        let listeners = &self.index.listeners;
        // A listener may have gone since, and another one have taken its place.
        let same = record.tries == 1 && listeners.are_since(record.sent_at);
        if !same && !listeners.serves(listener, key.local(), key.local_port()) {
            self.drop_half_open(slot);
            self.reset_reply(p);
            return None;
        }
        let conn = self.make_accepted(listener, record, p)?;
        self.index.table.replace(
            p.hash(),
            Record::HalfOpen(slot).encode(),
            Record::Connection(conn).encode(),
        );
        self.index.half_open.remove(slot);
        self.index.established = Some(conn);
        self.moved(key);
        self.stand_in_queue(listener, record, conn);
        Some(conn)
    }

    /// The connection that a finished handshake makes, if there is a place for it. It has still to be filed, and to be
    /// told to its listener.
    pub(crate) fn make_accepted(
        &mut self,
        id: ListenerId,
        record: &HalfOpen,
        p: &Parsed,
    ) -> Option<ConnSlot> {
        let listener = self.index.listeners.get(id)?;
        if listener.queue.len() >= listener.backlog {
            // The SYN-ACK will be repeated, and answered again when there may be room.
            self.env.counters.dropped_accept_full += 1;
            return None;
        }
        let (profile, nodelay) = (listener.profile, listener.nodelay);
        let Some(conn) = self.store.tcbs.alloc(p.key()) else {
            self.env.counters.dropped_table_full += 1;
            return None;
        };
        let scaled = record.peer_scale != NO_SCALE;
        let scales = if scaled {
            record.own_scale << 4 | record.peer_scale
        } else {
            0
        };
        let window = u32::from(self.rules.first_window(profile));
        let cold = &mut self.store.tcbs[conn];
        *cold = Tcb {
            snd_nxt: record.iss + 1,
            rcv_nxt: record.irs + 1,
            rcv_adv: record.irs + 1 + window,
            send_window: u32::from(p.window()) << (scales & 0xf),
            ts_recent: record.ts_recent,
            generation: cold.generation,
            last_heard_ms: self.env.now_ms,
            mss: record.mss,
            cwnd_code: congestion::encode_window(congestion::first_window(
                record.tries.saturating_sub(1),
            )),
            state: State::Established,
            flags: record.flags | if nodelay { flag::NODELAY } else { 0 },
            scales,
            profile,
            ..Tcb::default()
        };
        cold.set_snd_wnd(cold.snd_wnd());
        cold.detach(record.stamps);
        match record.tries {
            // A cookie does not tell how often, or when, it was sent; and data that was waited for measures nothing.
            0 => {}
            1 if record.acked => {}
            1 => {
                let rtt = self
                    .env
                    .now
                    .as_micros()
                    .saturating_sub(record.sent_at.as_micros());
                rto::sample(cold, u32::try_from(rtt).unwrap_or(u32::MAX));
            }
            _ => rto::handshake_lost(cold),
        }
        let facts = &mut self.env.paths.facts;
        if facts.recall(p.key(), cold, &self.rules, self.env.now) {
            self.env.counters.paths_recalled += 1;
        }
        cold.hear_timeout(&self.rules, record.user_timeout);
        cold.owe_timeout(&self.rules);
        if profile != DEFAULT {
            self.inherit_options(conn, profile);
        }
        Some(conn)
    }

    /// A new connection, which `record` has become, waits to be accepted.
    #[inline(always)]
    pub(crate) fn stand_in_queue(&mut self, id: ListenerId, record: &HalfOpen, conn: ConnSlot) {
        self.queue_up(id, record.tries, conn);
        self.env.counters.accepted += 1;
    }

    /// A connection joins those that wait to be accepted, and wakes the task that waits for one.
    #[inline(always)]
    pub(crate) fn queue_up(&mut self, id: ListenerId, tries: u8, conn: ConnSlot) {
        let (listeners, now) = (&mut self.index.listeners, self.env.now);
        if let Some(acceptor) = listeners.established(id, tries, conn, now) {
            self.schedule.wake(acceptor);
        }
    }

    /// Gives back a connection that could not be filed.
    pub(crate) fn unmake(&mut self, conn: ConnSlot) {
        self.store.tcbs[conn].state = State::Closed;
        self.release(conn);
    }
}
