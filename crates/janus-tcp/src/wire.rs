//! Writing segments: headers in front of a payload that is already in its buffer, and frames handed out. What all frames of a
//! connection have in common is found once a turn ([`Envelope`]).

pub(crate) mod parse;

use janus_mem::{Frame, HEADROOM, PacketBuf, Pool};
use janus_wire::tcp::{self, Flags, Options};
use janus_wire::usual::{self, UsualOptions};
use janus_wire::{FlowKey, FlowKeyOf, MacAddr, SeqNum, checksum, ethernet, ipv4, ipv6, proto};

use crate::rules::interface::Interface;
use crate::rules::profile::{DEFAULT, TTL};
use crate::store::flows::KeyRef;
use crate::store::outgoing::Outgoing;
use crate::wire::parse::Parsed;

/// The fields of a segment of data as nearly all are: with no options but timestamps, and nothing urgent.
pub(crate) struct Plain {
    seq: SeqNum,
    ack: SeqNum,
    flags: Flags,
    window: u16,
    timestamps: Option<(u32, u32)>,
}

impl Plain {
    #[inline(always)]
    pub(crate) fn new(
        (seq, ack): (SeqNum, SeqNum),
        flags: Flags,
        window: u16,
        timestamps: Option<(u32, u32)>,
    ) -> Plain {
        Plain {
            seq,
            ack,
            flags,
            window,
            timestamps,
        }
    }
}

/// Parts of headers that are the same in all frames to one neighbor, or on a link that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// The link's header, of which `link_len` bytes count.
    link: [u8; ethernet::LEN],
    link_len: u8,
    ttl: u8,
    tos: u8,
    /// The device computes checksums.
    tx_checksum: bool,
}

impl Envelope {
    /// The envelope of packets over IPv6 or, without `v6`, over IPv4 to the neighbor with the address `mac`, with the time to live
    /// and type of service that are used if a connection has no others.
    pub(crate) fn new(interface: &Interface, v6: bool, mac: MacAddr) -> Envelope {
        let link_len = interface.link.header_len() as u8;
        let mut link = [0; ethernet::LEN];
        if link_len > 0 {
            let ethertype = match v6 {
                false => ethernet::ethertype::IPV4,
                true => ethernet::ethertype::IPV6,
            };
            link[..6].copy_from_slice(&mac.0);
            link[6..12].copy_from_slice(&interface.mac.0);
            link[12..].copy_from_slice(&ethertype.to_be_bytes());
        }
        Envelope {
            link,
            link_len,
            ttl: TTL,
            tos: 0,
            tx_checksum: interface.tx_checksum,
        }
    }

    /// This envelope, with another time to live and type of service.
    pub(crate) fn with_ip(self, (ttl, tos): (u8, u8)) -> Envelope {
        Envelope { ttl, tos, ..self }
    }

    /// Whether it has this time to live and type of service.
    #[inline(always)]
    pub(crate) fn has_ip(&self, ip: (u8, u8)) -> bool {
        (self.ttl, self.tos) == ip
    }

    pub(crate) fn link_len(&self) -> usize {
        usize::from(self.link_len)
    }

    pub(crate) fn tx_checksum(&self) -> bool {
        self.tx_checksum
    }

    /// Writes the headers of `segment` right before where its payload lies, at `place`, so many bytes, and points the
    /// buffer at the frame. Returns the frame's length. `label` is the flow label, which IPv6 has.
    /// Keeps MUST-2, MUST-45, MUST-48, MUST-49, SHLD-22.
    #[inline]
    pub(crate) fn write(
        &self,
        buf: &mut PacketBuf,
        place: (u16, u16),
        segment: &Outgoing,
        label: u32,
    ) -> u16 {
        match segment.options.usual() {
            Some(options) if segment.urgent == 0 => {
                let numbers = (segment.seq, segment.ack);
                let control = (segment.flags, segment.window);
                let key = KeyRef::of(&segment.key);
                self.write_usual(buf, place, (key, label), options, numbers, control)
            }
            _ => self.write_by_parts(buf, place, segment, label),
        }
    }

    /// Like [`Envelope::write`], for a segment that is plain.
    #[inline(always)]
    pub(crate) fn write_plain(
        &self,
        buf: &mut PacketBuf,
        place: (u16, u16),
        flow: (KeyRef<'_>, u32),
        plain: Plain,
    ) -> u16 {
        let options = match plain.timestamps {
            Some((value, echo)) => UsualOptions::Timestamps(value, echo),
            None => UsualOptions::None,
        };
        let numbers = (plain.seq, plain.ack);
        let control = (plain.flags, plain.window);
        self.write_usual(buf, place, flow, options, numbers, control)
    }

    /// Like [`Envelope::write`], for nearly all segments.
    #[inline(always)]
    pub(crate) fn write_usual(
        &self,
        buf: &mut PacketBuf,
        place: (u16, u16),
        (key, flow_label): (KeyRef<'_>, u32),
        options: UsualOptions,
        numbers: (SeqNum, SeqNum),
        control: (Flags, u16),
    ) -> u16 {
        let sum = !self.tx_checksum;
        match key {
            KeyRef::V4(key) => {
                let ip = usual::IpV4 {
                    src: key.local,
                    dst: key.peer,
                    ttl: self.ttl,
                    tos: self.tos,
                };
                let headers = usual_headers(ip, key, options, numbers, control);
                let len = ipv4::LEN + tcp::LEN + options.len();
                let (frame_len, packet) = self.begin(buf, place, len);
                headers.write(packet, sum);
                frame_len
            }
            KeyRef::V6(key) => {
                let ip = usual::IpV6 {
                    src: key.local,
                    dst: key.peer,
                    hop_limit: self.ttl,
                    traffic_class: self.tos,
                    flow_label,
                };
                let headers = usual_headers(ip, key, options, numbers, control);
                let len = ipv6::LEN + tcp::LEN + options.len();
                let (frame_len, packet) = self.begin(buf, place, len);
                headers.write(packet, sum);
                frame_len
            }
        }
    }

    /// Begins a frame whose IP and TCP headers, of `headers_len` bytes, are still to be written before `off`, where `len` bytes of
    /// payload lie. Returns the frame's length, and the bytes from the IP header on.
    #[inline(always)]
    fn begin<'b>(
        &self,
        buf: &'b mut PacketBuf,
        (off, len): (u16, u16),
        headers_len: usize,
    ) -> (u16, &'b mut [u8]) {
        let link = self.link_len();
        let start = usize::from(off) - (link + headers_len);
        let end = usize::from(off) + usize::from(len);
        buf.set_off(start as u16);
        let (link_bytes, packet) = buf.bytes_mut()[start..end].split_at_mut(link);
        if let Ok(header) = <&mut [u8; ethernet::LEN]>::try_from(link_bytes) {
            *header = self.link;
        }
        ((end - start) as u16, packet)
    }

    #[inline(never)]
    fn write_by_parts(
        &self,
        buf: &mut PacketBuf,
        (off, len): (u16, u16),
        segment: &Outgoing,
        label: u32,
    ) -> u16 {
        let key = &segment.key;
        let link = self.link_len();
        let ip = match key {
            FlowKey::V4(_) => ipv4::LEN,
            FlowKey::V6(_) => ipv6::LEN,
        };
        let tcp_len = tcp::LEN + segment.options.emitted_len();
        let start = usize::from(off) - (link + ip + tcp_len);
        let end = usize::from(off) + usize::from(len);
        let bytes = &mut buf.bytes_mut()[start..end];
        bytes[..link].copy_from_slice(&self.link[..link]);
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
        self.write_ip(ip_bytes, tcp_bytes, (key, label), summed);
        buf.set_off(start as u16);
        (end - start) as u16
    }

    /// The IP header before a segment, and the checksum in it, which covers both addresses.
    #[inline]
    fn write_ip(
        &self,
        ip: &mut [u8],
        tcp: &mut [u8],
        (key, flow_label): (&FlowKey, u32),
        (header_len, header_sum): (usize, u32),
    ) {
        let payload_len = tcp.len() as u16;
        let pseudo = match key {
            FlowKey::V4(key) => {
                let repr = ipv4::Repr {
                    src: key.local,
                    dst: key.peer,
                    proto: proto::TCP,
                    payload_len,
                    ttl: self.ttl,
                    tos: self.tos,
                    id: 0,
                    dont_fragment: true,
                };
                ipv4::emit(ip, &repr);
                checksum::pseudo_v4(key.local, key.peer, proto::TCP, payload_len)
            }
            FlowKey::V6(key) => {
                let repr = ipv6::Repr {
                    src: key.local,
                    dst: key.peer,
                    proto: proto::TCP,
                    payload_len,
                    hop_limit: self.ttl,
                    traffic_class: self.tos,
                    flow_label,
                };
                ipv6::emit(ip, &repr);
                let len = u32::from(payload_len);
                let pseudo = checksum::pseudo_v6(key.local, key.peer, proto::TCP, len);
                u32::from(checksum::fold(pseudo))
            }
        };
        if !self.tx_checksum {
            tcp::fill_checksum(tcp, header_len, header_sum, pseudo);
        }
    }
}

/// Headers of a usual segment that leaves on the connection `key`.
#[inline(always)]
fn usual_headers<I, A>(
    ip: I,
    key: &FlowKeyOf<A>,
    options: UsualOptions,
    (seq, ack): (SeqNum, SeqNum),
    (flags, window): (Flags, u16),
) -> usual::Headers<I> {
    usual::Headers {
        ip,
        src_port: key.local_port,
        dst_port: key.peer_port,
        seq,
        ack,
        flags,
        window,
        options,
    }
}

/// Frames of one connection on their way out.
pub(crate) struct Wire<'a> {
    envelope: &'a Envelope,
    /// The connection's flow label, which IPv6 has.
    label: u32,
    out: &'a mut Vec<Frame>,
    /// Length of `out` at which it is full.
    end: usize,
}

impl<'a> Wire<'a> {
    /// Frames go to `out` until it has `end` of them.
    #[inline(always)]
    pub(crate) fn new(
        envelope: &'a Envelope,
        label: u32,
        out: &'a mut Vec<Frame>,
        end: usize,
    ) -> Wire<'a> {
        Wire {
            envelope,
            label,
            out,
            end,
        }
    }

    #[inline(always)]
    pub(crate) fn envelope(&self) -> &'a Envelope {
        self.envelope
    }

    /// The connection's flow label, which IPv6 has.
    #[inline(always)]
    pub(crate) fn label(&self) -> u32 {
        self.label
    }

    /// Number of frames that are out; the next one's place.
    #[inline(always)]
    pub(crate) fn sent(&self) -> usize {
        self.out.len()
    }

    /// A frame that is out, by its place.
    pub(crate) fn frame_mut(&mut self, at: usize) -> Option<&mut Frame> {
        self.out.get_mut(at)
    }

    /// How many frames fit still.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.end.saturating_sub(self.out.len())
    }

    /// Hands out a frame.
    #[inline(always)]
    pub(crate) fn push(&mut self, frame: Frame) {
        self.out.push(frame);
    }

    /// No more frames fit now.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.out.len() >= self.end
    }

    /// Hands out a segment without payload. False when there was no packet buffer for it.
    pub(crate) fn send_bare(&mut self, pool: &mut Pool, segment: &Outgoing) -> bool {
        let Some(mut buf) = pool.alloc_reserved() else {
            return false;
        };
        let len = self
            .envelope
            .write(&mut buf, (HEADROOM, 0), segment, self.label);
        self.out.push(Frame::new(buf, len));
        true
    }
}

impl Outgoing {
    /// RST for a segment that belongs to nothing (section 3.10.7.1), unless it is one itself.
    pub(crate) fn reset_for(p: &Parsed) -> Option<Outgoing> {
        if p.flags().contains(Flags::RST) {
            return None;
        }
        let (seq, ack, flags) = if p.flags().contains(Flags::ACK) {
            (p.ack(), SeqNum(0), Flags::RST)
        } else {
            (SeqNum(0), p.seq() + p.space(), Flags::RST | Flags::ACK)
        };
        let numbers = (seq, ack);
        Some(Outgoing::new(
            *p.key(),
            numbers,
            flags,
            0,
            Options::NONE,
            DEFAULT,
        ))
    }
}
