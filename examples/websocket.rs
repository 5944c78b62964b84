//! A room of WebSockets: text goes to all clients, binary messages come back to their sender.
//! `cargo run --release --features websocket --example websocket`, then the printed line, or in a browser's console:
//! `s = new WebSocket("ws://127.0.0.1:8090"); s.onmessage = m => console.log(m.data); s.onopen = () => s.send("hello")`.
//! After `--` it takes another address than 0.0.0.0:8090.
//!
//! tokio's channels need no runtime of tokio's, only wakers, and those of Janus's tasks work from any thread: so a channel leads from
//! every core to every core. (`chat.rs` does without.)

use std::sync::LazyLock;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use janus::BoxError;
use janus::net::{TcpListener, TcpStream};
use janus::time::{interval, timeout};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_tungstenite::accept_async_with_config;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// Bytes of a message; a client that sends more is disconnected.
const MESSAGE_MAX: usize = 64 * 1024;
/// Messages kept for slow readers, together for all. A client that falls further behind misses the oldest and is told how many: no other
/// client waits for it, and its backlog needs no memory of its own.
const KEPT: usize = 64;
/// Time for a handshake, and for a message to get into the send buffer of a client that does not read.
const PATIENCE: Duration = Duration::from_secs(10);
/// A client is asked so often whether it is there. One that has said nothing since it was asked last is gone.
const PING: Duration = Duration::from_secs(20);

static ROOM: LazyLock<broadcast::Sender<Utf8Bytes>> = LazyLock::new(|| broadcast::channel(KEPT).0);

#[janus::main]
async fn main() -> janus::Result<()> {
    let at = std::env::args().nth(1);
    let listener = TcpListener::bind(at.as_deref().unwrap_or("0.0.0.0:8090")).await?;
    janus::once(|| println!("websocat ws://{}/", listener.reachable_at()));
    loop {
        let (stream, _) = listener.accept().await?;
        janus::spawn(client(stream));
    }
}

/// Serves one client until it ends, or the runtime is told to. An error ends this client and no other.
async fn client(stream: TcpStream) -> Result<(), BoxError> {
    let bounds = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_MAX))
        .max_frame_size(Some(MESSAGE_MAX));
    let accepted = accept_async_with_config(stream, Some(bounds));
    let mut socket = timeout(PATIENCE, accepted).await??;
    let mut room = ROOM.subscribe();
    let mut pings = interval(PING);
    let mut heard = true;
    loop {
        // Each of these may be dropped and asked again without losing anything.
        let message = tokio::select! {
            received = socket.next() => {
                heard = true;
                match received.transpose()? {
                    // The channel refuses only when it has no receiver, and this client has one.
                    Some(Message::Text(text)) => { let _ = ROOM.send(text); continue }
                    Some(message @ Message::Binary(_)) => message,
                    // The library answers pings and a close by itself.
                    Some(_) => continue,
                    None => return Ok(()),
                }
            }
            text = room.recv() => match text {
                Ok(text) => Message::Text(text),
                Err(RecvError::Lagged(missed)) => Message::text(format!("* {missed} messages missed")),
                Err(RecvError::Closed) => return Ok(()),
            },
            _ = pings.tick() => {
                if !std::mem::take(&mut heard) {
                    return Err("not there any more".into());
                }
                Message::Ping(Default::default())
            }
            () = janus::shutting_down() => break,
        };
        timeout(PATIENCE, socket.send(message)).await??;
    }
    let away = CloseFrame {
        code: CloseCode::Away,
        reason: Utf8Bytes::from_static("the server ends"),
    };
    timeout(PATIENCE, socket.close(Some(away))).await??;
    // Until the client has said that it closes, too: then the TCP connection can end without a reset.
    while timeout(PATIENCE, socket.next())
        .await?
        .is_some_and(|message| message.is_ok())
    {}
    Ok(())
}
