//! The way of packets to our own addresses: none of them leaves, they come back in. Whoever drives the stack takes them out
//! ([`Stack::take_looped`](crate::Stack::take_looped)) and gives them to the stack that has their flows, which may be this one. They carry
//! a mark, as nothing that a device brings may come from an address of ours.

use std::collections::VecDeque;

use janus_mem::{Frame, LOOPED};

use crate::ip::Ip;
use crate::store::keys::HotId;
use crate::store::schedule::MAX_REPLIES;

/// Frames that wait to come back in; beyond it they are dropped and counted, which repeats make good.
const MAX_WAITING: usize = MAX_REPLIES;
/// While so many wait, connections and sockets send no more: the rest is for answers.
const ROOM: usize = 256;

/// Frames for our own addresses, and who waits to send more of them.
#[derive(Default)]
pub(crate) struct OwnLoop {
    /// Oldest first. None of them is lent.
    frames: VecDeque<Frame>,
    /// Hot blocks of connections that are to have a place in the output queue again.
    held: Vec<HotId>,
    /// There has been a connection between our own addresses.
    used: bool,
}

impl OwnLoop {
    /// From now on there may be connections between our own addresses.
    pub(crate) fn begin(&mut self) {
        self.used = true;
    }

    /// Whether there may be any.
    pub(crate) fn is_used(&self) -> bool {
        self.used
    }

    /// Whether frames wait.
    #[inline(always)]
    pub(crate) fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    /// Frames that a connection may send now.
    pub(crate) fn room(&self) -> usize {
        ROOM.saturating_sub(self.frames.len())
    }

    /// A connection waits until there is room.
    pub(crate) fn hold(&mut self, id: HotId) {
        self.held.push(id);
    }

    /// Those that wait so.
    pub(crate) fn held(&self) -> &[HotId] {
        &self.held
    }

    /// Moves at most `most` frames to the end of `into`. Returns those that may send again.
    pub(crate) fn take(
        &mut self,
        into: &mut Vec<Frame>,
        most: usize,
    ) -> std::vec::Drain<'_, HotId> {
        let count = self.frames.len().min(most);
        into.extend(self.frames.drain(..count));
        self.held.drain(..)
    }
}

impl Ip<'_> {
    /// Lets a frame come back in. The buffer of one that is lent goes home at once, and what comes in is a copy: its bytes are the receiver's,
    /// while the sender may have to repeat its own.
    #[inline(never)]
    pub(crate) fn loop_in(&mut self, mut frame: Frame) {
        if self.host.own_loop.frames.len() >= MAX_WAITING {
            self.env.counters.dropped_loop_full += 1;
            return self.recycle(frame);
        }
        if frame.is_lent() {
            let copy = self.copy_of(&frame);
            self.recycle(frame);
            match copy {
                Some(copy) => frame = copy,
                None => {
                    self.env.counters.dropped_no_buffer += 1;
                    return;
                }
            }
        }
        (frame.tag, frame.key) = (LOOPED, 0);
        self.env.counters.looped += 1;
        self.host.own_loop.begin();
        self.host.own_loop.frames.push_back(frame);
    }

    /// The frame in a buffer of its own; `None` without one.
    fn copy_of(&mut self, frame: &Frame) -> Option<Frame> {
        let mut buf = self.pool.alloc()?;
        // It fits where it was.
        buf.set_off(frame.buf.off());
        let mut copy = Frame::new(buf, frame.len);
        copy.data_mut().copy_from_slice(frame.data());
        Some(copy)
    }
}

#[cfg(test)]
mod tests;
