//! Responses that are not read, or slowly, and what has been upgraded.

use hyper::upgrade;

use super::*;

/// A response of which nothing is read: the connection is reset, and nothing is left of it.
async fn unread(kind: Kind) {
    let before = held().await;
    let mut peer = Peer::open().await;
    peer.say(&GET.replace(" / ", " /large ")).await;
    sleep(29 * SECOND).await;
    assert_eq!(held().await.0, before.0 + 1, "{kind:?}");
    sleep(6 * SECOND).await;
    assert_eq!(held().await, before, "{kind:?}");
    let mut read = 0;
    let reset = loop {
        match peer.stream.read(&mut [0; 4096]).await {
            Ok(0) => panic!("{kind:?}: an end in order after {read} bytes"),
            Ok(count) => read += count,
            Err(error) => break error,
        }
    };
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(read < LARGE);
}

#[test]
fn a_response_that_nobody_reads_ends_with_a_reset() {
    with_both(unread);
}

/// One that is read slowly is read to its end: a large one that the server still hands over, and one that hyper has taken whole.
async fn slowly(_: Kind) {
    for (path, length, reads) in [("/large", LARGE, 64), ("/medium", MEDIUM, 4)] {
        let mut peer = Peer::open().await;
        peer.say(&GET.replace("/ ", &format!("{path} "))).await;
        let mut read = 0;
        while read < length {
            sleep(25 * SECOND).await;
            for _ in 0..reads {
                let mut piece = [0; 4096];
                let count = peer.stream.read(&mut piece).await.expect("no reset");
                assert!(count > 0 || read >= length, "ended after {read} bytes");
                read += count;
            }
        }
        let (rest, _) = peer.rest().await;
        assert!(rest.len() < 1_000 && rest.bytes().all(|byte| byte == b'L'));
    }
}

#[test]
fn a_response_that_is_read_slowly_is_not_cut() {
    with_both(slowly);
}

/// Says yes, and echoes from then on.
pub(super) fn upgrade(
    mut request: Request<RequestBody>,
    body: UnsyncBoxBody<Bytes, BoxError>,
) -> Answer {
    let upgraded = upgrade::on(&mut request);
    janus::spawn(async move {
        let mut stream = upgraded.await.unwrap();
        let mut piece = [0; 64];
        loop {
            let mut room = hyper::rt::ReadBuf::new(&mut piece);
            let read = std::future::poll_fn(|cx| {
                hyper::rt::Read::poll_read(std::pin::Pin::new(&mut stream), cx, room.unfilled())
            });
            read.await.unwrap();
            let text = room.filled().to_vec();
            if text.is_empty() {
                return;
            }
            let flood = text == b"flood";
            let text = if flood { vec![b'L'; LARGE] } else { text };
            let mut written = 0;
            while written < text.len() {
                let rest = &text[written..];
                let write = std::future::poll_fn(|cx| {
                    hyper::rt::Write::poll_write(std::pin::Pin::new(&mut stream), cx, rest)
                });
                written += write.await.unwrap();
            }
        }
    });
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "echo".parse().unwrap());
    response
}

#[test]
fn an_upgraded_connection_has_no_bounds() {
    with(Kind::Hypers, &DEFAULT, |_| async {
        let mut peer = Peer::open().await;
        peer.say(
            "GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        )
        .await;
        assert!(peer.hear("\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
        for _ in 0..3 {
            sleep(HOUR).await;
            peer.say("still there").await;
            peer.hear("still there").await;
        }
        // Nor need it be read.
        peer.say("flood").await;
        sleep(HOUR).await;
        let mut read = 0;
        while read < LARGE {
            let count = peer.stream.read(&mut [0; 4096]).await;
            let count = count.expect("no reset");
            assert!(count > 0, "ended after {read} bytes");
            read += count;
        }
    });
}
