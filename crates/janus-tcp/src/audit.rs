//! An audit for tests and simulations: whether everything that a connection owes, or waits for, has a timer or stands in a
//! queue that is served. A connection that fails it would be held for ever. Nothing here changes anything.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::cold::{NONE, State, Tcb, flag};
use crate::hot::{Hot, hot_flag};
use crate::stack::Stack;
use crate::time::Instant;

/// Which queues a hot block stands in, by the queues themselves.
#[derive(Clone, Copy, Default)]
struct Queues {
    output: bool,
    starved: bool,
}

impl Stack {
    /// Checks that no connection is forgotten: one that owes something (data, a FIN, a SYN, an acknowledgement), one with a
    /// writer that waits for room, and one without an owner has a timer that is armed in time, or stands in a queue that
    /// [`Stack::transmit`] or [`Stack::advance`] serves. Also checks that flags, queues and timers agree.
    ///
    /// Holds between any two calls of the stack's methods. Visits every connection: not for a server's loop.
    ///
    /// # Errors
    /// Describes the first connection that fails.
    pub fn audit(&self) -> Result<(), String> {
        let queues = self.queues()?;
        let mut attached = 0;
        for conn in self.store.tcbs.places().into_iter().flatten() {
            let cold = &self.store.tcbs[conn];
            let told = match cold.hot {
                NONE => audit_cold(cold),
                id => {
                    attached += 1;
                    let queues = queues.get(&id).copied().unwrap_or_default();
                    self.audit_hot(conn, id, queues)
                }
            };
            told.map_err(|fault| {
                let (key, state, flags) = (self.store.tcbs.key(conn), cold.state, cold.flags);
                format!("{fault}; {key:?} in {state:?}, flags {flags:#x}")
            })?;
        }
        match self.store.hot.len() {
            len if len == attached => Ok(()),
            len => Err(format!("{len} hot blocks for {attached} connections")),
        }
    }

    /// Finds which hot blocks stand in the output queue and among the starved.
    fn queues(&self) -> Result<HashMap<u32, Queues>, String> {
        let mut queues = HashMap::<u32, Queues>::new();
        for &id in &self.schedule.output {
            match queues.entry(id) {
                Entry::Occupied(_) => return Err(format!("block {id} is queued twice")),
                Entry::Vacant(entry) => entry.insert(Queues::default()).output = true,
            };
        }
        for &id in &self.schedule.starved {
            let entry = queues.entry(id).or_default();
            if core::mem::replace(&mut entry.starved, true) {
                return Err(format!("block {id} is starved twice"));
            }
        }
        Ok(queues)
    }

    fn audit_hot(&self, conn: u32, id: u32, queues: Queues) -> Result<(), String> {
        let (cold, hot) = (&self.store.tcbs[conn], &self.store.hot[id]);
        let fault = |what: &str| Err(format!("{what}; {}", describe(hot)));
        if hot.conn != conn {
            return fault("the hot block belongs to another");
        }
        if hot.has(hot_flag::QUEUED) != queues.output {
            return fault("the output queue and its flag disagree");
        }
        if hot.has(hot_flag::STARVED) != queues.starved {
            return fault("the queue of the starved and its flag disagree");
        }
        let deadline = hot.deadline();
        let armed = hot.timers.timer.is_some_and(|timer| {
            hot.timers.timer_at <= deadline && self.schedule.wheel.payload(timer) == Some(id)
        });
        if deadline != Instant::ZERO && !armed && !queues.output {
            return fault("a deadline has no timer");
        }
        let driven = queues.output || deadline != Instant::ZERO;
        // One that needs no memory any more keeps its block until its turn in the queue comes.
        let contented = queues.starved && !hot.wants_memory(cold);
        if cold.has(flag::ORPHAN) && !driven && !contented {
            return fault("an orphan that no timer ends");
        }
        if let Some(what) = owes(cold, hot).filter(|_| !driven && !queues.starved) {
            return fault(what);
        }
        Ok(())
    }
}

/// A connection without a hot block owes nothing, and has an owner if it is not free.
fn audit_cold(cold: &Tcb) -> Result<(), String> {
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
fn owes(cold: &Tcb, hot: &Hot) -> Option<&'static str> {
    let flags = [
        (hot_flag::ACK_NOW, "an acknowledgement is owed"),
        (hot_flag::PROBE, "a probe is owed"),
        (hot_flag::SYN, "a SYN is owed"),
        (hot_flag::LOSSES, "a retransmission is owed"),
    ];
    let empty =
        hot.sender.flight.is_empty() && hot.sender.unsent.is_empty() && cold.state != State::Closed;
    let opening = matches!(cold.state, State::SynSent | State::SynReceived);
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

fn describe(hot: &Hot) -> String {
    format!(
        "flags {:#x}, {} in flight, {} unsent, {} unread, reorder {}, writer {}, rto {:?} ({:?}), ack {:?}, keep {:?}, timer {:?} at {:?}",
        hot.flags,
        hot.sender.flight.count,
        hot.sender.unsent.count,
        hot.receiver.inbox.count,
        hot.receiver.reorder != NONE,
        hot.sender.writer != NONE,
        hot.timers.rto_at,
        hot.timers.timer_kind,
        hot.timers.ack_at,
        hot.timers.keep_until,
        hot.timers.timer,
        hot.timers.timer_at,
    )
}

#[cfg(test)]
mod tests;
