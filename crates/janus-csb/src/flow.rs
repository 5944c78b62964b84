//! The balancer's view of a flow: its key, its local port, its name. How a shard keeps flows is behind [`Flows`].

use crate::ring::BATCH;
use crate::shard::ShardId;
use crate::steering::Layout;

#[cfg(test)]
mod tests;

/// The name of a flow, equal for equal tuples and for no others that live at the same time: an IPv4 tuple as it is
/// (96 bits), an IPv6 tuple as a 128-bit keyed hash. Needed only where several flows have one key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FlowId(pub u128);

/// A flow that a shard holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its place on the circle of keys: a hash of its tuple, all bits of which spread.
    pub key: u32,
    /// Its local port.
    pub port: u16,
    /// Its name.
    pub id: FlowId,
}

/// Flows that a shard holds, visited in bounded slices while an update is pending. Half-open and TIME-WAIT records are
/// flows like any other, and so is the stub that redirects a tuple to another shard.
pub trait Flows {
    /// Visits on from `cursor` (0: the beginning), at most about `budget` records, and gives the new cursor, or `None`
    /// at the end. A flow that is in place from the first visit to the last is shown to the sieve at least once.
    ///
    /// A visit from 0 begins anew, whether or not an earlier traversal came to its end. From then until a visit gives
    /// `None`, flows that change their place are kept for [`take_moved`](Flows::take_moved).
    fn visit(&mut self, cursor: u64, budget: usize, sieve: &mut Sieve<'_>) -> Option<u64>;

    /// Shows the sieve the flows that changed their place since the last call (half-open → connection → TIME-WAIT, or
    /// moved within a store to where the traversal has been): the mover reports them. Called after every visit. One
    /// that has ended meanwhile must not be shown: it may live again at another shard, which has said so already.
    fn take_moved(&mut self, sieve: &mut Sieve<'_>);

    /// How many flows there are now.
    fn held(&self) -> usize;
}

/// Keeps those flows of a shard that the newest ring gives to another.
pub struct Sieve<'a> {
    layout: &'a Layout,
    me: ShardId,
    stamp: u32,
    kept: &'a mut Vec<Diverged>,
}

/// A flow that stays where it is while the ring says otherwise. The name in halves, which packs it into 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Diverged {
    id: [u64; 2],
    pub(crate) key: u32,
    /// Which slice saw it, of all shards' slices in turn. Of two reports of one flow the later one is of its later
    /// life: a flow that ends at one shard and is opened again at another is seen there in a later slice.
    stamp: u32,
}

impl Diverged {
    pub(crate) fn new(key: u32, id: FlowId, stamp: u32) -> Diverged {
        Diverged {
            id: [id.0 as u64, (id.0 >> 64) as u64],
            key,
            stamp,
        }
    }

    /// Whether this was seen after `other`. Stamps wrap; those of one update are close together.
    pub(crate) fn is_later(&self, other: &Diverged) -> bool {
        (self.stamp.wrapping_sub(other.stamp) as i32) > 0
    }

    pub(crate) fn id(&self) -> FlowId {
        FlowId(u128::from(self.id[0]) | u128::from(self.id[1]) << 64)
    }
}

impl<'a> Sieve<'a> {
    pub(crate) fn new(
        layout: &'a Layout,
        me: ShardId,
        stamp: u32,
        kept: &'a mut Vec<Diverged>,
    ) -> Sieve<'a> {
        Sieve {
            layout,
            me,
            stamp,
            kept,
        }
    }

    /// The shard holds a flow with this key and local port; its name is asked for only if it must be kept.
    #[inline]
    pub fn flow(&mut self, key: u32, port: u16, id: impl FnOnce() -> FlowId) {
        if self.layout.owner(key, port) != self.me {
            self.kept.push(Diverged::new(key, id(), self.stamp));
        }
    }

    /// [`flow`](Sieve::flow) of all that `batch` holds, which is empty then. Their owners are asked for together.
    pub fn sift<F: Copy>(&mut self, batch: &mut SieveBatch<F>, name: impl Fn(&F) -> FlowId) {
        let count = std::mem::take(&mut batch.count);
        let (keys, ports) = (&batch.keys[..count], &batch.ports[..count]);
        let mut owners = [self.me; BATCH];
        self.layout.owners(keys, ports, &mut owners[..count]);
        // Which of them are another's is as random as the keys, so they are noted without a branch.
        let mut others = [0u8; BATCH];
        let mut found = 0;
        for (i, owner) in owners[..count].iter().enumerate() {
            others[found] = i as u8;
            found += usize::from(*owner != self.me);
        }
        for &i in &others[..found] {
            let i = usize::from(i);
            let id = name(&batch.flows[i]);
            self.kept.push(Diverged::new(keys[i], id, self.stamp));
        }
    }

    /// [`flow`](Sieve::flow) of one whose name is known.
    #[inline]
    pub fn held(&mut self, held: Held) {
        self.flow(held.key, held.port, || held.id);
    }
}

/// Up to 64 flows on their way to [`Sieve::sift`]; `F` is what they are named by.
pub struct SieveBatch<F> {
    keys: [u32; BATCH],
    ports: [u16; BATCH],
    flows: [F; BATCH],
    count: usize,
}

impl<F: Copy> SieveBatch<F> {
    /// No flow; `any` stands in the empty places.
    pub fn new(any: F) -> SieveBatch<F> {
        SieveBatch {
            keys: [0; BATCH],
            ports: [0; BATCH],
            flows: [any; BATCH],
            count: 0,
        }
    }

    /// One more flow with this key and local port. True: now it is full, and must be sifted before the next.
    ///
    /// # Panics
    /// When it was full.
    #[inline]
    #[must_use]
    pub fn add(&mut self, key: u32, port: u16, flow: F) -> bool {
        let at = self.count;
        (self.keys[at], self.ports[at], self.flows[at]) = (key, port, flow);
        self.count += 1;
        self.count == BATCH
    }
}
