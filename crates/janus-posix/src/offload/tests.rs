use super::*;
use janus_wire::SeqNum;
use janus_wire::tcp::{Header, OptionsToSend};

const FROM: [u8; 4] = [192, 0, 2, 1];
const TO: [u8; 4] = [192, 168, 0, 1];

fn packet(v6: bool, flags: Flags, len: usize) -> Vec<u8> {
    let header = Header {
        src_port: 5000,
        dst_port: 8080,
        seq: SeqNum(u32::MAX - 999),
        ack: SeqNum(7),
        flags,
        window: 100,
        urgent: 0,
        header_len: 0,
    };
    let mut segment = vec![0; 60];
    let headers = tcp::emit(&mut segment, &header, &OptionsToSend::default());
    segment.truncate(headers);
    segment.extend((0..len).map(|at| at as u8));
    let mut packet = if v6 {
        let mut ip = vec![0x60, 0, 0, 0, 0, 0, 6, 64];
        ip.extend([0x20; 32]);
        ip
    } else {
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
        ip.extend(FROM);
        ip.extend(TO);
        ip
    };
    let ip_len = packet.len();
    packet.extend(segment);
    let (from, to) = match v6 {
        true => ([0x20; 16].into(), [0x20; 16].into()),
        false => (FROM.into(), TO.into()),
    };
    finish(&mut packet, ip_len, from, to);
    packet
}

#[test]
fn the_parts_are_the_whole_in_order() {
    for v6 in [false, true] {
        let flags = Flags(Flags::ACK.0 | Flags::PSH.0 | Flags::FIN.0 | Flags::CWR.0);
        let whole = packet(v6, flags, 4_000);
        let parts = cut(&whole, 1_500).unwrap();
        assert_eq!(parts.len(), 3);
        let (mut next, mut bytes) = (SeqNum(u32::MAX - 999), Vec::new());
        for (index, part) in parts.iter().enumerate() {
            assert!(part.len() <= 1_500);
            let (ip_len, from, to) = addresses(part).expect("whole, with a right sum");
            assert_eq!(sum(from, to, &part[ip_len..]), 0);
            let (header, _, payload) = tcp::parse(&part[ip_len..]).unwrap();
            assert_eq!(header.seq, next);
            assert_eq!(header.flags.contains(Flags::FIN), index == 2);
            assert_eq!(header.flags.contains(Flags::PSH), index == 2);
            assert_eq!(header.flags.contains(Flags::CWR), index == 0);
            next = SeqNum(next.0.wrapping_add(payload.len() as u32));
            bytes.extend_from_slice(payload);
        }
        let sent: Vec<u8> = (0..4_000).map(|at| at as u8).collect();
        assert_eq!(bytes, sent);
    }
}

#[test]
fn what_is_no_sound_data_segment_is_left_alone() {
    assert!(cut(&packet(false, Flags::SYN, 4_000), 1_500).is_none());
    assert!(cut(&packet(false, Flags::RST, 4_000), 1_500).is_none());
    let mut damaged = packet(true, Flags::ACK, 4_000);
    *damaged.last_mut().unwrap() ^= 1;
    assert!(cut(&damaged, 1_500).is_none());
    let short = packet(false, Flags::ACK, 4_000);
    assert!(cut(&short[..3_000], 1_500).is_none());
    assert!(cut(&short, 40).is_none());
    assert!(cut(&[], 1_500).is_none());
}
