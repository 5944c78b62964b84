//! The bounds of HTTP/2, which only hyper speaks.

use hyper::client::conn::http2::{SendRequest, handshake};
use janus::JoinHandle;
use janus::compat::hyper::Executor;

use super::*;

type Body = UnsyncBoxBody<Bytes, BoxError>;

async fn open() -> (SendRequest<Body>, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(SERVER).await.unwrap();
    let (requests, connection) = handshake(Executor, stream).await.unwrap();
    (requests, janus::spawn(connection))
}

fn empty() -> Body {
    Full::default().map_err(BoxError::from).boxed_unsync()
}

fn body(count: usize, piece: &'static [u8], every: Duration) -> Body {
    Pieces::new(count, piece, every, every).boxed_unsync()
}

async fn ask(requests: &mut SendRequest<Body>, path: &str, body: Body) -> (u16, String) {
    let request = Request::post(format!("http://192.0.2.1{path}"))
        .body(body)
        .unwrap();
    let response = requests.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    // Of a request that is refused before its end the rest is not wanted.
    let text = response
        .into_body()
        .collect()
        .await
        .map(|body| body.to_bytes());
    (
        status,
        String::from_utf8(text.unwrap_or_default().into()).unwrap(),
    )
}

/// A connection over which nothing is asked ends in order; one on which something is in hand stays.
async fn idle(_: Kind) {
    let before = held().await;
    let (mut requests, connection) = open().await;
    assert_eq!(ask(&mut requests, "/", empty()).await.0, 200);
    sleep(58 * SECOND).await;
    assert_eq!(ask(&mut requests, "/think", empty()).await.1, "ok");
    assert_eq!(
        ask(&mut requests, "/ticks", empty()).await.1,
        "tick".repeat(3)
    );
    let since = now();
    connection.await.unwrap().unwrap();
    assert_bounded(now().saturating_since(since), 60 * SECOND);
    drop(requests);

    // Its preface is not a request.
    let (requests, connection) = open().await;
    let since = now();
    connection.await.unwrap().unwrap();
    assert_bounded(now().saturating_since(since), 20 * SECOND);
    drop(requests);
    sleep(HOUR).await;
    assert_eq!(held().await, before);
}

#[test]
fn an_idle_connection_ends_with_goaway() {
    with(Kind::Hypers, &DEFAULT, idle);
}

/// A peer that says its preface and nothing more, not even that it is there.
async fn mute(_: Kind) {
    let before = held().await;
    let mut peer = Peer::open().await;
    peer.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0")
        .await;
    let mut piece = [0; 4096];
    while peer.stream.read(&mut piece).await.unwrap() > 0 {}
    assert!(now().saturating_since(peer.since) <= 120 * SECOND);
    drop(peer);
    sleep(HOUR).await;
    assert_eq!(held().await, before);
}

#[test]
fn a_peer_that_answers_no_ping_is_gone() {
    with(Kind::Hypers, &DEFAULT, mute);
}

/// One stream's body that drips is refused; the others go on.
async fn bodies(_: Kind) {
    let (mut requests, _connection) = open().await;
    let mut others = requests.clone();
    let fast = janus::spawn(async move {
        ask(&mut others, "/count", body(60, &[b'b'; 3_000], 10 * SECOND)).await
    });
    let since = now();
    assert_eq!(
        ask(&mut requests, "/count", body(1_000, b"b", SECOND))
            .await
            .0,
        408
    );
    let took = now().saturating_since(since);
    assert!(took >= 29 * SECOND && took <= 34 * SECOND, "{took:?}");
    let since = now();
    assert_eq!(
        ask(&mut requests, "/count", body(2, b"b", HOUR)).await.0,
        408
    );
    assert_bounded(now().saturating_since(since), 20 * SECOND);
    assert_eq!(fast.await.unwrap(), (200, "180000".into()));
}

#[test]
fn a_body_that_drips_ends_its_stream_only() {
    with(Kind::Hypers, &DEFAULT, bodies);
}

/// The response to `path`, of whose body nothing has been read: at most the window of its stream has come.
async fn unread(requests: &mut SendRequest<Body>, path: &str) -> Response<hyper::body::Incoming> {
    let request = Request::post(format!("http://192.0.2.1{path}"));
    let request = request.body(empty()).unwrap();
    requests.send_request(request).await.unwrap()
}

/// A stream whose window stays shut is reset, with one chunk as with several, with trailers as without; the others go on.
async fn shut_window(_: Kind) {
    let (mut requests, connection) = open().await;
    for path in ["/large", "/many", "/trailers"] {
        let before = held().await;
        let response = unread(&mut requests, path).await;
        sleep(25 * SECOND).await;
        assert!(held().await.1 > before.1, "{path}: it has its time");
        assert_eq!(ask(&mut requests, "/", empty()).await.0, 200);
        sleep(15 * SECOND).await;
        assert_eq!(held().await, before, "{path}: its task is gone");
        assert_eq!(ask(&mut requests, "/", empty()).await.0, 200);
        let read = response.into_body().collect().await;
        assert!(read.is_err(), "{path}: it does not look complete");
    }
    drop(requests);
    connection.await.unwrap().unwrap();
}

#[test]
fn a_stream_of_which_nothing_is_taken_is_reset() {
    with(Kind::Hypers, &DEFAULT, shut_window);
}

/// A stream that is read slowly is not cut, whatever its chunks.
async fn slow_reader(_: Kind) {
    let (mut requests, _connection) = open().await;
    for path in ["/large", "/many", "/trailers"] {
        let mut body = unread(&mut requests, path).await.into_body();
        let (since, mut count, mut due) = (now(), 0, 0);
        while let Some(frame) = body.frame().await {
            count += frame.unwrap().data_ref().map_or(0, Bytes::len);
            if count >= due {
                sleep(15 * SECOND).await;
                due += MEDIUM;
            }
        }
        assert_eq!(count, LARGE, "{path}");
        assert!(now().saturating_since(since) >= 120 * SECOND);
    }
}

#[test]
fn a_stream_that_is_read_slowly_is_not_cut() {
    with(Kind::Hypers, &DEFAULT, slow_reader);
}
