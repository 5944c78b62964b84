//! Name of a task that is valid on any thread: messages about one task carry it. Resolving it to the task's memory is up to the task's core.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::Inbox;
use super::identity::{ShardIdentity, inbox_of_life};

/// A task, named from anywhere: the shard's incarnation, the slot, and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskRef {
    incarnation: NonZeroU32,
    granule: u32,
    generation: u32,
    shard: u16,
}

impl TaskRef {
    #[inline]
    pub(crate) fn new(of: &ShardIdentity, granule: u32, generation: u32) -> TaskRef {
        TaskRef {
            incarnation: of.incarnation(),
            granule,
            generation,
            shard: of.number(),
        }
    }

    /// Returns whether this is a task of the shard with `identity`.
    #[inline]
    pub(crate) fn is_of(self, identity: &ShardIdentity) -> bool {
        self.incarnation == identity.incarnation()
    }

    /// Returns the granule at which the task's slot begins.
    #[inline]
    pub(crate) fn granule(self) -> u32 {
        self.granule
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        self.generation
    }

    /// Returns the inbox of the task's core, while that lives.
    pub(crate) fn inbox(self) -> Option<Arc<Inbox>> {
        inbox_of_life(self.shard, self.incarnation)
    }
}
