//! A stretch of a stream as the stack sends it: segments that follow each other, over either family.

use std::net::{Ipv4Addr, Ipv6Addr};

use janus_wire::tcp::{self, Flags, Options};
use janus_wire::{MacAddr, SeqNum, ethernet, ipv4, ipv6, proto};

/// Properties that all segments share, and the first sequence number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) v6: bool,
    pub(crate) timestamps: bool,
    pub(crate) seq: u32,
    pub(crate) id: u16,
    /// Checksums of TCP are filled in.
    pub(crate) checksums: bool,
}

impl Stream {
    pub(crate) const V4: Stream = Stream {
        v6: false,
        timestamps: true,
        seq: 7_000,
        id: 5,
        checksums: false,
    };

    /// Bytes of the headers of each segment.
    pub(crate) fn headers(&self) -> usize {
        let ip = if self.v6 { ipv6::LEN } else { ipv4::LEN };
        ethernet::LEN + ip + tcp::LEN + if self.timestamps { 12 } else { 0 }
    }

    /// The frame of the segment that begins `offset` bytes behind the first and is the `index`th; its payload is counted
    /// from there.
    pub(crate) fn segment(&self, index: usize, offset: usize, len: usize, flags: Flags) -> Vec<u8> {
        let mut bytes = vec![0; self.headers()];
        bytes.extend((0..len).map(|at| byte(offset + at)));
        let header = ethernet::Header {
            dst: MacAddr([2, 0, 0, 0, 0, 1]),
            src: MacAddr([2, 0, 0, 0, 0, 2]),
            ethertype: match self.v6 {
                false => ethernet::ethertype::IPV4,
                true => ethernet::ethertype::IPV6,
            },
        };
        header.emit(&mut bytes);
        let tcp_at = self.tcp_at();
        let header = tcp::Header {
            src_port: 80,
            dst_port: 40_000,
            seq: SeqNum(self.seq) + offset as u32,
            ack: SeqNum(99),
            flags,
            window: 512,
            urgent: 0,
            header_len: 0,
        };
        let options = Options {
            timestamps: self.timestamps.then_some((1, 2)),
            ..Options::NONE
        };
        let tcp_len = tcp::emit(&mut bytes[tcp_at..], &header, &options) + len;
        self.emit_ip(&mut bytes[ethernet::LEN..], index, tcp_len as u16);
        bytes
    }

    fn tcp_at(&self) -> usize {
        ethernet::LEN + if self.v6 { ipv6::LEN } else { ipv4::LEN }
    }

    fn emit_ip(&self, packet: &mut [u8], index: usize, payload_len: u16) {
        if self.v6 {
            let at = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            let repr = ipv6::Repr {
                src: at(1),
                dst: at(2),
                proto: proto::TCP,
                payload_len,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 3,
            };
            ipv6::emit(packet, &repr);
            if self.checksums {
                tcp::fill_checksum_v6(&mut packet[ipv6::LEN..], repr.src, repr.dst);
            }
        } else {
            let repr = ipv4::Repr {
                src: Ipv4Addr::new(192, 0, 2, 1),
                dst: Ipv4Addr::new(192, 0, 2, 2),
                proto: proto::TCP,
                payload_len,
                ttl: 64,
                tos: 0,
                id: self.id.wrapping_add(index as u16),
                dont_fragment: true,
            };
            ipv4::emit(packet, &repr);
            if self.checksums {
                tcp::fill_checksum_v4(&mut packet[ipv4::LEN..], repr.src, repr.dst);
            }
        }
    }

    /// Segments of these lengths, the last with these flags.
    pub(crate) fn segments(&self, lens: &[usize], last: Flags) -> Vec<Vec<u8>> {
        let mut offset = 0;
        let mut segment = |(index, &len): (usize, &usize)| {
            let flags = match index + 1 == lens.len() {
                true => last,
                false => Flags::ACK,
            };
            let bytes = self.segment(index, offset, len, flags);
            offset += len;
            bytes
        };
        lens.iter().enumerate().map(&mut segment).collect()
    }

    /// The frame with the field of TCP's checksum cleared: what is in it is the device's business.
    pub(crate) fn without_checksum(&self, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let at = self.tcp_at() + tcp::CHECKSUM_AT;
        frame[at..at + 2].fill(0);
        frame
    }
}

/// The stream's byte at a place.
fn byte(at: usize) -> u8 {
    ((at as u32).wrapping_mul(0x9e37_79b9) >> 24) as u8
}
