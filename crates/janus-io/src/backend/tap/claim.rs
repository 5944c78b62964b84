//! One program has a TAP interface, unless more are wanted: the kernel shares out frames among all who attached to it, and of each
//! program's connections half the packets would come to the other.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says to others of this network namespace that an interface is taken, for as long as it lives: a name of the kernel's, which goes with
/// the process.
pub(super) struct Claim {
    _name: Option<UnixDatagram>,
}

impl Claim {
    /// For one who takes `interface` with whoever has it.
    pub(super) fn none() -> Claim {
        Claim { _name: None }
    }

    /// For one who wants it alone.
    pub(super) fn alone(interface: &str) -> io::Result<Claim> {
        let name = SocketAddr::from_abstract_name(format!("janus-tap/{interface}"))?;
        match UnixDatagram::bind_addr(&name) {
            Ok(name) => Ok(Claim { _name: Some(name) }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(taken(interface)),
            Err(error) => Err(error),
        }
    }
}

/// Somebody else is attached.
pub(super) fn taken(interface: &str) -> io::Error {
    let text = format!(
        "another program has the TAP interface {interface}: both would lose packets. Choose another name (`tap_name`), or say \
         `tap_shared = true` where that is meant"
    );
    io::Error::new(io::ErrorKind::AddrInUse, text)
}
