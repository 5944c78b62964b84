//! Which memory a new connection gets. What ended last leaves its record, its hot block, its descriptors and its timer to what
//! begins next, still in cache, as every store is a stack: that needs nothing here. What is here takes all of it away, for
//! comparison (`benches/repeat`).

use crate::hot::Hot;
use crate::recovery::Recovery;
use crate::segment::Segment;
use crate::stack::Stack;
use crate::tuning::Tuning;

/// Bytes of each store that are gone through before a place is used again, if nothing is reused: as much as a processor's
/// last cache holds. (Where it is only to be seen that all works, as much as a page.)
const SPREAD: usize = if cfg!(debug_assertions) {
    4 << 10
} else {
    32 << 20
};

impl Stack {
    /// No connection gets what is warm from another one, nor is told what another one knew of the path.
    #[cold]
    pub(crate) fn reuse_nothing(&mut self) {
        self.cold.reuse_oldest_first(SPREAD / 64);
        self.half_open.reuse_oldest_first(SPREAD / 64);
        self.time_wait.reuse_oldest_first(SPREAD / 64);
        self.hot.reuse_oldest_first(SPREAD / size_of::<Hot>());
        self.recovery
            .reuse_oldest_first(SPREAD / size_of::<Recovery>());
        self.tunings
            .reuse_oldest_first(SPREAD / size_of::<Tuning>());
        self.segments
            .reuse_oldest_first(SPREAD / size_of::<Segment>());
        self.wheel.reuse_oldest_first(SPREAD / size_of::<Hot>());
        self.config.share_path_facts = false;
    }
}

#[cfg(test)]
mod tests;
