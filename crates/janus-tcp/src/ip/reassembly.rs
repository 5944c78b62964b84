//! Fragments of IP datagrams, put together: RFC 791 with RFC 815's bookkeeping by what is there, RFC 8200 section 4.5.
//!
//! Fragments wait in the packet buffers they came in, and are copied once, when all are there. Both families keep the
//! strict rules that were written for IPv6: a fragment that overlaps another condemns its whole datagram, those parts
//! that are still to come included (RFC 5722), because honest senders never make one and what an overlap means is
//! anybody's guess. A first fragment holds the whole transport header (RFC 1858, RFC 3128, RFC 7112).
//! What a datagram means, and who is told that it never became whole, is decided elsewhere.

use core::time::Duration;
use std::net::IpAddr;

use janus_mem::{Frame, Pool};
use janus_wire::{ipv4, ipv6, proto};

use crate::store::cold::NONE;
use crate::store::counters::Counters;
use crate::time::Instant;

/// Datagrams in pieces at a time, over all senders; at the bound the oldest makes room.
pub(crate) const MAX_DATAGRAMS: usize = 256;
/// Fragments held, over all datagrams, each in a packet buffer: a megabyte in all. At the bound the oldest datagram
/// makes room.
pub(crate) const MAX_FRAGMENTS: usize = 512;
/// Fragments of one datagram: enough for 64 KiB in the smallest packets that any link still carries whole (576 bytes).
pub(crate) const MAX_FRAGMENTS_EACH: u16 = 128;
/// How long the parts of a datagram wait for the rest, from the first that came. RFC 8200 section 4.5 says 60 s;
/// RFC 791 leaves it open, and 30 s is what others use.
const PATIENCE_V4: Duration = Duration::from_secs(30);
const PATIENCE_V6: Duration = Duration::from_secs(60);
/// The most a datagram holds behind the IPv4 header, and behind the IPv6 header.
const LONGEST_V4: usize = u16::MAX as usize - ipv4::LEN;
const LONGEST_V6: usize = u16::MAX as usize;
/// A TCP header without options.
const TCP_HEADER: usize = janus_wire::tcp::LEN;

/// Which datagram a fragment is of (RFC 791 section 3.2; RFC 8200 leaves the protocol out: here it is 0 then).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramId {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) id: u32,
    pub(super) proto: u8,
}

/// A fragment, as its header describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(super) of: DatagramId,
    /// Header that the payload of the whole begins with.
    pub(super) proto: u8,
    /// DSCP and ECN.
    pub(super) tos: u8,
    pub(super) hop_limit: u8,
    pub(super) more: bool,
    /// Where the payload belongs in the datagram.
    pub(super) offset: usize,
    /// Where in the packet buffer the IP header and the payload begin, and how long the latter is.
    pub(super) packet_at: u16,
    pub(super) payload_at: u16,
    pub(super) len: u16,
}

impl Piece {
    /// Reads an IP packet that lies in a frame's buffer from `packet_at` on; `None` when it is no fragment.
    pub(crate) fn read(packet: &[u8], packet_at: u16) -> Option<Piece> {
        match packet.first()? >> 4 {
            4 => Piece::read_v4(&ipv4::parse(packet).ok()?, packet_at),
            _ => Piece::read_v6(&ipv6::parse(packet).ok()?, packet_at),
        }
    }

    fn read_v4(ip: &ipv4::Ipv4<'_>, packet_at: u16) -> Option<Piece> {
        ip.is_fragment().then(|| Piece {
            of: DatagramId {
                src: ip.src.into(),
                dst: ip.dst.into(),
                id: u32::from(ip.id),
                proto: ip.proto,
            },
            proto: ip.proto,
            tos: ip.tos,
            hop_limit: ip.ttl,
            more: ip.more_fragments(),
            offset: ip.fragment_offset(),
            packet_at,
            payload_at: packet_at + ip.header_len() as u16,
            len: ip.payload().len() as u16,
        })
    }

    fn read_v6(ip: &ipv6::Ipv6<'_>, packet_at: u16) -> Option<Piece> {
        let fragment = ip.fragment?;
        Some(Piece {
            of: DatagramId {
                src: ip.src.into(),
                dst: ip.dst.into(),
                id: fragment.id,
                proto: 0,
            },
            proto: ip.proto,
            tos: ip.traffic_class,
            hop_limit: ip.hop_limit,
            more: fragment.more,
            offset: usize::from(fragment.offset),
            packet_at,
            payload_at: packet_at + ip.header_len() as u16,
            len: ip.payload().len() as u16,
        })
    }

    fn end(&self) -> usize {
        self.offset + usize::from(self.len)
    }

    /// Whether it can be a part of any datagram: RFC 791 and RFC 8200 section 4.5 on lengths, RFC 1858 and RFC 3128 on
    /// what a first fragment must hold.
    fn is_sound(&self, payload: &[u8]) -> bool {
        let longest = match self.of.src {
            IpAddr::V4(_) => LONGEST_V4,
            IpAddr::V6(_) => LONGEST_V6,
        };
        let lengths = !payload.is_empty() && (!self.more || payload.len().is_multiple_of(8));
        lengths && self.end() <= longest && self.keeps_headers_whole(payload)
    }

    fn keeps_headers_whole(&self, payload: &[u8]) -> bool {
        if self.offset > 0 {
            // RFC 3128: a later fragment that would write over the ports and flags.
            return self.proto != proto::TCP || self.offset >= TCP_HEADER;
        }
        let (upper, at) = match self.of.src {
            IpAddr::V4(_) => (self.proto, 0),
            IpAddr::V6(_) => match ipv6::upper_layer(self.proto, payload) {
                Ok(found) => found,
                Err(_) => return false,
            },
        };
        let header = payload.get(at..).unwrap_or_default();
        // The data offset says how long a TCP header is, options included.
        upper != proto::TCP
            || header.len() >= TCP_HEADER && header.len() >= usize::from(header[12] >> 4) * 4
    }
}

/// A fragment that waits.
struct Fragment {
    frame: Option<Frame>,
    next: u32,
    offset: u32,
    piece_at: u16,
    packet_at: u16,
    len: u16,
}

impl Fragment {
    fn end(&self) -> usize {
        self.offset as usize + usize::from(self.len)
    }

    fn payload(&self) -> &[u8] {
        let from = usize::from(self.piece_at);
        match &self.frame {
            Some(frame) => &frame.buf.bytes()[from..from + usize::from(self.len)],
            None => &[],
        }
    }
}

/// A datagram in pieces.
struct Datagram {
    of: DatagramId,
    started: Instant,
    /// Its fragments by offset, the first and the last, and how many.
    head: u32,
    tail: u32,
    count: u16,
    /// Bytes that are there; they never overlap.
    held: usize,
    /// Its length, once the last fragment has come.
    total: Option<usize>,
    /// Facts from the first fragment.
    proto: u8,
    tos: u8,
    hop_limit: u8,
    /// A bit for each ECN codepoint seen (RFC 3168 section 5.3).
    ecn: u8,
    /// Overlapped or otherwise impossible: all that still comes of it is dropped.
    condemned: bool,
}

impl Datagram {
    fn new(of: DatagramId, now: Instant) -> Datagram {
        Datagram {
            of,
            started: now,
            head: NONE,
            tail: NONE,
            count: 0,
            held: 0,
            total: None,
            proto: 0,
            tos: 0,
            hop_limit: 0,
            ecn: 0,
            condemned: false,
        }
    }

    fn expires(&self) -> Instant {
        self.started
            + match self.of.src {
                IpAddr::V4(_) => PATIENCE_V4,
                IpAddr::V6(_) => PATIENCE_V6,
            }
    }

    fn is_whole(&self) -> bool {
        self.total == Some(self.held) && !self.condemned
    }
}

/// Result of taking a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The datagram waits for more, or the fragment was dropped and counted.
    No,
    /// The datagram is whole, and lies in what was given for it: an IP header without options and the payload.
    Whole,
}

/// Which place among its datagram's fragments a new one has.
enum Place {
    /// Behind this one, or first if that is `NONE`.
    Behind(u32),
    /// These bytes are there already.
    Repeated,
    Overlaps,
}

/// Datagrams in pieces.
#[derive(Default)]
pub(crate) struct Reassembly {
    datagrams: Vec<Datagram>,
    /// Places beyond those ever used are added up to the bound, and then used again and again.
    fragments: Vec<Fragment>,
    free: Vec<u32>,
}

impl Reassembly {
    /// Nothing waits: the common case, in which the look ends here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Datagrams in pieces.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Fragments held, each in a packet buffer.
    #[cfg(test)]
    pub(crate) fn fragments(&self) -> usize {
        self.fragments.len() - self.free.len()
    }

    /// Takes a fragment. A datagram that becomes whole is written to `whole`.
    pub(crate) fn take(
        &mut self,
        piece: &Piece,
        frame: Frame,
        now: Instant,
        whole: &mut Vec<u8>,
        (pool, counters): (&mut Pool, &mut Counters),
    ) -> Taken {
        counters.fragments_in += 1;
        let from = usize::from(piece.payload_at);
        let sound = piece.is_sound(&frame.buf.bytes()[from..from + usize::from(piece.len)]);
        if !sound {
            counters.dropped_fragment_invalid += 1;
            pool.free(frame.buf);
            return Taken::No;
        }
        let at = match self.datagrams.iter().position(|d| d.of == piece.of) {
            Some(at) => at,
            None => {
                self.make_room(MAX_DATAGRAMS, usize::MAX, NONE_AT, pool, counters);
                self.datagrams.push(Datagram::new(piece.of, now));
                self.datagrams.len() - 1
            }
        };
        let place = match self.datagrams[at].condemned {
            true => Place::Overlaps,
            false => self.place_of(at, piece, &frame),
        };
        match place {
            Place::Behind(after) => self.keep(at, after, piece, frame, pool, counters),
            Place::Repeated => {
                pool.free(frame.buf);
                return Taken::No;
            }
            Place::Overlaps => {
                counters.dropped_fragment_overlap += 1;
                pool.free(frame.buf);
                self.condemn(at, pool);
                return Taken::No;
            }
        }
        // Making room for the fragment may have moved datagrams about.
        let Some(at) = self.datagrams.iter().position(|d| d.of == piece.of) else {
            return Taken::No;
        };
        if !self.datagrams[at].is_whole() {
            return Taken::No;
        }
        let written = self.write(at, whole);
        self.remove(at, pool);
        if !written {
            counters.dropped_fragment_invalid += 1;
            return Taken::No;
        }
        counters.datagrams_reassembled += 1;
        Taken::Whole
    }

    /// Where a fragment belongs. An exact copy is no overlap: networks repeat packets (RFC 8200 section 4.5).
    fn place_of(&self, at: usize, piece: &Piece, frame: &Frame) -> Place {
        let datagram = &self.datagrams[at];
        let fits_end = match (datagram.total, piece.more) {
            (Some(total), true) => piece.end() < total,
            (Some(total), false) => piece.end() == total,
            (None, true) => true,
            // Nothing that is there may lie behind the end.
            (None, false) => {
                datagram.tail == NONE || self.fragments[datagram.tail as usize].end() <= piece.end()
            }
        };
        if !fits_end {
            return Place::Overlaps;
        }
        // Most come in order.
        let mut after = NONE;
        let mut next = datagram.head;
        if datagram.tail != NONE && self.fragments[datagram.tail as usize].end() <= piece.offset {
            (after, next) = (datagram.tail, NONE);
        }
        while next != NONE && (self.fragments[next as usize].offset as usize) < piece.offset {
            after = next;
            next = self.fragments[next as usize].next;
        }
        if after != NONE && self.fragments[after as usize].end() > piece.offset {
            return Place::Overlaps;
        }
        if next == NONE || piece.end() <= self.fragments[next as usize].offset as usize {
            return Place::Behind(after);
        }
        let there = &self.fragments[next as usize];
        let from = usize::from(piece.payload_at);
        let new = &frame.buf.bytes()[from..from + usize::from(piece.len)];
        let same = there.offset as usize == piece.offset && there.payload() == new;
        // A fragment that was not the last before cannot be the last now.
        if same && (piece.more || datagram.total.is_some()) {
            Place::Repeated
        } else {
            Place::Overlaps
        }
    }

    fn keep(
        &mut self,
        at: usize,
        after: u32,
        piece: &Piece,
        frame: Frame,
        pool: &mut Pool,
        counters: &mut Counters,
    ) {
        if self.datagrams[at].count >= MAX_FRAGMENTS_EACH {
            counters.dropped_fragment_invalid += 1;
            pool.free(frame.buf);
            self.condemn(at, pool);
            return;
        }
        let at = self.make_room(usize::MAX, MAX_FRAGMENTS, at, pool, counters);
        let fragment = Fragment {
            frame: Some(frame),
            next: NONE,
            offset: piece.offset as u32,
            piece_at: piece.payload_at,
            packet_at: piece.packet_at,
            len: piece.len,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.fragments[id as usize] = fragment;
                id
            }
            None => {
                self.fragments.push(fragment);
                self.fragments.len() as u32 - 1
            }
        };
        let datagram = &mut self.datagrams[at];
        let link = match after {
            NONE => &mut datagram.head,
            after => &mut self.fragments[after as usize].next,
        };
        let next = core::mem::replace(link, id);
        self.fragments[id as usize].next = next;
        if next == NONE {
            datagram.tail = id;
        }
        datagram.count += 1;
        datagram.held += usize::from(piece.len);
        datagram.ecn |= 1 << (piece.tos & 0b11);
        if !piece.more {
            datagram.total = Some(piece.end());
        }
        if piece.offset == 0 {
            (datagram.proto, datagram.tos) = (piece.proto, piece.tos);
            datagram.hop_limit = piece.hop_limit;
        }
    }

    /// Lets the oldest datagrams go until there is room for one more datagram, or fragment. The one at `spared` stays;
    /// gives the place where it is then.
    fn make_room(
        &mut self,
        datagrams: usize,
        fragments: usize,
        mut spared: usize,
        pool: &mut Pool,
        counters: &mut Counters,
    ) -> usize {
        while self.datagrams.len() >= datagrams
            || self.fragments.len() - self.free.len() >= fragments
        {
            let others = (0..self.datagrams.len()).filter(|&at| at != spared);
            // A condemned one holds nothing, but keeps what is still to come of it from starting anew.
            let oldest = others.min_by_key(|&at| {
                let datagram = &self.datagrams[at];
                let useless = fragments != usize::MAX && datagram.count == 0;
                (useless, datagram.started)
            });
            let Some(oldest) = oldest else { break };
            counters.reassembly_evicted += 1;
            self.remove(oldest, pool);
            if spared == self.datagrams.len() {
                // It was last, and has been moved into the gap.
                spared = oldest;
            }
        }
        spared
    }

    /// Writes the whole datagram behind a fresh header. False when its ECN bits contradict each other.
    /// Keeps 3168-4, 3168-5, 3168-6.
    fn write(&self, at: usize, whole: &mut Vec<u8>) -> bool {
        const NOT_ECT: u8 = 1 << 0b00;
        const CE: u8 = 1 << 0b11;
        let datagram = &self.datagrams[at];
        if datagram.ecn & (NOT_ECT | CE) == NOT_ECT | CE {
            // RFC 3168 section 5.3: some network set CE on what did not ask for it.
            return false;
        }
        let congested = if datagram.ecn & CE != 0 { 0b11 } else { 0 };
        let payload_len = datagram.held as u16;
        whole.clear();
        match (datagram.of.src, datagram.of.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                whole.resize(ipv4::LEN, 0);
                let repr = ipv4::Repr {
                    src,
                    dst,
                    proto: datagram.proto,
                    payload_len,
                    ttl: datagram.hop_limit,
                    tos: datagram.tos | congested,
                    id: datagram.of.id as u16,
                    dont_fragment: false,
                };
                ipv4::emit(whole, &repr);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                whole.resize(ipv6::LEN, 0);
                let repr = ipv6::Repr {
                    src,
                    dst,
                    proto: datagram.proto,
                    payload_len,
                    hop_limit: datagram.hop_limit,
                    traffic_class: datagram.tos | congested,
                    flow_label: 0,
                };
                ipv6::emit(whole, &repr);
            }
            _ => return false,
        }
        let mut next = datagram.head;
        while next != NONE {
            let fragment = &self.fragments[next as usize];
            whole.extend_from_slice(fragment.payload());
            next = fragment.next;
        }
        true
    }

    /// Frees what a datagram holds; what is still to come of it will be dropped, until its time is over.
    fn condemn(&mut self, at: usize, pool: &mut Pool) {
        self.datagrams[at].condemned = true;
        self.datagrams[at].tail = NONE;
        self.datagrams[at].count = 0;
        self.datagrams[at].held = 0;
        let mut next = core::mem::replace(&mut self.datagrams[at].head, NONE);
        while next != NONE {
            let fragment = &mut self.fragments[next as usize];
            if let Some(frame) = fragment.frame.take() {
                pool.free(frame.buf);
            }
            self.free.push(next);
            next = fragment.next;
        }
    }

    fn remove(&mut self, at: usize, pool: &mut Pool) {
        self.condemn(at, pool);
        self.datagrams.swap_remove(at);
    }

    /// When the first datagram's time is over.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.datagrams.iter().map(Datagram::expires).min()
    }

    /// A datagram whose time is over: its first fragment, if that came, and where the IP header lies in it, so that the
    /// sender can be told.
    pub(crate) fn pop_expired(
        &mut self,
        now: Instant,
        (pool, counters): (&mut Pool, &mut Counters),
    ) -> Option<Option<(Frame, u16)>> {
        let at = self.datagrams.iter().position(|d| d.expires() <= now)?;
        counters.reassembly_expired += 1;
        let head = self.datagrams[at].head;
        let first = match self.fragments.get_mut(head as usize) {
            Some(first) if first.offset == 0 => {
                let packet_at = first.packet_at;
                first.frame.take().map(|frame| (frame, packet_at))
            }
            _ => None,
        };
        self.remove(at, pool);
        Some(first)
    }
}

/// No datagram is spared.
const NONE_AT: usize = usize::MAX;

#[cfg(test)]
mod tests;
