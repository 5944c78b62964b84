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
        self.store.tcbs.reuse_oldest_first(SPREAD / 64);
        self.index.half_open.reuse_oldest_first(SPREAD / 64);
        self.index.time_wait.reuse_oldest_first(SPREAD / 64);
        self.store.hot.reuse_oldest_first(SPREAD / size_of::<Hot>());
        self.store
            .blocks
            .recovery
            .reuse_oldest_first(SPREAD / size_of::<Recovery>());
        self.store
            .blocks
            .tunings
            .reuse_oldest_first(SPREAD / size_of::<Tuning>());
        self.store
            .blocks
            .segments
            .reuse_oldest_first(SPREAD / size_of::<Segment>());
        self.schedule
            .wheel
            .reuse_oldest_first(SPREAD / size_of::<Hot>());
        self.rules.config.share_path_facts = false;
    }
}

#[cfg(test)]
mod tests;
