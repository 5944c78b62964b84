//! axum on Janus: by `axum::serve`, whose connections are tasks of tokio's, and by `janus_http::hyper`, whose are Janus's.
//! WebSockets, server-sent events, timeouts, graceful shutdown. The clients, reqwest and tokio-tungstenite over the kernel's
//! sockets, run in tasks of another Janus runtime.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Extension, WebSocketUpgrade, ws};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use futures_util::{SinkExt, Stream, StreamExt, stream};
use janus::BoxError;
use janus::net::TcpListener;
use janus_compat_tests::{PATIENCE, Running, portal, told};
use janus_http::axum::Listener;
use tokio_tungstenite::tungstenite::Message;
use tower_http::timeout::TimeoutLayer;

const EVENTS: u32 = 20;

fn router() -> Router {
    let bound =
        TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_millis(50));
    let slow = get(|| async {
        tokio::time::sleep(PATIENCE).await;
        "never"
    });
    Router::new()
        .route("/slow", slow.layer(bound))
        .route("/hello", get(|| async { "hello" }))
        .route("/echo", post(|body: Bytes| async move { body }))
        .route(
            "/peer",
            get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }),
        )
        .route("/spawned", get(spawned))
        .route(
            "/ws",
            get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(messages) }),
        )
        .route(
            "/events",
            get(|| async { Sse::new(events()).keep_alive(KeepAlive::default()) }),
        )
}

/// A handler is on its core, whoever's task it runs in.
async fn spawned() -> String {
    let core = tokio::spawn(async { janus::core_id() }).await.unwrap();
    assert_eq!(core, janus::core_id());
    format!("{core:?}")
}

async fn messages(mut socket: ws::WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        // A close is answered by the library, when it is asked for what comes after.
        if !matches!(message, ws::Message::Close(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}

fn events() -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(0, |number| async move {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let event = Event::default().data(format!("event {number}"));
        (number < EVENTS).then_some((Ok(event), number + 1))
    })
}

#[derive(Clone, Copy, Debug)]
enum Way {
    AxumServe,
    TasksOfOurs,
}

async fn serve(listener: TcpListener, way: Way) -> Result<(), BoxError> {
    match way {
        Way::AxumServe => {
            let listener = Listener::new(listener).tap_io(|stream| _ = stream.set_nodelay(true));
            let app = router().into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, app).await?;
        }
        Way::TasksOfOurs => {
            let app = router();
            let make = move |peer: SocketAddr| app.clone().layer(Extension(ConnectInfo(peer)));
            janus_http::hyper::serve(listener, make).await?;
        }
    }
    Ok(())
}

/// Serves on `cores`, and runs `client` in a task of another runtime.
fn with_a_server<F>(way: Way, cores: usize, client: impl Fn(String) -> F + Send + Sync + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let (tell, address) = told();
    let server = Running::start(portal(cores), move || {
        let tell = tell.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            janus::once(|| tell.send(listener.reachable_at()).unwrap());
            serve(listener, way).await
        }
    });
    let address = address.next().to_string();
    Running::start(portal(1), move || client(address.clone())).join();
    server.stop();
}

const WAYS: [(Way, usize); 4] = [
    (Way::AxumServe, 1),
    (Way::AxumServe, 3),
    (Way::TasksOfOurs, 1),
    (Way::TasksOfOurs, 3),
];

#[test]
fn requests_by_reqwest() {
    for (way, cores) in WAYS {
        with_a_server(way, cores, async |address| {
            let client = reqwest::Client::new();
            let url = |path: &str| format!("http://{address}{path}");
            let text = async |path: &str| client.get(url(path)).send().await?.text().await;
            assert_eq!(text("/hello").await.unwrap(), "hello");
            assert!(text("/peer").await.unwrap().starts_with("127.0.0.1:"));
            assert!(text("/spawned").await.unwrap().starts_with("Some("));
            let missing = client.get(url("/missing")).send().await.unwrap();
            assert_eq!(missing.status(), 404);
            // Several at a time, so that there are several connections.
            let posts = (0..20usize).map(|round| {
                let body: Vec<u8> = (0..round * 20_000).map(|i| (i + round) as u8).collect();
                let sent = client.post(url("/echo")).body(body.clone()).send();
                tokio::spawn(async move {
                    let got = sent.await.unwrap().bytes().await.unwrap();
                    assert!(got == body);
                })
            });
            for post in posts.collect::<Vec<_>>() {
                post.await.unwrap();
            }
        });
    }
}

#[test]
fn websockets() {
    for (way, cores) in WAYS {
        with_a_server(way, cores, async |address| {
            let url = format!("ws://{address}/ws");
            let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
            for round in 0..20usize {
                let text = Message::text("word ".repeat(round));
                socket.send(text.clone()).await.unwrap();
                assert_eq!(socket.next().await.unwrap().unwrap(), text);
                let bytes: Vec<u8> = (0..round * 5_000).map(|i| i as u8).collect();
                socket.send(Message::binary(bytes.clone())).await.unwrap();
                assert!(socket.next().await.unwrap().unwrap() == Message::binary(bytes));
            }
            socket.close(None).await.unwrap();
            assert!(matches!(socket.next().await, Some(Ok(Message::Close(_)))));
            assert!(socket.next().await.is_none());
        });
    }
}

#[test]
fn server_sent_events() {
    for (way, cores) in WAYS {
        with_a_server(way, cores, async |address| {
            let url = format!("http://{address}/events");
            let response = reqwest::get(url).await.unwrap();
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            let mut pieces = response.bytes_stream();
            let (mut got, mut arrivals) = (Vec::new(), 0);
            while let Some(piece) = pieces.next().await {
                got.extend_from_slice(&piece.unwrap());
                arrivals += 1;
            }
            let expected: String = (0..EVENTS)
                .map(|n| format!("data: event {n}\n\n"))
                .collect();
            assert_eq!(String::from_utf8(got).unwrap(), expected);
            assert!(arrivals > 1, "one by one, not all at the end");
        });
    }
}

#[test]
fn a_handler_that_takes_too_long_is_given_up() {
    for (way, cores) in WAYS {
        with_a_server(way, cores, async |address| {
            let response = reqwest::get(format!("http://{address}/slow"))
                .await
                .unwrap();
            assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT.as_u16());
        });
    }
}

/// A request under way is answered, new connections are not taken, and `axum::serve` comes to its end.
#[test]
fn graceful_shutdown() {
    let (tell, address) = told();
    let begun = Arc::new(tokio::sync::Notify::new());
    let (stop, go_on) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    let shared = (begun.clone(), stop.clone(), go_on.clone());
    let server = Running::start(portal(1), move || {
        let (tell, (begun, stop, go_on)) = (tell.clone(), shared.clone());
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            tell.send(listener.reachable_at())?;
            let waits = get(move || async move {
                begun.notify_one();
                go_on.notified().await;
                "after all"
            });
            let app = Router::new().route("/", waits);
            axum::serve(Listener::new(listener), app)
                .with_graceful_shutdown(async move { stop.notified().await })
                .await?;
            Ok::<(), BoxError>(())
        }
    });
    let url = format!("http://{}/", address.next());
    let client = Running::start(portal(1), move || {
        let (begun, stop, go_on, url) = (begun.clone(), stop.clone(), go_on.clone(), url.clone());
        async move {
            let asked = tokio::spawn(reqwest::get(url));
            begun.notified().await;
            stop.notify_one();
            tokio::time::sleep(Duration::from_millis(20)).await;
            go_on.notify_one();
            let text = asked.await.unwrap().unwrap().text().await.unwrap();
            assert_eq!(text, "after all");
        }
    });
    client.join();
    server.join();
}
