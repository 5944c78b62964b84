//! The steering: what I/O cores look up and shards walk over, one layout (ring and port table) per epoch, a short
//! history of them. A steering never changes once made; `publish.rs` replaces it as a whole.

use std::sync::Arc;

use crate::epoch::{Epoch, Tag};
use crate::ports::PortTable;
use crate::ring::Ring;
use crate::shard::ShardId;

/// Layouts kept for the walk, the newest included. A packet whose tag is older than all of them is dropped and
/// counted: loss is safe, a jump over an unknown ring is not.
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

    /// Who listens where in this layout.
    pub fn ports(&self) -> &PortTable {
        &self.ports
    }

    /// The owner of a flow with this key and local port: among the shards that listen on the port, or among all when
    /// nobody does (a port of our own outgoing connections, or a closed one: somebody must answer the reset). A shard
    /// without a point owns nothing even where it alone listens; that is how a shard leaves.
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

/// A change to the newest layout, in the making.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(crate) ring: Arc<Ring>,
    pub(crate) ports: Arc<PortTable>,
}

impl Draft {
    /// Uses another ring.
    pub fn set_ring(&mut self, ring: Ring) {
        self.ring = Arc::new(ring);
    }

    /// `shard` listens on `port` from this epoch on; says whether that is new.
    pub fn listen(&mut self, port: u16, shard: ShardId) -> bool {
        Arc::make_mut(&mut self.ports).insert(port, shard)
    }

    /// `shard` no longer listens on `port` from this epoch on; says whether it did.
    pub fn unlisten(&mut self, port: u16, shard: ShardId) -> bool {
        Arc::make_mut(&mut self.ports).remove(port, shard)
    }
}

/// The layouts of the last epochs: which one I/O cores look up in, and which is the newest a shard walks to.
#[derive(Clone, Debug)]
pub struct Steering {
    /// Oldest first, epochs without a gap, never empty, at most [`HISTORY`].
    history: Vec<Layout>,
    /// Where in `history` the published layout is; those after it are pending.
    published: usize,
}

impl Steering {
    /// The first steering: epoch 0, nobody listens.
    pub fn new(ring: Ring) -> Steering {
        let first = Layout::new(Epoch::default(), Arc::new(ring), Arc::new(PortTable::new()));
        Steering {
            history: vec![first],
            published: 0,
        }
    }

    /// Where an I/O core sends a packet with this key and local port, and the tag it gives it.
    #[inline]
    pub fn look_up(&self, key: u32, port: u16) -> (ShardId, Tag) {
        let layout = self.published();
        (layout.owner(key, port), Tag::new(layout.epoch, false))
    }

    /// [`look_up`](Steering::look_up) for a batch; all slices have the same length, and all packets the same tag.
    pub fn look_up_batch(&self, keys: &[u32], ports: &[u16], out: &mut [ShardId]) -> Tag {
        let layout = self.published();
        layout.owners(keys, ports, out);
        Tag::new(layout.epoch, false)
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
        let Layout {
            epoch: _,
            ring,
            ports,
            partial: _,
        } = self.newest();
        Draft {
            ring: ring.clone(),
            ports: ports.clone(),
        }
    }

    /// A steering with one more, pending, layout.
    pub(crate) fn proposed(&self, draft: Draft) -> Steering {
        let mut next = self.clone();
        next.history.push(Layout::new(
            self.newest().epoch.next(),
            draft.ring,
            draft.ports,
        ));
        if next.history.len() > HISTORY {
            next.history.remove(0);
            // What falls out may be the published one: then the oldest kept takes its place. Only a control plane
            // that goes on proposing without publishing gets here.
            next.published = next.published.saturating_sub(1);
        }
        next
    }

    /// A steering whose newest layout is published.
    pub(crate) fn swapped(&self) -> Steering {
        Steering {
            history: self.history.clone(),
            published: self.history.len() - 1,
        }
    }
}
