//! The client against answers made by hand.

use super::*;
use crate::testing::{Pipe, finish, poll};
use std::pin::pin;
use std::task::Poll;

fn body_of(connection: &mut Connection<Pipe>, target: &str) -> Result<(u16, String)> {
    finish(pin!(async {
        let mut response = connection.get("example.org", target).await?;
        let mut body = Vec::new();
        response.read_to_end(&mut body).await?;
        Ok((response.status(), String::from_utf8(body).unwrap()))
    }))
}

#[test]
fn one_connection_carries_many_requests() {
    let pipe = Pipe::default();
    let mut connection = Connection::new(pipe.clone());
    pipe.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Len");
    pipe.send(b"gth: 5\r\nX-A: b\r\n\r\nhel");
    pipe.send(
        b"loHTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    assert_eq!(
        body_of(&mut connection, "/a").unwrap(),
        (200, "hello".into())
    );
    assert_eq!(
        pipe.received(),
        "GET /a HTTP/1.1\r\nhost: example.org\r\n\r\n"
    );
    assert_eq!(body_of(&mut connection, "/b").unwrap(), (404, "abc".into()));
    assert!(connection.is_open());
    // Without a length the body goes up to the end, and so does the connection.
    pipe.send(b"HTTP/1.1 200 OK\r\n\r\nall");
    pipe.send(b" of it");
    pipe.end();
    assert_eq!(
        body_of(&mut connection, "/c").unwrap(),
        (200, "all of it".into())
    );
    assert!(!connection.is_open());
    assert!(matches!(
        body_of(&mut connection, "/d"),
        Err(Error::Misuse(_))
    ));
}

#[test]
fn a_body_is_read_up_to_the_limit_and_no_further() {
    // Announced, in chunks, and up to the end.
    for (length, body) in [
        ("Content-Length: 6\r\n", "abcdef"),
        (
            "Transfer-Encoding: chunked\r\n",
            "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n",
        ),
        ("Connection: close\r\n", "abcdef"),
    ] {
        for limit in [5, 6] {
            let pipe = Pipe::default();
            let mut connection = Connection::new(pipe.clone());
            assert_eq!(connection.body_limit(), 8 * 1024 * 1024);
            connection.set_body_limit(limit);
            pipe.send(format!("HTTP/1.1 200 OK\r\n{length}\r\n{body}").as_bytes());
            pipe.end();
            match body_of(&mut connection, "/") {
                Ok((status, body)) => assert_eq!((status, &*body, limit), (200, "abcdef", 6)),
                Err(error) => {
                    assert!(
                        matches!(error, Error::BodyTooLong(5)) && limit == 5,
                        "{error}"
                    );
                    assert!(error.to_string().contains("set_body_limit"), "{error}");
                    assert!(!connection.is_open());
                }
            }
        }
    }
}

#[test]
fn an_endless_body_is_not_passed_over() {
    let pipe = Pipe::default();
    let mut connection = Connection::new(pipe.clone());
    connection.set_body_limit(5);
    pipe.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n");
    let status = finish(pin!(async {
        connection.get("x", "/").await.map(|r| r.status())
    }));
    assert_eq!(status.unwrap(), 200);
    let next = body_of(&mut connection, "/");
    assert!(matches!(next, Err(Error::BodyTooLong(5))), "{next:?}");
    assert!(!connection.is_open());
}

#[test]
fn what_is_left_of_a_body_is_passed_over() {
    let pipe = Pipe::default();
    let mut connection = Connection::new(pipe.clone());
    pipe.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
    let status = finish(pin!(async {
        connection.get("x", "/").await.map(|r| r.status())
    }))
    .unwrap();
    assert_eq!(status, 200);
    pipe.send(b"defHTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(body_of(&mut connection, "/").unwrap(), (204, String::new()));
    pipe.send(b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n");
    let response = finish(pin!(async {
        connection
            .send("HEAD", "/", &[("host", "x")], b"")
            .await
            .map(|r| r.status())
    }));
    assert_eq!(response.unwrap(), 200);
    pipe.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!");
    assert_eq!(body_of(&mut connection, "/").unwrap(), (200, "!".into()));
}

#[test]
fn a_body_is_sent_with_its_length() {
    let pipe = Pipe::default();
    let mut connection = Connection::new(pipe.clone());
    {
        let mut sending =
            pin!(connection.send("POST", "/x", &[("host", "h"), ("a", "b")], b"body"));
        assert!(matches!(poll(sending.as_mut()), Poll::Pending));
        assert_eq!(
            pipe.received(),
            "POST /x HTTP/1.1\r\nhost: h\r\na: b\r\ncontent-length: 4\r\n\r\nbody"
        );
        pipe.end();
        assert!(matches!(
            finish(sending.as_mut()),
            Err(Error::UnexpectedEnd)
        ));
    }
    for (method, target, name, value) in [
        ("GET /", "/", "a", "b"),
        ("GET", "/ x", "a", "b"),
        ("GET", "/", "a b", "c"),
        ("GET", "/", "a", "b\r\nc: d"),
    ] {
        let result = finish(pin!(async {
            connection
                .send(method, target, &[(name, value)], b"")
                .await
                .map(|_| ())
        }));
        assert!(
            matches!(result, Err(Error::Misuse(_))),
            "{method} {target} {name} {value}"
        );
    }
}

#[test]
fn endless_interim_responses_end() {
    let pipe = Pipe::default();
    let mut connection = Connection::new(pipe.clone());
    pipe.send(&b"HTTP/1.1 102 Processing\r\n\r\n".repeat(INTERIM_MAX as usize + 1));
    assert!(matches!(
        body_of(&mut connection, "/"),
        Err(Error::Rejected(Reject::Syntax))
    ));
}

#[test]
fn a_body_is_sent_in_pieces() {
    let pipe = Pipe::default();
    let mut connection = Connection::new(pipe.clone());
    let host = [(&b"host"[..], &b"h"[..])];
    pipe.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\nX-A: c\r\n\r\nok");
    finish(pin!(async {
        let mut request = connection.begin("PUT", "/", host, None).await?;
        for piece in [&b"hello "[..], b"", b"world, piece by piece"] {
            request.write(piece).await?;
        }
        let mut response = request.finish().await?;
        let values: Vec<_> = response.headers().collect();
        assert_eq!(values[1..], [(&b"X-A"[..], &b"b"[..]), (b"X-A", b"c")]);
        assert_eq!(response.remaining(), Some(2));
        assert_eq!(response.next().await?, Some(&b"ok"[..]));
        assert_eq!(response.remaining(), Some(0));
        Ok::<(), Error>(())
    }))
    .unwrap();
    assert_eq!(
        pipe.received(),
        "PUT / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n\
         6\r\nhello \r\n15\r\nworld, piece by piece\r\n0\r\n\r\n"
    );
    // Of a length that was given, neither more nor less.
    for wrong in [&b"abc"[..], b"a"] {
        let mut connection = Connection::new(Pipe::default());
        let sent = finish(pin!(async {
            let mut request = connection.begin("PUT", "/", host, Some(2)).await?;
            request.write(wrong).await?;
            request.finish().await.map(|_| ())
        }));
        assert!(matches!(sent, Err(Error::Misuse(_))), "{sent:?}");
        assert!(!connection.is_open());
    }
    for ours in ["Content-Length", "transfer-encoding"] {
        let twice = [("host", "h"), (ours, "2")];
        let sent = finish(pin!(async {
            connection.send("PUT", "/", &twice, b"ab").await.map(|_| ())
        }));
        assert!(matches!(sent, Err(Error::Misuse(_))), "{ours}");
    }
}

/// A late answer of its server would be taken for the answer to another request.
#[test]
fn a_connection_whose_request_was_given_up_is_not_used_again() {
    let pipe = Pipe::default();
    let mut connection = Connection::new(pipe.clone());
    {
        let mut sending = pin!(connection.get("h", "/slow"));
        assert!(poll(sending.as_mut()).is_pending());
    }
    assert!(!connection.is_open());
    pipe.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nslow!");
    assert!(matches!(
        body_of(&mut connection, "/other"),
        Err(Error::Misuse(_))
    ));
}
