//! The one error type of the engine. `std::io::Error` and errno values are made at the edges above.

use core::fmt;

/// Reason for which a call on the stack could not be carried out.
/// Exhaustive: sockets give each one its standard error and its errno, and the compiler sees that none is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// Nothing to do now; ask to be woken and try again.
    WouldBlock,
    /// The peer answered the SYN with RST, or with an ICMP message that there is no listener.
    ConnectionRefused,
    /// The peer sent RST.
    ConnectionReset,
    /// The peer did not answer for as long as retransmission is tried.
    TimedOut,
    /// A router says that the peer cannot be reached.
    HostUnreachable,
    /// A router says that the peer's network cannot be reached.
    NetworkUnreachable,
    /// The peer's host does not speak TCP.
    ProtocolUnreachable,
    /// A router says that there is no such host.
    HostUnknown,
    /// A router says that the peer's host is cut off.
    HostIsolated,
    /// A router says that a source route could not be followed.
    RouteFailed,
    /// A router says that talking to the peer is not allowed.
    Prohibited,
    /// Somebody on the way did not understand a header of ours.
    HeaderRefused,
    /// The connection is not (or no longer) open for this call.
    NotConnected,
    /// This side has already said that it sends no more.
    BrokenPipe,
    /// The address and port are taken.
    AddrInUse,
    /// No source port leads back to the shard that asks.
    NoSourcePort,
    /// The address is not one of this interface's.
    AddrNotAvailable,
    /// The destination is not one a connection can be opened to.
    InvalidAddress,
    /// A datagram longer than a packet can be.
    MessageTooLong,
    /// No packet buffer is free.
    NoBuffers,
    /// A table of the stack is at its configured bound.
    TooManyConnections,
    /// The handle names a connection or listener that is gone.
    Stale,
    /// A socket option has a value that means nothing.
    InvalidOption,
    /// Too many different sets of socket options are in use.
    TooManyOptionSets,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::WouldBlock => "not ready yet: wait for readiness and try again",
            Error::ConnectionRefused => "connection refused: nothing listens on the peer's port",
            Error::ConnectionReset => "connection reset by the peer",
            Error::TimedOut => "the peer stopped answering",
            Error::HostUnreachable => "the peer's host cannot be reached: ask who runs the network",
            Error::NetworkUnreachable => "the peer's network cannot be reached: look at the routes",
            Error::ProtocolUnreachable => "the peer's host does not speak TCP",
            Error::HostUnknown => "a router knows no such host",
            Error::HostIsolated => "the peer's host is cut off from its network",
            Error::RouteFailed => "a source route could not be followed",
            Error::Prohibited => "a router does not allow this: ask who runs the network",
            Error::HeaderRefused => "a host on the way did not understand a packet's header",
            Error::NotConnected => "the connection is not open",
            Error::BrokenPipe => "this side of the connection has been shut down",
            Error::AddrInUse => "address and port are in use",
            Error::NoSourcePort => {
                "no source port leads back to this core: the balancer gives it too small a part of the ring, or none"
            }
            Error::AddrNotAvailable => "the address is none of this interface's: take one that is, or 0.0.0.0 or :: for all",
            Error::InvalidAddress => "not an address a connection can be opened to",
            Error::MessageTooLong => "the datagram is longer than a packet can be",
            Error::NoBuffers => "no packet buffer is free: raise the number of buffers",
            Error::TooManyConnections => "the connection table is full: raise max_connections",
            Error::InvalidOption => "a socket option is out of its range",
            Error::TooManyOptionSets => {
                "255 different sets of socket options are in use: give connections the same ones"
            }
            Error::Stale => "the handle belongs to a connection that is gone",
        })
    }
}

impl std::error::Error for Error {}
