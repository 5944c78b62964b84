//! The stack: its stores, how they are made, and the bookkeeping that every path shares: making, waking and
//! settling a connection; how one ends is in `stack/ends.rs`. What happens when is in `input`, `output`, `socket` and `timers`.

mod effects;
mod ends;

use janus_mem::{Frame, Growth, MemError, Pool};
use janus_wire::FlowKey;

use crate::cold::State;
use crate::config::{Config, Secrets};
use crate::counters::Counters;
use crate::host::Host;
use crate::index::Index;
use crate::input::Scratch;
use crate::interface::Interface;
use crate::ip::Ip;
use crate::paths::PathKnowledge;
use crate::records::Record;
use crate::rules::Rules;
use crate::schedule::Schedule;
use crate::store::Store;
use crate::time::Instant;

/// Name of a task to be woken. Its meaning is its owner's; the stack only gives it back.
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
    pub(crate) paths: PathKnowledge,
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
            paths: PathKnowledge::new(secrets.table),
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

    /// Returns the counters of everything that has happened.
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
        &self.rules.interface
    }

    /// Returns an unpredictable number: another one each time, and for each `of`, where several stacks have the same secrets.
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
        self.store.blocks.came_home(frame);
    }

    /// Lends the host below TCP.
    #[inline(always)]
    pub(crate) fn ip(&mut self) -> Ip<'_> {
        Ip {
            rules: &self.rules,
            host: &mut self.host,
            paths: &mut self.paths,
            schedule: &mut self.schedule,
            segments: &mut self.store.blocks.segments,
            pool: &mut self.store.blocks.pool,
            counters: &mut self.counters,
            now: self.now,
        }
    }
}
