//! The calls about an address that a DHCP server gives. The client itself is `dhcp`.

use std::path::PathBuf;
use std::time::Duration;

use janus_tcp::Addressing;

use super::{Builder, Handle};
use crate::dhcp::{Lease, Shown};

impl Builder {
    /// Gives the interface one more address, which a DHCP server chooses (`address = "dhcp"`).
    pub fn dhcp(mut self) -> Builder {
        self.partial.address.get_or_insert_default().dhcp = true;
        self
    }

    /// How long a server is waited for that gives the address.
    pub fn dhcp_wait(mut self, time: Duration) -> Builder {
        self.partial.dhcp_wait = Some(time);
        self
    }

    /// Remembers the address that a server gave in this file, so that the next start asks for the same one first; without it,
    /// the address is given back when the runtime ends.
    pub fn dhcp_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.partial.dhcp_file = Some(file.into());
        self
    }

    /// Has the hook called with the addresses that the cores are about to have, whenever a DHCP server has given one or prolonged it, and when it is
    /// gone. The first call comes before [`build`](Builder::build) is done. The hook runs on the thread that keeps the lease: it should be
    /// quick.
    pub fn on_addressing(
        mut self,
        hook: impl FnMut(&Addressing, Option<&Lease>) + Send + 'static,
    ) -> Builder {
        self.on_addressing = Some(Box::new(hook));
        self
    }
}

impl Handle {
    /// The address that a DHCP server gave, and what it told with it; `None` while there is none, or where none is asked for
    /// (`address = "dhcp"`).
    pub fn lease(&self) -> Option<Lease> {
        self.0.slots.get(Shown::default).lease()
    }
}
