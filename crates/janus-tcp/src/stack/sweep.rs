//! The sweep: a pass over all records in slices, for those that are idle and want to be looked at (`conn/timer/keepalive.rs`), and for
//! connections at rest.

use core::time::Duration;

use crate::conn::timer::keepalive::{
    GAP, PASS, PAUSE, SEEN_NONE, SLICE, Silence, judge_reader, millis, shortest, verdict_of,
};
use crate::rules::profile::DEFAULT;
use crate::stack::Stack;
use crate::store::cold::{EndReason, NONE, State, flag};
use crate::store::keys::{ConnSlot, Key};
use crate::store::outgoing::Outgoing;
use crate::store::rest::{Look, Rest};
use crate::store::schedule::Sweep;
use crate::time::Instant;

/// Connections ended in one go: each takes a hot block and a packet.
const ENDS_MAX: u64 = 128;

impl Stack {
    /// Connections that the sweep is for.
    fn swept(&self) -> usize {
        self.rules.profiles().swept() + self.schedule.rests.limited()
    }

    /// When the sweep goes on; never while no connection wants it.
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        (self.swept() > 0).then_some(self.schedule.sweep.at)
    }

    /// A connection has got options: the sweep must not come too late for it.
    pub(crate) fn sweep_soon(&mut self, conn: ConnSlot) {
        let options = self.rules.profiles().get(self.store.tcbs[conn].profile);
        if !options.wants_sweep() {
            return;
        }
        let due = self.env.now + shortest(options);
        if self.swept() > 1 {
            return self.sweep_by(due);
        }
        // The first: whatever was planned before was for others.
        self.schedule.sweep = Sweep {
            at: due,
            ..Sweep::default()
        };
    }

    /// The next pass begins at this moment at the latest, or as soon as this one is over.
    pub(crate) fn sweep_by(&mut self, due: Instant) {
        let sweep = &mut self.schedule.sweep;
        match sweep.next == (0, 0) && sweep.left.is_none() {
            true => sweep.at = sweep.at.min(due),
            false => self.sweep_at_latest(due),
        }
    }

    /// Looks at one slice, if its time has come, or at a part of one in which many connections end.
    /// Keeps MAY-5.
    pub(crate) fn sweep(&mut self) {
        if self.schedule.sweep.at > self.env.now || self.swept() == 0 {
            return;
        }
        let (family, slice) = self.schedule.sweep.next;
        let places = self.store.tcbs.ranges();
        let first = places[family].start + slice * SLICE;
        let to = places[family].end.min(first + SLICE);
        let from = match self.schedule.sweep.left.take() {
            Some(from) => from,
            None => {
                self.begin_slice(family, slice);
                first
            }
        };
        let ended = self.ended_by_sweep();
        for conn in (from..to).filter_map(ConnSlot::new) {
            self.look_at(conn);
            if self.ended_by_sweep() - ended >= ENDS_MAX {
                self.schedule.sweep.left = Some(conn.index() + 1);
                return;
            }
        }
        self.schedule.sweep.next = match (family, to == places[family].end) {
            (_, false) => (family, slice + 1),
            (0, true) => (1, 0),
            (_, true) => (0, 0),
        };
        let slices: u32 = places
            .iter()
            .map(|it| (it.end - it.start) / SLICE + 1)
            .sum();
        let pause = PAUSE.min(PASS / slices);
        self.schedule.sweep.at = self.env.now + pause;
        if self.schedule.sweep.next == (0, 0) {
            self.end_pass(pause * slices);
        }
    }

    fn begin_slice(&mut self, family: usize, slice: u32) {
        let (now, now_ms) = (self.env.now, self.env.now_ms);
        let sweep = &mut self.schedule.sweep;
        if (family, slice) == (0, 0) {
            sweep.begun = now;
        }
        let looked = &mut sweep.looked_ms[family];
        if looked.len() <= slice as usize {
            looked.push(None);
        }
        sweep.looked = looked[slice as usize].replace(now_ms);
    }

    fn end_pass(&mut self, length: Duration) {
        let begun = self.schedule.sweep.begun;
        // Connections that came to rest behind the pass: their time has begun no earlier than it.
        if let Some(shortest) = self.schedule.rests.shortest() {
            self.sweep_at_latest(begun + shortest);
        }
        let next = self.env.now + length / GAP;
        let earliest = self.schedule.sweep.earliest.take();
        self.schedule.sweep.at = earliest.unwrap_or(next + SEEN_NONE).max(next);
    }

    fn ended_by_sweep(&self) -> u64 {
        self.env.counters.idle_ended + self.env.counters.rests_ended
    }

    #[inline(always)]
    fn look_at(&mut self, conn: ConnSlot) {
        let cold = &self.store.tcbs[conn];
        let (profile, heard_ms) = (cold.profile, cold.last_heard_ms);
        if let Some(rest) = Rest::of_word(cold.reader) {
            match self.schedule.rests.look(rest, heard_ms, self.env.now_ms) {
                Look::Over => return self.rest_is_over(conn),
                Look::NotBefore(ms) => {
                    self.sweep_at_latest(self.env.now + Duration::from_millis(ms.into()));
                }
                Look::Unlimited => {}
            }
        }
        if profile != DEFAULT {
            self.look_at_idle(conn, self.schedule.sweep.looked);
        }
    }

    /// Nobody has to learn that such a connection is closed: whoever would serve it has nothing of it.
    #[inline(never)]
    fn rest_is_over(&mut self, conn: ConnSlot) {
        self.env.counters.rests_ended += 1;
        self.close_at_rest(conn);
    }

    /// Keeps MUST-26, MUST-29, SHLD-12.
    #[inline(never)]
    fn look_at_idle(&mut self, conn: ConnSlot, looked_ms: Option<u32>) {
        let cold = &self.store.tcbs[conn];
        let options = self.rules.profiles().get(cold.profile);
        // A connection that waits for an acknowledgement, or to send, learns by that whether the peer is there (Linux:
        // tcp_keepalive_timer). An orphan has bounds of its own.
        let asleep = matches!(
            cold.state,
            State::Established | State::CloseWait | State::FinWait2
        ) && !cold.has(flag::ORPHAN);
        if !options.wants_sweep() {
            return;
        }
        let now_ms = self.env.now_ms;
        if let Some(most) = options.wake_reader {
            self.look_at_reader(conn, millis(most), looked_ms);
        }
        let options = self.rules.profiles().get(self.store.tcbs[conn].profile);
        if !options.keepalive && options.idle_timeout.is_none() {
            return;
        }
        if !asleep {
            self.sweep_at_latest(self.env.now + shortest(options));
            return;
        }
        let cold = &self.store.tcbs[conn];
        let busy = cold.hot().is_some() && {
            let hot = &self.store.hot[cold.hot()];
            !hot.sender.flight.is_empty() || !hot.sender.unsent.is_empty()
        };
        let options = &cold.keepalive_options(&self.rules);
        match verdict_of(cold, options, busy, now_ms, looked_ms) {
            Silence::Wait(ms) => {
                self.sweep_at_latest(self.env.now + Duration::from_millis(ms.into()))
            }
            Silence::Ask(late_ms) => {
                let cold = &mut self.store.tcbs[conn];
                cold.last_heard_ms = cold.last_heard_ms.wrapping_add(late_ms);
                if let Silence::Wait(ms) = verdict_of(cold, options, busy, now_ms, Some(now_ms)) {
                    self.sweep_at_latest(self.env.now + Duration::from_millis(ms.into()));
                }
                self.env.counters.keepalives += 1;
                self.ask_whether_alive(conn);
            }
            Silence::Gone => {
                // As Linux: should the peer be there after all, it must know.
                self.env.counters.idle_ended += 1;
                self.reset_peer(conn);
                self.end(conn, EndReason::TimedOut);
            }
        }
    }

    /// Wakes the connection's reader, if one waits and its time has come.
    fn look_at_reader(&mut self, conn: ConnSlot, most: u32, looked_ms: Option<u32>) {
        let cold = &self.store.tcbs[conn];
        let now_ms = self.env.now_ms;
        let (due, next) = judge_reader(most, cold.last_heard_ms, now_ms, looked_ms);
        // What is at rest looks at no clock.
        if due && cold.reader != NONE && Rest::of_word(cold.reader).is_none() {
            self.env.counters.readers_woken += 1;
            self.schedule.wake(&mut self.store.tcbs[conn].reader);
        }
        self.sweep_at_latest(self.env.now + Duration::from_millis(next.into()));
    }

    /// Asks the peer whether it is there.
    fn ask_whether_alive(&mut self, conn: ConnSlot) {
        let (key, tcb) = (self.key_of(conn), &self.store.tcbs[conn]);
        let question = Outgoing::keepalive_of(key, tcb, &self.rules, self.env.now_ms);
        self.ip().reply(&question);
    }

    fn sweep_at_latest(&mut self, due: Instant) {
        let earliest = &mut self.schedule.sweep.earliest;
        *earliest = Some(earliest.map_or(due, |at| at.min(due)));
    }
}
