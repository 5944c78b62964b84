//! The stack: its stores, how they are made, and the bookkeeping that every path shares: making, waking and
//! settling a connection; how one ends is in `stack/ends.rs`. What happens when is in `input`, `output`, `socket` and `timers`.

mod ends;

use std::collections::VecDeque;

use janus_mem::{Frame, Growth, MemError, Pool, Slab};
use janus_wire::{FlowKey, TableHash};

use crate::challenge::Limits;
use crate::cold::{NONE, State, Tcb, flag};
use crate::config::{Config, Secrets};
use crate::congestion;
use crate::counters::Counters;
use crate::crowd::Crowds;
use crate::delayed_ack::Arrivals;
use crate::flows::Flows;
use crate::fragments::Fragments;
use crate::frto::Doubts;
use crate::half_open::HalfOpens;
use crate::hot::{Hot, TimerKind, hot_flag};
use crate::icmp_out::Budget;
use crate::input::{Later, Scratch};
use crate::interface::Interface;
use crate::isn::{self, Purpose, Stamper};
use crate::keepalive::Sweep;
use crate::listener::Listeners;
use crate::moves::Moves;
use crate::neighbor::Neighbors;
use crate::patience::Stalled;
use crate::pmtu::Paths;
use crate::pressure::{Pressure, Retry};
use crate::profile::Profiles;
use crate::records::Record;
use crate::recovery::Recovery;
use crate::reorder::Reorders;
use crate::rto;
use crate::segment::Segments;
use crate::send_buffer::Account;
use crate::sharing::PathFacts;
use crate::shed::Shedding;
use crate::stub::{STUBS_MAX, Stubs};
use crate::table::FlowTable;
use crate::time::Instant;
use crate::time_wait::TimeWaits;
use crate::tuning::Tuning;
use crate::udp::Sockets;
use crate::urgent::Urgents;
use crate::walks::Walks;
use crate::wheel::Wheel;

/// Replies (resets, SYN-ACKs, challenge ACKs, ARP, pings) waiting to be handed out; beyond it they are
/// dropped and counted, which the peers' repeats make good.
pub(crate) const MAX_REPLIES: usize = 4_096;

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
    pub(crate) config: Config,
    /// The scale of windows that SYNs offer, as it was at first: see [`BufferSizes`](crate::BufferSizes).
    pub(crate) own_scale: u8,
    pub(crate) interface: Interface,
    pub(crate) secrets: Secrets,
    pub(crate) stamper: Stamper,
    pub(crate) hash: TableHash,
    pub(crate) pool: Pool,
    pub(crate) table: FlowTable,
    pub(crate) cold: Flows<Tcb>,
    pub(crate) hot: Slab<Hot>,
    pub(crate) recovery: Slab<Recovery>,
    pub(crate) segments: Segments,
    pub(crate) reorders: Reorders,
    pub(crate) tunings: Slab<Tuning>,
    pub(crate) half_open: HalfOpens,
    pub(crate) time_wait: TimeWaits,
    pub(crate) stubs: Stubs,
    pub(crate) moves: Moves,
    pub(crate) listeners: Listeners,
    pub(crate) neighbors: Neighbors,
    pub(crate) paths: Paths,
    pub(crate) path_facts: PathFacts,
    pub(crate) fragments: Fragments,
    pub(crate) icmp_budget: Budget,
    /// Where the answer to a ping is written before it is sent, in parts if need be; kept so that this allocates once.
    pub(crate) answer: Vec<u8>,
    pub(crate) later: Later,
    pub(crate) wheel: Wheel,
    pub(crate) crowds: Crowds,
    /// Hot blocks with something to send.
    pub(crate) output: VecDeque<u32>,
    pub(crate) replies: VecDeque<Frame>,
    pub(crate) ready: VecDeque<Token>,
    /// Hot blocks whose timers fired, being served.
    pub(crate) fired: Vec<u32>,
    /// Hot blocks of connections that could not write or say FIN for want of a packet buffer, each once.
    pub(crate) starved: VecDeque<u32>,
    pub(crate) retry: Retry,
    pub(crate) pressure: Pressure,
    /// No buffer is left that data may keep.
    pub(crate) exhausted: bool,
    /// Buffers that one connection may have to send from, now.
    pub(crate) share: u32,
    pub(crate) shedding: Shedding,
    pub(crate) scratch: Scratch,
    /// The latest time that was handed in.
    pub(crate) now: Instant,
    pub(crate) counters: Counters,
    pub(crate) limits: Limits,
    pub(crate) urgents: Urgents,
    pub(crate) doubts: Doubts,
    /// By hot block, where send buffers are counted as in Linux.
    pub(crate) accounts: Vec<Account>,
    /// Sets of socket options.
    pub(crate) profiles: Profiles,
    pub(crate) sweep: Sweep,
    /// Connections whose owners have let go of them.
    pub(crate) orphans: usize,
    pub(crate) udp: Sockets,
    /// Numbers drawn so far.
    drawn: u64,
    /// Identifications of fragments, and ports of connections that are opened from any.
    pub(crate) identifications: Walks,
    pub(crate) source_ports: Walks,
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
        let interface = interface.with_link_local();
        let flows = config.max_connections.saturating_add(config.max_half_open);
        let flows = flows
            .saturating_add(config.max_time_wait)
            .saturating_add(STUBS_MAX);
        let mut stack = Stack {
            hash: TableHash::new(secrets.table.0, secrets.table.1),
            stamper: Stamper::new(secrets.timestamps),
            table: FlowTable::new(flows, growth)?,
            cold: Flows::new(config.max_connections, growth)?,
            hot: Slab::new(config.max_hot, growth)?,
            recovery: Slab::new(config.max_hot, growth)?,
            segments: Segments::new(config.max_segments, growth)?,
            tunings: Slab::new(config.max_hot, growth)?,
            reorders: Reorders::new(reordered_max(&config, &pool), secrets.table.0, growth)?,
            half_open: HalfOpens::new(config.max_half_open, growth)?,
            time_wait: TimeWaits::new(config.max_time_wait, growth)?,
            wheel: Wheel::new(config.max_hot, growth)?,
            crowds: Crowds::default(),
            stubs: Stubs::default(),
            moves: Moves::default(),
            listeners: Listeners::new(),
            neighbors: Neighbors::new(secrets.table.0 ^ secrets.table.1.rotate_left(17)),
            paths: Paths::new(secrets.table),
            path_facts: PathFacts::default(),
            fragments: Fragments::default(),
            icmp_budget: Budget::default(),
            answer: Vec::new(),
            later: Later::default(),
            output: VecDeque::with_capacity(1_024),
            replies: VecDeque::with_capacity(MAX_REPLIES),
            ready: VecDeque::with_capacity(1_024),
            fired: Vec::with_capacity(256),
            starved: VecDeque::new(),
            retry: Retry::default(),
            pressure: Pressure::None,
            exhausted: false,
            share: u32::MAX,
            shedding: Shedding::default(),
            scratch: Scratch::default(),
            now: Instant::ZERO,
            counters: Counters::default(),
            limits: Limits::default(),
            urgents: Urgents::new(),
            doubts: Doubts::new(),
            accounts: Vec::new(),
            profiles: Profiles::new(),
            sweep: Sweep::default(),
            orphans: 0,
            udp: Sockets::default(),
            drawn: 0,
            identifications: Walks::new(isn::derived(&secrets, Purpose::Identifications)),
            source_ports: Walks::new(isn::derived(&secrets, Purpose::SourcePorts)),
            own_scale: config.buffer_sizes().scale(),
            config,
            interface,
            secrets,
            pool,
        };
        if !stack.config.warm_reuse {
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
            tcb: self.cold.committed_bytes() + self.limits.bytes(),
            table: self.table.committed_bytes(),
            segments: self.segments.committed_bytes() + self.reorders.committed_bytes(),
            hot: self.hot.committed_bytes()
                + self.recovery.committed_bytes()
                + self.tunings.committed_bytes(),
            half_open: self.half_open.committed_bytes(),
            time_wait: self.time_wait.committed_bytes(),
            stubs: self.stubs.committed_bytes(),
            timers: self.wheel.committed_bytes(),
        }
    }

    /// Hot blocks in use: connections with something in flight, queued, unread or timed.
    pub fn hot_in_use(&self) -> usize {
        self.hot.len()
    }

    /// Segments queued, in flight or unread.
    pub fn segments_in_use(&self) -> usize {
        self.segments.len()
    }

    /// Packet buffers that hold what came out of order.
    pub fn reordered_in_use(&self) -> usize {
        self.reorders.slots() as usize
    }

    /// Connections, those not yet accepted and those let go but unfinished included.
    pub fn connections(&self) -> usize {
        self.cold.len()
    }

    /// Connections that nobody owns any more and that are not finished.
    pub fn orphans(&self) -> usize {
        self.orphans
    }

    /// SYNs answered and not yet acknowledged.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Connections in TIME-WAIT.
    pub fn in_time_wait(&self) -> usize {
        self.time_wait.len()
    }

    /// The interface the stack was made with.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// A number that nobody else can foresee; another each time, and for each `of`, where several stacks have the same secrets.
    pub fn draw(&mut self, of: u64) -> u64 {
        /// What else the key is used for has small numbers.
        const DRAWS: u64 = 1 << 63;
        self.drawn += 1;
        isn::keyed(&self.secrets, DRAWS | of << 48 | self.drawn)
    }

    /// The packet buffers the stack works with.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// The next token whose owner should look again.
    #[inline]
    pub fn pop_ready(&mut self) -> Option<Token> {
        self.ready.pop_front()
    }

    #[inline]
    pub(crate) fn wake(ready: &mut VecDeque<Token>, slot: &mut u32) {
        if *slot != NONE {
            ready.push_back(Token(core::mem::replace(slot, NONE)));
        }
    }

    #[inline]
    pub(crate) fn wake_reader(&mut self, conn: u32) {
        Self::wake(&mut self.ready, &mut self.cold[conn].reader);
    }

    pub(crate) fn wake_writer(&mut self, conn: u32) {
        let hot = self.cold[conn].hot;
        if hot != NONE {
            Self::wake(&mut self.ready, &mut self.hot[hot].writer);
        }
    }

    /// The connection's hot block, attached if it has none; `None` when all blocks are in use.
    #[inline(always)]
    pub(crate) fn heat(&mut self, conn: u32, now: Instant) -> Option<u32> {
        match self.cold[conn].hot {
            NONE => self.attach_hot(conn, now),
            hot => Some(hot),
        }
    }

    #[inline(never)]
    fn attach_hot(&mut self, conn: u32, now: Instant) -> Option<u32> {
        let id = self.hot.alloc()?;
        let (cold, hot) = (&mut self.cold[conn], &mut self.hot[id]);
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
        let (cold, hot) = (&mut self.cold[conn], &mut self.hot[id]);
        let algorithm = self.profiles.congestion(cold.profile, &self.config);
        congestion::wake(hot, cold, &self.config, algorithm, now);
        if self.config.count_as_linux {
            self.new_account(id);
        }
        Some(id)
    }

    /// Gives the hot block back when nothing is outstanding. Called at the end of every path.
    #[inline(always)]
    pub(crate) fn settle(&mut self, conn: u32) {
        let id = self.cold[conn].hot;
        if id != NONE {
            self.settle_hot(conn, id);
        }
    }

    /// The same for one that has a hot block.
    #[inline(always)]
    pub(crate) fn settle_hot(&mut self, conn: u32, id: u32) {
        if self.hot[id].is_idle() {
            self.detach_hot(conn, id);
        }
    }

    #[inline(never)]
    fn detach_hot(&mut self, conn: u32, id: u32) {
        let cold = &self.cold[conn];
        // A state that waits for an answer keeps its timer, and so its block; a FIN that found no buffer too.
        if matches!(cold.state, State::SynSent | State::SynReceived) || cold.has(flag::FIN_QUEUED) {
            return;
        }
        if self.hot[id].has(hot_flag::URGENT) && self.awaits_urgent(conn, id) {
            return;
        }
        self.detach_recovery(id);
        self.forget_urgent(id);
        let (cold, hot) = (&mut self.cold[conn], &mut self.hot[id]);
        hot.conn = NONE;
        congestion::sleep(hot, cold);
        cold.mss = hot.mss_full;
        rto::keep_backoff(cold, hot.backoff);
        cold.set_reorders(hot.reordering_seen);
        cold.hot = NONE;
        debug_assert!(hot.holds_nothing());
        self.hot.free(id);
        if self.cold[conn].has(flag::ORPHAN) {
            self.settle_orphan(conn);
        }
    }

    /// An orphan with nothing outstanding is over, or waits for the peer's FIN in a compact record.
    fn settle_orphan(&mut self, conn: u32) {
        match self.cold[conn].state {
            State::Closed => self.release(conn),
            State::FinWait2 => self.enter_time_wait(conn, true),
            _ => {}
        }
    }

    /// Puts a hot block into the output queue.
    #[inline]
    pub(crate) fn queue_output(&mut self, hot: u32) {
        let block = &mut self.hot[hot];
        if !block.has(hot_flag::QUEUED) {
            block.set(hot_flag::QUEUED);
            self.output.push_back(hot);
        }
    }

    /// Files a flow under the hash of its key. False when the table is full.
    #[inline]
    pub(crate) fn file(&mut self, hash: u64, record: Record) -> bool {
        let (cold, half_open, time_wait) = (&self.cold, &self.half_open, &self.time_wait);
        let stubs = &self.stubs;
        let keyed = &self.hash;
        let rehash = |index: u32| match Record::decode(index) {
            Record::Connection(i) => keyed.flow(&cold.key(i)),
            Record::HalfOpen(i) => keyed.flow(&half_open.key(i)),
            Record::TimeWait(i) => keyed.flow(&time_wait.key(i)),
            Record::Stub(i) => keyed.flow(&stubs.key(i)),
        };
        let filed = self.table.insert(hash, record.encode(), rehash).is_ok();
        self.counters.dropped_table_full += u64::from(!filed);
        filed
    }

    /// The record of a flow.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey, hash: u64) -> Option<Record> {
        self.table
            .find(hash, |i| self.is_record_of(i, key))
            .map(Record::decode)
    }

    #[inline(always)]
    pub(crate) fn is_record_of(&self, index: u32, key: &FlowKey) -> bool {
        match Record::decode(index) {
            Record::Connection(i) => {
                self.cold.is_for(i, key) && self.cold[i].state != State::Closed
            }
            Record::HalfOpen(i) => self.half_open.is_for(i, key),
            Record::TimeWait(i) => self.time_wait.is_for(i, key),
            Record::Stub(i) => self.stubs.is_for(i, key),
        }
    }

    /// A frame that was handed out as lent has left the device and comes home.
    #[inline]
    pub fn completed(&mut self, frame: Frame) {
        let id = frame.key;
        if self.segments.knows(id) {
            self.segments.came_home(id, frame.buf, &mut self.pool);
        } else {
            self.pool.free(frame.buf);
        }
    }
}

/// Packet buffers that may wait beyond gaps: of all there are, a quarter at most.
fn reordered_max(config: &Config, pool: &Pool) -> u32 {
    let all = pool.depot().stats().capacity as u32;
    config.max_reordered.min(all / 4).max(1)
}
