//! The proxy between clients and servers of the kernel's: servers that die, come back, are drained, hang; bodies both ways.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::load;
use crate::process::{PATIENCE, Process, dial};

/// Bytes of a large body.
const LARGE: usize = 4 << 20;
const CLIENTS: usize = 8;

/// The head of a message as text, the values of its lengths, and its body.
struct Message {
    head: String,
    body: Vec<u8>,
}

/// Reads one message; `None` at the end.
fn read(from: &mut BufReader<TcpStream>, has_body: bool) -> std::io::Result<Option<Message>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let lower = head.to_ascii_lowercase();
    let value = |name: &str| {
        let (_, behind) = lower.split_once(&format!("\r\n{name}: "))?;
        Some(behind.split_once("\r\n")?.0.to_owned())
    };
    let mut body = Vec::new();
    if let Some(length) = value("content-length").filter(|_| has_body) {
        body.resize(length.parse().expect("a length"), 0);
        from.read_exact(&mut body)?;
    } else if value("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            from.read_line(&mut size)?;
            let size = usize::from_str_radix(size.trim_end(), 16).expect("a size");
            let at = body.len();
            body.resize(at + size + 2, 0);
            from.read_exact(&mut body[at..])?;
            body.truncate(at + size);
            if size == 0 {
                break;
            }
        }
    }
    Ok(Some(Message { head, body }))
}

/// Bytes that are not alike anywhere.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// A server of the kernel's, on threads.
struct Backend {
    at: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    dead: AtomicBool,
    connections: AtomicUsize,
    /// Requests for `/`.
    answered: AtomicUsize,
    streams: Mutex<Vec<TcpStream>>,
}

impl Backend {
    fn start(at: SocketAddr) -> Backend {
        let listener = TcpListener::bind(at).unwrap();
        let at = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let accepting = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if own.dead.load(SeqCst) {
                    return;
                }
                own.connections.fetch_add(1, SeqCst);
                own.streams
                    .lock()
                    .unwrap()
                    .push(stream.try_clone().unwrap());
                let own = own.clone();
                // The proxy detects broken connections.
                thread::spawn(move || drop(serve(stream, &own)));
            }
        });
        Backend {
            at,
            shared,
            accepting: Some(accepting),
        }
    }

    fn any() -> Backend {
        Backend::start(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    fn answered(&self) -> usize {
        self.shared.answered.load(SeqCst)
    }

    /// Its port is free and its connections are broken when this returns.
    fn kill(mut self) -> SocketAddr {
        self.shared.dead.store(true, SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.at);
        self.accepting.take().unwrap().join().unwrap();
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.at
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut from = BufReader::new(stream.try_clone()?);
    while let Some(request) = read(&mut from, true)? {
        if shared.dead.load(SeqCst) {
            return stream.shutdown(Shutdown::Both);
        }
        let head_only = request.head.starts_with("HEAD ");
        let path = request.head.split(' ').nth(1).unwrap_or_default();
        let body = match path {
            "/" => {
                shared.answered.fetch_add(1, SeqCst);
                b"here\n".to_vec()
            }
            "/health" => Vec::new(),
            "/head" => request.head.into_bytes(),
            "/echo" => request.body,
            "/chunks" => {
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes())?;
                for piece in pattern(LARGE).chunks(100_000) {
                    stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
                    stream.write_all(piece)?;
                    stream.write_all(b"\r\n")?;
                }
                stream.write_all(b"0\r\n\r\n")?;
                continue;
            }
            // Until the other side gives up.
            "/hang" => return stream.read(&mut [0]).map(drop),
            path => panic!("{path}"),
        };
        let headers =
            "date: Thu, 01 Jan 1970 00:00:00 GMT\r\nx-one: 1\r\nconnection: x-two\r\nx-two: 2";
        let head = format!(
            "HTTP/1.1 200 OK\r\n{headers}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // In one piece: it is there or it is not.
        let answer = [head.as_bytes(), if head_only { &[] } else { &body }].concat();
        stream.write_all(&answer)?;
    }
    Ok(())
}

struct Proxy {
    process: Process,
    at: SocketAddr,
    admin: SocketAddr,
}

impl Proxy {
    fn start(backends: &[&Backend]) -> Proxy {
        let mut process = Process::start("proxy", |command| {
            command.args(["127.0.0.1:0", "127.0.0.1:0"]);
            command.args(backends.iter().map(|backend| backend.at.to_string()));
        });
        let mut place = || {
            let line = process.line();
            let place = line
                .trim_start_matches("curl http://")
                .trim_end_matches('/');
            place.parse().expect("where it is")
        };
        let (at, admin) = (place(), place());
        Proxy { process, at, admin }
    }

    fn ask(&self, request: &str) -> Message {
        self.ask_with(request, &[])
    }

    /// One request over a connection of its own, with its body.
    fn ask_with(&self, request: &str, body: &[u8]) -> Message {
        exchange(self.at, request, body)
    }

    /// The state that the proxy says a server has, and how many requests.
    fn state(&self, of: SocketAddr) -> String {
        let table = exchange(self.admin, "GET / HTTP/1.1\r\nhost: a\r\n\r\n", &[]).body;
        let table = String::from_utf8(table).unwrap();
        let line = table
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{of} ")));
        line.expect("a line for each server").to_owned()
    }

    fn until(&self, of: SocketAddr, state: &str) {
        until(state, || self.state(of).starts_with(state));
    }

    fn order(&self, what: &str, backend: SocketAddr) {
        let request = format!("POST /{what}/{backend} HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(status(&exchange(self.admin, &request, &[])), "200");
    }

    fn ends_well(self) {
        self.process.terminate();
        let (status, _) = self.process.end();
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "never {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn exchange(at: SocketAddr, request: &str, body: &[u8]) -> Message {
    let stream = dial(at);
    let (mut writing, body) = (stream.try_clone().unwrap(), body.to_vec());
    let request_bytes = request.as_bytes().to_vec();
    let writer = thread::spawn(move || {
        let _ = writing.write_all(&request_bytes);
        let _ = writing.write_all(&body);
    });
    let has_body = !request.starts_with("HEAD");
    let answer = read(&mut BufReader::new(stream), has_body).unwrap();
    writer.join().unwrap();
    answer.expect("an answer")
}

fn status(answer: &Message) -> &str {
    answer.head.split(' ').nth(1).unwrap_or_default()
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Clients that ask and ask over connections they keep, until the proxy refuses new ones.
struct Load {
    answers: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<Result<(), String>>>,
}

impl Load {
    fn start(at: SocketAddr) -> Load {
        let answers = Arc::<AtomicUsize>::default();
        let clients = (0..CLIENTS).map(|_| {
            let answers = answers.clone();
            thread::spawn(move || ask_on(at, &answers))
        });
        let clients = clients.collect();
        let load = Load { answers, clients };
        load.goes_on();
        load
    }

    /// Waits until some hundred requests more are answered.
    fn goes_on(&self) {
        let before = self.answers.load(SeqCst);
        until("answered", || {
            self.answers.load(SeqCst) > before + 200 || self.fails()
        });
    }

    fn fails(&self) -> bool {
        self.clients.iter().any(JoinHandle::is_finished)
    }
}

fn ask_on(at: SocketAddr, answers: &AtomicUsize) -> Result<(), String> {
    loop {
        let stream = match TcpStream::connect(at) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
            Err(error) => return Err(format!("neither in nor refused: {error}")),
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut writing = stream.try_clone().unwrap();
        let mut from = BufReader::new(stream);
        loop {
            let written = writing.write_all(GET.as_bytes());
            written.map_err(|error| format!("a request is not taken: {error}"))?;
            let answer = read(&mut from, true).map_err(|error| format!("no answer: {error}"))?;
            let answer = answer.ok_or("the end before the answer")?;
            if status(&answer) != "200" || answer.body != b"here\n" {
                return Err(answer.head);
            }
            answers.fetch_add(1, SeqCst);
            if answer.head.contains("connection: close") {
                break;
            }
        }
    }
}

#[test]
fn servers_die_come_back_and_are_drained_and_no_request_is_lost() {
    let (first, second) = (Backend::any(), Backend::any());
    let (one, two) = (first.at, second.at);
    let proxy = Proxy::start(&[&first, &second]);
    let load = Load::start(proxy.at);
    assert!(first.answered() > 0 && second.answered() > 0, "in turn");

    first.kill();
    load.goes_on();
    proxy.until(one, "dead");
    load.goes_on();

    let first = Backend::start(one);
    proxy.until(one, "alive");
    until("asked again", || first.answered() > 50);

    proxy.order("drain", two);
    proxy.until(two, "drained 0");
    let before = second.answered();
    load.goes_on();
    assert_eq!(second.answered(), before, "nothing new");
    // Its end goes unnoticed.
    second.kill();
    let second = Backend::start(two);
    load.goes_on();
    proxy.order("serve", two);
    until("asked again", || second.answered() > 50);

    // Connections to servers are used again and again.
    let (requests, opened) = (second.answered(), second.shared.connections.load(SeqCst));
    assert!(
        opened < 200 && opened * 2 < requests + 200,
        "{opened} for {requests}"
    );

    // At its own end it does not lose any either.
    load.goes_on();
    proxy.process.terminate();
    for client in load.clients {
        assert_eq!(client.join().unwrap(), Ok(()));
    }
    let (status, _) = proxy.process.end();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn bodies_pass_whole_and_headers_of_one_connection_do_not() {
    let backend = Backend::any();
    let proxy = Proxy::start(&[&backend]);
    let large = pattern(LARGE);
    thread::scope(|scope| {
        let proxy = &proxy;
        let large = &large;
        scope.spawn(move || {
            let head = format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n");
            assert!(
                proxy.ask_with(&head, large).body == *large,
                "a body of known length"
            );
        });
        scope.spawn(move || {
            let mut chunks = Vec::new();
            for piece in large.chunks(77_777) {
                chunks.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                chunks.extend_from_slice(piece);
                chunks.extend_from_slice(b"\r\n");
            }
            chunks.extend_from_slice(b"0\r\n\r\n");
            let head = "PUT /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
            assert!(
                proxy.ask_with(head, &chunks).body == *large,
                "a body in chunks"
            );
        });
        scope.spawn(move || {
            let answer = proxy.ask("GET /chunks HTTP/1.1\r\nhost: a\r\n\r\n");
            assert!(answer.body == *large, "an answer in chunks");
        });
    });

    let answer = proxy.ask(
        "GET /head HTTP/1.1\r\nHost: example.org\r\nX-Here: stays\r\nConnection: keep-alive, X-Mine\r\n\
         X-Mine: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n",
    );
    let seen = String::from_utf8(answer.body).unwrap();
    assert_eq!(
        seen,
        "GET /head HTTP/1.1\r\nHost: example.org\r\nX-Here: stays\r\nx-forwarded-for: 192.0.2.1, 127.0.0.1\r\n\
         via: 1.1 janus\r\n\r\n"
    );
    let head = &answer.head;
    for kept in [
        "\r\nx-one: 1\r\n",
        "\r\ndate: Thu, 01 Jan 1970",
        "\r\nvia: 1.1 janus\r\n",
    ] {
        assert_eq!(head.matches(kept).count(), 1, "{kept} in {head}");
    }
    assert!(!head.contains("x-two"), "{head}");
    let answer = proxy.ask("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert!(
        answer.head.contains("content-length: 5\r\n"),
        "{}",
        answer.head
    );
    proxy.ends_well();
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for() {
    let backend = Backend::any();
    let proxy = Proxy::start(&[&backend]);
    // One connection for both: after an answer of the proxy's own it goes on.
    let stream = dial(proxy.at);
    let mut writing = stream.try_clone().unwrap();
    let mut from = BufReader::new(stream);
    let mut ask = |path: &str, method: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        writing.write_all(request.as_bytes()).unwrap();
        let answer = read(&mut from, true).unwrap().expect("an answer");
        status(&answer).to_owned()
    };
    assert_eq!(ask("/hang", "GET"), "504");
    assert_eq!(ask("/", "GET"), "200", "it may be one request that hangs");
    let at = backend.kill();
    // A request that must not be repeated is sent once only.
    assert_eq!(ask("/", "POST"), "502");
    proxy.until(at, "dead");
    assert_eq!(ask("/", "GET"), "503");
    drop((writing, from));
    proxy.ends_well();
}

/// Answers of its servers arrive.
#[test]
fn it_ends_under_load() {
    let (first, second) = (Backend::any(), Backend::any());
    let proxy = Proxy::start(&[&first, &second]);
    let answers = load::until_the_end(proxy.at, || proxy.process.terminate());
    let (status, _) = proxy.process.end();
    assert_eq!(status.code(), Some(0), "{status}");
    assert_eq!((first.answered() + second.answered()) as u64, answers);
}
