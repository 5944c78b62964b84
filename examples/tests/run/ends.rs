//! The end of each server among the examples, as whoever runs it sees it: SIGTERM in the middle of load, and twice.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{PATIENCE, Server};

const CLIENTS: usize = 16;

/// A connection to echo over which something went once.
fn says_once(server: &Server) -> TcpStream {
    let mut stream = server.dial();
    stream.write_all(b"once").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    stream
}

/// Asks over one connection until the server says that it closes, which it does at once if it is to. An error when an answer
/// did not come that was due.
fn ask_until_closed(mut stream: TcpStream, keep: bool, answers: &AtomicU64) -> Result<(), String> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = if keep { "" } else { "connection: close\r\n" };
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{end}\r\n");
    loop {
        stream
            .write_all(request.as_bytes())
            .map_err(|error| format!("a request is not taken: {error}"))?;
        let mut answer = Vec::new();
        let mut piece = [0; 1024];
        while !answer.ends_with(b"hello from Janus\n") {
            match stream.read(&mut piece) {
                Ok(0) => return Err("the end before the answer".into()),
                Ok(read) => answer.extend_from_slice(&piece[..read]),
                Err(error) => return Err(format!("no answer: {error}")),
            }
        }
        answers.fetch_add(1, Ordering::Relaxed);
        if String::from_utf8_lossy(&answer).contains("connection: close") {
            return Ok(());
        }
    }
}

/// Every request that was sent is answered, on connections there are and on those that the kernel has taken.
#[test]
fn hello_answers_all_requests_when_it_is_told_to_end() {
    let server = Server::start("hello", |_| {});
    let at = server.at;
    let answers = Arc::new(AtomicU64::new(0));
    let lost = Arc::new(Mutex::new(Vec::new()));
    let client = |keep| {
        let (answers, lost) = (answers.clone(), lost.clone());
        thread::spawn(move || {
            loop {
                match TcpStream::connect(at) {
                    Ok(stream) => {
                        if let Err(why) = ask_until_closed(stream, keep, &answers) {
                            lost.lock().unwrap().push(why);
                        }
                    }
                    Err(error) => return assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
                }
            }
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(|index| client(index % 2 == 0)).collect();
    let begin = Instant::now();
    while answers.load(Ordering::Relaxed) < 1_000 {
        assert!(begin.elapsed() < PATIENCE, "it serves");
        thread::sleep(Duration::from_millis(1));
    }
    server.terminate();
    for client in clients {
        client.join().unwrap();
    }
    let status = server.end();
    assert_eq!(status.code(), Some(0), "{status}");
    assert_eq!(*lost.lock().unwrap(), Vec::<String>::new());
}

/// A connection that says nothing is given its time, and a second signal does not wait for it.
#[test]
fn a_second_signal_ends_echo_at_once() {
    let server = Server::start("echo", |command| {
        command.env("JANUS_SHUTDOWN_MS", "600000");
    });
    let mut idle = says_once(&server);
    server.terminate();
    let begin = Instant::now();
    while TcpStream::connect(server.at).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "new connections are refused");
        thread::sleep(Duration::from_millis(10));
    }
    idle.write_all(b"more").unwrap();
    idle.read_exact(&mut [0; 4]).expect("it goes on");
    server.terminate();
    let status = server.end();
    assert_eq!(status.code(), Some(128 + 15), "{status}");
}

/// Without a second one the time is over at some point, and the connection ends in order.
#[test]
fn echo_ends_in_its_time() {
    let server = Server::start("echo", |command| {
        command.env("JANUS_SHUTDOWN_MS", "300");
    });
    let mut idle = says_once(&server);
    server.terminate();
    assert_eq!(idle.read(&mut [0; 4]).unwrap(), 0, "a FIN and no reset");
    drop(idle);
    let status = server.end();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
}

/// Switched off, SIGTERM does what it does to any process.
#[test]
fn signals_can_be_left_alone() {
    let server = Server::start("echo", |command| {
        command.env("JANUS_SIGNALS", "off");
    });
    server.terminate();
    assert_eq!(server.end().signal(), Some(15));
}

#[test]
fn a_supervisor_is_told_when_hello_serves_and_when_it_ends() {
    let name = format!("janus-ends-{}", std::process::id());
    let place = std::env::temp_dir().join(name);
    let heard = UnixDatagram::bind(&place).unwrap();
    heard.set_read_timeout(Some(PATIENCE)).unwrap();
    let server = Server::start("hello", |command| {
        command.env("NOTIFY_SOCKET", &place);
    });
    let mut told = [0; 64];
    let mut next = || {
        let len = heard.recv(&mut told).expect("something is told");
        String::from_utf8_lossy(&told[..len]).into_owned()
    };
    assert_eq!(next(), "READY=1");
    server.terminate();
    assert_eq!(next(), "STOPPING=1");
    assert_eq!(server.end().code(), Some(0));
    std::fs::remove_file(place).unwrap();
}
