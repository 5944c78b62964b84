//! Heads whole, cut anywhere, too long, and wrong.

use super::*;
use proptest::prelude::*;

const REQUEST: &[u8] =
    b"GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nX-Empty:\r\nAccept:  */* \r\n\r\n";
const LIMIT: usize = 1024;

fn request(bytes: &[u8]) -> Result<Progress, Reject> {
    HeadIndex::default().parse_request(bytes, LIMIT)
}

#[test]
fn the_parts_are_found() {
    let mut head = HeadIndex::default();
    assert!(head.is_empty());
    let bytes = [REQUEST, b"body"].concat();
    assert_eq!(head.parse_request(&bytes, LIMIT), Ok(Progress::Whole));
    assert_eq!(
        (head.method(&bytes), head.target(&bytes), head.minor()),
        ("GET", "/a?b=c", 1)
    );
    assert_eq!((head.len(), head.is_empty()), (REQUEST.len(), false));
    assert_eq!(head.header(&bytes, "HOST"), Some(&b"example.org"[..]));
    assert_eq!(head.header(&bytes, "accept"), Some(&b"*/*"[..]));
    assert_eq!(head.header(&bytes, "x-empty"), Some(&b""[..]));
    assert_eq!(head.header(&bytes, "cookie"), None);
    assert_eq!(head.headers(&bytes).count(), 3);
    // A wrong buffer gives nothing, and no panic.
    assert_eq!(head.target(b"short"), "");
}

#[test]
fn a_response_is_read() {
    let mut head = HeadIndex::default();
    let bytes = b"HTTP/1.0 404 Not Found\r\nServer: x\r\n\r\n";
    assert_eq!(head.parse_response(bytes, LIMIT), Ok(Progress::Whole));
    assert_eq!(
        (head.status(), head.minor(), head.header(bytes, "server")),
        (404, 0, Some(&b"x"[..]))
    );
    assert_eq!(
        head.parse_response(b"HTTP/2.0 200 OK\r\n\r\n", LIMIT),
        Err(Reject::Version)
    );
    assert_eq!(
        head.parse_response(b"HTTP/1.1 2x0 OK\r\n\r\n", LIMIT),
        Err(Reject::Syntax)
    );
}

#[test]
fn every_prefix_is_partial_and_find_end_sees_the_end_only_there() {
    for text in [REQUEST, b"GET / HTTP/1.0\n\n", b"GET / HTTP/1.0\r\n\r\n"] {
        let mut looked = 0;
        for cut in 1..text.len() {
            assert_eq!(request(&text[..cut]), Ok(Progress::Partial), "{cut}");
            let (ended, so_far) = find_end(&text[..cut], looked);
            assert!(!ended && so_far <= cut, "{cut}");
            looked = so_far;
        }
        assert_eq!(request(text), Ok(Progress::Whole));
        assert!(find_end(text, looked).0);
    }
}

#[test]
fn what_is_wrong_gets_the_right_status() {
    let status = |bytes: &[u8]| request(bytes).unwrap_err().status();
    assert_eq!(status(b"GET / HTTP/2.0\r\n\r\n"), 505);
    assert_eq!(status(b"GET / HTTP/0.9\r\n\r\n"), 505);
    assert_eq!(status(b"GET / FTP\r\n\r\n"), 400);
    assert_eq!(status(b"\x16\x03\x01\x02\x00\x01\x00"), 400); // TLS
    assert_eq!(status(b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"), 400); // space before the colon
    assert_eq!(status(b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n"), 400);
    assert_eq!(status(b"GET / HTTP/1.1\r\nA: b\0c\r\n\r\n"), 400);
    assert_eq!(status(b"GET  / HTTP/1.1\r\n\r\n"), 400);
    let many = [
        b"GET / HTTP/1.1\r\n".to_vec(),
        b"a: b\r\n".repeat(HEADERS_MAX + 1),
        b"\r\n".to_vec(),
    ]
    .concat();
    assert_eq!(status(&many), 431);
    assert_eq!(
        request(&[&many[..16], &many[22..]].concat()),
        Ok(Progress::Whole)
    );
}

#[test]
fn a_head_at_the_limit_is_taken_and_one_byte_more_is_not() {
    let with = |len: usize| {
        let mut bytes = b"GET / HTTP/1.1\r\nx: ".to_vec();
        bytes.resize(len - 4, b'v');
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes
    };
    assert_eq!(request(&with(LIMIT)), Ok(Progress::Whole));
    assert_eq!(request(&with(LIMIT + 1)), Err(Reject::HeadTooLarge));
    assert_eq!(request(&with(LIMIT)[..LIMIT - 1]), Ok(Progress::Partial));
    assert_eq!(
        request(&[b"GET /".to_vec(), vec![b'x'; LIMIT]].concat()),
        Err(Reject::TargetTooLong)
    );
    // However large the limit, offsets have 16 bits.
    let mut head = HeadIndex::default();
    assert_eq!(
        head.parse_request(&with(BYTES_MAX + 1), usize::MAX),
        Err(Reject::HeadTooLarge)
    );
    assert_eq!(
        head.parse_request(&with(BYTES_MAX), usize::MAX),
        Ok(Progress::Whole)
    );
    assert_eq!(
        head.header(&with(BYTES_MAX), "x").map(<[u8]>::len),
        Some(BYTES_MAX - 23)
    );
}

proptest! {
    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), from in 0usize..300) {
        let _ = request(&bytes);
        let _ = HeadIndex::default().parse_response(&bytes, LIMIT);
        let _ = find_end(&bytes, from);
    }

    #[test]
    fn damaged_heads_never_panic(at in 0..REQUEST.len(), value: u8, cut in 0..REQUEST.len()) {
        let mut bytes = REQUEST.to_vec();
        bytes[at] = value;
        let mut head = HeadIndex::default();
        if head.parse_request(&bytes, LIMIT) == Ok(Progress::Whole) {
            prop_assert!(head.len() <= bytes.len());
            for (name, value) in head.headers(&bytes) {
                prop_assert!(!name.is_empty() && !value.contains(&b'\n'));
            }
            let _ = head.headers(&bytes[..cut]).count();
        }
    }

    /// Looking for the end in steps finds it where looking at once does, and never later than httparse.
    #[test]
    fn find_end_in_steps_is_find_end_at_once(bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'a')], 0..60)) {
        let mut looked = 0;
        let mut found = None;
        for cut in 0..=bytes.len() {
            let (ended, so_far) = find_end(&bytes[..cut], looked);
            looked = so_far;
            if ended {
                found = Some(cut);
                break;
            }
        }
        let at_once = (0..=bytes.len()).find(|cut| find_end(&bytes[..*cut], 0).0);
        prop_assert_eq!(found, at_once);
        let by_search = bytes.windows(2).position(|w| w == b"\n\n").map(|at| at + 2);
        let by_search_crlf = bytes.windows(3).position(|w| w == b"\n\r\n").map(|at| at + 3);
        prop_assert_eq!(found, by_search.into_iter().chain(by_search_crlf).min());
    }
}
