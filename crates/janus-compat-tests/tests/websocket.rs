//! tokio-tungstenite over Janus's streams on both sides, in tasks of both kinds.

use futures_util::{SinkExt, StreamExt};
use janus::net::{TcpListener, TcpStream};
use janus_compat_tests::over_a_wire;
use tokio_tungstenite::tungstenite::Message;

async fn echo(stream: TcpStream) {
    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        if message.is_close() {
            break;
        }
        socket.send(message).await.unwrap();
    }
}

#[test]
fn messages_come_back() {
    for in_a_task_of_tokios in [false, true] {
        let serve = move |listener: TcpListener| async move {
            while let Ok((stream, _)) = listener.accept().await {
                if in_a_task_of_tokios {
                    tokio::spawn(echo(stream));
                } else {
                    janus::spawn(echo(stream));
                }
            }
        };
        over_a_wire(2, serve, |address| async move {
            let stream = TcpStream::connect(address).await.unwrap();
            let url = format!("ws://{address}/");
            let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
            for round in 0..50usize {
                let bytes: Vec<u8> = (0..round * 3_000).map(|i| (i + round) as u8).collect();
                let message = Message::binary(bytes);
                socket.send(message.clone()).await.unwrap();
                assert!(socket.next().await.unwrap().unwrap() == message);
            }
            socket.close(None).await.unwrap();
            while let Some(Ok(message)) = socket.next().await {
                assert!(message.is_close());
            }
        });
    }
}
