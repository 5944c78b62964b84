//! A connection that a shard opens, from its SYN to the moment when bytes can move. The SYN is held back until the kernel's connection is
//! established; only then the inner stack sees it, so the shard's `connect` succeeds when the kernel's has, and an error of the kernel
//! reaches the shard as the ICMP message that a router would have sent. The carrier keeps the table of openings.

use std::io;
use std::net::{SocketAddr, TcpStream};

use janus_mem::{Frame, Pool};
use janus_tcp::Instant;
use janus_wire::tcp::Flags;
use janus_wire::{FlowKey, Link, classify, icmpv4, icmpv6, ipv4, ipv6, proto};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Meaning of a frame from a shard for an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// A SYN that opens a connection.
    Opens,
    /// An RST: the shard has given up.
    Resets,
}

/// Returns the sign in a frame, and the flow as the inner stack names it; most frames have none.
#[inline]
pub(super) fn sign(frame: &[u8]) -> Option<(FlowKey, Sign)> {
    let (flow, flags) = classify(frame, Link::Ip).segment()?;
    if flags.contains(Flags::RST) {
        return Some((flow, Sign::Resets));
    }
    let opens = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
    opens.then_some((flow, Sign::Opens))
}

/// Why a connection could not be opened, as far as the shard is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Refused,
    NoHost,
    NoNetwork,
    /// The shard is not told: it retransmits its SYN, or times out.
    Silence,
}

impl Why {
    pub(super) fn of(errno: Option<Errno>) -> Why {
        match errno {
            Some(Errno::CONNREFUSED | Errno::CONNRESET) => Why::Refused,
            Some(
                Errno::NETUNREACH
                | Errno::NETDOWN
                | Errno::ADDRNOTAVAIL
                | Errno::AFNOSUPPORT
                | Errno::ACCESS
                | Errno::PERM
                | Errno::INVAL,
            ) => Why::NoNetwork,
            // No host answered, or a resource is short here that may be available at the next SYN.
            Some(
                Errno::TIMEDOUT
                | Errno::MFILE
                | Errno::NFILE
                | Errno::NOBUFS
                | Errno::NOMEM
                | Errno::AGAIN,
            ) => Why::Silence,
            _ => Why::NoHost,
        }
    }
}

/// Progress of an opening.
pub(super) enum Progress {
    /// The kernel still tries.
    Waits,
    /// The kernel's connection is established: the SYN goes on.
    Stands(Frame),
    /// The kernel's connection failed.
    Failed(Frame, Why),
}

/// A connection that a shard opens.
pub(super) struct Opening {
    pub(super) kernel: TcpStream,
    pub(super) flow: FlowKey,
    /// The last SYN, until the inner stack has it.
    syn: Option<Frame>,
    /// When the inner stack got it; `None` before.
    pub(super) answered: Option<Instant>,
}

impl Opening {
    pub(super) fn new(kernel: TcpStream, flow: FlowKey, syn: Frame) -> Opening {
        Opening {
            kernel,
            flow,
            syn: Some(syn),
            answered: None,
        }
    }

    /// Returns whether the inner stack has the SYN.
    pub(super) fn is_answered(&self) -> bool {
        self.syn.is_none()
    }

    /// Takes another SYN of the same flow. It replaces the one before, which may be that of an attempt given up. Returns the frame that is
    /// not needed: the old one, or, once the inner stack answers, the new one.
    pub(super) fn hold(&mut self, syn: Frame) -> Frame {
        match &mut self.syn {
            Some(held) => std::mem::replace(held, syn),
            None => syn,
        }
    }

    pub(super) fn into_syn(self) -> Option<Frame> {
        self.syn
    }

    /// Asks the kernel, but no longer once its connection is established: later errors are for the bridge to find, and the kernel reports a
    /// reset only once.
    pub(super) fn look(&mut self) -> Progress {
        if self.is_answered() {
            return Progress::Waits;
        }
        let outcome = match self.kernel.take_error() {
            Ok(None) => rustix::net::getpeername(&self.kernel).map(drop),
            Ok(Some(error)) | Err(error) => {
                Err(Errno::from_io_error(&error).unwrap_or(Errno::HOSTUNREACH))
            }
        };
        if outcome == Err(Errno::NOTCONN) {
            return Progress::Waits;
        }
        let Some(syn) = self.syn.take() else {
            return Progress::Waits;
        };
        match outcome {
            // Where no socket listens, the kernel's port can have been the target itself: the connection met itself, which counts as
            // refused.
            Ok(()) if meets_itself(&self.kernel) => Progress::Failed(syn, Why::Refused),
            Ok(()) => Progress::Stands(syn),
            Err(errno) => Progress::Failed(syn, Why::of(Some(errno))),
        }
    }
}

fn meets_itself(kernel: &TcpStream) -> bool {
    matches!((kernel.local_addr(), kernel.peer_addr()), (Ok(here), Ok(there)) if here == there)
}

/// Begins a connection of the kernel's to `to`. On this machine it comes from the shard's own address and port, so that the server sees its
/// client's own address; where the kernel has that port in use, from another port: then the second value is true.
pub(super) fn connect(from: SocketAddr, to: SocketAddr) -> Result<(TcpStream, bool), Errno> {
    if to.ip().is_loopback() && from.port() != to.port() {
        if let Ok(kernel) = connect_from(Some(from), to) {
            return Ok((kernel, false));
        }
        return Ok((connect_from(None, to)?, true));
    }
    Ok((connect_from(None, to)?, false))
}

fn connect_from(from: Option<SocketAddr>, to: SocketAddr) -> Result<TcpStream, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(from) = from {
        // The port may be in TIME-WAIT towards another peer.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &from)?;
    }
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(errno),
    }
}

/// Returns the ICMP message that says why `syn` fails; `None` when nothing is said, or no buffer is free for it.
pub(super) fn complaint(syn: &[u8], why: Why, pool: &mut Pool) -> Option<Frame> {
    if why == Why::Silence {
        return None;
    }
    let mut frame = Frame::new(pool.alloc()?, 0);
    let at = usize::from(frame.buf.off());
    let room = &mut frame.buf.bytes_mut()[at..];
    let len = match (ipv4::parse(syn), ipv6::parse(syn)) {
        (Ok(ip), _) => complaint_v4(room, syn, (ip.dst, ip.src), why),
        (_, Ok(ip)) => complaint_v6(room, syn, (ip.dst, ip.src), why),
        _ => return None,
    };
    frame.len = len as u16;
    Some(frame)
}

fn complaint_v4(
    room: &mut [u8],
    syn: &[u8],
    (src, dst): (std::net::Ipv4Addr, std::net::Ipv4Addr),
    why: Why,
) -> usize {
    let code = match why {
        Why::Refused => icmpv4::unreachable::PORT,
        Why::NoNetwork => icmpv4::unreachable::NET,
        Why::NoHost | Why::Silence => icmpv4::unreachable::HOST,
    };
    let len = icmpv4::emit_unreachable(&mut room[ipv4::LEN..], code, 0, syn);
    let header = ipv4::Repr {
        src,
        dst,
        proto: proto::ICMP,
        payload_len: len as u16,
        ttl: 64,
        tos: 0,
        id: 0,
        dont_fragment: true,
    };
    ipv4::emit(room, &header) + len
}

fn complaint_v6(
    room: &mut [u8],
    syn: &[u8],
    (src, dst): (std::net::Ipv6Addr, std::net::Ipv6Addr),
    why: Why,
) -> usize {
    let code = match why {
        Why::Refused => icmpv6::unreachable::PORT,
        Why::NoNetwork => icmpv6::unreachable::NO_ROUTE,
        Why::NoHost | Why::Silence => icmpv6::unreachable::ADDRESS,
    };
    let problem = icmpv6::Problem::Unreachable(code);
    let len = icmpv6::emit_error(&mut room[ipv6::LEN..], src, dst, problem, syn);
    let header = ipv6::Repr {
        src,
        dst,
        proto: proto::ICMPV6,
        payload_len: len as u16,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(room, &header) + len
}

/// Returns the errno in an error of the standard library's.
pub(super) fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}
