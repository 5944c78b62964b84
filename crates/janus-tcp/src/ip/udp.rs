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
use crate::store::cold::NONE;
use crate::store::schedule::{MAX_REPLIES, Token};

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
    index: u32,
    generation: u32,
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
    carried: Carried,
}

/// Where its bytes are.
#[derive(Debug)]
enum Carried {
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

    /// The packet buffer that it came in; `None` when it came in pieces.
    pub(crate) fn into_buffer(self) -> Option<PacketBuf> {
        match self.carried {
            Carried::Packet { buf, .. } => Some(buf),
            Carried::Whole(_) => None,
        }
    }

    fn buffers(&self) -> usize {
        usize::from(matches!(self.carried, Carried::Packet { .. }))
    }
}

/// One socket.
#[derive(Default)]
struct Socket {
    generation: u32,
    /// `None`: the place is free.
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    queue: VecDeque<Datagram>,
    queued_bytes: usize,
    /// Error from an ICMP message about a datagram to `peer`; reported once.
    error: Option<Error>,
    /// Tokens of the tasks that wait.
    reader: u32,
    writer: u32,
}

/// All sockets of a stack.
#[derive(Default)]
pub(crate) struct Sockets {
    places: Vec<Socket>,
    free: Vec<u32>,
    by_port: BTreeMap<u16, Vec<u32>>,
    /// Packet buffers in queues.
    buffers: usize,
    /// Somebody waits for room to send.
    blocked: bool,
    /// Datagrams that came in pieces, for ports of which no socket is here.
    astray: VecDeque<(u16, Box<[u8]>)>,
}

/// Whether a socket bound to `own` takes what is sent to `local`. `::` stands for both families.
fn takes(own: IpAddr, local: IpAddr) -> bool {
    let any = own.is_unspecified() && (own.is_ipv6() || local.is_ipv4());
    any || own == local
}

impl Sockets {
    fn get(&mut self, id: UdpId) -> Result<&mut Socket, Error> {
        let socket = self.places.get_mut(id.index as usize);
        socket
            .filter(|socket| socket.generation == id.generation && socket.local.is_some())
            .ok_or(Error::Stale)
    }

    /// Like [`Sockets::get`], for a call that an error is reported to.
    fn sound(&mut self, id: UdpId) -> Result<&mut Socket, Error> {
        let socket = self.get(id)?;
        match socket.error.take() {
            Some(error) => Err(error),
            None => Ok(socket),
        }
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

    fn place(&mut self) -> Result<u32, Error> {
        if let Some(index) = self.free.pop() {
            return Ok(index);
        }
        if self.places.len() >= SOCKETS_MAX {
            return Err(Error::TooManyConnections);
        }
        self.places.push(Socket::default());
        Ok((self.places.len() - 1) as u32)
    }

    /// Places a socket at `local`, unless another takes what it would.
    pub(crate) fn bind(&mut self, local: SocketAddr) -> Result<UdpId, Error> {
        let on_port = self.by_port.get(&local.port());
        let mut others = on_port.into_iter().flatten();
        let ip = local.ip();
        let clashes = |&index: &u32| {
            let own = self.places[index as usize].local.map(|own| own.ip());
            own.is_some_and(|own| takes(own, ip) || takes(ip, own))
        };
        if others.any(clashes) {
            return Err(Error::AddrInUse);
        }
        let index = self.place()?;
        let socket = &mut self.places[index as usize];
        *socket = Socket {
            generation: socket.generation,
            local: Some(local),
            reader: NONE,
            writer: NONE,
            ..Socket::default()
        };
        let generation = socket.generation;
        self.by_port.entry(local.port()).or_default().push(index);
        Ok(UdpId { index, generation })
    }

    /// Gives a socket's place back, and what waited in it.
    pub(crate) fn close(&mut self, id: UdpId) -> VecDeque<Datagram> {
        let Ok(socket) = self.get(id) else {
            return VecDeque::new();
        };
        let gone = core::mem::take(socket);
        socket.generation = gone.generation.wrapping_add(1);
        let port = gone.local.map_or(0, |local| local.port());
        if let Some(on_port) = self.by_port.get_mut(&port) {
            on_port.retain(|index| *index != id.index);
            if on_port.is_empty() {
                self.by_port.remove(&port);
            }
        }
        self.free.push(id.index);
        gone.queue
    }

    /// Sets a socket's only peer. Returns the datagrams from others, which can no longer be read.
    pub(crate) fn connect(
        &mut self,
        id: UdpId,
        peer: Option<SocketAddr>,
    ) -> Result<VecDeque<Datagram>, Error> {
        let socket = self.get(id)?;
        (socket.peer, socket.error) = (peer, None);
        let readable = |datagram: &Datagram| peer.is_none_or(|only| only == datagram.peer);
        let old = core::mem::take(&mut socket.queue);
        let (kept, others): (VecDeque<_>, _) = old.into_iter().partition(readable);
        socket.queued_bytes = kept.iter().map(|datagram| datagram.bytes().len()).sum();
        socket.queue = kept;
        Ok(others)
    }

    /// The address that a socket was bound to.
    pub(crate) fn local(&mut self, id: UdpId) -> Result<SocketAddr, Error> {
        self.get(id)?.local.ok_or(Error::Stale)
    }

    /// The only peer that a socket has, if it is connected.
    pub(crate) fn peer(&mut self, id: UdpId) -> Result<Option<SocketAddr>, Error> {
        Ok(self.get(id)?.peer)
    }

    /// The addresses that a datagram to be sent has, the second if the socket is connected; or the socket's error.
    pub(crate) fn addresses(
        &mut self,
        id: UdpId,
    ) -> Result<(SocketAddr, Option<SocketAddr>), Error> {
        let socket = self.sound(id)?;
        Ok((socket.local.ok_or(Error::Stale)?, socket.peer))
    }

    /// Takes the oldest datagram that waits, or the socket's error.
    pub(crate) fn receive(&mut self, id: UdpId) -> Result<Datagram, Error> {
        let socket = self.sound(id)?;
        let datagram = socket.queue.pop_front().ok_or(Error::WouldBlock)?;
        socket.queued_bytes -= datagram.bytes().len();
        self.forget(&datagram);
        Ok(datagram)
    }

    /// Counts a datagram that is in no queue any more.
    pub(crate) fn forget(&mut self, datagram: &Datagram) {
        self.buffers -= datagram.buffers();
    }

    /// Looks at the oldest datagram that waits, or takes the socket's error.
    pub(crate) fn peek(&mut self, id: UdpId) -> Result<&Datagram, Error> {
        let socket = self.sound(id)?;
        socket.queue.front().ok_or(Error::WouldBlock)
    }

    /// Whether a datagram or an error waits to be read.
    pub(crate) fn is_readable(&mut self, id: UdpId) -> Result<bool, Error> {
        let socket = self.get(id)?;
        Ok(!socket.queue.is_empty() || socket.error.is_some())
    }

    /// Takes the error from an ICMP message.
    pub(crate) fn take_error(&mut self, id: UdpId) -> Result<Option<Error>, Error> {
        Ok(self.get(id)?.error.take())
    }

    /// Sets the token that is woken when a datagram comes.
    pub(crate) fn wait_read(&mut self, id: UdpId, who: Option<Token>) {
        if let Ok(socket) = self.get(id) {
            socket.reader = who.map_or(NONE, |token| token.0);
        }
    }

    /// Sets the token that is woken when datagrams are taken again.
    pub(crate) fn wait_write(&mut self, id: UdpId, who: Option<Token>) {
        if let Ok(socket) = self.get(id) {
            socket.writer = who.map_or(NONE, |token| token.0);
            self.blocked |= who.is_some();
        }
    }

    /// Whether somebody waits for room to send.
    #[inline(always)]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Tokens of those that wait for room to send, which there is.
    pub(crate) fn unblock(&mut self) -> impl Iterator<Item = &mut u32> {
        self.blocked = false;
        self.places.iter_mut().map(|socket| &mut socket.writer)
    }

    /// Takes a datagram that came in pieces, and its port, of which no socket is here.
    pub(crate) fn pop_astray(&mut self) -> Option<(u16, Box<[u8]>)> {
        self.astray.pop_front()
    }

    /// Packet buffers in queues.
    pub(crate) fn buffers(&self) -> usize {
        self.buffers
    }
}
