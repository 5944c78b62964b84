//! Which core has which UDP port: the first to bind it. Polling cores read the bare table; the rest is for binding and for datagrams that
//! came to the wrong core in fragments.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use janus_csb::ShardId;
use janus_io::member::Ports;
use janus_io::steer::SocketPorts;
use janus_tcp::PortBlock;

use crate::inbox::Owner;
use crate::lock::Lock;

/// Ports drawn at random before they are gone through in order.
const DRAWS: usize = 64;
/// Bytes of datagrams on their way to a port's core from others: as many as wait in a socket. A core that is busy for long takes none
/// meanwhile.
const CARRIED_MAX: usize = 256 << 10;

/// One for each runtime.
pub(crate) struct Datagrams {
    ports: Arc<SocketPorts>,
    /// Ours to choose from.
    block: PortBlock,
    /// Where to ask for others.
    member: Option<Ports>,
    owners: Lock<BTreeMap<u16, Owned>>,
}

/// Owner of a port.
struct Owned {
    owner: Owner,
    sockets: usize,
    /// Bytes on their way to the owner from other cores.
    carried: Arc<AtomicUsize>,
}

/// A datagram on its way from core to core.
pub(crate) struct Carried {
    packet: Box<[u8]>,
    /// Bytes in transit to the port's owner; counts this datagram until it is dropped.
    carried: Arc<AtomicUsize>,
}

impl Carried {
    /// Returns its IP packet.
    pub(crate) fn packet(&self) -> &[u8] {
        &self.packet
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.carried.fetch_sub(self.packet.len(), Ordering::Relaxed);
    }
}

/// Destination of a datagram that came to a core in fragments.
pub(crate) enum Way {
    /// Goes to that core.
    To(Owner, Carried),
    /// Dropped: too much is on its way to that core already.
    Full,
    /// Belongs here.
    Stays(Box<[u8]>),
}

impl Datagrams {
    pub(crate) fn new(
        ports: Arc<SocketPorts>,
        block: Option<PortBlock>,
        member: Option<Ports>,
    ) -> Datagrams {
        Datagrams {
            ports,
            block: block.unwrap_or(PortBlock::DYNAMIC),
            member,
            owners: Lock::default(),
        }
    }

    /// Gives `port` to `owner`, which is the core called `core`, unless another core has it. 0: any unused port, chosen by `draw`, so that
    /// strangers cannot foresee it (RFC 5452 section 9.2).
    pub(crate) fn claim(
        &self,
        owner: Owner,
        core: u8,
        ip: IpAddr,
        port: u16,
        draw: impl FnMut() -> u64,
    ) -> io::Result<u16> {
        let mut owners = self.owners.lock();
        let port = match port {
            0 => any_free(&owners, self.block, draw)?,
            port => port,
        };
        if let Some(member) = &self.member
            && !self.block.has(port)
            && !owners.contains_key(&port)
        {
            member.claim(true, SocketAddr::new(ip, port))?;
        }
        let entry = owners.entry(port).or_insert_with(|| Owned {
            owner,
            sockets: 0,
            carried: Arc::default(),
        });
        if entry.owner != owner {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("UDP port {port} is bound on another core"),
            ));
        }
        entry.sockets += 1;
        self.ports.give(port, ShardId(core));
        Ok(port)
    }

    /// Releases one socket of `port`.
    pub(crate) fn release(&self, port: u16) {
        let mut owners = self.owners.lock();
        if let Some(entry) = owners.get_mut(&port) {
            entry.sockets -= 1;
            if entry.sockets == 0 {
                owners.remove(&port);
                self.ports.take(port);
                if let Some(member) = &self.member {
                    member.release(true, port);
                }
            }
        }
    }

    /// Returns the shard that gets what is sent to `port`. That of a port without a socket is the first, which answers.
    pub(crate) fn owner_of(&self, port: u16) -> ShardId {
        self.ports.owner(port).unwrap_or(ShardId(0))
    }

    /// Decides where an IP packet with a datagram for `port` goes, which is at `own` now.
    pub(crate) fn way(&self, own: Owner, port: u16, packet: Box<[u8]>) -> Way {
        let owners = self.owners.lock();
        let Some(entry) = owners.get(&port).filter(|entry| entry.owner != own) else {
            return Way::Stays(packet);
        };
        let before = entry.carried.fetch_add(packet.len(), Ordering::Relaxed);
        let fits = before + packet.len() <= CARRIED_MAX;
        let carried = Carried {
            packet,
            carried: entry.carried.clone(),
        };
        match fits {
            true => Way::To(entry.owner, carried),
            false => Way::Full,
        }
    }
}

fn any_free(
    owners: &BTreeMap<u16, Owned>,
    block: PortBlock,
    mut draw: impl FnMut() -> u64,
) -> io::Result<u16> {
    let drawn = || Some(block.port(draw() as u32));
    let in_order = (0..u32::from(block.count)).map(|number| block.port(number));
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
    use janus_tcp::DYNAMIC_FIRST;

    const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

    fn owner(number: u16) -> Owner {
        Owner { number, life: 1 }
    }

    #[test]
    fn the_first_core_has_the_port_until_its_last_socket_is_gone() {
        let table = Datagrams::new(Arc::default(), None, None);
        let claim = |number: u16, port| table.claim(owner(number), number as u8, ANY, port, || 7);
        assert_eq!(claim(1, 53).unwrap(), 53);
        assert_eq!(claim(1, 53).unwrap(), 53);
        assert_eq!(claim(2, 53).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        table.release(53);
        assert!(claim(2, 53).is_err());
        let way = |from: u16| table.way(owner(from), 53, [7; 16].into());
        assert!(
            matches!(way(2), Way::To(to, carried) if to == owner(1) && carried.packet() == [7; 16])
        );
        assert!(matches!(way(1), Way::Stays(_)));
        table.release(53);
        assert!(matches!(way(2), Way::Stays(_)));
        assert_eq!(table.ports.owner(53), None);
        assert_eq!(claim(2, 53).unwrap(), 53);
        assert_eq!(table.ports.owner(53), Some(ShardId(2)));
    }

    #[test]
    fn no_more_is_under_way_than_there_is_room_for() {
        let table = Datagrams::new(Arc::default(), None, None);
        for (number, port) in [(1, 53), (2, 54)] {
            table
                .claim(owner(number), number as u8, ANY, port, || 7)
                .unwrap();
        }
        let carried = |port| match table.way(owner(3), port, vec![1; 65_000].into()) {
            Way::To(_, carried) => Some(carried),
            _ => None,
        };
        let under_way: Vec<Carried> = std::iter::from_fn(|| carried(53)).collect();
        assert_eq!(under_way.len(), CARRIED_MAX / 65_000);
        assert!(carried(54).is_some(), "each port has its own");
        // A refused datagram takes no room.
        assert!(carried(53).is_none());
        assert!(matches!(
            table.way(owner(3), 53, [0; 16].into()),
            Way::To(..)
        ));
        drop(under_way);
        assert!(carried(53).is_some());
    }

    #[test]
    fn any_port_is_a_drawn_one_or_the_first_that_is_free() {
        let table = Datagrams::new(Arc::default(), None, None);
        let claim = |drawn| table.claim(owner(1), 0, ANY, 0, || drawn);
        assert_eq!(claim(1_000).unwrap(), DYNAMIC_FIRST + 1_000);
        // The same numbers again: the drawn ones are taken.
        assert_eq!(claim(1_000).unwrap(), DYNAMIC_FIRST);
        assert_eq!(claim(1_000).unwrap(), DYNAMIC_FIRST + 1);
    }
}
