//! An axum server on Janus's TCP: a page, a WebSocket that echoes, a stream of events, a bound on the time of a request.
//! `cargo run --release --features axum --example axum`, then the printed line.
//!
//! `axum::serve` runs connections by `tokio::spawn`, on the core that accepted them. `--tasks-of-ours` as an argument serves the
//! same router in Janus's own tasks.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::middleware::map_response;
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures_util::{Stream, stream};
use janus::net::TcpListener;
use tower_http::timeout::TimeoutLayer;

const PATIENCE: Duration = Duration::from_secs(5);

#[janus::main]
async fn main() -> janus::Result<()> {
    let app = Router::new()
        .route("/", get(|| async { "hello from axum on Janus\n" }))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::REQUEST_TIMEOUT,
            PATIENCE,
        ))
        .route(
            "/ws",
            get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(echo) }),
        )
        .route(
            "/ticks",
            get(|| async { Sse::new(ticks()).keep_alive(KeepAlive::default()) }),
        );
    let (flags, place): (Vec<String>, Vec<String>) = std::env::args()
        .skip(1)
        .partition(|argument| argument.starts_with("--"));
    let at = place.first().map_or("0.0.0.0:8080", String::as_str);
    let listener = TcpListener::bind(at).await?;
    let at = listener.reachable_at();
    janus::once(|| println!("curl http://{at}/    curl -N http://{at}/ticks    ws://{at}/ws"));
    if flags.iter().any(|flag| flag == "--tasks-of-ours") {
        janus_http::hyper::serve(listener, move |_peer| app.clone()).await?;
    } else {
        let listener = janus_http::axum::Listener::new(listener);
        axum::serve(listener, app.layer(map_response(last_answer)))
            .with_graceful_shutdown(janus_http::axum::ending())
            .await?;
    }
    Ok(())
}

/// Says that no further request is answered over this connection, when the runtime shuts down. `janus_http::hyper::serve` does so by
/// itself.
async fn last_answer(mut response: Response) -> Response {
    if janus::is_shutting_down() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        // A close is answered by the library, when it is asked for what comes after.
        if !matches!(message, Message::Close(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}

/// One event a second, by tokio's clock.
fn ticks() -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(0, |number| async move {
        let event = Event::default().data(format!("tick {number}"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok(event), number + 1))
    })
}
