//! A segment for a connection: the checks that only look come first, then the connection is lent to `conn/arrives.rs`. What they
//! refuse is answered here, within the limits of RFC 5961.

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;
use janus_wire::tcp::options::SackBlocks;

use crate::conn::arrives::{
    Position, Verdict, ack_is_plausible, is_repeat, judge, timestamp_to_take,
};
use crate::conn::receive::sack_blocks::repeated_part;
use crate::conn::{Conn, Found};
use crate::rules::isn;
use crate::stack::Stack;
use crate::store::challenge::Kind;
use crate::store::cold::{EndReason, State, flag};
use crate::store::flows::KeyRef;
use crate::store::keys::ConnSlot;
use crate::store::outgoing::Outgoing;
use crate::store::records::Record;
use crate::wire::parse::Parsed;

/// Fate of a segment for a connection without a hot block.
enum Rested {
    /// It is still to be taken, at this position; there is a hot block now.
    Attached(Position),
    Taken,
    /// The connection has ended.
    Over,
}

impl Stack {
    /// A segment for a connection; false if `conn` is not that, or has ended. A consumed frame is taken out of `frame`. One copy of
    /// this for all who found the connection leaves room for other code in the first cache.
    #[inline(never)]
    pub(crate) fn arrives(
        &mut self,
        conn: ConnSlot,
        p: &Parsed,
        frame: &mut Option<Frame>,
    ) -> bool {
        let wanted = |key: KeyRef<'_>| key.is(p.key());
        let found = Conn::found(&mut self.store, conn, wanted, &self.rules, &mut self.env);
        let (mut lent, checked) = match found {
            Found::Busy(lent) => (lent, None),
            Found::AtRest => {
                let position = match self.arrives_at_rest(conn, p, frame.as_ref()) {
                    Rested::Attached(position) => position,
                    Rested::Taken => return true,
                    Rested::Over => return false,
                };
                match self.lend(conn) {
                    Some(lent) => (lent, Some(position)),
                    None => return true,
                }
            }
            Found::Other => return false,
        };
        let verdict = checked.map_or_else(|| lent.verdict(p), Verdict::Take);
        lent.heard();
        match verdict {
            Verdict::Take(position) => {
                lent.take(p, position, frame);
                let done = lent.finish();
                self.carry_out(conn, done);
                true
            }
            Verdict::Over => false,
            verdict => {
                self.refuse(conn, verdict, p, frame.as_ref());
                true
            }
        }
    }

    /// A segment for a connection without a hot block is checked before there is one. If it brings more than an acknowledgement, the
    /// connection has one now.
    #[inline(never)]
    fn arrives_at_rest(&mut self, conn: ConnSlot, p: &Parsed, frame: Option<&Frame>) -> Rested {
        let (config, now_ms) = (self.rules.config(), self.env.now_ms);
        let verdict = judge(&self.store.tcbs[conn], None, config, p, now_ms);
        let taken = match verdict {
            Verdict::Take(position) => Some(position),
            Verdict::Over => return Rested::Over,
            _ => None,
        };
        let brings = p.payload_len() > 0 || p.flags().intersects(Flags::FIN | Flags::URG);
        // Before the time is noted: a new hot block sees how long it was idle.
        let attached = taken.is_some() && brings && self.attach_hot(conn);
        self.store.tcbs[conn].last_heard_ms = now_ms;
        match taken {
            Some(position) if attached => return Rested::Attached(position),
            Some(position) => {
                self.env.counters.dropped_table_full += u64::from(brings);
                self.take_at_rest(conn, p, position, frame);
            }
            None => self.refuse(conn, verdict, p, frame),
        }
        Rested::Taken
    }

    /// An acknowledgement for a connection that waits for none. Its window counts.
    fn take_at_rest(
        &mut self,
        conn: ConnSlot,
        p: &Parsed,
        position: Position,
        frame: Option<&Frame>,
    ) {
        let tcb = &mut self.store.tcbs[conn];
        if let Some(value) = timestamp_to_take(tcb, 0, p) {
            tcb.ts_recent = value;
        }
        tcb.recv_uto_option(&self.rules, p, frame);
        if (p.ack() - tcb.snd_nxt) >= 0 {
            tcb.take_window(p, 0);
        }
        if position == Position::AtClosedWindow {
            self.send_ack(conn);
        }
    }

    /// A segment that is not taken as those of an open connection are.
    #[inline(never)]
    fn refuse(&mut self, conn: ConnSlot, verdict: Verdict, p: &Parsed, frame: Option<&Frame>) {
        match verdict {
            Verdict::Opening => {
                if let Some(frame) = frame {
                    self.with(conn, |c| c.syn_sent_arrives(p, frame));
                }
            }
            Verdict::Old => {
                self.env.counters.dropped_paws += 1;
                // Without the option: silence (RFC 7323 section 3.2), but not towards a peer that has begun anew.
                if p.timestamps().is_some() || p.flags().contains(Flags::SYN) {
                    self.acknowledge_stray(conn, p);
                }
            }
            Verdict::Outside => {
                self.env.counters.dropped_window += 1;
                if !p.flags().contains(Flags::RST) && self.hears_repeat(conn, p, frame) {
                    self.acknowledge_stray(conn, p);
                }
            }
            Verdict::CrossedSyn => {
                self.with(conn, |c| {
                    if c.lone_ack_arrives(p, frame) {
                        c.acknowledge();
                    }
                });
            }
            Verdict::Reset => self.reset_arrives(conn, p),
            Verdict::Challenge => self.challenge(conn),
            Verdict::Drop | Verdict::Over | Verdict::Take(_) => {}
        }
    }

    /// Takes the acknowledgement from a repeat of the last segment, as it may be new: of our FIN, or of data that the peer would
    /// otherwise get twice. The table would have it dropped; nothing but that number is taken of it (Linux: tcp_sequence).
    /// False when no answer is due.
    fn hears_repeat(&mut self, conn: ConnSlot, p: &Parsed, frame: Option<&Frame>) -> bool {
        let tcb = &self.store.tcbs[conn];
        let ends_here = p.space() > 0 && p.seq() + p.space() == tcb.rcv_nxt;
        let bears_ack = p.flags().contains(Flags::ACK) && !p.flags().contains(Flags::SYN);
        if !(ends_here && bears_ack) || tcb.state == State::SynReceived {
            return true;
        }
        if !self.is_plausible(conn, p) {
            self.challenge(conn);
            return false;
        }
        let heard = self.with(conn, |c| c.lone_ack_arrives(p, frame));
        heard.unwrap_or_else(|| {
            let tcb = &mut self.store.tcbs[conn];
            if (p.ack() - tcb.snd_nxt) >= 0 {
                tcb.take_window(p, 0);
            }
            true
        })
    }

    fn is_plausible(&self, conn: ConnSlot, p: &Parsed) -> bool {
        let tcb = &self.store.tcbs[conn];
        let hot = tcb.hot().map(|id| &self.store.hot[id]);
        ack_is_plausible(tcb, hot, p)
    }

    /// Keeps 5961-1, 5961-3, 5961-8, SHLD-2.
    fn reset_arrives(&mut self, conn: ConnSlot, p: &Parsed) {
        let tcb = &self.store.tcbs[conn];
        if p.seq() != tcb.rcv_nxt {
            self.challenge(conn);
            return;
        }
        self.env.counters.resets_in += 1;
        let why = match tcb.state {
            State::SynReceived => EndReason::Refused,
            _ => EndReason::Reset,
        };
        self.end(conn, why);
    }

    /// A challenge ACK (RFC 5961), within its limits.
    /// Keeps 5961-2.
    fn challenge(&mut self, conn: ConnSlot) {
        if self.may_challenge(Record::Connection(conn)) {
            self.send_ack(conn);
        }
    }

    /// Tells a peer that is out of step where we are, within the flow's limits. Only text that an honest peer may repeat is
    /// answered each time: it cannot be part of a loop of acknowledgements, and its sender waits for one that was lost.
    fn acknowledge_stray(&mut self, conn: ConnSlot, p: &Parsed) {
        let (who, tcb) = (Record::Connection(conn), &self.store.tcbs[conn]);
        let fin = p.flags().contains(Flags::FIN);
        let probes = p.seq() + 1u32 == tcb.rcv_nxt && p.payload_len() <= 1 && !fin;
        let repeats = is_repeat(p, tcb.rcv_nxt, tcb.receive_scale()) && self.is_plausible(conn, p);
        // The octet that some probes carry came before (RFC 2883 section 4).
        let repeated = repeated_part(tcb, p).filter(|_| probes || repeats);
        let may = repeats
            || match probes {
                true => self.may_answer_again(who, Kind::Repeat),
                false => self.may_challenge(who),
            };
        if may
            && self
                .with(conn, |c| c.acknowledge_repeated(repeated))
                .is_none()
        {
            self.acknowledge_repeated_at_rest(conn, repeated);
        }
    }

    fn acknowledge_repeated_at_rest(&mut self, conn: ConnSlot, repeated: Option<(SeqNum, SeqNum)>) {
        let key = self.key_of(conn);
        let dsack = self.rules.config().dsack;
        let tcb = &mut self.store.tcbs[conn];
        if tcb.state == State::Closed {
            return;
        }
        let mut blocks = SackBlocks::NONE;
        if let Some((left, right)) = repeated {
            tcb.set_interactive(false);
            if dsack && tcb.has(flag::SACK) {
                blocks.push(left, right);
            }
        }
        let tcb = &self.store.tcbs[conn];
        let segment = Outgoing::ack_of(key, tcb, || self.timestamp_of(conn)).with_sack(blocks);
        self.ip().reply(&segment);
    }

    /// A bare ACK, at once.
    pub(crate) fn send_ack(&mut self, conn: ConnSlot) {
        if self.with(conn, |c| c.answer_ack()).is_none() {
            let (key, tcb) = (self.key_of(conn), &self.store.tcbs[conn]);
            let segment = Outgoing::ack_of(key, tcb, || self.timestamp_of(conn));
            self.ip().reply(&segment);
        }
    }

    /// Whether a challenge ACK may be sent for a flow now; it counts as sent.
    pub(crate) fn may_challenge(&mut self, who: Record) -> bool {
        // First the flow's: what it refuses must not use up the others' (as Linux: tcp_send_challenge_ack).
        let may = self.may_answer_again(who, Kind::Challenge) && self.stack_may_challenge();
        let counters = &mut self.env.counters;
        if may {
            counters.challenge_acks += 1;
        } else {
            counters.challenge_acks_limited += 1;
        }
        may
    }

    /// Whether the stack's limit, if there is one, lets one more go out this second; it counts as sent.
    fn stack_may_challenge(&mut self) -> bool {
        let Some(most) = self.rules.config().challenge_acks_per_second else {
            return true;
        };
        let second = self.env.now.as_nanos() / 1_000_000_000;
        let limits = &mut self.index.limits;
        if limits.second != Some(second) {
            limits.second = Some(second);
            let held_back = isn::keyed(self.rules.secrets(), second) % (u64::from(most) / 2 + 1);
            limits.sent = held_back as u32;
        }
        let may = limits.sent < most;
        limits.sent += u32::from(may);
        may
    }

    /// Whether a flow's last answer of this kind is long enough ago; if so this is its next.
    pub(crate) fn may_answer_again(&mut self, who: Record, kind: Kind) -> bool {
        let Some(pause) = self.rules.config().invalid_ack_interval else {
            return true;
        };
        let pause_ms = pause.as_millis().clamp(1, 1 << 30) as u32;
        let answered = match who {
            Record::Connection(conn) => {
                let generation = self.store.tcbs[conn].generation;
                self.index.limits.of_connection(conn, generation)
            }
            Record::HalfOpen(slot) => &mut self.index.half_open.get_mut(slot).answered,
            Record::TimeWait(slot) => &mut self.index.time_wait.get_mut(slot).answered,
            // Its segments are answered where it lives.
            Record::Stub(_) => return false,
        };
        answered.again(kind, pause_ms, self.env.now_ms)
    }
}
