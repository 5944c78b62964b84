//! From a frame to what the engine wants to know of it. First pass of the batch: nothing here looks at a flow.

use std::net::Ipv6Addr;

use janus_mem::Frame;
use janus_wire::tcp::{self, Flags, Options, SackBlocks};
use janus_wire::usual::{Segment, SegmentV4, SegmentV6};
use janus_wire::{
    FlowKey, FlowKeyV4, FlowKeyV6, Link, SeqNum, TableHash, checksum, ethernet, ipv4, ipv6, proto,
};

use crate::rules::Rules;
use crate::rules::own_v4::number;
use crate::store::cold::NONE;
use crate::store::counters::Counters;

/// A TCP segment, read and found sound. It is written in the place where it is used: a copy would have to wait for the
/// small stores that made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parsed {
    kind: Kind,
    key: FlowKey,
    hash: u64,
    /// The record whose tag agreed in the second pass, as the table spells it, or `NONE`.
    candidate: u32,
    seq: SeqNum,
    ack: SeqNum,
    flags: Flags,
    window: u16,
    /// Where the payload begins in the packet buffer, and its length.
    payload_off: u16,
    payload_len: u16,
    options_len: u8,
    /// The IP header's ECN bits.
    ecn: u8,
    timestamps: Option<(u32, u32)>,
}

impl Parsed {
    /// No segment.
    pub(crate) const NONE: Parsed = Parsed {
        kind: Kind::Drop,
        key: FlowKey::V4(FlowKeyV4::NONE),
        hash: 0,
        candidate: NONE,
        seq: SeqNum(0),
        ack: SeqNum(0),
        flags: Flags::NONE,
        window: 0,
        payload_off: 0,
        payload_len: 0,
        options_len: 0,
        ecn: 0,
        timestamps: None,
    };

    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> &FlowKey {
        &self.key
    }

    /// Hash of the flow.
    #[inline(always)]
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The record whose tag agreed in the second pass, as the table spells it, or `NONE`.
    #[inline(always)]
    pub(crate) fn candidate(&self) -> u32 {
        self.candidate
    }

    /// Notes the record whose tag agreed in the second pass.
    #[inline(always)]
    pub(crate) fn note_candidate(&mut self, record: u32) {
        self.candidate = record;
    }

    #[inline(always)]
    pub(crate) fn seq(&self) -> SeqNum {
        self.seq
    }

    #[inline(always)]
    pub(crate) fn ack(&self) -> SeqNum {
        self.ack
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> Flags {
        self.flags
    }

    #[inline(always)]
    pub(crate) fn window(&self) -> u16 {
        self.window
    }

    /// Where the payload begins in the packet buffer.
    #[inline(always)]
    pub(crate) fn payload_off(&self) -> u16 {
        self.payload_off
    }

    #[inline(always)]
    pub(crate) fn payload_len(&self) -> u16 {
        self.payload_len
    }

    /// The IP header's ECN bits.
    #[inline(always)]
    pub(crate) fn ecn(&self) -> u8 {
        self.ecn
    }

    #[inline(always)]
    pub(crate) fn timestamps(&self) -> Option<(u32, u32)> {
        self.timestamps
    }

    /// Sequence space the segment takes.
    #[inline]
    pub(crate) fn space(&self) -> u32 {
        u32::from(self.payload_len)
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// There are options beside timestamps, so perhaps SACK blocks. They are read when they are wanted.
    #[inline]
    pub(crate) fn has_more_options(&self) -> bool {
        let timestamps = if self.timestamps.is_some() { 12 } else { 0 };
        self.options_len > timestamps
    }

    /// The SACK blocks of the segment that `frame` is.
    pub(crate) fn sack_blocks(&self, frame: &Frame) -> SackBlocks {
        self.all_options(frame).sack
    }

    /// The urgent pointer, which counts only with [`Flags::URG`]: the last two bytes before the options.
    pub(crate) fn urgent_pointer(&self, frame: &Frame) -> u16 {
        let end = usize::from(self.payload_off) - usize::from(self.options_len);
        let bytes = &frame.buf.bytes()[end - 2..end];
        u16::from_be_bytes([bytes[0], bytes[1]])
    }

    /// All options: a SYN's, or those of a segment that has more than `timestamps` holds.
    pub(crate) fn all_options(&self, frame: &Frame) -> Options {
        let end = usize::from(self.payload_off);
        tcp::options::parse(&frame.buf.bytes()[end - usize::from(self.options_len)..end])
    }
}

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A TCP segment; what it says is in its [`Parsed`].
    Segment,
    /// A UDP datagram in one piece.
    Datagram,
    /// Something for `control`: ARP, ICMP, or an unknown protocol.
    Other,
    /// A part of an IP datagram.
    Fragment,
    /// Counted already.
    Drop,
}

/// Reads a frame. `parsed` holds something only if it is a segment.
/// Keeps 7323-2, MUST-3, MUST-5, MUST-50, MUST-57.
#[inline(always)]
pub(crate) fn read(
    frame: &Frame,
    rules: &Rules,
    hash: &TableHash,
    counters: &mut Counters,
    parsed: &mut Parsed,
) -> Kind {
    let kind = match look(frame, rules, hash, parsed) {
        Ok(kind) => kind,
        Err(why) => {
            match why {
                Refused::Malformed => counters.dropped_malformed += 1,
                Refused::Checksum => counters.dropped_checksum += 1,
                Refused::Protocol => counters.dropped_protocol += 1,
                Refused::Address => counters.dropped_address += 1,
            }
            Kind::Drop
        }
    };
    parsed.kind = kind;
    kind
}

/// Why a frame is dropped.
enum Refused {
    Malformed,
    Checksum,
    Protocol,
    Address,
}

impl From<janus_wire::Malformed> for Refused {
    fn from(_: janus_wire::Malformed) -> Refused {
        Refused::Malformed
    }
}

#[inline(always)]
fn look(
    frame: &Frame,
    rules: &Rules,
    hash: &TableHash,
    parsed: &mut Parsed,
) -> Result<Kind, Refused> {
    let data = frame.data();
    match rules.interface().link {
        Link::Ip => match data.first().ok_or(Refused::Malformed)? >> 4 {
            6 => look_v6_to_one(frame, data, rules, hash, parsed),
            _ => look_v4(frame, data, rules, hash, parsed),
        },
        Link::Ethernet => match ethernet::ipv4_to_one(data) {
            Some(packet) => look_v4(frame, packet, rules, hash, parsed),
            None => match ethernet::ipv6_to_one(data) {
                Some(packet) => look_v6_to_one(frame, packet, rules, hash, parsed),
                None => look_behind_ethernet(frame, rules, hash, parsed),
            },
        },
    }
}

/// Reads a frame that is not plainly an IP packet for one receiver.
#[inline(never)]
fn look_behind_ethernet(
    frame: &Frame,
    rules: &Rules,
    hash: &TableHash,
    parsed: &mut Parsed,
) -> Result<Kind, Refused> {
    let (header, packet) = ethernet::Header::parse(frame.data())?;
    match header.ethertype {
        // RFC 1122 section 3.3.6: what the link layer spread to many is not for one of our addresses.
        ethernet::ethertype::IPV4 if header.dst.is_group() => Err(Refused::Address),
        ethernet::ethertype::IPV4 => look_v4(frame, packet, rules, hash, parsed),
        ethernet::ethertype::ARP => Ok(Kind::Other),
        ethernet::ethertype::IPV6 => {
            let to_group = header.dst.is_group();
            look_v6(frame, packet, to_group, rules, hash, parsed)
        }
        _ => Err(Refused::Protocol),
    }
}

/// Nearly all are whole segments behind plain headers.
#[inline(always)]
fn look_v4(
    frame: &Frame,
    packet: &[u8],
    rules: &Rules,
    hash: &TableHash,
    parsed: &mut Parsed,
) -> Result<Kind, Refused> {
    let Some(segment) = SegmentV4::read(packet) else {
        return look_v4_by_parts(frame, packet, rules, hash, parsed);
    };
    if !rules.interface().rx_checksum && !segment.ip_is_sound() {
        return Err(Refused::Checksum);
    }
    // As below.
    let (src, dst) = (segment.src(), segment.dst());
    if !rules.own_v4().takes(src, dst) && !takes_looped_v4(frame, rules, src, dst) {
        return Err(Refused::Address);
    }
    if !rules.interface().rx_checksum && !segment.tcp_is_sound() && !frame.is_looped() {
        return Err(Refused::Checksum);
    }
    let key = segment.flow();
    parsed.key = FlowKey::V4(key);
    parsed.hash = hash.v4(&key);
    note(&segment, frame, rules, parsed, segment.ecn());
    Ok(Kind::Segment)
}

/// Like [`look_v4`], of a packet that was for one receiver on the link.
#[inline(never)]
fn look_v6_to_one(
    frame: &Frame,
    packet: &[u8],
    rules: &Rules,
    hash: &TableHash,
    parsed: &mut Parsed,
) -> Result<Kind, Refused> {
    let Some(segment) = SegmentV6::read(packet) else {
        return look_v6(frame, packet, false, rules, hash, parsed);
    };
    // As below.
    let key = segment.flow();
    if !rules.own_v6().takes(key.peer, key.local)
        && !takes_looped_v6(frame, rules, key.peer, key.local)
    {
        return Err(Refused::Address);
    }
    if !rules.interface().rx_checksum && !segment.tcp_is_sound() && !frame.is_looped() {
        return Err(Refused::Checksum);
    }
    parsed.key = FlowKey::V6(key);
    parsed.hash = hash.v6(&key);
    note(&segment, frame, rules, parsed, segment.ecn());
    Ok(Kind::Segment)
}

/// Notes all of a usual segment but its flow.
#[inline(always)]
fn note<const IP: usize>(
    segment: &Segment<'_, IP>,
    frame: &Frame,
    rules: &Rules,
    parsed: &mut Parsed,
    ecn: u8,
) {
    let link = rules.interface().link.header_len();
    let options_off = usize::from(frame.buf.off()) + link + segment.headers_len();
    parsed.candidate = NONE;
    parsed.seq = segment.seq();
    parsed.ack = segment.ack();
    parsed.flags = segment.flags();
    parsed.window = segment.window();
    parsed.payload_off = (options_off + segment.options_len()) as u16;
    parsed.payload_len = segment.payload_len() as u16;
    parsed.options_len = segment.options_len() as u8;
    parsed.ecn = ecn;
    parsed.timestamps = segment.timestamps();
}

#[inline(never)]
fn look_v4_by_parts(
    frame: &Frame,
    packet: &[u8],
    rules: &Rules,
    hash: &TableHash,
    parsed: &mut Parsed,
) -> Result<Kind, Refused> {
    let ip = ipv4::parse(packet)?;
    if !rules.interface().rx_checksum && !ip.checksum_ok() {
        return Err(Refused::Checksum);
    }
    // MUST-57 and MUST-63: nothing from or to a group or broadcast address, and nothing that is not for us.
    let (src, dst) = (number(ip.src), number(ip.dst));
    if !rules.own_v4().takes(src, dst) && !takes_looped_v4(frame, rules, src, dst) {
        return Err(Refused::Address);
    }
    if ip.is_fragment() || ip.proto != proto::TCP {
        return Ok(other_than_tcp(ip.is_fragment(), ip.proto));
    }
    let segment = ip.payload();
    let is_vouched = rules.interface().rx_checksum || frame.is_looped();
    let is_sound = || is_vouched || checksum::tcp_v4(ip.src, ip.dst, segment) == 0;
    let file = |peer_port, local_port| {
        let key = FlowKeyV4 {
            peer: ip.src,
            local: ip.dst,
            peer_port,
            local_port,
        };
        (FlowKey::V4(key), hash.v4(&key))
    };
    let at = Place {
        packet,
        headers: ip.header_len(),
        ecn: ip.ecn(),
        segment,
    };
    read_segment(frame, &at, file, is_sound, parsed)
}

/// `to_group`: the link layer spread it to many, so it must not be for one of our addresses.
#[inline(never)]
fn look_v6(
    frame: &Frame,
    packet: &[u8],
    to_group: bool,
    rules: &Rules,
    hash: &TableHash,
    parsed: &mut Parsed,
) -> Result<Kind, Refused> {
    let ip = ipv6::parse(packet)?;
    if to_group && !ip.dst.is_multicast() {
        return Err(Refused::Address);
    }
    if ip.proto == proto::ICMPV6 && !ip.is_fragment() {
        // Neighbour discovery has addresses that nothing else may have.
        let looped = takes_looped_v6(frame, rules, ip.src, ip.dst);
        return match looped || rules.interface().takes_icmp_v6(ip.src, ip.dst) {
            true => Ok(Kind::Other),
            false => Err(Refused::Address),
        };
    }
    if !rules.own_v6().takes(ip.src, ip.dst) && !takes_looped_v6(frame, rules, ip.src, ip.dst) {
        return Err(Refused::Address);
    }
    if ip.is_fragment() || ip.proto != proto::TCP {
        return Ok(other_than_tcp(ip.is_fragment(), ip.proto));
    }
    let segment = ip.payload();
    let is_vouched = rules.interface().rx_checksum || frame.is_looped();
    let is_sound = || is_vouched || checksum::tcp_v6(ip.src, ip.dst, segment) == 0;
    let file = |peer_port, local_port| {
        let key = FlowKeyV6 {
            peer: ip.src,
            local: ip.dst,
            peer_port,
            local_port,
        };
        (FlowKey::V6(key), hash.v6(&key))
    };
    let at = Place {
        packet,
        headers: ip.header_len(),
        ecn: ip.ecn(),
        segment,
    };
    read_segment(frame, &at, file, is_sound, parsed)
}

/// Whether a packet from one of our addresses to another may come in: what has crossed no device may. The checksum of its segment counts
/// for nothing: no device has filled it in that does so, and none can have damaged it.
#[cold]
#[inline(never)]
fn takes_looped_v4(frame: &Frame, rules: &Rules, src: u32, dst: u32) -> bool {
    frame.is_looped() && rules.own_v4().takes_looped(src, dst)
}

/// Like [`takes_looped_v4`].
#[cold]
#[inline(never)]
fn takes_looped_v6(frame: &Frame, rules: &Rules, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
    frame.is_looped() && rules.own_v6().takes_looped(src, dst)
}

fn other_than_tcp(is_fragment: bool, protocol: u8) -> Kind {
    match protocol {
        _ if is_fragment => Kind::Fragment,
        proto::UDP => Kind::Datagram,
        _ => Kind::Other,
    }
}

/// Returns the IP packet in a frame; what is no Ethernet frame where it should be has none.
pub(crate) fn packet(frame: &Frame, link: Link) -> &[u8] {
    match link {
        Link::Ip => frame.data(),
        Link::Ethernet => ethernet::Header::parse(frame.data()).map_or(&[], |(_, packet)| packet),
    }
}

/// Where a TCP segment stands.
struct Place<'a> {
    /// From the IP header on.
    packet: &'a [u8],
    /// How long that header is, with all that extends it.
    headers: usize,
    /// The IP header's ECN bits.
    ecn: u8,
    segment: &'a [u8],
}

/// Reads a TCP segment. `file` makes the key of the flow with these ports, and its hash: while the addresses are still
/// at hand.
#[inline(always)]
fn read_segment(
    frame: &Frame,
    at: &Place,
    file: impl FnOnce(u16, u16) -> (FlowKey, u64),
    is_sound: impl FnOnce() -> bool,
    parsed: &mut Parsed,
) -> Result<Kind, Refused> {
    let (header, options, payload) = tcp::parse(at.segment)?;
    if !is_sound() {
        return Err(Refused::Checksum);
    }
    // The packet may be followed by link-layer padding, so offsets count from the front.
    let link = frame.data().len() - at.packet.len();
    let segment_off = usize::from(frame.buf.off()) + link + at.headers;
    (parsed.key, parsed.hash) = file(header.src_port, header.dst_port);
    parsed.candidate = NONE;
    parsed.seq = header.seq;
    parsed.ack = header.ack;
    parsed.flags = header.flags;
    parsed.window = header.window;
    parsed.payload_off = (segment_off + header.header_len) as u16;
    parsed.payload_len = payload.len() as u16;
    parsed.options_len = options.len() as u8;
    parsed.ecn = at.ecn;
    parsed.timestamps = if options.is_empty() {
        None
    } else {
        tcp::options::parse(options).timestamps
    };
    Ok(Kind::Segment)
}

/// Frames taken in one round of passes.
pub(crate) const BATCH: usize = 64;
