//! Sockets as users see them: [`TcpListener`], [`TcpStream`], [`RecvBuf`], [`SendBuf`]. They are plain handles (a core and a
//! number); the connection belongs to the stack of the core that owns it. `std::io::Error` is made only here, not in the crates
//! below.

mod address;
mod buffered;
#[cfg(feature = "futures-io")]
mod futures_io;
#[cfg(feature = "hyper")]
mod hyper_io;
mod listener;
mod options;
#[cfg(any(feature = "futures-io", feature = "hyper", feature = "tokio-io"))]
mod poll_traits;
mod readiness;
mod recv_buf;
mod resolver;
mod send_buf;
#[cfg(test)]
mod sizes;
mod socket;
mod stream;
pub mod tcp;
#[cfg(feature = "tokio-io")]
mod tokio_io;
#[cfg(feature = "tonic")]
mod tonic_io;
mod udp;
mod udp_groups;

use std::{fmt, io};

use janus_tcp::Error;

pub use address::{Target, ToAddress};
pub use buffered::BufferedStream;
pub use janus_tcp::{CongestionControl, Datagram, Info, SocketOptions, Uto};
pub use listener::{Accept, TcpListener};
pub use readiness::{Interest, Ready};
pub use recv_buf::RecvBuf;
pub use resolver::lookup_host;
pub use send_buf::SendBuf;
pub use socket::TcpSocket;
pub use stream::{
    AllocBuf, Connect, Give, Peek, Read, Recv, TcpStream, TrySendBufError, Write, WriteAll,
};
pub use udp::UdpSocket;

/// Converts an error of the stack to a standard error.
pub(crate) fn io_error(error: Error) -> io::Error {
    use io::ErrorKind as Kind;
    let kind = match error {
        Error::WouldBlock => Kind::WouldBlock,
        Error::ConnectionRefused | Error::ProtocolUnreachable => Kind::ConnectionRefused,
        Error::HostUnreachable
        | Error::HostUnknown
        | Error::HostIsolated
        | Error::RouteFailed
        | Error::HeaderRefused => Kind::HostUnreachable,
        Error::Prohibited => Kind::PermissionDenied,
        Error::NetworkUnreachable => Kind::NetworkUnreachable,
        Error::ConnectionReset => Kind::ConnectionReset,
        Error::TimedOut => Kind::TimedOut,
        Error::NotConnected | Error::Stale => Kind::NotConnected,
        Error::BrokenPipe => Kind::BrokenPipe,
        Error::AddrInUse => Kind::AddrInUse,
        Error::AddrNotAvailable | Error::NoSourcePort => Kind::AddrNotAvailable,
        Error::InvalidAddress | Error::InvalidOption | Error::MessageTooLong => Kind::InvalidInput,
        Error::NoBuffers | Error::TooManyConnections | Error::TooManyOptionSets => {
            Kind::OutOfMemory
        }
    };
    io::Error::new(kind, error)
}

/// Error of a socket that is used away from its core: the payload of an [`io::Error`] of the kind [`Other`](io::ErrorKind::Other).
///
/// ```
/// # fn of(error: &std::io::Error) -> bool {
/// error.get_ref().is_some_and(|error| error.is::<janus::net::ForeignCore>())
/// # }
/// # assert!(!of(&std::io::ErrorKind::Other.into()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignCore;

impl fmt::Display for ForeignCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this socket belongs to another core: use it on the core that accepted or connected it \
             (dropping it anywhere closes it)",
        )
    }
}

impl std::error::Error for ForeignCore {}

fn foreign_core() -> io::Error {
    io::Error::other(ForeignCore)
}
