//! The stack: its parts, and the one place where a connection is lent to the rules and where what they answer is carried out:
//! a hot block is attached, armed, queued and given back here. Calls from outside are in `stack/api`, arrival in `stack/input`. How a
//! connection ends is in `stack/ends.rs`, what a turn serves in `stack/turn.rs`.

pub(crate) mod api;
mod ends;
pub(crate) mod input;
pub(crate) mod parcels;
#[cfg(test)]
mod tests;
mod turn;

use janus_mem::{Frame, Growth, MemError, Pool};
use janus_wire::{FlowKey, StampBase};

use crate::conn::{Conn, Effects, Linger, Over, View, effect};
use crate::ip::{Host, Ip};
use crate::rules::Rules;
use crate::rules::config::{Config, Secrets};
use crate::rules::interface::Interface;
use crate::store::Store;
use crate::store::cold::{NONE, State, flag};
use crate::store::counters::Counters;
use crate::store::env::Env;
use crate::store::hot::hot_flag;
use crate::store::index::Index;
use crate::store::keys::{ConnSlot, HotId};
use crate::store::records::Record;
use crate::store::schedule::{Schedule, Token};
use crate::wire::parse::Parsed;

/// Bytes of memory committed, by purpose.
/// Exhaustive: the metrics take it apart, so that no field is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Cold TCBs, and what is kept beside them of connections that were challenged.
    pub tcb: usize,
    /// The flow table.
    pub table: usize,
    /// Hot blocks, what is kept beside them while something sent may be missing, and what is measured of connections that
    /// receive in bulk.
    pub hot: usize,
    /// Segment descriptors, and what orders those that came out of order.
    pub segments: usize,
    /// Half-open records.
    pub half_open: usize,
    /// TIME-WAIT records.
    pub time_wait: usize,
    /// Records of other shards' flows.
    pub stubs: usize,
    /// Timers.
    pub timers: usize,
}

/// One shard's TCP: every connection it owns, and nothing shared with another.
pub struct Stack {
    store: Store,
    index: Index,
    schedule: Schedule,
    host: Host,
    rules: Rules,
    env: Env,
    /// Connections whose owners have let go of them.
    orphans: usize,
    /// Frames between the passes: each stands where it was read until it is done.
    batch: Vec<Parsed>,
    /// The segment in hand may be another program's: whether nothing here has use for it.
    unwanted: Option<bool>,
}

impl Stack {
    /// A stack that takes its packet buffers from `pool` and its memory as `growth` says.
    pub fn new(
        mut config: Config,
        interface: Interface,
        secrets: Secrets,
        pool: Pool,
        growth: &Growth,
    ) -> Result<Stack, MemError> {
        let reuses = config.warm_reuse;
        config.share_path_facts &= reuses;
        let mut stack = Stack {
            store: Store::new(&config, secrets.table_key().0, pool, growth)?,
            index: Index::new(&config, &secrets, growth)?,
            schedule: Schedule::new(config.max_hot, growth)?,
            host: Host::new(&secrets, &interface),
            orphans: 0,
            batch: Vec::new(),
            unwanted: None,
            env: Env::new(&secrets),
            rules: Rules::new(config, interface, secrets),
        };
        if !reuses {
            let Stack {
                store,
                index,
                schedule,
                ..
            } = &mut stack;
            store.reuse_nothing(index, schedule);
        }
        Ok(stack)
    }

    /// Returns the counters of everything that has happened.
    pub fn counters(&self) -> &Counters {
        &self.env.counters
    }

    /// Bytes of memory committed, by purpose.
    pub fn memory(&self) -> MemoryReport {
        MemoryReport {
            tcb: self.store.tcbs.committed_bytes() + self.index.limits.bytes(),
            table: self.index.table.committed_bytes(),
            segments: self.store.blocks.segments.committed_bytes()
                + self.store.blocks.reorders.committed_bytes(),
            hot: self.store.hot.committed_bytes()
                + self.store.blocks.recovery.committed_bytes()
                + self.store.blocks.tunings.committed_bytes(),
            half_open: self.index.half_open.committed_bytes(),
            time_wait: self.index.time_wait.committed_bytes(),
            stubs: self.index.stubs.committed_bytes(),
            timers: self.schedule.wheel.committed_bytes(),
        }
    }

    /// Hot blocks in use: connections with something in flight, queued, unread or timed.
    pub fn hot_in_use(&self) -> usize {
        self.store.hot.len()
    }

    /// Segments queued, in flight or unread.
    pub fn segments_in_use(&self) -> usize {
        self.store.blocks.segments.len()
    }

    /// Packet buffers that hold what came out of order.
    pub fn reordered_in_use(&self) -> usize {
        self.store.blocks.reorders.slots() as usize
    }

    /// Connections, those not yet accepted and those let go but unfinished included.
    pub fn connections(&self) -> usize {
        self.store.tcbs.len()
    }

    /// Number of connections without an owner that are not finished.
    pub fn orphans(&self) -> usize {
        self.orphans
    }

    /// SYNs answered and not yet acknowledged.
    pub fn half_open(&self) -> usize {
        self.index.half_open.len()
    }

    /// Connections in TIME-WAIT.
    pub fn in_time_wait(&self) -> usize {
        self.index.time_wait.len()
    }

    /// The interface the stack was made with.
    pub fn interface(&self) -> &Interface {
        self.rules.interface()
    }

    /// Returns an unpredictable number: another one each time, and for each `of`, where several stacks have the same secrets.
    pub fn next_random(&mut self, of: u64) -> u64 {
        self.rules.next_random(of)
    }

    /// The packet buffers the stack works with.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.store.blocks.pool
    }

    /// The next token whose owner should look again.
    #[inline]
    pub fn pop_ready(&mut self) -> Option<Token> {
        self.schedule.ready.pop_front()
    }

    /// Files a flow under the hash of its key. False when the table is full.
    #[inline]
    pub(crate) fn file(&mut self, hash: u64, record: Record) -> bool {
        let (cold, half_open, time_wait) = (
            &self.store.tcbs,
            &self.index.half_open,
            &self.index.time_wait,
        );
        let stubs = &self.index.stubs;
        let keyed = &self.index.hash;
        let rehash = |index: u32| match Record::decode(index) {
            Record::Connection(i) => keyed.flow(&cold.key(i)),
            Record::HalfOpen(i) => keyed.flow(&half_open.key(i)),
            Record::TimeWait(i) => keyed.flow(&time_wait.key(i)),
            Record::Stub(i) => keyed.flow(&stubs.key(i)),
        };
        let fetch = |index: u32| {
            if let Record::Connection(i) = Record::decode(index) {
                cold.prefetch(i);
            }
        };
        let filed = self
            .index
            .table
            .insert(hash, record.encode(), rehash, fetch)
            .is_ok();
        self.env.counters.dropped_table_full += u64::from(!filed);
        filed
    }

    /// The record of a flow.
    #[inline(never)]
    pub(crate) fn record_of(&self, key: &FlowKey) -> Option<Record> {
        self.find(key, self.index.hash.flow(key))
    }

    /// The record of a flow whose hash is known.
    #[inline(always)]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64) -> Option<Record> {
        self.index
            .table
            .find(hash, |i| self.is_record_of(i, key))
            .map(Record::decode)
    }

    #[inline(always)]
    pub(crate) fn is_record_of(&self, index: u32, key: &FlowKey) -> bool {
        match Record::decode(index) {
            Record::Connection(i) => self.is_connection_of(i, key),
            Record::HalfOpen(i) => self.index.half_open.is_for(i, key),
            Record::TimeWait(i) => self.index.time_wait.is_for(i, key),
            Record::Stub(i) => self.index.stubs.is_for(i, key),
        }
    }

    #[inline(always)]
    pub(crate) fn is_connection_of(&self, conn: ConnSlot, key: &FlowKey) -> bool {
        let tcb = self.store.tcbs.record_for(conn, key);
        tcb.is_some_and(|tcb| tcb.state != State::Closed)
    }

    /// A frame that was handed out as lent has left the device and comes home.
    #[inline]
    pub fn completed(&mut self, frame: Frame) {
        self.store.blocks.came_home(frame);
    }

    /// Lends the host below TCP.
    #[inline(always)]
    pub(crate) fn ip(&mut self) -> Ip<'_> {
        Ip::of(
            &self.rules,
            &mut self.env,
            &mut self.host,
            &mut self.schedule,
            &mut self.store.blocks,
        )
    }

    /// Lends a connection that has a hot block.
    #[inline(always)]
    pub(crate) fn lend(&mut self, conn: ConnSlot) -> Option<Conn<'_>> {
        Conn::of(&mut self.store, conn, &self.rules, &mut self.env)
    }

    /// A look at a connection that has a hot block.
    pub(crate) fn view(&self, conn: ConnSlot) -> Option<View<'_>> {
        View::of(&self.store, conn, &self.rules)
    }

    /// Lends a connection to `rule` and carries out what that wants. `None`: it has no hot block.
    #[inline(always)]
    pub(crate) fn with<R>(
        &mut self,
        conn: ConnSlot,
        rule: impl FnOnce(&mut Conn<'_>) -> R,
    ) -> Option<R> {
        let mut lent = self.lend(conn)?;
        let answer = rule(&mut lent);
        let done = lent.finish();
        self.carry_out(conn, done);
        Some(answer)
    }

    /// Like [`Stack::with`], for a connection that gets a hot block if it has none. `None`: there is no block left.
    #[inline(always)]
    pub(crate) fn with_hot<R>(
        &mut self,
        conn: ConnSlot,
        rule: impl FnOnce(&mut Conn<'_>) -> R,
    ) -> Option<R> {
        let mut lent = match self.lend(conn) {
            Some(lent) => lent,
            None => {
                self.attach_hot(conn);
                self.lend(conn)?
            }
        };
        let answer = rule(&mut lent);
        let done = lent.finish();
        self.carry_out(conn, done);
        Some(answer)
    }

    /// Does what a rule wants done, in the one order that is right for all.
    #[inline(always)]
    pub(crate) fn carry_out(&mut self, conn: ConnSlot, (id, effects): (HotId, Effects)) {
        if effects.none() {
            return;
        }
        if effects.has(effect::QUEUE) {
            self.schedule.output.push_back(Some(id));
        }
        if effects.has(effect::WAKE_READER) {
            let whose = || self.store.tcbs.id_of(conn);
            self.schedule.wake_reader(effects.reader(), whose);
        }
        if effects.has(effect::RARE) {
            match effects.only_end() {
                Some(why) => self.end(conn, why),
                None => self.carry_out_rare(conn, id, effects),
            }
            return;
        }
        if effects.has(effect::ARM) {
            self.schedule.arm(id, &mut self.store.hot[id], self.env.now);
        }
        if effects.has(effect::IDLE) {
            self.detach_hot(conn, id);
        }
    }

    #[inline(never)]
    fn carry_out_rare(&mut self, conn: ConnSlot, id: HotId, effects: Effects) {
        if effects.has(effect::ANSWER) {
            self.send_answers(id);
        }
        if effects.has(effect::STARVED) {
            self.schedule.wait_for_buffer(id, self.env.now);
        }
        if effects.has(effect::WAKE_WRITER) {
            self.schedule.wake(&mut self.store.hot[id].sender.writer);
        }
        if effects.has(effect::DOUBT_HOP) {
            let hop = self
                .rules
                .interface()
                .next_hop(self.store.tcbs.key(conn).peer());
            self.host.doubt(hop, self.env.now);
        }
        if effects.has(effect::PRUNED) {
            self.release_pruned();
        }
        match effects.over() {
            Over::No => self.release_if_idle(conn),
            Over::Ended(why) => self.end(conn, why),
            Over::Lingers(how) => self.linger(conn, how),
        }
        if effects.has(effect::RELIEVE) {
            self.relieve();
        }
    }

    /// Sends what a rule has asked for. An acknowledgement for which there is no place is owed.
    fn send_answers(&mut self, id: HotId) {
        let mut answers = core::mem::take(&mut self.env.answers);
        for segment in answers.drain(..) {
            let sent = self.ip().reply(&segment);
            if !sent && segment.is_bare_ack() && !self.store.hot[id].has(hot_flag::QUEUED) {
                self.store.hot[id].set(hot_flag::ACK_NOW | hot_flag::QUEUED);
                self.schedule.output.push_back(Some(id));
            }
        }
        self.env.answers = answers;
    }

    /// The connection has a hot block, attached if it had none. False when all blocks are in use.
    #[inline(always)]
    pub(crate) fn ensure_hot(&mut self, conn: ConnSlot) -> bool {
        self.store.tcbs[conn].hot().is_some() || self.attach_hot(conn)
    }

    #[inline(never)]
    pub(super) fn attach_hot(&mut self, conn: ConnSlot) -> bool {
        Conn::attach(&mut self.store, conn, &self.rules, &mut self.env).is_some()
    }

    /// Arms the connection's timer, and gives the hot block back when nothing is outstanding.
    #[inline]
    pub(crate) fn release_if_idle(&mut self, conn: ConnSlot) {
        self.with(conn, |_| {});
    }

    #[inline(never)]
    fn detach_hot(&mut self, conn: ConnSlot, id: HotId) {
        let Some(mut lent) = self.lend(conn) else {
            return;
        };
        if lent.needs_block() {
            return;
        }
        lent.fall_asleep();
        self.store.hot.free(id);
        if self.store.tcbs[conn].has(flag::ORPHAN) {
            self.release_orphan(conn);
        }
    }

    /// An orphan with nothing outstanding is over, or waits for the peer's FIN in a compact record.
    fn release_orphan(&mut self, conn: ConnSlot) {
        match self.store.tcbs[conn].state {
            State::Closed => self.release(conn),
            State::FinWait2 => self.linger(conn, Linger::FinWait2),
            _ => {}
        }
    }

    /// Connections that lost what they held beyond their gaps are settled.
    pub(crate) fn release_pruned(&mut self) {
        while let Some(id) = self.store.blocks.reorders.pop_pruned() {
            let hot = &mut self.store.hot[id];
            hot.receiver.reorder = NONE;
            if let Some(conn) = hot.conn {
                self.release_if_idle(conn);
            }
        }
    }

    /// Base of a connection's timestamps.
    pub(crate) fn stamps_of(&self, conn: ConnSlot) -> StampBase {
        let tcb = &self.store.tcbs[conn];
        match tcb.hot() {
            Some(block) => self.store.hot[block].timers.stamps,
            None => tcb.stamps(),
        }
    }

    /// The timestamp of what a connection sends now.
    pub(crate) fn timestamp_of(&self, conn: ConnSlot) -> u32 {
        self.rules.timestamp(self.stamps_of(conn), self.env.now_ms)
    }

    /// The flow of a connection.
    pub(crate) fn key_of(&self, conn: ConnSlot) -> FlowKey {
        self.store.tcbs.key(conn)
    }
}
