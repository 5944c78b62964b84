//! Peers that live in the test itself, on the kernel's sockets: an HTTP server for clients, and a look whether a server answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::support::pattern;
use crate::world::{PEER, PROGRAM};

/// [`PEER`] as the kernel writes it in its tables.
pub const LISTENER: &str = "020200C0";
/// Port of [`http`].
pub const HTTP: u16 = 8000;
/// Length of what is called `big`.
pub const BIG: usize = 2_000_000;

/// Content that is called `big`.
pub fn big() -> Vec<u8> {
    pattern(BIG, 7)
}

/// A sum that tells two contents apart.
pub fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Serves `/small` and `/big`, and says of what is sent to it how long it was and its sum. It goes with the test.
pub fn http() {
    let listener = TcpListener::bind((PEER, HTTP)).expect("a free port");
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // A client that breaks off is its own affair.
            thread::spawn(move || answer_all(stream));
        }
    });
}

fn answer_all(stream: TcpStream) -> std::io::Result<()> {
    let mut into = stream.try_clone()?;
    let mut from = BufReader::new(stream);
    loop {
        let mut request = String::new();
        if from.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let (mut body, mut closes, mut expects) = (0, request.ends_with("HTTP/1.0\r\n"), false);
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(": ") {
                None => break,
                Some(("content-length", length)) => body = length.parse().unwrap_or(0),
                Some(("connection", "close")) => closes = true,
                Some(("expect", _)) => expects = true,
                Some(_) => {}
            }
        }
        if expects {
            into.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut sent = vec![0; body];
        from.read_exact(&mut sent)?;
        let answer = match request.split(' ').nth(1) {
            Some("/big") => big(),
            Some("/small") => b"hello\n".to_vec(),
            _ => format!("{body} bytes, {:x}\n", sum(&sent)).into_bytes(),
        };
        let connection = if closes { "close" } else { "keep-alive" };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
            answer.len()
        );
        let answer = if request.starts_with("HEAD ") {
            Vec::new()
        } else {
            answer
        };
        into.write_all(&[head.into_bytes(), answer].concat())?;
        if closes {
            return Ok(());
        }
    }
}

/// Waits until the program under test takes connections at `port`.
#[track_caller]
pub fn answers(port: u16) {
    let at = format!("{PROGRAM}:{port}").parse().expect("an address");
    for _ in 0..600 {
        if TcpStream::connect_timeout(&at, Duration::from_millis(200)).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the program does not listen at {at}");
}

/// Waits until a peer listens at `port`. It cannot be asked: where loopback is down nothing of the kernel's reaches the kernel's own address.
#[track_caller]
pub fn listens(port: u16) {
    let place = format!("{LISTENER}:{port:04X} 00000000:0000 0A");
    for _ in 0..600 {
        let table = std::fs::read_to_string("/proc/thread-self/net/tcp");
        if table.is_ok_and(|table| table.contains(&place)) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("no peer listens at {port}");
}

/// A content, as it is told in a transcript.
pub fn told(name: &str, bytes: &[u8]) -> String {
    format!("{name}: {} bytes, {:x}\n", bytes.len(), sum(bytes))
}
