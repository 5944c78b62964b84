//! Which core has which UDP port: whoever bound it first. Polling cores read the bare table; the rest is for binding and for
//! datagrams that came to the wrong core in pieces.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use janus_csb::ShardId;
use janus_io::steer::SocketPorts;

use crate::control::DYNAMIC_FIRST;
use crate::shard::here::Owner;

/// Ports drawn at random before they are gone through in order.
const DRAWS: usize = 64;

/// One for each runtime.
pub(crate) struct Datagrams {
    ports: Arc<SocketPorts>,
    /// Whose a port is, and with how many sockets.
    owners: Mutex<BTreeMap<u16, (Owner, usize)>>,
}

impl Datagrams {
    pub(crate) fn new(ports: Arc<SocketPorts>) -> Datagrams {
        Datagrams {
            ports,
            owners: Mutex::default(),
        }
    }

    /// `port` is `owner`'s, which is the core called `core`, unless another core has it. 0: any that nobody has, chosen by
    /// `draw`, so that strangers cannot foresee it (RFC 5452 section 9.2).
    pub(crate) fn claim(
        &self,
        owner: Owner,
        core: u8,
        port: u16,
        draw: impl FnMut() -> u64,
    ) -> io::Result<u16> {
        let mut owners = self.lock();
        let port = match port {
            0 => any_free(&owners, draw)?,
            port => port,
        };
        let entry = owners.entry(port).or_insert((owner, 0));
        if entry.0 != owner {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("UDP port {port} is bound on another core"),
            ));
        }
        entry.1 += 1;
        self.ports.give(port, ShardId(core));
        Ok(port)
    }

    /// One socket of `port` is gone.
    pub(crate) fn release(&self, port: u16) {
        let mut owners = self.lock();
        if let Some(entry) = owners.get_mut(&port) {
            entry.1 -= 1;
            if entry.1 == 0 {
                owners.remove(&port);
                self.ports.take(port);
            }
        }
    }

    /// Whose `port` is.
    pub(crate) fn owner(&self, port: u16) -> Option<Owner> {
        self.lock().get(&port).map(|(owner, _)| *owner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, (Owner, usize)>> {
        // Every change is whole.
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn any_free(
    owners: &BTreeMap<u16, (Owner, usize)>,
    mut draw: impl FnMut() -> u64,
) -> io::Result<u16> {
    let span = u64::from(u16::MAX - DYNAMIC_FIRST) + 1;
    let drawn = || Some(DYNAMIC_FIRST + (draw() % span) as u16);
    let in_order = DYNAMIC_FIRST..=u16::MAX;
    std::iter::from_fn(drawn)
        .take(DRAWS)
        .chain(in_order)
        .find(|port| !owners.contains_key(port))
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::AddrInUse,
                "every dynamic UDP port is bound: close sockets first",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u16) -> Owner {
        Owner { number, life: 1 }
    }

    #[test]
    fn the_first_core_has_the_port_until_its_last_socket_is_gone() {
        let table = Datagrams::new(Arc::default());
        let claim = |number: u16, port| table.claim(owner(number), number as u8, port, || 7);
        assert_eq!(claim(1, 53).unwrap(), 53);
        assert_eq!(claim(1, 53).unwrap(), 53);
        assert_eq!(claim(2, 53).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        table.release(53);
        assert!(claim(2, 53).is_err());
        assert_eq!(table.owner(53), Some(owner(1)));
        table.release(53);
        assert_eq!(table.ports.owner(53), None);
        assert_eq!(claim(2, 53).unwrap(), 53);
        assert_eq!(table.ports.owner(53), Some(ShardId(2)));
    }

    #[test]
    fn any_port_is_a_drawn_one_or_the_first_that_is_free() {
        let table = Datagrams::new(Arc::default());
        let claim = |drawn| table.claim(owner(1), 0, 0, || drawn);
        assert_eq!(claim(1_000).unwrap(), DYNAMIC_FIRST + 1_000);
        // The same numbers again: the drawn ones are taken.
        assert_eq!(claim(1_000).unwrap(), DYNAMIC_FIRST);
        assert_eq!(claim(1_000).unwrap(), DYNAMIC_FIRST + 1);
    }
}
