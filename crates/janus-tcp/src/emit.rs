//! Writing frames: headers in front of a payload that is already in its buffer, and the replies that have none.

use janus_mem::{Frame, HEADROOM, PacketBuf};
use janus_wire::tcp::{self, Flags, Options};
use janus_wire::usual::{self, UsualOptions};
use janus_wire::{
    FlowKey, FlowKeyV4, Link, MacAddr, SeqNum, checksum, ethernet, ipv4, ipv6, proto,
};

use crate::schedule::MAX_REPLIES;
use crate::stack::Stack;
use crate::time::Instant;
use std::net::IpAddr;

/// The fields of a TCP segment that is to go out.
pub(crate) struct Outgoing {
    pub(crate) key: FlowKey,
    pub(crate) seq: SeqNum,
    pub(crate) ack: SeqNum,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    /// The urgent pointer, which counts only with [`Flags::URG`].
    pub(crate) urgent: u16,
    pub(crate) options: Options,
    /// The set of socket options whose time to live and type of service the packet has.
    pub(crate) profile: u8,
}

/// A frame is written, but the neighbour it goes to is not known yet.
pub(crate) struct Unresolved(pub(crate) IpAddr);

impl Stack {
    /// Writes the headers of `segment` right before `off`, where `len` bytes of payload lie, and points the
    /// buffer at the frame. Gives the frame's length.
    #[inline]
    pub(crate) fn write_headers(
        &mut self,
        buf: &mut PacketBuf,
        off: u16,
        len: u16,
        segment: &Outgoing,
    ) -> (u16, Result<(), Unresolved>) {
        match (&segment.key, segment.options.usual()) {
            (FlowKey::V4(key), Some(options)) if segment.urgent == 0 => {
                self.write_usual(buf, (off, len), key, options, segment)
            }
            _ => self.write_by_parts(buf, off, len, segment),
        }
    }

    /// [`Stack::write_headers`] for what nearly all segments over IPv4 are.
    #[inline]
    fn write_usual(
        &mut self,
        buf: &mut PacketBuf,
        (off, len): (u16, u16),
        key: &FlowKeyV4,
        options: UsualOptions,
        segment: &Outgoing,
    ) -> (u16, Result<(), Unresolved>) {
        let link = self.rules.interface.link.header_len();
        let start = usize::from(off) - (link + usual::LEN + options.len());
        let end = usize::from(off) + usize::from(len);
        let (ttl, tos) = self.rules.profiles.ip(segment.profile);
        let headers = usual::Headers {
            src: key.local,
            dst: key.peer,
            ttl,
            tos,
            src_port: key.local_port,
            dst_port: key.peer_port,
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            options,
        };
        let bytes = &mut buf.bytes_mut()[start..end];
        let (link_bytes, packet) = bytes.split_at_mut(link);
        headers.write(packet, !self.rules.interface.tx_checksum);
        let mut resolved = Ok(());
        if let Ok(header) = <&mut [u8; ethernet::LEN]>::try_from(link_bytes) {
            let hop = self.rules.interface.next_hop_v4(key.peer);
            let mac = self.host.neighbors.latest_v4(hop, self.now);
            let mac = mac.or_else(|| self.resolve(hop.into()));
            header[..6].copy_from_slice(&mac.unwrap_or_default().0);
            header[6..12].copy_from_slice(&self.rules.interface.mac.0);
            header[12..].copy_from_slice(&ethernet::ethertype::IPV4.to_be_bytes());
            resolved = mac.map(|_| ()).ok_or(Unresolved(hop.into()));
        }
        buf.set_off(start as u16);
        ((end - start) as u16, resolved)
    }

    /// The hardware address of a neighbour, if it is known. It is asked for again where that is old.
    #[inline(never)]
    pub(crate) fn resolve(&mut self, hop: IpAddr) -> Option<MacAddr> {
        let known = self.host.neighbors.lookup_to_send(hop, self.now)?;
        if known.is_stale(self.now) {
            if self.host.neighbors.should_probe(hop, self.now) {
                self.ask_for(hop);
            }
        } else {
            self.host.neighbors.remember(hop, known);
        }
        Some(known.mac)
    }

    #[inline(never)]
    fn write_by_parts(
        &mut self,
        buf: &mut PacketBuf,
        off: u16,
        len: u16,
        segment: &Outgoing,
    ) -> (u16, Result<(), Unresolved>) {
        let key = &segment.key;
        let link = self.rules.interface.link.header_len();
        let ip = match key {
            FlowKey::V4(_) => ipv4::LEN,
            FlowKey::V6(_) => ipv6::LEN,
        };
        let tcp_len = tcp::LEN + segment.options.emitted_len();
        let start = usize::from(off) - (link + ip + tcp_len);
        let end = usize::from(off) + usize::from(len);
        let bytes = &mut buf.bytes_mut()[start..end];
        let mut resolved = Ok(());
        if self.rules.interface.link == Link::Ethernet {
            let hop = self.rules.interface.next_hop(key.peer());
            let mac = self.resolve(hop);
            let header = ethernet::Header {
                dst: mac.unwrap_or_default(),
                src: self.rules.interface.mac,
                ethertype: match key {
                    FlowKey::V4(_) => ethernet::ethertype::IPV4,
                    FlowKey::V6(_) => ethernet::ethertype::IPV6,
                },
            };
            header.emit(bytes);
            resolved = mac.map(|_| ()).ok_or(Unresolved(hop));
        }
        let (ip_bytes, tcp_bytes) = bytes[link..].split_at_mut(ip);
        let header = tcp::Header {
            src_port: key.local_port(),
            dst_port: key.peer_port(),
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            urgent: segment.urgent,
            header_len: 0,
        };
        let summed = tcp::emit_summed(tcp_bytes, &header, &segment.options);
        self.write_ip(ip_bytes, tcp_bytes, segment, summed);
        buf.set_off(start as u16);
        ((end - start) as u16, resolved)
    }

    /// The IP header before a segment, and the checksum in it, which covers both addresses.
    #[inline]
    fn write_ip(
        &mut self,
        ip: &mut [u8],
        tcp: &mut [u8],
        segment: &Outgoing,
        (header_len, header_sum): (usize, u32),
    ) {
        let (ttl, tos) = self.rules.profiles.ip(segment.profile);
        let payload_len = tcp.len() as u16;
        match &segment.key {
            FlowKey::V4(key) => {
                let repr = ipv4::Repr {
                    src: key.local,
                    dst: key.peer,
                    proto: proto::TCP,
                    payload_len,
                    ttl,
                    tos,
                    id: 0,
                    dont_fragment: true,
                };
                ipv4::emit(ip, &repr);
                if !self.rules.interface.tx_checksum {
                    let pseudo = checksum::pseudo_v4(key.local, key.peer, proto::TCP, payload_len);
                    tcp::fill_checksum(tcp, header_len, header_sum, pseudo);
                }
            }
            FlowKey::V6(key) => {
                let repr = ipv6::Repr {
                    src: key.local,
                    dst: key.peer,
                    proto: proto::TCP,
                    payload_len,
                    hop_limit: ttl,
                    traffic_class: tos,
                    flow_label: self.rules.stamper.flow_label(&segment.key),
                };
                ipv6::emit(ip, &repr);
                if !self.rules.interface.tx_checksum {
                    let len = u32::from(payload_len);
                    let pseudo = checksum::pseudo_v6(key.local, key.peer, proto::TCP, len);
                    let pseudo = u32::from(checksum::fold(pseudo));
                    tcp::fill_checksum(tcp, header_len, header_sum, pseudo);
                }
            }
        }
    }

    /// A buffer, of the reserve if need be, for a reply that there is still a place for.
    pub(crate) fn reply_buffer(&mut self) -> Option<PacketBuf> {
        if self.schedule.replies.len() >= MAX_REPLIES {
            self.counters.dropped_reply_full += 1;
            return None;
        }
        let buf = self.store.blocks.pool.alloc_reserved();
        self.counters.dropped_no_buffer += u64::from(buf.is_none());
        buf
    }

    /// Queues a segment without payload that belongs to no output queue. False when there was no place for it.
    pub(crate) fn reply(&mut self, segment: &Outgoing, now: Instant) -> bool {
        let Some(mut buf) = self.reply_buffer() else {
            return false;
        };
        let (len, resolved) = self.write_headers(&mut buf, HEADROOM, 0, segment);
        self.counters.segments_out += 1;
        let frame = Frame::new(buf, len);
        match resolved {
            Ok(()) => self.schedule.replies.push_back(frame),
            Err(Unresolved(hop)) => self.await_neighbor(hop, frame, now),
        }
        true
    }

    /// Keeps a frame until the neighbour `hop` is known, and asks for it.
    pub(crate) fn await_neighbor(&mut self, hop: IpAddr, frame: Frame, now: Instant) {
        if let Some(pushed_out) = self.host.neighbors.wait(hop, frame, now) {
            self.counters.dropped_no_neighbor += 1;
            self.recycle(pushed_out);
        }
        if self
            .host
            .neighbors
            .should_ask(hop, now, &self.rules.interface)
        {
            self.ask_for(hop);
        }
    }

    /// A frame that will not be sent goes where a sent one would.
    pub(crate) fn recycle(&mut self, frame: Frame) {
        if frame.is_lent() {
            self.completed(frame);
        } else {
            self.store.blocks.pool.free(frame.buf);
        }
    }
}
