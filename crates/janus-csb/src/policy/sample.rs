//! Samples for the control loop: one of each shard a round, and the window of service times that one of its figures
//! comes from. Never here: clocks, atomics; the caller brings the numbers.

use crate::shard::ShardId;

#[cfg(test)]
mod tests;

/// Whether a shard is to have keys at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// It serves. Without a point on the ring it is a shard being added, and gets some.
    #[default]
    Serving,
    /// It is leaving: its points are taken away in steps, and it gets none.
    Draining,
}

/// Sample of one shard, over the time since the round before.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ShardSample {
    /// The shard it describes.
    pub shard: ShardId,
    /// Whether it serves or leaves.
    pub role: Role,
    /// A task has kept its loop for too long of late: it is given no more than it has.
    pub kept: bool,
    /// Packets that wait in the rings leading to it: on average over the interval, or at its end.
    pub queue: u32,
    /// Packets it has taken since the last round.
    pub packets: u64,
    /// The part of the interval it had work, 0 to 1.
    pub busy: f64,
    /// The median of its [`ServiceWindow`]; `None` before enough connections were served.
    pub service_ns: Option<u64>,
    /// Flows it holds now.
    pub flows: u64,
    /// Flows it has created since the last round: how fast a new ring takes hold.
    pub opened: u64,
}

/// How long the last connections were being served: 128 of them, whatever time that spans, so that a slow shard is not
/// judged by fewer. 1 KiB, no allocation.
#[derive(Clone, Debug)]
pub struct ServiceWindow {
    last: [u64; ServiceWindow::LEN],
    count: u64,
}

impl Default for ServiceWindow {
    fn default() -> ServiceWindow {
        ServiceWindow::new()
    }
}

impl ServiceWindow {
    /// Connections in the window.
    pub const LEN: usize = 128;
    /// Fewer say nothing yet.
    const ENOUGH: usize = ServiceWindow::LEN / 4;

    /// An empty window.
    pub const fn new() -> ServiceWindow {
        ServiceWindow {
            last: [0; ServiceWindow::LEN],
            count: 0,
        }
    }

    /// One more connection was served; the oldest of 128 is forgotten.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.last[(self.count % ServiceWindow::LEN as u64) as usize] = ns;
        self.count += 1;
    }

    /// The middle one of the window; `None` while it holds fewer than 32.
    pub fn median(&self) -> Option<u64> {
        let held = usize::try_from(self.count)
            .unwrap_or(usize::MAX)
            .min(ServiceWindow::LEN);
        if held < ServiceWindow::ENOUGH {
            return None;
        }
        let mut sorted = self.last;
        let (_, median, _) = sorted[..held].select_nth_unstable(held / 2);
        Some(*median)
    }
}
