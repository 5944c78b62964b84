//! An audit for tests and simulations: whether everything that a connection owes, or waits for, has a timer or stands in a
//! queue that is served. A connection that fails it would be held for ever. Nothing here changes anything.

use crate::store::cold::{NONE, State, Tcb, flag};
use crate::store::hot::{Hot, hot_flag};

/// Which queues a hot block stands in, by the queues themselves.
#[derive(Clone, Copy, Default)]
pub(crate) struct Queues {
    pub(super) output: bool,
    pub(super) starved: bool,
}

/// A connection without a hot block owes nothing, and has an owner if it is not free.
pub(crate) fn audit_cold(cold: &Tcb) -> Result<(), String> {
    if cold.has(flag::ORPHAN) {
        return Err("an orphan without a hot block".into());
    }
    match cold.state {
        State::SynSent | State::SynReceived | State::FinWait1 | State::Closing | State::LastAck => {
            Err("a state that waits for an answer, without a hot block".into())
        }
        _ => Ok(()),
    }
}

/// Names what the connection owes its peer or its owner and cannot leave to either of them.
pub(crate) fn owes(cold: &Tcb, hot: &Hot) -> Option<&'static str> {
    let flags = [
        (hot_flag::ACK_NOW, "an acknowledgement is owed"),
        (hot_flag::PROBE, "a probe is owed"),
        (hot_flag::SYN, "a SYN is owed"),
        (hot_flag::LOSSES, "a retransmission is owed"),
    ];
    let empty =
        hot.sender.flight.is_empty() && hot.sender.unsent.is_empty() && cold.state != State::Closed;
    let opening = cold.state.is_opening();
    let flagged = flags.into_iter().find(|&(flag, _)| hot.has(flag));
    flagged
        .map(|(_, what)| what)
        .or((!hot.sender.flight.is_empty()).then_some("data in flight has no timer"))
        .or((!hot.sender.unsent.is_empty()).then_some("data waits to be sent and nothing sends it"))
        .or(opening.then_some("an opening has no timer"))
        .or(cold
            .has(flag::FIN_QUEUED)
            .then_some("a FIN waits for nothing"))
        .or((empty && hot.sender.writer != NONE).then_some("a writer waits for nothing"))
}

pub(crate) fn describe(hot: &Hot) -> String {
    format!(
        "flags {:#x}, {} in flight, {} unsent, {} unread, reorder {}, writer {}, rto {:?} ({:?}), ack {:?}, keep {:?}, timer {:?} at {:?}",
        hot.flags,
        hot.sender.flight.count,
        hot.sender.unsent.count,
        hot.receiver.inbox.count,
        hot.receiver.reorder != NONE,
        hot.sender.writer != NONE,
        hot.timers.due_at,
        hot.timers.timer_kind,
        hot.timers.ack_at,
        hot.timers.keep_until,
        hot.timers.timer,
        hot.timers.timer_at,
    )
}

#[cfg(test)]
mod tests;
