//! What a port that begins to serve means outside the table: one new steering for all cores, and a door in the portal.

use std::io;
use std::net::SocketAddr;

use janus_csb::{Publisher, ShardId};

use super::Front;
use crate::portal::Portal;

/// The steering's writer, and the portal where the runtime has one.
pub(crate) struct Gate {
    pub(crate) publisher: Publisher,
    pub(crate) portal: Option<Portal>,
}

impl Front for Gate {
    fn open(&mut self, address: SocketAddr) -> io::Result<u16> {
        match &mut self.portal {
            Some(portal) => portal.open(address),
            None => Ok(0),
        }
    }

    fn serve(&mut self, port: u16, cores: &[u8]) {
        let before = self
            .publisher
            .current()
            .newest()
            .ports()
            .get(port)
            .copied()
            .unwrap_or_default();
        // One update for all cores: an owner must not change with each listener that is entered.
        let updated = self.publisher.update(|draft| {
            for &core in cores {
                draft.listen(port, ShardId(core));
            }
            for gone in before.iter().filter(|shard| !cores.contains(&shard.0)) {
                draft.unlisten(port, gone);
            }
        });
        debug_assert!(updated.is_ok(), "a ring that is not changed is not refused");
        // Clients come in only now: whatever they send is looked up in the new steering.
        if let Some(portal) = &mut self.portal {
            portal.serve(port);
        }
    }

    /// The steering stays as it is: connections of the port may live on, and their owner must not change.
    fn close(&mut self, port: u16) {
        if let Some(portal) = &mut self.portal {
            portal.close(port);
        }
    }
}
