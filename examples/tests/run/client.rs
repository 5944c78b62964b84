//! The client among the examples, asking servers of the kernel's.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{PATIENCE, Process};

/// As many questions as the example has under way.
const AT_ONCE: usize = 8;

/// A listener of the kernel's, and a client that asks it.
fn asked(kind: &str, questions: &[&str]) -> (TcpListener, Process) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let client = Process::start("client", |command| {
        command.args([kind, &at]).args(questions);
    });
    (listener, client)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads the head of a request; its path.
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a request");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let at = stream.local_addr().unwrap();
    assert!(head.contains(&format!("\r\nhost: {at}\r\n")), "{head}");
    head.split(' ').nth(1).expect("a path").to_owned()
}

/// None of the questions is answered before all have come, and then the last comes first.
#[test]
fn it_asks_all_at_once() {
    let (listener, mut client) = asked("http", &["/a", "/b", "/c"]);
    let mut requests: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = accept(&listener);
            (head(&mut stream), stream)
        })
        .collect();
    requests.sort_by(|a, b| b.0.cmp(&a.0));
    for (path, stream) in &mut requests {
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nthis {path}");
        stream.write_all(answer.as_bytes()).unwrap();
        assert_eq!(client.line(), format!("{path}: 200 this {path}"));
    }
    let (status, rest) = client.end();
    assert_eq!((status.code(), rest.as_str()), (Some(0), ""));
}

#[test]
fn it_has_so_many_questions_under_way() {
    let questions: Vec<String> = (0..20).map(|number| format!("number {number}")).collect();
    let questions: Vec<&str> = questions.iter().map(String::as_str).collect();
    let (listener, client) = asked("tcp", &questions);
    let mut streams: Vec<_> = (0..AT_ONCE).map(|_| accept(&listener)).collect();
    listener.set_nonblocking(true).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert!(listener.accept().is_err(), "no ninth before an answer");
    listener.set_nonblocking(false).unwrap();
    for number in 0..questions.len() {
        let mut stream = streams.remove(0);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        drop(stream);
        if number + AT_ONCE < questions.len() {
            streams.push(accept(&listener));
        }
    }
    let (status, said) = client.end();
    assert_eq!(status.code(), Some(0), "{said}");
    let mut said: Vec<_> = said.lines().map(str::to_owned).collect();
    said.sort();
    let mut expected: Vec<_> = questions
        .iter()
        .map(|text| format!("{text}: {}", text.to_uppercase()))
        .collect();
    expected.sort();
    assert_eq!(said, expected);
}

/// A server that says nothing, one that says too much, and one that is not there.
#[test]
fn an_answer_that_does_not_come_is_not_waited_for() {
    let begin = Instant::now();
    let (silent, waits) = asked("tcp", &["one"]);
    let _silent = accept(&silent);

    let (talker, listens) = asked("tcp", &["two"]);
    let mut stream = accept(&talker);
    let piece = [7; 64 * 1024];
    while stream.write_all(&piece).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "it takes what has no end");
    }

    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = nowhere.local_addr().unwrap().to_string();
    drop(nowhere);
    let refused = Process::start("client", |command| {
        command.args(["http", &at, "/"]);
    });

    for (client, why) in [
        (listens, "two: failed: an answer of more than 1048576 bytes"),
        (refused, "/: failed: connection refused"),
        (waits, "one: failed: "),
    ] {
        let (status, said) = client.end();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.starts_with(why), "{said}");
    }
    assert!(begin.elapsed() >= Duration::from_secs(3));
}

/// A question that was asked is answered, and the program ends as it would have.
#[test]
fn a_signal_does_not_break_off_an_answer() {
    let (listener, client) = asked("http", &["/"]);
    let mut stream = accept(&listener);
    head(&mut stream);
    client.terminate();
    // Longer than a runtime waits before it turns to what is left.
    thread::sleep(Duration::from_millis(300));
    let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    stream.write_all(answer).unwrap();
    let (status, said) = client.end();
    assert_eq!((status.code(), said.as_str()), (Some(0), "/: 200 hello\n"));
}
