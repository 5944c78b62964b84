//! The WebSocket example: what goes to all and what comes back, what it does not take, and its end.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, WebSocket, client};

use crate::process::{PATIENCE, Server};

/// Connects, and answers the ping that each client gets first.
fn enter(server: &Server) -> WebSocket<TcpStream> {
    let url = format!("ws://{}/", server.at);
    let (mut socket, _) = client(url, server.dial()).expect("a handshake");
    assert!(socket.read().unwrap().is_ping());
    socket
}

fn text(socket: &mut WebSocket<TcpStream>) -> String {
    match socket.read().unwrap() {
        Message::Text(text) => text.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_goes_to_all_and_bytes_come_back() {
    let server = Server::start("websocket", |_| {});
    // Enough that both cores have some.
    let mut sockets: Vec<_> = (0..12).map(|_| enter(&server)).collect();
    for number in 0..3 {
        let said = format!("number {number}");
        sockets[number].send(Message::text(said.clone())).unwrap();
        for socket in &mut sockets {
            assert_eq!(text(socket), said);
        }
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let bytes = Message::binary(vec![number as u8; number * 5_000]);
        socket.send(bytes.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), bytes);
    }
    // One that is too long ends its sender; another says goodbye.
    let mut greedy = sockets.remove(0);
    // The server may have ended before all is written.
    let _ = greedy.send(Message::binary(vec![0; 64 * 1024 + 1]));
    assert!(greedy.read().is_err());
    let mut polite = sockets.remove(0);
    polite.close(None).unwrap();
    assert!(polite.read().unwrap().is_close());
    assert!(matches!(polite.read(), Err(Error::ConnectionClosed)));
    sockets[0].send(Message::text("still here")).unwrap();
    for socket in &mut sockets {
        assert_eq!(text(socket), "still here");
    }
    server.terminate();
    for socket in &mut sockets {
        let Message::Close(Some(frame)) = socket.read().unwrap() else {
            panic!("a close with its reason");
        };
        assert_eq!(frame.code, CloseCode::Away);
        assert_eq!(frame.reason, "the server ends");
        assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
    }
    assert_eq!(server.end().code(), Some(0));
}

/// It misses some, knows how many, and no client waits for it.
#[test]
fn a_client_that_reads_late_is_told_what_it_missed() {
    let server = Server::start("websocket", |_| {});
    let mut late = enter(&server);
    let mut other = enter(&server);
    let begin = Instant::now();
    // More than the kernel keeps for a connection, and Janus, and the room.
    let many = 800;
    let long = "x".repeat(60_000);
    for number in 0..many {
        let said = format!("{number} {long}");
        other.send(Message::text(said.clone())).unwrap();
        assert_eq!(text(&mut other), said);
    }
    assert!(begin.elapsed() < PATIENCE, "it was waited for");
    let mut expected = 0;
    let mut missed = 0;
    while expected < many {
        let said = text(&mut late);
        if let Some(rest) = said.strip_prefix("* ") {
            let count: usize = rest.split(' ').next().unwrap().parse().unwrap();
            (missed, expected) = (missed + count, expected + count);
        } else {
            assert_eq!(said, format!("{expected} {long}"));
            expected += 1;
        }
    }
    assert_eq!(expected, many);
    assert!(missed > 0, "its backlog had no bound");
    server.terminate();
    for mut socket in [late, other] {
        assert!(socket.read().unwrap().is_close());
        assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
    }
    assert_eq!(server.end().code(), Some(0));
    assert!(begin.elapsed() < PATIENCE + Duration::from_secs(60));
}

/// Each client asks on and on. To what it asked last it gets the answer or, in its place, the close with its reason: then it was
/// not taken. No connection breaks off.
#[test]
fn it_ends_under_load() {
    let server = Server::start("websocket", |_| {});
    let clients: Vec<_> = (0..16u8)
        .map(|number| {
            let mut socket = enter(&server);
            thread::spawn(move || {
                for asked in 0u32.. {
                    let message = Message::binary([&[number][..], &asked.to_le_bytes()].concat());
                    socket.send(message.clone()).expect("it is still there");
                    match socket.read().expect("an answer or a close") {
                        Message::Close(Some(frame)) => {
                            assert_eq!(frame.code, CloseCode::Away);
                            assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
                            return asked;
                        }
                        answer => assert_eq!(answer, message),
                    }
                }
                unreachable!("the server ends");
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    server.terminate();
    for client in clients {
        assert!(client.join().unwrap() > 0);
    }
    assert_eq!(server.end().code(), Some(0));
}
