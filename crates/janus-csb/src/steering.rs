//! The steering: what I/O cores look up and shards walk over, one layout (ring and port table) per epoch, a short
//! history of them. A steering never changes once made; `publish.rs` replaces it as a whole.

use std::sync::Arc;

use crate::draft::Draft;
use crate::epoch::{Epoch, Tag};
use crate::exceptions::Exceptions;
use crate::flow::FlowId;
use crate::ports::PortTable;
use crate::ring::{BATCH, Ring, RingError};
use crate::shard::ShardId;

/// Most layouts kept for the walk, the newest included. Between two updates there is one; during an update the
/// published and the pending one, and those it has superseded. A packet whose tag is older than all of them is dropped
/// and counted: loss is safe, a jump over an unknown ring is not.
pub const HISTORY: usize = 8;

/// `H_e`: who owns a key in one epoch. The port table is part of it, because who listens decides who owns.
#[derive(Clone, Debug)]
pub struct Layout {
    epoch: Epoch,
    ring: Arc<Ring>,
    ports: Arc<PortTable>,
    /// A port may be bound by some shards only; false while every listed port has all of the ring's shards, and then
    /// no lookup needs the port table.
    partial: bool,
}

impl Layout {
    fn new(epoch: Epoch, ring: Arc<Ring>, ports: Arc<PortTable>) -> Layout {
        let partial = ports
            .iter()
            .any(|(_, set)| !set.contains_all(ring.members()));
        Layout {
            epoch,
            ring,
            ports,
            partial,
        }
    }

    /// The epoch of this layout.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The ring of this layout.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Returns the shards that listen on each port in this layout.
    pub fn ports(&self) -> &PortTable {
        &self.ports
    }

    /// The owner of a flow with this key and local port: among the shards that listen on the port, or among all when
    /// none does (a port of our own outgoing connections, or a closed one: some shard must answer with the reset). A
    /// shard without a point owns nothing even where it alone listens; that is how a shard leaves.
    #[inline]
    pub fn owner(&self, key: u32, port: u16) -> ShardId {
        if !self.partial {
            return self.ring.owner(key);
        }
        self.owner_partial(key, port)
    }

    fn owner_partial(&self, key: u32, port: u16) -> ShardId {
        let among = self
            .ports
            .get(port)
            .and_then(|set| self.ring.owner_among(key, set));
        among.unwrap_or_else(|| self.ring.owner(key))
    }

    /// The owners of many flows; all slices have the same length.
    pub fn owners(&self, keys: &[u32], ports: &[u16], out: &mut [ShardId]) {
        self.ring.owners(keys, out);
        self.correct_partial(keys, ports, out);
    }

    /// Corrects the ring's owners on ports where some shards only listen.
    #[inline]
    fn correct_partial(&self, keys: &[u32], ports: &[u16], out: &mut [ShardId]) {
        if self.partial {
            for ((&key, &port), owner) in keys.iter().zip(ports).zip(out) {
                if let Some(among) = self
                    .ports
                    .get(port)
                    .and_then(|set| self.ring.owner_among(key, set))
                {
                    *owner = among;
                }
            }
        }
    }
}

/// The layouts of the last epochs: which one I/O cores look up in, and which is the newest a shard walks to.
#[derive(Clone)]
pub struct Steering {
    /// Oldest first, epochs without a gap, never empty, at most [`HISTORY`].
    history: Vec<Layout>,
    /// Where in `history` the published layout is; those after it are pending.
    published: usize,
    /// Exceptions to the published layout; `None` when no flow differs.
    exceptions: Option<Arc<Exceptions>>,
    /// The traversal that shards are to make while a layout is pending; each has another number.
    pass: u64,
    /// It is for what has moved since the last one.
    news: bool,
    /// The last round of draining that shards are asked for; rounds are numbered through, from 1.
    round: u32,
}

impl Steering {
    /// Returns the first steering: epoch 0, without listeners.
    pub fn new(ring: Ring) -> Steering {
        let first = Layout::new(Epoch::default(), Arc::new(ring), Arc::new(PortTable::new()));
        Steering {
            history: vec![first],
            published: 0,
            exceptions: None,
            pass: 0,
            news: false,
            round: 0,
        }
    }

    /// Returns the published ring's answer for this key and local port, and nothing else. Right for a packet without a
    /// flow; where connections may live [`look_up_flow`](Steering::look_up_flow) must be asked.
    #[inline]
    pub fn look_up(&self, key: u32, port: u16) -> (ShardId, Tag) {
        let layout = self.published();
        (layout.owner(key, port), Tag::new(layout.epoch, false))
    }

    /// Where a packet of this flow goes, and the tag it carries. `id` is asked for only under a contested key.
    #[inline]
    pub fn look_up_flow(&self, key: u32, port: u16, id: impl FnOnce() -> FlowId) -> (ShardId, Tag) {
        let layout = self.published();
        if let Some(exceptions) = &self.exceptions
            && layout.ring.is_marked(key)
            && let Some(shard) = exceptions.shard(key, id)
        {
            return (shard, Tag::new(layout.epoch, true));
        }
        (layout.owner(key, port), Tag::new(layout.epoch, false))
    }

    /// [`look_up`](Steering::look_up) for a batch; all slices have the same length, and all packets the same tag.
    pub fn look_up_batch(&self, keys: &[u32], ports: &[u16], out: &mut [ShardId]) -> Tag {
        let layout = self.published();
        layout.owners(keys, ports, out);
        Tag::new(layout.epoch, false)
    }

    /// [`look_up_flow`](Steering::look_up_flow) for at most 64 packets: a bit for each whose owner is a hint.
    #[inline]
    pub(crate) fn look_up_flows(
        &self,
        keys: &[u32],
        ports: &[u16],
        id_of: &mut impl FnMut(usize) -> FlowId,
        out: &mut [ShardId],
    ) -> u64 {
        let layout = self.published();
        let Some(exceptions) = &self.exceptions else {
            layout.owners(keys, ports, out);
            return 0;
        };
        let mut marked = [0; BATCH];
        let marked = layout.ring.owners_and_marked(keys, out, &mut marked);
        layout.correct_partial(keys, ports, out);
        if marked.is_empty() {
            return 0;
        }
        exceptions.answer(keys, marked, id_of, out)
    }

    /// The layout I/O cores look up in.
    #[inline]
    pub fn published(&self) -> &Layout {
        &self.history[self.published]
    }

    /// The newest layout, pending or published: a shard's view.
    #[inline]
    pub fn newest(&self) -> &Layout {
        &self.history[self.history.len() - 1]
    }

    /// Whether there are layouts that shards walk to and I/O cores do not look up in yet.
    pub fn is_pending(&self) -> bool {
        self.published + 1 < self.history.len()
    }

    /// How many layouts are kept.
    pub fn history_len(&self) -> usize {
        self.history.len()
    }

    /// The layouts after `epoch` up to the newest, in order; `None` when the first of them is no longer known.
    #[inline]
    pub(crate) fn after(&self, epoch: Epoch) -> Option<&[Layout]> {
        // Negative when the tag is ahead of this view: nothing to walk over.
        let missing = usize::try_from(self.newest().epoch.since(epoch)).unwrap_or(0);
        Some(&self.history[self.history.len().checked_sub(missing)?..])
    }

    pub(crate) fn draft(&self) -> Draft {
        let newest = self.newest();
        Draft::new(newest.ring.clone(), newest.ports.clone())
    }

    /// A draft that equals the published layout.
    pub(crate) fn draft_of_published(&self) -> Draft {
        let published = self.published();
        Draft::new(published.ring.clone(), published.ports.clone())
    }

    /// The number of the traversal asked for, while one is.
    pub(crate) fn pass(&self) -> Option<u64> {
        self.is_pending().then_some(self.pass)
    }

    /// Whether shards tell only of what has moved.
    pub(crate) fn tells_news(&self) -> bool {
        self.news
    }

    /// The last round of draining asked for.
    pub(crate) fn round(&self) -> u32 {
        self.round
    }

    pub(crate) fn exceptions(&self) -> Option<&Exceptions> {
        self.exceptions.as_deref()
    }

    /// Whether every ring from the published to the newest, and what I/O cores look up, names `shard`.
    pub(crate) fn all_name(&self, shard: ShardId, key: u32, port: u16, id: FlowId) -> bool {
        self.look_up_flow(key, port, || id).0 == shard
            && self.history[self.published..]
                .iter()
                .all(|layout| layout.owner(key, port) == shard)
    }

    /// A steering with one more, pending, layout, and a traversal of its own.
    pub(crate) fn proposed(&self, draft: Draft) -> Result<Steering, RingError> {
        let (ring, ports) = draft.finish()?;
        let mut next = self.clone();
        next.history
            .push(Layout::new(self.newest().epoch.next(), ring, ports));
        if next.history.len() > HISTORY {
            next.history.remove(0);
            // The layout that falls out may be the published one: then the oldest kept takes its place. Only a control
            // plane that goes on proposing without publishing gets here.
            next.published = next.published.saturating_sub(1);
        }
        (next.pass, next.news) = (next.pass + 1, false);
        Ok(next)
    }

    /// This steering, whose newest layout is that before it: what differed differs still, and shards tell of moves.
    pub(crate) fn for_news(self) -> Steering {
        Steering { news: true, ..self }
    }

    /// Returns this steering with one more traversal asked of every shard.
    pub(crate) fn passed_again(&self) -> Steering {
        Steering {
            pass: self.pass + 1,
            news: false,
            ..self.clone()
        }
    }

    /// A steering whose newest layout is published, with these exceptions; `keys` are all that differ.
    pub(crate) fn swapped(&self, exceptions: Option<Exceptions>, keys: &[u32]) -> Steering {
        let mut next = self.clone();
        next.published = next.history.len() - 1;
        let layout = &mut next.history[next.published];
        if exceptions.is_some() || layout.ring.marks().0 > 0 {
            layout.ring = Arc::new(layout.ring.marked(keys));
        }
        next.exceptions = exceptions.map(Arc::new);
        next
    }

    /// A steering whose newest layout is published, and what differed from the one before differs from it.
    pub(crate) fn swapped_as_it_is(&self) -> Steering {
        Steering {
            published: self.history.len() - 1,
            ..self.clone()
        }
    }

    /// Returns this steering with one more round of draining asked of the shards.
    pub(crate) fn drained_again(&self) -> Steering {
        Steering {
            round: self.round + 1,
            ..self.clone()
        }
    }

    /// Returns this steering without the layouts before the published one: no packet refers to them any more.
    pub(crate) fn trimmed(&self) -> Steering {
        Steering {
            history: self.history[self.published..].to_vec(),
            published: 0,
            ..self.clone()
        }
    }
}

impl core::fmt::Debug for Steering {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Steering")
            .field("history", &self.history)
            .field("published", &self.published().epoch)
            .field("exceptions", &self.exceptions.is_some())
            .field("pass", &self.pass)
            .field("round", &self.round)
            .finish()
    }
}
