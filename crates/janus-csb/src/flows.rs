//! A shard's flows as an update visits them: how the shard keeps them is behind [`Flows`], and the filter they are shown to keeps those that
//! the newest ring gives to another shard.

use crate::flow::{Diverged, FlowId, Gone, Held};
use crate::ring::BATCH;
use crate::shard::ShardId;
use crate::steering::Layout;

#[cfg(test)]
mod tests;

/// Flows that a shard holds, visited in bounded slices while an update is pending. Half-open and TIME-WAIT records are
/// flows like any other, and so is the stub that redirects a tuple to another shard.
pub trait Flows {
    /// Visits on from `cursor` (0: the beginning), at most about `budget` records, and gives the new cursor, or `None`
    /// at the end. A flow that is in place from the first visit to the last is shown to the filter at least once.
    ///
    /// Where the filter says [`news_only`](DivergenceFilter::news_only) no flow need be shown, and what has [gone](DivergenceFilter::gone_to)
    /// must be.
    ///
    /// A visit from 0 begins anew, whether or not an earlier traversal came to its end. From then until a visit gives
    /// `None`, flows that change their place are kept for [`take_moved`](Flows::take_moved).
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64>;

    /// Shows the filter the flows that changed their place since the last call (half-open → connection → TIME-WAIT, or
    /// moved within a store to where the traversal has been): the mover reports them. Called after every visit. One
    /// that has ended meanwhile must not be shown: it may live again at another shard, which has said so already.
    fn take_moved(&mut self, filter: &mut DivergenceFilter<'_>);

    /// How many flows there are now.
    fn held(&self) -> usize;
}

/// Keeps those flows of a shard that the newest ring gives to another.
#[derive(Debug)]
pub struct DivergenceFilter<'a> {
    layout: &'a Layout,
    me: ShardId,
    stamp: u32,
    news: bool,
    kept: &'a mut Vec<Diverged>,
    gone: &'a mut Vec<Gone>,
}

impl<'a> DivergenceFilter<'a> {
    pub(crate) fn new(
        layout: &'a Layout,
        me: ShardId,
        (stamp, news): (u32, bool),
        kept: &'a mut Vec<Diverged>,
        gone: &'a mut Vec<Gone>,
    ) -> DivergenceFilter<'a> {
        DivergenceFilter {
            layout,
            me,
            stamp,
            news,
            kept,
            gone,
        }
    }

    /// A flow has left this shard for another, at a moment of this [stamp](crate::ShardEnd::stamp), and a stub stands here (rule 14).
    #[cold]
    pub fn gone_to(&mut self, at: ShardId, stamp: u32, held: Held) {
        let home = self.layout.owner(held.key, held.port) == at;
        // Of those at home nothing is known, unless it was known before.
        if !home || self.news {
            let flow = Diverged::new(held.key, held.id, stamp);
            self.gone.push(Gone { at, home, flow });
        }
    }

    /// Whether all that differed is known, but for what has moved since.
    pub fn news_only(&self) -> bool {
        self.news
    }

    /// The shard holds a flow with this key and local port; its name is asked for only if it must be kept.
    #[inline]
    pub fn flow(&mut self, key: u32, port: u16, id: impl FnOnce() -> FlowId) {
        if self.layout.owner(key, port) != self.me {
            self.kept.push(Diverged::new(key, id(), self.stamp));
        }
    }

    /// [`flow`](DivergenceFilter::flow) of all that `batch` holds, which is empty then. Their owners are asked for together.
    pub fn flows<F: Copy>(&mut self, batch: &mut FlowBatch<F>, name: impl Fn(&F) -> FlowId) {
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

    /// [`flow`](DivergenceFilter::flow) of one whose name is known.
    #[inline]
    pub fn held(&mut self, held: Held) {
        self.flow(held.key, held.port, || held.id);
    }
}

/// Up to 64 flows on their way to [`DivergenceFilter::flows`]; `F` is what they are named by.
#[derive(Debug)]
pub struct FlowBatch<F> {
    keys: [u32; BATCH],
    ports: [u16; BATCH],
    flows: [F; BATCH],
    count: usize,
}

impl<F: Copy> FlowBatch<F> {
    /// No flow; `any` stands in the empty places.
    pub fn new(any: F) -> FlowBatch<F> {
        FlowBatch {
            keys: [0; BATCH],
            ports: [0; BATCH],
            flows: [any; BATCH],
            count: 0,
        }
    }

    /// One more flow with this key and local port. True: now it is full, and must be given to the filter before the next.
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
