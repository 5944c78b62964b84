//! Lending a connection to the rules, and carrying out what they answer. The one place where a hot block is attached, armed,
//! queued, and given back.

use janus_wire::FlowKey;

use crate::cold::{NONE, State, flag};
use crate::conn::{Conn, Effects, Linger, Over, View, effect};
use crate::hot::{Hot, TimerKind, hot_flag};
use crate::schedule::Schedule;
use crate::stack::{Stack, Token};
use crate::time::Instant;

impl Schedule {
    /// Wakes the task whose token is in `slot`, if there is one.
    #[inline]
    pub(crate) fn wake(&mut self, slot: &mut u32) {
        if *slot != NONE {
            self.ready.push_back(Token(core::mem::replace(slot, NONE)));
        }
    }

    /// Puts the block's wheel entry at its earliest deadline.
    #[inline(never)]
    fn arm(&mut self, id: u32, hot: &mut Hot, now: Instant) {
        if let Some(late) = hot.timers.timer.take() {
            self.wheel.cancel(late);
        }
        let mut deadline = hot.deadline();
        if hot.timers.rto_at == deadline
            && matches!(hot.timers.timer_kind, TimerKind::Rto | TimerKind::Persist)
        {
            hot.timers.rto_at = deadline + self.crowds.delay(deadline, now);
            deadline = hot.deadline();
        }
        // The wheel has room for one entry per block.
        hot.timers.timer = self.wheel.insert(deadline, id);
        hot.timers.timer_at = deadline;
    }

    /// The block joins the queue of those that wait for a packet buffer.
    fn starve(&mut self, id: u32, now: Instant) {
        if self.starved.is_empty() {
            self.retry.first(now);
        }
        self.starved.push_back(id);
    }
}

impl Stack {
    /// Lends a connection that has a hot block.
    #[inline(always)]
    pub(crate) fn lend(&mut self, conn: u32) -> Option<Conn<'_>> {
        let (key, tcb) = self.store.tcbs.with_key(conn);
        let id = tcb.hot;
        if id == NONE {
            return None;
        }
        Some(Conn {
            id,
            key,
            tcb,
            hot: &mut self.store.hot[id],
            blocks: &mut self.store.blocks,
            paths: &mut self.paths,
            rules: &self.rules,
            counters: &mut self.counters,
            now: self.now,
            effects: Effects::default(),
        })
    }

    /// A look at a connection that has a hot block.
    pub(crate) fn view(&self, conn: u32) -> Option<View<'_>> {
        let tcb = &self.store.tcbs[conn];
        (tcb.hot != NONE).then(|| View {
            id: tcb.hot,
            tcb,
            hot: &self.store.hot[tcb.hot],
            blocks: &self.store.blocks,
            rules: &self.rules,
        })
    }

    /// Lends a connection to `rule` and carries out what that wants. `None`: it has no hot block.
    #[inline(always)]
    pub(crate) fn with<R>(
        &mut self,
        conn: u32,
        rule: impl FnOnce(&mut Conn<'_>) -> R,
    ) -> Option<R> {
        let mut lent = self.lend(conn)?;
        let answer = rule(&mut lent);
        let (id, effects) = (lent.id, lent.finish());
        self.carry_out(conn, id, effects);
        Some(answer)
    }

    /// Like [`Stack::with`], for a connection that gets a hot block if it has none. `None`: there is no block left.
    #[inline(always)]
    pub(crate) fn with_hot<R>(
        &mut self,
        conn: u32,
        rule: impl FnOnce(&mut Conn<'_>) -> R,
    ) -> Option<R> {
        self.heat(conn).then(|| self.with(conn, rule)).flatten()
    }

    /// Does what a rule wants done, in the one order that is right for all.
    #[inline(always)]
    pub(crate) fn carry_out(&mut self, conn: u32, id: u32, effects: Effects) {
        if effects.none() {
            return;
        }
        if effects.has(effect::QUEUE) {
            self.schedule.output.push_back(id);
        }
        if effects.has(effect::WAKE_READER) {
            self.schedule.wake(&mut self.store.tcbs[conn].reader);
        }
        if effects.has(effect::RARE) {
            self.carry_out_rare(conn, id, effects);
            return;
        }
        if effects.has(effect::ARM) {
            self.schedule.arm(id, &mut self.store.hot[id], self.now);
        }
        if effects.has(effect::IDLE) {
            self.detach_hot(conn, id);
        }
    }

    #[inline(never)]
    fn carry_out_rare(&mut self, conn: u32, id: u32, effects: Effects) {
        if effects.has(effect::ANSWER) {
            self.send_answers(id);
        }
        if effects.has(effect::STARVED) {
            self.schedule.starve(id, self.now);
        }
        if effects.has(effect::WAKE_WRITER) {
            self.schedule.wake(&mut self.store.hot[id].sender.writer);
        }
        if effects.has(effect::DOUBT_HOP) {
            let hop = self
                .rules
                .interface
                .next_hop(self.store.tcbs.key(conn).peer());
            self.host.neighbors.doubt(hop, self.now);
        }
        if effects.has(effect::PRUNED) {
            self.settle_pruned();
        }
        match effects.over {
            Over::No => self.settle(conn),
            Over::Ended(why) => self.end(conn, why),
            Over::Lingers(how) => self.linger(conn, how),
        }
        if effects.has(effect::RELIEVE) {
            self.relieve();
        }
    }

    /// Sends what a rule has asked for. An acknowledgement for which there is no place is owed.
    fn send_answers(&mut self, id: u32) {
        let mut answers = core::mem::take(&mut self.store.blocks.answers);
        for segment in answers.drain(..) {
            let sent = self.ip().reply(&segment);
            if !sent && segment.is_bare_ack() && !self.store.hot[id].has(hot_flag::QUEUED) {
                self.store.hot[id].set(hot_flag::ACK_NOW | hot_flag::QUEUED);
                self.schedule.output.push_back(id);
            }
        }
        self.store.blocks.answers = answers;
    }

    /// The connection has a hot block, attached if it had none. False when all blocks are in use.
    #[inline(always)]
    pub(crate) fn heat(&mut self, conn: u32) -> bool {
        self.store.tcbs[conn].hot != NONE || self.attach_hot(conn)
    }

    #[inline(never)]
    fn attach_hot(&mut self, conn: u32) -> bool {
        let Some(id) = self.store.hot.alloc() else {
            return false;
        };
        self.store.tcbs[conn].hot = id;
        if let Some(mut lent) = self.lend(conn) {
            lent.hot.conn = conn;
            lent.wake_up();
        }
        true
    }

    /// Arms the connection's timer, and gives the hot block back when nothing is outstanding.
    #[inline]
    pub(crate) fn settle(&mut self, conn: u32) {
        self.with(conn, |_| {});
    }

    #[inline(never)]
    fn detach_hot(&mut self, conn: u32, id: u32) {
        let Some(mut lent) = self.lend(conn) else {
            return;
        };
        if lent.needs_block() {
            return;
        }
        lent.fall_asleep();
        debug_assert!(lent.hot.holds_nothing());
        self.store.hot.free(id);
        if self.store.tcbs[conn].has(flag::ORPHAN) {
            self.settle_orphan(conn);
        }
    }

    /// An orphan with nothing outstanding is over, or waits for the peer's FIN in a compact record.
    fn settle_orphan(&mut self, conn: u32) {
        match self.store.tcbs[conn].state {
            State::Closed => self.release(conn),
            State::FinWait2 => self.linger(conn, Linger::FinWait2),
            _ => {}
        }
    }

    /// Connections that lost what they held beyond their gaps are settled.
    pub(crate) fn settle_pruned(&mut self) {
        while let Some(id) = self.store.blocks.reorders.pop_pruned() {
            let hot = &mut self.store.hot[id];
            hot.receiver.reorder = NONE;
            let conn = hot.conn;
            self.settle(conn);
        }
    }

    /// The flow of a connection.
    pub(crate) fn key_of(&self, conn: u32) -> FlowKey {
        self.store.tcbs.key(conn)
    }
}
