//! Bounds of an update, and why one is refused. Nothing here acts.

use core::fmt;

use crate::ring::RingError;
use crate::shard::ShardId;

/// Bounds on the memory and work of one update.
/// Exhaustive: literals with `..Default::default()` are how it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most flows that may differ from a ring when it is published. While the reports come in each takes 24 bytes, and
    /// 16 more while they are sorted; afterwards about 3 in the filter, and less in `H_diff`.
    pub diverged: usize,
    /// Most flows an I/O core remembers as opened during an update, 32 bytes each.
    pub pending_opens: usize,
    /// Seed of the filter's hash. To be drawn where strangers choose the keys.
    pub seed: u64,
}

impl Default for Limits {
    /// For twenty million flows of which a fifth may differ.
    fn default() -> Limits {
        Limits {
            diverged: 4 << 20,
            pending_opens: 1 << 14,
            seed: 0x6a61_6e75_7320_6373,
        }
    }
}

/// Reason why a change is refused. A refused change has no effect, and no reader or shard has seen any part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The last update is not over (rule 9): go on with [`poll`](crate::Balancer::poll) until it says idle.
    Busy,
    /// There is no update that another could supersede, or it has been superseded too often.
    NotPending,
    /// More flows would differ than [`Limits::diverged`]: move fewer points at a time.
    Capacity {
        /// How many flows would differ, as far as can be told before.
        expected: usize,
        /// The limit.
        limit: usize,
    },
    /// The ring names a shard that has no [`ShardEnd`](crate::ShardEnd).
    NoShard(ShardId),
    /// The points do not make a ring.
    Ring(RingError),
    /// Flows differ from the ring, so another ring needs a whole update.
    Flows,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Busy => write!(f, "the last update is not over; poll until it is"),
            Refused::NotPending => write!(f, "there is no pending update that could be superseded"),
            Refused::Capacity { expected, limit } => write!(
                f,
                "about {expected} flows would differ from the ring and {limit} may; move fewer points at a time"
            ),
            Refused::NoShard(shard) => write!(f, "the ring names {shard}, which has no end here"),
            Refused::Ring(error) => error.fmt(f),
            Refused::Flows => write!(f, "flows differ from the ring; use a whole update"),
        }
    }
}

impl std::error::Error for Refused {}

impl From<RingError> for Refused {
    fn from(error: RingError) -> Refused {
        Refused::Ring(error)
    }
}

/// Where an update is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No update; another may begin.
    Idle,
    /// A new layout is there and not all shards have adopted it.
    Proposed,
    /// Shards report the flows that differ.
    Traversing,
    /// All have reported; the next step builds the exceptions and publishes the layout.
    Building,
    /// Not every core has adopted the published layout.
    Publishing,
    /// Rule 9: packets tagged by an older epoch leave the rings, round by round.
    Grace(u32),
}

/// Figures of the last published update.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct UpdateReport {
    /// Updates published so far, this one included.
    pub updates: u64,
    /// Those among them for which shards told of moves only.
    pub of_news: u64,
    /// Flows that the shards held when they were traversed.
    pub held: usize,
    /// Flows that shards have told of for it.
    pub told: usize,
    /// Flows that differ from the ring, as far as is known: one that moved on the way may be counted twice, and one that has ended since it
    /// was told of is too.
    pub diverged: usize,
    /// Keys among them.
    pub keys: usize,
    /// Flows in the exact map: their key differs on two or more shards.
    pub exact: usize,
    /// Runs in `H_diff`.
    pub runs: usize,
    /// Bytes of `H_diff`.
    pub diff_bytes: usize,
    /// Bytes of the filter.
    pub filter_bytes: usize,
    /// Bytes of the exact map.
    pub exact_bytes: usize,
    /// Bytes that the reports took while the exceptions were built, the sorting included.
    pub transient_bytes: usize,
    /// Cells of the ring's index in which a key differs.
    pub marked_cells: usize,
    /// Cells of the index.
    pub cells: usize,
    /// Traversals it took: more than one after it was superseded.
    pub passes: u32,
    /// How often too many flows differed, so that the published ring was taken up again.
    pub overflows: u32,
}
