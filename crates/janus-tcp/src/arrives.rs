//! SEGMENT ARRIVES for a synchronized connection: RFC 9293 section 3.10.7.4, check by check, in its order.
//! The fifth check (ACK) is in `arrives/ack.rs`, the seventh and eighth (text, FIN) in `arrives/text.rs`.

mod ack;
mod gaps;
mod text;

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::options::SackBlocks;
use janus_wire::tcp::{Flags, Options};

use crate::challenge::Kind;
use crate::cold::{NONE, State, Tcb, flag};
use crate::config::Config;
use crate::delayed_ack::QUICK_AFTER_MARK;
use crate::emit::Outgoing;
use crate::hot::hot_flag;
use crate::parse::Parsed;
use crate::records::Record;
use crate::sack_blocks::repeated_part;
use crate::stack::Stack;
use crate::time::Instant;

/// How long TS.Recent is good for: 24 days (RFC 7323 section 5.5).
const TS_RECENT_VALID_MS: u32 = 24 * 24 * 3_600 * 1_000;

/// Result of the first check: where a segment lies relative to the window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Acceptable,
    /// Outside the window; but the window is shut and the segment stands at its edge, so its RST and ACK
    /// count (MUST-66).
    AtClosedWindow,
    Outside,
}

impl Stack {
    /// A segment for an existing connection. A consumed frame is taken out of `frame`.
    pub(crate) fn arrives(
        &mut self,
        conn: u32,
        p: &Parsed,
        frame: &mut Option<Frame>,
        now: Instant,
    ) {
        match self.store.tcbs[conn].state {
            State::SynSent => {
                if let Some(frame) = frame {
                    self.syn_sent_arrives(conn, p, frame, now);
                }
            }
            _ => self.synchronized_arrives(conn, p, frame, now),
        }
        let cold = &mut self.store.tcbs[conn];
        // Afterwards, so that `heat` sees how long it was idle.
        cold.last_heard_ms = now.as_millis() as u32;
        // The deadlines that the segment changed are armed now.
        let hot = cold.hot;
        if hot != NONE {
            self.arm(hot);
            self.settle_hot(conn, hot);
        }
    }

    fn synchronized_arrives(
        &mut self,
        conn: u32,
        p: &Parsed,
        frame: &mut Option<Frame>,
        now: Instant,
    ) {
        let rst = p.flags.contains(Flags::RST);
        // Found once for all the checks that only look.
        let cold = &self.store.tcbs[conn];
        // Before the first check: PAWS (RFC 7323 section 5.3, R1).
        if !rst && !passes_paws(cold, &self.rules.config, p, now) {
            self.counters.dropped_paws += 1;
            // Without the option: silence (RFC 7323 section 3.2), but not towards a peer that has begun anew.
            if p.timestamps.is_some() || p.flags.contains(Flags::SYN) {
                self.acknowledge_stray(conn, p, now);
            }
            return;
        }
        if answers_our_crossed_syn(cold, p) {
            if self.ack_arrives(conn, p, frame.as_ref(), now) {
                self.acknowledge(conn, now);
            }
            return;
        }
        // First, sequence number.
        let place = place_of(cold, p);
        if place == Place::Outside {
            self.counters.dropped_window += 1;
            if !rst && self.hears_repeat(conn, p, frame.as_ref(), now) {
                self.acknowledge_stray(conn, p, now);
            }
            return;
        }
        // Second, RST (RFC 5961 section 3.2).
        if rst {
            self.reset_arrives(conn, p, now);
            return;
        }
        // Fourth, SYN: never ends a connection (RFC 5961 section 4.2).
        if p.flags.contains(Flags::SYN) {
            self.challenge(conn, now);
            return;
        }
        // Fifth, ACK.
        if !p.flags.contains(Flags::ACK) {
            return;
        }
        if !self.ack_is_plausible(cold, p) {
            self.challenge(conn, now);
            return;
        }
        // Not before: one forged timestamp from the future would make all that the peer sends look old.
        if let Some(value) = self.timestamp_to_take(cold, p) {
            self.store.tcbs[conn].ts_recent = value;
        }
        self.take_timeout(conn, p, frame.as_ref());
        if !self.ack_arrives(conn, p, frame.as_ref(), now) {
            return;
        }
        // Sixth, URG: the data is delivered in line.
        if let (true, Some(frame)) = (p.flags.contains(Flags::URG), &*frame) {
            self.urgent_arrives(conn, p, frame, now);
        }
        // A FIN takes no room. Some peers send theirs whatever the window says, and would do so for ever (Linux:
        // tcp_data_queue).
        let bare_fin = p.flags.contains(Flags::FIN) && p.payload_len == 0;
        if place == Place::AtClosedWindow && !bare_fin {
            self.acknowledge(conn, now);
            return;
        }
        // Seventh, text. Eighth, FIN.
        if p.payload_len > 0 || p.flags.contains(Flags::FIN) {
            let echoed = self.store.tcbs[conn].owes_ece();
            let answer_now = self.store.tcbs[conn].has(flag::ECN) && self.marks_of(conn, p);
            self.text_arrives(conn, p, frame, now);
            let hot = self.store.tcbs[conn].hot;
            if answer_now && hot != NONE {
                if self.store.tcbs[conn].owes_ece() && !echoed {
                    self.acknowledge_quickly(conn, QUICK_AFTER_MARK);
                }
                self.store.hot[hot].set(hot_flag::ACK_NOW);
                self.queue_output(hot);
            }
        }
    }

    /// R3: the timestamp of the segment that stands at the edge of what was acknowledged is remembered.
    #[inline(always)]
    fn timestamp_to_take(&self, cold: &Tcb, p: &Parsed) -> Option<u32> {
        let (value, _) = p.timestamps.filter(|_| cold.has(flag::TIMESTAMPS))?;
        let unacked = match cold.hot {
            NONE => 0,
            hot => self.store.hot[hot].unacked_bytes,
        };
        let last_ack_sent = cold.rcv_nxt + 0u32.wrapping_sub(unacked);
        p.seq.le(last_ack_sent).then_some(value)
    }

    /// Takes the acknowledgement from a repeat of the last segment, as it may be new: of our FIN, or of data that the peer would
    /// otherwise get twice. The table would have it dropped; nothing but that number is taken of it (Linux: tcp_sequence).
    /// False when no answer is due.
    #[cold]
    fn hears_repeat(&mut self, conn: u32, p: &Parsed, frame: Option<&Frame>, now: Instant) -> bool {
        let cold = &self.store.tcbs[conn];
        let ends_here = p.space() > 0 && p.seq + p.space() == cold.rcv_nxt;
        let bears_ack = p.flags.contains(Flags::ACK) && !p.flags.contains(Flags::SYN);
        if !(ends_here && bears_ack) || cold.state == State::SynReceived {
            return true;
        }
        if !self.ack_is_plausible(cold, p) {
            self.challenge(conn, now);
            return false;
        }
        self.ack_arrives(conn, p, frame, now)
    }

    fn reset_arrives(&mut self, conn: u32, p: &Parsed, now: Instant) {
        let cold = &self.store.tcbs[conn];
        if p.seq != cold.rcv_nxt {
            self.challenge(conn, now);
            return;
        }
        self.counters.resets_in += 1;
        let why = match cold.state {
            State::SynReceived => flag::REFUSED,
            _ => flag::RESET,
        };
        self.end(conn, why);
    }

    /// A challenge ACK (RFC 5961), within its limits.
    fn challenge(&mut self, conn: u32, now: Instant) {
        if self.may_challenge(Record::Connection(conn), now) {
            let sack = self.sack_blocks(conn);
            self.send_ack_with(conn, sack, now);
        }
    }

    /// Tells a peer that is out of step where we are, within the flow's limits. Only text that an honest peer may repeat is
    /// answered each time: it cannot be part of a loop of acknowledgements, and its sender waits for one that was lost.
    fn acknowledge_stray(&mut self, conn: u32, p: &Parsed, now: Instant) {
        let (who, cold) = (Record::Connection(conn), &self.store.tcbs[conn]);
        let fin = p.flags.contains(Flags::FIN);
        let probes = p.seq + 1u32 == cold.rcv_nxt && p.payload_len <= 1 && !fin;
        let repeats =
            is_repeat(p, cold.rcv_nxt, cold.receive_scale()) && self.ack_is_plausible(cold, p);
        // The octet that some probes carry came before (RFC 2883 section 4).
        let repeated = repeated_part(cold, p).filter(|_| probes || repeats);
        let may = repeats
            || match probes {
                true => self.may_answer_again(who, Kind::Repeat, now),
                false => self.may_challenge(who, now),
            };
        if may {
            self.acknowledge_repeated(conn, repeated, now);
        }
    }

    /// An ACK now: with the output of this turn, or, for a connection without a hot block, by itself.
    pub(crate) fn acknowledge(&mut self, conn: u32, now: Instant) {
        let hot = self.store.tcbs[conn].hot;
        if hot == NONE {
            self.send_ack(conn, now);
        } else {
            self.store.hot[hot].set(hot_flag::ACK_NOW);
            self.queue_output(hot);
        }
    }

    /// A bare ACK that needs no hot block.
    pub(crate) fn send_ack(&mut self, conn: u32, now: Instant) {
        self.send_ack_with(conn, SackBlocks::NONE, now);
    }

    pub(crate) fn send_ack_with(&mut self, conn: u32, sack: SackBlocks, now: Instant) {
        let cold = &self.store.tcbs[conn];
        let mut segment = Outgoing {
            key: self.store.tcbs.key(conn),
            seq: cold.snd_nxt,
            ack: cold.rcv_nxt,
            flags: Flags::ACK | cold.ece(),
            window: cold.window_field(),
            urgent: 0,
            options: Options {
                sack,
                ..self.options_for(conn, now)
            },
            profile: cold.profile,
        };
        let hot = cold.hot;
        if hot != NONE && self.store.hot[hot].has(hot_flag::URGENT) {
            self.point_at_urgent(hot, &mut segment);
        }
        self.reply(&segment, now);
    }

    /// Asks the peer whether it is there: a number it has acknowledged, and no data, so that it must say where it is
    /// (RFC 9293 section 3.8.4, SHLD-12).
    pub(crate) fn ask_whether_alive(&mut self, conn: u32, now: Instant) {
        let cold = &self.store.tcbs[conn];
        let segment = Outgoing {
            key: self.store.tcbs.key(conn),
            seq: cold.snd_nxt + u32::MAX,
            ack: cold.rcv_nxt,
            flags: Flags::ACK,
            window: cold.window_field(),
            urgent: 0,
            options: self.options_for(conn, now),
            profile: cold.profile,
        };
        self.reply(&segment, now);
    }

    #[inline]
    pub(crate) fn options_for(&self, conn: u32, now: Instant) -> Options {
        let cold = &self.store.tcbs[conn];
        if !cold.has(flag::TIMESTAMPS) {
            return Options::NONE;
        }
        Options::timestamps(
            self.rules
                .stamper
                .timestamp(&self.store.tcbs.key(conn), now),
            cold.ts_recent,
        )
    }
}

/// Whether text begins where it may when an honest peer repeats it: below what is expected, and no further than the
/// largest window reaches that can have been offered for it.
pub(crate) fn is_repeat(p: &Parsed, rcv_nxt: SeqNum, scale: u8) -> bool {
    let below = rcv_nxt - p.seq;
    p.space() > 0
        && p.flags.contains(Flags::ACK)
        && !p.flags.contains(Flags::SYN)
        && (1..=0xffff << scale).contains(&below)
}

/// The last line of figure 7 (section 3.5): SYNs crossed, and the peer's SYN-ACK repeats its SYN. To the first check that
/// is old, but its acknowledgement is the one that is waited for.
#[inline(always)]
fn answers_our_crossed_syn(cold: &Tcb, p: &Parsed) -> bool {
    p.flags.contains(Flags::SYN | Flags::ACK)
        && cold.state == State::SynReceived
        && !p.flags.contains(Flags::RST)
        && p.seq + 1u32 == cold.rcv_nxt
        && p.space() == 1
}

/// R1 of RFC 7323 section 5.3: a segment whose timestamp is older than the last one is a stray.
#[inline(always)]
fn passes_paws(cold: &Tcb, config: &Config, p: &Parsed, now: Instant) -> bool {
    if !cold.has(flag::TIMESTAMPS) {
        return true;
    }
    // A segment without the option on a connection that uses it may be dropped too (section 3.2).
    let Some((value, _)) = p.timestamps else {
        return !config.require_timestamps;
    };
    // After so long a silence the peer's clock may have gone half round: TS.Recent says nothing (section 5.5).
    let silent_ms = || (now.as_millis() as u32).wrapping_sub(cold.last_heard_ms);
    value.wrapping_sub(cold.ts_recent) as i32 >= 0 || silent_ms() > TS_RECENT_VALID_MS
}

/// The table of section 3.10.7.4, first check.
#[inline(always)]
fn place_of(cold: &Tcb, p: &Parsed) -> Place {
    let window = cold.receive_window();
    let (from, len) = (p.seq - cold.rcv_nxt, p.space() as i32);
    let to = from.wrapping_add(len);
    let inside = |offset: i32| offset >= 0 && (offset as u32) < window;
    let acceptable = match (len, window) {
        (0, 0) => from == 0,
        // A bare ACK right at the window's end comes from a peer that filled it.
        (0, _) => from >= 0 && from as u32 <= window,
        (_, 0) => false,
        _ => inside(from) || inside(to.wrapping_sub(1)) || (from < 0 && to > 0),
    };
    match acceptable {
        true => Place::Acceptable,
        false if window == 0 && from == 0 => Place::AtClosedWindow,
        false => Place::Outside,
    }
}
