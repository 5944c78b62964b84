//! Owners of UDP ports: a table that polling cores read for each datagram, and that the control plane writes when a socket is bound or
//! closed. A datagram in flight while that happens goes to the old or to the new owner; a shard without a socket for it says so.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::debug::opaque;

use janus_csb::ShardId;

/// One more than the number of the shard; 0: no owner.
type Entry = AtomicU8;

/// UDP port → the shard whose sockets have it.
pub struct SocketPorts {
    owners: Box<[Entry]>,
}

opaque!(SocketPorts);

impl SocketPorts {
    /// Gives the port to `shard`.
    ///
    /// # Panics
    /// For shard 255, which there is none of.
    pub fn give(&self, port: u16, shard: ShardId) {
        let entry = shard.0.checked_add(1).expect("a shard below 255");
        self.owners[usize::from(port)].store(entry, Ordering::Relaxed);
    }

    /// Takes the port from its owner.
    pub fn take(&self, port: u16) {
        self.owners[usize::from(port)].store(0, Ordering::Relaxed);
    }

    /// Returns the shard that has the port, if one has.
    #[inline]
    #[must_use]
    pub fn owner(&self, port: u16) -> Option<ShardId> {
        let entry = self.owners[usize::from(port)].load(Ordering::Relaxed);
        entry.checked_sub(1).map(ShardId)
    }
}

impl Default for SocketPorts {
    fn default() -> Self {
        Self {
            owners: (0..=u16::MAX).map(|_| Entry::new(0)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_one_owner_or_none() {
        let ports = SocketPorts::default();
        assert_eq!(ports.owner(53), None);
        ports.give(53, ShardId(0));
        ports.give(u16::MAX, ShardId(254));
        assert_eq!(ports.owner(53), Some(ShardId(0)));
        assert_eq!(ports.owner(u16::MAX), Some(ShardId(254)));
        ports.take(53);
        assert_eq!(ports.owner(53), None);
    }
}
