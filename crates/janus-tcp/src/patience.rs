//! How long a connection is waited for that gets nowhere: the user timeout (RFC 5482, RFC 9293 section 3.9.1), and the
//! bounds of orphans, which have nobody to close them. Retransmissions are counted in `timers`; what is idle is
//! looked after in `keepalive`; how a peer can change the timeout is in `uto`.

use core::time::Duration;

use crate::cold::{State, flag};
use crate::rto;
use crate::stack::Stack;
use crate::time::Instant;

/// Since when a window is shut. Progress costs nothing to note: what was acknowledged and what was sent are compared
/// with what they were at the first probe.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalled {
    /// SND.UNA + SND.NXT, which only grow.
    pub(crate) mark: u32,
    /// Milliseconds, wrapping.
    pub(crate) since_ms: u32,
}

impl Stack {
    /// A timeout: whether the connection's user timeout is over, and it is ended for that.
    pub(crate) fn out_of_patience(&mut self, conn: u32, id: u32, now: Instant) -> bool {
        let Some(most) = self.user_timeout(conn) else {
            return false;
        };
        let since_ms = self.stalled_since(conn, id, now);
        let waited = (now.as_millis() as u32).wrapping_sub(since_ms);
        if Duration::from_millis(waited.into()) < most {
            return false;
        }
        self.end(conn, flag::TIMED_OUT);
        true
    }

    /// Whether only time ends the connection's patience, and not the number of retransmissions.
    pub(crate) fn counts_time_only(&self, conn: u32) -> bool {
        let cold = &self.store.tcbs[conn];
        let opening = matches!(cold.state, State::SynSent | State::SynReceived);
        !opening && !cold.has(flag::ORPHAN) && self.user_timeout(conn).is_some()
    }

    /// The next timeout comes when the user timeout is over, if it would come later.
    pub(crate) fn hurry(&mut self, conn: u32, id: u32, now: Instant) {
        if let Some(most) = self.user_timeout(conn) {
            let since_ms = self.stalled_since(conn, id, now);
            let waited = (now.as_millis() as u32).wrapping_sub(since_ms);
            let latest = now + most.saturating_sub(Duration::from_millis(waited.into()));
            let hot = &mut self.store.hot[id];
            hot.rto_at = hot.rto_at.min(latest);
            hot.rtx_at = hot.rtx_at.min(latest);
        }
    }

    /// Since when nothing new was acknowledged, or nothing could be sent, in wrapping milliseconds.
    fn stalled_since(&mut self, conn: u32, id: u32, now: Instant) -> u32 {
        let (cold, hot) = (&self.store.tcbs[conn], &mut self.store.hot[id]);
        let opening = matches!(cold.state, State::SynSent | State::SynReceived);
        if opening || !hot.flight.is_empty() {
            return hot.acked_ms;
        }
        // The window is shut, and the peer may say so again and again.
        let mark = hot.snd_una.0.wrapping_add(cold.snd_nxt.0);
        if hot.stalled.mark != mark {
            let ran = rto::timeout(cold, &self.rules.config, hot.backoff);
            let ran_ms = u32::try_from(ran.as_millis()).unwrap_or(u32::MAX);
            hot.stalled = Stalled {
                mark,
                since_ms: (now.as_millis() as u32).wrapping_sub(ran_ms),
            };
        }
        hot.stalled.since_ms
    }

    /// The owner lets go of a connection that lives on. True when there are too many of these, and it is ended.
    pub(crate) fn orphan(&mut self, conn: u32, now: Instant) -> bool {
        if !self.store.tcbs[conn].has(flag::ORPHAN) {
            self.store.tcbs[conn].set(flag::ORPHAN);
            self.orphans += 1;
        }
        let live = self.store.tcbs[conn].state != State::Closed;
        if live && self.orphans > self.rules.config.max_orphans as usize {
            self.counters.orphans_aborted += 1;
            self.abort_conn(conn, now);
            return true;
        }
        false
    }

    /// A timer of an orphan's: whether it has lived on for so long that it is ended. Its peer may be there all the time,
    /// and take a byte now and then; nobody else would end it.
    pub(crate) fn orphan_is_too_old(&mut self, conn: u32, id: u32, now: Instant) -> bool {
        let now_ms = now.as_millis() as u32;
        let hot = &mut self.store.hot[id];
        // Zero is "not seen yet".
        if hot.orphaned_ms == 0 {
            hot.orphaned_ms = now_ms | 1;
        }
        let age = Duration::from_millis(now_ms.wrapping_sub(hot.orphaned_ms & !1).into());
        if age < self.rules.config.orphan_timeout {
            return false;
        }
        self.counters.orphans_aborted += 1;
        self.abort_conn(conn, now);
        true
    }
}
