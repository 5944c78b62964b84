//! How long a connection is waited for that gets nowhere: the user timeout (RFC 5482, RFC 9293 section 3.9.1), and the
//! bounds of orphans, which no owner closes. Retransmissions are counted in `timers`; what is idle is
//! looked after in `keepalive`; how a peer can change the timeout is in `uto`.

use core::time::Duration;

use crate::conn::Conn;
use crate::store::cold::{EndReason, flag};
use crate::store::hot::Stalled;
use crate::store::rto;
use crate::time::Instant;

impl Conn<'_> {
    /// A timeout: whether the connection's user timeout is over, and it is ended for that.
    /// Keeps MUST-21.
    pub(crate) fn out_of_patience(&mut self) -> bool {
        let Some(most) = self.tcb.user_timeout(self.rules) else {
            return false;
        };
        let since_ms = self.stalled_since();
        let waited = self.env.now_ms.wrapping_sub(since_ms);
        if Duration::from_millis(waited.into()) < most {
            return false;
        }
        self.end(EndReason::TimedOut);
        true
    }

    /// Whether only time ends the connection's patience, and not the number of retransmissions.
    pub(crate) fn counts_time_only(&self) -> bool {
        let cold = &*self.tcb;
        let opening = cold.state.is_opening();
        !opening && !cold.has(flag::ORPHAN) && self.tcb.user_timeout(self.rules).is_some()
    }

    /// The next timeout comes when the user timeout is over, if it would come later.
    pub(crate) fn hurry(&mut self) {
        if let Some(most) = self.tcb.user_timeout(self.rules) {
            let since_ms = self.stalled_since();
            let waited = self.env.now_ms.wrapping_sub(since_ms);
            let latest = self.env.now + most.saturating_sub(Duration::from_millis(waited.into()));
            let hot = &mut *self.hot;
            hot.timers.due_at = hot.timers.due_at.min(latest);
            if hot.timers.rto_at != Instant::NEVER {
                hot.timers.rto_at = hot.timers.rto_at.min(latest);
            }
        }
    }

    /// Since when nothing new was acknowledged, or nothing could be sent, in wrapping milliseconds.
    fn stalled_since(&mut self) -> u32 {
        let (cold, hot) = (&mut *self.tcb, &mut *self.hot);
        let opening = cold.state.is_opening();
        if opening || !hot.sender.flight.is_empty() {
            return hot.congestion.acked_ms();
        }
        // The window is shut, and the peer may say so again and again.
        let mark = hot.sender.snd_una.0.wrapping_add(cold.snd_nxt.0);
        if hot.timers.stalled.mark != mark {
            let ran = rto::timeout(cold, self.rules.waits(), hot.timers.backoff);
            let ran_ms = u32::try_from(ran.as_millis()).unwrap_or(u32::MAX);
            hot.timers.stalled = Stalled {
                mark,
                since_ms: self.env.now_ms.wrapping_sub(ran_ms),
            };
        }
        hot.timers.stalled.since_ms
    }

    /// A timer of an orphan's: whether it has lived on for so long that it is ended. Its peer may be there all the time,
    /// and take a byte now and then; nothing else would end it.
    pub(crate) fn orphan_is_too_old(&mut self) -> bool {
        let now_ms = self.env.now_ms;
        let hot = &mut *self.hot;
        // Zero is "not seen yet".
        if hot.timers.orphaned_ms == 0 {
            hot.timers.orphaned_ms = now_ms | 1;
        }
        let age = Duration::from_millis(now_ms.wrapping_sub(hot.timers.orphaned_ms & !1).into());
        if age < self.rules.config().orphan_timeout {
            return false;
        }
        self.env.counters.orphans_aborted += 1;
        self.abort();
        true
    }
}
