//! Segments for a flow in TIME-WAIT, or orphaned in FIN-WAIT-2: repeats are acknowledged, a SYN beyond all that was seen
//! opens anew. RFC 9293 section 3.10.7.4, RFC 1337, RFC 6191.

use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

use crate::conn::arrives::is_repeat;
use crate::stack::Stack;
use crate::store::challenge::Kind;
use crate::store::records::Record;
use crate::store::time_wait::TimeWait;
use crate::wire::parse::Parsed;

impl Stack {
    /// Whether a segment for a flow in TIME-WAIT would open a new connection, where somebody listens.
    pub(crate) fn opens_anew(&self, slot: u32, p: &Parsed) -> bool {
        let record = self.index.time_wait.get(slot);
        p.flags().contains(Flags::SYN)
            && !p.flags().contains(Flags::ACK)
            && !record.fin_wait_2
            && self.reopens(record, p)
    }

    /// Whether a segment that may be for another program is none of the connection that was here: one that its peer has begun since from the same port is
    /// there.
    pub(crate) fn is_of_another(&self, slot: u32, p: &Parsed) -> bool {
        /// No window is larger; numbers that were drawn anew are seldom as near.
        const NEAR: i32 = 1 << 25;
        if self.unwanted.is_none() || p.flags().contains(Flags::SYN) {
            return false;
        }
        let record = self.index.time_wait.get(slot);
        let is_behind = |number: SeqNum, end: SeqNum| (0..=NEAR).contains(&(end - number));
        let sent = is_behind(p.seq() + p.space(), record.rcv_nxt);
        let acked = !p.flags().contains(Flags::ACK) || is_behind(p.ack(), record.snd_nxt);
        !(record.fin_wait_2 || sent && acked)
    }

    /// Whether a segment opens nothing because no shard listens: it is a stray like others (Linux: tcp_v4_rcv).
    pub(crate) fn opens_nothing(&mut self, slot: u32, p: &Parsed) -> bool {
        let key = p.key();
        let asked = self.index.listeners.find(key, p.hash()).is_some();
        if !asked {
            self.challenge_for_record(slot);
        }
        !asked
    }

    /// The flow is to be opened anew: its record goes. How far it had sent.
    pub(crate) fn end_time_wait(&mut self, slot: u32) -> SeqNum {
        let sent = self.index.time_wait.get(slot).snd_nxt;
        self.drop_time_wait(slot);
        sent
    }

    /// A segment for a flow in TIME-WAIT, or orphaned in FIN-WAIT-2 (section 3.10.7.4), that does not open it anew.
    pub(crate) fn time_wait_arrives(&mut self, slot: u32, p: &Parsed) {
        let record = *self.index.time_wait.get(slot);
        let (rst, syn) = (
            p.flags().contains(Flags::RST),
            p.flags().contains(Flags::SYN),
        );
        if rst {
            // RFC 1337: a RST does not end TIME-WAIT, unless so configured; orphaned FIN-WAIT-2 has nothing to protect.
            if record.fin_wait_2 {
                self.reset_orphan(slot, &record, p);
            } else if self.rules.config().reset_ends_time_wait && p.seq() == record.rcv_nxt {
                self.env.counters.resets_in += 1;
                self.drop_time_wait(slot);
            }
            return;
        }
        if syn {
            self.challenge_for_record(slot);
            return;
        }
        let older = |v: u32| (v.wrapping_sub(record.ts_recent) as i32) < 0;
        if record.timestamps && p.timestamps().is_some_and(|(v, _)| older(v)) {
            self.env.counters.dropped_paws += 1;
            self.acknowledge_to_record(slot, &record, p);
        } else if record.fin_wait_2 {
            self.orphan_arrives(slot, &record, p);
        } else if p.flags().contains(Flags::ACK) && p.space() > 0 {
            // Only the peer's own FIN, repeated, restarts the wait; a stranger's must not keep the record for ever.
            if p.flags().contains(Flags::FIN) && p.seq() + p.space() == record.rcv_nxt {
                self.index
                    .time_wait
                    .restart(slot, self.env.now + self.rules.config().time_wait);
            }
            self.acknowledge_to_record(slot, &record, p);
        } else if p.flags().contains(Flags::ACK) && p.seq() != record.rcv_nxt {
            // An empty segment that is not where the peer ought to be (section 3.10.7.4, first check, and Linux for one
            // within the window): it is told where we are. What is in its place asks for nothing, so that two that wait
            // do not talk for ever.
            self.challenge_for_record(slot);
        }
    }

    /// The second check for an orphan: RFC 5961 section 3.2.
    fn reset_orphan(&mut self, slot: u32, record: &TimeWait, p: &Parsed) {
        let ahead = p.seq() - record.rcv_nxt;
        if ahead == 0 {
            self.env.counters.resets_in += 1;
            self.drop_time_wait(slot);
        } else if ahead > 0 && (ahead as u32) < record.offered() {
            self.challenge_for_record(slot);
        }
    }

    /// A connection whose owner let go waits for the peer's FIN.
    fn orphan_arrives(&mut self, slot: u32, record: &TimeWait, p: &Parsed) {
        let ahead = p.seq() - record.rcv_nxt;
        // First, sequence number. A peer with nothing to send may still ask whether we are there.
        let probes = ahead == -1 && p.payload_len() <= 1;
        let end = ahead.wrapping_add(p.space() as i32);
        let old = end < 0 || end == 0 && ahead < 0;
        if old || ahead > 0 && ahead as u32 > record.offered() {
            self.env.counters.dropped_window += 1;
            let who = Record::TimeWait(slot);
            if !probes || repeats(record, p) {
                self.acknowledge_to_record(slot, record, p);
            } else if self.may_answer_again(who, Kind::Repeat) {
                self.time_wait_ack(slot);
            }
            return;
        }
        // Fifth, ACK.
        if !p.flags().contains(Flags::ACK) {
            return;
        }
        if (p.ack() - record.snd_nxt) > 0 {
            self.challenge_for_record(slot);
            return;
        }
        if p.payload_len() > 0 {
            // No reader is left (RFC 1122 section 4.2.2.13).
            self.reset_reply(p);
            self.drop_time_wait(slot);
        } else if p.flags().contains(Flags::FIN) {
            if ahead == 0 {
                let until = self.env.now + self.rules.config().time_wait;
                let record = self.index.time_wait.get_mut(slot);
                record.rcv_nxt = p.seq() + 1;
                record.fin_wait_2 = false;
                if let (true, Some((value, _))) = (record.timestamps, p.timestamps()) {
                    record.ts_recent = value;
                }
                self.index.time_wait.restart(slot, until);
            }
            self.time_wait_ack(slot);
        }
    }

    /// Whether a SYN lies beyond all that the old connection saw: the rules of RFC 6191 section 2.
    /// Keeps MAY-2, SHLD-4.
    fn reopens(&self, old: &TimeWait, p: &Parsed) -> bool {
        let beyond = p.seq().gt(old.rcv_nxt);
        match p.timestamps().filter(|_| self.rules.config().timestamps) {
            Some((value, _)) if old.timestamps => {
                let newer = value.wrapping_sub(old.ts_recent) as i32;
                newer > 0 || newer == 0 && beyond
            }
            // From now on timestamps tell old segments from new ones.
            Some(_) => true,
            None => beyond,
        }
    }

    /// Acknowledges a segment that an honest peer may repeat each time, a stray within the flow's limit.
    fn acknowledge_to_record(&mut self, slot: u32, record: &TimeWait, p: &Parsed) {
        if repeats(record, p) {
            self.time_wait_ack(slot);
        } else {
            self.challenge_for_record(slot);
        }
    }

    fn challenge_for_record(&mut self, slot: u32) {
        if self.may_challenge(Record::TimeWait(slot)) {
            self.time_wait_ack(slot);
        }
    }

    fn time_wait_ack(&mut self, slot: u32) {
        let record = *self.index.time_wait.get(slot);
        let stamps = record
            .timestamps
            .then_some((record.stamps, record.ts_recent));
        let numbers = (record.snd_nxt, record.rcv_nxt);
        self.ack_for_record(
            self.index.time_wait.key(slot),
            numbers,
            record.window,
            stamps,
        );
    }
}

/// Whether it is text that an honest peer may send again.
fn repeats(record: &TimeWait, p: &Parsed) -> bool {
    is_repeat(p, record.rcv_nxt, record.scale) && (p.ack() - record.snd_nxt) <= 0
}
