//! Echo servers over the kernel's sockets, each on a thread of its own, and the client that asks them over loopback. Of the
//! servers only tokio's is here.

use super::far::ECHO_LEN;
use super::far::app::{ANSWER_MAX, behind_echo};
use super::far::plan::Mode;
use super::meter::thread_cpu;
use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, ReadBuf};

/// As long as what the far end sends.
const REQUEST: [u8; ECHO_LEN] = [7; ECHO_LEN];
/// Destination addresses that clients take in turn, each with a range of local ports of its own.
const ADDRESSES: u32 = 64;
/// Name of the thread that tokio serves on.
const TOKIO: &str = "tokio-server";
/// Name of the thread that asks.
const CLIENT: &str = "kernel-client";
/// Connections that may wait for being accepted: as many as are begun at a time.
const BACKLOG: i32 = 4_096;

/// What a client asks for.
#[derive(Clone, Copy)]
pub struct Load {
    /// [`Mode::Short`] or [`Mode::Requests`].
    pub mode: Mode,
    /// Connections or requests in progress at a time.
    pub window: u32,
    /// Connections that take the requests in turn.
    pub held: u32,
}

/// Processor time for each piece of work.
pub struct Cost {
    /// Nanoseconds of the server's thread.
    pub server_ns: f64,
    /// Nanoseconds of the server's thread and the client's.
    pub both_ns: f64,
    /// Number of answers that were not what was asked for.
    pub wrong: u64,
}

/// A server that runs until the program ends.
pub struct Kernel {
    pub port: u16,
    thread: &'static str,
    /// Bytes of an answer.
    answer: u32,
}

impl Kernel {
    /// Starts `serve` on a thread named `thread`.
    pub fn start(thread: &'static str, serve: impl FnOnce(TcpListener) + Send + 'static) -> Self {
        let (told, port) = channel();
        let body = move || {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
            rustix::net::listen(&listener, BACKLOG).expect("it listens already");
            listener.set_nonblocking(true).expect("a socket");
            let _ = told.send(listener.local_addr().expect("bound").port());
            serve(listener);
        };
        let started = std::thread::Builder::new().name(thread.into()).spawn(body);
        started.expect("a thread");
        let port = port.recv().expect("bound");
        Self {
            port,
            thread,
            answer: ECHO_LEN as u32,
        }
    }

    /// Starts a tokio runtime on one thread.
    pub fn tokio() -> Self {
        Self::tokio_answering(ECHO_LEN as u32)
    }

    /// Starts one whose answers have so many bytes.
    pub fn tokio_answering(answer: u32) -> Self {
        let behind = behind_echo(answer);
        let started = Self::start(TOKIO, move |listener| {
            one_thread().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
                loop {
                    let (stream, _) = listener.accept().await.expect("a connection");
                    if behind.is_empty() {
                        tokio::spawn(echo(stream));
                    } else {
                        tokio::spawn(echo_and(stream, behind));
                    }
                }
            });
        });
        Self { answer, ..started }
    }

    /// Measures for `run_time`, after `warm`.
    pub fn cost(&self, load: Load, warm: Duration, run_time: Duration) -> Cost {
        let (port, server, answer) = (self.port, self.thread, self.answer);
        let body = move || {
            let mut client = Client::new(port, load, answer);
            client.ask(warm);
            let used = || [server, CLIENT].map(|name| thread_cpu(name).as_nanos() as f64);
            let (before, first) = (used(), client.begun);
            client.ask(run_time);
            let after = used();
            let each = |at: usize| (after[at] - before[at]) / f64::from(client.begun - first);
            Cost {
                server_ns: each(0),
                both_ns: each(0) + each(1),
                wrong: client.wrong,
            }
        };
        let client = std::thread::Builder::new().name(CLIENT.into()).spawn(body);
        client.expect("a thread").join().expect("every connection")
    }
}

/// The client's connections and counts.
struct Client {
    port: u16,
    load: Load,
    answer: u32,
    held: Vec<TcpStream>,
    begun: u32,
    wrong: u64,
}

impl Client {
    fn new(port: u16, load: Load, answer: u32) -> Self {
        let mut held = Vec::new();
        if load.mode != Mode::Short {
            held.extend((0..load.held).map(|number| connect(port, number)));
        }
        Self {
            port,
            load,
            answer,
            held,
            begun: 0,
            wrong: 0,
        }
    }

    /// Works for `time`: requests over the connections that are held, or short connections.
    fn ask(&mut self, time: Duration) {
        let start = Instant::now();
        let window = self.load.window as usize;
        while start.elapsed() < time {
            if self.load.mode == Mode::Short {
                let numbers = self.begun..self.begun + self.load.window;
                let mut conns = Vec::with_capacity(window);
                for number in numbers {
                    let conn = connect(self.port, number);
                    send_request(&conn);
                    conns.push(conn);
                }
                self.read(&conns);
                continue;
            }
            let held = std::mem::take(&mut self.held);
            for conns in held.chunks(window) {
                conns.iter().for_each(send_request);
                self.read(conns);
            }
            self.held = held;
        }
    }

    fn read(&mut self, conns: &[TcpStream]) {
        self.begun += conns.len() as u32;
        self.wrong += conns
            .iter()
            .filter(|conn| !is_answered(conn, self.answer))
            .count() as u64;
    }
}

pub fn one_thread() -> tokio::runtime::Runtime {
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build();
    built.expect("a runtime of tokio's")
}

/// Sends back what comes. The buffer is on the stack while the task runs: an idle connection holds none.
pub async fn echo(mut stream: tokio::net::TcpStream) {
    while poll_fn(|context| echo_once(&mut stream, &[], context)).await {}
}

/// Sends back what comes, and this behind it.
async fn echo_and(mut stream: tokio::net::TcpStream, behind: &'static [u8]) {
    while poll_fn(|context| echo_once(&mut stream, behind, context)).await {}
}

/// Whether the connection goes on. A client here waits for its answer, which thus always fits the kernel's buffer.
fn echo_once(
    stream: &mut tokio::net::TcpStream,
    behind: &[u8],
    context: &mut Context<'_>,
) -> Poll<bool> {
    let mut bytes = [MaybeUninit::uninit(); 1_024];
    let mut read = ReadBuf::uninit(&mut bytes);
    let came = ready!(Pin::new(&mut *stream).poll_read(context, &mut read));
    let piece = read.filled();
    let is_sent = || {
        let both = [IoSlice::new(piece), IoSlice::new(behind)];
        let sent = if behind.is_empty() {
            stream.try_write(piece)
        } else {
            stream.try_write_vectored(&both)
        };
        sent.is_ok_and(|sent| sent == piece.len() + behind.len())
    };
    Poll::Ready(came.is_ok() && !piece.is_empty() && is_sent())
}

/// Opens connection number `number` to a port of this machine.
pub fn connect(port: u16, number: u32) -> TcpStream {
    let address = Ipv4Addr::new(127, 0, 0, 1 + (number % ADDRESSES) as u8);
    TcpStream::connect((address, port)).expect("a connection")
}

pub fn send_request(mut stream: &TcpStream) {
    stream.write_all(&REQUEST).expect("room for a request");
}

pub fn read_answer(stream: &TcpStream) {
    assert!(is_answered(stream, ECHO_LEN as u32), "a wrong answer");
}

fn is_answered(mut stream: &TcpStream, len: u32) -> bool {
    let mut answer = [0; ANSWER_MAX];
    let answer = &mut answer[..len as usize];
    stream.read_exact(answer).is_ok()
        && answer.starts_with(&REQUEST)
        && answer.ends_with(behind_echo(len))
}
