//! Broadcast and multicast, which a UDP socket here does not have. The calls are there under tokio's names, so that a program
//! that needs them gets an error where it asks, rather than silence.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::UdpSocket;

fn one_to_one() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "UDP here is between two hosts, without broadcast and multicast: with the feature `tokio`, \
         tokio's own UdpSocket has both, over the kernel",
    )
}

impl UdpSocket {
    /// Returns whether datagrams may be sent to broadcast addresses: always false.
    ///
    /// # Errors
    /// None; the result is tokio's.
    pub fn broadcast(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Lets datagrams be sent to broadcast addresses.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported), unless `on` is false.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        if on { Err(one_to_one()) } else { Ok(()) }
    }

    /// Joins a group on the interface that has an address.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported), always; so has [`leave_multicast_v4`](Self::leave_multicast_v4).
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        let _ = (group, interface);
        Err(one_to_one())
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported), always.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        let _ = (group, interface);
        Err(one_to_one())
    }

    /// Joins a group on the interface of that number.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported), always; so has [`leave_multicast_v6`](Self::leave_multicast_v6).
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let _ = (group, interface);
        Err(one_to_one())
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// [`Unsupported`](io::ErrorKind::Unsupported), always.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        let _ = (group, interface);
        Err(one_to_one())
    }
}
