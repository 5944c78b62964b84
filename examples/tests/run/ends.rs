//! The end of each server among the examples, as whoever runs it sees it: SIGTERM in the middle of load, and twice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::load;
use crate::process::{PATIENCE, Server};

/// A connection to echo over which something went once.
fn says_once(server: &Server) -> TcpStream {
    let mut stream = server.dial();
    stream.write_all(b"once").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    stream
}

/// Every request that was sent is answered, on connections there are and on those that the kernel has taken.
#[test]
fn hello_answers_all_requests_when_it_is_told_to_end() {
    let server = Server::start("hello", |_| {});
    assert_eq!(server.said, format!("curl http://{}/", server.at));
    load::by_clients(server.at, || server.terminate());
    assert_eq!(server.end().code(), Some(0));
}

/// At a time, as each takes as long as wrk does.
#[test]
fn servers_end_under_load() {
    let mut ending = vec![
        thread::spawn(|| ends_under_load("hello", &[])),
        thread::spawn(graceful_ends_under_load),
    ];
    if cfg!(feature = "axum") {
        ending.push(thread::spawn(|| ends_under_load("axum", &[])));
        ending.push(thread::spawn(|| {
            ends_under_load("axum", &["--tasks-of-ours"])
        }));
    }
    for one in ending {
        one.join().unwrap();
    }
}

fn ends_under_load(example: &str, arguments: &[&str]) {
    let server = Server::start(example, |command| {
        command.args(arguments);
    });
    load::until_the_end(server.at, || server.terminate());
    assert_eq!(server.end().code(), Some(0), "{example}");
}

/// As many answers arrive as it says that it has sent.
fn graceful_ends_under_load() {
    let server = Server::start("graceful", |command| {
        command.args(["0.2", "60"]);
    });
    let answers = load::until_the_end(server.at, || server.terminate());
    let (status, counts) = server.end_and_say();
    assert_eq!(status.code(), Some(0));
    assert!(
        counts.starts_with(&format!("/ {answers}\n")),
        "{answers} came; it sent {counts}"
    );
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

/// There is no client to wait for.
#[test]
fn a_server_without_clients_ends_at_once() {
    let server = Server::start("echo", |command| {
        command.env("JANUS_SHUTDOWN_MS", "600000");
    });
    server.ends_well();
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
