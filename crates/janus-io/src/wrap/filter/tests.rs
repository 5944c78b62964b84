use proptest::prelude::*;

use super::*;
use crate::testing::{CLIENT, SERVER, arp, request, segment};
use janus_wire::arp::Op;

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> FilterError {
    text.parse::<Filter>().expect_err(text)
}

fn matches(text: &str, frame: &[u8]) -> bool {
    filter(text).matches(frame, Link::Ethernet)
}

/// A frame over IPv6: the headers given, from the one that IPv6's own names on.
fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next, 64]);
    bytes.extend(
        "2001:db8::1"
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets(),
    );
    bytes.extend(
        "2001:db8::2"
            .parse::<std::net::Ipv6Addr>()
            .unwrap()
            .octets(),
    );
    bytes.extend(payload);
    bytes
}

const TCP_SEGMENT: [u8; 20] = [
    0x1f, 0x90, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0,
];

#[test]
fn every_primitive_asks_what_it_says() {
    let frame = segment(Link::Ethernet, (CLIENT, 4000), (SERVER, 80), 1, 9);
    for yes in [
        "",
        "ip",
        "tcp",
        "ack",
        "host 192.0.2.1",
        "host 198.51.100.7",
        "src 198.51.100.7",
        "src host 198.51.100.7",
        "dst host 192.0.2.1",
        "192.0.2.1",
        "ip host 192.0.2.1",
        "net 192.0.2.0/24",
        "src net 198.51.100.0/25",
        "192.0.2.0/24",
        "net 0.0.0.0/0",
        "src and dst net 192.0.0.0/5",
        "port 80",
        "port 4000",
        "tcp port 80",
        "tcp src port 4000",
        "dst port 80",
        "src or dst port 80",
        "portrange 79-81",
        "portrange 81-79",
        "portrange 80",
        "tcp dst portrange 1-80",
        "less 63",
        "greater 63",
        "not udp",
        "! icmp",
        "not not tcp",
        "tcp and (port 80 or port 443)",
        "tcp port 80 or 443",
        "host 10.0.0.1 or 192.0.2.1",
        "dst port 81 or 80",
        "udp or tcp && ip",
        "!(syn or fin || rst)",
    ] {
        assert!(matches(yes, &frame), "{yes}");
    }
    for no in [
        "ip6",
        "arp",
        "udp",
        "icmp",
        "icmp6",
        "syn",
        "fin",
        "rst",
        "psh",
        "urg",
        "host 192.0.2.2",
        "src host 192.0.2.1",
        "dst 198.51.100.7",
        "ip6 host 2001:db8::1",
        "arp host 192.0.2.1",
        "net 10.0.0.0/8",
        "src and dst net 192.0.2.0/24",
        "port 81",
        "udp port 80",
        "src port 80",
        "tcp dst port 4000",
        "src and dst port 80",
        "portrange 81-90",
        "less 62",
        "greater 64",
        "not tcp",
        "net ::/0",
        "tcp port 443 or 8080",
        "src port 80 or 443",
        "src port 443 or 80",
    ] {
        assert!(!matches(no, &frame), "{no}");
    }
    let question = arp(Op::Request);
    for yes in [
        "arp",
        "host 192.0.2.1",
        "src 198.51.100.7",
        "arp dst host 192.0.2.1",
        "arp net 192.0.2.0/24",
    ] {
        assert!(matches(yes, &question), "{yes}");
    }
    assert!(!matches("ip host 192.0.2.1", &question) && !matches("ip", &question));
}

/// `and` and `or` bind equally and to the left, as in tcpdump and unlike in most languages.
#[test]
fn terms_are_joined_from_the_left() {
    let frame = request(Link::Ethernet, 4000, 1);
    // (tcp or udp) and udp; the other way round it would hold.
    assert!(!matches("tcp or udp and udp", &frame));
    assert!(matches("tcp or (udp and udp)", &frame));
    assert!(matches("udp and udp or tcp", &frame));
    // `not` takes one term.
    assert!(matches("not udp and tcp", &frame) && !matches("not (udp or tcp)", &frame));
}

#[test]
fn what_stands_before_a_segment_is_looked_behind() {
    let plain = request(Link::Ethernet, 4000, 1);
    let tag = [0x81, 0, 0, 7];
    let tagged = [&plain[..12], &tag, &plain[12..]].concat();
    let twice = [&plain[..12], &[0x88, 0xa8, 0, 9], &tag, &plain[12..]].concat();
    for frame in [&plain, &tagged, &twice] {
        assert!(matches("tcp dst port 80 and src 198.51.100.7", frame));
    }
    let raw = request(Link::Ip, 4000, 1);
    assert!(filter("tcp port 80").matches(&raw, Link::Ip));
    assert!(!filter("tcp port 80").matches(&raw, Link::Ethernet));
    let ask = "tcp src port 8080 and dst port 443 and syn and ack and not fin";
    assert!(matches(ask, &v6(6, &TCP_SEGMENT)));
    let hop_by_hop = [
        &[60, 0, 1, 4, 0, 0, 0, 0],
        &[6, 1][..],
        &[0; 14],
        &TCP_SEGMENT[..],
    ]
    .concat();
    assert!(matches(ask, &v6(0, &hop_by_hop)));
    let first = [&[6, 0, 0, 1, 0, 0, 0, 5], &TCP_SEGMENT[..]].concat();
    assert!(matches(ask, &v6(44, &first)));
    // Of a later fragment there are no ports, only bytes.
    let later = [&[6, 0, 0, 8, 0, 0, 0, 5], &TCP_SEGMENT[..]].concat();
    let later = v6(44, &later);
    assert!(matches("tcp and host 2001:db8::1", &later) && !matches("port 8080 or syn", &later));
    let mut later = plain.clone();
    later[14 + 7] = 1;
    assert!(matches("tcp", &later) && !matches("port 80 or ack", &later));
    // More headers than anybody sends.
    let many = [[43_u8, 0, 0, 0, 0, 0, 0, 0]; 20].concat();
    assert!(!matches("tcp", &v6(43, &many)) && matches("ip6", &v6(43, &many)));
}

#[test]
fn errors_say_where_and_what_would_be_right() {
    for (text, at, what) in [
        ("host", 4, "expected an address"),
        ("hots 192.0.2.1", 0, "did you mean `host`?"),
        (
            "host example",
            5,
            "`example` is not an address; names are not looked up",
        ),
        ("host 80", 5, "a port is `port 80`"),
        ("host 192.0.2.0/24", 5, "a network is `net 192.0.2.0/24`"),
        ("net 192.0.2.1/24", 4, "`192.0.2.0/24` or `192.0.2.1`"),
        ("net 10", 4, "is not a network like"),
        ("port http", 5, "`http` is not a port number"),
        ("port 65536", 5, "is not a port number up to 65535"),
        ("portrange 1-x", 10, "`x` is not a port number"),
        (
            "tcp port 80 prot 90",
            12,
            "expected `and`, `or` or the end; did you mean `port`?",
        ),
        ("tcp and", 7, "expected something to ask for"),
        ("tcp and or udp", 8, "expected something to ask for"),
        ("not", 3, "expected something to ask for"),
        ("()", 1, "expected something to ask for"),
        ("(tcp", 4, "expected `)`"),
        ("tcp)", 3, "was not opened"),
        ("tcp host 192.0.2.1", 4, "write `tcp and ..`"),
        ("tcp 192.0.2.1", 0, "write `tcp and ..`"),
        ("icmp src 192.0.2.1", 5, "write `icmp and ..`"),
        ("ip port 80", 3, "write `ip and ..`"),
        ("ip6 host 192.0.2.1", 9, "`ip6` has no such addresses"),
        ("arp host ::1", 9, "`arp` has no such addresses"),
        ("tcp & udp", 4, "`&` has no meaning here"),
        ("tcp[13] == 2", 3, "`[` has no meaning here"),
        ("host ü", 5, "`ü` has no meaning here"),
        ("less", 4, "expected a length"),
        ("less x", 5, "is not a length"),
        ("80", 0, "a port is `port 80`"),
        ("src", 3, "expected `host`, `net`"),
        ("src or 192.0.2.1", 4, "expected `host`, `net`"),
    ] {
        let error = error(text);
        assert_eq!(error.at(), at, "{error}");
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn expressions_are_bounded() {
    let deep = |levels: usize| format!("{}tcp{}", "(".repeat(levels), ")".repeat(levels));
    assert!(deep(DEPTH_MAX - 1).parse::<Filter>().is_ok());
    assert!(
        error(&deep(DEPTH_MAX))
            .to_string()
            .contains("nested more than")
    );
    assert!(
        error(&"not ".repeat(1000))
            .to_string()
            .contains("nested more than")
    );
    let wide = vec!["ack"; TEXT_MAX / 7].join(" or ");
    assert!(matches(&wide, &request(Link::Ethernet, 1, 1)));
    let long = " ".repeat(TEXT_MAX + 1);
    assert!(error(&long).to_string().contains("4097 bytes, of 4096"));
    // Cut between characters, whatever they are.
    let _ = error(&"ü".repeat(TEXT_MAX)).to_string();
}

/// Expressions of the language, and what they mean by the rules of logic.
fn any_expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("tcp"),
        Just("udp"),
        Just("ip"),
        Just("ip6"),
        Just("arp"),
        Just("syn"),
        Just("ack"),
        Just("port 80"),
        Just("src port 443"),
        Just("host 192.0.2.1"),
        Just("net 10.0.0.0/8"),
        Just("dst net 2001:db8::/32"),
        Just("less 60"),
        Just("greater 40"),
        Just("icmp6"),
    ];
    leaf.prop_map(str::to_owned)
        .prop_recursive(4, 32, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|a| format!("not ({a})")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
                (inner.clone(), inner).prop_map(|(a, b)| format!("({a}) or {b}")),
            ]
        })
}

proptest! {
    /// No text makes the reader panic, and what it takes it takes again from its own words.
    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9 ().:/!&|-]{0,60}", odd in any::<String>()) {
        for text in [text, odd] {
            match text.parse::<Filter>() {
                Ok(filter) => prop_assert_eq!(filter.to_string().parse::<Filter>().unwrap(), filter),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }

    /// Words of the language in any order: it is read to its end, or refused at a place within.
    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(prop::sample::select(vec![
        "and", "or", "not", "(", ")", "host", "net", "port", "portrange", "src", "dst", "ip", "tcp", "udp", "arp",
        "192.0.2.1", "10.0.0.0/8", "::1", "80", "1-2", "syn", "less", "!",
    ]), 0..12)) {
        let text = words.join(" ");
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(error.at() <= text.len());
        }
    }

    /// Whatever bytes a frame has: no panic, and logic holds, broken frames included.
    #[test]
    fn logic_holds_for_any_frame(
        a in any_expression(),
        b in any_expression(),
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        start in prop::sample::select(vec![[0x08, 0x00, 0x45], [0x86, 0xdd, 0x60], [0x08, 0x06, 0], [0x81, 0x00, 0], [1, 2, 3]]),
    ) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(12..15) {
            place.copy_from_slice(&start);
        }
        for link in [Link::Ethernet, Link::Ip] {
            let holds = |text: String| filter(&text).matches(&bytes, link);
            let (x, y) = (holds(a.clone()), holds(b.clone()));
            prop_assert_eq!(holds(format!("not ({a})")), !x);
            prop_assert_eq!(holds(format!("({a}) and ({b})")), x && y);
            prop_assert_eq!(holds(format!("({a}) or ({b})")), x || y);
            prop_assert_eq!(holds(format!("not ({a}) or ({b})")), !x || y);
        }
    }
}
