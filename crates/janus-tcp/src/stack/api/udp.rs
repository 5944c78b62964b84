//! Calls of the application for UDP.

use std::net::{IpAddr, SocketAddr};

use janus_wire::{proto, udp};

use crate::ip::udp::{
    Carried, Datagram, HEADER_V4, PACKET_MAX, REPLIES_FULL, Socket, UdpId, takes,
};
use crate::rules::error::Error;
use crate::rules::interface::may_be_peer;
use crate::stack::Stack;
use crate::store::cold::NONE;
use crate::store::schedule::Token;
use crate::time::Instant;

impl Stack {
    /// A socket at `local`, whose port is the caller's choice (it knows which stack a port leads to); `0.0.0.0` means all of our
    /// addresses that are IPv4, `::` all of ours.
    pub fn udp_bind(&mut self, local: SocketAddr) -> Result<UdpId, Error> {
        let ip = local.ip();
        if local.port() == 0 {
            return Err(Error::InvalidAddress);
        }
        if !ip.is_unspecified() && !self.rules.interface().is_ours(ip) {
            return Err(Error::AddrNotAvailable);
        }
        let sockets = &mut self.host.udp;
        let on_port = sockets.by_port.get(&local.port());
        let mut others = on_port.into_iter().flatten();
        let clashes = |&index: &u32| {
            let own = sockets.places[index as usize].local.map(|own| own.ip());
            own.is_some_and(|own| takes(own, ip) || takes(ip, own))
        };
        if others.any(clashes) {
            return Err(Error::AddrInUse);
        }
        let index = sockets.place()?;
        let socket = &mut sockets.places[index as usize];
        *socket = Socket {
            generation: socket.generation,
            local: Some(local),
            reader: NONE,
            writer: NONE,
            ..Socket::default()
        };
        let generation = socket.generation;
        sockets.by_port.entry(local.port()).or_default().push(index);
        Ok(UdpId { index, generation })
    }

    /// The socket is gone, and what waited in it.
    pub fn udp_close(&mut self, id: UdpId) {
        let Ok(socket) = self.host.udp.get(id) else {
            return;
        };
        let gone = core::mem::take(socket);
        socket.generation = gone.generation.wrapping_add(1);
        for datagram in gone.queue {
            self.udp_forget(datagram);
        }
        let port = gone.local.map_or(0, |local| local.port());
        if let Some(on_port) = self.host.udp.by_port.get_mut(&port) {
            on_port.retain(|index| *index != id.index);
            if on_port.is_empty() {
                self.host.udp.by_port.remove(&port);
            }
        }
        self.host.udp.free.push(id.index);
    }

    /// From now on the socket takes datagrams from `peer` only, and hears what ICMP says of those it sends there. `None`: from
    /// everybody again.
    pub fn udp_connect(&mut self, id: UdpId, peer: Option<SocketAddr>) -> Result<(), Error> {
        let local = self.udp_local(id)?;
        if let Some(peer) = peer {
            self.udp_source(local.ip(), peer)?;
        }
        let socket = self.host.udp.get(id)?;
        (socket.peer, socket.error) = (peer, None);
        // Datagrams that came from others before can no longer be read.
        let old = core::mem::take(&mut socket.queue);
        socket.queued_bytes = 0;
        for datagram in old {
            if peer.is_none_or(|only| only == datagram.peer) {
                let socket = self.host.udp.get(id)?;
                socket.queued_bytes += datagram.bytes().len();
                socket.queue.push_back(datagram);
            } else {
                self.udp_forget(datagram);
            }
        }
        Ok(())
    }

    /// The address it was bound to.
    pub fn udp_local(&mut self, id: UdpId) -> Result<SocketAddr, Error> {
        self.host.udp.get(id)?.local.ok_or(Error::Stale)
    }

    /// The only peer it has, if it is connected.
    pub fn udp_peer(&mut self, id: UdpId) -> Result<Option<SocketAddr>, Error> {
        Ok(self.host.udp.get(id)?.peer)
    }

    /// Sends a datagram to `to`, or to the socket's only peer; in fragments if it is longer than what the path takes. Who loses it
    /// on the way tells no sender.
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        to: Option<SocketAddr>,
        bytes: &[u8],
    ) -> Result<usize, Error> {
        self.now = now;
        let socket = self.host.udp.get(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let (local, peer) = (socket.local.ok_or(Error::Stale)?, socket.peer);
        let to = to.or(peer).ok_or(Error::NotConnected)?;
        let source = self.udp_source(local.ip(), to)?;
        let header = if to.is_ipv4() { HEADER_V4 } else { 0 };
        if header + udp::LEN + bytes.len() > PACKET_MAX {
            return Err(Error::MessageTooLong);
        }
        if self.schedule.replies.len() >= REPLIES_FULL {
            return Err(Error::WouldBlock);
        }
        let mut datagram = core::mem::take(&mut self.host.answer);
        datagram.resize(udp::LEN + bytes.len(), 0);
        udp::emit(&mut datagram, local.port(), to.port(), bytes.len());
        datagram[udp::LEN..].copy_from_slice(bytes);
        match (source, to.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => udp::fill_checksum_v4(&mut datagram, src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => udp::fill_checksum_v6(&mut datagram, src, dst),
            _ => {}
        }
        self.counters.datagrams_out += 1;
        self.ip()
            .send_datagram((source, to.ip()), proto::UDP, &datagram);
        self.host.answer = datagram;
        Ok(bytes.len())
    }

    /// The address that a datagram from a socket at `own` to `to` has.
    fn udp_source(&self, own: IpAddr, to: SocketAddr) -> Result<IpAddr, Error> {
        let same_family = own.is_ipv4() == to.is_ipv4();
        let any = own.is_unspecified() && (own.is_ipv6() || to.is_ipv4());
        let reachable = may_be_peer(to.ip()) && self.rules.interface().may_be_destination(to.ip());
        if to.port() == 0 || !reachable || !(same_family || any) {
            return Err(Error::InvalidAddress);
        }
        let source = if any { None } else { Some(own) };
        let chosen = source.or_else(|| self.rules.interface().source_for(to.ip()));
        chosen.ok_or(Error::AddrNotAvailable)
    }

    /// The oldest datagram that waits.
    pub fn udp_receive(&mut self, id: UdpId) -> Result<Datagram, Error> {
        let socket = self.host.udp.get(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let datagram = socket.queue.pop_front().ok_or(Error::WouldBlock)?;
        socket.queued_bytes -= datagram.bytes().len();
        self.host.udp.buffers -= usize::from(matches!(datagram.carried, Carried::Packet { .. }));
        Ok(datagram)
    }

    /// A look at the oldest datagram that waits.
    pub fn udp_peek(&mut self, id: UdpId) -> Result<&Datagram, Error> {
        let socket = self.host.udp.get(id)?;
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        socket.queue.front().ok_or(Error::WouldBlock)
    }

    /// Gives a datagram's buffer back by the short way; it may also just be dropped.
    pub fn udp_done(&mut self, datagram: Datagram) {
        if let Carried::Packet { buf, .. } = datagram.carried {
            self.store.blocks.pool.free(buf);
        }
    }

    /// Something waits to be read: a datagram, or an error.
    pub fn udp_is_readable(&mut self, id: UdpId) -> Result<bool, Error> {
        let socket = self.host.udp.get(id)?;
        Ok(!socket.queue.is_empty() || socket.error.is_some())
    }

    /// A datagram would be taken now.
    pub fn udp_is_writable(&mut self, id: UdpId) -> Result<bool, Error> {
        self.host.udp.get(id)?;
        Ok(self.schedule.replies.len() < REPLIES_FULL)
    }

    /// Takes the error from an ICMP message about a datagram to the socket's only peer; reported once.
    pub fn udp_take_error(&mut self, id: UdpId) -> Result<Option<Error>, Error> {
        Ok(self.host.udp.get(id)?.error.take())
    }

    /// Sets the token that is woken when a datagram comes.
    pub fn udp_wait_read(&mut self, id: UdpId, who: Option<Token>) {
        if let Ok(socket) = self.host.udp.get(id) {
            socket.reader = who.map_or(NONE, |token| token.0);
        }
    }

    /// Sets the token that is woken when datagrams are taken again.
    pub fn udp_wait_write(&mut self, id: UdpId, who: Option<Token>) {
        if let Ok(socket) = self.host.udp.get(id) {
            socket.writer = who.map_or(NONE, |token| token.0);
            self.host.udp.blocked |= who.is_some();
        }
    }

    /// A datagram that came here in pieces, an IP packet, and its port, of which no socket is here.
    pub fn udp_astray(&mut self) -> Option<(u16, Box<[u8]>)> {
        self.host.udp.astray.pop_front()
    }

    /// Counts one that [`Stack::udp_astray`] gave and that cannot be brought to its stack.
    pub fn udp_astray_lost(&mut self) {
        self.counters.dropped_datagrams_astray += 1;
    }

    /// Takes what [`Stack::udp_astray`] of another stack gave. A datagram that no socket waits for is dropped.
    pub fn udp_take_astray(&mut self, now: Instant, packet: &[u8]) {
        self.now = now;
        self.ip().udp_whole_from_elsewhere(packet);
    }

    /// Frames have been handed out: whoever waits to send may try again.
    #[inline]
    pub(crate) fn udp_may_send(&mut self) {
        if self.host.udp.blocked && self.schedule.replies.len() < REPLIES_FULL {
            self.udp_wake_writers();
        }
    }

    #[cold]
    fn udp_wake_writers(&mut self) {
        self.host.udp.blocked = false;
        for socket in &mut self.host.udp.places {
            self.schedule.wake(&mut socket.writer);
        }
    }

    /// Datagrams that wait to be read, over all sockets: how many packet buffers hold them.
    pub fn udp_buffers(&self) -> usize {
        self.host.udp.buffers
    }

    /// Drops a datagram that was never read.
    fn udp_forget(&mut self, datagram: Datagram) {
        self.counters.dropped_datagrams_unread += 1;
        self.host.udp.buffers -= usize::from(matches!(datagram.carried, Carried::Packet { .. }));
        self.udp_done(datagram);
    }
}
