//! Lengths, and every way to make two readers disagree about one.

use super::*;
use crate::head::Progress;

fn request(version: &str, headers: &[&str]) -> Result<Framing, Reject> {
    let text = format!(
        "POST / HTTP/{version}\r\n{}\r\n",
        headers
            .iter()
            .map(|h| format!("{h}\r\n"))
            .collect::<String>()
    );
    let mut head = HeadIndex::default();
    assert_eq!(
        head.parse_request(text.as_bytes(), 4096),
        Ok(Progress::Whole),
        "{text}"
    );
    of_request(&head, text.as_bytes())
}

/// With the one header that HTTP/1.1 needs.
fn with(headers: &[&str]) -> Result<Framing, Reject> {
    request("1.1", &[&["Host: x"], headers].concat())
}

fn length(headers: &[&str]) -> Result<Length, Reject> {
    with(headers).map(|framing| framing.length)
}

#[test]
fn lengths() {
    assert_eq!(length(&[]), Ok(Length::Sized(0)));
    assert_eq!(length(&["Content-Length: 0"]), Ok(Length::Sized(0)));
    assert_eq!(length(&["content-LENGTH:  42 "]), Ok(Length::Sized(42)));
    assert_eq!(
        length(&["Content-Length: 18446744073709551615"]),
        Ok(Length::Sized(u64::MAX))
    );
    assert_eq!(
        length(&["Content-Length: 18446744073709551616"]),
        Err(Reject::BodyTooLarge)
    );
    assert_eq!(length(&["Transfer-Encoding: chunked"]), Ok(Length::Chunked));
    assert_eq!(
        length(&["Transfer-Encoding: , Chunked ,"]),
        Ok(Length::Chunked)
    );
}

#[test]
fn ambiguous_lengths_are_refused() {
    for headers in [
        &["Content-Length: 5", "Transfer-Encoding: chunked"][..],
        &["Transfer-Encoding: chunked", "Content-Length: 5"],
        &["Content-Length: 5", "Content-Length: 5"],
        &["Content-Length: 5", "Content-Length: 6"],
        &["Content-Length: 5, 5"],
        &["Content-Length: +5"],
        &["Content-Length: -5"],
        &["Content-Length: 0x5"],
        &["Content-Length: 5 5"],
        &["Content-Length:"],
        &["Content-Length: five"],
        &["Transfer-Encoding: chunked, chunked"],
        &["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        &["Transfer-Encoding: chunked, identity"],
        &["Transfer-Encoding: gzip"],
        &["Transfer-Encoding: xchunked"],
        &["Transfer-Encoding: \"chunked\""],
        &["Transfer-Encoding:"],
    ] {
        assert_eq!(length(headers), Err(Reject::Framing), "{headers:?}");
    }
    assert_eq!(
        request("1.0", &["Transfer-Encoding: chunked"]),
        Err(Reject::Framing)
    );
}

#[test]
fn codings_we_do_not_have_are_not_implemented() {
    assert_eq!(
        length(&["Transfer-Encoding: gzip, chunked"]),
        Err(Reject::NotImplemented)
    );
    assert_eq!(
        length(&["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"]),
        Err(Reject::NotImplemented)
    );
}

#[test]
fn one_host_in_1_1_and_at_most_one_in_1_0() {
    assert_eq!(request("1.1", &[]), Err(Reject::Host));
    assert_eq!(request("1.1", &["Host: a", "Host: a"]), Err(Reject::Host));
    assert_eq!(request("1.0", &["Host: a", "host: b"]), Err(Reject::Host));
    assert!(request("1.0", &[]).is_ok() && request("1.1", &["Host:"]).is_ok());
}

#[test]
fn who_goes_on() {
    let keeps = |version, connection: &[&str]| {
        request(version, &[&["Host: x"], connection].concat())
            .unwrap()
            .keep_alive
    };
    assert!(keeps("1.1", &[]));
    assert!(!keeps("1.1", &["Connection: close"]));
    assert!(!keeps("1.1", &["Connection: upgrade, CLOSE"]));
    assert!(!keeps(
        "1.1",
        &["Connection: keep-alive", "Connection: close"]
    ));
    assert!(!keeps("1.0", &[]));
    assert!(keeps("1.0", &["Connection: Keep-Alive"]));
    assert!(!keeps("1.0", &["Connection: keep-alive, close"]));
    assert!(keeps("1.1", &["Connection: closed"]));
}

#[test]
fn expectations() {
    assert!(
        with(&["Expect: 100-Continue", "Content-Length: 5"])
            .unwrap()
            .expects_continue
    );
    assert!(
        with(&["Expect: 100-continue", "Transfer-Encoding: chunked"])
            .unwrap()
            .expects_continue
    );
    assert!(!with(&["Expect: 100-continue"]).unwrap().expects_continue);
    assert!(
        !request("1.0", &["Expect: 100-continue", "Content-Length: 5"])
            .unwrap()
            .expects_continue
    );
    assert_eq!(with(&["Expect: miracles"]), Err(Reject::Expectation));
}

#[test]
fn connect_is_for_proxies() {
    let text = b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n";
    let mut head = HeadIndex::default();
    head.parse_request(text, 4096).unwrap();
    assert_eq!(of_request(&head, text), Err(Reject::NotImplemented));
}

#[test]
fn responses() {
    let of = |text: &str, to_head| {
        let mut head = HeadIndex::default();
        assert_eq!(
            head.parse_response(text.as_bytes(), 4096),
            Ok(Progress::Whole)
        );
        of_response(&head, text.as_bytes(), to_head).map(|f| (f.length, f.keep_alive))
    };
    assert_eq!(
        of("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", false),
        Ok((Length::Sized(7), true))
    );
    assert_eq!(
        of("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", true),
        Ok((Length::Sized(0), true))
    );
    assert_eq!(
        of("HTTP/1.1 200 OK\r\n\r\n", false),
        Ok((Length::UntilClose, false))
    );
    assert_eq!(
        of("HTTP/1.1 204 No Content\r\n\r\n", false),
        Ok((Length::Sized(0), true))
    );
    assert_eq!(
        of(
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
            false
        ),
        Ok((Length::Sized(0), true))
    );
    assert_eq!(
        of("HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n", false),
        Ok((Length::Sized(7), false))
    );
    assert_eq!(
        of(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nExpect: x\r\n\r\n",
            false
        ),
        Ok((Length::Chunked, true))
    );
    let both = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(of(both, false), Err(Reject::Framing));
}
