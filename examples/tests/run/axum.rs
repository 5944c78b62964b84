//! The axum example: its page, its stream of events and its end, in tasks of both kinds.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::process::Server;

#[test]
fn tasks_of_both_kinds_serve_it_and_end() {
    for change in [&[][..], &["--tasks-of-ours"]] {
        let server = Server::start("axum", |command| {
            command.args(change).env("JANUS_SHUTDOWN_MS", "600000");
        });
        let mut idle = server.dial();
        let page = read_to(&mut idle, "/", "\r\n\r\nhello from axum on Janus\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        read_to(&mut server.dial(), "/ticks", "data: tick 1\n");

        // A connection over which nothing goes ends before the time that the runtime would give it.
        let begin = Instant::now();
        server.terminate();
        assert_eq!(idle.read(&mut [0]).unwrap(), 0, "a FIN and no reset");
        assert!(begin.elapsed() < Duration::from_secs(60));
        drop(idle);
        let status = server.end();
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

/// Asks for a page and reads until the answer holds this.
fn read_to(stream: &mut TcpStream, path: &str, text: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains(text) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("all of it");
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap()
}
