//! What the server does with its connections, as the far end sees it: requests, and the responses there must be.

use super::first_seq;
use super::packet::Answer;

/// Bytes of an echo request.
pub const ECHO_LEN: usize = 64;
/// Bytes of the longest answer.
pub const ANSWER_MAX: usize = 8_192;
/// Bytes behind the echo in a longer answer, each at its place in the answer.
static FILLER: [u8; ANSWER_MAX] = filler();

const fn filler() -> [u8; ANSWER_MAX] {
    let mut out = [0; ANSWER_MAX];
    let (mut at, mut word) = (0, 1_u32);
    while at < ANSWER_MAX {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out[at] = (word >> 24) as u8;
        at += 1;
    }
    out
}

/// Returns what stands behind the echo in an answer of `len` bytes.
pub fn behind_echo(len: u32) -> &'static [u8] {
    &FILLER[ECHO_LEN..len as usize]
}

/// What the server's application does, and so what a request and its response look like.
#[derive(Clone, Debug)]
pub enum App {
    /// Requests of 64 bytes that tell where they belong come back unchanged.
    Echo,
    /// The same, with a filler behind the echo: answers of so many bytes, which may come in several segments. For the first
    /// request of a connection alone.
    Sized(u32),
    /// An HTTP/1.1 request, and how its response starts and ends. Its length is learned from the first one, and every
    /// other must have the same.
    Http {
        request: Vec<u8>,
        start: Vec<u8>,
        end: Vec<u8>,
    },
}

impl App {
    /// The HTTP request that is answered with `body`.
    pub fn http(body: &[u8]) -> Self {
        Self::Http {
            request: b"GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n".to_vec(),
            start: b"HTTP/1.1 200 OK\r\n".to_vec(),
            end: [b"\r\n\r\n", body].concat(),
        }
    }

    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Echo | Self::Sized(_) => "echo",
            Self::Http { .. } => "http",
        }
    }

    pub(super) fn request_len(&self) -> u32 {
        match self {
            Self::Echo | Self::Sized(_) => ECHO_LEN as u32,
            Self::Http { request, .. } => request.len() as u32,
        }
    }

    /// Bytes of an answer, where they are known from the beginning.
    pub(super) fn answer_len(&self) -> Option<u32> {
        match self {
            Self::Echo => Some(ECHO_LEN as u32),
            Self::Sized(len) => Some(*len),
            Self::Http { .. } => None,
        }
    }

    /// Whether `a` carries the bytes that are at `offset` in the answer to a connection's first request.
    pub(super) fn is_part(&self, a: &Answer<'_>, offset: u32) -> bool {
        let echo = echo_words(
            a.conn,
            first_seq(a.conn).wrapping_add(1),
            a.seq.wrapping_sub(offset),
        );
        let from = offset as usize;
        let of_echo = ECHO_LEN.saturating_sub(from).min(a.payload.len());
        let (head, tail) = a.payload.split_at(of_echo);
        let from_tail = from + of_echo;
        head == &echo[from.min(ECHO_LEN)..][..of_echo]
            && FILLER.get(from_tail..from_tail + tail.len()) == Some(tail)
    }

    /// How many whole requests there are in `bytes`.
    #[inline]
    pub(super) fn requests_in(&self, bytes: u32) -> u32 {
        match self {
            // A constant, for the sake of the division.
            Self::Echo | Self::Sized(_) => bytes / ECHO_LEN as u32,
            Self::Http { request, .. } => bytes / request.len() as u32,
        }
    }

    /// Whether `a` carries the response to request number `served`, counted from 1.
    pub(super) fn is_response(&self, a: &Answer<'_>, served: u32, len: u32) -> bool {
        match self {
            Self::Echo => {
                let seq = first_seq(a.conn)
                    .wrapping_add(1)
                    .wrapping_add((served - 1) * ECHO_LEN as u32);
                a.payload == echo_words(a.conn, seq, a.seq)
            }
            Self::Sized(_) => false,
            Self::Http { start, end, .. } => {
                a.payload.len() == len as usize
                    && a.payload.starts_with(start)
                    && a.payload.ends_with(end)
            }
        }
    }
}

/// A request that names its connection, its place in our stream and the place of its answer in the server's, so
/// that an answer which went astray is seen.
#[inline]
pub(super) fn echo_words(conn: u32, seq: u32, answer_seq: u32) -> [u8; ECHO_LEN] {
    let mut out = [0; ECHO_LEN];
    let mut word = u64::from(conn) << 32 | u64::from(seq);
    for (n, place) in out.chunks_exact_mut(8).enumerate() {
        place.copy_from_slice(&word.to_be_bytes());
        word =
            word.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(answer_seq) << n);
    }
    out
}
