//! Writing segments: headers in front of a payload that is already in its buffer, and frames handed out. What all frames of a
//! connection have in common is found once a turn ([`Envelope`]).

pub(crate) mod parse;

use janus_mem::{Frame, HEADROOM, PacketBuf, Pool};
use janus_wire::tcp::options::SackBlocks;
use janus_wire::tcp::{self, Flags, Options};
use janus_wire::usual::{self, UsualOptions};
use janus_wire::{FlowKey, FlowKeyV4, MacAddr, SeqNum, checksum, ethernet, ipv4, ipv6, proto};

use crate::rules::Rules;
use crate::rules::profile::DEFAULT;
use crate::store::cold::{Tcb, flag};
use crate::store::flows::KeyRef;
use crate::time::Instant;
use crate::wire::parse::Parsed;

/// The fields of a TCP segment that is to go out.
#[derive(Clone)]
pub(crate) struct Outgoing {
    key: FlowKey,
    seq: SeqNum,
    ack: SeqNum,
    flags: Flags,
    window: u16,
    /// The urgent pointer, which counts only with [`Flags::URG`].
    urgent: u16,
    options: Options,
    /// The set of socket options whose time to live and type of service the packet has.
    profile: u8,
}

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

/// Parts of headers that are the same in all frames of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    /// The link's header, of which `link_len` bytes count.
    link: [u8; ethernet::LEN],
    link_len: u8,
    ttl: u8,
    tos: u8,
    /// The device computes checksums.
    tx_checksum: bool,
    /// IPv6 only.
    flow_label: u32,
}

impl Envelope {
    /// The envelope of a flow whose next hop has the address `mac`; without one the frame has to wait for it.
    #[inline]
    pub(crate) fn new(rules: &Rules, key: &FlowKey, profile: u8, mac: Option<MacAddr>) -> Envelope {
        match key {
            FlowKey::V4(_) => Envelope::v4(rules, profile, mac),
            FlowKey::V6(_) => Envelope {
                flow_label: rules.flow_label(key),
                ..Envelope::of(rules, profile, mac, ethernet::ethertype::IPV6)
            },
        }
    }

    /// The envelope of a flow over IPv4.
    #[inline(always)]
    pub(crate) fn v4(rules: &Rules, profile: u8, mac: Option<MacAddr>) -> Envelope {
        Envelope::of(rules, profile, mac, ethernet::ethertype::IPV4)
    }

    #[inline(always)]
    fn of(rules: &Rules, profile: u8, mac: Option<MacAddr>, ethertype: u16) -> Envelope {
        let link_len = rules.interface().link.header_len() as u8;
        let mut link = [0; ethernet::LEN];
        if link_len > 0 {
            link[..6].copy_from_slice(&mac.unwrap_or_default().0);
            link[6..12].copy_from_slice(&rules.interface().mac.0);
            link[12..].copy_from_slice(&ethertype.to_be_bytes());
        }
        let (ttl, tos) = rules.profiles().ip(profile);
        Envelope {
            link,
            link_len,
            ttl,
            tos,
            tx_checksum: rules.interface().tx_checksum,
            flow_label: 0,
        }
    }

    pub(crate) fn link_len(&self) -> usize {
        usize::from(self.link_len)
    }

    pub(crate) fn tx_checksum(&self) -> bool {
        self.tx_checksum
    }

    /// Writes the headers of `segment` right before `off`, where `len` bytes of payload lie, and points the
    /// buffer at the frame. Returns the frame's length.
    /// Keeps MUST-2, MUST-45, MUST-48, MUST-49, SHLD-22.
    #[inline]
    pub(crate) fn write(&self, buf: &mut PacketBuf, off: u16, len: u16, segment: &Outgoing) -> u16 {
        match (&segment.key, segment.options.usual()) {
            (FlowKey::V4(key), Some(options)) if segment.urgent == 0 => {
                let numbers = (segment.seq, segment.ack);
                let control = (segment.flags, segment.window);
                self.write_usual(buf, (off, len), key, options, numbers, control)
            }
            _ => self.write_by_parts(buf, off, len, segment),
        }
    }

    /// Like [`Envelope::write`], for a segment that is plain.
    #[inline(always)]
    pub(crate) fn write_plain(
        &self,
        buf: &mut PacketBuf,
        (off, len): (u16, u16),
        key: KeyRef<'_>,
        plain: Plain,
    ) -> u16 {
        let KeyRef::V4(key) = key else {
            let options = Options {
                timestamps: plain.timestamps,
                ..Options::NONE
            };
            let numbers = (plain.seq, plain.ack);
            let (key, flags) = (key.get(), plain.flags);
            let segment = Outgoing::new(key, numbers, flags, plain.window, options, DEFAULT);
            return self.write_by_parts(buf, off, len, &segment);
        };
        let options = match plain.timestamps {
            Some((value, echo)) => UsualOptions::Timestamps(value, echo),
            None => UsualOptions::None,
        };
        let numbers = (plain.seq, plain.ack);
        let control = (plain.flags, plain.window);
        self.write_usual(buf, (off, len), key, options, numbers, control)
    }

    /// Like [`Envelope::write`], for nearly all segments over IPv4.
    #[inline(always)]
    fn write_usual(
        &self,
        buf: &mut PacketBuf,
        (off, len): (u16, u16),
        key: &FlowKeyV4,
        options: UsualOptions,
        (seq, ack): (SeqNum, SeqNum),
        (flags, window): (Flags, u16),
    ) -> u16 {
        let link = self.link_len();
        let start = usize::from(off) - (link + usual::LEN + options.len());
        let end = usize::from(off) + usize::from(len);
        let headers = usual::Headers {
            src: key.local,
            dst: key.peer,
            ttl: self.ttl,
            tos: self.tos,
            src_port: key.local_port,
            dst_port: key.peer_port,
            seq,
            ack,
            flags,
            window,
            options,
        };
        let (link_bytes, packet) = buf.bytes_mut()[start..end].split_at_mut(link);
        headers.write(packet, !self.tx_checksum);
        if let Ok(header) = <&mut [u8; ethernet::LEN]>::try_from(link_bytes) {
            *header = self.link;
        }
        buf.set_off(start as u16);
        (end - start) as u16
    }

    #[inline(never)]
    fn write_by_parts(&self, buf: &mut PacketBuf, off: u16, len: u16, segment: &Outgoing) -> u16 {
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
        self.write_ip(ip_bytes, tcp_bytes, key, summed);
        buf.set_off(start as u16);
        (end - start) as u16
    }

    /// The IP header before a segment, and the checksum in it, which covers both addresses.
    #[inline]
    fn write_ip(
        &self,
        ip: &mut [u8],
        tcp: &mut [u8],
        key: &FlowKey,
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
                    flow_label: self.flow_label,
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

/// Frames of one connection on their way out.
pub(crate) struct Wire<'a> {
    envelope: Envelope,
    out: &'a mut Vec<Frame>,
    /// Length of `out` at which it is full.
    end: usize,
}

impl<'a> Wire<'a> {
    /// Frames go to `out` until it has `end` of them.
    #[inline(always)]
    pub(crate) fn new(envelope: Envelope, out: &'a mut Vec<Frame>, end: usize) -> Wire<'a> {
        Wire { envelope, out, end }
    }

    #[inline(always)]
    pub(crate) fn envelope(&self) -> &Envelope {
        &self.envelope
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
        let len = self.envelope.write(&mut buf, HEADROOM, 0, segment);
        self.out.push(Frame::new(buf, len));
        true
    }
}

impl Outgoing {
    /// A segment with nothing urgent.
    #[inline(always)]
    pub(crate) fn new(
        key: FlowKey,
        (seq, ack): (SeqNum, SeqNum),
        flags: Flags,
        window: u16,
        options: Options,
        profile: u8,
    ) -> Outgoing {
        Outgoing {
            key,
            seq,
            ack,
            flags,
            window,
            urgent: 0,
            options,
            profile,
        }
    }

    #[inline(always)]
    pub(crate) fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The set of socket options whose time to live and type of service the packet has.
    #[inline(always)]
    pub(crate) fn profile(&self) -> u8 {
        self.profile
    }

    #[inline(always)]
    pub(crate) fn seq(&self) -> SeqNum {
        self.seq
    }

    #[inline(always)]
    pub(crate) fn window(&self) -> u16 {
        self.window
    }

    #[inline(always)]
    pub(crate) fn is_reset(&self) -> bool {
        self.flags.contains(Flags::RST)
    }

    /// The urgent pointer, if it counts.
    #[inline(always)]
    pub(crate) fn urgent(&self) -> Option<u16> {
        self.flags.contains(Flags::URG).then_some(self.urgent)
    }

    #[inline(always)]
    pub(crate) fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// The segment begins at `seq`.
    #[inline(always)]
    pub(crate) fn begin_at(&mut self, seq: SeqNum) {
        self.seq = seq;
    }

    /// The segment carries what begins at `seq`, with these flags.
    #[inline(always)]
    pub(crate) fn carry(&mut self, seq: SeqNum, flags: Flags) {
        (self.seq, self.flags) = (seq, flags);
    }

    /// Urgent data ends so far ahead of the segment's number.
    #[inline(always)]
    pub(crate) fn point_at(&mut self, ahead: u16) {
        self.flags |= Flags::URG;
        self.urgent = ahead;
    }

    /// An acknowledgement from where the connection stands, with the window as it was last offered.
    pub(crate) fn ack_of(key: FlowKey, tcb: &Tcb, rules: &Rules, now: Instant) -> Outgoing {
        let stamp = || rules.timestamp(rules.stamp_base(&key), now);
        Outgoing::ack_with(tcb.window_field(), key, tcb, stamp)
    }

    /// Like [`Outgoing::ack_of`], with this window field, and this timestamp where there are any.
    #[inline(always)]
    pub(crate) fn ack_with(
        window: u16,
        key: FlowKey,
        tcb: &Tcb,
        stamp: impl FnOnce() -> u32,
    ) -> Outgoing {
        Outgoing {
            key,
            seq: tcb.snd_nxt,
            ack: tcb.rcv_nxt,
            flags: Flags::ACK | tcb.ece(),
            window,
            urgent: 0,
            options: usual_options(tcb, stamp),
            profile: tcb.profile,
        }
    }

    /// Whether it only acknowledges.
    pub(crate) fn is_bare_ack(&self) -> bool {
        self.flags == Flags::ACK || self.flags == Flags::ACK | Flags::ECE
    }

    /// Like [`Outgoing::ack_of`], with SACK blocks.
    #[inline(always)]
    pub(crate) fn with_sack(mut self, sack: SackBlocks) -> Outgoing {
        self.options.sack = sack;
        self
    }

    /// A question whether the peer is there: a number it has acknowledged, and no data, so that it must say where it is
    /// (RFC 9293 section 3.8.4, SHLD-12).
    pub(crate) fn keepalive_of(key: FlowKey, tcb: &Tcb, rules: &Rules, now: Instant) -> Outgoing {
        Outgoing {
            seq: tcb.snd_nxt + u32::MAX,
            flags: Flags::ACK,
            ..Outgoing::ack_of(key, tcb, rules, now)
        }
    }

    /// The reset of a connection, if the peer knows of it.
    pub(crate) fn reset_of(
        key: FlowKey,
        tcb: &Tcb,
        rules: &Rules,
        now: Instant,
    ) -> Option<Outgoing> {
        // Section 3.2 of RFC 7323 would have its option in a reset too.
        tcb.state.is_synchronized().then(|| Outgoing {
            flags: Flags::RST | Flags::ACK,
            window: 0,
            ..Outgoing::ack_of(key, tcb, rules, now)
        })
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

/// The options that all segments of the connection carry.
/// Keeps 2018-1, 7323-13, 7323-15, MUST-65.
#[inline]
fn usual_options(tcb: &Tcb, stamp: impl FnOnce() -> u32) -> Options {
    if !tcb.has(flag::TIMESTAMPS) {
        return Options::NONE;
    }
    Options::timestamps(stamp(), tcb.ts_recent)
}
