use janus_wire::tcp;

use super::*;

#[test]
fn a_pushed_segment_has_a_right_checksum() {
    let (src, dst) = ([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
    for payload in 0..64u8 {
        let mut segment = vec![payload; tcp::LEN + usize::from(payload)];
        segment[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        segment[12..14].copy_from_slice(&[0x50, Flags::ACK.0]);
        tcp::fill_checksum_v4(&mut segment, src, dst);
        push(&mut segment, true);
        assert_eq!(segment[FLAGS_AT], (Flags::ACK | Flags::PSH).0);
        let field = segment[CHECKSUM_AT..CHECKSUM_AT + 2].to_vec();
        segment[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
        tcp::fill_checksum_v4(&mut segment, src, dst);
        assert_eq!(field, segment[CHECKSUM_AT..CHECKSUM_AT + 2]);
    }
}

#[test]
fn a_checksum_that_the_device_fills_in_is_left_alone() {
    let mut segment = vec![0; tcp::LEN];
    push(&mut segment, false);
    assert_eq!(segment[CHECKSUM_AT..CHECKSUM_AT + 2], [0, 0]);
}
