//! Memory running short, for all connections together: by the packet buffers of the depot that are in use (not those that
//! devices are to have to receive into), and by the segments of this stack. Under pressure nothing grows and what waits
//! beyond gaps is given up; when it is critical the rest of the buffers is for what ends the shortage: the device's
//! receiving, acknowledgements, and one segment for each connection that has nothing else and whose peer will take it, as
//! long as a last few are left. Of these, answers may have more than what is received before a reader waits for it; so neither
//! those who do not read nor those who are not read can fill that too. A window is never taken back: it is only not offered
//! again until there is room.

use crate::conn::{Conn, View, effect};
use crate::store::cold::{NONE, State, flag};
use crate::store::pressure::{LOOK_EVERY, Pressure};

/// Connections that lose what waits beyond their gaps in one go.
pub(crate) const PRUNED_AT_ONCE: usize = 8;
/// Segments that a connection may still be offered when it is critical, as in Linux: so it goes on, slowly.
const CRITICAL_SEGMENTS: u32 = 4;
impl View<'_> {
    /// The receive buffer that `buffer` is while memory is short.
    #[inline]
    pub(crate) fn pressed(&self, buffer: u32, mss: u16) -> u32 {
        match self.blocks.shortage.level {
            Pressure::None => buffer,
            Pressure::High => buffer.min(self.rules.config().receive_buffer),
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
    fn update_pressure(&mut self) {
        if self
            .blocks
            .update_pressure(self.rules.config(), &mut self.env.counters)
            != Pressure::None
        {
            self.effects.add(effect::RELIEVE);
        }
    }

    /// How much of `len` bytes to send may have one more packet buffer: no more than the connection's share; when it is
    /// critical, only of one that has nothing out, and no more than its peer will take at once.
    #[inline(always)]
    pub(crate) fn may_take_buffer(&mut self, len: usize) -> Option<usize> {
        // A stock that is smaller than that is empty from time to time.
        if self.blocks.pool.cached().is_multiple_of(LOOK_EVERY) || !self.blocks.pool.has_spare() {
            self.update_pressure();
        }
        if self.blocks.shortage.level != Pressure::Critical {
            return (!self.view().has_its_share()).then_some(len);
        }
        (!self.blocks.shortage.exhausted())
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
    pub(crate) fn defer_write(&mut self, len: usize) {
        let len = len.min(self.tcb.payload_mss().into());
        let waits_for_memory = match self.blocks.shortage.level {
            Pressure::Critical => self.view().leaves_at_once(len).is_some(),
            _ => !self.view().has_its_share(),
        };
        if waits_for_memory {
            return self.wait_for_buffer();
        }
        self.env.counters.starved += 1;
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
        self.update_pressure();
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
        hot.receiver.inbox.is_empty() && (awaited || !self.blocks.shortage.nothing_to_keep())
    }
}
