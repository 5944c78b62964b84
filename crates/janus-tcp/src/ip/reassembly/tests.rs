//! Fragments against a model that only knows sets of bytes, and the attacks that have names.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use janus_mem::{Depot, Growth, HEADROOM};
use proptest::prelude::*;

use super::*;

const SRC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const DST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const SRC6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
const DST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
/// A protocol nobody looks into.
const OPAQUE: u8 = 253;

struct Bench {
    reassembly: Reassembly,
    depot: Arc<Depot>,
    pool: Pool,
    counters: Counters,
    now: Instant,
    whole: Vec<u8>,
}

impl Bench {
    fn new() -> Bench {
        let depot = Depot::new(4_096, &Growth::Inline).unwrap();
        Bench {
            reassembly: Reassembly::default(),
            pool: depot.pool(),
            depot,
            counters: Counters::default(),
            now: Instant::from_millis(1_000),
            whole: Vec::new(),
        }
    }

    /// Hands in an IP packet; what becomes whole comes back.
    fn feed(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let mut buf = self.pool.alloc().expect("bounded use of buffers");
        let from = usize::from(HEADROOM);
        buf.bytes_mut()[from..from + packet.len()].copy_from_slice(packet);
        let piece = Piece::read(packet, HEADROOM).expect("a fragment");
        let frame = Frame::new(buf, packet.len() as u16);
        let with = (&mut self.pool, &mut self.counters);
        let taken = self
            .reassembly
            .take(&piece, frame, self.now, &mut self.whole, with);
        (taken == Taken::Whole).then(|| self.whole.clone())
    }

    fn expire(&mut self) -> Vec<Option<u16>> {
        let mut expired = Vec::new();
        loop {
            let with = (&mut self.pool, &mut self.counters);
            match self.reassembly.pop_expired(self.now, with) {
                Some(first) => expired.push(first.map(|(frame, at)| {
                    self.pool.free(frame.buf);
                    at
                })),
                None => return expired,
            }
        }
    }

    fn buffers(&mut self) -> usize {
        self.pool.flush();
        self.depot.stats().outstanding
    }
}

/// An IPv4 fragment.
fn v4(id: u16, proto: u8, offset: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv4::LEN];
    let repr = ipv4::Repr {
        src: SRC,
        dst: DST,
        proto,
        payload_len: payload.len() as u16,
        ttl: 64,
        tos: 0,
        id,
        dont_fragment: false,
    };
    ipv4::emit(&mut packet, &repr);
    let word = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&word.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 fragment.
fn v6(id: u32, proto: u8, offset: usize, more: bool, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv6::LEN];
    let repr = ipv6::Repr {
        src: SRC6,
        dst: DST6,
        proto: 44,
        payload_len: 8 + payload.len() as u16,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    ipv6::emit(&mut packet, &repr);
    packet.extend([proto, 0]);
    packet.extend((offset as u16 | u16::from(more)).to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8)) as u8).collect()
}

#[test]
fn the_largest_datagram_comes_together_in_any_order() {
    let data = bytes(LONGEST_V4);
    let mut bench = Bench::new();
    for backwards in [false, true] {
        let mut parts: Vec<_> = data.chunks(1_480).enumerate().collect();
        if backwards {
            parts.reverse();
        }
        let last = parts.len() - 1;
        for (n, (i, part)) in parts.into_iter().enumerate() {
            let at = i * 1_480;
            let whole = bench.feed(&v4(9, OPAQUE, at, at + part.len() < data.len(), part));
            if n < last {
                assert_eq!(whole, None);
                continue;
            }
            let whole = whole.expect("it is whole");
            let ip = ipv4::parse(&whole).unwrap();
            assert!(ip.checksum_ok() && !ip.is_fragment());
            assert_eq!((ip.src, ip.dst, ip.proto), (SRC, DST, OPAQUE));
            assert_eq!(ip.payload(), data);
        }
    }
    assert_eq!(
        (bench.reassembly.len(), bench.reassembly.fragments()),
        (0, 0)
    );
    assert_eq!(bench.buffers(), 0);
}

#[test]
fn an_ipv6_packet_comes_together_without_the_protocol_in_its_name() {
    let data = bytes(2_000);
    let mut bench = Bench::new();
    // RFC 8200 section 4.5: only the first fragment's next header counts.
    assert_eq!(bench.feed(&v6(7, 99, 1_232, false, &data[1_232..])), None);
    let whole = bench.feed(&v6(7, OPAQUE, 0, true, &data[..1_232])).unwrap();
    let ip = ipv6::parse(&whole).unwrap();
    assert_eq!((ip.src, ip.dst, ip.proto), (SRC6, DST6, OPAQUE));
    assert_eq!(ip.payload(), data);
    // RFC 6946: a whole packet with a fragment header has nothing to wait for.
    let atomic = v6(7, OPAQUE, 0, false, &data[..100]);
    assert!(Piece::read(&atomic, HEADROOM).is_none());
}

#[test]
fn a_teardrop_condemns_its_datagram_and_nothing_else() {
    let mut bench = Bench::new();
    let data = bytes(64);
    assert_eq!(bench.feed(&v4(2, OPAQUE, 0, true, &data[..32])), None);
    // RFC 5722: 24..56 over 0..32; then even the parts that would have made it whole are dropped.
    assert_eq!(bench.feed(&v4(1, OPAQUE, 0, true, &data[..32])), None);
    assert_eq!(bench.feed(&v4(1, OPAQUE, 24, false, &data[..32])), None);
    assert_eq!(bench.feed(&v4(1, OPAQUE, 0, true, &data[..32])), None);
    assert_eq!(bench.feed(&v4(1, OPAQUE, 32, false, &data[32..])), None);
    assert_eq!(bench.counters.dropped_fragment_overlap, 3);
    assert!(bench.feed(&v4(2, OPAQUE, 32, false, &data[32..])).is_some());
    assert_eq!(bench.buffers(), 0);
    // Its time over, the name may be used again.
    bench.now = bench.now + PATIENCE_V4;
    assert_eq!(bench.expire(), [None]);
    assert_eq!(bench.feed(&v4(1, OPAQUE, 0, true, &data[..32])), None);
    assert!(bench.feed(&v4(1, OPAQUE, 32, false, &data[32..])).is_some());
}

#[test]
fn a_ping_of_death_is_no_fragment_of_anything() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.feed(&v4(1, OPAQUE, 65_528, false, &bytes(1_000))),
        None
    );
    assert_eq!(bench.feed(&v4(1, OPAQUE, 65_512, false, &bytes(8))), None);
    assert_eq!(bench.counters.dropped_fragment_invalid, 1 + 1);
    assert_eq!(bench.feed(&v6(1, OPAQUE, 65_528, false, &bytes(8))), None);
    assert_eq!(bench.counters.dropped_fragment_invalid, 3);
    assert_eq!(bench.reassembly.len(), 0);
    assert_eq!(bench.buffers(), 0);
}

#[test]
fn a_header_in_pieces_is_refused() {
    let mut bench = Bench::new();
    let mut header = bytes(40);
    header[12] = 10 << 4;
    // RFC 1858: ports in one fragment, flags in the next; then options in the next.
    bench.feed(&v4(1, proto::TCP, 0, true, &header[..16]));
    bench.feed(&v4(2, proto::TCP, 0, true, &header[..32]));
    // RFC 3128: the flags once more.
    bench.feed(&v4(3, proto::TCP, 8, false, &header[8..]));
    // RFC 7112: the same behind an extension header, and a chain that does not end.
    let mut chain = vec![proto::TCP, 0, 0, 0, 0, 0, 0, 0];
    chain.extend_from_slice(&header[..32]);
    bench.feed(&v6(4, 60, 0, true, &chain));
    bench.feed(&v6(5, 60, 0, true, &[60, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bench.counters.dropped_fragment_invalid, 5);
    assert_eq!(bench.reassembly.len(), 0);
    chain.extend_from_slice(&header[32..]);
    bench.feed(&v6(6, 60, 0, true, &chain));
    assert_eq!(bench.reassembly.len(), 1);
}

#[test]
fn a_flood_holds_a_bounded_number_of_buffers_and_the_oldest_goes() {
    let mut bench = Bench::new();
    for id in 0..10_000 {
        bench.now = Instant::from_millis(1_000 + u64::from(id));
        bench.feed(&v4(id, OPAQUE, 0, true, &bytes(8)));
        assert!(bench.reassembly.len() <= MAX_DATAGRAMS);
    }
    assert_eq!(bench.buffers(), MAX_DATAGRAMS);
    // The newest is still there, the oldest long gone.
    assert!(bench.feed(&v4(9_999, OPAQUE, 8, false, &[1])).is_some());
    assert!(bench.feed(&v4(0, OPAQUE, 8, false, &[1])).is_none());
    // Every second eight bytes: holes for ever.
    for id in 20_000..20_050 {
        for hole in 0..2_000 {
            bench.feed(&v4(id, OPAQUE, hole * 16, true, &bytes(8)));
            assert!(bench.reassembly.fragments() <= MAX_FRAGMENTS);
        }
    }
    bench.now = bench.now + PATIENCE_V4;
    assert_eq!(
        bench.expire().len(),
        bench.counters.reassembly_expired as usize
    );
    assert_eq!(
        (bench.reassembly.len(), bench.reassembly.fragments()),
        (0, 0)
    );
    assert_eq!(bench.buffers(), 0);
}

#[test]
fn who_sent_the_first_fragment_can_be_told_that_the_rest_did_not_come() {
    let mut bench = Bench::new();
    bench.feed(&v4(1, OPAQUE, 0, true, &bytes(8)));
    bench.feed(&v4(2, OPAQUE, 8, true, &bytes(8)));
    bench.feed(&v6(3, OPAQUE, 0, true, &bytes(8)));
    let first = bench.now + PATIENCE_V4;
    assert_eq!(bench.reassembly.next_deadline(), Some(first));
    bench.now = first;
    let mut expired = bench.expire();
    expired.sort();
    assert_eq!(expired, [None, Some(HEADROOM)]);
    bench.now = bench.now + (PATIENCE_V6 - PATIENCE_V4);
    assert_eq!(bench.expire(), [Some(HEADROOM)]);
    assert_eq!(bench.buffers(), 0);
}

#[test]
fn congestion_experienced_by_a_part_is_experienced_by_the_whole() {
    let with_ecn = |id, ecn: [u8; 2]| {
        let mut bench = Bench::new();
        let mut last = None;
        for (i, ecn) in ecn.into_iter().enumerate() {
            let mut packet = v4(id, OPAQUE, i * 8, i == 0, &bytes(8));
            packet[1] = 0x20 | ecn;
            last = bench.feed(&packet);
        }
        last.map(|whole| ipv4::parse(&whole).unwrap().tos)
    };
    assert_eq!(with_ecn(1, [0, 0]), Some(0x20));
    assert_eq!(with_ecn(2, [0b10, 0b10]), Some(0x22));
    assert_eq!(with_ecn(3, [0b10, 0b11]), Some(0x23));
    assert_eq!(with_ecn(4, [0b00, 0b11]), None);
}

/// What the rules say, by sets of bytes.
#[derive(Default)]
struct Model {
    parts: Vec<(usize, Vec<u8>, bool)>,
    condemned: bool,
}

impl Model {
    fn feed(&mut self, offset: usize, more: bool, payload: &[u8]) -> Option<Vec<u8>> {
        if more && !payload.len().is_multiple_of(8) {
            return None;
        }
        let part = (offset, payload.to_vec(), more);
        if self.condemned || self.parts.contains(&part) {
            return None;
        }
        let end = offset + payload.len();
        let overlaps = |(o, p, m): &(usize, Vec<u8>, bool)| {
            let other_end = o + p.len();
            let beyond = (!m && end > other_end - usize::from(more && end == other_end))
                || (!more && other_end > end);
            offset < other_end && *o < end || beyond || (!m && !more)
        };
        if self.parts.iter().any(overlaps) {
            self.condemned = true;
            return None;
        }
        self.parts.push(part);
        self.parts.sort();
        let mut all = Vec::new();
        for (o, p, m) in &self.parts {
            if *o != all.len() {
                return None;
            }
            all.extend_from_slice(p);
            if !m {
                self.parts.clear();
                return Some(all);
            }
        }
        None
    }
}

proptest! {
    /// Random pieces of a few datagrams, honest or overlapping, in any order, some twice: whole is what the model says,
    /// and nothing is left when the time is over.
    #[test]
    fn agrees_with_the_model(
        pieces in prop::collection::vec(
            (0..3u16, 0..8usize, 1..5usize, any::<bool>(), 0..20u8, 0..8usize), 1..60)
    ) {
        let mut bench = Bench::new();
        let mut models = [Model::default(), Model::default(), Model::default()];
        let data = bytes(128);
        for (id, at, len, more, odd, cut) in pieces {
            let offset = at * 8;
            // All at once is no fragment.
            let more = more || offset == 0;
            let end = (offset + len * 8).min(96);
            let mut payload = data[offset..end.max(offset + 8)].to_vec();
            if odd == 0 {
                payload[0] ^= 1;
            }
            if odd < 4 && cut > 0 {
                payload.truncate(payload.len() - cut);
            }
            let expected = models[usize::from(id)].feed(offset, more, &payload);
            let whole = bench.feed(&v4(id, OPAQUE, offset, more, &payload));
            let whole = whole.map(|w| ipv4::parse(&w).unwrap().payload().to_vec());
            prop_assert_eq!(whole, expected);
        }
        bench.now = bench.now + PATIENCE_V4;
        bench.expire();
        prop_assert_eq!(bench.reassembly.fragments(), 0);
        prop_assert_eq!(bench.buffers(), 0);
    }
}
