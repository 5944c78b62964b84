//! TCP headers against etherparse and against noise.

use super::*;
use core::net::Ipv4Addr;
use proptest::prelude::*;

#[test]
fn flags_read_like_tcpdump() {
    assert_eq!((Flags::SYN | Flags::ACK).to_string(), "S.");
    assert_eq!((Flags::FIN | Flags::PSH | Flags::ACK).to_string(), "FP.");
    assert_eq!((Flags::SYN | Flags::ECE | Flags::CWR).to_string(), "SEW");
    assert_eq!(Flags::NONE.to_string(), "-");
    let both = Flags::SYN | Flags::ACK;
    assert!(both.contains(Flags::SYN) && !Flags::SYN.contains(both) && both.intersects(Flags::ACK));
    assert_eq!(both.without(Flags::ACK) & Flags::SYN, Flags::SYN);
}

#[test]
fn data_offsets_that_lie_are_refused() {
    let mut segment = [0u8; 24];
    segment[12] = 4 << 4;
    assert_eq!(parse(&segment), Err(Malformed::Length));
    segment[12] = 7 << 4;
    assert_eq!(parse(&segment), Err(Malformed::Length));
    segment[12] = 6 << 4;
    let (header, options, payload) = parse(&segment).unwrap();
    assert_eq!(
        (header.header_len, options.len(), payload.len()),
        (24, 4, 0)
    );
    assert_eq!(parse(&segment[..19]), Err(Malformed::Truncated));
}

proptest! {
    #[test]
    fn written_segments_read_the_same_in_etherparse(
        ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16,
        mss: Option<u16>, timestamps: Option<(u32, u32)>, payload in proptest::collection::vec(any::<u8>(), 0..100),
        src: u32, dst: u32,
    ) {
        let (src, dst) = (Ipv4Addr::from_bits(src), Ipv4Addr::from_bits(dst));
        let options = Options { mss, timestamps, ..Options::NONE };
        let header = Header {
            src_port: ports.0, dst_port: ports.1, seq: SeqNum(seq), ack: SeqNum(ack),
            flags: Flags(flags), window, urgent, header_len: LEN + options.emitted_len(),
        };
        let mut bytes = vec![0xee; header.header_len];
        prop_assert_eq!(emit(&mut bytes, &header, &options), header.header_len);
        bytes.extend_from_slice(&payload);
        fill_checksum_v4(&mut bytes, src, dst);

        let (theirs, rest) = etherparse::TcpHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!(rest, &payload[..]);
        prop_assert_eq!((theirs.source_port, theirs.destination_port), ports);
        prop_assert_eq!((theirs.sequence_number, theirs.acknowledgment_number), (seq, ack));
        prop_assert_eq!((theirs.window_size, theirs.urgent_pointer), (window, urgent));
        let bits = [theirs.fin, theirs.syn, theirs.rst, theirs.psh, theirs.ack, theirs.urg, theirs.ece, theirs.cwr];
        prop_assert_eq!(bits.iter().rev().fold(0, |all, bit| all << 1 | u8::from(*bit)), flags);
        prop_assert_eq!(
            theirs.checksum,
            theirs.calc_checksum_ipv4_raw(src.octets(), dst.octets(), &payload).unwrap()
        );

        let (ours, raw, body) = parse(&bytes).unwrap();
        prop_assert_eq!((ours, options::parse(raw), body), (header, options, &payload[..]));
    }

    #[test]
    fn agrees_with_etherparse_on_what_parses(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), words: u8) {
        if bytes.len() > 12 {
            bytes[12] = words;
        }
        match (parse(&bytes), etherparse::TcpSlice::from_slice(&bytes)) {
            (Ok((header, options, payload)), Ok(theirs)) => {
                prop_assert_eq!(header.header_len, theirs.header_len());
                prop_assert_eq!(options, theirs.options());
                prop_assert_eq!(payload, theirs.payload());
            }
            (ours, theirs) => prop_assert!(ours.is_err() && theirs.is_err()),
        }
    }
}

proptest! {
    /// The sum that is made of the values is that of the bytes.
    #[test]
    fn what_is_summed_while_it_is_written_is_what_is_written(
        ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16, mss: Option<u16>, scale: Option<u8>,
        timestamps: Option<(u32, u32)>, payload in proptest::collection::vec(any::<u8>(), 0..200), src: u32, dst: u32,
    ) {
        let header = Header {
            src_port: ports.0, dst_port: ports.1, seq: SeqNum(seq), ack: SeqNum(ack), flags: Flags(flags), window, urgent, header_len: 0,
        };
        let options = Options { mss, window_scale: scale, timestamps, ..Options::NONE };
        let (src, dst) = (Ipv4Addr::from_bits(src), Ipv4Addr::from_bits(dst));
        let mut bytes = vec![0xee; LEN_MAX + payload.len()];
        let (len, sum) = emit_summed(&mut bytes, &header, &options);
        bytes.truncate(len);
        bytes.extend(&payload);
        let mut plain = bytes.clone();
        let pseudo = crate::checksum::pseudo_v4(src, dst, crate::proto::TCP, bytes.len() as u16);
        fill_checksum(&mut bytes, len, sum, pseudo);
        fill_checksum_v4(&mut plain, src, dst);
        prop_assert_eq!(bytes, plain);
    }
}
