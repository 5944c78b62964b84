//! Datagrams and what ICMP says of ours, on their way to a socket.

use std::net::{IpAddr, SocketAddr};

use janus_mem::Frame;
use janus_wire::{icmpv4, icmpv6, ipv4, ipv6, proto, udp};

use super::{BUFFERS_MAX, Carried, Datagram, QUEUE_BYTES_MAX, QUEUE_MAX, takes};
use crate::ip::Ip;
use crate::ip::icmp_out::Report;
use crate::rules::error::Error;
use crate::store::cold::NONE;
use crate::wire::parse;

/// Datagrams in one piece that are kept for another stack; beyond it they are dropped.
const ASTRAY_MAX: usize = 64;

/// Where a datagram that a socket takes stands in its packet.
struct Found {
    socket: u32,
    peer: SocketAddr,
    local: IpAddr,
    off: usize,
    len: usize,
}

/// Reason that no socket gets a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// Its headers do not parse.
    Malformed,
    /// Its checksum does not hold, or is left out where it must not be.
    Checksum,
    /// No socket takes what comes to this port.
    Port(u16),
}

impl From<janus_wire::Malformed> for Refused {
    fn from(_: janus_wire::Malformed) -> Refused {
        Refused::Malformed
    }
}

/// The parts of a packet that are the same in both families.
struct Read<'a> {
    peer: SocketAddr,
    local: SocketAddr,
    payload: &'a [u8],
}

/// Reads a UDP packet. `vouched`: its checksum has been verified, and its field may hold only a part of the sum, which is what
/// a sender leaves that relies on its device.
fn read(packet: &[u8], vouched: bool) -> Result<Read<'_>, Refused> {
    let six = packet.first().is_some_and(|byte| byte >> 4 == 6);
    let (src, dst, datagram, sound): (IpAddr, IpAddr, _, _) = if six {
        let ip = ipv6::parse(packet)?;
        let datagram = udp::parse(ip.payload())?;
        // RFC 8200 section 8.1: over IPv6 it must not be left out, and no sender that leaves it to its device writes zero.
        let sound = match vouched {
            true => datagram.has_checksum(),
            false => datagram.checksum_ok_v6(ip.src, ip.dst),
        };
        (ip.src.into(), ip.dst.into(), datagram, sound)
    } else {
        let ip = ipv4::parse(packet)?;
        let datagram = udp::parse(ip.payload())?;
        let sound = vouched || datagram.checksum_ok_v4(ip.src, ip.dst);
        (ip.src.into(), ip.dst.into(), datagram, sound)
    };
    if !sound {
        return Err(Refused::Checksum);
    }
    Ok(Read {
        peer: SocketAddr::new(src, datagram.src_port),
        local: SocketAddr::new(dst, datagram.dst_port),
        payload: datagram.payload(),
    })
}

impl Ip<'_> {
    /// Sends a datagram from a socket.
    pub(crate) fn send_from_socket(&mut self, local: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let mut datagram = core::mem::take(&mut self.host.answer);
        datagram.resize(udp::LEN + bytes.len(), 0);
        udp::emit(&mut datagram, local.port(), to.port(), bytes.len());
        datagram[udp::LEN..].copy_from_slice(bytes);
        match (local.ip(), to.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => udp::fill_checksum_v4(&mut datagram, src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => udp::fill_checksum_v6(&mut datagram, src, dst),
            _ => {}
        }
        self.env.counters.datagrams_out += 1;
        self.send_datagram((local.ip(), to.ip()), proto::UDP, &datagram);
        self.host.answer = datagram;
    }

    /// Takes a frame with a whole UDP datagram.
    pub(crate) fn datagram_arrives(&mut self, frame: Frame) {
        let packet = parse::packet(&frame, self.rules.interface().link);
        match self.udp_find(packet, self.rules.interface().rx_checksum) {
            Ok(found) => {
                let packet_at = frame.data().len() - packet.len();
                self.udp_frame(found, frame, packet_at);
            }
            Err(why) => {
                self.udp_refused(why, packet);
                self.pool.free(frame.buf);
            }
        }
    }

    /// Finds the socket that a UDP packet is for, and where its payload lies.
    fn udp_find(&self, packet: &[u8], vouched: bool) -> Result<Found, Refused> {
        let read = read(packet, vouched)?;
        let socket = self.host.udp.find(read.peer, read.local);
        // Port 0 wants no answer, so it is no address to answer to; the datagram is as good as any.
        Ok(Found {
            socket: socket.ok_or(Refused::Port(read.local.port()))?,
            peer: read.peer,
            local: read.local.ip(),
            off: read.payload.as_ptr() as usize - packet.as_ptr() as usize,
            len: read.payload.len(),
        })
    }

    /// Counts a datagram that is dropped; of one that is sound its sender is told (RFC 1122 section 4.1.3.1).
    fn udp_refused(&mut self, why: Refused, packet: &[u8]) {
        match why {
            Refused::Malformed => self.env.counters.dropped_malformed += 1,
            Refused::Checksum => self.env.counters.dropped_checksum += 1,
            Refused::Port(_) => {
                self.env.counters.dropped_datagrams_port += 1;
                self.report(Report::Port, packet);
            }
        }
    }

    /// The datagram of a frame whose packet begins at `packet_at` of its data.
    fn udp_frame(&mut self, found: Found, frame: Frame, packet_at: usize) {
        let off = usize::from(frame.buf.off()) + packet_at + found.off;
        let capacity = self.pool.depot().stats().capacity;
        if self.host.udp.buffers >= BUFFERS_MAX.min(capacity / 8).max(1) {
            self.env.counters.dropped_datagrams_memory += 1;
            self.pool.free(frame.buf);
            return;
        }
        let carried = Carried::Packet {
            buf: frame.buf,
            off: off as u16,
            len: found.len as u16,
        };
        self.udp_put(&found, carried);
    }

    /// A datagram that came in pieces. One for a port without a socket here is kept for whoever has it: its pieces were not
    /// steered by a port. Its checksum is verified here, because the device cannot have done it.
    pub(crate) fn udp_whole(&mut self, packet: &[u8]) {
        match self.udp_find(packet, false) {
            Ok(found) => self.udp_put_whole(&found, packet),
            Err(Refused::Port(port)) if self.rules.config().datagrams_elsewhere => {
                if self.host.udp.astray.len() >= ASTRAY_MAX {
                    self.env.counters.dropped_datagrams_astray += 1;
                } else {
                    self.host.udp.astray.push_back((port, packet.into()));
                }
            }
            Err(why) => self.udp_refused(why, packet),
        }
    }

    fn udp_put_whole(&mut self, found: &Found, packet: &[u8]) {
        let bytes = &packet[found.off..found.off + found.len];
        self.udp_put(found, Carried::Whole(bytes.into()));
    }

    fn udp_put(&mut self, found: &Found, carried: Carried) {
        let socket = &mut self.host.udp.places[found.socket as usize];
        let full = socket.queue.len() >= QUEUE_MAX
            || socket.queued_bytes + found.len > QUEUE_BYTES_MAX && !socket.queue.is_empty();
        if full {
            self.env.counters.dropped_datagrams_full += 1;
            if let Carried::Packet { buf, .. } = carried {
                self.pool.free(buf);
            }
            return;
        }
        self.env.counters.datagrams_in += 1;
        self.host.udp.buffers += usize::from(matches!(carried, Carried::Packet { .. }));
        socket.queued_bytes += found.len;
        socket.queue.push_back(Datagram {
            peer: found.peer,
            local: found.local,
            carried,
        });
        self.schedule.wake(&mut socket.reader);
    }

    /// Takes a whole datagram that another stack has put together; see [`Stack::udp_take_astray`](crate::Stack::udp_take_astray).
    pub(crate) fn udp_whole_from_elsewhere(&mut self, packet: &[u8]) {
        match self.udp_find(packet, true) {
            Ok(found) => self.udp_put_whole(&found, packet),
            Err(why) => self.udp_refused(why, packet),
        }
    }

    /// An ICMPv4 error about a datagram of ours; false when it is about something else.
    pub(crate) fn udp_blamed_v4(&mut self, message: &icmpv4::Message<'_>) -> bool {
        use icmpv4::{Message, unreachable};
        let Some(quote) = message.quote().filter(|quote| quote.proto == proto::UDP) else {
            return false;
        };
        let local = SocketAddr::new(quote.src.into(), quote.src_port);
        let peer = SocketAddr::new(quote.dst.into(), quote.dst_port);
        let error = match *message {
            Message::Unreachable { code, mtu, .. } => match code {
                unreachable::FRAGMENTATION_NEEDED => {
                    self.udp_too_big(local, peer, mtu);
                    return true;
                }
                unreachable::PORT | unreachable::PROTOCOL => Error::ConnectionRefused,
                unreachable::NET | 6 | 9 | 11 => Error::NetworkUnreachable,
                _ => Error::HostUnreachable,
            },
            // Never more than a hint, and nothing a program could do about.
            _ => return true,
        };
        self.udp_unreachable(local, peer, error);
        true
    }

    /// Like [`Ip::udp_blamed_v4`], for ICMPv6.
    pub(crate) fn udp_blamed_v6(&mut self, message: &icmpv6::Message<'_>) -> bool {
        use icmpv6::{Message, unreachable};
        let Some(quote) = message.quote().filter(|quote| quote.proto == proto::UDP) else {
            return false;
        };
        let local = SocketAddr::new(quote.src.into(), quote.src_port);
        let peer = SocketAddr::new(quote.dst.into(), quote.dst_port);
        let error = match *message {
            Message::PacketTooBig { mtu, .. } => {
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
                self.udp_too_big(local, peer, mtu);
                return true;
            }
            Message::Unreachable { code, .. } => match code {
                unreachable::PORT => Error::ConnectionRefused,
                unreachable::NO_ROUTE => Error::NetworkUnreachable,
                _ => Error::HostUnreachable,
            },
            _ => return true,
        };
        self.udp_unreachable(local, peer, error);
        true
    }

    /// The socket that may have sent a datagram from `local` to `peer`.
    fn udp_sender(&self, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
        let found = self.host.udp.find(peer, local)?;
        let own = self.host.udp.places[found as usize].local?.ip();
        takes(own, local.ip()).then_some(found)
    }

    /// Only a socket that is connected to the peer hears of it (RFC 1122 section 4.1.3.3; as Linux): any other could not tell which
    /// of its datagrams it is about.
    fn udp_unreachable(&mut self, local: SocketAddr, peer: SocketAddr, error: Error) {
        self.env.counters.icmp_errors_in += 1;
        let connected = self
            .udp_sender(peer, local)
            .filter(|&socket| self.host.udp.places[socket as usize].peer == Some(peer));
        let Some(index) = connected else {
            self.env.counters.icmp_errors_ignored += 1;
            return;
        };
        let socket = &mut self.host.udp.places[index as usize];
        socket.error = Some(error);
        if socket.reader != NONE {
            self.schedule.wake(&mut socket.reader);
        }
    }

    /// A router says what its next link takes; heeded where a socket of ours may have sent the packet, and never below what
    /// every host must take.
    fn udp_too_big(&mut self, local: SocketAddr, peer: SocketAddr, mtu: u16) {
        self.env.counters.icmp_errors_in += 1;
        let least = crate::store::pmtu::smallest(peer.ip());
        let smaller = mtu >= least && mtu < self.rules.interface().mtu;
        if smaller && self.udp_sender(peer, local).is_some() {
            if self.env.paths.sizes.told(peer.ip(), mtu, self.env.now) {
                self.env.counters.paths_shrunk += 1;
            }
        } else {
            self.env.counters.icmp_errors_ignored += 1;
        }
    }
}
