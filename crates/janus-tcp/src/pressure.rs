//! Memory running short, for all connections together: by the packet buffers of the depot that are in use (not those that
//! devices have to receive into), and by the segments of this stack. Under pressure nothing grows and what waits beyond gaps is given up; when it is critical the
//! rest of the buffers is for what ends the shortage: the device's receiving, acknowledgements, and one segment for each
//! connection that has nothing else and whose peer will take it, as long as a last few are left; so those who do not read
//! cannot fill that too. A window is never taken back: it is only not offered again until there is room.

use crate::cold::{NONE, State, flag};
use crate::config::Config;
use crate::conn::{Conn, View, effect};
use crate::counters::Counters;
use crate::hot::hot_flag;
use crate::reorder::Memory;
use crate::stack::Stack;
use crate::store::Blocks;
use crate::time::Instant;
use crate::timers::MAX_PER_CALL;
use core::time::Duration;

/// Of 32 buffers so many are in use.
const HIGH: usize = 24;
const CRITICAL: usize = 30;
/// The last of 32 is never for data that is to be kept.
const LAST: usize = 31;
/// A connection may have as many buffers to send from as are free before it is high. The more are in use, the less that is,
/// so that those who fill theirs leave room for those who come; one alone gets half of them. It is never less than this: two
/// segments are acknowledged at once.
const SHARE_LEAST: u32 = 2;
/// Connections that lose what waits beyond their gaps in one go.
const PRUNED_AT_ONCE: usize = 8;
/// Segments that a connection may still be offered when it is critical, as in Linux: so it goes on, slowly.
const CRITICAL_SEGMENTS: u32 = 4;
/// How long those who found no packet buffer wait before they try again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(1);
const RETRY_MOST: Duration = Duration::from_millis(128);
/// From this wait on memory is taken from others ([`crate::shed`]).
const RETRY_TIRED: Duration = Duration::from_millis(8);
/// Buffers taken from the pool until the next look at the depot.
const LOOK_EVERY: usize = 16;

/// How short packet buffers and segments are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There are enough.
    #[default]
    None,
    /// Three quarters are in use: nothing grows, and what came out of order makes room.
    High,
    /// Nearly all are in use: only what frees memory goes on.
    Critical,
}

/// The level of [`Pressure`], and what follows from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shortage {
    pub(crate) level: Pressure,
    /// No buffer is left that data may keep.
    pub(crate) exhausted: bool,
    /// Buffers that one connection may have to send from, now.
    pub(crate) share: u32,
}

impl Default for Shortage {
    fn default() -> Shortage {
        Shortage {
            level: Pressure::None,
            exhausted: false,
            share: u32::MAX,
        }
    }
}

/// When those who found no packet buffer try again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    at: Instant,
    wait: Duration,
}

impl Retry {
    /// The first of them waits from now on; or comes back, and waits as long as was said.
    pub(crate) fn first(&mut self, now: Instant) {
        if self.at <= now {
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Instant) {
        self.wait = RETRY_FIRST;
        self.at = now + self.wait;
    }

    /// There was still none: twice as long.
    fn again(&mut self, now: Instant) {
        self.wait = (self.wait * 2).min(RETRY_MOST);
        self.at = now + self.wait;
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Whether they have tried a few times.
    fn is_tired(&self) -> bool {
        self.wait >= RETRY_TIRED
    }
}

impl Blocks {
    /// Looks at what is in use. Once for each batch: the depot is shared with other threads.
    #[inline]
    pub(crate) fn weigh(&mut self, config: &Config, counters: &mut Counters) -> Pressure {
        let (buffers, all) = self.pool.depot().fill(self.pool.cached());
        let segments = self.segments.len() * 32 / config.max_segments.max(1) as usize;
        let used = (buffers * 32 / all).max(segments);
        let spare = (all * HIGH / 32).saturating_sub(buffers);
        let level = match used {
            CRITICAL.. => Pressure::Critical,
            HIGH.. => Pressure::High,
            _ => Pressure::None,
        };
        counters.pressure_rises += u64::from(level > self.shortage.level);
        self.shortage = Shortage {
            level,
            exhausted: used >= LAST,
            share: (spare as u32).max(SHARE_LEAST),
        };
        level
    }

    /// The connection that has waited longest for a gap to be filled loses what lies beyond it. Returns how many buffers that
    /// were.
    pub(crate) fn prune_oldest(&mut self) -> u32 {
        let mut memory = Memory {
            segments: &mut self.segments,
            pool: &mut self.pool,
        };
        self.reorders.prune_oldest(&mut memory)
    }
}

impl View<'_> {
    /// The receive buffer that `buffer` is while memory is short.
    #[inline]
    pub(crate) fn pressed(&self, buffer: u32, mss: u16) -> u32 {
        match self.blocks.shortage.level {
            Pressure::None => buffer,
            Pressure::High => buffer.min(self.rules.config.receive_buffer),
            Pressure::Critical => buffer.min(CRITICAL_SEGMENTS * u32::from(mss)),
        }
    }

    /// Whether the connection has as many buffers to send from as it may have now.
    #[inline]
    pub(crate) fn has_its_share(&self) -> bool {
        let hot = self.hot;
        hot.sender.unsent.count + hot.sender.flight.count >= self.blocks.shortage.share
    }

    /// How much of `len` bytes would leave at once and so give its buffer back soon. What is cut off by a window that is too
    /// small for a segment (section 3.8.6.2.1 of RFC 9293) would keep one for as long as the peer likes.
    #[cold]
    fn leaves_at_once(&self, len: usize) -> Option<usize> {
        let hot = self.hot;
        if !hot.sender.unsent.is_empty() || !hot.sender.flight.is_empty() {
            return None;
        }
        let window = self.tcb.snd_wnd();
        let fits = (window as usize).min(len);
        (fits > 0 && (fits == len || window >= hot.sender.max_snd_wnd / 2)).then_some(fits)
    }

    /// Whether a writer is to be told of room while it is critical: a full segment could leave.
    #[cold]
    pub(crate) fn takes_a_segment(&self) -> bool {
        let mss = self.tcb.payload_mss();
        self.leaves_at_once(usize::from(mss)).is_some()
    }
}

impl Conn<'_> {
    /// Looks at what is in use.
    #[inline]
    fn weigh(&mut self) {
        if self.blocks.weigh(&self.rules.config, self.counters) != Pressure::None {
            self.effects.add(effect::RELIEVE);
        }
    }

    /// How much of `len` bytes to send may have one more packet buffer: no more than the connection's share; when it is
    /// critical, only of one that has nothing out, and no more than its peer will take at once.
    #[inline]
    pub(crate) fn may_take_buffer(&mut self, len: usize) -> Option<usize> {
        // A stock that is smaller than that is empty from time to time.
        if self.blocks.pool.cached().is_multiple_of(LOOK_EVERY) || !self.blocks.pool.has_spare() {
            self.weigh();
        }
        if self.blocks.shortage.level != Pressure::Critical {
            return (!self.view().has_its_share()).then_some(len);
        }
        (!self.blocks.shortage.exhausted)
            .then(|| self.view().leaves_at_once(len))
            .flatten()
    }

    /// The first of `bytes` that the window has room for beside what is queued: if more joined a segment that was to leave at
    /// once, it would not.
    #[cold]
    pub(crate) fn what_leaves_too<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let hot = &*self.hot;
        let window = hot.usable_window(self.tcb);
        let room = window.saturating_sub(hot.sender.unsent.bytes) as usize;
        &bytes[..room.min(bytes.len())]
    }

    /// Defers a write of `len` bytes that found no packet buffer. One that could send waits for memory. One that has its
    /// share, and any other when it is critical, waits for its peer and holds up no other: for the acknowledgement of
    /// what it has out, or for the window, which is probed as if something waited for it.
    #[cold]
    pub(crate) fn put_off(&mut self, len: usize) {
        let len = len.min(self.tcb.payload_mss().into());
        let waits_for_memory = match self.blocks.shortage.level {
            Pressure::Critical => self.view().leaves_at_once(len).is_some(),
            _ => !self.view().has_its_share(),
        };
        if waits_for_memory {
            return self.starve();
        }
        self.counters.starved += 1;
        self.await_window();
    }

    /// The peer has said something to a connection whose writer waits. With nothing out and nothing queued it was put off, and
    /// nothing goes on by itself: it may be told now, also when it is not critical any more, or goes on asking.
    #[cold]
    pub(crate) fn heard_with_writer(&mut self) {
        let hot = &*self.hot;
        if !hot.sender.unsent.is_empty() || !hot.sender.flight.is_empty() {
            return;
        }
        self.offer_room();
        if self.hot.sender.writer != NONE {
            self.await_window();
        }
    }

    /// Data in flight brings an answer, queued data has timers; with neither, the persist timer runs for the writer, if its
    /// connection is one that can be written to.
    #[cold]
    pub(crate) fn await_window(&mut self) {
        let hot = &*self.hot;
        let cold = &*self.tcb;
        let writes = matches!(cold.state, State::Established | State::CloseWait)
            && !cold.has(flag::FIN_QUEUED);
        if writes && hot.sender.unsent.is_empty() {
            self.persist();
        }
    }

    /// The persist timer of a connection that has nothing queued. False: its writer has gone, or is told to try again, as
    /// there is memory, or the window is wide enough.
    pub(crate) fn still_put_off(&mut self) -> bool {
        if self.hot.sender.writer == NONE {
            return false;
        }
        self.weigh();
        let waits =
            self.blocks.shortage.level == Pressure::Critical && !self.view().takes_a_segment();
        if !waits {
            self.wake_writer();
        }
        waits
    }

    /// Whether a received segment may keep its packet buffer until it is read. Somebody who waits for it will read it at
    /// once: that much is there to the last.
    #[inline]
    pub(crate) fn may_keep_buffer(&mut self) -> bool {
        if self.blocks.shortage.level != Pressure::Critical {
            return true;
        }
        let hot = &*self.hot;
        let awaited = self.tcb.reader != NONE;
        hot.receiver.inbox.is_empty() && (awaited || !self.blocks.shortage.exhausted)
    }
}

impl Stack {
    /// How short memory is.
    pub fn pressure(&self) -> Pressure {
        self.store.blocks.shortage.level
    }

    /// Looks at what is in use, and makes room if that is much.
    #[inline]
    pub(crate) fn weigh(&mut self) {
        if self
            .store
            .blocks
            .weigh(&self.rules.config, &mut self.counters)
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
            self.counters.reordered_pruned += u64::from(blocks.prune_oldest());
        }
        self.settle_pruned();
    }

    /// Those who found no packet buffer try again, when it is time or one of our own has come back.
    pub(crate) fn feed_starved(&mut self) {
        // Buffers in this thread's stock are for all only while memory is not critical.
        let spare = self.store.blocks.shortage.level != Pressure::Critical
            && self.store.blocks.pool.has_spare();
        if self.schedule.starved.is_empty() || self.now < self.schedule.retry.at && !spare {
            return;
        }
        self.weigh();
        let Some(buf) = (!self.store.blocks.shortage.exhausted)
            .then(|| self.store.blocks.pool.alloc())
            .flatten()
        else {
            // A FIN takes one from the reserve, and may.
            self.forget_contented();
            match self.schedule.retry.is_tired() && self.shed() {
                true => self.schedule.retry.begin(self.now),
                false => self.schedule.retry.again(self.now),
            }
            return;
        };
        self.store.blocks.pool.free(buf);
        match self.store.blocks.shortage.level {
            // Some of them may go on; who may not comes back, and is asked less and less often.
            Pressure::Critical => self.schedule.retry.again(self.now),
            _ => self.schedule.retry.begin(self.now),
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
            if conn != NONE && self.store.hot[hot].wants_memory(&self.store.tcbs[conn]) {
                self.schedule.starved.push_back(hot);
                continue;
            }
            self.store.hot[hot].clear(hot_flag::STARVED);
            if conn != NONE {
                self.settle(conn);
            }
        }
    }

    fn wake_starved(&mut self) {
        for _ in 0..self.schedule.starved.len().min(MAX_PER_CALL) {
            let Some(hot) = self.schedule.starved.pop_front() else {
                return;
            };
            self.store.hot[hot].clear(hot_flag::STARVED);
            let conn = self.store.hot[hot].conn;
            if conn != NONE {
                self.with(conn, |c| {
                    c.wake_writer();
                    c.queue();
                });
            }
        }
    }
}
