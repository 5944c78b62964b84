//! Which memory a new connection gets. What ended last leaves its record, its hot block, its descriptors and its timer to what
//! begins next, still in cache, as every store is a stack: that needs nothing here. What is here takes all of it away, for
//! comparison (`benches/repeat`).

use crate::store::Store;
use crate::store::hot::Hot;
use crate::store::index::Index;
use crate::store::recovery::Recovery;
use crate::store::schedule::Schedule;
use crate::store::segment::Segment;
use crate::store::tuning::Tuning;

/// Bytes of each store that are gone through before a place is used again, if nothing is reused: as much as a processor's
/// last cache holds. (Where it is only to be seen that all works, as much as a page.)
const SPREAD: usize = if cfg!(debug_assertions) {
    4 << 10
} else {
    32 << 20
};

impl Store {
    /// No connection gets what is warm from another one.
    #[cold]
    pub(crate) fn reuse_nothing(&mut self, index: &mut Index, schedule: &mut Schedule) {
        self.tcbs.reuse_oldest_first(SPREAD / 64);
        index.half_open.reuse_oldest_first(SPREAD / 64);
        index.time_wait.reuse_oldest_first(SPREAD / 64);
        self.hot.reuse_oldest_first(SPREAD / size_of::<Hot>());
        self.blocks
            .recovery
            .reuse_oldest_first(SPREAD / size_of::<Recovery>());
        self.blocks
            .tunings
            .reuse_oldest_first(SPREAD / size_of::<Tuning>());
        self.blocks
            .segments
            .reuse_oldest_first(SPREAD / size_of::<Segment>());
        schedule.wheel.reuse_oldest_first(SPREAD / size_of::<Hot>());
    }
}

#[cfg(test)]
mod tests;
