//! Fragments on their way through the stack: in, until a datagram is whole and its protocol's turn comes; and out, for
//! the only datagrams of ours that may be longer than the MTU, answers to pings.
//!
//! A segment that came in pieces goes on as segments that each fit a packet buffer, as if the peer had sent those, so
//! that nothing behind knows of fragments. How pieces are kept and matched is in `reassembly`.

use std::net::{IpAddr, SocketAddr};

use janus_mem::{Frame, HEADROOM, SLOT_SIZE};
use janus_wire::tcp::{self, Flags};
use janus_wire::{FlowKey, Link, MacAddr, checksum, ethernet, ipv4, ipv6, proto};

use crate::ip::icmp_errors::IcmpError;
use crate::ip::icmp_out::Report;
use crate::ip::reassembly::{Piece, Reassembly, Taken};
use crate::ip::{Ip, nd};
use crate::store::schedule::MAX_REPLIES;
use crate::time::Instant;
use crate::wire::parse;

/// Time to live, or hop limit, of what belongs to no connection.
const TTL: u8 = 64;
/// Datagrams given up in one call; the rest is served by the next.
const MAX_EXPIRED: usize = 64;

/// State that the stack keeps for fragments.
#[derive(Default)]
pub(crate) struct Fragments {
    reassembly: Reassembly,
    /// Where a datagram is put together; kept, so that this allocates once.
    whole: Vec<u8>,
}

impl Fragments {
    /// When the oldest datagram is to be given up.
    #[inline(always)]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.reassembly.next_deadline()
    }
}

/// A whole IP packet, as far as matters here.
struct Whole<'a> {
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    tos: u8,
    payload: &'a [u8],
}

impl<'a> Whole<'a> {
    fn read(packet: &'a [u8]) -> Option<Whole<'a>> {
        match packet.first()? >> 4 {
            4 => ipv4::parse(packet).ok().map(|ip| Whole {
                src: ip.src.into(),
                dst: ip.dst.into(),
                proto: ip.proto,
                tos: ip.tos,
                payload: ip.payload(),
            }),
            _ => ipv6::parse(packet).ok().map(|ip| Whole {
                src: ip.src.into(),
                dst: ip.dst.into(),
                proto: ip.proto,
                tos: ip.traffic_class,
                payload: ip.payload(),
            }),
        }
    }

    fn flow(&self, header: &tcp::Header) -> Option<FlowKey> {
        let peer = SocketAddr::new(self.src, header.src_port);
        FlowKey::new(peer, SocketAddr::new(self.dst, header.dst_port))
    }

    fn tcp_checksum(&self) -> u16 {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => checksum::tcp_v4(src, dst, self.payload),
            (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::tcp_v6(src, dst, self.payload),
            _ => 1,
        }
    }
}

impl Ip<'_> {
    /// A fragment for one of our addresses.
    /// Returns the error about a segment of ours that it makes whole.
    pub(crate) fn fragment_arrives(&mut self, frame: Frame) -> Option<IcmpError> {
        let packet = parse::packet(&frame, self.rules.interface().link);
        let link = frame.data().len() - packet.len();
        let Some(piece) = Piece::read(packet, frame.buf.off() + link as u16) else {
            self.env.counters.dropped_malformed += 1;
            self.pool.free(frame.buf);
            return None;
        };
        let Fragments { reassembly, whole } = &mut self.host.fragments;
        let with = (&mut *self.pool, &mut self.env.counters);
        if reassembly.take(&piece, frame, self.env.now, whole, with) != Taken::Whole {
            return None;
        }
        let whole = core::mem::take(&mut self.host.fragments.whole);
        let error = self.whole_arrives(&whole);
        self.host.fragments.whole = whole;
        error
    }

    fn whole_arrives(&mut self, packet: &[u8]) -> Option<IcmpError> {
        match Whole::read(packet) {
            Some(whole) if whole.proto == proto::TCP => self.cut_segment(&whole),
            Some(whole) if whole.proto == proto::ICMPV6 && nd::is_discovery(whole.payload) => {
                // Discovery messages need no fragments, and a sender of such means to get past a filter (RFC 6980).
                self.env.counters.dropped_malformed += 1;
            }
            Some(whole) if whole.proto == proto::UDP => self.udp_whole(packet),
            Some(_) => return self.control_packet(packet),
            None => self.env.counters.dropped_malformed += 1,
        }
        None
    }

    /// A segment of any length becomes segments that fit a packet buffer. Its checksum is verified here, because the
    /// device cannot have done it; the new ones get checksums of their own.
    fn cut_segment(&mut self, whole: &Whole<'_>) {
        let Ok((header, options, data)) = tcp::parse(whole.payload) else {
            self.env.counters.dropped_malformed += 1;
            return;
        };
        if whole.tcp_checksum() != 0 {
            self.env.counters.dropped_checksum += 1;
            return;
        }
        let Some(flow) = whole.flow(&header) else {
            return;
        };
        let header_len = tcp::LEN + options.len();
        let room = SLOT_SIZE - usize::from(HEADROOM) - ethernet::LEN - ipv6::LEN - header_len;
        let mut at = 0;
        loop {
            let part = &data[at..data.len().min(at + room)];
            let last = at + part.len() == data.len();
            let mut segment = header;
            if at > 0 {
                let syn = u32::from(header.flags.contains(Flags::SYN));
                segment.seq += at as u32 + syn;
                segment.flags = without(segment.flags, Flags::SYN);
            }
            if !last {
                segment.flags = without(segment.flags, Flags::FIN | Flags::PSH);
            }
            match usize::from(header.urgent).checked_sub(at) {
                Some(urgent) if urgent > 0 => segment.urgent = urgent as u16,
                _ => segment.flags = without(segment.flags, Flags::URG),
            }
            if !self.queue_part(whole, flow, &segment, options, part) {
                return;
            }
            at += part.len();
            if last {
                return;
            }
        }
    }

    /// One part, as a frame that might have come from the device. False when there is no buffer for it.
    fn queue_part(
        &mut self,
        whole: &Whole<'_>,
        flow: FlowKey,
        header: &tcp::Header,
        options: &[u8],
        data: &[u8],
    ) -> bool {
        let Some(mut buf) = self.pool.alloc() else {
            self.env.counters.dropped_no_buffer += 1;
            return false;
        };
        let bytes = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
        let ip_at = self.rules.interface().link.header_len();
        let header_len = tcp::LEN + options.len();
        let payload_len = header_len + data.len();
        let tcp_at = ip_at + write_ip(&mut bytes[ip_at..], whole, payload_len, IpExtra::None);
        let segment = &mut bytes[tcp_at..tcp_at + payload_len];
        tcp::emit(segment, header, &tcp::Options::NONE);
        segment[12] = ((header_len / 4) as u8) << 4;
        segment[tcp::LEN..header_len].copy_from_slice(options);
        segment[header_len..].copy_from_slice(data);
        match (whole.src, whole.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => tcp::fill_checksum_v4(segment, src, dst),
            (IpAddr::V6(src), IpAddr::V6(dst)) => tcp::fill_checksum_v6(segment, src, dst),
            _ => {}
        }
        let mut frame = Frame::new(buf, (tcp_at + payload_len) as u16);
        if self.rules.interface().link == Link::Ethernet {
            let mac = self.rules.interface().mac;
            write_ethernet(&mut frame, mac, mac, whole.dst);
        }
        self.host.deferred.segments.push((flow, frame));
        true
    }

    /// Sends a datagram of ours that belongs to no connection, in fragments if it is longer than what the path takes.
    pub(crate) fn send_datagram(&mut self, ends: (IpAddr, IpAddr), proto: u8, payload: &[u8]) {
        let (src, dst) = ends;
        let now = self.env.now;
        let mtu = self
            .env
            .paths
            .sizes
            .mtu(dst, now)
            .unwrap_or(self.rules.interface().mtu);
        let mtu = usize::from(mtu.min(self.rules.interface().mtu));
        let whole = Whole {
            src,
            dst,
            proto,
            tos: 0,
            payload,
        };
        let header = if dst.is_ipv4() { ipv4::LEN } else { ipv6::LEN };
        if header + payload.len() <= mtu {
            self.queue_datagram(&whole, payload, IpExtra::None);
            return;
        }
        let room = SLOT_SIZE - usize::from(HEADROOM) - ethernet::LEN;
        // In whole words of eight bytes, behind a fragment header of as many.
        let step = (mtu.min(room).saturating_sub(header + 8) / 8 * 8).max(8);
        let id = self.host.identifications.next(src, dst, 0, now);
        for (i, part) in payload.chunks(step).enumerate() {
            let extra = IpExtra::Fragment {
                id,
                offset: (i * step) as u16,
                more: i * step + part.len() < payload.len(),
            };
            if !self.queue_datagram(&whole, part, extra) {
                return;
            }
        }
    }

    /// False when it could not be queued; then the rest of a datagram in pieces is of no use.
    fn queue_datagram(&mut self, whole: &Whole<'_>, part: &[u8], extra: IpExtra) -> bool {
        if self.schedule.replies.len() >= MAX_REPLIES {
            self.env.counters.dropped_reply_full += 1;
            return false;
        }
        let Some(mut buf) = self.pool.alloc() else {
            self.env.counters.dropped_no_buffer += 1;
            return false;
        };
        let bytes = &mut buf.bytes_mut()[usize::from(HEADROOM)..];
        let ip_at = self.rules.interface().link.header_len();
        let at = ip_at + write_ip(&mut bytes[ip_at..], whole, part.len(), extra);
        bytes[at..at + part.len()].copy_from_slice(part);
        let mut frame = Frame::new(buf, (at + part.len()) as u16);
        let loops = self.rules.loops(whole.dst);
        if loops && self.rules.interface().link == Link::Ethernet {
            let mac = self.rules.interface().mac;
            write_ethernet(&mut frame, mac, mac, whole.dst);
        } else if self.rules.interface().link == Link::Ethernet {
            let hop = self.rules.interface().next_hop(whole.dst);
            let known = self.resolve(hop);
            let mac = known.unwrap_or(MacAddr::ZERO);
            write_ethernet(&mut frame, mac, self.rules.interface().mac, whole.dst);
            if known.is_none() {
                self.await_neighbor(hop, frame);
                return true;
            }
        }
        match loops {
            true => self.loop_in(frame),
            false => self.schedule.replies.push(frame),
        }
        true
    }

    /// Gives up datagrams that did not become whole in time, and says so to who sent the first fragment (RFC 792,
    /// RFC 8200 section 4.5).
    pub(crate) fn expire_fragments(&mut self) {
        if self.host.fragments.reassembly.is_empty() {
            return;
        }
        for _ in 0..MAX_EXPIRED {
            let with = (&mut *self.pool, &mut self.env.counters);
            let Some(first) = self
                .host
                .fragments
                .reassembly
                .pop_expired(self.env.now, with)
            else {
                return;
            };
            if let Some((frame, packet_at)) = first {
                let end = usize::from(frame.buf.off()) + usize::from(frame.len);
                let packet = &frame.buf.bytes()[usize::from(packet_at)..end];
                self.report(Report::ReassemblyTime, packet);
                self.pool.free(frame.buf);
            }
        }
    }
}

fn without(flags: Flags, those: Flags) -> Flags {
    Flags(flags.0 & !those.0)
}

/// Fields of an IP header beyond the addresses.
#[derive(Clone, Copy)]
enum IpExtra {
    None,
    Fragment { id: u32, offset: u16, more: bool },
}

/// Writes the IP header for `len` bytes of payload, and gives its length.
fn write_ip(out: &mut [u8], whole: &Whole<'_>, len: usize, extra: IpExtra) -> usize {
    match (whole.src, whole.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let (id, dont_fragment) = match extra {
                IpExtra::None => (0, true),
                IpExtra::Fragment { id, .. } => (id as u16, false),
            };
            let repr = ipv4::Repr {
                src,
                dst,
                proto: whole.proto,
                payload_len: len as u16,
                ttl: TTL,
                tos: whole.tos,
                id,
                dont_fragment,
            };
            match extra {
                IpExtra::None => ipv4::emit(out, &repr),
                IpExtra::Fragment { offset, more, .. } => {
                    ipv4::emit_fragment(out, &repr, offset, more)
                }
            }
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut repr = ipv6::Repr {
                src,
                dst,
                proto: whole.proto,
                payload_len: len as u16,
                hop_limit: TTL,
                traffic_class: whole.tos,
                flow_label: 0,
            };
            match extra {
                IpExtra::None => ipv6::emit(out, &repr),
                IpExtra::Fragment { id, offset, more } => {
                    repr.payload_len += ipv6::FRAGMENT_LEN as u16;
                    let fragment = ipv6::Fragment { offset, more, id };
                    ipv6::emit_fragment(out, &repr, fragment)
                }
            }
        }
        // No caller passes addresses of two families.
        _ => 0,
    }
}

fn write_ethernet(
    frame: &mut Frame,
    dst: janus_wire::MacAddr,
    src: janus_wire::MacAddr,
    to: IpAddr,
) {
    let header = ethernet::Header {
        dst,
        src,
        ethertype: match to {
            IpAddr::V4(_) => ethernet::ethertype::IPV4,
            IpAddr::V6(_) => ethernet::ethertype::IPV6,
        },
    };
    header.emit(frame.data_mut());
}
