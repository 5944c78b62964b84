//! Measurements of a connection that receives in bulk.

use crate::coded::coded;

/// Measurements of a connection that receives.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tuning {
    /// Unread bytes it may hold.
    pub(crate) buffer: u32,
    /// Bytes read in this round trip, and in the one before.
    pub(crate) copied: u32,
    pub(crate) space: u32,
    /// When this round trip began, in microseconds, wrapping.
    pub(crate) round_us: u32,
    /// A round trip as seen from here, in microseconds; 0 = not measured.
    pub(crate) rtt_us: u32,
    /// With timestamps, the echo last measured by; without, the number that ends the window being measured.
    pub(crate) mark: u32,
    /// When that began.
    pub(crate) mark_us: u32,
}

coded!(Tuning { buffer, copied, space, rtt_us, mark; us round_us, mark_us });

impl Tuning {
    /// The end of a round trip in which so much was read: how large the buffer should be.
    pub(crate) fn wanted(&self, mss: u32) -> u64 {
        let (copied, space) = (u64::from(self.copied), u64::from(self.space.max(1)));
        // Twice, so that the sender may double; and room for what a loss holds up.
        let wanted = 2 * copied + 16 * u64::from(mss);
        // It still grows: by as much again, twice over.
        wanted + 2 * (wanted * (copied - space) / space)
    }

    /// A round trip measured by timestamps: smoothed, as RFC 6298 does.
    pub(crate) fn smooth(&mut self, rtt_us: u32) {
        self.rtt_us = match self.rtt_us {
            0 => rtt_us,
            old => old - old / 8 + rtt_us / 8,
        };
    }
}
