//! Datagrams (RFC 768, RFC 1122 section 4.1): sockets with bounded queues, for what a host of TCP connections needs beside
//! them, such as asking a name server. A datagram that came in one packet stays in its buffer until it is read. What has no
//! socket is answered by `icmp_out`; which stack of several gets a port's datagrams is decided before they come here.

mod arrives;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use janus_mem::PacketBuf;

use crate::rules::error::Error;
use crate::store::schedule::MAX_REPLIES;

/// Sockets of a stack.
const SOCKETS_MAX: usize = 4_096;
/// Datagrams that wait in one socket, and their bytes.
const QUEUE_MAX: usize = 256;
const QUEUE_BYTES_MAX: usize = 256 << 10;
/// Packet buffers in all queues together; an eighth of those there are at most.
const BUFFERS_MAX: usize = 4_096;
/// While so many frames wait to be handed out, datagrams are not taken: the other half is for answers.
pub(crate) const REPLIES_FULL: usize = MAX_REPLIES / 2;
/// The longest IP packet.
pub(crate) const PACKET_MAX: usize = u16::MAX as usize;
/// Of an IPv4 packet its header counts in its length.
pub(crate) const HEADER_V4: usize = janus_wire::ipv4::LEN;

/// A socket of one stack. It stays recognisable as stale when its place is another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl UdpId {
    /// Its place among the stack's sockets.
    pub fn index(self) -> u32 {
        self.index
    }
}

/// A datagram that came in.
#[derive(Debug)]
pub struct Datagram {
    /// Sender's address.
    pub peer: SocketAddr,
    /// The address of ours it was sent to.
    pub local: IpAddr,
    pub(crate) carried: Carried,
}

/// Where its bytes are.
#[derive(Debug)]
pub(crate) enum Carried {
    /// In the packet buffer it came in.
    Packet { buf: PacketBuf, off: u16, len: u16 },
    /// It came in pieces.
    Whole(Box<[u8]>),
}

impl Datagram {
    /// Payload.
    pub fn bytes(&self) -> &[u8] {
        match &self.carried {
            Carried::Packet { buf, off, len } => {
                let at = usize::from(*off);
                &buf.bytes()[at..at + usize::from(*len)]
            }
            Carried::Whole(bytes) => bytes,
        }
    }
}

/// One socket.
#[derive(Default)]
pub(crate) struct Socket {
    pub(crate) generation: u32,
    /// `None`: the place is free.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) queue: VecDeque<Datagram>,
    pub(crate) queued_bytes: usize,
    /// Error from an ICMP message about a datagram to `peer`; reported once.
    pub(crate) error: Option<Error>,
    /// Tokens of the tasks that wait.
    pub(crate) reader: u32,
    pub(crate) writer: u32,
}

/// All sockets of a stack.
#[derive(Default)]
pub(crate) struct Sockets {
    pub(crate) places: Vec<Socket>,
    pub(crate) free: Vec<u32>,
    pub(crate) by_port: BTreeMap<u16, Vec<u32>>,
    /// Packet buffers in queues.
    pub(crate) buffers: usize,
    /// Somebody waits for room to send.
    pub(crate) blocked: bool,
    /// Datagrams that came in pieces, for ports of which no socket is here.
    pub(crate) astray: VecDeque<(u16, Box<[u8]>)>,
}

/// Whether a socket bound to `own` takes what is sent to `local`. `::` stands for both families.
pub(crate) fn takes(own: IpAddr, local: IpAddr) -> bool {
    let any = own.is_unspecified() && (own.is_ipv6() || local.is_ipv4());
    any || own == local
}

impl Sockets {
    pub(crate) fn get(&mut self, id: UdpId) -> Result<&mut Socket, Error> {
        let socket = self.places.get_mut(id.index as usize);
        socket
            .filter(|socket| socket.generation == id.generation && socket.local.is_some())
            .ok_or(Error::Stale)
    }

    /// The socket for a datagram from `peer` to `local`: one that is connected to the peer before one that is bound to the
    /// address, before one that is bound to all of them.
    fn find(&self, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
        let on_port = self.by_port.get(&local.port())?;
        let rank = |&&index: &&u32| {
            let socket = &self.places[index as usize];
            let own = socket.local?.ip();
            if !takes(own, local.ip()) || socket.peer.is_some_and(|only| only != peer) {
                return None;
            }
            Some((socket.peer.is_some(), !own.is_unspecified()))
        };
        let fitting = on_port.iter().filter(|index| rank(index).is_some());
        fitting.max_by_key(rank).copied()
    }

    pub(crate) fn place(&mut self) -> Result<u32, Error> {
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        if self.places.len() >= SOCKETS_MAX {
            return Err(Error::TooManyConnections);
        }
        self.places.push(Socket::default());
        Ok((self.places.len() - 1) as u32)
    }
}
