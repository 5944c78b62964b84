//! Opening from a port that the stack chooses: strangers must not foresee it, and not every one leads back here. Packets of the connection come to the shard
//! that the balancer gives its tuple to, so the balancer is asked about each port before it is used (rule 10 of its
//! protocol).

use std::net::{IpAddr, SocketAddr};

use janus_wire::FlowKey;

use crate::error::Error;
use crate::profile::SocketOptions;
use crate::stack::{ConnId, Stack};
use crate::time::Instant;

/// First of the ports that are the stack's to choose (RFC 6335 section 6: the dynamic range). It ends with the last port.
pub const DYNAMIC_FIRST: u16 = 49_152;
/// How many those are: a power of two, so that a walk passes all of them.
const DYNAMIC_PORTS: u32 = (1 << 16) - DYNAMIC_FIRST as u32;

const _: () = assert!(DYNAMIC_PORTS.is_power_of_two());

impl Stack {
    /// Opens a connection from the first dynamic port for which `leads_here` says that its packets come to this stack, and
    /// which is free. The order in which ports are tried is the destination's own (RFC 6056 section 3.3.4): who sees
    /// those of connections to itself cannot foresee others'. An unspecified `local` means the interface's own address
    /// towards the peer.
    ///
    /// [`Error::NoSourcePort`] when no port leads here, [`Error::AddrInUse`] when those that do are all taken.
    pub fn connect_from(
        &mut self,
        now: Instant,
        local: IpAddr,
        remote: SocketAddr,
        options: &SocketOptions,
        mut leads_here: impl FnMut(&FlowKey) -> bool,
    ) -> Result<ConnId, Error> {
        let local = self.own_address(local, remote.ip())?;
        let walk = (self.host.source_ports).walk(local, remote.ip(), remote.port(), now);
        let mut error = Error::NoSourcePort;
        for step in 0..DYNAMIC_PORTS {
            let port = DYNAMIC_FIRST + (walk.number(step) % DYNAMIC_PORTS) as u16;
            let local = SocketAddr::new(local, port);
            let flow = FlowKey::new(remote, local).ok_or(Error::InvalidAddress)?;
            if !leads_here(&flow) {
                self.counters.ports_elsewhere += 1;
                continue;
            }
            match self.connect_with(now, local, remote, options) {
                Err(Error::AddrInUse) => error = Error::AddrInUse,
                outcome => {
                    self.host.source_ports.use_up(&walk, step + 1);
                    return outcome;
                }
            }
        }
        Err(error)
    }

    /// The address of ours that `local` means to a peer at `remote`.
    pub(crate) fn own_address(&self, local: IpAddr, remote: IpAddr) -> Result<IpAddr, Error> {
        if local.is_unspecified() {
            let own = self.rules.interface.source_for(remote);
            own.ok_or(Error::AddrNotAvailable)
        } else if self.rules.interface.is_ours(local) {
            Ok(local)
        } else {
            Err(Error::AddrNotAvailable)
        }
    }
}

#[cfg(test)]
mod tests;
