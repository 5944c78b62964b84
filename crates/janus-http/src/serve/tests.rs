//! A server's connection from outside: what is sent in, what comes back, whether it goes on.

use super::*;
use crate::pool::counters;
use crate::testing::{Pipe, finish, poll};

/// Without the date, so that answers can be compared.
static PLAIN: Options = Options {
    date: false,
    ..Options::DEFAULT
};
static TIGHT: Options = Options {
    date: false,
    head_bytes: 128,
    body_bytes: 8,
    drain_bytes: 4,
    ..Options::DEFAULT
};

/// Answers with what it was asked, so that a test sees how the request was understood.
async fn mirror(mut request: Request<'_, Pipe>, response: Responder<'_, Pipe>) -> Result<Sent> {
    let mut said = format!("{} {}\n", request.method(), request.path()).into_bytes();
    match request.path() {
        "/ignore" => {}
        "/fail" => return Err(Error::other("no")),
        "/misuse" => return response.ok().header("a", "b\r\nc").send("x").await,
        "/empty" => return response.status(204).send("").await,
        "/close" => return response.ok().close().send("bye").await,
        "/large" => return response.ok().send(vec![b'L'; 10_000]).await,
        "/stream" => {
            let mut body = response.ok().stream().await?;
            body.write(b"one").await?;
            body.write(b"").await?;
            body.write(&[b'2'; 5000]).await?;
            return body.finish().await;
        }
        "/sized" => {
            let mut body = response.status(206).send_sized(6).await?;
            body.write(b"abc").await?;
            body.flush().await?;
            body.write(b"def").await?;
            return body.finish().await;
        }
        "/short" => {
            let mut body = response.ok().send_sized(6).await?;
            body.write(b"abc").await?;
            body.flush().await?;
            return body.finish().await;
        }
        _ => request.body().read_to_end(&mut said).await?,
    }
    response.ok().header("x", "y").send(said).await
}

/// Sends `pieces`, polling after each, then ends. What came back, and how the connection ended.
fn talk_with(options: &'static Options, pieces: &[&[u8]]) -> (String, Result<()>) {
    let pipe = Pipe::default();
    let mut serving = pin!(serve_with(options, pipe.clone(), mirror));
    for piece in pieces {
        pipe.send(piece);
        if let Poll::Ready(end) = poll(serving.as_mut()) {
            return (pipe.received(), end);
        }
    }
    pipe.end();
    let end = finish(serving.as_mut());
    (pipe.received(), end)
}

fn talk(pieces: &[&[u8]]) -> String {
    let (text, end) = talk_with(&PLAIN, pieces);
    end.expect("a clean end");
    text
}

/// The status of the answer to a request that is refused.
fn refused(options: &'static Options, bytes: &[u8]) -> u16 {
    let (text, end) = talk_with(options, &[bytes]);
    let head = text.strip_prefix("HTTP/1.1 ").unwrap();
    assert!(head.contains("\r\nconnection: close\r\n"), "{text}");
    assert!(matches!(end, Err(Error::Rejected(_))), "{end:?}");
    head[..3].parse().unwrap()
}

fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

const MILLI: Duration = Duration::from_millis(1);
const GET: &[u8] = b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n";

#[test]
fn one_request_in_any_two_pieces() {
    for cut in 0..=GET.len() {
        let (a, b) = GET.split_at(cut);
        let pieces = if cut == 0 { vec![b] } else { vec![a, b] };
        assert_eq!(talk(&pieces), ok("GET /a\n"), "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = GET.chunks(1).collect();
    assert_eq!(talk(&bytes), ok("GET /a\n"));
}

#[test]
fn pipelined_requests_are_answered_in_order_and_in_one_write() {
    let pipe = Pipe::default();
    let mut serving = pin!(serve_with(&PLAIN, pipe.clone(), mirror));
    let post = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
    pipe.with(|wire| wire.room = Some(10_000));
    pipe.send(&[GET, b"\r\n", post, GET, &GET[..9]].concat());
    assert!(poll(serving.as_mut()).is_pending());
    assert_eq!(
        pipe.received(),
        [ok("GET /a\n"), ok("POST /p\nabc"), ok("GET /a\n")].concat()
    );
    pipe.send(&GET[9..]);
    assert!(poll(serving.as_mut()).is_pending());
    assert_eq!(pipe.received(), ok("GET /a\n"));
}

#[test]
fn bodies_sized_and_chunked_in_any_two_pieces() {
    let sized = b"POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello".to_vec();
    let chunked = b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\n\r\n".to_vec();
    let both = [sized, chunked].concat();
    let expected = [ok("POST /s\nhello"), ok("PUT /c\nhello")].concat();
    for cut in 1..both.len() {
        let (a, b) = both.split_at(cut);
        assert_eq!(talk(&[a, b]), expected, "cut at {cut}");
    }
}

#[test]
fn versions_and_connection_headers_decide_who_goes_on() {
    let closed = |text: &[u8]| {
        let pipe = Pipe::default();
        let mut serving = pin!(serve_with(&PLAIN, pipe.clone(), mirror));
        pipe.send(text);
        let over = poll(serving.as_mut()).is_ready();
        (over, pipe.received().contains("connection: close"), pipe)
    };
    assert!(matches!(closed(GET), (false, false, _)));
    assert!(matches!(
        closed(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        (true, true, _)
    ));
    assert!(matches!(closed(b"GET / HTTP/1.0\r\n\r\n"), (true, true, _)));
    assert!(matches!(
        closed(b"GET /close HTTP/1.1\r\nHost: x\r\n\r\n"),
        (true, true, _)
    ));
    let kept = talk(&[b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"]);
    assert!(kept.contains("\r\nconnection: keep-alive\r\n"), "{kept}");
}

#[test]
fn head_gets_the_head_and_bodyless_statuses_have_no_length() {
    let head = talk(&[b"HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n", GET]);
    assert_eq!(
        head,
        format!(
            "HTTP/1.1 200 OK\r\nx: y\r\ncontent-length: 8\r\n\r\n{}",
            ok("GET /a\n")
        )
    );
    assert_eq!(
        talk(&[b"GET /empty HTTP/1.1\r\nHost: x\r\n\r\n"]),
        "HTTP/1.1 204 No Content\r\n\r\n"
    );
    let stream = talk(&[b"HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n", GET]);
    assert!(
        stream.starts_with("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nHTTP/1.1 200 OK"),
        "{stream}"
    );
}

#[test]
fn streamed_bodies() {
    let stream = talk(&[b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"]);
    let twos = "2".repeat(5000);
    let expected =
        format!("transfer-encoding: chunked\r\n\r\n3\r\none\r\n1388\r\n{twos}\r\n0\r\n\r\n");
    assert!(stream.ends_with(&expected), "{stream}");
    let old = talk(&[b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"]);
    assert!(
        old.ends_with(&format!("connection: close\r\n\r\none{twos}")),
        "{old}"
    );
    let sized = talk(&[b"GET /sized HTTP/1.1\r\nHost: x\r\n\r\n"]);
    assert_eq!(
        sized,
        "HTTP/1.1 206 Partial Content\r\ncontent-length: 6\r\n\r\nabcdef"
    );
    let large = talk(&[b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n", GET]);
    assert!(large.contains(&"L".repeat(10_000)) && large.ends_with(&ok("GET /a\n")));
}

#[test]
fn a_body_shorter_than_announced_ends_the_connection_at_once() {
    let (text, end) = talk_with(&PLAIN, &[b"GET /short HTTP/1.1\r\nHost: x\r\n\r\n"]);
    assert!(
        text.ends_with("\r\n\r\nabc") && matches!(end, Err(Error::Misuse(_))),
        "{text} {end:?}"
    );
}

#[test]
fn failing_handlers_get_an_answer_for_their_client() {
    for path in ["/fail", "/misuse"] {
        let (text, end) = talk_with(
            &PLAIN,
            &[
                format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes(),
                b"",
            ],
        );
        assert!(
            text.starts_with("HTTP/1.1 500 Internal Server Error\r\n"),
            "{text}"
        );
        assert!(text.contains("connection: close") && end.is_err());
        assert!(!text.contains("c\r\n") || !text.contains("a: b"), "{text}");
    }
}

#[test]
fn the_client_that_waits_for_100_gets_it_when_the_body_is_read() {
    let head = b"POST /p HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let pipe = Pipe::default();
    let mut serving = pin!(serve_with(&PLAIN, pipe.clone(), mirror));
    pipe.send(&[GET, head].concat());
    assert!(poll(serving.as_mut()).is_pending());
    assert_eq!(
        pipe.received(),
        format!("{}HTTP/1.1 100 Continue\r\n\r\n", ok("GET /a\n"))
    );
    pipe.send(b"abc");
    assert!(poll(serving.as_mut()).is_pending());
    assert_eq!(pipe.received(), ok("POST /p\nabc"));
    // A client that sends the body at once gets no 100.
    pipe.send(&[&head[..], b"abc"].concat());
    assert!(poll(serving.as_mut()).is_pending());
    assert_eq!(pipe.received(), ok("POST /p\nabc"));
    // Not read: answered without 100, and the connection ends.
    let ignored =
        b"POST /ignore HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    pipe.send(ignored);
    assert!(poll(serving.as_mut()).is_pending(), "lingers");
    let text = pipe.received();
    assert!(
        text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("connection: close"),
        "{text}"
    );
    assert!(pipe.with(|wire| wire.shut));
}

#[test]
fn unread_bodies_are_drained_up_to_the_limit() {
    let post = |n: usize| {
        let head = format!("POST /ignore HTTP/1.1\r\nHost: x\r\nContent-Length: {n}\r\n\r\n");
        [head.as_bytes(), &vec![b'z'; n], GET].concat()
    };
    let (text, end) = talk_with(&TIGHT, &[&post(4)]);
    assert!(end.is_ok() && text.ends_with(&ok("GET /a\n")), "{text}");
    let (text, end) = talk_with(&TIGHT, &[&post(5)]);
    assert!(end.is_ok() && text == ok("POST /ignore\n"), "{text}");
}

#[test]
fn smuggling_is_refused() {
    let post = |headers: &str, body: &str| {
        format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n{body}").into_bytes()
    };
    for (headers, body) in [
        (
            "Content-Length: 6\r\nTransfer-Encoding: chunked",
            "0\r\n\r\nG",
        ),
        ("Content-Length: 3\r\nContent-Length: 3", "abc"),
        ("Content-Length: 3\r\nContent-Length: 5", "abcde"),
        ("Content-Length: +3", "abc"),
        ("Transfer-Encoding: chunked", "zz\r\n"),
        ("Transfer-Encoding: chunked", "3\r\nabcd\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "3\nabc\n0\n\n"),
        ("Transfer-Encoding : chunked", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n , identity", "0\r\n\r\n"),
    ] {
        assert_eq!(
            refused(&PLAIN, &post(headers, body)),
            400,
            "{headers} {body}"
        );
    }
    assert_eq!(refused(&PLAIN, b"GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(
        refused(&PLAIN, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        400
    );
}

#[test]
fn limits_have_their_statuses() {
    assert_eq!(
        refused(
            &TIGHT,
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
        ),
        413
    );
    let chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n";
    assert_eq!(refused(&TIGHT, chunked), 413);
    let long_header = format!("GET / HTTP/1.1\r\nHost: x\r\ny: {}", "z".repeat(128));
    assert_eq!(refused(&TIGHT, long_header.as_bytes()), 431);
    assert_eq!(
        refused(&TIGHT, format!("GET /{}", "z".repeat(128)).as_bytes()),
        414
    );
    assert_eq!(refused(&PLAIN, b"GET / HTTP/2.0\r\nHost: x\r\n\r\n"), 505);
    assert_eq!(
        refused(
            &PLAIN,
            b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: br, chunked\r\n\r\n"
        ),
        501
    );
    assert_eq!(
        refused(&PLAIN, b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"),
        501
    );
    assert_eq!(
        refused(&PLAIN, b"PUT / HTTP/1.1\r\nHost: x\r\nExpect: x\r\n\r\n"),
        417
    );
    // A good request before the bad one keeps its answer.
    let (text, _) = talk_with(&PLAIN, &[&[GET, b"nonsense\r\n\r\n"].concat()]);
    assert!(
        text.starts_with(&ok("GET /a\n")) && text.contains("HTTP/1.1 400 "),
        "{text}"
    );
}

#[test]
fn a_long_head_may_come_in_many_pieces_up_to_the_limit() {
    let mut head = b"GET / HTTP/1.1\r\nHost: x\r\ny: ".to_vec();
    head.resize(TIGHT.head_bytes - 4, b'z');
    head.extend_from_slice(b"\r\n\r\n");
    for size in [1, 7, 100] {
        let (text, end) = talk_with(&TIGHT, &head.chunks(size).collect::<Vec<_>>());
        assert!(end.is_ok() && text == ok("GET /\n"), "{text}");
    }
    head.insert(40, b'z');
    for size in [1, 7, 100] {
        let (text, _) = talk_with(&TIGHT, &head.chunks(size).collect::<Vec<_>>());
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
    }
}

#[test]
fn a_slow_head_is_timed_and_an_idle_connection_has_no_timer() {
    let pipe = Pipe::default();
    pipe.with(|wire| wire.wakes = Some(None));
    let mut serving = pin!(serve_with(&PLAIN, pipe.clone(), mirror));
    pipe.send(GET);
    assert!(poll(serving.as_mut()).is_pending());
    assert!(pipe.with(|wire| wire.sleeps.is_empty()));
    pipe.send(&GET[..7]);
    assert!(poll(serving.as_mut()).is_pending());
    let sleeps = pipe.with(|wire| wire.sleeps.clone());
    assert_eq!(sleeps, [PLAIN.head_timeout.unwrap()]);
    pipe.expire();
    assert!(
        poll(serving.as_mut()).is_pending(),
        "the peer's end is waited for"
    );
    pipe.expire();
    assert!(matches!(
        finish(serving.as_mut()),
        Err(Error::Rejected(Reject::HeadTimeout))
    ));
    let text = pipe.received();
    assert!(text.contains("HTTP/1.1 408 Request Timeout\r\n"), "{text}");
}

/// Waits for a request, its first or another, end after their time: by timers of its own where the transport does not wake, and
/// where it does, not before the transport wakes it.
#[test]
fn a_connection_that_waits_too_long_ends_without_a_word() {
    let (first, idle) = (
        PLAIN.first_byte_timeout.unwrap(),
        PLAIN.idle_timeout.unwrap(),
    );
    for wakes in [None, Some(None)] {
        let pipe = Pipe::default();
        pipe.with(|wire| wire.wakes = wakes);
        let mut serving = pin!(serve_with(&PLAIN, pipe.clone(), mirror));
        assert!(poll(serving.as_mut()).is_pending());
        pipe.pass(first - MILLI);
        assert!(poll(serving.as_mut()).is_pending());
        assert_eq!(pipe.with(|wire| wire.wakes), wakes.map(|_| Some(first)));
        // Any number of requests, each with the whole time before it.
        for _ in 0..3 {
            pipe.send(GET);
            assert!(poll(serving.as_mut()).is_pending());
            assert_eq!(pipe.received(), ok("GET /a\n"));
            pipe.pass(idle - MILLI);
            assert!(poll(serving.as_mut()).is_pending());
        }
        assert_eq!(pipe.with(|wire| wire.wakes), wakes.map(|_| Some(idle)));
        assert_eq!(pipe.with(|wire| wire.sleeps.is_empty()), wakes.is_some());
        // Bytes that are no request extend no time limit.
        pipe.send(b"\r\n\r\n");
        assert!(poll(serving.as_mut()).is_pending());
        pipe.pass(MILLI);
        assert!(finish(serving.as_mut()).is_ok());
        assert_eq!(pipe.received(), "");
    }
    let pipe = Pipe::default();
    let mut serving = pin!(serve_with(&PLAIN, pipe.clone(), mirror));
    for _ in 0..20 {
        pipe.pass(first / 21);
        pipe.send(b"\r\n");
        assert!(poll(serving.as_mut()).is_pending());
    }
    pipe.pass(first / 10);
    assert!(finish(serving.as_mut()).is_ok());
}

/// Answers of which the peer takes nothing, with the handler of a later request still at work: the connection is reset. As long
/// as it takes something, it goes on.
#[test]
fn an_answer_that_is_not_taken_ends_the_connection() {
    let limit = PLAIN.write_timeout.unwrap();
    let post = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
    for requests in [[GET, GET].concat(), [GET, post].concat()] {
        static NO_BODY_TIMEOUT: Options = Options {
            body_timeout: None,
            body_rate: None,
            ..PLAIN
        };
        let pipe = Pipe::default();
        let mut serving = pin!(serve_with(&NO_BODY_TIMEOUT, pipe.clone(), mirror));
        pipe.with(|wire| (wire.room, wire.unacknowledged) = (Some(10), 10));
        pipe.send(&requests);
        for left in (0..10).rev() {
            assert!(poll(serving.as_mut()).is_pending());
            pipe.pass(limit * 3 / 4);
            pipe.with(|wire| wire.unacknowledged = left);
        }
        for _ in 0..7 {
            assert!(poll(serving.as_mut()).is_pending());
            pipe.pass(limit / 7);
        }
        assert!(poll(serving.as_mut()).is_pending() && !pipe.with(|wire| wire.aborted));
        pipe.pass(limit / 7);
        assert!(matches!(finish(serving.as_mut()), Err(Error::Stalled)));
        assert!(pipe.with(|wire| wire.aborted));
        assert_eq!(pipe.received().len(), 10);
    }
}

#[test]
fn a_peer_that_goes_away_in_a_message_is_an_error_and_between_messages_is_not() {
    let end = |text: &[u8]| talk_with(&PLAIN, &[text]).1;
    assert!(end(GET).is_ok());
    assert!(end(b"\r\n\r\n").is_ok());
    assert!(matches!(end(&GET[..9]), Err(Error::UnexpectedEnd)));
    let half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc";
    assert!(matches!(end(half), Err(Error::UnexpectedEnd)));
}

#[test]
fn an_answer_waits_for_room_and_not_for_the_handler_behind_it() {
    let pipe = Pipe::default();
    let mut serving = pin!(serve_with(&PLAIN, pipe.clone(), mirror));
    // The second request's body is still to come: the first answer must not wait for it.
    let post = b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
    pipe.with(|wire| wire.room = Some(10));
    pipe.send(&[GET, post].concat());
    assert!(poll(serving.as_mut()).is_pending());
    assert_eq!(pipe.received(), ok("GET /a\n")[..10]);
    pipe.with(|wire| wire.room = Some(10_000));
    assert!(poll(serving.as_mut()).is_pending());
    assert_eq!(pipe.received(), ok("GET /a\n")[10..]);
    pipe.send(b"abc");
    assert!(poll(serving.as_mut()).is_pending());
    assert_eq!(pipe.received(), ok("POST /p\nabc"));
}

/// The last answer says so, also where more have been sent, and whatever the client wants.
#[test]
fn a_connection_has_so_many_requests_and_no_more() {
    static THREE: Options = Options {
        requests: std::num::NonZeroU16::new(3),
        ..PLAIN
    };
    let last = ok("GET /a\n").replace("\r\nx: y", "\r\nconnection: close\r\nx: y");
    for pieces in [
        &[GET, GET, GET, GET][..],
        &[&[GET, GET].concat(), &[GET, GET].concat()],
    ] {
        let (said, ended) = talk_with(&THREE, pieces);
        assert!(ended.is_ok());
        let answers: Vec<&str> = said.split_inclusive("GET /a\n").collect();
        assert_eq!(answers.len(), 3, "{said}");
        assert!(answers[..2].iter().all(|answer| **answer == ok("GET /a\n")));
        assert!(
            answers[2].contains("connection: close\r\n"),
            "{said}, {last}"
        );
    }
}

#[test]
fn a_waiting_connection_is_a_few_words_and_requests_reuse_what_is_there() {
    let serving = serve(Pipe::default(), mirror);
    assert!(size_of_val(&serving) <= 40, "{}", size_of_val(&serving));
    let before = counters();
    let pipes: Vec<Pipe> = (0..10).map(|_| Pipe::default()).collect();
    let mut all: Vec<_> = pipes
        .iter()
        .map(|pipe| Box::pin(serve(pipe.clone(), mirror)))
        .collect();
    for _ in 0..100 {
        for (pipe, serving) in pipes.iter().zip(&mut all) {
            pipe.send(GET);
            assert!(poll(serving.as_mut()).is_pending());
        }
    }
    let after = counters();
    assert_eq!(after.futures_allocated - before.futures_allocated, 1);
    assert_eq!(after.buffers_allocated - before.buffers_allocated, 1);
    assert!(pipes[3].received().contains("\r\ndate: "));
}

#[test]
fn a_server_that_is_about_to_end_answers_what_is_begun_and_hardly_waits_for_more() {
    let idle = Pipe::default();
    let mut serving = pin!(serve_with(&PLAIN, idle.clone(), mirror));
    idle.send(b"GET /close-to HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(poll(serving.as_mut()).is_pending());
    assert!(!idle.received().contains("close\r\n"));
    idle.leave();
    assert!(poll(serving.as_mut()).is_pending(), "one may be on its way");
    idle.expire();
    assert!(finish(serving.as_mut()).is_ok());

    let crossed = Pipe::default();
    let mut serving = pin!(serve_with(&PLAIN, crossed.clone(), mirror));
    crossed.leave();
    assert!(poll(serving.as_mut()).is_pending());
    crossed.send(b"GET /c HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(finish(serving.as_mut()).is_ok());
    assert!(crossed.received().contains("connection: close\r\n"));

    let begun = Pipe::default();
    let mut serving = pin!(serve_with(&PLAIN, begun.clone(), mirror));
    begun.send(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nx");
    assert!(poll(serving.as_mut()).is_pending());
    begun.leave();
    assert!(poll(serving.as_mut()).is_pending(), "the body is awaited");
    begun.send(b"y");
    assert!(poll(serving.as_mut()).is_pending(), "it was not told");
    begun.expire();
    assert!(finish(serving.as_mut()).is_ok());
    assert!(begun.received().ends_with("POST /a\nxy"));

    let last = Pipe::default();
    last.leave();
    let mut serving = pin!(serve_with(&PLAIN, last.clone(), mirror));
    last.send(b"GET /b HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(finish(serving.as_mut()).is_ok());
    assert!(last.received().contains("connection: close\r\n"));
}
