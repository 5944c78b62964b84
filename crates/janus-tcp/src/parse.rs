//! From a frame to what the engine wants to know of it. First pass of the batch: nothing here looks at a flow.

use janus_mem::Frame;
use janus_wire::tcp::{self, Flags, Options};
use janus_wire::{FlowKeyV4, Link, SeqNum, checksum, ethernet, ipv4, proto};

use crate::cold::NONE;
use crate::config::Interface;
use crate::counters::Counters;
use std::net::Ipv4Addr;

/// A TCP segment, read and found sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parsed {
    pub(crate) key: FlowKeyV4,
    pub(crate) hash: u64,
    /// The record whose tag agreed in the second pass, as the table spells it, or `NONE`.
    pub(crate) candidate: u32,
    pub(crate) seq: SeqNum,
    pub(crate) ack: SeqNum,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    /// Where the payload begins in the packet buffer, and its length.
    pub(crate) payload_off: u16,
    pub(crate) payload_len: u16,
    options_len: u8,
    pub(crate) timestamps: Option<(u32, u32)>,
}

impl Parsed {
    /// Sequence space the segment takes.
    #[inline]
    pub(crate) fn space(&self) -> u32 {
        u32::from(self.payload_len)
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// The options of a SYN; other segments carry only what `timestamps` holds.
    pub(crate) fn syn_options(&self, frame: &Frame) -> Options {
        let end = usize::from(self.payload_off);
        tcp::options::parse(&frame.buf.bytes()[end - usize::from(self.options_len)..end])
    }
}

/// What a frame is.
pub(crate) enum Kind {
    Segment(Parsed),
    /// Something for `control`: ARP or ICMP.
    Other,
    /// Counted already.
    Drop,
}

/// Reads a frame.
#[inline]
pub(crate) fn read(frame: &Frame, interface: &Interface, counters: &mut Counters) -> Kind {
    let data = frame.data();
    let packet = match interface.link {
        Link::Ip => data,
        Link::Ethernet => match ethernet::Header::parse(data) {
            Ok((header, packet)) if header.ethertype == ethernet::ethertype::IPV4 => {
                // RFC 1122 section 3.3.6: what the link layer spread to many is not for one of our addresses.
                if header.dst.is_group() {
                    counters.dropped_address += 1;
                    return Kind::Drop;
                }
                packet
            }
            Ok((header, _)) if header.ethertype == ethernet::ethertype::ARP => return Kind::Other,
            Ok(_) => {
                counters.dropped_protocol += 1;
                return Kind::Drop;
            }
            Err(_) => {
                counters.dropped_malformed += 1;
                return Kind::Drop;
            }
        },
    };
    let Ok(ip) = ipv4::parse(packet) else {
        counters.dropped_malformed += 1;
        return Kind::Drop;
    };
    if !interface.rx_checksum && !ip.checksum_ok() {
        counters.dropped_checksum += 1;
        return Kind::Drop;
    }
    if ip.is_fragment() || (ip.proto != proto::TCP && ip.proto != proto::ICMP) {
        counters.dropped_protocol += 1;
        return Kind::Drop;
    }
    // MUST-57 and MUST-63: nothing from or to a group or broadcast address.
    if !interface.is_ours(ip.dst) || !may_be_peer(ip.dst) || !interface.may_be_source(ip.src) {
        counters.dropped_address += 1;
        return Kind::Drop;
    }
    if ip.proto == proto::ICMP {
        return Kind::Other;
    }
    let segment = ip.payload();
    let Ok((header, options, payload)) = tcp::parse(segment) else {
        counters.dropped_malformed += 1;
        return Kind::Drop;
    };
    if !interface.rx_checksum && checksum::tcp_v4(ip.src, ip.dst, segment) != 0 {
        counters.dropped_checksum += 1;
        return Kind::Drop;
    }
    // The packet may be followed by link-layer padding, so offsets count from the front.
    let segment_off = usize::from(frame.buf.off()) + (data.len() - packet.len()) + ip.header_len();
    Kind::Segment(Parsed {
        key: FlowKeyV4 {
            peer: ip.src,
            local: ip.dst,
            peer_port: header.src_port,
            local_port: header.dst_port,
        },
        hash: 0,
        candidate: NONE,
        seq: header.seq,
        ack: header.ack,
        flags: header.flags,
        window: header.window,
        payload_off: (segment_off + header.header_len) as u16,
        payload_len: payload.len() as u16,
        options_len: options.len() as u8,
        timestamps: if options.is_empty() {
            None
        } else {
            tcp::options::parse(options).timestamps
        },
    })
}

/// Whether an address can be an end of a TCP connection.
#[inline]
pub(crate) fn may_be_peer(addr: Ipv4Addr) -> bool {
    // 0.0.0.0/8 is "this network"; 224.0.0.0 and above: multicast, reserved, broadcast.
    (1..224).contains(&addr.octets()[0])
}
