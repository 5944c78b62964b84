//! `Debug` for public types whose fields say nothing to a reader: their names.

use std::fmt;

use crate::balance::Balance;
use crate::net::{Accept, AllocBuf, Connect, Give, Peek, Read, Recv, TcpListener, Write, WriteAll};
use crate::portal::Portal;
use crate::runtime::{BackendChoice, Builder, Handle, OpenDevice, Runtime};
use crate::signal::Signal;

macro_rules! opaque {
    ($($name:ident $(<$life:lifetime>)?),* $(,)?) => {$(
        impl fmt::Debug for $name $(<$life>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}

opaque!(
    Balance, Builder, Connect, Handle, OpenDevice, Portal, Runtime, Signal
);
opaque!(
    Accept<'_>,
    AllocBuf<'_>,
    Give<'_>,
    Peek<'_>,
    Read<'_>,
    Recv<'_>,
    Write<'_>,
    WriteAll<'_>
);

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = self.local_addr().map_err(|_| fmt::Error)?;
        f.debug_tuple("TcpListener").field(&local).finish()
    }
}

impl fmt::Debug for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendChoice::Auto => f.write_str("Auto"),
            BackendChoice::Portal => f.write_str("Portal"),
            BackendChoice::Tap { name } => f.debug_tuple("Tap").field(name).finish(),
            BackendChoice::Dpdk { device } => f.debug_tuple("Dpdk").field(device).finish(),
            BackendChoice::Xdp { interface, ports } => {
                f.debug_tuple("Xdp").field(interface).field(ports).finish()
            }
            BackendChoice::Daemon { socket } => f.debug_tuple("Daemon").field(socket).finish(),
            BackendChoice::Custom(_) => f.write_str("Custom(..)"),
            BackendChoice::BehindPortal(_) => f.write_str("BehindPortal(..)"),
        }
    }
}
