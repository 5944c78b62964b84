//! SEGMENT ARRIVES for a synchronized connection: RFC 9293 section 3.10.7.4, check by check, in its order. Handshakes are in
//! `arrives/handshake.rs`, the fifth check (ACK) in `arrives/ack.rs`, the seventh and eighth (text, FIN) in `arrives/text.rs`.
//! Finding the connection, and refusing a segment, is in `stack/input/arrives.rs`.

mod ack;
mod gaps;
mod handshake;
pub(crate) mod icmp_errors;
mod text;

use janus_mem::Frame;
use janus_wire::SeqNum;
use janus_wire::tcp::Flags;

use crate::conn::Conn;
use crate::conn::receive::delayed_ack::QUICK_AFTER_MARK;
use crate::rules::config::Config;
use crate::store::cold::{State, Tcb, flag};
use crate::store::hot::{Hot, hot_flag};
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
    /// The connection has ended, and waits only for its owner.
    Over,
    /// Our SYN waits for an answer: other checks count.
    Opening,
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

impl Conn<'_> {
    /// The checks that only look.
    #[inline(always)]
    pub(crate) fn verdict(&self, p: &Parsed) -> Verdict {
        let (config, now_ms) = (self.rules.config(), self.env.now_ms);
        judge(self.tcb, Some(self.hot), config, p, now_ms)
    }

    /// Something has come from the peer now.
    #[inline(always)]
    pub(crate) fn heard(&mut self) {
        self.tcb.last_heard_ms = self.env.now_ms;
    }

    /// Fifth to eighth check.
    #[inline(always)]
    pub(crate) fn take(&mut self, p: &Parsed, position: Position, frame: &mut Option<Frame>) {
        // Not before: one forged timestamp from the future would make all that the peer sends look old.
        if let Some(value) = timestamp_to_take(self.tcb, self.hot.receiver.unacked_bytes, p) {
            self.tcb.ts_recent = value;
        }
        self.tcb.recv_uto_option(self.rules, p, frame.as_ref());
        // Fifth, ACK.
        if self.ends_all(p) {
            self.end_at_last();
            return;
        }
        if !self.ack_arrives(p, frame.as_ref()) {
            return;
        }
        // Sixth, URG: the data is delivered in line.
        if let (true, Some(frame)) = (p.flags().contains(Flags::URG), &*frame) {
            self.urgent_arrives(p, frame);
        }
        // A FIN takes no room. Some peers send theirs whatever the window says, and would do so for ever (Linux:
        // tcp_data_queue).
        let bare_fin = p.flags().contains(Flags::FIN) && p.payload_len() == 0;
        if position == Position::AtClosedWindow && !bare_fin {
            self.acknowledge();
            return;
        }
        // Seventh, text. Eighth, FIN.
        if p.payload_len() > 0 || p.flags().contains(Flags::FIN) {
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
pub(crate) fn judge(
    tcb: &Tcb,
    hot: Option<&Hot>,
    config: &Config,
    p: &Parsed,
    now_ms: u32,
) -> Verdict {
    match tcb.state {
        State::Closed => return Verdict::Over,
        State::SynSent => return Verdict::Opening,
        _ => {}
    }
    let rst = p.flags().contains(Flags::RST);
    // Before the first check: PAWS (RFC 7323 section 5.3, R1).
    if !rst && !passes_paws(tcb, config, p, now_ms) {
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
    if p.flags().contains(Flags::SYN) {
        return Verdict::Challenge;
    }
    // Fifth, ACK.
    if !p.flags().contains(Flags::ACK) {
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
pub(crate) fn ack_is_plausible(tcb: &Tcb, hot: Option<&Hot>, p: &Parsed) -> bool {
    if tcb.state == State::SynReceived {
        // Its acknowledgement is judged, and answered with a reset, when it is taken.
        return true;
    }
    let (first, oldest) = match hot {
        None => (tcb.snd_nxt, tcb.snd_wnd()),
        Some(hot) => (hot.sender.snd_una, hot.sender.max_snd_wnd),
    };
    let acked = p.ack() - first;
    // Something not yet sent is acknowledged: say where we are, drop (RFC 9293, RFC 5961 section 5).
    let too_new = (p.ack() - tcb.snd_nxt) > 0;
    let too_old = acked < 0 && acked.unsigned_abs() > oldest;
    !(too_new || too_old)
}

/// R3: the timestamp of the segment that stands at the edge of what was acknowledged is remembered. `unacked`: bytes received
/// since the last acknowledgement.
/// Keeps 7323-19, 7323-20.
#[inline(always)]
pub(crate) fn timestamp_to_take(tcb: &Tcb, unacked: u32, p: &Parsed) -> Option<u32> {
    let (value, _) = p.timestamps().filter(|_| tcb.has(flag::TIMESTAMPS))?;
    let last_ack_sent = tcb.rcv_nxt + 0u32.wrapping_sub(unacked);
    p.seq().le(last_ack_sent).then_some(value)
}

/// Whether text begins where it may when an honest peer repeats it: below what is expected, and no further than the
/// largest window reaches that can have been offered for it.
pub(crate) fn is_repeat(p: &Parsed, rcv_nxt: SeqNum, scale: u8) -> bool {
    let below = rcv_nxt - p.seq();
    p.space() > 0
        && p.flags().contains(Flags::ACK)
        && !p.flags().contains(Flags::SYN)
        && (1..=0xffff << scale).contains(&below)
}

/// The last line of figure 7 (section 3.5): SYNs crossed, and the peer's SYN-ACK repeats its SYN. To the first check that
/// is old, but its acknowledgement is the one that is waited for.
#[inline(always)]
fn answers_our_crossed_syn(cold: &Tcb, p: &Parsed) -> bool {
    p.flags().contains(Flags::SYN | Flags::ACK)
        && cold.state == State::SynReceived
        && !p.flags().contains(Flags::RST)
        && p.seq() + 1u32 == cold.rcv_nxt
        && p.space() == 1
}

/// R1 of RFC 7323 section 5.3: a segment whose timestamp is older than the last one is a stray.
/// Keeps 7323-16, 7323-17, 7323-23.
#[inline(always)]
fn passes_paws(cold: &Tcb, config: &Config, p: &Parsed, now_ms: u32) -> bool {
    if !cold.has(flag::TIMESTAMPS) {
        return true;
    }
    // A segment without the option on a connection that uses it may be dropped too (section 3.2).
    let Some((value, _)) = p.timestamps() else {
        return !config.require_timestamps;
    };
    // After so long a silence the peer's clock may have gone half round: TS.Recent says nothing (section 5.5).
    let silent_ms = || now_ms.wrapping_sub(cold.last_heard_ms);
    value.wrapping_sub(cold.ts_recent) as i32 >= 0 || silent_ms() > TS_RECENT_VALID_MS
}

/// The table of section 3.10.7.4, first check.
/// Keeps 5961-4, MUST-66.
#[inline(always)]
fn window_check(cold: &Tcb, p: &Parsed) -> Position {
    let window = cold.receive_window();
    let (from, len) = (p.seq() - cold.rcv_nxt, p.space() as i32);
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
