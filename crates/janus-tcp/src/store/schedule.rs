//! Work that waits for its turn: deadlines, connections with something to send, frames that only have to be handed out, tasks
//! to wake. Nothing here knows why.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use janus_mem::{Frame, Growth, MemError};

use crate::store::cold::NONE;
use crate::store::crowd::Crowds;
use crate::store::hot::{Hot, TimerKind};
use crate::store::keys::{ConnId, ConnSlot, HotId, Key};
use crate::store::queue::Queue;
use crate::store::rest::{Rest, Rests};
use crate::store::wheel::{TimerId, Wheel};
use crate::time::Instant;

/// Replies (resets, SYN-ACKs, challenge ACKs, ARP, pings) waiting to be handed out; beyond it they are
/// dropped and counted, which the peers' repeats make good.
pub(crate) const MAX_REPLIES: usize = 4_096;

/// The schedule of a stack.
pub(crate) struct Schedule {
    pub(crate) wheel: Wheel,
    pub(crate) crowds: Crowds,
    /// Hot blocks with something to send.
    pub(crate) output: Queue<Option<HotId>>,
    pub(crate) replies: Vec<Frame>,
    pub(crate) ready: Queue<Token>,
    pub(crate) rests: Rests,
    /// Hot blocks whose timers fired, being served.
    pub(crate) fired: Vec<HotId>,
    /// Hot blocks of connections that could not write or send FIN for want of a packet buffer, each once.
    pub(crate) starved: VecDeque<HotId>,
    pub(crate) retry: Retry,
    pub(crate) sweep: Sweep,
    pub(crate) shedding: Shedding,
}

impl Schedule {
    /// A schedule with a timer for each of `max_hot` hot blocks.
    pub(crate) fn new(max_hot: u32, growth: &Growth) -> Result<Schedule, MemError> {
        Ok(Schedule {
            wheel: Wheel::new(max_hot, growth)?,
            crowds: Crowds::default(),
            output: Queue::new(1_024, None),
            replies: Vec::with_capacity(MAX_REPLIES),
            ready: Queue::new(1_024, Token(NONE)),
            rests: Rests::default(),
            fired: Vec::with_capacity(256),
            starved: VecDeque::new(),
            retry: Retry::default(),
            sweep: Sweep::default(),
            shedding: Shedding::default(),
        })
    }
}

/// When those who found no packet buffer try again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    pub(crate) at: Instant,
    wait: Duration,
}

impl Retry {
    /// The first of them waits from now on; or comes back, and waits as long as was said.
    pub(crate) fn first(&mut self, now: Instant) {
        if self.at <= now {
            self.begin(now);
        }
    }

    pub(crate) fn begin(&mut self, now: Instant) {
        self.wait = RETRY_FIRST;
        self.at = now + self.wait;
    }

    /// There was still none: twice as long.
    pub(crate) fn again(&mut self, now: Instant) {
        self.wait = (self.wait * 2).min(RETRY_MOST);
        self.at = now + self.wait;
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Whether they have tried a few times.
    pub(crate) fn is_tired(&self) -> bool {
        self.wait >= RETRY_TIRED
    }
}

/// How long those who found no packet buffer wait before they try again, at first and at most.
const RETRY_FIRST: Duration = Duration::from_millis(1);

const RETRY_MOST: Duration = Duration::from_millis(128);

/// From this wait on memory is taken from others.
const RETRY_TIRED: Duration = Duration::from_millis(8);

/// Where the sweep stands.
#[derive(Default)]
pub(crate) struct Sweep {
    /// When the next slice is looked at.
    pub(crate) at: Instant,
    /// The slice: the family's number, and the slice's in it.
    pub(crate) next: (usize, u32),
    /// Place in that slice where the sweep goes on, if it is in the midst of it.
    pub(crate) left: Option<u32>,
    /// Last look at that slice before this one; see `looked_ms`.
    pub(crate) looked: Option<u32>,
    /// When this pass began.
    pub(crate) begun: Instant,
    /// When the next pass should begin, by what this one has seen so far.
    pub(crate) earliest: Option<Instant>,
    /// Milliseconds, wrapping, of the last look at each slice.
    pub(crate) looked_ms: [Vec<Option<u32>>; 2],
    /// Connections that have come from other stacks and were not looked at here yet: their generations, and when they were elsewhere.
    pub(crate) newcomers: BTreeMap<ConnSlot, (u32, Option<u32>)>,
}

/// Where the next look begins.
#[derive(Default)]
pub(crate) struct Shedding {
    pub(crate) next: u32,
}

/// Name of a task to be woken. Its meaning is its owner's; the stack only gives it back. Where it waits to read, it is a number below
/// 2^30, or one from 2^31 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u32);

/// Timers of hot blocks served in one call; each may send, or end, a connection.
pub(crate) const MAX_FIRED: usize = 256;

impl Schedule {
    /// Wakes the task whose token is in `slot`, if there is one.
    #[inline]
    pub(crate) fn wake(&mut self, slot: &mut u32) {
        if *slot != NONE {
            self.ready.push_back(Token(core::mem::replace(slot, NONE)));
        }
    }

    /// Wakes whoever waits for what comes to a connection, by the word of its record: a reader, or a handler.
    #[inline(always)]
    pub(crate) fn wake_reader(&mut self, word: u32, conn: impl FnOnce() -> ConnId) {
        match Rest::of_word(word) {
            None => self.ready.push_back(Token(word)),
            Some(rest) => self.rests.rouse(conn(), rest),
        }
    }

    /// Puts the block's wheel entry at its earliest deadline.
    #[inline(never)]
    pub(crate) fn arm(&mut self, id: HotId, hot: &mut Hot, now: Instant) {
        if let Some(late) = hot.timers.timer.take() {
            self.wheel.cancel_at(late, id.index());
        }
        let mut deadline = hot.timers.soonest();
        if hot.timers.due_at == deadline
            && matches!(hot.timers.timer_kind, TimerKind::Rto | TimerKind::Persist)
        {
            hot.timers.due_at = deadline + self.crowds.delay(deadline, now);
            deadline = hot.timers.soonest();
        }
        // The wheel has room for one entry per block.
        let timer = self.wheel.insert(deadline, id.index());
        hot.timers.timer = timer.map(TimerId::place);
        hot.timers.timer_at = match timer {
            Some(_) => deadline,
            None => Instant::NEVER,
        };
    }

    /// The block joins the queue of those that wait for a packet buffer.
    pub(crate) fn wait_for_buffer(&mut self, id: HotId, now: Instant) {
        if self.starved.is_empty() {
            self.retry.first(now);
        }
        self.starved.push_back(id);
    }
}
