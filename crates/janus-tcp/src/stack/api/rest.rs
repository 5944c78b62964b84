//! Connections at rest, for which no task waits ([`Rest`]).

use crate::rules::error::Error;
use crate::stack::Stack;
use crate::store::cold::{NONE, Tcb};
use crate::store::flows::Flows;
use crate::store::keys::{ConnId, ConnSlot, Key};
use crate::store::rest::{Rest, RestLimits};
use crate::time::Instant;

impl Flows<Tcb, ConnSlot> {
    /// The connection that a record is of, as applications name it.
    #[inline(always)]
    pub(crate) fn id_of(&self, conn: ConnSlot) -> ConnId {
        ConnId {
            index: conn.index(),
            generation: self[conn].generation,
        }
    }
}

impl Stack {
    /// Puts a connection at rest: when there is something to read, or it has ended, it comes out of [`Stack::pop_roused`]; at once if that
    /// is so already.
    #[inline]
    pub fn rest(&mut self, now: Instant, id: ConnId, rest: Rest) -> Result<(), Error> {
        self.env.set_now(now);
        let rest = self.schedule.rests.begun(rest, self.env.now_ms);
        self.rest_on(id, rest)
    }

    /// Like [`Stack::rest`] for a connection that was roused with this rest: its time goes on, as if nothing had come.
    #[inline]
    pub fn rest_on(&mut self, id: ConnId, rest: Rest) -> Result<(), Error> {
        let conn = id.slot().ok_or(Error::Stale)?;
        let cold = self.store.tcbs.get_mut(conn);
        let cold = cold.filter(|tcb| tcb.is_owned(id.generation));
        let cold = cold.ok_or(Error::Stale)?;
        let hot = cold.hot().map(|block| &self.store.hot[block]);
        let unread = hot.is_some_and(|hot| !hot.receiver.inbox.is_empty());
        let writer = hot.is_some_and(|hot| hot.sender.writer != NONE);
        if unread || cold.nothing_to_read() != Err(Error::WouldBlock) {
            // Bytes, the end, or the reason of one.
            self.schedule.rests.passes(id, rest);
            return Ok(());
        }
        let before = core::mem::replace(&mut cold.reader, rest.word());
        self.left_rest(before);
        if writer {
            // Of a task that has gone.
            self.with(conn, |c| c.wait_to_write(None));
        }
        if let Some(soon) = self.schedule.rests.begin(rest) {
            self.sweep_by(self.env.now + soon);
        }
        Ok(())
    }

    /// The next connection that something has come to, with what it carried.
    #[inline]
    pub fn pop_roused(&mut self) -> Option<(ConnId, Rest)> {
        self.schedule.rests.pop()
    }

    /// Whether [`Stack::pop_roused`] has one.
    #[inline]
    pub fn has_roused(&self) -> bool {
        self.schedule.rests.has_roused()
    }

    /// Connections at rest.
    pub fn resting(&self) -> usize {
        let resting = self.schedule.rests.resting();
        resting.iter().map(|&resting| resting as usize).sum()
    }

    /// Connections that a handler has at rest, or that were roused for it and not taken yet.
    pub fn resting_at(&self, handler: u8) -> usize {
        let roused = self.schedule.rests.roused();
        let roused = roused.filter(|(_, rest)| rest.handler() == handler);
        self.schedule.rests.resting()[usize::from(handler)] as usize + roused.count()
    }

    /// Says how long connections may rest at a handler, those that do included.
    pub fn limit_rests(&mut self, now: Instant, handler: u8, limits: RestLimits) {
        self.env.set_now(now);
        let now_ms = self.env.now_ms;
        self.schedule.rests.set_limits(handler, limits, now_ms);
        if let Some(shortest) = self.schedule.rests.shortest() {
            self.sweep_by(self.env.now + shortest);
        }
    }

    /// Closes connections at rest, in order. Looks on from `cursor` (0: the beginning) at no more than `budget` places, and ends no
    /// more than `most`; returns the cursor to go on from, `None` when all have been looked at.
    pub fn close_resting(
        &mut self,
        now: Instant,
        cursor: usize,
        budget: usize,
        mut most: usize,
    ) -> Option<usize> {
        self.env.set_now(now);
        let ranges = self.store.tcbs.ranges();
        let four = ranges[0].len();
        let all = four + ranges[1].len();
        let end = all.min(cursor.saturating_add(budget));
        for place in cursor..end {
            if most == 0 {
                return Some(place);
            }
            let index = match place.checked_sub(four) {
                None => ranges[0].start + place as u32,
                Some(six) => ranges[1].start + six as u32,
            };
            if let Some(conn) = ConnSlot::new(index)
                && Rest::of_word(self.store.tcbs[conn].reader).is_some()
            {
                self.close_at_rest(conn);
                most -= 1;
            }
        }
        (end < all).then_some(end)
    }

    /// Closes a connection at rest: whoever would serve it is not asked.
    pub(crate) fn close_at_rest(&mut self, conn: ConnSlot) {
        self.leave_rest(conn);
        self.close(self.env.now, self.store.tcbs.id_of(conn));
    }

    /// A connection that ends is at rest no more.
    pub(crate) fn leave_rest(&mut self, conn: ConnSlot) {
        let word = core::mem::replace(&mut self.store.tcbs[conn].reader, NONE);
        self.left_rest(word);
    }

    /// A connection's record has this word no more.
    #[inline(always)]
    pub(crate) fn left_rest(&mut self, word: u32) {
        if let Some(rest) = Rest::of_word(word) {
            self.schedule.rests.end(rest);
        }
    }
}

#[cfg(test)]
mod tests;
