//! Packets of the far end: crafted from templates with only the changing words patched and summed, and read with
//! every checksum verified. What they answer is decided in `far.rs`.

use super::six;
use janus_wire::{MacAddr, checksum, ethernet, proto, tcp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

/// Bits of a client port that count; the first bit is set.
const PORT_BITS: u32 = 15;
const PORT_FIRST: u32 = 1 << PORT_BITS;
/// First client address, of those for benchmarks (RFC 2544).
const NET: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const ADDRESS_BITS: u32 = 13;
const TUPLE_BITS: u32 = ADDRESS_BITS + PORT_BITS;
/// Number of connections that the far end can tell apart: 268,435,456.
pub const CONNECTIONS_MAX: u32 = 1 << TUPLE_BITS;
/// Odd numbers that spread connections over the tuples, and those that undo it.
const SPREAD: [u32; 2] = [0x9e37_79b1, 0x85eb_ca6b];
const GATHER: [u32; 2] = [inverse(SPREAD[0]), inverse(SPREAD[1])];

const ETH: usize = 14;
const IP: usize = 20;
/// TCP header with NOP, NOP, timestamps.
const TCP_TS: usize = 32;
/// TCP header of a SYN: MSS, SACK permitted, timestamps, NOP, window scale.
const TCP_SYN: usize = 40;
/// TCP header of a SYN without timestamps: MSS, NOP, NOP, SACK permitted, NOP, window scale.
const TCP_PLAIN_SYN: usize = 32;
/// Place of the timestamps in the TCP header of a segment (after two NOPs, kind and length), and of a SYN (after MSS, SACK
/// permitted, kind and length).
const TS_AT: usize = 24;
const TS_AT_SYN: usize = 28;
/// Place of the timestamps in a header that has none.
const NO_TS: usize = 0;

/// Inverse of an odd number modulo 2^32, and so modulo every smaller power of two.
const fn inverse(odd: u32) -> u32 {
    // Right in its last three bits; each step doubles them.
    let mut found = odd;
    let mut bits = 3;
    while bits < 32 {
        found = found.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(found)));
        bits *= 2;
    }
    found
}

/// Permutes the numbers of so many bits.
#[inline]
pub(super) fn permuted(number: u32, bits: u32) -> u32 {
    permuted_by(number, bits, SPREAD)
}

/// The inverse factors in the other order undo it, as the shift undoes itself.
#[inline]
fn permuted_by(number: u32, bits: u32, [first, second]: [u32; 2]) -> u32 {
    let mask = (1 << bits) - 1;
    let spread = number.wrapping_mul(first) & mask;
    (spread ^ spread >> bits.div_ceil(2)).wrapping_mul(second) & mask
}

/// The client address and port of a connection: those of the next connection are anywhere else.
#[inline]
pub fn endpoint(conn: u32) -> (u32, u16) {
    let place = permuted(conn, TUPLE_BITS);
    let port = PORT_FIRST + place % PORT_FIRST;
    (NET + (place >> PORT_BITS), port as u16)
}

/// The connection that a client address and port stand for.
#[inline]
pub fn connection(addr: u32, port: u16) -> Option<u32> {
    let host = addr.checked_sub(NET)?;
    let port = u32::from(port).checked_sub(PORT_FIRST)?;
    let known = host < 1 << ADDRESS_BITS;
    known.then(|| permuted_by(host << PORT_BITS | port, TUPLE_BITS, [GATHER[1], GATHER[0]]))
}

/// The two ends.
#[derive(Clone, Debug)]
pub struct Ends {
    pub server_mac: MacAddr,
    pub far_mac: MacAddr,
    pub server: SocketAddrV4,
    /// They speak IPv6, in which each address stands for the IPv4 one (`six.rs`).
    pub six: bool,
    /// Segments of the far end carry timestamps.
    pub timestamps: bool,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            server_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            far_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            server: SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 80),
            six: false,
            timestamps: true,
        }
    }
}

impl Ends {
    /// The same over IPv6.
    pub fn over_six() -> Self {
        Self {
            six: true,
            ..Self::default()
        }
    }

    /// Returns the IPv4 ends of a wire without timestamps.
    pub fn without_timestamps() -> Self {
        Self {
            timestamps: false,
            ..Self::default()
        }
    }

    /// `address`, or what stands for it over IPv6.
    fn spoken(&self, address: Ipv4Addr) -> IpAddr {
        if self.six {
            six::address(address).into()
        } else {
            address.into()
        }
    }

    pub fn server_ip(&self) -> IpAddr {
        self.spoken(*self.server.ip())
    }

    /// Bits that name the server's network, in which no client is.
    pub fn server_prefix(&self) -> u8 {
        if self.six { 120 } else { 24 }
    }

    pub fn gateway_four(&self) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, 2)
    }

    /// The way to the clients.
    pub fn gateway(&self) -> IpAddr {
        self.spoken(self.gateway_four())
    }

    /// Where the server listens.
    pub fn listen_at(&self) -> SocketAddr {
        let any: IpAddr = if self.six {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        };
        SocketAddr::new(any, self.server.port())
    }
}

/// What changes from segment to segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub conn: u32,
    pub seq: u32,
    pub ack: u32,
    pub flags: tcp::Flags,
    pub ts_val: u32,
    pub ts_echo: u32,
}

/// Writes packets.
pub struct Crafter {
    data: Template<{ ETH + IP + TCP_TS }, TS_AT>,
    syn: Template<{ ETH + IP + TCP_SYN }, TS_AT_SYN>,
    plain: Template<{ ETH + IP + tcp::LEN }, NO_TS>,
    plain_syn: Template<{ ETH + IP + TCP_PLAIN_SYN }, NO_TS>,
    ends: Ends,
}

/// A frame's headers, with timestamps at `TS` in the TCP header.
struct Template<const N: usize, const TS: usize> {
    bytes: [u8; N],
    /// Sums of what does not change.
    ip_sum: u32,
    tcp_sum: u32,
}

impl<const N: usize, const TS: usize> Template<N, TS> {
    fn new(ends: &Ends, options: &[u8]) -> Self {
        let mut bytes = [0; N];
        let header = ethernet::Header {
            dst: ends.server_mac,
            src: ends.far_mac,
            ethertype: ethernet::ethertype::IPV4,
        };
        header.emit(&mut bytes);
        let ip = &mut bytes[ETH..ETH + IP];
        ip[0] = 0x45;
        ip[6] = 0x40; // don't fragment
        ip[8] = 64;
        ip[9] = proto::TCP;
        ip[16..20].copy_from_slice(&ends.server.ip().octets());
        let ip_sum = checksum::sum(ip, 0);
        let segment = &mut bytes[ETH + IP..];
        segment[2..4].copy_from_slice(&ends.server.port().to_be_bytes());
        segment[12] = ((N - ETH - IP) as u8 / 4) << 4;
        segment[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
        segment[20..20 + options.len()].copy_from_slice(options);
        let tcp_sum = checksum::sum(
            segment,
            checksum::pseudo_v4(Ipv4Addr::UNSPECIFIED, *ends.server.ip(), proto::TCP, 0),
        );
        Self {
            bytes,
            ip_sum,
            tcp_sum,
        }
    }

    /// Patches the template for `segment` with `payload` behind it. Returns the length.
    #[inline]
    fn write(&self, out: &mut [u8], segment: &Segment, payload: &[u8]) -> usize {
        let len = N + payload.len();
        let out = &mut out[..len];
        out[..N].copy_from_slice(&self.bytes);
        out[N..].copy_from_slice(payload);
        let (addr, port) = endpoint(segment.conn);
        let total = (len - ETH) as u16;
        out[ETH + 2..ETH + 4].copy_from_slice(&total.to_be_bytes());
        out[ETH + 12..ETH + 16].copy_from_slice(&addr.to_be_bytes());
        let ip_sum = checksum::finish(add(add(self.ip_sum, u32::from(total)), halves(addr)));
        out[ETH + 10..ETH + 12].copy_from_slice(&ip_sum.to_be_bytes());
        let t = &mut out[ETH + IP..];
        t[0..2].copy_from_slice(&port.to_be_bytes());
        t[4..8].copy_from_slice(&segment.seq.to_be_bytes());
        t[8..12].copy_from_slice(&segment.ack.to_be_bytes());
        t[13] = segment.flags.0;
        let words = halves(addr) + u32::from(port) + halves(segment.seq) + halves(segment.ack);
        let mut words = words + u32::from(segment.flags.0) + t.len() as u32;
        if TS != NO_TS {
            t[TS..TS + 4].copy_from_slice(&segment.ts_val.to_be_bytes());
            t[TS + 4..TS + 8].copy_from_slice(&segment.ts_echo.to_be_bytes());
            words += halves(segment.ts_val) + halves(segment.ts_echo);
        }
        let sum = checksum::sum(payload, add(self.tcp_sum, words));
        t[16..18].copy_from_slice(&checksum::finish(sum).to_be_bytes());
        len
    }
}

#[inline(always)]
fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

#[inline(always)]
fn add(a: u32, b: u32) -> u32 {
    checksum::add_partial(a, b)
}

impl Crafter {
    pub fn new(ends: &Ends) -> Self {
        let data = [1, 1, 8, 10];
        let syn = [
            2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7,
        ];
        let plain_syn = [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7];
        Self {
            data: Template::new(ends, &data),
            syn: Template::new(ends, &syn),
            plain: Template::new(ends, &[]),
            plain_syn: Template::new(ends, &plain_syn),
            ends: ends.clone(),
        }
    }

    /// Writes a SYN; returns its length.
    #[inline]
    pub fn syn(&self, out: &mut [u8], segment: &Segment) -> usize {
        if self.ends.timestamps {
            self.syn.write(out, segment, &[])
        } else {
            self.plain_syn.write(out, segment, &[])
        }
    }

    /// Writes any other segment; returns its length.
    #[inline]
    pub fn segment(&self, out: &mut [u8], segment: &Segment, payload: &[u8]) -> usize {
        if self.ends.timestamps {
            self.data.write(out, segment, payload)
        } else {
            self.plain.write(out, segment, payload)
        }
    }

    /// Writes the answer to an ARP request; `None` when `frame` is none. Every address of the far side is at one place.
    pub fn arp_reply(&self, frame: &[u8], out: &mut [u8]) -> Option<usize> {
        let (header, rest) = ethernet::Header::parse(frame).ok()?;
        if header.ethertype != ethernet::ethertype::ARP {
            return None;
        }
        let request = janus_wire::arp::Packet::parse(rest).ok()?;
        if request.op != janus_wire::arp::Op::Request {
            return None;
        }
        let reply = ethernet::Header {
            dst: header.src,
            src: self.ends.far_mac,
            ethertype: ethernet::ethertype::ARP,
        };
        reply.emit(out);
        Some(ETH + request.reply(self.ends.far_mac).emit(&mut out[ETH..]))
    }
}

/// Puts a SACK block behind the options of an acknowledgement; returns its new length.
pub fn with_sack(out: &mut [u8], len: usize, (left, right): (u32, u32)) -> usize {
    const OPTION: [u8; 4] = [1, 1, 5, 10];
    let more = OPTION.len() + 8;
    let (ip, segment) = out[ETH..len + more].split_at_mut(IP);
    let end = segment.len();
    segment[end - more..end - 8].copy_from_slice(&OPTION);
    segment[end - 8..end - 4].copy_from_slice(&left.to_be_bytes());
    segment[end - 4..].copy_from_slice(&right.to_be_bytes());
    segment[12] += (more as u8 / 4) << 4;
    ip[2..4].copy_from_slice(&((IP + end) as u16).to_be_bytes());
    ip[10..12].fill(0);
    let sum = checksum::ipv4_header(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
    segment[16..18].fill(0);
    tcp::fill_checksum_v4(segment, address(12), address(16));
    len + more
}

/// A segment that came from the server.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    pub conn: u32,
    pub seq: u32,
    pub ack: u32,
    pub flags: tcp::Flags,
    /// Timestamp value and echo, when it carries them.
    pub ts: Option<(u32, u32)>,
    pub payload: &'a [u8],
}

/// Why a frame from the server is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Not an IPv4 TCP packet to one of our clients.
    NotOurs,
    /// A checksum does not hold.
    Checksum,
}

/// Reads a frame of the server, verifying all that can be verified.
#[inline]
pub fn read<'a>(ends: &Ends, frame: &'a [u8]) -> Result<Answer<'a>, Wrong> {
    let ip = frame.get(ETH..).ok_or(Wrong::NotOurs)?;
    if frame[12..14] != [8, 0] || frame[..6] != ends.far_mac.0 || frame[6..12] != ends.server_mac.0
    {
        return Err(Wrong::NotOurs);
    }
    let ip = janus_wire::ipv4::parse(ip).map_err(|_| Wrong::NotOurs)?;
    if ip.proto != proto::TCP || ip.src != *ends.server.ip() {
        return Err(Wrong::NotOurs);
    }
    if !ip.checksum_ok() || checksum::tcp_v4(ip.src, ip.dst, ip.payload()) != 0 {
        return Err(Wrong::Checksum);
    }
    let (header, options, payload) = tcp::parse(ip.payload()).map_err(|_| Wrong::NotOurs)?;
    let conn = connection(ip.dst.to_bits(), header.dst_port).ok_or(Wrong::NotOurs)?;
    let ts = tcp::options::parse(options).timestamps;
    Ok(Answer {
        conn,
        seq: header.seq.0,
        ack: header.ack.0,
        flags: header.flags,
        ts,
        payload,
    })
}
