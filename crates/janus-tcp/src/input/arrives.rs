//! SEGMENT ARRIVES for a synchronized connection: RFC 9293 section 3.10.7.4, check by check, in its order.
//! The fifth check (ACK) is in `input/arrives/ack.rs`, the seventh and eighth (text, FIN) in `input/arrives/text.rs`.

mod ack;
mod gaps;
mod text;

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;
use janus_wire::tcp::options::SackBlocks;

use crate::conn::Conn;
use crate::receive::delayed_ack::QUICK_AFTER_MARK;
use crate::receive::sack_blocks::repeated_part;
use crate::rules::config::Config;
use crate::rules::isn;
use crate::stack::Stack;
use crate::store::challenge::Kind;
use crate::store::cold::{EndReason, State, Tcb, flag};
use crate::store::hot::{Hot, hot_flag};
use crate::store::keys::ConnSlot;
use crate::store::records::Record;
use crate::time::Instant;
use crate::wire::Outgoing;
use crate::wire::parse::Parsed;

/// How long TS.Recent is good for: 24 days (RFC 7323 section 5.5).
const TS_RECENT_VALID_MS: u32 = 24 * 24 * 3_600 * 1_000;

/// Result of the first check: where a segment lies relative to the window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Acceptable,
    /// Outside the window; but the window is shut and the segment stands at its edge, so its RST and ACK
    /// count (MUST-66).
    AtClosedWindow,
    Outside,
}

/// Result of the checks that only look.
pub(crate) enum Verdict {
    /// The acknowledgement counts, and the text if it is [`Position::Acceptable`].
    Take(Position),
    /// The timestamp is older than the last one (PAWS).
    Old,
    /// The segment lies outside the window.
    Outside,
    /// SYNs crossed, and the peer's SYN-ACK acknowledges ours.
    CrossedSyn,
    Reset,
    /// A SYN, or an acknowledgement that no peer could mean.
    Challenge,
    /// Neither RST nor ACK.
    Drop,
}

impl Stack {
    /// A segment for an existing connection. A consumed frame is taken out of `frame`.
    pub(crate) fn arrives(&mut self, conn: ConnSlot, p: &Parsed, frame: &mut Option<Frame>) {
        let tcb = &self.store.tcbs[conn];
        let hot = tcb.hot.map(|id| &self.store.hot[id]);
        if tcb.state == State::SynSent {
            self.syn_sent(conn, p, frame.as_ref());
        } else {
            match judge(tcb, hot, &self.rules.config, p, self.now) {
                Verdict::Take(position) => self.take(conn, p, position, frame),
                verdict => self.refuse(conn, verdict, p, frame.as_ref()),
            }
        }
        // Afterwards, so that a new hot block sees how long it was idle.
        self.store.tcbs[conn].last_heard_ms = self.now.as_millis() as u32;
    }

    #[inline(never)]
    fn syn_sent(&mut self, conn: ConnSlot, p: &Parsed, frame: Option<&Frame>) {
        if let Some(frame) = frame {
            self.with(conn, |c| c.syn_sent_arrives(p, frame));
        }
    }

    /// The segment has passed the checks: fifth to eighth.
    #[inline(always)]
    fn take(&mut self, conn: ConnSlot, p: &Parsed, position: Position, frame: &mut Option<Frame>) {
        let brings = p.payload_len > 0 || p.flags.intersects(Flags::FIN | Flags::URG);
        if brings && !self.ensure_hot(conn) {
            self.counters.dropped_table_full += 1;
        }
        if self.with(conn, |c| c.take(p, position, frame)).is_none() {
            self.take_at_rest(conn, p, position, frame.as_ref());
        }
    }

    /// An acknowledgement for a connection that waits for none. Its window counts.
    #[inline(never)]
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
        if (p.ack - tcb.snd_nxt) >= 0 {
            tcb.take_window(p, 0);
        }
        if position == Position::AtClosedWindow {
            self.send_ack(conn);
        }
    }

    #[inline(never)]
    fn refuse(&mut self, conn: ConnSlot, verdict: Verdict, p: &Parsed, frame: Option<&Frame>) {
        match verdict {
            Verdict::Old => {
                self.counters.dropped_paws += 1;
                // Without the option: silence (RFC 7323 section 3.2), but not towards a peer that has begun anew.
                if p.timestamps.is_some() || p.flags.contains(Flags::SYN) {
                    self.acknowledge_stray(conn, p);
                }
            }
            Verdict::Outside => {
                self.counters.dropped_window += 1;
                if !p.flags.contains(Flags::RST) && self.hears_repeat(conn, p, frame) {
                    self.acknowledge_stray(conn, p);
                }
            }
            Verdict::CrossedSyn => {
                self.with(conn, |c| {
                    if c.ack_arrives(p, frame) {
                        c.acknowledge();
                    }
                });
            }
            Verdict::Reset => self.reset_arrives(conn, p),
            Verdict::Challenge => self.challenge(conn),
            Verdict::Drop | Verdict::Take(_) => {}
        }
    }

    /// Takes the acknowledgement from a repeat of the last segment, as it may be new: of our FIN, or of data that the peer would
    /// otherwise get twice. The table would have it dropped; nothing but that number is taken of it (Linux: tcp_sequence).
    /// False when no answer is due.
    fn hears_repeat(&mut self, conn: ConnSlot, p: &Parsed, frame: Option<&Frame>) -> bool {
        let tcb = &self.store.tcbs[conn];
        let ends_here = p.space() > 0 && p.seq + p.space() == tcb.rcv_nxt;
        let bears_ack = p.flags.contains(Flags::ACK) && !p.flags.contains(Flags::SYN);
        if !(ends_here && bears_ack) || tcb.state == State::SynReceived {
            return true;
        }
        if !self.is_plausible(conn, p) {
            self.challenge(conn);
            return false;
        }
        let heard = self.with(conn, |c| c.ack_arrives(p, frame));
        heard.unwrap_or_else(|| {
            let tcb = &mut self.store.tcbs[conn];
            if (p.ack - tcb.snd_nxt) >= 0 {
                tcb.take_window(p, 0);
            }
            true
        })
    }

    fn is_plausible(&self, conn: ConnSlot, p: &Parsed) -> bool {
        let tcb = &self.store.tcbs[conn];
        let hot = (tcb.hot.is_some()).then(|| &self.store.hot[tcb.hot]);
        ack_is_plausible(tcb, hot, p)
    }

    /// Keeps 5961-1, 5961-3, 5961-8, SHLD-2.
    fn reset_arrives(&mut self, conn: ConnSlot, p: &Parsed) {
        let tcb = &self.store.tcbs[conn];
        if p.seq != tcb.rcv_nxt {
            self.challenge(conn);
            return;
        }
        self.counters.resets_in += 1;
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
        let fin = p.flags.contains(Flags::FIN);
        let probes = p.seq + 1u32 == tcb.rcv_nxt && p.payload_len <= 1 && !fin;
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
        let tcb = &mut self.store.tcbs[conn];
        if tcb.state == State::Closed {
            return;
        }
        let mut blocks = SackBlocks::NONE;
        if let Some((left, right)) = repeated {
            tcb.set_interactive(false);
            if self.rules.config.dsack && tcb.has(flag::SACK) {
                blocks.push(left, right);
            }
        }
        let segment = Outgoing::ack_of(key, tcb, &self.rules, self.now).with_sack(blocks);
        self.ip().reply(&segment);
    }

    /// A bare ACK, at once.
    pub(crate) fn send_ack(&mut self, conn: ConnSlot) {
        if self.with(conn, |c| c.answer_ack()).is_none() {
            let (key, tcb) = (self.key_of(conn), &self.store.tcbs[conn]);
            let segment = Outgoing::ack_of(key, tcb, &self.rules, self.now);
            self.ip().reply(&segment);
        }
    }

    /// Whether a challenge ACK may be sent for a flow now; it counts as sent.
    pub(crate) fn may_challenge(&mut self, who: Record) -> bool {
        // First the flow's: what it refuses must not use up the others' (as Linux: tcp_send_challenge_ack).
        let may = self.may_answer_again(who, Kind::Challenge) && self.stack_may_challenge();
        let counters = &mut self.counters;
        if may {
            counters.challenge_acks += 1;
        } else {
            counters.challenge_acks_limited += 1;
        }
        may
    }

    /// Whether the stack's limit, if there is one, lets one more go out this second; it counts as sent.
    fn stack_may_challenge(&mut self) -> bool {
        let Some(most) = self.rules.config.challenge_acks_per_second else {
            return true;
        };
        let second = self.now.as_nanos() / 1_000_000_000;
        let limits = &mut self.index.limits;
        if limits.second != Some(second) {
            limits.second = Some(second);
            let held_back = isn::keyed(&self.rules.secrets, second) % (u64::from(most) / 2 + 1);
            limits.sent = held_back as u32;
        }
        let may = limits.sent < most;
        limits.sent += u32::from(may);
        may
    }

    /// Whether a flow's last answer of this kind is long enough ago; if so this is its next.
    pub(crate) fn may_answer_again(&mut self, who: Record, kind: Kind) -> bool {
        let pause = self.rules.config.invalid_ack_interval;
        if pause.is_zero() {
            return true;
        }
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
        answered.again(kind, pause_ms, self.now)
    }
}

impl Conn<'_> {
    /// Fifth to eighth check.
    #[inline(always)]
    fn take(&mut self, p: &Parsed, position: Position, frame: &mut Option<Frame>) {
        // Not before: one forged timestamp from the future would make all that the peer sends look old.
        if let Some(value) = timestamp_to_take(self.tcb, self.hot.receiver.unacked_bytes, p) {
            self.tcb.ts_recent = value;
        }
        self.tcb.recv_uto_option(self.rules, p, frame.as_ref());
        // Fifth, ACK.
        if !self.ack_arrives(p, frame.as_ref()) {
            return;
        }
        // Sixth, URG: the data is delivered in line.
        if let (true, Some(frame)) = (p.flags.contains(Flags::URG), &*frame) {
            self.urgent_arrives(p, frame);
        }
        // A FIN takes no room. Some peers send theirs whatever the window says, and would do so for ever (Linux:
        // tcp_data_queue).
        let bare_fin = p.flags.contains(Flags::FIN) && p.payload_len == 0;
        if position == Position::AtClosedWindow && !bare_fin {
            self.acknowledge();
            return;
        }
        // Seventh, text. Eighth, FIN.
        if p.payload_len > 0 || p.flags.contains(Flags::FIN) {
            let echoed = self.tcb.owes_ece();
            let answer_now = self.tcb.has(flag::ECN) && self.marks_of(p);
            self.text_arrives(p, frame);
            if answer_now {
                if self.tcb.owes_ece() && !echoed {
                    self.acknowledge_quickly(QUICK_AFTER_MARK);
                }
                self.acknowledge();
            }
        }
    }

    /// A bare ACK, before the end of the turn.
    pub(crate) fn answer_ack(&mut self) {
        let sack = self.sack_blocks();
        let mut segment = self.ack_as_offered().with_sack(sack);
        if self.hot.has(hot_flag::URGENT) {
            self.point_at_urgent(&mut segment);
        }
        self.answer(segment);
    }
}

/// The checks of section 3.10.7.4 that only look, in their order.
/// Keeps 5961-6, 5961-7, 7323-21, 7323-22, 7323-24, 7323-25.
#[inline(always)]
fn judge(tcb: &Tcb, hot: Option<&Hot>, config: &Config, p: &Parsed, now: Instant) -> Verdict {
    let rst = p.flags.contains(Flags::RST);
    // Before the first check: PAWS (RFC 7323 section 5.3, R1).
    if !rst && !passes_paws(tcb, config, p, now) {
        return Verdict::Old;
    }
    if answers_our_crossed_syn(tcb, p) {
        return Verdict::CrossedSyn;
    }
    // First, sequence number.
    let position = window_check(tcb, p);
    if position == Position::Outside {
        return Verdict::Outside;
    }
    // Second, RST (RFC 5961 section 3.2).
    if rst {
        return Verdict::Reset;
    }
    // Fourth, SYN: never ends a connection (RFC 5961 section 4.2).
    if p.flags.contains(Flags::SYN) {
        return Verdict::Challenge;
    }
    // Fifth, ACK.
    if !p.flags.contains(Flags::ACK) {
        return Verdict::Drop;
    }
    match ack_is_plausible(tcb, hot, p) {
        true => Verdict::Take(position),
        false => Verdict::Challenge,
    }
}

/// Whether the acknowledgement lies where one can lie (RFC 5961 section 5). If not, the peer is to be told where we
/// are, and the segment to be dropped.
/// Keeps 5961-10, 5961-9, MAY-12.
#[inline(always)]
fn ack_is_plausible(tcb: &Tcb, hot: Option<&Hot>, p: &Parsed) -> bool {
    if tcb.state == State::SynReceived {
        // Its acknowledgement is judged, and answered with a reset, when it is taken.
        return true;
    }
    let (first, oldest) = match hot {
        None => (tcb.snd_nxt, tcb.snd_wnd()),
        Some(hot) => (hot.sender.snd_una, hot.sender.max_snd_wnd),
    };
    let acked = p.ack - first;
    // Something not yet sent is acknowledged: say where we are, drop (RFC 9293, RFC 5961 section 5).
    let too_new = (p.ack - tcb.snd_nxt) > 0;
    let too_old = acked < 0 && acked.unsigned_abs() > oldest;
    !(too_new || too_old)
}

/// R3: the timestamp of the segment that stands at the edge of what was acknowledged is remembered. `unacked`: bytes received
/// since the last acknowledgement.
/// Keeps 7323-19, 7323-20.
#[inline(always)]
fn timestamp_to_take(tcb: &Tcb, unacked: u32, p: &Parsed) -> Option<u32> {
    let (value, _) = p.timestamps.filter(|_| tcb.has(flag::TIMESTAMPS))?;
    let last_ack_sent = tcb.rcv_nxt + 0u32.wrapping_sub(unacked);
    p.seq.le(last_ack_sent).then_some(value)
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
/// Keeps 7323-16, 7323-17, 7323-23.
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
/// Keeps 5961-4, MUST-66.
#[inline(always)]
fn window_check(cold: &Tcb, p: &Parsed) -> Position {
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
        true => Position::Acceptable,
        false if window == 0 && from == 0 => Position::AtClosedWindow,
        false => Position::Outside,
    }
}
