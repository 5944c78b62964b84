//! Proportional Rate Reduction (RFC 6937, with the choice between conservative and slow-start reduction bound of
//! RFC 9937): how much may be sent for each acknowledgement in recovery, so that the pipe is at ssthresh when it ends
//! and something is sent all the time. Works on `cwnd`; what ssthresh is, `congestion` says.

use crate::congestion::Congestion;
use crate::store::recovery::Recovery;

impl Recovery {
    /// Recovery begins with `flight` bytes in flight, `delivered` of the others just now. RecoverFS is what was in
    /// flight before, without what was SACKed earlier: that will not be delivered again (RFC 9937 section 6).
    pub(crate) fn prr_begin(&mut self, flight: u32, delivered: u32) {
        self.prr_delivered = 0;
        self.prr_out = 0;
        self.prr_flight = (flight - self.sacked_bytes)
            .saturating_add(delivered)
            .max(1);
    }

    /// An acknowledgement in recovery delivered so much, and `pipe` bytes are in flight. `safe`: SND.UNA moved, and nothing more was found lost.
    /// Keeps 5681-23, 6675-15.
    pub(crate) fn prr_on_ack(
        &mut self,
        window: &mut Congestion,
        pipe: u32,
        mss: u32,
        delivered: u32,
        safe: bool,
    ) {
        if delivered == 0 {
            return;
        }
        self.prr_delivered = self.prr_delivered.saturating_add(delivered);
        let room = if pipe > window.ssthresh() {
            // Proportional: of each byte delivered, ssthresh / RecoverFS go out.
            let share = u64::from(self.prr_delivered) * u64::from(window.ssthresh());
            let share = share.div_ceil(u64::from(self.prr_flight));
            u32::try_from(share)
                .unwrap_or(u32::MAX)
                .saturating_sub(self.prr_out)
        } else {
            // The conservative bound, packet conservation; while all goes well, slow start towards ssthresh.
            let owed = self.prr_delivered.saturating_sub(self.prr_out);
            let bound = owed.max(delivered) + if safe { mss } else { 0 };
            bound.min(window.ssthresh() - pipe)
        };
        // The first repair goes out at once.
        let least = if self.prr_out == 0 { mss } else { 0 };
        window.allow(pipe.saturating_add(room.max(least)).max(mss));
    }
}

#[cfg(test)]
mod tests;
