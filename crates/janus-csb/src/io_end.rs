//! The balancer's end in a core that polls a device: where each packet of a batch goes, and the flows it saw open.

use crate::epoch::{Epoch, Tag};
use crate::flow::{FlowId, Held};
use crate::pending_opens::PendingOpens;
use crate::publish::Reader;
use crate::ring::BATCH;
use crate::shard::ShardId;
use crate::steering::Steering;

/// The tags of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tags {
    epoch: Epoch,
    hints: u64,
}

impl Tags {
    /// The tag of packet `i` of the batch.
    #[inline]
    pub fn get(&self, i: usize) -> Tag {
        Tag::new(self.epoch, self.hints >> i & 1 != 0)
    }
}

/// One for each core that polls a device; lives in its thread.
#[derive(Debug)]
pub struct IoEnd {
    reader: Reader,
    opens: PendingOpens,
    /// The published epoch in which `opens` was learned.
    learned_in: Epoch,
}

impl IoEnd {
    pub(crate) fn new(reader: Reader, opens: usize) -> IoEnd {
        IoEnd {
            learned_in: reader.current().published().epoch(),
            reader,
            opens: PendingOpens::new(opens),
        }
    }

    /// Adopts the newest steering if there is one; says whether it did. Between batches only, and never a wait.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        let adopted = self.reader.refresh();
        if adopted {
            self.forget();
        }
        adopted
    }

    /// The set knows what one published ring did not say; another ring has been made with it in mind.
    #[cold]
    fn forget(&mut self) {
        let published = self.steering().published().epoch();
        if published != self.learned_in {
            self.learned_in = published;
            self.opens.clear();
        }
    }

    /// Whether there is a newer steering to adopt.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.reader.is_behind()
    }

    /// Before the thread sleeps: see [`Reader::park`].
    pub fn park(&mut self) {
        self.reader.park();
    }

    /// The steering adopted last.
    #[inline]
    pub fn steering(&self) -> &Steering {
        self.reader.current()
    }

    /// The owners of a batch of at most 64 packets, by rule 2: exact map, filter and `H_diff`, pending opens, ring. `id_of`
    /// gives the name of packet `i`'s flow; it is called for few.
    ///
    /// # Panics
    /// When the slices differ in length or are longer than 64.
    #[inline]
    pub fn look_up_batch(
        &self,
        keys: &[u32],
        ports: &[u16],
        mut id_of: impl FnMut(usize) -> FlowId,
        owners: &mut [ShardId],
    ) -> Tags {
        assert!(
            keys.len() <= BATCH && keys.len() == ports.len(),
            "a batch is at most {BATCH} packets, each with key and port"
        );
        let steering = self.reader.current();
        let mut hints = steering.look_up_flows(keys, ports, &mut id_of, owners);
        if !self.opens.is_empty() {
            for (i, (&key, owner)) in keys.iter().zip(owners).enumerate() {
                // Never over the filter or the exact map: what those know is a flow that lives.
                if hints >> i & 1 == 0
                    && let Some(learned) = self.opens.get(key, || id_of(i))
                {
                    *owner = learned;
                    hints |= 1 << i;
                }
            }
        }
        Tags {
            epoch: steering.published().epoch(),
            hints,
        }
    }

    /// A SYN-ACK left on behalf of `owner`: only the owner of a flow sends one. Remembered while an update is pending
    /// and if the pending ring names the owner, which the published one does not. Others need no help, or may be late
    /// words of a shard that has gone meanwhile.
    #[inline]
    pub fn learn(&mut self, held: Held, owner: ShardId) {
        let steering = self.reader.current();
        if steering.is_pending()
            && steering.newest().owner(held.key, held.port) == owner
            && steering.published().owner(held.key, held.port) != owner
        {
            self.opens.insert(held.key, held.id, owner);
        }
    }

    /// Number of flows that are known to have opened during the pending update.
    pub fn learned(&self) -> usize {
        self.opens.len()
    }
}
