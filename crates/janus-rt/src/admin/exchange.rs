//! One connection of the admin port: a request's head of bounded size, an answer, and the end of it. Every phase has an end in
//! time. No keep-alive: whoever asks, asks seldom.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::metrics::Format;

/// Bytes of a request's head, its empty line included.
pub(super) const HEAD_MAX: usize = 8 * 1024;
/// Time for the head, and then for taking the answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// After the answer, time until the peer closes: were the socket closed with unread bytes, a reset could overtake the answer.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes read and thrown away meanwhile.
const LINGER_MAX: usize = 64 * 1024;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Metrics(Format),
    Health,
}

/// A request's head that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The answer to what is not understood.
    pub(super) page: Result<Page, Response>,
    /// Its method is HEAD: the answer has no body.
    pub(super) head_only: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// Code and phrase.
    pub(super) status: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    pub(super) fn new(status: &'static str, content_type: &'static str, body: String) -> Response {
        Response {
            status,
            content_type,
            body,
        }
    }

    pub(super) fn plain(status: &'static str, body: String) -> Response {
        Response::new(status, "text/plain; charset=utf-8", body)
    }

    fn to_bytes(&self, head_only: bool) -> Vec<u8> {
        let Response {
            status,
            content_type,
            body,
        } = self;
        let allow = match status.starts_with("405") {
            true => "Allow: GET, HEAD\r\n",
            false => "",
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let body = if head_only { "" } else { body };
        (head + body).into_bytes()
    }
}

enum Phase {
    /// The head so far.
    Head(Vec<u8>),
    Answer {
        bytes: Vec<u8>,
        sent: usize,
    },
    /// The answer is out; so many bytes may still come.
    Linger(usize),
}

pub(super) struct Exchange {
    socket: TcpStream,
    phase: Phase,
    until: Instant,
}

impl Exchange {
    pub(super) fn begin(socket: TcpStream, now: Instant) -> Option<Exchange> {
        socket.set_nonblocking(true).ok()?;
        Some(Exchange {
            socket,
            phase: Phase::Head(Vec::new()),
            until: now + PATIENCE,
        })
    }

    /// When its time is up.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether the answer is not out yet.
    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.phase, Phase::Linger(_))
    }

    pub(super) fn waits_for(&self) -> PollFd<'_> {
        let flags = match self.phase {
            Phase::Head(_) | Phase::Linger(_) => PollFlags::IN,
            Phase::Answer { .. } => PollFlags::OUT,
        };
        PollFd::from_borrowed_fd(self.socket.as_fd(), flags)
    }

    /// Reads what has come; returns the request once its head is whole, or longer than may be.
    pub(super) fn receive(&mut self) -> Option<Request> {
        let Phase::Head(head) = &mut self.phase else {
            return None;
        };
        let mut piece = [0; 1024];
        while head.len() <= HEAD_MAX {
            match self.socket.read(&mut piece) {
                Ok(0) => {
                    self.phase = Phase::Linger(0);
                    return None;
                }
                Ok(len) => {
                    head.extend_from_slice(&piece[..len]);
                    if let Some(end) = end_of_head(head).filter(|end| *end <= HEAD_MAX) {
                        return Some(Request {
                            page: understood(&head[..end]),
                            head_only: head.starts_with(b"HEAD "),
                        });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.phase = Phase::Linger(0);
                    return None;
                }
            }
        }
        let problem = "the head of the request is too long\n".into();
        let status = "431 Request Header Fields Too Large";
        Some(Request {
            page: Err(Response::plain(status, problem)),
            head_only: false,
        })
    }

    /// Has this to say.
    pub(super) fn answer(&mut self, response: &Response, head_only: bool, now: Instant) {
        self.until = now + PATIENCE;
        self.phase = Phase::Answer {
            bytes: response.to_bytes(head_only),
            sent: 0,
        };
    }

    /// Writes what the peer takes, and waits for its end then. False when it is over.
    pub(super) fn send(&mut self) -> bool {
        if let Phase::Answer { bytes, sent } = &mut self.phase {
            while *sent < bytes.len() {
                match self.socket.write(&bytes[*sent..]) {
                    Ok(len) => *sent += len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
            }
            if self.socket.shutdown(Shutdown::Write).is_err() {
                return false;
            }
            self.until = Instant::now() + LINGER;
            self.phase = Phase::Linger(LINGER_MAX);
        }
        match &mut self.phase {
            Phase::Linger(left) => {
                let mut piece = [0; 4096];
                while *left > 0 {
                    match self.socket.read(&mut piece) {
                        Ok(0) => return false,
                        Ok(len) => *left = left.saturating_sub(len),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(_) => return false,
                    }
                }
                false
            }
            Phase::Head(_) | Phase::Answer { .. } => true,
        }
    }
}

/// Where the empty line after the header fields ends (RFC 9112 section 2.1; section 2.2 lets a line end without CR).
fn end_of_head(head: &[u8]) -> Option<usize> {
    let at = head.windows(2).position(|pair| pair == b"\n\n");
    let cr = head.windows(3).position(|three| three == b"\n\r\n");
    let ends = [at.map(|at| at + 2), cr.map(|at| at + 3)];
    ends.into_iter().flatten().min()
}

/// Understands a whole head, or says what the answer is.
fn understood(head: &[u8]) -> Result<Page, Response> {
    let bad = |problem: &str| Response::plain("400 Bad Request", format!("{problem}\n"));
    let head = std::str::from_utf8(head).map_err(|_| bad("the head is no text"))?;
    let mut lines = head
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line));
    let request = lines.next().unwrap_or_default();
    let words: Vec<&str> = request.split(' ').collect();
    let &[method, target, version] = &words[..] else {
        return Err(bad("the first line is no request"));
    };
    let (mut hosts, mut accept) = (0, String::new());
    for line in lines.filter(|line| !line.is_empty()) {
        let Some((name, value)) = line.split_once(':') else {
            return Err(bad("a line of the head is no header field"));
        };
        if name.eq_ignore_ascii_case("host") {
            hosts += 1;
        } else if name.eq_ignore_ascii_case("accept") {
            accept = accept + value + ",";
        }
    }
    match version {
        // RFC 9112 section 3.2.
        "HTTP/1.1" if hosts != 1 => return Err(bad("there must be one Host field")),
        "HTTP/1.1" | "HTTP/1.0" => {}
        _ => {
            let problem = "only HTTP/1.1 and HTTP/1.0 are spoken here\n".into();
            return Err(Response::plain("505 HTTP Version Not Supported", problem));
        }
    }
    let page = match path_of(target) {
        "/metrics" => Page::Metrics(Format::accepted(&accept)),
        "/healthz" => Page::Health,
        _ => {
            let problem = "there are /metrics and /healthz\n".into();
            return Err(Response::plain("404 Not Found", problem));
        }
    };
    match method {
        "GET" | "HEAD" => Ok(page),
        _ => {
            let problem = "only GET and HEAD\n".into();
            Err(Response::plain("405 Method Not Allowed", problem))
        }
    }
}

/// The path of a request's target, which may be absolute (RFC 9112 section 3.2.2), without its query.
fn path_of(target: &str) -> &str {
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("", |at| &rest[at..]),
        None => target,
    };
    path.split('?').next().unwrap_or_default()
}
