//! Load on an HTTP server that is told to end in the middle of it, and what is lost: by wrk where it is installed, else by clients of
//! the tests' own.
//!
//! Lost is a request that was written to a connection and not answered whole. wrk counts those as `read`. What it counts as
//! `write` (over TLS, as `connect`) are the connections that are refused when the server has gone: it opens them again until its
//! time is over. A request that an open connection did not take would be among those too; the own clients tell the two apart.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::PATIENCE;

const CLIENTS: usize = 16;
/// For so long a server that ends keeps a connection over which nothing goes (a second), with time to spare.
const IDLE_MAX: Duration = Duration::from_millis(800);
/// Time for wrk to start and be under way before the server is told.
const UNDER_WAY: Duration = Duration::from_secs(1);

/// Asks for `/` until `end`, called in the middle, has had its effect: new connections are refused. Answers how many answers
/// came; fails if one did not that was due.
pub(crate) fn until_the_end(at: SocketAddr, end: impl FnOnce()) -> u64 {
    if has_wrk() {
        by_wrk(&format!("http://{at}/"), end)
    } else {
        by_clients(at, end)
    }
}

pub(crate) fn has_wrk() -> bool {
    Command::new("wrk").arg("-v").output().is_ok()
}

pub(crate) fn by_wrk(url: &str, end: impl FnOnce()) -> u64 {
    let asking = Command::new("wrk")
        .args(["-t2", &format!("-c{CLIENTS}"), "-d3s", "--timeout", "60s"])
        .arg(url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(UNDER_WAY);
    end();
    let report = asking.wait_with_output().unwrap().stdout;
    let report = String::from_utf8(report).unwrap();
    let number_before = |words: &str| -> Option<u64> {
        let (before, _) = report.split_once(words)?;
        before.split_whitespace().last()?.parse().ok()
    };
    let number_behind = |word: &str| -> Option<u64> {
        let (_, behind) = report.split_once(word)?;
        let digits = behind.split(|sign: char| !sign.is_ascii_digit());
        digits.into_iter().next()?.parse().ok()
    };
    let (refused, none) = match url.starts_with("https") {
        true => (" connect ", ", write "),
        false => (", write ", " connect "),
    };
    // It does not ask any more: so these were refused, or there would be none.
    assert!(number_behind(refused) > Some(0), "it did not end: {report}");
    for kind in [none, ", read ", ", timeout "] {
        assert_eq!(number_behind(kind), Some(0), "{kind}: {report}");
    }
    assert!(!report.contains("Non-2xx"), "{report}");
    number_before(" requests in ")
        .filter(|answers| *answers > 0)
        .expect("answers")
}

/// Half of them keep their connections, half take a new one for each request.
pub(crate) fn by_clients(at: SocketAddr, end: impl FnOnce()) -> u64 {
    by_clients_over(at, |stream| stream, end)
}

/// Like [`by_clients`], but over the stream that `speak` makes of a connection.
pub(crate) fn by_clients_over<S: Read + Write>(
    at: SocketAddr,
    speak: impl Fn(TcpStream) -> S + Clone + Send + 'static,
    end: impl FnOnce(),
) -> u64 {
    let answers = Arc::new(AtomicU64::new(0));
    let lost = Arc::new(Mutex::new(Vec::new()));
    let client = |keep| {
        let (answers, lost, speak) = (answers.clone(), lost.clone(), speak.clone());
        thread::spawn(move || {
            loop {
                match TcpStream::connect(at) {
                    Ok(stream) => {
                        stream.set_read_timeout(Some(PATIENCE)).unwrap();
                        if let Err(why) = ask_until_closed(speak(stream), keep, &answers) {
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
    end();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(*lost.lock().unwrap(), Vec::<String>::new());
    answers.load(Ordering::Relaxed)
}

/// Asks over one connection until the server says that it closes, which it does at once if it is to. An error when an answer
/// did not come that was due. It is not due where this machine let so much time pass before a request that the server had closed
/// what was idle.
fn ask_until_closed(
    mut stream: impl Read + Write,
    keep: bool,
    answers: &AtomicU64,
) -> Result<(), String> {
    let end = if keep { "" } else { "connection: close\r\n" };
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{end}\r\n");
    let mut since = Instant::now();
    loop {
        let written = stream.write_all(request.as_bytes());
        let idle = since.elapsed();
        let written = written.map_err(|error| format!("a request is not taken: {error}"));
        let head = match written.and_then(|()| head_of_answer(&mut stream)) {
            Err(_) if idle > IDLE_MAX => return Ok(()),
            head => head?,
        };
        if !head.starts_with("http/1.1 200 ") {
            return Err(head);
        }
        answers.fetch_add(1, Ordering::Relaxed);
        since = Instant::now();
        if head.contains("connection: close") {
            return Ok(());
        }
    }
}

fn head_of_answer(stream: &mut impl Read) -> Result<String, String> {
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Err("the end before the answer".into()),
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) => return Err(format!("no answer: {error}")),
        }
        if let Some(head) = head_if_whole(&answer) {
            return Ok(head);
        }
    }
}

/// The head in small letters, when as much of a body has come as it says.
fn head_if_whole(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (_, length) = head.split_once("content-length: ").expect("a length");
    let length: usize = length.lines().next()?.parse().expect("a length");
    (body.len() >= length).then(|| head.to_owned())
}
