//! Which of the frames that are about to be sent may leave as one: segments of one flow that follow each other, in headers
//! that differ in nothing but what a device fills in when it cuts them again (lengths, identification, numbers, checksums).

use janus_mem::Frame;
use janus_wire::checksum;
use janus_wire::tcp::{CHECKSUM_AT, Flags};
use janus_wire::{SeqNum, proto};

use super::{FLAGS_AT, Layout, frame_len, layout};

/// The longest packet IP has a length for.
const PACKET_MAX: usize = u16::MAX as usize;
/// Flags that only the last segment of a run may have.
const LAST_ONLY: Flags = Flags(Flags::PSH.0 | Flags::FIN.0);

/// The first frames of a batch that may leave as one: at least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// How many.
    pub(crate) count: usize,
    /// The parts of each; `None` where the first is no TCP segment.
    pub(crate) layout: Option<Layout>,
    /// Payload of each but the last, which may have less.
    pub(crate) size: usize,
    /// Payload of all.
    pub(crate) total: usize,
    /// Control bits of all.
    pub(crate) flags: Flags,
}

/// Looks at the front of `frames`, which is not empty.
#[inline]
pub(crate) fn run(frames: &[Frame]) -> Run {
    let alone = |layout| Run {
        count: 1,
        layout,
        size: 0,
        total: 0,
        flags: Flags::NONE,
    };
    let Some(first) = frames.first() else {
        return alone(None);
    };
    let head = first.data();
    let Some(at) = layout(head) else {
        return alone(None);
    };
    let flags = Flags(head[at.tcp + FLAGS_AT]);
    let size = head.len() - at.payload;
    let plain = Flags::ACK | Flags::ECE;
    // A SYN, a reset, urgent data, a reduced window: such a segment means something by itself.
    let joins = size > 0 && flags.contains(Flags::ACK) && flags.without(plain) == Flags::NONE;
    if !joins || frame_len(head, &at) != head.len() {
        return alone(Some(at));
    }
    let mut run = Run {
        size,
        total: size,
        flags,
        ..alone(Some(at))
    };
    while let Some(next) = frames.get(run.count) {
        let bytes = next.data();
        let len = bytes.len().saturating_sub(at.payload);
        let fits = at.payload - at.ip + run.total + len <= PACKET_MAX;
        if len == 0 || len > size || !fits || !follows(head, bytes, &at, run.total as u32) {
            break;
        }
        let its = Flags(bytes[at.tcp + FLAGS_AT]);
        if its.without(LAST_ONLY) != flags {
            break;
        }
        run.count += 1;
        run.total += len;
        run.flags = its;
        if len < size || its.intersects(LAST_ONLY) {
            break;
        }
    }
    run
}

/// Whether `next` carries on `offset` bytes behind the payload's beginning in `first`, and is told from it by nothing else.
/// Flags are not compared.
#[inline]
fn follows(first: &[u8], next: &[u8], at: &Layout, offset: u32) -> bool {
    let (ip, tcp) = (at.ip, at.tcp);
    let same = |from: usize, to: usize| first[from..to] == next[from..to];
    // All but the length, for IPv4 the identification and the checksum too.
    let same_ip = match at.v6 {
        true => same(0, ip + 4) && same(ip + 6, tcp),
        false => same(0, ip + 2) && same(ip + 6, ip + 10) && same(ip + 12, tcp),
    };
    // Ports; the acknowledgement and the header's length; window; urgent pointer and options.
    same_ip
        && same(tcp, tcp + 4)
        && same(tcp + 8, tcp + FLAGS_AT)
        && same(tcp + 14, tcp + CHECKSUM_AT)
        && same(tcp + 18, at.payload)
        && sequence(next, tcp) == sequence(first, tcp) + offset
        && frame_len(next, at) == next.len()
}

fn sequence(frame: &[u8], tcp: usize) -> SeqNum {
    let bytes = [
        frame[tcp + 4],
        frame[tcp + 5],
        frame[tcp + 6],
        frame[tcp + 7],
    ];
    SeqNum(u32::from_be_bytes(bytes))
}

/// Puts in the place of one segment's checksum what a device that fills it in wants there.
#[inline]
pub(crate) fn seal_one(frame: &mut [u8], at: &Layout) {
    // Bytes behind the packet are no part of it; a packet that is longer than the frame cannot be right.
    if let Some(total) = frame_len(frame, at).checked_sub(at.payload) {
        let flags = Flags(frame[at.tcp + FLAGS_AT]);
        seal(frame, at, total, flags);
    }
}

/// Makes `headers`, those of a run's first frame, the headers of the whole: lengths, flags, and in the place of the checksum
/// what a device that fills it in wants there, the sum of the pseudo header.
#[inline]
pub(crate) fn seal(headers: &mut [u8], at: &Layout, total: usize, flags: Flags) {
    let transport = at.payload - at.tcp + total;
    let pseudo = if at.v6 {
        let len = at.payload - at.ip - janus_wire::ipv6::LEN + total;
        put(headers, at.ip + 4, len as u16);
        let addresses = &headers[at.ip + 8..at.ip + 40];
        checksum::sum(addresses, u32::from(proto::TCP) + transport as u32)
    } else {
        let len = (at.payload - at.ip + total) as u16;
        let before = u16::from_be_bytes([headers[at.ip + 2], headers[at.ip + 3]]);
        if before != len {
            let field = u16::from_be_bytes([headers[at.ip + 10], headers[at.ip + 11]]);
            put(headers, at.ip + 2, len);
            put(headers, at.ip + 10, checksum::update(field, before, len));
        }
        let addresses = &headers[at.ip + 12..at.ip + 20];
        checksum::sum(addresses, u32::from(proto::TCP) + transport as u32)
    };
    headers[at.tcp + FLAGS_AT] = flags.0;
    put(headers, at.tcp + CHECKSUM_AT, checksum::fold(pseudo));
}

#[inline]
fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
