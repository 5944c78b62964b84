//! Opening from a port that the stack chooses: not every one leads back here. Packets of the connection come to the shard
//! that the balancer gives its tuple to, so the balancer is asked about each port before it is used (rule 10 of its
//! protocol).

use std::net::{IpAddr, SocketAddr};

use janus_wire::FlowKey;

use crate::error::Error;
use crate::profile::SocketOptions;
use crate::stack::{ConnId, Stack};
use crate::time::Instant;

/// Most ports that a search looks at: there are no more.
const TRIES_MAX: usize = 1 << 16;

impl Stack {
    /// Opens a connection from the first of `ports` for which `leads_here` says that its packets come to this stack, and
    /// which is free. An unspecified `local` means the interface's own address towards the peer.
    ///
    /// [`Error::NoSourcePort`] when no port leads here, [`Error::AddrInUse`] when those that do are all taken.
    pub fn connect_from(
        &mut self,
        now: Instant,
        local: IpAddr,
        remote: SocketAddr,
        options: &SocketOptions,
        ports: impl IntoIterator<Item = u16>,
        mut leads_here: impl FnMut(&FlowKey) -> bool,
    ) -> Result<ConnId, Error> {
        let local = self.own_address(local, remote.ip())?;
        let mut error = Error::NoSourcePort;
        for port in ports.into_iter().take(TRIES_MAX) {
            let local = SocketAddr::new(local, port);
            let flow = FlowKey::new(remote, local).ok_or(Error::InvalidAddress)?;
            if !leads_here(&flow) {
                self.counters.ports_elsewhere += 1;
                continue;
            }
            match self.connect_with(now, local, remote, options) {
                Err(Error::AddrInUse) => error = Error::AddrInUse,
                outcome => return outcome,
            }
        }
        Err(error)
    }

    /// The address of ours that `local` means to a peer at `remote`.
    pub(crate) fn own_address(&self, local: IpAddr, remote: IpAddr) -> Result<IpAddr, Error> {
        if local.is_unspecified() {
            let own = self.interface.source_for(remote);
            own.ok_or(Error::AddrNotAvailable)
        } else if self.interface.is_ours(local) {
            Ok(local)
        } else {
            Err(Error::AddrNotAvailable)
        }
    }
}

#[cfg(test)]
mod tests;
