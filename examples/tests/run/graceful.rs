//! The example that ends in an order of its own: not ready, then closed, then written out, and an exit code.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{PATIENCE, Server, dial};

/// With so many seconds until its doors close, and so many from then on.
fn start(grace: &str, deadline: &str) -> Server {
    Server::start("graceful", |command| {
        command.args([grace, deadline]);
    })
}

fn ask(server: &Server, path: &str) -> TcpStream {
    let mut stream = dial(server.at);
    let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn rest(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Until the server says so to new clients.
fn until_it_drains(server: &Server) {
    let begin = Instant::now();
    while !rest(ask(server, "/ready")).ends_with("draining\n") {
        assert!(begin.elapsed() < PATIENCE, "it stays ready");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_under_way_is_whole_and_the_counts_are_written() {
    let server = start("0.5", "60");
    let ready = rest(ask(&server, "/ready"));
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    let slow = ask(&server, "/slow?2");
    let mut events = BufReader::new(ask(&server, "/events"));
    let mut line = String::new();
    while !line.contains("data: tick") {
        line.clear();
        assert_ne!(events.read_line(&mut line).unwrap(), 0, "events come");
    }
    server.terminate();
    until_it_drains(&server);
    // New clients were served while the balancer took notice, and are refused after that.
    let begin = Instant::now();
    let refused = loop {
        assert!(begin.elapsed() < PATIENCE, "the doors stay open");
        match TcpStream::connect(server.at) {
            Ok(_) => thread::sleep(Duration::from_millis(5)),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let slow = rest(slow);
    assert!(slow.ends_with("\r\n\r\nslow, and whole\n"), "{slow}");
    let mut last = String::new();
    events.read_to_string(&mut last).unwrap();
    assert!(last.ends_with("data: the last\n\n\r\n0\r\n\r\n"), "{last}");
    let (status, counts) = server.end_and_say();
    assert_eq!(status.code(), Some(0), "{status}");
    for line in ["/slow 1\n", "/events 1\n"] {
        assert!(counts.contains(line), "{line} is not in {counts}");
    }
}

#[test]
fn what_takes_longer_than_the_deadline_shows_in_the_exit_code() {
    let server = start("0", "0.2");
    // Over a connection that is known to be inside.
    let mut slow = dial(server.at);
    slow.write_all(b"GET /ready HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    let mut answer = [0; 512];
    assert_ne!(slow.read(&mut answer).unwrap(), 0);
    slow.write_all(b"GET /slow?600 HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    // Time for it to arrive: where it has not, it is not cut off but refused, and the code is 0.
    thread::sleep(Duration::from_millis(300));
    server.terminate();
    assert_eq!(rest(slow), "");
    assert_eq!(server.end().code(), Some(2));
}

#[test]
fn a_second_signal_does_not_wait_for_the_balancer() {
    let server = start("600", "600");
    server.terminate();
    until_it_drains(&server);
    server.terminate();
    assert_eq!(server.end().code(), Some(128 + 15));
}
