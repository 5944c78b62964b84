//! Connections at rest: no task waits for them. The word of the record that else names a reader says which handler begins when something
//! comes, and carries a few bits of the program's own.
//!
//! ```text
//!  31 30 29      24  23   22      16 15            0
//! ┌──┬──┬──────────┬─────┬──────────┬───────────────┐
//! │ 0│ 1│ handler 6│fresh│ since   7│    carried  16│
//! └──┴──┴──────────┴─────┴──────────┴───────────────┘
//! ```
//!
//! `since` is when the rest began, counted in parts of the handler's limit on it, a sixteenth at most: with a peer that sends what is no
//! data now and then, a connection does not rest longer than with one that is silent, which the record's own stamp tells to the
//! millisecond.

use core::time::Duration;

use crate::store::keys::ConnId;
use crate::store::queue::Queue;

/// Handlers that a stack can tell apart.
pub const REST_HANDLERS: usize = 1 << HANDLER_BITS;

const HANDLER_BITS: u32 = 6;
const _: () = assert!(REST_HANDLERS <= u64::BITS as usize);
const HANDLER_SHIFT: u32 = 24;
/// The bits that tell such a word from tokens, of which it is set in none.
const KIND: u32 = 0b11 << 30;
const RESTS: u32 = 0b01 << 30;
const FRESH: u32 = 1 << 23;
const SINCE_SHIFT: u32 = 16;
/// Values of `since`, after which it begins anew: four to eight times the limit.
const TIMES: u32 = 1 << 7;
/// Parts of a limit, at least.
const PARTS: u32 = 16;
/// The longest limit: twelve days. Its parts are small enough for the clock to wrap between two.
const LIMIT_MAX: u128 = 1 << 30;

/// The content of the word: a handler's number, and what the program wants to find again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest(u32);

impl Rest {
    /// A new connection's rest at a handler with a number below [`REST_HANDLERS`]. It is fresh until something comes.
    pub fn new(handler: u8) -> Rest {
        assert!(
            usize::from(handler) < REST_HANDLERS,
            "handlers are numbered"
        );
        Rest(RESTS | u32::from(handler) << HANDLER_SHIFT | FRESH)
    }

    /// The handler's number.
    #[inline]
    pub fn handler(self) -> u8 {
        (self.0 >> HANDLER_SHIFT) as u8 & (REST_HANDLERS - 1) as u8
    }

    /// Bits of the program's own; zero of a fresh one.
    #[inline]
    pub fn carried(self) -> u16 {
        self.0 as u16
    }

    /// A rest at this handler with other bits, and fresh no more.
    #[inline]
    pub fn carrying(self, bits: u16) -> Rest {
        Rest(self.0 & !FRESH & !u32::from(u16::MAX) | u32::from(bits))
    }

    /// This rest at a handler that has another number, in another stack.
    #[must_use]
    pub fn at(self, handler: u8) -> Rest {
        let Rest(new) = Rest::new(handler);
        let handlers = (REST_HANDLERS as u32 - 1) << HANDLER_SHIFT;
        Rest(self.0 & !handlers | new & handlers)
    }

    /// Whether nothing has come since the connection was new.
    #[inline]
    pub fn is_fresh(self) -> bool {
        self.0 & FRESH != 0
    }

    /// The rest that the word of a record stands for, if it is no reader's.
    #[inline(always)]
    pub(crate) fn of_word(word: u32) -> Option<Rest> {
        (word & KIND == RESTS).then_some(Rest(word))
    }

    #[inline(always)]
    pub(crate) fn word(self) -> u32 {
        self.0
    }

    fn since(self) -> u32 {
        self.0 >> SINCE_SHIFT & (TIMES - 1)
    }

    fn begun(self, since: u32) -> Rest {
        let rest = self.0 & !((TIMES - 1) << SINCE_SHIFT);
        Rest(rest | (since & (TIMES - 1)) << SINCE_SHIFT)
    }
}

/// How long a connection may rest; then it is closed in order. `None`: as long as its peer is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestLimits {
    /// Of a fresh connection.
    pub first: Option<Duration>,
    /// Of one to which something has come.
    pub further: Option<Duration>,
}

/// A limit in milliseconds, 0 for none, and the power of two that a part of it is.
#[derive(Clone, Copy, Default)]
struct Limit {
    ms: u32,
    part: u8,
}

impl Limit {
    fn new(time: Option<Duration>) -> Limit {
        let ms = time.map_or(0, |time| time.as_millis().clamp(1, LIMIT_MAX) as u32);
        let part = (ms / PARTS).max(1).ilog2() as u8;
        Limit { ms, part }
    }
}

/// The rests of a stack's connections.
pub(crate) struct Rests {
    /// Those that something has come to, in order.
    roused: Queue<(ConnId, Rest)>,
    resting: [u32; REST_HANDLERS],
    /// [`Limit`]s of each handler: of fresh connections, and of others.
    limits: [[Limit; 2]; REST_HANDLERS],
    /// When each handler's limits were set, in milliseconds. A rest that began before counted in other parts. It wraps after 49 days: a
    /// rest that lasts then, and whose peer sends what is no data, may last twice its limit.
    set_ms: [u32; REST_HANDLERS],
    /// Handlers that have some, a bit each.
    with_limits: u64,
    /// Connections that rest at a handler with limits.
    limited: usize,
}

/// A look at a connection at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It has rested for too long.
    Over,
    /// Not before so many milliseconds.
    NotBefore(u32),
    /// It has no limit.
    Unlimited,
}

impl Default for Rests {
    fn default() -> Rests {
        let none = ConnId {
            index: 0,
            generation: 0,
        };
        Rests {
            roused: Queue::new(1_024, (none, Rest(RESTS))),
            resting: [0; REST_HANDLERS],
            limits: [[Limit::default(); 2]; REST_HANDLERS],
            set_ms: [0; REST_HANDLERS],
            with_limits: 0,
            limited: 0,
        }
    }
}

impl Rests {
    #[inline(always)]
    fn limit(&self, rest: Rest) -> Limit {
        self.limits[usize::from(rest.handler())][usize::from(!rest.is_fresh())]
    }

    #[inline(always)]
    fn is_limited(&self, handler: u8) -> bool {
        self.with_limits >> handler & 1 != 0
    }

    /// The rest with this as its beginning.
    #[inline]
    pub(crate) fn begun(&self, rest: Rest, now_ms: u32) -> Rest {
        rest.begun(now_ms >> self.limit(rest).part)
    }

    /// A connection comes to rest. Returns a time after which it, or another of its handler's, is to be looked at, if it is the first.
    #[inline]
    pub(crate) fn begin(&mut self, rest: Rest) -> Option<Duration> {
        let handler = rest.handler();
        self.resting[usize::from(handler)] += 1;
        if !self.is_limited(handler) {
            return None;
        }
        self.limited += 1;
        match self.resting[usize::from(handler)] {
            1 => self.shortest(),
            _ => None,
        }
    }

    /// A connection's rest has ended.
    #[inline]
    pub(crate) fn end(&mut self, rest: Rest) {
        let handler = rest.handler();
        self.resting[usize::from(handler)] -= 1;
        self.limited -= usize::from(self.is_limited(handler));
    }

    /// Something has come to a connection at rest.
    #[inline]
    pub(crate) fn rouse(&mut self, conn: ConnId, rest: Rest) {
        self.end(rest);
        self.roused.push_back((conn, rest));
    }

    /// Something is there already: the connection does not come to rest at all.
    #[inline]
    pub(crate) fn passes(&mut self, conn: ConnId, rest: Rest) {
        self.roused.push_back((conn, rest));
    }

    #[inline]
    pub(crate) fn has_roused(&self) -> bool {
        !self.roused.is_empty()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(ConnId, Rest)> {
        self.roused.pop_front()
    }

    /// Those that have been roused and not been taken yet.
    pub(crate) fn roused(&self) -> impl Iterator<Item = (ConnId, Rest)> {
        self.roused.iter()
    }

    pub(crate) fn set_limits(&mut self, handler: u8, limits: RestLimits, now_ms: u32) {
        let at = usize::from(handler);
        self.set_ms[at] = now_ms;
        let resting = self.resting[at] as usize;
        self.limited -= if self.is_limited(handler) { resting } else { 0 };
        self.limits[at] = [limits.first, limits.further].map(Limit::new);
        self.with_limits &= !(1 << handler);
        self.with_limits |= u64::from(limits != RestLimits::default()) << handler;
        self.limited += if self.is_limited(handler) { resting } else { 0 };
    }

    /// Connections at rest, of each handler.
    pub(crate) fn resting(&self) -> &[u32; REST_HANDLERS] {
        &self.resting
    }

    /// Connections that the sweep must look at.
    #[inline]
    pub(crate) fn limited(&self) -> usize {
        self.limited
    }

    /// The shortest limit that any connection at rest has, in milliseconds.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        let at_rest = self.limits.iter().zip(self.resting);
        let limits = at_rest.filter(|(_, resting)| *resting > 0);
        let shortest = limits
            .flat_map(|(limits, _)| limits)
            .map(|limit| limit.ms)
            .filter(|&ms| ms > 0)
            .min();
        shortest.map(|ms| Duration::from_millis(ms.into()))
    }

    /// Looks at a connection at rest that was last heard at `heard_ms`.
    #[inline(always)]
    pub(crate) fn look(&self, rest: Rest, heard_ms: u32, now_ms: u32) -> Look {
        let Limit { ms, part } = self.limit(rest);
        if ms == 0 {
            return Look::Unlimited;
        }
        let silent = now_ms.wrapping_sub(heard_ms);
        let parts = (now_ms >> part).wrapping_sub(rest.since()) & (TIMES - 1);
        // The part in which it began was not whole.
        let rested = (parts << part).saturating_sub(1 << part);
        // Of a rest that may have counted in other parts, no more is known than that.
        let rested = rested.min(now_ms.wrapping_sub(self.set_ms[usize::from(rest.handler())]));
        match ms.checked_sub(silent.max(rested)) {
            None | Some(0) => Look::Over,
            Some(left) => Look::NotBefore(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::cold::NONE;
    use proptest::prelude::*;

    fn minute(now_ms: u32) -> Rests {
        let mut rests = Rests::default();
        let limits = RestLimits {
            first: Some(Duration::from_secs(20)),
            further: Some(Duration::from_secs(60)),
        };
        rests.set_limits(3, limits, now_ms);
        rests
    }

    #[test]
    fn no_token_is_taken_for_a_rest() {
        for token in [NONE, 0, 1, (1 << 30) - 1, 1 << 31, NONE - 1] {
            assert_eq!(Rest::of_word(token), None);
        }
        for handler in 0..REST_HANDLERS as u8 {
            let rest = Rest::new(handler).carrying(u16::MAX).begun(u32::MAX);
            let read = Rest::of_word(rest.word()).expect("a rest");
            assert_eq!((read.handler(), read.carried()), (handler, u16::MAX));
            assert!(!read.is_fresh() && Rest::new(handler).is_fresh());
        }
    }

    #[test]
    fn counts_follow_limits() {
        let mut rests = minute(0);
        let (near, far) = (Rest::new(3), Rest::new(4));
        let soon = [near, far, near].map(|rest| rests.begin(rest));
        assert_eq!(soon, [Some(Duration::from_secs(20)), None, None]);
        rests.end(near);
        assert_eq!(rests.limited(), 1);
        assert_eq!(rests.shortest(), Some(Duration::from_secs(20)));
        rests.set_limits(3, RestLimits::default(), 0);
        assert_eq!((rests.limited(), rests.shortest()), (0, None));
        rests.end(near);
        rests.end(far);
        assert_eq!(rests.resting().iter().sum::<u32>(), 0);
    }

    proptest! {
        /// Whatever comes that is no data, a rest is never ended before its time and always within two parts after it.
        #[test]
        fn a_rest_ends_in_time(begun: u32, fresh: bool, heard in proptest::collection::vec(1..20_000u32, 0..12)) {
            let rests = minute(begun);
            let rest = if fresh { Rest::new(3) } else { Rest::new(3).carrying(9) };
            let limit = if fresh { 20_000 } else { 60_000 };
            let rest = rests.begun(rest, begun);
            let (mut last, mut heard) = (0, heard.into_iter());
            let mut next_heard = heard.next();
            let ended = (0..200_000).step_by(50).find(|&at| {
                if next_heard.is_some_and(|gap| at >= last + gap) {
                    last = at;
                    next_heard = heard.next();
                }
                let look = rests.look(rest, begun.wrapping_add(last), begun.wrapping_add(at));
                look == Look::Over
            });
            let ended = ended.expect("it ends");
            let most = limit + 2 * limit / PARTS + 50;
            prop_assert!((limit..=most).contains(&ended), "{ended} of {limit}");
        }
    }
}
