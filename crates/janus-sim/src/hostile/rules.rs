//! Rules that hold on the wire whatever happens: a host sends the bytes its application wrote, at their place, within
//! the window and the segment size it was offered; it acknowledges only what was sent, and takes back nothing it said.
//! Checked where a packet leaves its host, with this crate's own codec. What never lives here: any idea of when a
//! segment should be sent.

use crate::net::{HostId, Observer, over_v4, stream_byte};
use crate::segment::{self, Flags, Segment, TcpOption};
use janus_tcp::Instant;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

/// Without the option a peer takes segments of this size (RFC 9293 MUST-15).
const MSS_DEFAULT: usize = 536;

/// One direction of a connection, as its sender has shown it so far. Places are counted from the first byte of data.
#[derive(Clone, Debug, Default)]
struct Line {
    /// Which stream its bytes are of, and how many of them there will be at most.
    stream: u64,
    total: i64,
    mtu: usize,
    /// Initial sequence number.
    start: Option<u32>,
    scale: Option<u8>,
    mss: Option<u16>,
    sack: bool,
    /// Its SYN offered ECN, or its SYN-ACK accepted it (RFC 3168 section 6.1.1).
    ecn: bool,
    /// First place behind the data sent.
    end: i64,
    fin: Option<i64>,
    /// Highest acknowledgement sent, and highest right edge of the window offered.
    acked: i64,
    edge: i64,
    clock: Option<u32>,
    reset: bool,
}

/// The rules, and what they know.
#[derive(Default)]
pub(super) struct Rules {
    lines: HashMap<(SocketAddr, SocketAddr), Line>,
    /// Segments found to keep them.
    pub(super) checked: u64,
    /// Of those, repeats of data.
    pub(super) repeats: u64,
    pub(super) sacks: u64,
}

/// As an observer of the network.
pub(super) struct Watch(pub(super) Rc<RefCell<Rules>>);

impl Observer for Watch {
    fn sent(&mut self, _now: Instant, _from: HostId, packet: &[u8]) {
        if let Some((from, to, segment)) = read(packet) {
            self.0
                .borrow_mut()
                .check((from, to), &segment, packet.len());
        }
    }
}

/// The segment in a packet and the addresses it goes between; `None` for ICMP and fragments.
fn read(packet: &[u8]) -> Option<(IpAddr, IpAddr, Segment)> {
    let over_v6 = packet[0] >> 4 == 6;
    let is_fragment = !over_v6 && (packet[6] & 0x3f, packet[7]) != (0, 0);
    let next = if over_v6 { packet[6] } else { packet[9] };
    if next != 6 || is_fragment {
        return None;
    }
    let read = |bytes: &[u8]| match segment::decode(bytes) {
        Ok(segment) => segment,
        Err(damage) => panic!("a host sent a packet that is {damage}"),
    };
    if !over_v6 {
        let segment = read(packet);
        return Some((segment.source, segment.destination, segment));
    }
    let address = |at: usize| -> IpAddr {
        let octets: [u8; 16] = packet[at..at + 16].try_into().unwrap_or_default();
        Ipv6Addr::from(octets).into()
    };
    let inner = over_v4(packet).unwrap_or_else(|| panic!("a host sent a damaged IPv6 packet"));
    Some((address(8), address(24), read(&inner)))
}

/// How far `number` is from `start`.
fn place(number: u32, start: u32) -> i64 {
    i64::from(number.wrapping_sub(start) as i32)
}

impl Rules {
    /// Begins to check both directions of a connection between `ends`, the first of which writes stream `stream` and the
    /// second the next one.
    pub(super) fn expect(
        &mut self,
        ends: [SocketAddr; 2],
        streams: [u64; 2],
        totals: [usize; 2],
        mtus: [usize; 2],
    ) {
        for side in 0..2 {
            let line = Line {
                stream: streams[side],
                total: totals[side] as i64,
                mtu: mtus[side],
                ..Line::default()
            };
            self.lines.insert((ends[side], ends[1 - side]), line);
        }
    }

    fn check(&mut self, addresses: (IpAddr, IpAddr), s: &Segment, packet_len: usize) {
        self.checked += 1;
        let from = SocketAddr::new(addresses.0, s.source_port);
        let to = SocketAddr::new(addresses.1, s.destination_port);
        let Some(mut line) = self.lines.get(&(from, to)).cloned() else {
            panic!("{from} to {to}: a segment of no connection: {s}");
        };
        let peer = self.lines[&(to, from)].clone();
        let fail = |what: &str| -> ! {
            panic!("{from} to {to}: {what}: {s}\nsender: {line:?}\npeer: {peer:?}")
        };
        if packet_len > line.mtu {
            fail("longer than the interface's MTU");
        }
        if s.flags.contains(Flags::RST) {
            line.reset = true;
            self.lines.insert((from, to), line);
            return;
        }
        if s.flags.contains(Flags::SYN) {
            if let Some(line) = check_syn(s, line.clone(), &peer).unwrap_or_else(|what| fail(what))
            {
                self.lines.insert((from, to), line);
            }
            return;
        }
        if line.reset || peer.reset {
            // Segments after a reset may be of another connection of the same name and, with SYN cookies, the same
            // numbers.
            return;
        }
        let before = line.end;
        match check_segment(s, line.clone(), &peer) {
            Ok(checked) => line = checked,
            Err(what) => fail(what),
        }
        self.repeats += u64::from(!s.payload.is_empty() && line.end == before);
        self.sacks += u64::from(s.options.iter().any(|o| matches!(o, TcpOption::Sack(_))));
        self.lines.insert((from, to), line);
    }
}

/// Checks a SYN or SYN-ACK and returns its sender's new state; `None` when it belongs to no live connection.
fn check_syn(s: &Segment, mut line: Line, peer: &Line) -> Result<Option<Line>, &'static str> {
    if !s.payload.is_empty() {
        return Err("a SYN with data");
    }
    if line.start.is_some_and(|start| start != s.seq) {
        // A late copy of the peer's SYN found the listener again, after all was over or before anything was said.
        let over = line.reset || peer.reset || line.fin.is_some() || line.end == 0;
        if !over {
            return Err("another initial sequence number");
        }
        let Line {
            stream, total, mtu, ..
        } = line;
        line = Line {
            stream,
            total,
            mtu,
            ..Line::default()
        };
    }
    line.start = Some(s.seq);
    if s.flags.contains(Flags::ACK) {
        // Where SYNs crossed, it offered these in a SYN before; the answer counts.
        (line.scale, line.sack) = (None, false);
    }
    for option in &s.options {
        match option {
            TcpOption::Mss(mss) => line.mss = Some(*mss),
            TcpOption::WindowScale(scale) => line.scale = Some(*scale),
            TcpOption::SackPermitted => line.sack = true,
            _ => {}
        }
    }
    let (ece, cwr) = (s.flags.contains(Flags::ECE), s.flags.contains(Flags::CWR));
    line.ecn |= ece && cwr != s.flags.contains(Flags::ACK);
    if s.tos & 3 != 0 {
        return Err("a SYN that says its connection knows ECN (RFC 3168 section 6.1.1)");
    }
    if s.flags.contains(Flags::ACK) {
        let Some(start) = peer.start else {
            return Err("a SYN-ACK for no SYN");
        };
        if s.ack != start.wrapping_add(1) {
            return Err("a SYN-ACK of something else");
        }
        if line.scale.is_some() && peer.scale.is_none() || line.sack && !peer.sack {
            return Err("an option answered that was not offered");
        }
    }
    line.edge = line.edge.max(line.acked + i64::from(s.window));
    Ok(Some(line))
}

fn check_segment(s: &Segment, mut line: Line, peer: &Line) -> Result<Line, &'static str> {
    let (Some(start), Some(peer_start)) = (line.start, peer.start) else {
        return Err("a segment before the SYNs");
    };
    if !s.flags.contains(Flags::ACK) {
        return Err("a segment without ACK (MUST-9)");
    }
    let first = place(s.seq, start.wrapping_add(1));
    let len = s.payload.len() as i64;
    if s.tos & 3 != 0 && (!(line.ecn && peer.ecn) || len == 0 || first < line.end) {
        return Err("an ECN codepoint on what may not carry it (RFC 3168 section 6.1.4 and on)");
    }
    check_place(s, first, len, &mut line, peer)?;
    // A FIN takes a place too.
    let ack = place(s.ack, peer_start.wrapping_add(1));
    let said = peer.end + i64::from(peer.fin.is_some());
    if ack > said {
        return Err("an acknowledgement of what was not sent");
    }
    if ack < line.acked {
        return Err("an acknowledgement taken back");
    }
    line.acked = ack;
    let scale = match (line.scale, peer.scale) {
        (Some(scale), Some(_)) => scale.min(14),
        _ => 0,
    };
    let edge = ack + (i64::from(s.window) << scale);
    // The field counts in steps: it may be less by one.
    if edge + (1 << scale) <= line.edge && line.edge > ack {
        return Err("a window taken back (SHLD-14)");
    }
    line.edge = line.edge.max(edge);
    check_options(s, ack, said, &mut line, peer)?;
    Ok(line)
}

/// The data: what was written, where it belongs, within window and segment size.
fn check_place(
    s: &Segment,
    first: i64,
    len: i64,
    line: &mut Line,
    peer: &Line,
) -> Result<(), &'static str> {
    let end = first + len;
    if len == 0 && !s.flags.contains(Flags::FIN) {
        let most = line.end + i64::from(line.fin.is_some());
        return match (-1..=most).contains(&first) {
            true => Ok(()),
            false => Err("an empty segment out of its place"),
        };
    }
    if first < 0 || first > line.end + i64::from(line.fin.is_some()) {
        return Err("data out of its place");
    }
    if end > line.total {
        return Err("more data than will ever be written");
    }
    if end > peer.edge {
        return Err("data beyond the window");
    }
    let options: usize = s.options.iter().map(TcpOption::wire_len).sum();
    let most = peer.mss.map_or(MSS_DEFAULT, usize::from);
    if s.payload.len() + options.next_multiple_of(4) > most {
        return Err("more data than the peer's MSS and the options leave room for (MUST-16)");
    }
    let wrong = |(at, byte): (usize, &u8)| stream_byte(line.stream, first as usize + at) != *byte;
    if s.payload.iter().enumerate().any(wrong) {
        return Err("data that was not written");
    }
    if line.fin.is_some_and(|fin| end > fin) {
        return Err("data beyond the FIN");
    }
    if s.flags.contains(Flags::FIN) {
        if line.fin.is_some_and(|fin| fin != end) || end < line.end {
            return Err("a FIN in another place");
        }
        line.fin = Some(end);
    }
    line.end = line.end.max(end);
    Ok(())
}

fn check_options(
    s: &Segment,
    ack: i64,
    said: i64,
    line: &mut Line,
    peer: &Line,
) -> Result<(), &'static str> {
    for option in &s.options {
        match option {
            TcpOption::Timestamps { val, .. } => {
                if line
                    .clock
                    .is_some_and(|last| (val.wrapping_sub(last) as i32) < 0)
                {
                    return Err("a timestamp older than the last");
                }
                line.clock = Some(*val);
            }
            TcpOption::Sack(blocks) => {
                if !(line.sack && peer.sack) {
                    return Err("SACK without permission");
                }
                check_sack(blocks, ack, said, peer)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Blocks name what was sent and not acknowledged; the first may name a repeat instead (RFC 2883).
fn check_sack(blocks: &[(u32, u32)], ack: i64, said: i64, peer: &Line) -> Result<(), &'static str> {
    let from = peer.start.unwrap_or(0).wrapping_add(1);
    for (index, block) in blocks.iter().enumerate() {
        let (left, right) = (place(block.0, from), place(block.1, from));
        if left >= right || right > said || left < 0 {
            return Err("a SACK block of what was not sent");
        }
        if index > 0 && left <= ack {
            return Err("a SACK block of what is acknowledged");
        }
    }
    Ok(())
}
