//! Layouts proposed and published by hand, for tests: no shard looks through its flows, nothing is waited for.

use super::Publisher;
use crate::draft::Draft;
use crate::ring::RingError;
use crate::shard::ShardId;

impl Publisher {
    /// Adds a pending layout: shards walk to it as soon as they have adopted it, I/O cores keep to the published one.
    pub(crate) fn propose(&mut self, change: impl FnOnce(&mut Draft)) -> Result<(), RingError> {
        let mut draft = self.current.draft();
        change(&mut draft);
        self.replace(self.current.proposed(draft)?);
        Ok(())
    }

    /// Publishes the newest layout: I/O cores look up in it from their next batch on. To be called when every shard
    /// has adopted it (`settled`) and holds no flow that it gives to another shard.
    pub(crate) fn publish(&mut self) {
        if self.current.is_pending() {
            self.replace(self.current.swapped_as_it_is());
        }
    }

    /// Proposes and publishes in one stroke. Right where no flow can be in the way: at the start, and for a port on
    /// which no shard listened before. All changes made in one call are one epoch: when every shard binds the same
    /// port, collect the binds and make one update of them, else the ports' owners change with each.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Draft)) -> Result<(), RingError> {
        let mut draft = self.current.draft();
        change(&mut draft);
        self.replace(self.current.proposed(draft)?.swapped_as_it_is());
        Ok(())
    }

    /// `update` for one more listener.
    pub(crate) fn listen(&mut self, port: u16, shard: ShardId) {
        if !self
            .current
            .newest()
            .ports()
            .get(port)
            .is_some_and(|set| set.contains(shard))
        {
            // A ring that is not changed is not refused.
            let _ = self.update(|draft| _ = draft.listen(port, shard));
        }
    }

    /// `update` for one listener less.
    pub(crate) fn unlisten(&mut self, port: u16, shard: ShardId) {
        if self
            .current
            .newest()
            .ports()
            .get(port)
            .is_some_and(|set| set.contains(shard))
        {
            // A ring that is not changed is not refused.
            let _ = self.update(|draft| _ = draft.unlisten(port, shard));
        }
    }
}
