//! Opening: a SYN for a listener, the acknowledgement that makes a half-open record a connection, the answer
//! to our own SYN, and segments for flows in TIME-WAIT. RFC 9293 sections 3.10.7.1 to 3.10.7.4.

use janus_mem::Frame;
use janus_wire::tcp::{Flags, Options};
use janus_wire::{FlowKey, SeqNum};

use crate::challenge::Kind;
use crate::cold::{NONE, State, Tcb, flag};
use crate::congestion;
use crate::emit::Outgoing;
use crate::half_open::{HalfOpen, NO_SCALE};
use crate::hot::hot_flag;
use crate::isn;
use crate::listener::ListenerId;
use crate::parse::Parsed;
use crate::records::Record;
use crate::rto;
use crate::stack::Stack;
use crate::time::Instant;
use crate::time_wait::TimeWait;

/// MSS of a peer that names none (RFC 9293 MUST-15), and the smallest we let a peer force on us.
const DEFAULT_MSS: u16 = 536;
const SMALLEST_MSS: u16 = 48;

impl Stack {
    /// A segment for which no flow exists: the LISTEN and CLOSED states (sections 3.10.7.1 and .2).
    /// `old` is how far a connection in TIME-WAIT had sent that makes room for this one. Gives the connection that a
    /// cookie opened, to which the segment's text still has to go.
    pub(crate) fn no_flow(
        &mut self,
        p: &Parsed,
        frame: &Frame,
        old: Option<SeqNum>,
        now: Instant,
    ) -> Option<u32> {
        let listener = self.listeners.find(p.key.local(), p.key.local_port());
        if p.flags.contains(Flags::RST) {
            return None;
        }
        match listener {
            Some(id) if p.flags.contains(Flags::ACK) => return self.cookie_arrives(id, p, now),
            Some(id) if p.flags.contains(Flags::SYN) => {
                self.syn_for_listener(id, p, frame, old, now);
            }
            Some(_) => {}
            None => self.reset_reply(p),
        }
        None
    }

    /// Second and third check of section 3.10.7.2: a SYN creates a half-open record.
    fn syn_for_listener(
        &mut self,
        id: ListenerId,
        p: &Parsed,
        frame: &Frame,
        old: Option<SeqNum>,
        now: Instant,
    ) {
        let Some(listener) = self.listeners.get(id) else {
            return;
        };
        // A SYN with FIN is no way to open (it is how some scans look).
        if p.flags.contains(Flags::FIN) {
            return;
        }
        if listener.queue.len() >= listener.backlog {
            self.counters.dropped_accept_full += 1;
            return;
        }
        let options = p.syn_options(frame);
        let record = HalfOpen {
            irs: p.seq,
            iss: isn::beyond(isn::initial(&self.secrets, &p.key, now), old),
            ts_recent: options.timestamps.map_or(0, |(value, _)| value),
            sent_at: now,
            listener: id.0,
            mss: self.usable_mss(&p.key, &options),
            peer_scale: options.window_scale.map_or(NO_SCALE, |scale| scale.min(14)),
            flags: self.agreed(&options),
            ..HalfOpen::default()
        };
        // A peer that had a connection is no forger; and a cookie's number knows nothing of the old ones.
        if old.is_none() && self.wants_cookie(id) {
            self.send_cookie(p, record, now);
            return;
        }
        if let Some(oldest) = self.half_open.to_evict() {
            self.counters.half_open_evicted += 1;
            self.drop_half_open(oldest);
        }
        let Some(slot) = self.half_open.insert(&p.key, record) else {
            self.counters.dropped_table_full += 1;
            return;
        };
        if !self.file(p.hash, Record::HalfOpen(slot)) {
            self.half_open.remove(slot);
            return;
        }
        self.listeners.half_opened(id);
        self.send_syn_ack(slot, now);
    }

    /// What both sides use of that which a SYN can offer: bits of [`flag`].
    fn agreed(&self, offered: &Options) -> u8 {
        let bit = |both: bool, bit: u8| if both { bit } else { 0 };
        bit(
            self.config.timestamps && offered.timestamps.is_some(),
            flag::TIMESTAMPS,
        ) | bit(self.config.sack && offered.sack_permitted, flag::SACK)
    }

    fn usable_mss(&self, key: &FlowKey, options: &Options) -> u16 {
        let offered = options.mss.unwrap_or(DEFAULT_MSS);
        offered
            .max(SMALLEST_MSS)
            .min(self.interface.mss(key.is_v6()))
    }

    pub(crate) fn send_syn_ack(&mut self, slot: u32, now: Instant) {
        let record = *self.half_open.get(slot);
        let key = self.half_open.key(slot);
        let clock = isn::timestamp(&self.secrets, &key, now);
        self.syn_ack(key, &record, clock, now);
    }

    /// The SYN-ACK that a record describes, with the timestamp `clock` if it has timestamps.
    pub(crate) fn syn_ack(&mut self, key: FlowKey, record: &HalfOpen, clock: u32, now: Instant) {
        let scaled = record.peer_scale != NO_SCALE;
        let options = Options {
            mss: Some(self.interface.mss(key.is_v6())),
            window_scale: scaled.then(|| self.config.window_scale()),
            timestamps: record
                .has(flag::TIMESTAMPS)
                .then_some((clock, record.ts_recent)),
            sack_permitted: record.has(flag::SACK),
            ..Options::NONE
        };
        self.reply(
            &Outgoing {
                key,
                seq: record.iss,
                ack: record.irs + 1,
                flags: Flags::SYN | Flags::ACK,
                window: self.first_window(),
                options,
            },
            now,
        );
    }

    /// The window of a SYN is never scaled (RFC 7323 section 2.2).
    pub(crate) fn first_window(&self) -> u16 {
        self.config.receive_buffer.min(0xffff) as u16
    }

    /// A segment for a half-open record: the SYN-RECEIVED state of section 3.10.7.4.
    /// Gives the connection it became, to which the segment's text still has to go.
    pub(crate) fn half_open_arrives(&mut self, slot: u32, p: &Parsed, now: Instant) -> Option<u32> {
        let record = *self.half_open.get(slot);
        let next = record.irs + 1;
        let who = Record::HalfOpen(slot);
        // First, sequence number; a repeated SYN is answered with the SYN-ACK again.
        if p.flags.contains(Flags::SYN) && !p.flags.contains(Flags::ACK) && p.seq == record.irs {
            if self.may_answer_again(who, Kind::Repeat, now) {
                self.send_syn_ack(slot, now);
            }
            return None;
        }
        let ahead = p.seq - next;
        let in_window = ahead >= 0 && ahead < i32::from(self.first_window());
        if !in_window {
            if !p.flags.contains(Flags::RST) && self.may_challenge(who, now) {
                self.half_open_ack(p.key, &record, now);
            }
            return None;
        }
        // Second, RST: exactly at the window's edge it ends the attempt (RFC 5961 section 3).
        if p.flags.contains(Flags::RST) {
            if p.seq == next {
                self.counters.resets_in += 1;
                self.drop_half_open(slot);
            } else if self.may_challenge(who, now) {
                self.half_open_ack(p.key, &record, now);
            }
            return None;
        }
        // Fourth, SYN in the window: challenge (RFC 5961 section 4).
        if p.flags.contains(Flags::SYN) {
            if self.may_challenge(who, now) {
                self.half_open_ack(p.key, &record, now);
            }
            return None;
        }
        // Fifth, ACK: it must acknowledge our SYN and nothing else.
        if !p.flags.contains(Flags::ACK) {
            return None;
        }
        if p.ack != record.iss + 1 {
            self.reset_reply(p);
            return None;
        }
        if record.has(flag::TIMESTAMPS)
            && p.timestamps
                .is_none_or(|(v, _)| (v.wrapping_sub(record.ts_recent) as i32) < 0)
        {
            self.counters.dropped_paws += 1;
            return None;
        }
        self.establish(slot, &record, p, now)
    }

    fn half_open_ack(&mut self, key: FlowKey, record: &HalfOpen, now: Instant) {
        let echo = record.has(flag::TIMESTAMPS).then_some(record.ts_recent);
        let (seq, ack) = (record.iss + 1, record.irs + 1);
        self.ack_for_record(key, (seq, ack), self.first_window(), echo, now);
    }

    /// The acknowledgement of a flow that is only a record; `echo` is TS.Recent, if it uses timestamps.
    fn ack_for_record(
        &mut self,
        key: FlowKey,
        (seq, ack): (SeqNum, SeqNum),
        window: u16,
        echo: Option<u32>,
        now: Instant,
    ) {
        let timestamps = echo.map(|echo| (isn::timestamp(&self.secrets, &key, now), echo));
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
            options,
        };
        self.reply(&segment, now);
    }

    /// The half-open record becomes a connection and stands in the accept queue.
    fn establish(&mut self, slot: u32, record: &HalfOpen, p: &Parsed, now: Instant) -> Option<u32> {
        // Its listener may have gone, and another one taken its place.
        let key = &p.key;
        let at = self.listeners.find(key.local(), key.local_port());
        let Some(listener) = at.filter(|id| id.0 == record.listener) else {
            self.drop_half_open(slot);
            self.reset_reply(p);
            return None;
        };
        let conn = self.make_accepted(listener, record, p, now)?;
        self.table.replace(
            p.hash,
            Record::HalfOpen(slot).encode(),
            Record::Connection(conn).encode(),
        );
        self.half_open.remove(slot);
        self.listeners.half_open_gone(listener);
        self.stand_in_queue(listener, conn);
        Some(conn)
    }

    /// The connection that a finished handshake makes, if there is a place for it. It has still to be filed, and to be
    /// told to its listener.
    pub(crate) fn make_accepted(
        &mut self,
        id: ListenerId,
        record: &HalfOpen,
        p: &Parsed,
        now: Instant,
    ) -> Option<u32> {
        let listener = self.listeners.get(id)?;
        if listener.queue.len() >= listener.backlog {
            // The SYN-ACK will be repeated, and answered again when there may be room.
            self.counters.dropped_accept_full += 1;
            return None;
        }
        let Some(conn) = self.cold.alloc(&p.key) else {
            self.counters.dropped_table_full += 1;
            return None;
        };
        let scaled = record.peer_scale != NO_SCALE;
        let scales = if scaled {
            self.config.window_scale() << 4 | record.peer_scale
        } else {
            0
        };
        let window = u32::from(self.first_window());
        let cold = &mut self.cold[conn];
        *cold = Tcb {
            snd_nxt: record.iss + 1,
            rcv_nxt: record.irs + 1,
            rcv_adv: record.irs + 1 + window,
            snd_wnd: u32::from(p.window) << (scales & 0xf),
            ts_recent: record.ts_recent,
            generation: cold.generation,
            last_heard_ms: now.as_millis() as u32,
            mss: record.mss,
            cwnd_code: congestion::encode_window(congestion::first_window(
                record.tries.saturating_sub(1),
            )),
            state: State::Established,
            flags: record.flags,
            scales,
            ..Tcb::default()
        };
        match record.tries {
            // Of a cookie nobody knows how often, or when, it was sent.
            0 => {}
            1 => {
                let rtt = now.saturating_since(record.sent_at).as_micros();
                rto::sample(cold, u32::try_from(rtt).unwrap_or(u32::MAX));
            }
            _ => rto::handshake_lost(cold),
        }
        Some(conn)
    }

    /// A new connection waits to be accepted.
    pub(crate) fn stand_in_queue(&mut self, id: ListenerId, conn: u32) {
        if let Some(listener) = self.listeners.get(id) {
            listener.queue.push_back(conn);
            Self::wake(&mut self.ready, &mut listener.acceptor);
        }
        self.counters.accepted += 1;
    }

    /// Gives back a connection that could not be filed.
    pub(crate) fn unmake(&mut self, conn: u32) {
        self.cold[conn].state = State::Closed;
        self.release(conn);
    }

    /// The SYN-SENT state (section 3.10.7.3).
    pub(crate) fn syn_sent_arrives(&mut self, conn: u32, p: &Parsed, frame: &Frame, now: Instant) {
        let cold = &self.cold[conn];
        let (iss, hot) = (cold.snd_nxt + u32::MAX, cold.hot);
        // First, ACK: it can only be for our SYN.
        let acked = p.flags.contains(Flags::ACK);
        if acked && p.ack != iss + 1 {
            if !p.flags.contains(Flags::RST) {
                self.reset_reply(p);
            }
            return;
        }
        // Second, RST: with a good ACK the peer refuses.
        if p.flags.contains(Flags::RST) {
            if acked {
                self.counters.resets_in += 1;
                self.end(conn, flag::REFUSED);
            }
            return;
        }
        // Fourth, SYN.
        if !p.flags.contains(Flags::SYN) || hot == NONE {
            return;
        }
        self.take_syn(conn, p, frame);
        let block = &mut self.hot[hot];
        if acked {
            block.rto_at = Instant::ZERO;
            block.clear(hot_flag::SYN);
            block.set(hot_flag::ACK_NOW);
            let first_try = block.backoff == 0;
            let window = congestion::first_window(block.backoff);
            (block.backoff, block.retries) = (0, 0);
            let sent_us = block.syn_sent_us;
            block.snd_una = p.ack;
            let cold = &mut self.cold[conn];
            cold.state = State::Established;
            cold.set_idle_window(window);
            if first_try {
                rto::sample(cold, (now.as_micros() as u32).wrapping_sub(sent_us));
            } else {
                rto::handshake_lost(cold);
            }
            congestion::wake(block, cold, &self.config, now);
            block.max_snd_wnd = cold.snd_wnd;
            self.counters.connected += 1;
            self.wake_reader(conn);
            self.wake_writer(conn);
        } else {
            // SYNs crossed: answer with SYN-ACK and wait for the acknowledgement of ours.
            self.cold[conn].state = State::SynReceived;
            block.set(hot_flag::SYN);
        }
        self.queue_output(hot);
    }

    /// What the peer's SYN says of it.
    fn take_syn(&mut self, conn: u32, p: &Parsed, frame: &Frame) {
        let options = p.syn_options(frame);
        let mss = self.usable_mss(&p.key, &options);
        let agreed = self.agreed(&options);
        let scale = self.config.window_scale();
        let window = u32::from(self.first_window());
        let cold = &mut self.cold[conn];
        cold.rcv_nxt = p.seq + 1;
        cold.rcv_adv = p.seq + 1 + window;
        cold.mss = mss;
        cold.snd_wnd = u32::from(p.window);
        cold.scales = options
            .window_scale
            .map_or(0, |peer| scale << 4 | peer.min(14));
        cold.clear(flag::TIMESTAMPS | flag::SACK);
        cold.set(agreed);
        if let (true, Some((value, _))) = (cold.has(flag::TIMESTAMPS), options.timestamps) {
            cold.ts_recent = value;
        }
    }

    /// A segment for a flow in TIME-WAIT, or orphaned in FIN-WAIT-2 (section 3.10.7.4).
    /// When the record is gone and the segment opens a new connection: how far the old one had sent.
    pub(crate) fn time_wait_arrives(
        &mut self,
        slot: u32,
        p: &Parsed,
        now: Instant,
    ) -> Option<SeqNum> {
        let record = *self.time_wait.get(slot);
        let older = |v: u32| (v.wrapping_sub(record.ts_recent) as i32) < 0;
        if p.flags.contains(Flags::RST) {
            // RFC 1337: a RST does not end TIME-WAIT; orphaned FIN-WAIT-2 has nothing to protect.
            if record.fin_wait_2 && p.seq == record.rcv_nxt {
                self.drop_time_wait(slot);
            }
            return None;
        }
        if p.flags.contains(Flags::SYN) {
            if !record.fin_wait_2 && !p.flags.contains(Flags::ACK) && self.reopens(&record, p) {
                self.drop_time_wait(slot);
                return Some(record.snd_nxt);
            }
            if self.may_challenge(Record::TimeWait(slot), now) {
                self.time_wait_ack(slot, now);
            }
            return None;
        }
        if record.timestamps && p.timestamps.is_some_and(|(v, _)| older(v)) {
            self.counters.dropped_paws += 1;
            self.time_wait_ack(slot, now);
            return None;
        }
        let fin = p.flags.contains(Flags::FIN | Flags::ACK);
        if record.fin_wait_2 && p.seq == record.rcv_nxt && p.payload_len == 0 && fin {
            let until = now + self.config.time_wait;
            let record = self.time_wait.get_mut(slot);
            record.rcv_nxt = p.seq + 1;
            record.fin_wait_2 = false;
            self.time_wait.restart(slot, until);
            self.time_wait_ack(slot, now);
        } else if record.fin_wait_2 && p.payload_len > 0 && p.seq == record.rcv_nxt {
            // Nobody is left to read it (RFC 1122 section 4.2.2.13).
            self.reset_reply(p);
            self.drop_time_wait(slot);
        } else if p.payload_len > 0 || fin {
            // Only the peer's own FIN, repeated, restarts the wait; a stranger's must not keep the record for ever.
            if fin && !record.fin_wait_2 && p.seq + p.space() == record.rcv_nxt {
                self.time_wait.restart(slot, now + self.config.time_wait);
            }
            self.time_wait_ack(slot, now);
        }
        None
    }

    /// RFC 9293 MAY-2 by the rules of RFC 6191 section 2: whether a SYN lies beyond all that the old connection saw.
    fn reopens(&self, old: &TimeWait, p: &Parsed) -> bool {
        let beyond = p.seq.gt(old.rcv_nxt);
        match p.timestamps.filter(|_| self.config.timestamps) {
            Some((value, _)) if old.timestamps => {
                let newer = value.wrapping_sub(old.ts_recent) as i32;
                newer > 0 || newer == 0 && beyond
            }
            // From now on timestamps tell old segments from new ones.
            Some(_) => true,
            None => beyond,
        }
    }

    fn time_wait_ack(&mut self, slot: u32, now: Instant) {
        let record = *self.time_wait.get(slot);
        let echo = record.timestamps.then_some(record.ts_recent);
        let numbers = (record.snd_nxt, record.rcv_nxt);
        self.ack_for_record(self.time_wait.key(slot), numbers, record.window, echo, now);
    }

    /// RST for a segment that belongs to nothing (section 3.10.7.1).
    pub(crate) fn reset_reply(&mut self, p: &Parsed) {
        if p.flags.contains(Flags::RST) {
            return;
        }
        let (seq, ack, flags) = if p.flags.contains(Flags::ACK) {
            (p.ack, SeqNum(0), Flags::RST)
        } else {
            (SeqNum(0), p.seq + p.space(), Flags::RST | Flags::ACK)
        };
        let key = p.key;
        let now = self.now;
        let sent = self.reply(
            &Outgoing {
                key,
                seq,
                ack,
                flags,
                window: 0,
                options: Options::NONE,
            },
            now,
        );
        self.counters.resets_out += u64::from(sent);
    }

    /// The peer's acknowledgement of our SYN in a simultaneous open.
    pub(crate) fn syn_received_acked(
        &mut self,
        conn: u32,
        hot: u32,
        p: &Parsed,
        now: Instant,
    ) -> bool {
        let cold = &mut self.cold[conn];
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
        cold.snd_wnd = u32::from(p.window) << scale;
        let block = &mut self.hot[hot];
        block.snd_una = p.ack;
        block.rto_at = Instant::ZERO;
        cold.set_idle_window(congestion::first_window(block.backoff));
        (block.backoff, block.retries) = (0, 0);
        block.clear(hot_flag::SYN);
        block.max_snd_wnd = cold.snd_wnd;
        congestion::wake(block, cold, &self.config, now);
        self.counters.connected += 1;
        self.wake_reader(conn);
        self.wake_writer(conn);
        true
    }
}
