//! A busy connection, borrowed once: what the rules of RFC 9293 and its relatives see, and all that they may change. A rule
//! cannot reach the flow table, a neighbor or another connection. What has to happen there comes back as [`Effects`], which
//! `stack.rs` carries out.

pub(crate) mod arrives;
pub(crate) mod ended;
pub(crate) mod loss;
pub(crate) mod output;
pub(crate) mod piece;
pub(crate) mod receive;
pub(crate) mod timer;

use janus_wire::StampBase;

use crate::rules::Rules;
use crate::store::arrivals::Arrivals;
use crate::store::cold::{EndReason, NONE, State, Tcb, flag};
use crate::store::env::Env;
use crate::store::flows::KeyRef;
use crate::store::hot::{Hot, Stalled, TimerKind, hot_flag};
use crate::store::keys::{ConnSlot, HotId};
use crate::store::outgoing::Outgoing;
use crate::store::{Blocks, Store, rto, window};
use crate::time::Instant;
use crate::wire::parse::Parsed;

/// A connection that has a hot block.
pub(crate) struct Conn<'a> {
    /// Number of the hot block.
    id: HotId,
    key: KeyRef<'a>,
    tcb: &'a mut Tcb,
    hot: &'a mut Hot,
    /// Blocks that `hot` names, and packet buffers.
    blocks: &'a mut Blocks,
    rules: &'a Rules,
    env: &'a mut Env,
    effects: Effects,
}

/// Result of a search for a connection.
pub(crate) enum Found<'a> {
    /// It has a hot block.
    Busy(Conn<'a>),
    AtRest,
    /// No connection, or another flow's.
    Other,
}

/// A busy connection, to look at only.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    id: HotId,
    tcb: &'a Tcb,
    hot: &'a Hot,
    blocks: &'a Blocks,
    rules: &'a Rules,
}

/// Actions that a rule wants and cannot do itself.
#[derive(Clone, Copy, Default)]
pub(crate) struct Effects {
    bits: u16,
    over: Over,
    /// The record's word of the reader to be woken by [`effect::WAKE_READER`].
    reader: u32,
}

/// Bits of [`Effects`].
pub(crate) mod effect {
    /// The hot block joins the output queue; its flag is set.
    pub(crate) const QUEUE: u16 = 1 << 0;
    pub(crate) const WAKE_READER: u16 = 1 << 1;
    /// The earliest deadline comes before the timer.
    pub(crate) const ARM: u16 = 1 << 2;
    /// Nothing is outstanding: the hot block may go.
    pub(crate) const IDLE: u16 = 1 << 3;
    pub(crate) const WAKE_WRITER: u16 = 1 << 4;
    /// The hot block joins the queue of those that wait for a packet buffer; its flag is set.
    pub(crate) const STARVED: u16 = 1 << 5;
    /// `Env::answers` has segments to send.
    pub(crate) const ANSWER: u16 = 1 << 6;
    /// Memory has become short: what waits beyond gaps elsewhere makes room.
    pub(crate) const RELIEVE: u16 = 1 << 7;
    /// Another connection has lost what it held beyond its gaps.
    pub(crate) const PRUNED: u16 = 1 << 8;
    /// The way to the next hop may be dead.
    pub(crate) const DOUBT_HOP: u16 = 1 << 9;
    /// The connection is over.
    pub(crate) const OVER: u16 = 1 << 10;
    /// All but the frequent ones.
    pub(crate) const RARE: u16 = !(QUEUE | WAKE_READER | ARM | IDLE);
}

/// Whether, and how, a connection is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Over {
    #[default]
    No,
    /// Ended.
    Ended(EndReason),
    /// The flow goes on in a compact record.
    Lingers(Linger),
}

/// The state that a compact record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linger {
    TimeWait,
    /// Without an owner, in FIN-WAIT-2.
    FinWait2,
}

impl Effects {
    #[inline(always)]
    pub(crate) fn over(self) -> Over {
        self.over
    }

    #[inline(always)]
    pub(crate) fn reader(self) -> u32 {
        self.reader
    }

    /// Why the connection has ended, if that is all that is rare.
    #[inline(always)]
    pub(crate) fn only_end(self) -> Option<EndReason> {
        match self.over {
            Over::Ended(why) if self.bits & effect::RARE == effect::OVER => Some(why),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn has(self, bits: u16) -> bool {
        self.bits & bits != 0
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, bits: u16) {
        self.bits |= bits;
    }

    #[inline(always)]
    pub(crate) fn none(self) -> bool {
        self.bits == 0
    }
}

impl<'a> View<'a> {
    /// Looks at a connection that has a hot block.
    #[inline]
    pub(crate) fn of(store: &'a Store, conn: ConnSlot, rules: &'a Rules) -> Option<View<'a>> {
        let tcb = &store.tcbs[conn];
        tcb.hot().map(|id| View {
            id,
            tcb,
            hot: &store.hot[id],
            blocks: &store.blocks,
            rules,
        })
    }
}

impl<'a> Conn<'a> {
    /// Borrows a connection that has a hot block.
    #[inline(always)]
    pub(crate) fn of(
        store: &'a mut Store,
        conn: ConnSlot,
        rules: &'a Rules,
        env: &'a mut Env,
    ) -> Option<Conn<'a>> {
        match Conn::found(store, conn, |_| true, rules, env) {
            Found::Busy(lent) => Some(lent),
            _ => None,
        }
    }

    /// Borrows the connection that a hot block serves.
    #[inline(always)]
    pub(crate) fn of_block(
        store: &'a mut Store,
        id: HotId,
        rules: &'a Rules,
        env: &'a mut Env,
    ) -> Option<(ConnSlot, Conn<'a>)> {
        let hot = &mut store.hot[id];
        let conn = hot.conn?;
        let record = store.tcbs.with_key(conn)?;
        let lent = Conn::lent(record, (id, hot), &mut store.blocks, rules, env);
        Some((conn, lent))
    }

    /// Borrows a connection that has a hot block, if its flow is `wanted`.
    #[inline(always)]
    pub(crate) fn found(
        store: &'a mut Store,
        conn: ConnSlot,
        wanted: impl FnOnce(KeyRef<'a>) -> bool,
        rules: &'a Rules,
        env: &'a mut Env,
    ) -> Found<'a> {
        let Some((key, tcb)) = store.tcbs.with_key(conn) else {
            return Found::Other;
        };
        if !wanted(key) {
            return Found::Other;
        }
        let Some(id) = tcb.hot() else {
            return Found::AtRest;
        };
        let block = (id, &mut store.hot[id]);
        let blocks = &mut store.blocks;
        Found::Busy(Conn::lent((key, tcb), block, blocks, rules, env))
    }

    /// Gives a hot block to a connection that has none, and borrows it. `None`: there is no block left.
    #[inline(always)]
    pub(crate) fn attach(
        store: &'a mut Store,
        conn: ConnSlot,
        rules: &'a Rules,
        env: &'a mut Env,
    ) -> Option<Conn<'a>> {
        let (key, tcb) = store.tcbs.with_key(conn)?;
        let block = store.hot.alloc_slot()?;
        let stamps = tcb.attach(block.0);
        let mut lent = Conn::lent((key, tcb), block, &mut store.blocks, rules, env);
        lent.wake_up(conn, stamps);
        Some(lent)
    }

    /// Puts together what is borrowed.
    #[inline(always)]
    fn lent(
        (key, tcb): (KeyRef<'a>, &'a mut Tcb),
        (id, hot): (HotId, &'a mut Hot),
        blocks: &'a mut Blocks,
        rules: &'a Rules,
        env: &'a mut Env,
    ) -> Conn<'a> {
        Conn {
            id,
            key,
            tcb,
            hot,
            blocks,
            rules,
            env,
            effects: Effects::default(),
        }
    }
}

impl<'a> Conn<'a> {
    /// The flow, and the set of socket options that its packets go by.
    #[inline(always)]
    pub(crate) fn flow(&self) -> (KeyRef<'a>, u8) {
        (self.key, self.tcb.profile)
    }
}

impl Conn<'_> {
    /// The timestamp of what is sent now.
    #[inline(always)]
    pub(crate) fn timestamp(&self) -> u32 {
        let base = self.hot.timers.stamps;
        self.rules.timestamp(base, self.env.now_ms)
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View {
            id: self.id,
            tcb: self.tcb,
            hot: self.hot,
            blocks: self.blocks,
            rules: self.rules,
        }
    }

    /// The flow label, which IPv6 has.
    #[inline(always)]
    pub(crate) fn flow_label(&self) -> u32 {
        self.hot.timers.stamps.flow_label()
    }

    /// Whether the application has the connection, under a name of this generation.
    #[inline(always)]
    pub(crate) fn is_owned(&self, generation: u32) -> bool {
        self.tcb.is_owned(generation)
    }

    /// Ends the loan: asks what is to be done for the connection as it stands now. Returns the hot block's number too.
    #[inline(always)]
    pub(crate) fn finish(mut self) -> (HotId, Effects) {
        if self.hot.timers.come_before_timer() {
            self.effects.add(effect::ARM);
        }
        if self.hot.is_idle() {
            self.effects.add(effect::IDLE);
        }
        (self.id, self.effects)
    }

    /// The connection joins the output queue: it has something to send, or may have.
    #[inline]
    pub(crate) fn queue(&mut self) {
        if !self.hot.has(hot_flag::QUEUED) {
            self.hot.set(hot_flag::QUEUED);
            self.effects.add(effect::QUEUE);
        }
    }

    /// The connection has been taken out of the output queue.
    #[inline(always)]
    pub(crate) fn leave_queue(&mut self) {
        self.hot.clear(hot_flag::QUEUED);
    }

    /// An ACK is sent at the end of the turn.
    pub(crate) fn acknowledge(&mut self) {
        self.hot.set(hot_flag::ACK_NOW);
        self.queue();
    }

    /// Wakes the task that waits to read, if there is one.
    #[inline(always)]
    pub(crate) fn wake_reader(&mut self) {
        let reader = core::mem::replace(&mut self.tcb.reader, NONE);
        if reader != NONE {
            self.effects.reader = reader;
            self.effects.add(effect::WAKE_READER);
        }
    }

    pub(crate) fn wake_writer(&mut self) {
        if self.hot.sender.writer != NONE {
            self.effects.add(effect::WAKE_WRITER);
        }
    }

    /// A segment without payload is sent, before all that waits in the output queue.
    pub(crate) fn answer(&mut self, segment: Outgoing) {
        self.env.answers.push(segment);
        self.effects.add(effect::ANSWER);
    }

    /// The connection is over.
    pub(crate) fn end(&mut self, why: EndReason) {
        self.effects.over = Over::Ended(why);
        self.effects.add(effect::OVER);
    }

    /// The connection goes on in a compact record.
    pub(crate) fn linger(&mut self, how: Linger) {
        self.effects.over = Over::Lingers(how);
        self.effects.add(effect::OVER);
    }

    /// Ends the connection with a reset for the peer. Its owner has let go of it.
    pub(crate) fn abort(&mut self) {
        self.reset_peer();
        self.tcb.reader = NONE;
        self.hot.sender.writer = NONE;
        self.end(EndReason::Orderly);
    }

    /// Whether the connection is over, or was before.
    pub(crate) fn is_over(&self) -> bool {
        self.effects.has(effect::OVER) || self.tcb.state == State::Closed
    }

    /// Answers a segment that belongs to nothing any more.
    pub(crate) fn reset_reply(&mut self, p: &Parsed) {
        if let Some(reset) = Outgoing::reset_for(p) {
            self.answer(reset);
        }
    }

    /// Tells the peer that the connection is over, if it knows of it.
    pub(crate) fn reset_peer(&mut self) {
        if let Some(reset) = Outgoing::reset_of(self.key.get(), self.tcb, || self.timestamp()) {
            self.answer(reset);
        }
    }

    /// Fills the hot block that the connection has just got with what the record remembers; its timestamps are counted from `stamps`.
    #[inline(always)]
    fn wake_up(&mut self, conn: ConnSlot, stamps: StampBase) {
        let (tcb, hot) = (&*self.tcb, &mut *self.hot);
        hot.conn = Some(conn);
        hot.sender.snd_una = tcb.snd_nxt;
        hot.loss.recover = tcb.snd_nxt;
        hot.sender.small_end = tcb.snd_nxt;
        // Of what a window was before it is remembered whether it was two segments; one that is shut is taken for such.
        hot.sender.max_snd_wnd = tcb.snd_wnd();
        if tcb.was_wide() || hot.sender.max_snd_wnd == 0 {
            hot.sender.max_snd_wnd = hot.sender.max_snd_wnd.max(2 * u32::from(tcb.mss));
        }
        hot.sender.pipe = 0;
        (hot.timers.due_at, hot.timers.rto_at) = (Instant::NEVER, Instant::NEVER);
        // The remembered round trip is the best guess at the smallest, and too large at worst.
        (hot.loss.min_rtt_us, hot.loss.min_rtt_ms) = (tcb.srtt_us(), self.env.now_ms);
        hot.timers.timer_kind = TimerKind::Rto;
        hot.timers.backoff = rto::kept_backoff(tcb);
        hot.reordering_seen = tcb.reorders();
        hot.timers.retries = 0;
        hot.dup_acks = 0;
        hot.timers.probes = 0;
        hot.receiver.unacked_bytes = 0;
        hot.receiver.arrivals = Arrivals::of(tcb);
        hot.timers.stalled = Stalled::default();
        hot.timers.orphaned_ms = 0;
        hot.timers.stamps = stamps;
        hot.timers.rtt_round = tcb.snd_nxt;
        hot.timers.rtt_off_max = 0;
        hot.path.soft_error = EndReason::Orderly;
        hot.forget_probe();
        hot.sender.mss_full = tcb.mss;
        if !self.env.paths.sizes.is_empty() {
            self.fit_to_path();
        }
        self.begin_congestion_control();
        if self.rules.config().count_as_linux {
            self.new_account();
        }
    }

    /// Congestion control begins, or begins anew, with what the record remembers.
    #[inline(always)]
    pub(crate) fn begin_congestion_control(&mut self) {
        let config = self.rules.config();
        let algorithm = self.rules.profiles().congestion(self.tcb.profile, config);
        window::wake(self.hot, self.tcb, config, algorithm, self.env.now_ms);
    }

    /// Whether an idle block must stay: the state waits for an answer and needs the timer, a FIN found no buffer, or the
    /// urgent mark is still to come.
    pub(crate) fn needs_block(&self) -> bool {
        let opening = self.tcb.state.is_opening();
        opening
            || self.tcb.has(flag::FIN_QUEUED)
            || self.hot.has(hot_flag::URGENT) && self.awaits_urgent()
    }

    /// Stores in the record what outlives the hot block, which is about to go.
    pub(crate) fn fall_asleep(&mut self) {
        self.detach_recovery();
        self.forget_urgent();
        let (tcb, hot) = (&mut *self.tcb, &mut *self.hot);
        hot.conn = None;
        window::sleep(hot, tcb);
        tcb.mss = hot.sender.mss_full;
        rto::keep_backoff(tcb, hot.timers.backoff);
        tcb.set_reorders(hot.reordering_seen);
        tcb.detach(hot.timers.stamps);
        debug_assert!(self.hot.holds_nothing());
    }

    /// The connection is over and has no owner: nothing of the hot block is kept, and the record does not name it any more. Returns
    /// the block, which may go; `None` while a queue names it, and it goes when its turn has come.
    pub(crate) fn part(&mut self) -> Option<HotId> {
        if self.hot.has(hot_flag::QUEUED | hot_flag::STARVED) {
            self.drop_queues(true);
            return None;
        }
        Some(self.part_from_block())
    }

    /// Like [`Conn::part`], of a connection that no queue names.
    #[inline(always)]
    pub(crate) fn part_from_block(&mut self) -> HotId {
        self.drop_queues(true);
        self.forget_urgent();
        self.hot.conn = None;
        self.tcb.detach(self.hot.timers.stamps);
        debug_assert!(self.hot.holds_nothing());
        self.id
    }

    /// Drops all that is queued, in flight or out of order. What was received stays readable unless `unread_too`.
    #[inline(always)]
    pub(crate) fn drop_queues(&mut self, unread_too: bool) {
        self.detach_recovery();
        let (segments, pool) = (&mut self.blocks.segments, &mut self.blocks.pool);
        segments.clear(&mut self.hot.sender.flight, pool);
        segments.clear(&mut self.hot.sender.unsent, pool);
        if unread_too {
            segments.clear(&mut self.hot.receiver.inbox, pool);
        }
        self.forget_reordered();
        self.end_tuning();
        let hot = &mut *self.hot;
        hot.sender.pipe = 0;
        (hot.timers.due_at, hot.timers.rto_at) = (Instant::NEVER, Instant::NEVER);
        hot.timers.ack_at = Instant::NEVER;
        hot.forget_probe();
        // The places in the queues are kept: they still name this block.
        hot.flags &= hot_flag::QUEUED | hot_flag::STARVED | hot_flag::URGENT;
    }
}

/// Whether a connection has said all it can say now.
#[derive(PartialEq, Eq)]
pub(crate) enum Flushed {
    All,
    /// `out` is full; the rest next time.
    Part,
}
