//! The last resort when no packet buffer is left: connections whose peers have stalled are reset, one at a time, for what
//! they keep to send. Only while others found no buffer for some time, and those first that have kept most for longest.
//! How memory is shared before it comes to that is in `pressure`.

use crate::cold::{NONE, flag};
use crate::stack::Stack;

/// Hot blocks looked at in one go.
const LOOKS_MAX: u32 = 4_096;
/// Milliseconds without progress after which a connection may be shed.
const STALLED_MS: u32 = 2_000;

/// Where the next look begins.
#[derive(Default)]
pub(crate) struct Shedding {
    next: u32,
}

impl Stack {
    /// Resets the connection that has kept most buffers for longest, of those looked at. False when none has stalled.
    #[cold]
    pub(crate) fn shed(&mut self) -> bool {
        let blocks = self.store.hot.high_water();
        let now_ms = self.now.as_millis() as u32;
        let mut worst = (0, NONE);
        for _ in 0..blocks.min(LOOKS_MAX) {
            let id = self.schedule.shedding.next % blocks;
            self.schedule.shedding.next = id + 1;
            worst = worst.max((self.kept_ms(id, now_ms), id));
        }
        let (kept_ms, id) = worst;
        if kept_ms == 0 {
            return false;
        }
        let conn = self.store.hot[id].conn;
        self.counters.shed += 1;
        self.reset_peer(conn);
        self.end(conn, flag::TIMED_OUT);
        true
    }

    /// Buffers that a connection keeps to send from, times the milliseconds since its peer last acknowledged something;
    /// 0: nothing is kept, or it has not stalled.
    fn kept_ms(&self, id: u32, now_ms: u32) -> u64 {
        let hot = &self.store.hot[id];
        let stalled_ms = now_ms.wrapping_sub(hot.congestion.acked_ms);
        if hot.conn == NONE || stalled_ms < STALLED_MS {
            return 0;
        }
        u64::from(hot.sender.flight.count + hot.sender.unsent.count) * u64::from(stalled_ms)
    }
}
