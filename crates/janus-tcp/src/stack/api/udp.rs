//! Calls of the application for UDP.

use std::net::{IpAddr, SocketAddr};

use janus_wire::udp;

use crate::ip::udp::{Datagram, HEADER_V4, PACKET_MAX, REPLIES_FULL, UdpId};
use crate::rules::error::Error;
use crate::rules::interface::may_be_peer;
use crate::stack::Stack;
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
        self.host.udp().bind(local)
    }

    /// The socket is gone, and what waited in it.
    pub fn udp_close(&mut self, id: UdpId) {
        for datagram in self.host.udp().close(id) {
            self.udp_forget(datagram);
        }
    }

    /// From now on the socket takes datagrams from `peer` only, and hears what ICMP says of those it sends there. `None`: from
    /// everybody again.
    pub fn udp_connect(&mut self, id: UdpId, peer: Option<SocketAddr>) -> Result<(), Error> {
        let local = self.udp_local(id)?;
        if let Some(peer) = peer {
            self.udp_source(local.ip(), peer)?;
        }
        for datagram in self.host.udp().connect(id, peer)? {
            self.udp_forget(datagram);
        }
        Ok(())
    }

    /// The address it was bound to.
    pub fn udp_local(&mut self, id: UdpId) -> Result<SocketAddr, Error> {
        self.host.udp().local(id)
    }

    /// The only peer it has, if it is connected.
    pub fn udp_peer(&mut self, id: UdpId) -> Result<Option<SocketAddr>, Error> {
        self.host.udp().peer(id)
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
        self.env.set_now(now);
        let (local, peer) = self.host.udp().addresses(id)?;
        let to = to.or(peer).ok_or(Error::NotConnected)?;
        let source = self.udp_source(local.ip(), to)?;
        let header = if to.is_ipv4() { HEADER_V4 } else { 0 };
        if header + udp::LEN + bytes.len() > PACKET_MAX {
            return Err(Error::MessageTooLong);
        }
        if !self.udp_has_room() {
            return Err(Error::WouldBlock);
        }
        let from = SocketAddr::new(source, local.port());
        self.ip().send_from_socket(from, to, bytes);
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
        self.host.udp().receive(id)
    }

    /// A look at the oldest datagram that waits.
    pub fn udp_peek(&mut self, id: UdpId) -> Result<&Datagram, Error> {
        self.host.udp().peek(id)
    }

    /// Gives a datagram's buffer back by the short way; it may also just be dropped.
    pub fn udp_done(&mut self, datagram: Datagram) {
        if let Some(buf) = datagram.into_buffer() {
            self.store.blocks.pool.free(buf);
        }
    }

    /// Something waits to be read: a datagram, or an error.
    pub fn udp_is_readable(&mut self, id: UdpId) -> Result<bool, Error> {
        self.host.udp().is_readable(id)
    }

    /// A datagram would be taken now.
    pub fn udp_is_writable(&mut self, id: UdpId) -> Result<bool, Error> {
        self.host.udp().local(id)?;
        Ok(self.udp_has_room())
    }

    /// Takes the error from an ICMP message about a datagram to the socket's only peer; reported once.
    pub fn udp_take_error(&mut self, id: UdpId) -> Result<Option<Error>, Error> {
        self.host.udp().take_error(id)
    }

    /// Sets the token that is woken when a datagram comes.
    pub fn udp_wait_read(&mut self, id: UdpId, who: Option<Token>) {
        self.host.udp().wait_read(id, who);
    }

    /// Sets the token that is woken when datagrams are taken again.
    pub fn udp_wait_write(&mut self, id: UdpId, who: Option<Token>) {
        self.host.udp().wait_write(id, who);
    }

    /// A datagram that came here in pieces, an IP packet, and its port, of which no socket is here.
    pub fn udp_astray(&mut self) -> Option<(u16, Box<[u8]>)> {
        self.host.udp().pop_astray()
    }

    /// Counts one that [`Stack::udp_astray`] gave and that cannot be brought to its stack.
    pub fn udp_astray_lost(&mut self) {
        self.env.counters.dropped_datagrams_astray += 1;
    }

    /// Takes what [`Stack::udp_astray`] of another stack gave. A datagram that no socket waits for is dropped.
    pub fn udp_take_astray(&mut self, now: Instant, packet: &[u8]) {
        self.env.set_now(now);
        self.ip().udp_whole_from_elsewhere(packet);
    }

    /// Frames have been handed out: whoever waits to send may try again.
    #[inline]
    pub(crate) fn udp_may_send(&mut self) {
        if self.host.udp().is_blocked() && self.udp_has_room() {
            self.udp_wake_writers();
        }
    }

    /// Whether more datagrams are taken to be sent.
    fn udp_has_room(&self) -> bool {
        self.schedule.replies.len() < REPLIES_FULL && self.host.own_loop().room() > 0
    }

    #[cold]
    fn udp_wake_writers(&mut self) {
        for writer in self.host.udp().unblock() {
            self.schedule.wake(writer);
        }
    }

    /// Datagrams that wait to be read, over all sockets: how many packet buffers hold them.
    pub fn udp_buffers(&self) -> usize {
        self.host.udp_buffers()
    }

    /// Drops a datagram that was never read.
    fn udp_forget(&mut self, datagram: Datagram) {
        self.env.counters.dropped_datagrams_unread += 1;
        self.host.udp().forget(&datagram);
        self.udp_done(datagram);
    }
}
