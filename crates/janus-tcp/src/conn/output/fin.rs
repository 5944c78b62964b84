//! The end of what is sent: the FIN, and waiting for the buffer that it, or anything else, needs.

use core::time::Duration;

use janus_mem::HEADROOM;

use crate::conn::{Conn, effect};
use crate::rules::Rules;
use crate::rules::profile::DEFAULT;
use crate::store::cold::{NONE, State, Tcb, flag};
use crate::store::hot::hot_flag;
use crate::store::segment::seg_flag;

impl Conn<'_> {
    /// Whether the connection ends when its FIN is acknowledged and its owner has let go.
    pub(crate) fn waits_for_no_fin(&self) -> bool {
        self.tcb.waits_for_no_fin(self.rules)
    }

    /// Moves the state past the sending of our FIN and queues it. False when it was sent before.
    #[inline]
    pub(crate) fn send_fin(&mut self) -> bool {
        let next = match self.tcb.state {
            State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            State::SynReceived if !self.tcb.has(flag::FIN_QUEUED) => {
                // Our SYN may be lost and has to be repeated: the FIN waits for its acknowledgement
                // (`syn_received_acked`), where section 3.10.4 of RFC 9293 would have it at once.
                self.tcb.set(flag::FIN_QUEUED);
                return true;
            }
            _ => return false,
        };
        let cold = &mut *self.tcb;
        cold.state = next;
        cold.set(flag::FIN_QUEUED);
        self.queue_fin();
        self.queue();
        true
    }

    /// Whether nothing but a FIN comes of its owner's letting go: all is read, no options say otherwise, and the connection has an end
    /// still to come.
    #[inline(always)]
    pub(crate) fn leaves_in_peace(&self) -> bool {
        let open = matches!(self.tcb.state, State::Established | State::CloseWait);
        open && self.rules.profiles().is_of_reader(self.tcb.profile) && !self.has_unread()
    }

    /// The owner has let go: the FIN follows what is queued, and nothing waits for a writer or a reader any more.
    #[inline]
    pub(crate) fn owner_leaves(&mut self) {
        self.tcb.set(flag::ORPHAN);
        self.tcb.reader = NONE;
        self.hot.sender.writer = NONE;
        self.forget_reordered();
        if self.tcb.state != State::Closed {
            self.send_fin();
        }
    }

    /// Puts the FIN on the last unsent segment, or on an empty one of its own.
    #[inline(always)]
    pub(crate) fn queue_fin(&mut self) {
        let tail = self.hot.sender.unsent.tail;
        if tail.is_some() {
            self.blocks.segments[tail].flags |= seg_flag::FIN;
        } else {
            // Without a buffer the flag stays, and is tried again when there may be one.
            let Some(buf) = self.blocks.pool.alloc_reserved() else {
                self.wait_for_buffer();
                return;
            };
            let unsent = &mut self.hot.sender.unsent;
            let queued = self
                .blocks
                .segments
                .append(unsent, buf, (HEADROOM, 0), seg_flag::FIN);
            if let Err(buf) = queued {
                self.blocks.pool.free(buf);
                self.wait_for_buffer();
                return;
            }
        }
        self.tcb.clear(flag::FIN_QUEUED);
    }

    /// Notes that a connection waits for a packet buffer. It keeps its hot block until one is there. Where nothing is in
    /// flight the persist timer runs meanwhile: memory may never come, and a peer that is gone must be found out.
    pub(crate) fn wait_for_buffer(&mut self) {
        self.env.counters.starved += 1;
        if !self.hot.has(hot_flag::STARVED) {
            self.hot.set(hot_flag::STARVED);
            self.effects.add(effect::STARVED);
        }
        self.persist();
    }
}

impl Tcb {
    /// Whether the connection ends when its FIN is acknowledged and its owner has let go.
    pub(crate) fn waits_for_no_fin(&self, rules: &Rules) -> bool {
        let profile = self.profile;
        profile != DEFAULT && rules.profiles().get(profile).fin_wait_2 == Some(Duration::ZERO)
    }
}
