//! Turns of the stack: what is due, what starved for a buffer, the sweep over idle connections, and frames to hand out.

use core::time::Duration;

use janus_mem::Frame;

use crate::conn::Conn;
use crate::conn::timer::MAX_PER_CALL;
use crate::conn::timer::keepalive::{
    GAP, PASS, PAUSE, SEEN_NONE, SLICE, Silence, judge_reader, millis, shortest, verdict_of,
};
use crate::conn::timer::pressure::PRUNED_AT_ONCE;
use crate::ip::emit::{Way, known_envelope};
use crate::rules::profile::DEFAULT;
use crate::stack::Stack;
use crate::store::cold::{EndReason, NONE, State, flag};
use crate::store::flows::V6;
use crate::store::hot::hot_flag;
use crate::store::keys::{ConnSlot, HotId, Key};
use crate::store::outgoing::Outgoing;
use crate::store::pressure::Pressure;
use crate::store::rest::{Look, Rest};
use crate::store::schedule::{MAX_FIRED, Sweep};
use crate::time::Instant;
use crate::wire::Wire;

/// Frames that a connection hands out at a time while others wait: their answers leave before the rest of a long write, and less of
/// what many have written must be in the processor's cache at once.
const QUANTUM: usize = 32;

impl Stack {
    /// Serves deadlines that have passed, of each kind no more than a bound, so that packets need not wait for long however
    /// many have passed at once. While some are left [`Stack::next_deadline`] is not after `now`: the next call goes on, with
    /// those that have waited longest.
    pub fn advance(&mut self, now: Instant) {
        self.env.set_now(now);
        let mut fired = core::mem::take(&mut self.schedule.fired);
        self.schedule
            .wheel
            .advance_some(now, MAX_FIRED, |hot| fired.extend(HotId::new(hot)));
        for &hot in &fired {
            self.on_timer(hot);
        }
        fired.clear();
        self.schedule.fired = fired;
        self.sweep();
        self.repeat_syn_acks();
        self.feed_starved();
        self.ip().expire_fragments();
        while let Some(frame) = self.host.pop_overdue(now) {
            self.env.counters.dropped_no_neighbor += 1;
            self.ip().recycle(frame);
        }
        for _ in 0..MAX_PER_CALL {
            let Some(id) = self.index.time_wait.due(now) else {
                break;
            };
            self.drop_time_wait(id);
        }
    }

    /// When [`Stack::advance`] has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (neighbor, fragments) = self.host.deadlines();
        let first_wait = self.rules.config().rto_initial.as_nanos() as u64;
        [
            self.schedule.wheel.next(),
            self.index.half_open.next_deadline(first_wait),
            self.index.time_wait.next_deadline(),
            neighbor,
            self.next_sweep(),
            fragments,
            (!self.schedule.starved.is_empty()).then(|| self.schedule.retry.at()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn repeat_syn_acks(&mut self) {
        let first_wait = self.rules.config().rto_initial.as_nanos() as u64;
        for _ in 0..MAX_PER_CALL {
            let Some(id) = self.index.half_open.due(self.env.now, first_wait) else {
                break;
            };
            self.syn_ack_is_due(id);
        }
    }

    /// The timer of a hot block has fired.
    fn on_timer(&mut self, id: HotId) {
        let hot = &mut self.store.hot[id];
        (hot.timers.timer, hot.timers.timer_at) = (None, Instant::NEVER);
        if let Some(conn) = hot.conn {
            self.with(conn, |c| c.on_timer());
        }
    }

    /// Whether [`Stack::transmit`] would hand out anything.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        !self.schedule.replies.is_empty() || !self.schedule.output.is_empty()
    }

    /// Appends at most `room` frames to `out`, of those only that answer for no task, such as a SYN-ACK. Where tasks are ready their turn
    /// need not be waited for.
    pub fn transmit_replies(&mut self, out: &mut Vec<Frame>, room: usize) {
        let before = out.len();
        self.hand_out_replies(out, before + room);
        self.env.counters.frames_out += (out.len() - before) as u64;
    }

    /// Whether [`Stack::transmit_replies`] would hand out anything.
    #[inline]
    pub fn owes_replies(&self) -> bool {
        !self.schedule.replies.is_empty()
    }

    /// Appends at most `room` frames to `out`.
    /// Keeps MUST-58, MUST-59.
    pub fn transmit(&mut self, now: Instant, out: &mut Vec<Frame>, room: usize) {
        self.env.set_now(now);
        let before = out.len();
        let end = before + room;
        self.hand_out_replies(out, end);
        while out.len() < end {
            let Some(Some(id)) = self.schedule.output.pop_front() else {
                break;
            };
            let alone = self.schedule.output.is_empty();
            let quantum = if alone { room } else { QUANTUM };
            self.flush(id, out, end.min(out.len() + quantum));
        }
        if room == 0 && self.host.own_loop().is_used() {
            self.flush_own_loop(out);
        }
        // SYNs and probes took the way of the replies.
        self.hand_out_replies(out, end);
        self.udp_may_send();
        self.env.counters.frames_out += (out.len() - before) as u64;
    }

    /// The turn of a connection, which has been in the output queue.
    #[inline(always)]
    fn flush(&mut self, id: HotId, out: &mut Vec<Frame>, end: usize) {
        let (rules, now) = (&self.rules, self.env.now);
        let lent = Conn::of_block(&mut self.store, id, rules, &mut self.env);
        let Some((conn, mut lent)) = lent else {
            self.store.hot[id].clear(hot_flag::QUEUED);
            return self.block_is_left(id);
        };
        lent.leave_queue();
        let (key, profile) = lent.flow();
        let Some(envelope) = known_envelope(rules, &self.host, key, profile, now) else {
            return self.flush_by_search(conn, out, end);
        };
        let mut wire = Wire::new(envelope, lent.flow_label(), out, end);
        lent.turn(&mut wire);
        let done = lent.finish();
        self.carry_out(conn, done);
    }

    /// Like [`Stack::flush`], where the next hop has to be looked for, or is this host.
    #[inline(never)]
    fn flush_by_search(&mut self, conn: ConnSlot, out: &mut Vec<Frame>, end: usize) {
        let (before, key) = (out.len(), self.key_of(conn));
        let profile = self.store.tcbs[conn].profile;
        let (envelope, way) = self.ip().envelope_by_search(&key, profile);
        let room = match way {
            Way::In => self.host.own_loop().room(),
            _ => usize::MAX,
        };
        if room == 0 {
            return self.hold_back(conn);
        }
        let end = end.min(before.saturating_add(room));
        self.with(conn, |c| {
            c.turn_apart(&mut Wire::new(&envelope, c.flow_label(), out, end));
        });
        match way {
            Way::Out => {}
            Way::Unresolved(hop) => {
                for frame in out.drain(before..) {
                    self.ip().await_neighbor(hop, frame);
                }
            }
            Way::In => {
                for frame in out.drain(before..) {
                    self.ip().loop_in(frame);
                }
            }
        }
    }

    /// The device has no room, which connections to our own addresses do not need: those among the next ones have their turn.
    #[cold]
    fn flush_own_loop(&mut self, out: &mut Vec<Frame>) {
        for _ in 0..QUANTUM {
            let Some(Some(id)) = self.schedule.output.pop_front() else {
                return;
            };
            let loops = |conn: &ConnSlot| self.rules.loops(self.key_of(*conn).peer());
            match self.store.hot[id].conn.filter(loops) {
                Some(conn) => {
                    self.store.hot[id].clear(hot_flag::QUEUED);
                    self.flush_by_search(conn, out, out.len() + QUANTUM);
                }
                None => self.schedule.output.push_back(Some(id)),
            }
        }
    }

    /// A connection to an address of ours has its next turn when some of what waits to come back in has done so.
    fn hold_back(&mut self, conn: ConnSlot) {
        if let Some(id) = self.store.tcbs[conn].hot() {
            self.store.hot[id].set(hot_flag::QUEUED);
            self.host.own_loop_mut().hold(id);
        }
    }

    #[inline]
    fn hand_out_replies(&mut self, out: &mut Vec<Frame>, end: usize) {
        let replies = &mut self.schedule.replies;
        let room = end.saturating_sub(out.len());
        match replies.len() <= room {
            true => out.append(replies),
            false => out.extend(replies.drain(..room)),
        }
    }

    /// How short memory is.
    pub fn pressure(&self) -> Pressure {
        self.store.blocks.shortage.level
    }

    /// Looks at what is in use, and makes room if that is much.
    #[inline]
    pub(crate) fn update_pressure(&mut self) {
        if self
            .store
            .blocks
            .update_pressure(self.rules.config(), &mut self.env.counters)
            != Pressure::None
        {
            self.relieve();
        }
    }

    /// Out-of-order data makes room, that of the connections that have waited longest first.
    #[cold]
    pub(crate) fn relieve(&mut self) {
        let blocks = &mut self.store.blocks;
        let enough = match blocks.shortage.level {
            Pressure::Critical => 0,
            _ => blocks.reorders.max_slots() / 4,
        };
        if blocks.shortage.level == Pressure::Critical {
            // The device needs what this thread holds in stock.
            blocks.pool.flush();
        }
        for _ in 0..PRUNED_AT_ONCE {
            if blocks.reorders.slots() <= enough {
                break;
            }
            self.env.counters.reordered_pruned += u64::from(blocks.prune_oldest());
        }
        self.release_pruned();
    }

    /// Those who found no packet buffer try again, when it is time or one of our own has come back.
    pub(crate) fn feed_starved(&mut self) {
        // Buffers in this thread's stock are for all only while memory is not critical.
        let spare = self.store.blocks.shortage.level != Pressure::Critical
            && self.store.blocks.pool.has_spare();
        if self.schedule.starved.is_empty() || self.env.now < self.schedule.retry.at && !spare {
            return;
        }
        self.update_pressure();
        let Some(buf) = (!self.store.blocks.shortage.exhausted())
            .then(|| self.store.blocks.pool.alloc())
            .flatten()
        else {
            // A FIN takes one from the reserve, and may.
            self.forget_contented();
            match self.schedule.retry.is_tired() && self.shed() {
                true => self.schedule.retry.begin(self.env.now),
                false => self.schedule.retry.again(self.env.now),
            }
            return;
        };
        self.store.blocks.pool.free(buf);
        match self.store.blocks.shortage.level {
            // Some of them may go on; who may not comes back, and is asked less and less often.
            Pressure::Critical => self.schedule.retry.again(self.env.now),
            _ => self.schedule.retry.begin(self.env.now),
        }
        self.wake_starved();
    }

    /// Lets connections go that need no memory any more, though there is still none: they have ended, or found some another
    /// way. The others keep their order, all round.
    fn forget_contented(&mut self) {
        for _ in 0..self.schedule.starved.len().min(MAX_PER_CALL) {
            let Some(hot) = self.schedule.starved.pop_front() else {
                return;
            };
            let conn = self.store.hot[hot].conn;
            let wants = |conn| self.store.hot[hot].wants_memory(&self.store.tcbs[conn]);
            if conn.is_some_and(wants) {
                self.schedule.starved.push_back(hot);
                continue;
            }
            self.store.hot[hot].clear(hot_flag::STARVED);
            match conn {
                Some(conn) => self.release_if_idle(conn),
                None => self.block_is_left(hot),
            }
        }
    }

    fn wake_starved(&mut self) {
        for _ in 0..self.schedule.starved.len().min(MAX_PER_CALL) {
            let Some(hot) = self.schedule.starved.pop_front() else {
                return;
            };
            self.store.hot[hot].clear(hot_flag::STARVED);
            match self.store.hot[hot].conn {
                Some(conn) => {
                    self.with(conn, |c| {
                        c.wake_writer();
                        c.queue();
                    });
                }
                None => self.block_is_left(hot),
            }
        }
    }

    /// Resets the connection that has kept most buffers for longest, of those looked at. False when none has stalled.
    #[cold]
    pub(crate) fn shed(&mut self) -> bool {
        let blocks = self.store.hot.high_water();
        let now_ms = self.env.now_ms;
        let mut worst = (0, None);
        for _ in 0..blocks.min(LOOKS_MAX) {
            let next = self.schedule.shedding.next % blocks;
            self.schedule.shedding.next = next + 1;
            if let Some(id) = HotId::new(next) {
                worst = worst.max((self.kept_ms(id, now_ms), Some(id)));
            }
        }
        let (1.., Some(id)) = worst else {
            return false;
        };
        let Some(conn) = self.store.hot[id].conn else {
            return false;
        };
        self.env.counters.shed += 1;
        self.reset_peer(conn);
        self.end(conn, EndReason::TimedOut);
        true
    }

    /// Buffers that a connection keeps to send from, times the milliseconds since its peer last acknowledged something;
    /// 0: nothing is kept, or it has not stalled.
    fn kept_ms(&self, id: HotId, now_ms: u32) -> u64 {
        let hot = &self.store.hot[id];
        let stalled_ms = now_ms.wrapping_sub(hot.congestion.acked_ms());
        if hot.conn.is_none() || stalled_ms < STALLED_MS {
            return 0;
        }
        u64::from(hot.sender.flight.count + hot.sender.unsent.count) * u64::from(stalled_ms)
    }

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

    /// When a connection was last looked at, if its options ask for that.
    pub(crate) fn looked_at(&self, conn: ConnSlot) -> Option<u32> {
        let tcb = &self.store.tcbs[conn];
        if !self.rules.profiles().get(tcb.profile).wants_sweep() {
            return None;
        }
        let sweep = &self.schedule.sweep;
        if let Some((generation, looked)) = sweep.newcomers.get(&conn)
            && *generation == tcb.generation
        {
            return *looked;
        }
        let (family, place) = (usize::from(conn.index() & V6 != 0), conn.index() & !V6);
        let slices = &sweep.looked_ms[family];
        slices.get((place / SLICE) as usize).copied().flatten()
    }

    /// A connection has come that was last looked at then, elsewhere: a look at its neighbours is none at it.
    pub(crate) fn look_soon(&mut self, conn: ConnSlot, looked_ms: Option<u32>) {
        let tcb = &mut self.store.tcbs[conn];
        if !self.rules.profiles().get(tcb.profile).wants_sweep() {
            return;
        }
        let newcomers = &mut self.schedule.sweep.newcomers;
        if newcomers.len() < NEWCOMERS_MAX {
            newcomers.insert(conn, (tcb.generation, looked_ms));
        } else {
            // As if its options had just been set.
            tcb.last_heard_ms = self.env.now_ms;
        }
        self.sweep_by(self.env.now);
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
            let looked = self.last_look_at(conn);
            self.look_at_idle(conn, looked);
        }
    }

    /// When the connection was looked at before this look.
    #[inline(always)]
    fn last_look_at(&mut self, conn: ConnSlot) -> Option<u32> {
        let sweep = &mut self.schedule.sweep;
        if !sweep.newcomers.is_empty()
            && let Some((generation, looked)) = sweep.newcomers.remove(&conn)
            && generation == self.store.tcbs[conn].generation
        {
            return looked;
        }
        sweep.looked
    }

    /// Closes a connection whose rest has lasted too long. Its handler has nothing of it, and is not asked.
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
        // A connection at rest has no task that would look at its clock.
        if due && cold.reader != NONE && Rest::of_word(cold.reader).is_none() {
            self.env.counters.readers_woken += 1;
            self.schedule.wake(&mut self.store.tcbs[conn].reader);
        }
        self.sweep_at_latest(self.env.now + Duration::from_millis(next.into()));
    }

    /// Asks the peer whether it is there.
    fn ask_whether_alive(&mut self, conn: ConnSlot) {
        let (key, tcb) = (self.key_of(conn), &self.store.tcbs[conn]);
        let question = Outgoing::keepalive_of(key, tcb, || self.timestamp_of(conn));
        self.ip().reply(&question);
    }

    fn sweep_at_latest(&mut self, due: Instant) {
        let earliest = &mut self.schedule.sweep.earliest;
        *earliest = Some(earliest.map_or(due, |at| at.min(due)));
    }
}

/// Connections from elsewhere that are remembered until they are looked at.
const NEWCOMERS_MAX: usize = 1 << 16;

/// Connections ended in one go: each takes a hot block and a packet.
const ENDS_MAX: u64 = 128;

/// Hot blocks looked at in one go.
pub(crate) const LOOKS_MAX: u32 = 4_096;

/// Milliseconds without progress after which a connection may be shed.
pub(crate) const STALLED_MS: u32 = 2_000;
