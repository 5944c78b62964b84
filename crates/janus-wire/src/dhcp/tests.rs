//! Messages there and back, options in parts and in odd places, and noise.

use super::*;
use proptest::prelude::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const YOURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

fn message(options: &[(u8, &[u8])]) -> Vec<u8> {
    let repr = Repr {
        op: Op::Reply,
        kind: Kind::Offer,
        xid: 0x1234_5678,
        secs: 3,
        broadcast: true,
        client: Ipv4Addr::UNSPECIFIED,
        yours: YOURS,
        mac: MAC,
        options,
    };
    let mut bytes = vec![0xee; 1500];
    let len = emit(&mut bytes, &repr).unwrap();
    bytes.truncate(len);
    bytes
}

/// A message with exactly these bytes of options.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut bytes = message(&[]);
    bytes.truncate(LEN);
    bytes.extend_from_slice(options);
    bytes
}

fn value(message: &Message<'_>, code: u8) -> Option<Vec<u8>> {
    message
        .option(code, &mut [0; OPTION_MAX])
        .map(<[u8]>::to_vec)
}

#[test]
fn what_is_written_is_read() {
    let bytes = message(&[
        (option::MASK, &[255, 255, 254, 0]),
        (option::MTU, &[5, 220]),
        (option::LEASE, &[0, 0, 14, 16]),
        (option::SERVER, &[192, 0, 2, 1]),
        (option::ROUTERS, &[192, 0, 2, 1, 192, 0, 2, 2]),
    ]);
    assert_eq!(bytes.len(), LEN_MIN);
    let message = parse(&bytes).unwrap();
    assert_eq!((message.op, message.kind()), (Op::Reply, Some(Kind::Offer)));
    assert_eq!((message.xid, message.secs), (0x1234_5678, 3));
    assert!(message.broadcast);
    assert_eq!((message.yours, message.mac), (YOURS, MAC));
    assert_eq!((message.prefix(), message.mtu()), (Some(23), Some(1500)));
    assert_eq!(message.word(option::LEASE), Some(3600));
    let server = Ipv4Addr::new(192, 0, 2, 1);
    assert_eq!(message.address(option::SERVER), Some(server));
    assert_eq!(message.address(option::ROUTERS), None, "two are not one");
    let routers = value(&message, option::ROUTERS).unwrap();
    assert!(addresses(&routers).eq([server, Ipv4Addr::new(192, 0, 2, 2)]));
    assert_eq!(value(&message, option::NAME_SERVERS), None);
}

#[test]
fn kinds_have_their_numbers() {
    let numbers = Kind::ALL.map(Kind::number);
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
    for kind in Kind::ALL {
        assert_eq!(Kind::from_number(kind.number()), Some(kind));
    }
    assert_eq!((Kind::from_number(0), Kind::from_number(9)), (None, None));
}

#[test]
fn what_is_no_dhcp_for_ethernet_is_refused() {
    let good = message(&[]);
    for (at, wrong) in [(0, 0), (0, 3), (1, 6), (2, 8), (236, 0), (239, 0)] {
        let mut bytes = good.clone();
        bytes[at] = wrong;
        assert_eq!(parse(&bytes), Err(Malformed::Version), "byte {at}");
    }
    assert_eq!(parse(&good[..LEN - 1]), Err(Malformed::Truncated));
    assert!(
        parse(&good[..LEN]).unwrap().kind().is_none(),
        "BOOTP has none"
    );
}

#[test]
fn options_end_where_they_say() {
    let bytes = with_options(&[0, 0, 53, 1, 5, 0, 255, 53, 1, 6]);
    assert_eq!(parse(&bytes).unwrap().kind(), Some(Kind::Ack));
    // Without an end there is nothing wrong; a value beyond the end is.
    assert_eq!(
        parse(&with_options(&[53, 1, 5])).unwrap().kind(),
        Some(Kind::Ack)
    );
    for wrong in [&[53, 1][..], &[53, 2, 5], &[53], &[53, 1, 5, 51, 255, 0]] {
        assert_eq!(
            parse(&with_options(wrong)),
            Err(Malformed::Length),
            "{wrong:?}"
        );
    }
    let twice = with_options(&[53, 2, 5, 5]);
    assert_eq!(parse(&twice).unwrap().kind(), None);
}

#[test]
fn an_option_in_parts_is_one() {
    let long: Vec<u8> = (0..=254).collect();
    let bytes = message(&[(121, &long), (option::MTU, &[5, 220]), (121, &[1, 2, 3])]);
    let whole = value(&parse(&bytes).unwrap(), 121).unwrap();
    assert_eq!(whole.len(), 258);
    assert_eq!(whole[253..], [253, 254, 1, 2, 3]);
    let too_long = message(&[(121, &long), (121, &long), (121, &[1, 2, 3])]);
    assert_eq!(value(&parse(&too_long).unwrap(), 121), None);
}

#[test]
fn options_in_the_fields_of_names_count_when_it_is_said() {
    let mut bytes = with_options(&[53, 1, 5, 52, 1, 3, 255]);
    bytes[108..115].copy_from_slice(&[51, 4, 0, 0, 0, 60, 255]);
    bytes[44..50].copy_from_slice(&[1, 4, 255, 0, 0, 0]);
    let message = parse(&bytes).unwrap();
    assert_eq!(
        (message.word(option::LEASE), message.prefix()),
        (Some(60), Some(8))
    );
    bytes[245] = 1;
    let message = parse(&bytes).unwrap();
    assert_eq!(
        (message.word(option::LEASE), message.prefix()),
        (Some(60), None)
    );
    bytes[245] = 2;
    let message = parse(&bytes).unwrap();
    assert_eq!(
        (message.word(option::LEASE), message.prefix()),
        (None, Some(8))
    );
    bytes[245] = 0;
    assert_eq!(parse(&bytes).unwrap().word(option::LEASE), None);
    // One that leads beyond its field.
    bytes[245] = 2;
    bytes[106..108].copy_from_slice(&[1, 4]);
    bytes[44..106].fill(0);
    assert_eq!(parse(&bytes), Err(Malformed::Length));
}

#[test]
fn masks_have_no_holes() {
    let prefix = |mask: &[u8]| parse(&message(&[(option::MASK, mask)])).unwrap().prefix();
    assert_eq!(prefix(&[255, 255, 255, 255]), Some(32));
    assert_eq!(prefix(&[0, 0, 0, 0]), Some(0));
    assert_eq!(prefix(&[255, 0, 255, 0]), None);
    assert_eq!(prefix(&[255, 255]), None);
}

#[test]
fn routes_are_read_as_far_as_they_make_sense() {
    let value = [
        24, 10, 0, 7, 192, 0, 2, 1, 0, 192, 0, 2, 2, 12, 172, 16, 192, 0, 2, 3,
    ];
    let found: Vec<String> = routes(&value)
        .map(|(network, prefix, router)| format!("{network}/{prefix} {router}"))
        .collect();
    assert_eq!(
        found,
        [
            "10.0.7.0/24 192.0.2.1",
            "0.0.0.0/0 192.0.2.2",
            "172.16.0.0/12 192.0.2.3"
        ]
    );
    assert_eq!(routes(&value[..19]).count(), 2, "cut off");
    assert_eq!(
        routes(&[33, 1, 2, 3, 4, 5, 192, 0, 2, 1]).count(),
        0,
        "no such prefix"
    );
    assert_eq!(routes(&[255; 60]).count(), 0);
}

#[test]
fn what_does_not_fit_is_not_written() {
    let repr = |options| Repr {
        op: Op::Request,
        kind: Kind::Discover,
        xid: 1,
        secs: 0,
        broadcast: false,
        client: Ipv4Addr::UNSPECIFIED,
        yours: Ipv4Addr::UNSPECIFIED,
        mac: MAC,
        options,
    };
    assert_eq!(emit(&mut [0; LEN_MIN - 1], &repr(&[])), None);
    assert_eq!(emit(&mut [0; LEN_MIN], &repr(&[])), Some(LEN_MIN));
    let long = [0; 256];
    assert_eq!(emit(&mut [0; 1500], &repr(&[(12, &long)])), None);
}

proptest! {
    #[test]
    fn noise_does_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..700), sound: bool, code: u8) {
        if sound && bytes.len() >= LEN {
            bytes[..3].copy_from_slice(&[2, 1, 6]);
            bytes[236..240].copy_from_slice(&COOKIE.to_be_bytes());
        }
        if let Ok(message) = parse(&bytes) {
            let _ = (message.kind(), message.prefix(), message.mtu(), message.word(code));
            if let Some(value) = value(&message, code) {
                prop_assert!(routes(&value).count() <= value.len() && addresses(&value).count() <= value.len());
            }
        }
        let _ = routes(&bytes).count();
    }

    #[test]
    fn options_go_round(values in proptest::collection::vec((60_u8..250, proptest::collection::vec(any::<u8>(), 0..40)), 0..12)) {
        let options: Vec<(u8, &[u8])> = values.iter().map(|(code, value)| (*code, &value[..])).collect();
        let bytes = message(&options);
        let read = parse(&bytes).unwrap();
        for (code, _) in &values {
            let whole: Vec<u8> = values.iter().filter(|(its, _)| its == code).flat_map(|(_, v)| v.clone()).collect();
            prop_assert_eq!(value(&read, *code), (whole.len() <= OPTION_MAX).then_some(whole));
        }
        prop_assert_eq!(read.kind(), Some(Kind::Offer));
    }
}
