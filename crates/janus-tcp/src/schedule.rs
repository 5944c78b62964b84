//! Work that waits for its turn: deadlines, connections with something to send, frames that only have to be handed out, tasks
//! to wake. Nothing here knows why.

use std::collections::VecDeque;

use janus_mem::{Frame, Growth, MemError};

use crate::crowd::Crowds;
use crate::keepalive::Sweep;
use crate::pressure::Retry;
use crate::shed::Shedding;
use crate::stack::Token;
use crate::wheel::Wheel;

/// Replies (resets, SYN-ACKs, challenge ACKs, ARP, pings) waiting to be handed out; beyond it they are
/// dropped and counted, which the peers' repeats make good.
pub(crate) const MAX_REPLIES: usize = 4_096;

/// The schedule of a stack.
pub(crate) struct Schedule {
    pub(crate) wheel: Wheel,
    pub(crate) crowds: Crowds,
    /// Hot blocks with something to send.
    pub(crate) output: VecDeque<u32>,
    pub(crate) replies: VecDeque<Frame>,
    pub(crate) ready: VecDeque<Token>,
    /// Hot blocks whose timers fired, being served.
    pub(crate) fired: Vec<u32>,
    /// Hot blocks of connections that could not write or send FIN for want of a packet buffer, each once.
    pub(crate) starved: VecDeque<u32>,
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
            output: VecDeque::with_capacity(1_024),
            replies: VecDeque::with_capacity(MAX_REPLIES),
            ready: VecDeque::with_capacity(1_024),
            fired: Vec::with_capacity(256),
            starved: VecDeque::new(),
            retry: Retry::default(),
            sweep: Sweep::default(),
            shedding: Shedding::default(),
        })
    }
}
