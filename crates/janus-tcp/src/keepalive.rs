//! Idle connections: keep-alive (RFC 9293 section 3.8.4, RFC 1122 section 4.2.3.6)
//! the idle timeout, and readers that are to look at their clocks. No idle connection has a timer for it: a slow sweep goes
//! over all of them, a slice at a time, and only while some connection has options that ask for it.
//!
//! Nothing is stored either. When a connection was last heard and when its slice was last looked at say how many
//! questions have been asked since: each look asks at most one, and where it comes too late for several, the
//! connection's stamp is moved so that they count as one. So a peer is never given up before it was asked as
//! often as the options say (MUST-29), however seldom the sweep comes by.
//!
//! A pass is due when the first connection is, as far as the passes' cost allows: the times are exact to milliseconds
//! with a few thousand connections, and to half a second with a million.

use core::time::Duration;

use crate::cold::{NONE, State, Tcb, flag};
use crate::profile::{DEFAULT, SocketOptions};
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::Outgoing;

/// Connections looked at in one turn.
const SLICE: u32 = 2_048;
/// Least time between two slices: looking at one takes about 20 µs when nothing is due.
const PAUSE: Duration = Duration::from_millis(1);

/// Parts of [`SocketOptions::wake_reader`] after which a reader that went on waiting is woken again.
const AGAIN: u32 = 8;

/// When to look again after a pass that met no connection that wants it.
const SEEN_NONE: Duration = Duration::from_secs(1);

/// Where the sweep stands.
#[derive(Default)]
pub(crate) struct Sweep {
    /// When the next slice is looked at.
    at: Instant,
    /// The slice: the family's number, and the slice's in it.
    next: (usize, u32),
    /// When the next pass should begin, by what this one has seen so far.
    earliest: Option<Instant>,
    /// Milliseconds, wrapping, of the last look at each slice.
    looked_ms: [Vec<Option<u32>>; 2],
}

/// Result of a look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing to do before so many milliseconds.
    Wait(u32),
    /// To be asked whether it is there; the stamp of when it was last heard is to be so many milliseconds later.
    Ask(u32),
    /// Nothing was heard for too long.
    Gone,
}

impl Stack {
    /// When the sweep goes on; never while no connection wants it.
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        (self.rules.profiles.swept() > 0).then_some(self.schedule.sweep.at)
    }

    /// A connection has got options: the sweep must not come too late for it.
    pub(crate) fn sweep_soon(&mut self, conn: u32) {
        let options = self.rules.profiles.get(self.store.tcbs[conn].profile);
        if !options.wants_sweep() {
            return;
        }
        let due = self.now + shortest(options);
        let sweep = &mut self.schedule.sweep;
        if self.rules.profiles.swept() == 1 {
            // The first: whatever was planned before was for others.
            *sweep = Sweep {
                at: due,
                ..Sweep::default()
            };
        } else if sweep.next == (0, 0) {
            sweep.at = sweep.at.min(due);
        } else {
            sweep.earliest = Some(sweep.earliest.map_or(due, |at| at.min(due)));
        }
    }

    /// Looks at one slice, if its time has come.
    pub(crate) fn sweep(&mut self) {
        if self.rules.profiles.swept() == 0 || self.schedule.sweep.at > self.now {
            return;
        }
        let (family, slice) = self.schedule.sweep.next;
        let now_ms = self.now.as_millis() as u32;
        let looked = &mut self.schedule.sweep.looked_ms[family];
        if looked.len() <= slice as usize {
            looked.push(None);
        }
        let looked_ms = looked[slice as usize].replace(now_ms);
        let places = self.store.tcbs.places();
        let from = places[family].start + slice * SLICE;
        let to = places[family].end.min(from + SLICE);
        for conn in from..to {
            if self.store.tcbs[conn].profile != DEFAULT {
                self.look_at(conn, looked_ms);
            }
        }
        self.schedule.sweep.next = match (family, to == places[family].end) {
            (_, false) => (family, slice + 1),
            (0, true) => (1, 0),
            (_, true) => (0, 0),
        };
        self.schedule.sweep.at = self.now + PAUSE;
        if self.schedule.sweep.next == (0, 0) {
            // A pass costs a hundredth or so of the time until the next.
            let all: u32 = places.iter().map(|family| family.end - family.start).sum();
            let rest = self.now + PAUSE * (all / SLICE + 1);
            let earliest = self
                .schedule
                .sweep
                .earliest
                .take()
                .unwrap_or(rest + SEEN_NONE);
            self.schedule.sweep.at = earliest.max(rest);
        }
    }

    fn look_at(&mut self, conn: u32, looked_ms: Option<u32>) {
        let cold = &self.store.tcbs[conn];
        let options = self.rules.profiles.get(cold.profile);
        // A connection that waits for an acknowledgement, or to send, learns by that whether the peer is there (Linux:
        // tcp_keepalive_timer). An orphan has bounds of its own.
        let asleep = matches!(
            cold.state,
            State::Established | State::CloseWait | State::FinWait2
        ) && !cold.has(flag::ORPHAN);
        if !options.wants_sweep() {
            return;
        }
        let now_ms = self.now.as_millis() as u32;
        if let Some(most) = options.wake_reader {
            self.look_at_reader(conn, millis(most), looked_ms);
        }
        let options = self.rules.profiles.get(self.store.tcbs[conn].profile);
        if !options.keepalive && options.idle_timeout.is_none() {
            return;
        }
        if !asleep {
            self.sweep_at_latest(self.now + shortest(options));
            return;
        }
        let cold = &self.store.tcbs[conn];
        let busy = cold.hot != NONE && {
            let hot = &self.store.hot[cold.hot];
            !hot.sender.flight.is_empty() || !hot.sender.unsent.is_empty()
        };
        let options = &cold.keepalive_options(&self.rules);
        match judge(cold, options, busy, now_ms, looked_ms) {
            Verdict::Wait(ms) => self.sweep_at_latest(self.now + Duration::from_millis(ms.into())),
            Verdict::Ask(late_ms) => {
                let cold = &mut self.store.tcbs[conn];
                cold.last_heard_ms = cold.last_heard_ms.wrapping_add(late_ms);
                if let Verdict::Wait(ms) = judge(cold, options, busy, now_ms, Some(now_ms)) {
                    self.sweep_at_latest(self.now + Duration::from_millis(ms.into()));
                }
                self.counters.keepalives += 1;
                self.ask_whether_alive(conn);
            }
            Verdict::Gone => {
                // As Linux: should the peer be there after all, it must know.
                self.counters.idle_ended += 1;
                self.reset_peer(conn);
                self.end(conn, flag::TIMED_OUT);
            }
        }
    }

    /// Wakes the connection's reader, if one waits and its time has come.
    fn look_at_reader(&mut self, conn: u32, most: u32, looked_ms: Option<u32>) {
        let cold = &self.store.tcbs[conn];
        let now_ms = self.now.as_millis() as u32;
        let (due, next) = judge_reader(most, cold.last_heard_ms, now_ms, looked_ms);
        if due && cold.reader != NONE {
            self.counters.readers_woken += 1;
            self.schedule.wake(&mut self.store.tcbs[conn].reader);
        }
        self.sweep_at_latest(self.now + Duration::from_millis(next.into()));
    }

    /// Asks the peer whether it is there.
    fn ask_whether_alive(&mut self, conn: u32) {
        let (key, tcb) = (self.key_of(conn), &self.store.tcbs[conn]);
        let question = Outgoing::keepalive_of(key, tcb, &self.rules, self.now);
        self.ip().reply(&question);
    }

    fn sweep_at_latest(&mut self, due: Instant) {
        let earliest = &mut self.schedule.sweep.earliest;
        *earliest = Some(earliest.map_or(due, |at| at.min(due)));
    }
}

/// Decides about a connection that was looked at `looked_ms` before.
fn judge(
    cold: &Tcb,
    options: &SocketOptions,
    busy: bool,
    now_ms: u32,
    looked_ms: Option<u32>,
) -> Verdict {
    let heard = cold.last_heard_ms;
    let silent = now_ms.wrapping_sub(heard);
    let mut wait = u32::MAX;
    if let Some(most) = options.idle_timeout {
        let most = millis(most);
        if silent >= most {
            return Verdict::Gone;
        }
        wait = most - silent;
    }
    if !options.keepalive {
        return Verdict::Wait(wait);
    }
    let (idle, interval) = (
        millis(options.keepalive_idle),
        millis(options.keepalive_interval),
    );
    if busy {
        return Verdict::Wait(wait.min(idle));
    }
    let due = |silent: u32| {
        silent
            .checked_sub(idle)
            .map_or(0, |over| over / interval + 1)
    };
    let asked = match looked_ms.map(|looked| looked.wrapping_sub(heard)) {
        // Heard of since, or never looked at.
        None => 0,
        Some(before) if before as i32 <= 0 => 0,
        Some(silent) => due(silent),
    };
    let now_due = due(silent);
    if now_due <= asked {
        let next = u64::from(idle) + u64::from(interval) * u64::from(now_due);
        let next = u32::try_from(next)
            .unwrap_or(u32::MAX)
            .saturating_sub(silent);
        return Verdict::Wait(wait.min(next));
    }
    let given_up = match options.user_timeout {
        Some(most) => asked > 0 && silent >= millis(most),
        None => asked >= u32::from(options.keepalive_count),
    };
    if given_up {
        return Verdict::Gone;
    }
    Verdict::Ask((now_due - asked - 1) * interval)
}

/// Whether a reader that was looked at `looked_ms` before is to be woken, and milliseconds until the next look.
fn judge_reader(most: u32, heard: u32, now_ms: u32, looked_ms: Option<u32>) -> (bool, u32) {
    let again = (most / AGAIN).max(1);
    // How often it is to have been woken in so long a silence.
    let wakes = |silent: u32| silent.checked_sub(most).map_or(0, |over| over / again + 1);
    let silent = now_ms.wrapping_sub(heard);
    let before = match looked_ms.map(|looked| looked.wrapping_sub(heard)) {
        // Heard of since, or never looked at.
        None => 0,
        Some(before) if before as i32 <= 0 => 0,
        Some(silent) => wakes(silent),
    };
    // A peer that is never silent so long, and has nothing to say.
    let round = looked_ms.is_some_and(|looked| looked / most != now_ms / most);
    let next = match silent.checked_sub(most) {
        None => most - silent,
        Some(over) => again - over % again,
    };
    (
        wakes(silent) > before || round,
        next.min(most - now_ms % most),
    )
}

/// The first that any of the options can ask for.
fn shortest(options: &SocketOptions) -> Duration {
    let keepalive = options.keepalive.then_some(options.keepalive_idle);
    let first = keepalive
        .into_iter()
        .chain(options.idle_timeout)
        .chain(options.wake_reader)
        .min();
    first.unwrap_or(Duration::MAX)
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}
