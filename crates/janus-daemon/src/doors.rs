//! Where the portal is the device: for each port of TCP at which a member listens the kernel's listeners by which clients come.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use janus::Portal;
use rustix::io::Errno;

use crate::ports::Ports;

pub(crate) struct Doors {
    portal: Portal,
    open: BTreeSet<u16>,
}

impl Doors {
    pub(crate) fn new(portal: Portal) -> Doors {
        let open = BTreeSet::new();
        Doors { portal, open }
    }

    /// Lets clients of a port in, as far as it is bound at this address.
    pub(crate) fn open(&mut self, ip: IpAddr, port: u16) -> io::Result<()> {
        self.portal.open(SocketAddr::new(ip, port))?;
        self.portal.serve(port);
        self.open.insert(port);
        Ok(())
    }

    /// Closes those at which no member listens. Connections go on.
    pub(crate) fn close_unheard(&mut self, ports: &Ports) {
        self.open.retain(|port| {
            let is_heard = ports.is_heard(*port);
            if !is_heard {
                self.portal.close(*port);
            }
            is_heard
        });
    }
}

/// The kernel's reason, as far as an error of the portal's tells.
pub(crate) fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::AddrInUse => Errno::ADDRINUSE,
        io::ErrorKind::PermissionDenied => Errno::ACCESS,
        io::ErrorKind::AddrNotAvailable => Errno::ADDRNOTAVAIL,
        _ => Errno::from_io_error(error).unwrap_or(Errno::NOBUFS),
    }
}
