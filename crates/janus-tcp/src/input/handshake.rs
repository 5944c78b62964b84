//! Opening: what arrives where no flow is, the answer to our own SYN, SYNs that cross; cookies that go out and come back; and
//! what both sides of the handshake share. RFC 9293 sections 3.10.7.1 to 3.10.7.4. The listening side is in `passive`,
//! TIME-WAIT in `time_wait`.

use core::time::Duration;

use janus_mem::Frame;
use janus_wire::tcp::{Flags, Options};
use janus_wire::{FlowKey, SeqNum};

use crate::congestion;
use crate::conn::Conn;
use crate::input::cookie::{Offer, judge, make};
use crate::loss::ecn;
use crate::rules::Rules;
use crate::rules::config::{self, SynCookies};
use crate::rules::profile::DEFAULT;
use crate::stack::Stack;
use crate::store::cold::{EndReason, State, flag};
use crate::store::half_open::HalfOpen;
use crate::store::hot::hot_flag;
use crate::store::keys::ConnSlot;
use crate::store::listener::ListenerId;
use crate::store::records::Record;
use crate::store::rto;
use crate::time::Instant;
use crate::wire::Outgoing;
use crate::wire::parse::Parsed;

/// MSS of a peer that names none, over IPv4 and over IPv6 (RFC 9293 MUST-15), and the smallest we let a peer force on us.
const DEFAULT_MSS: u16 = 536;
const DEFAULT_MSS_V6: u16 = 1_220;
const SMALLEST_MSS: u16 = 48;

/// Between a reset that ends the peer's old connection and our SYN again; Linux waits about as long.
const SYN_AFTER_RESET: Duration = Duration::from_millis(10);

impl Conn<'_> {
    /// The SYN-SENT state (section 3.10.7.3).
    /// Keeps 5961-5, MUST-10.
    pub(crate) fn syn_sent_arrives(&mut self, p: &Parsed, frame: &Frame) {
        let iss = self.tcb.snd_nxt + u32::MAX;
        // First, ACK: it can only be for our SYN.
        let acked = p.flags.contains(Flags::ACK);
        if acked && p.ack != iss + 1 {
            if !p.flags.contains(Flags::RST) {
                self.reset_reply(p);
                self.repeat_syn_soon();
            }
            return;
        }
        // Second, RST: with a good ACK the peer refuses.
        if p.flags.contains(Flags::RST) {
            if acked {
                self.counters.resets_in += 1;
                self.end(EndReason::Refused);
            }
            return;
        }
        // Fourth, SYN.
        if !p.flags.contains(Flags::SYN) {
            return;
        }
        self.take_syn(p, frame);
        self.size_agreed();
        let block = &mut *self.hot;
        if acked {
            block.timers.due_at = Instant::ZERO;
            block.clear(hot_flag::SYN);
            block.set(hot_flag::ACK_NOW);
            let first_try = block.timers.backoff == 0;
            let window = congestion::first_window(block.timers.backoff);
            (block.timers.backoff, block.timers.retries) = (0, 0);
            let sent_us = core::mem::take(&mut block.timers.rtt_off_max);
            block.sender.snd_una = p.ack;
            let cold = &mut *self.tcb;
            cold.state = State::Established;
            cold.set_idle_window(window);
            if first_try {
                let rtt_us = (self.now.as_micros() as u32).wrapping_sub(sent_us);
                rto::sample(cold, rtt_us);
                block.note_rtt(rtt_us, self.now);
            } else {
                rto::handshake_lost(cold);
            }
            let facts = &mut self.paths.facts;
            if facts.recall(&self.key, self.tcb, self.rules, self.now) {
                self.counters.paths_recalled += 1;
            }
            self.begin_congestion_control();
            self.hot.sender.max_snd_wnd = self.tcb.snd_wnd();
            self.tcb.owe_timeout(self.rules);
            self.counters.connected += 1;
            self.wake_reader();
            self.wake_writer();
        } else {
            // SYNs crossed: answer with SYN-ACK and wait for the acknowledgement of ours.
            self.tcb.state = State::SynReceived;
            block.set(hot_flag::SYN);
            // The timer runs from here (RFC 6298 section 5.1).
            block.timers.due_at = Instant::ZERO;
        }
        self.queue();
    }

    /// The reset has ended what the peer still held under our numbers: the SYN that this stood in the way of goes out again
    /// (figure 9 of section 3.5.1), once, and not so soon that it could overtake the reset.
    fn repeat_syn_soon(&mut self) {
        if self.hot.timers.retries > 0 {
            return;
        }
        let (hot, soon) = (&mut *self.hot, self.now + SYN_AFTER_RESET);
        if hot.timers.due_at > soon {
            hot.timers.due_at = soon;
        }
    }

    /// Takes over the options and numbers of the peer's SYN.
    /// Keeps 7323-1, 7323-14, 7323-3, 7323-5, 7323-9.
    fn take_syn(&mut self, p: &Parsed, frame: &Frame) {
        let options = p.all_options(frame);
        let profile = self.tcb.profile;
        let mss = self.rules.usable_mss(&p.key, &options, profile);
        let agreed = self.rules.agreed(&options) | ecn::agreed(&self.rules.config, p);
        let scale = self.rules.window_scale(profile);
        let window = u32::from(self.rules.first_window(profile));
        let cold = &mut *self.tcb;
        cold.rcv_nxt = p.seq + 1;
        cold.rcv_adv = p.seq + 1 + window;
        cold.mss = mss;
        cold.set_snd_wnd(u32::from(p.window));
        cold.scales = options
            .window_scale
            .filter(|_| self.rules.config.window_scaling)
            .map_or(0, |peer| scale << 4 | peer.min(14));
        cold.clear(flag::TIMESTAMPS | flag::SACK | flag::ECN);
        cold.set(agreed);
        if let (true, Some((value, _))) = (cold.has(flag::TIMESTAMPS), options.timestamps) {
            cold.ts_recent = value;
        }
        self.tcb.hear_timeout(self.rules, options.user_timeout);
    }

    /// The peer's acknowledgement of our SYN in a simultaneous open.
    pub(crate) fn syn_received_acked(&mut self, p: &Parsed) -> bool {
        let cold = &mut *self.tcb;
        if p.ack != cold.snd_nxt {
            self.reset_reply(p);
            return false;
        }
        cold.state = State::Established;
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        let scale = if p.flags.contains(Flags::SYN) {
            0
        } else {
            cold.send_scale()
        };
        cold.set_snd_wnd(u32::from(p.window) << scale);
        let block = &mut *self.hot;
        block.sender.snd_una = p.ack;
        block.timers.due_at = Instant::ZERO;
        block.timers.rtt_off_max = 0;
        cold.set_idle_window(congestion::first_window(block.timers.backoff));
        (block.timers.backoff, block.timers.retries) = (0, 0);
        block.clear(hot_flag::SYN);
        block.sender.max_snd_wnd = cold.snd_wnd();
        self.begin_congestion_control();
        if self.tcb.has(flag::FIN_QUEUED) {
            // It was closed while it opened.
            self.tcb.state = State::FinWait1;
            self.queue();
        }
        self.tcb.owe_timeout(self.rules);
        self.counters.connected += 1;
        self.wake_reader();
        self.wake_writer();
        true
    }
}

impl Rules {
    /// Returns the options, of those a SYN can offer, that both sides use: bits of [`flag`].
    pub(crate) fn agreed(&self, offered: &Options) -> u8 {
        let bit = |both: bool, bit: u8| if both { bit } else { 0 };
        bit(
            self.config.timestamps && offered.timestamps.is_some(),
            flag::TIMESTAMPS,
        ) | bit(self.config.sack && offered.sack_permitted, flag::SACK)
    }

    /// Keeps MUST-14, MUST-15.
    pub(crate) fn usable_mss(&self, key: &FlowKey, options: &Options, profile: u8) -> u16 {
        // An MSS of nothing is none (as on Linux).
        let named = options.mss.filter(|&mss| mss > 0);
        let offered = named.unwrap_or(if key.is_v6() {
            DEFAULT_MSS_V6
        } else {
            DEFAULT_MSS
        });
        offered
            .max(SMALLEST_MSS)
            .min(self.largest_segment(key, profile))
    }

    /// The largest segment that a connection takes and sends.
    pub(crate) fn largest_segment(&self, key: &FlowKey, profile: u8) -> u16 {
        let wished = self.profiles.get(profile).max_segment;
        self.interface
            .mss(key.is_v6())
            .min(wished.unwrap_or(u16::MAX))
    }

    /// The window of a SYN is never scaled (RFC 7323 section 2.2).
    /// Keeps 7323-3.
    pub(crate) fn first_window(&self, profile: u8) -> u16 {
        let buffer = self.profiles.receive_buffer(profile, &self.config);
        buffer.min(0xffff) as u16
    }

    /// The scale that a SYN offers. Where the application says how large the buffer is to be, it does not grow.
    /// Keeps 7323-4, 7323-8.
    pub(crate) fn window_scale(&self, profile: u8) -> u8 {
        match self.profiles.get(profile).receive_buffer {
            Some(buffer) => config::scale_for(buffer),
            None => self.own_scale,
        }
    }
}

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
        let listener = self
            .index
            .listeners
            .find(p.key.local(), p.key.local_port(), p.hash);
        if p.flags.contains(Flags::RST) {
            return None;
        }
        match listener {
            Some(id) if p.flags.contains(Flags::ACK) => return self.cookie_arrives(id, p),
            Some(id) if p.flags.contains(Flags::SYN) => {
                self.syn_for_listener(id, p, frame, old);
            }
            Some(_) => {}
            None => self.reset_reply(p),
        }
        None
    }

    /// The acknowledgement of a flow that is only a record; `echo` is TS.Recent, if it uses timestamps.
    pub(crate) fn ack_for_record(
        &mut self,
        key: FlowKey,
        (seq, ack): (SeqNum, SeqNum),
        window: u16,
        echo: Option<u32>,
    ) {
        let base = self.rules.stamp_base(&key);
        let timestamps = echo.map(|echo| (self.rules.timestamp(base, self.now), echo));
        let options = Options {
            timestamps,
            ..Options::NONE
        };
        let flags = Flags::ACK;
        let segment = Outgoing {
            key,
            seq,
            ack,
            flags,
            window,
            urgent: 0,
            options,
            profile: DEFAULT,
        };
        self.ip().reply(&segment);
    }

    /// RST for a segment that belongs to nothing (section 3.10.7.1).
    pub(crate) fn reset_reply(&mut self, p: &Parsed) {
        if let Some(reset) = Outgoing::reset_for(p) {
            self.ip().reply(&reset);
        }
    }

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
        let base = self.rules.stamp_base(&p.key);
        let clock = self.rules.timestamp(base, self.now);
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
    pub(crate) fn cookie_beside(&mut self, slot: u32, p: &Parsed) -> Option<ConnSlot> {
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
    pub(crate) fn cookie_arrives(&mut self, id: ListenerId, p: &Parsed) -> Option<ConnSlot> {
        let Some(offer) = self.cookie_in(p) else {
            self.reset_reply(p);
            return None;
        };
        self.open_by_cookie(id, offer, p)
    }

    /// The connection that a cookie found good opens, if there is a place for it.
    fn open_by_cookie(&mut self, id: ListenerId, offer: Offer, p: &Parsed) -> Option<ConnSlot> {
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
