//! How open a port is to the outside. Several sockets may listen there, and other programs (`succession`).

use std::net::SocketAddr;

use crate::core::Inner;
use crate::{Errno, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It is not this program's, as far as others know.
    Closed,
    /// New connections come only while no other program takes any there.
    Reserve,
    Open,
}

impl Inner {
    /// That of the socket there that is the most open.
    pub(crate) fn standing(&self, port: u16) -> Standing {
        let here = self.listening.iter().filter(|(_, it)| **it == port);
        let most = here.map(|(socket, _)| self.succession.standing(*socket));
        most.max().unwrap_or(Standing::Closed)
    }

    /// Says to the outside what has changed.
    pub(crate) fn stands(&mut self, before: Standing, address: SocketAddr) -> Result<()> {
        let port = address.port();
        let now = self.standing(port);
        match (before, now) {
            (Standing::Closed, Standing::Closed) => return Ok(()),
            (Standing::Closed, _) => self.open_outside(address)?,
            (_, Standing::Closed) => self.seat()?.close_port(port),
            _ => {}
        }
        let reserves = |it| it == Standing::Reserve;
        if now != Standing::Closed && reserves(before) != reserves(now) {
            self.seat()?.reserve_port(port, reserves(now));
        }
        Ok(())
    }

    /// Opens an address to the outside.
    pub(crate) fn open_outside(&mut self, address: SocketAddr) -> Result<()> {
        let opened = self.seat()?.open_port(address);
        opened.map(|_| ()).map_err(|error| {
            let number = error.raw_os_error();
            number.map_or(Errno::EADDRINUSE, Errno)
        })
    }
}
