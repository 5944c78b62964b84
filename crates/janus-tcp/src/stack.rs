//! The stack: its stores, how they are made, and the bookkeeping that every path shares: making, waking and
//! settling a connection; how one ends is in `stack/ends.rs`. What happens when is in `input`, `output`, `socket` and `timers`.

mod ends;

use std::collections::VecDeque;

use janus_mem::{Frame, Growth, MemError, Pool};
use janus_wire::FlowKey;

use crate::cold::{NONE, State, flag};
use crate::config::{Config, Secrets};
use crate::congestion;
use crate::counters::Counters;
use crate::delayed_ack::Arrivals;
use crate::host::Host;
use crate::hot::{TimerKind, hot_flag};
use crate::index::Index;
use crate::input::Scratch;
use crate::interface::Interface;
use crate::patience::Stalled;
use crate::pmtu::Paths;
use crate::records::Record;
use crate::rto;
use crate::rules::Rules;
use crate::schedule::Schedule;
use crate::store::Store;
use crate::time::Instant;

/// Who asked to be woken. Its meaning is its owner's; the stack only gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u32);

/// A connection. It stays recognisable as stale when its slot serves another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    /// The slot.
    pub index: u32,
    /// Which of the slot's connections.
    pub generation: u32,
}

/// Bytes of memory committed, by purpose.
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
    pub(crate) rules: Rules,
    pub(crate) store: Store,
    pub(crate) index: Index,
    pub(crate) schedule: Schedule,
    pub(crate) host: Host,
    /// What is known of the size of packets on paths.
    pub(crate) paths: Paths,
    pub(crate) counters: Counters,
    /// The latest time that was handed in.
    pub(crate) now: Instant,
    /// Connections whose owners have let go of them.
    pub(crate) orphans: usize,
    pub(crate) scratch: Scratch,
}

impl Stack {
    /// A stack that takes its packet buffers from `pool` and its memory as `growth` says.
    pub fn new(
        config: Config,
        interface: Interface,
        secrets: Secrets,
        pool: Pool,
        growth: &Growth,
    ) -> Result<Stack, MemError> {
        let mut stack = Stack {
            store: Store::new(&config, secrets.table.0, pool, growth)?,
            index: Index::new(&config, &secrets, growth)?,
            schedule: Schedule::new(config.max_hot, growth)?,
            host: Host::new(&secrets),
            paths: Paths::new(secrets.table),
            counters: Counters::default(),
            now: Instant::ZERO,
            orphans: 0,
            scratch: Scratch::default(),
            rules: Rules::new(config, interface, secrets),
        };
        if !stack.rules.config.warm_reuse {
            stack.reuse_nothing();
        }
        Ok(stack)
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
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

    /// Connections that nobody owns any more and that are not finished.
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
        &self.rules.interface
    }

    /// A number that nobody else can foresee; another each time, and for each `of`, where several stacks have the same secrets.
    pub fn draw(&mut self, of: u64) -> u64 {
        self.rules.draw(of)
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

    #[inline]
    pub(crate) fn wake(ready: &mut VecDeque<Token>, slot: &mut u32) {
        if *slot != NONE {
            ready.push_back(Token(core::mem::replace(slot, NONE)));
        }
    }

    #[inline]
    pub(crate) fn wake_reader(&mut self, conn: u32) {
        Self::wake(&mut self.schedule.ready, &mut self.store.tcbs[conn].reader);
    }

    pub(crate) fn wake_writer(&mut self, conn: u32) {
        let hot = self.store.tcbs[conn].hot;
        if hot != NONE {
            Self::wake(&mut self.schedule.ready, &mut self.store.hot[hot].writer);
        }
    }

    /// The connection's hot block, attached if it has none; `None` when all blocks are in use.
    #[inline(always)]
    pub(crate) fn heat(&mut self, conn: u32, now: Instant) -> Option<u32> {
        match self.store.tcbs[conn].hot {
            NONE => self.attach_hot(conn, now),
            hot => Some(hot),
        }
    }

    #[inline(never)]
    fn attach_hot(&mut self, conn: u32, now: Instant) -> Option<u32> {
        let id = self.store.hot.alloc()?;
        let (cold, hot) = (&mut self.store.tcbs[conn], &mut self.store.hot[id]);
        hot.conn = conn;
        hot.snd_una = cold.snd_nxt;
        hot.recover = cold.snd_nxt;
        hot.small_end = cold.snd_nxt;
        // Of what a window was before it is remembered whether it was two segments; one that is shut is taken for such.
        hot.max_snd_wnd = cold.snd_wnd();
        if cold.was_wide() || hot.max_snd_wnd == 0 {
            hot.max_snd_wnd = hot.max_snd_wnd.max(2 * u32::from(cold.mss));
        }
        hot.pipe = 0;
        (hot.rto_at, hot.rtx_at) = (Instant::ZERO, Instant::ZERO);
        // What is remembered of round trips is the best guess at the smallest, and too large at worst.
        (hot.min_rtt_us, hot.min_rtt_ms) = (cold.srtt_us(), now.as_millis() as u32);
        hot.timer_kind = TimerKind::Rto;
        hot.backoff = rto::kept_backoff(cold);
        hot.reordering_seen = cold.reorders();
        hot.retries = 0;
        hot.dup_acks = 0;
        hot.probes = 0;
        hot.unacked_bytes = 0;
        hot.arrivals = Arrivals::of(cold);
        hot.stalled = Stalled::default();
        hot.orphaned_ms = 0;
        hot.rtt_round = cold.snd_nxt;
        hot.rtt_off_max = 0;
        hot.soft_error = 0;
        hot.forget_probe();
        hot.mss_full = cold.mss;
        cold.hot = id;
        if !self.paths.is_empty() {
            self.fit_to_path(conn, id, now);
        }
        let (cold, hot) = (&mut self.store.tcbs[conn], &mut self.store.hot[id]);
        let algorithm = self
            .rules
            .profiles
            .congestion(cold.profile, &self.rules.config);
        congestion::wake(hot, cold, &self.rules.config, algorithm, now);
        if self.rules.config.count_as_linux {
            self.new_account(id);
        }
        Some(id)
    }

    /// Gives the hot block back when nothing is outstanding. Called at the end of every path.
    #[inline(always)]
    pub(crate) fn settle(&mut self, conn: u32) {
        let id = self.store.tcbs[conn].hot;
        if id != NONE {
            self.settle_hot(conn, id);
        }
    }

    /// The same for one that has a hot block.
    #[inline(always)]
    pub(crate) fn settle_hot(&mut self, conn: u32, id: u32) {
        if self.store.hot[id].is_idle() {
            self.detach_hot(conn, id);
        }
    }

    #[inline(never)]
    fn detach_hot(&mut self, conn: u32, id: u32) {
        let cold = &self.store.tcbs[conn];
        // A state that waits for an answer keeps its timer, and so its block; a FIN that found no buffer too.
        if matches!(cold.state, State::SynSent | State::SynReceived) || cold.has(flag::FIN_QUEUED) {
            return;
        }
        if self.store.hot[id].has(hot_flag::URGENT) && self.awaits_urgent(conn, id) {
            return;
        }
        self.detach_recovery(id);
        self.forget_urgent(id);
        let (cold, hot) = (&mut self.store.tcbs[conn], &mut self.store.hot[id]);
        hot.conn = NONE;
        congestion::sleep(hot, cold);
        cold.mss = hot.mss_full;
        rto::keep_backoff(cold, hot.backoff);
        cold.set_reorders(hot.reordering_seen);
        cold.hot = NONE;
        debug_assert!(hot.holds_nothing());
        self.store.hot.free(id);
        if self.store.tcbs[conn].has(flag::ORPHAN) {
            self.settle_orphan(conn);
        }
    }

    /// An orphan with nothing outstanding is over, or waits for the peer's FIN in a compact record.
    fn settle_orphan(&mut self, conn: u32) {
        match self.store.tcbs[conn].state {
            State::Closed => self.release(conn),
            State::FinWait2 => self.enter_time_wait(conn, true),
            _ => {}
        }
    }

    /// Puts a hot block into the output queue.
    #[inline]
    pub(crate) fn queue_output(&mut self, hot: u32) {
        let block = &mut self.store.hot[hot];
        if !block.has(hot_flag::QUEUED) {
            block.set(hot_flag::QUEUED);
            self.schedule.output.push_back(hot);
        }
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
        let filed = self
            .index
            .table
            .insert(hash, record.encode(), rehash)
            .is_ok();
        self.counters.dropped_table_full += u64::from(!filed);
        filed
    }

    /// The record of a flow.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64) -> Option<Record> {
        self.index
            .table
            .find(hash, |i| self.is_record_of(i, key))
            .map(Record::decode)
    }

    #[inline(always)]
    pub(crate) fn is_record_of(&self, index: u32, key: &FlowKey) -> bool {
        match Record::decode(index) {
            Record::Connection(i) => {
                self.store.tcbs.is_for(i, key) && self.store.tcbs[i].state != State::Closed
            }
            Record::HalfOpen(i) => self.index.half_open.is_for(i, key),
            Record::TimeWait(i) => self.index.time_wait.is_for(i, key),
            Record::Stub(i) => self.index.stubs.is_for(i, key),
        }
    }

    /// A frame that was handed out as lent has left the device and comes home.
    #[inline]
    pub fn completed(&mut self, frame: Frame) {
        let id = frame.key;
        if self.store.blocks.segments.knows(id) {
            self.store
                .blocks
                .segments
                .came_home(id, frame.buf, &mut self.store.blocks.pool);
        } else {
            self.store.blocks.pool.free(frame.buf);
        }
    }
}
