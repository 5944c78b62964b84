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
mod rest;
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

use std::task::{Context, Poll};
use std::{fmt, io};

use janus_tcp::{Error, Instant, Stack, Token};

use crate::inbox::Owner;
use crate::shard::Side;
use crate::shard::core_context;
use crate::task::coop;

pub use address::{Target, ToAddress};
pub use buffered::BufferedStream;
pub use janus_tcp::{CongestionControl, Datagram, Info, RestLimits, SocketOptions, Uto};
pub use listener::{Accept, TcpListener};
pub use readiness::{Interest, Ready};
pub use recv_buf::RecvBuf;
pub use resolver::lookup_host;
pub use rest::{Handler, Next, ServedStream, serve};
pub use send_buf::SendBuf;
pub use socket::TcpSocket;
pub use stream::{
    AdoptError, AllocBuf, Connect, Give, Peek, Read, Recv, TcpStream, TrySendBufError, Write,
    WriteAll,
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

/// Calls the stack of `owner`'s core.
fn on_stack<R>(
    owner: Owner,
    call: impl FnOnce(&mut Stack, Instant) -> Result<R, Error>,
) -> io::Result<R> {
    core_context::with_own(owner, |ctx| ctx.on_stack(call))
        .ok_or_else(foreign_core)?
        .map_err(io_error)
}

/// Tries `call` on the stack of `owner`'s core; when it would block, registers `cx`'s task through `wait` to be woken. A call that
/// succeeds at once takes from the task's budget.
#[inline]
fn poll_on_stack<R>(
    owner: Owner,
    cx: &mut Context<'_>,
    side: Side,
    wait: impl FnOnce(&mut Stack, Instant, Token),
    call: impl FnOnce(&mut Stack, Instant) -> Result<R, Error>,
) -> Poll<io::Result<R>> {
    if coop::proceed(cx).is_pending() {
        return Poll::Pending;
    }
    let done = core_context::with_own(owner, |ctx| match ctx.on_stack(call) {
        Err(Error::WouldBlock) => {
            let token = ctx.token(cx.waker(), side);
            ctx.on_stack(|stack, now| wait(stack, now, token));
            Poll::Pending
        }
        done => {
            coop::spend();
            Poll::Ready(done.map_err(io_error))
        }
    });
    done.unwrap_or_else(|| Poll::Ready(Err(foreign_core())))
}

fn foreign_core() -> io::Error {
    io::Error::other(ForeignCore)
}
