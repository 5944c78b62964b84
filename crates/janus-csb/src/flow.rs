//! The balancer's names for a flow: its key, its local port, its name; and a flow that stays where the ring no longer says. Knows no ring.

use crate::shard::ShardId;

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

/// A flow that stays where it is while the ring says otherwise. The name in halves, which packs it into 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Diverged {
    id: [u64; 2],
    pub(crate) key: u32,
    /// Which slice saw it, of all shards' slices in turn. Of two reports of one flow the later one is of its later
    /// life: a flow that ends at one shard and is opened again at another is seen there in a later slice.
    stamp: u32,
}

/// A flow that has left a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    /// Where it is.
    pub(crate) at: ShardId,
    /// The newest ring gives it to that shard.
    pub(crate) home: bool,
    pub(crate) flow: Diverged,
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

    /// By what reports are sorted: the key, and the name among those of one key.
    pub(crate) fn place(&self) -> (u32, [u64; 2]) {
        (self.key, self.id)
    }

    pub(crate) fn id(&self) -> FlowId {
        FlowId(u128::from(self.id[0]) | u128::from(self.id[1]) << 64)
    }
}
