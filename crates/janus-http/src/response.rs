//! Answers: the output that a connection collects, and the types by which a handler writes exactly one response. Only this file writes the
//! headers that frame a message.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::error::Outcome;
use crate::options::Options;
use crate::pace::Stall;
use crate::transport::{self, Transport};
use crate::{Error, Result, date, status};

/// Bytes of output that are handed to the transport together; larger bodies are not copied into it.
pub(crate) const FLUSH_AT: usize = 4096;

/// Responses to be sent. Those of pipelined requests leave together.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that are handed over.
    written: usize,
    /// Offset in `bytes` at which the current response begins.
    mark: usize,
    /// Whether a part of the current response is handed over.
    begun: bool,
    /// Whether all of the current response is in `bytes` or handed over.
    complete: bool,
    /// Whether the connection is kept after the current response.
    pub(crate) keep_alive: bool,
    minor: u8,
    to_head: bool,
    date: bool,
    write_timeout: Option<Duration>,
}

impl Output {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Makes ready for a connection, with an empty buffer. An output stays where it lies, as it is long to move.
    pub(crate) fn serve(&mut self, options: &Options) {
        self.written = 0;
        self.begin(1, false, false);
        (self.date, self.write_timeout) = (options.date, options.write_timeout);
    }

    pub(crate) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Begins a response to a request with this minor version.
    pub(crate) fn begin(&mut self, minor: u8, to_head: bool, keep_alive: bool) {
        self.mark = self.bytes.len();
        self.begun = false;
        self.complete = false;
        (self.minor, self.to_head, self.keep_alive) = (minor, to_head, keep_alive);
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Answers a refused request, or a failed handler with status 500, unless a part of an answer has been sent. `clock`: time of
    /// the transport.
    pub(crate) fn refuse(&mut self, status: u16, explanation: &str, clock: Duration) {
        self.keep_alive = false;
        if self.begun {
            return;
        }
        self.bytes.truncate(self.mark);
        self.status_line(status);
        self.header("content-type", b"text/plain");
        self.close_head(Some(explanation.len() as u64 + 1), false, clock);
        if !self.to_head {
            self.bytes.extend_from_slice(explanation.as_bytes());
            self.bytes.push(b'\n');
        }
        self.complete = true;
    }

    #[inline]
    fn put(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
    }

    fn status_line(&mut self, status: u16) {
        // The version is the server's, not the request's (RFC 9110 section 6.2).
        if status == 200 {
            return self.put(&[b"HTTP/1.1 200 OK\r\n"]);
        }
        let digits = [100, 10, 1].map(|place| b'0' + (status / place % 10) as u8);
        let reason = status::reason(status).as_bytes();
        self.put(&[b"HTTP/1.1 ", &digits, b" ", reason, b"\r\n"]);
    }

    fn header(&mut self, name: &str, value: &[u8]) {
        self.put(&[name.as_bytes(), b": ", value, b"\r\n"]);
    }

    /// Writes the framing headers, the date and the empty line.
    fn close_head(&mut self, length: Option<u64>, chunked: bool, clock: Duration) {
        if let Some(length) = length {
            self.put(&[b"content-length: "]);
            push_number(&mut self.bytes, length);
            self.put(&[b"\r\n"]);
        }
        if chunked {
            self.put(&[b"transfer-encoding: chunked\r\n"]);
        }
        match (self.keep_alive, self.minor) {
            (false, _) => self.put(&[b"connection: close\r\n"]),
            (true, 0) => self.put(&[b"connection: keep-alive\r\n"]),
            (true, _) => {}
        }
        if self.date {
            self.put(&[&date::line(clock)]);
        }
        self.put(&[b"\r\n"]);
    }

    /// Hands over the first `upto` bytes.
    fn poll_flush_to<S: Transport>(
        &mut self,
        stream: &S,
        cx: &mut Context<'_>,
        upto: usize,
    ) -> Poll<Outcome<()>> {
        while self.written < upto {
            match stream.poll_write(cx, &self.bytes[self.written..upto]) {
                Poll::Ready(Ok(0)) => {
                    let error = std::io::Error::from(std::io::ErrorKind::WriteZero);
                    return Poll::Ready(Err(error.into()));
                }
                Poll::Ready(Ok(n)) => self.written += n.min(upto - self.written),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
            self.begun |= self.written > self.mark;
        }
        if self.written == self.bytes.len() {
            self.bytes.clear();
            (self.written, self.mark) = (0, 0);
        }
        Poll::Ready(Ok(()))
    }

    /// Hands over everything.
    pub(crate) fn poll_flush<S: Transport>(
        &mut self,
        stream: &S,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome<()>> {
        self.poll_flush_to(stream, cx, self.bytes.len())
    }

    /// Returns the limit of a peer that acknowledges nothing of the output.
    pub(crate) const fn stall<S: Transport>(&self) -> Stall<S> {
        Stall::new(self.write_timeout)
    }

    /// Hands over the responses before the current one, for which they must not wait.
    pub(crate) fn poll_flush_earlier<S: Transport>(
        &mut self,
        stream: &S,
        stall: &mut Stall<S>,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome<()>> {
        match self.poll_flush_to(stream, cx, self.mark) {
            Poll::Pending => stalled(stall.poll(stream, cx, self.written as u64)),
            done => done,
        }
    }
}

/// Hands over everything in `output`.
pub(crate) async fn flush<S: Transport>(stream: &S, output: &RefCell<Output>) -> Outcome<()> {
    let mut stall = output.borrow().stall();
    core::future::poll_fn(|cx| {
        let mut output = output.borrow_mut();
        match output.poll_flush(stream, cx) {
            Poll::Pending => stalled(stall.poll(stream, cx, output.written as u64)),
            done => done,
        }
    })
    .await
}

/// The outcome when the peer acknowledges nothing for too long.
fn stalled(stall: Poll<Error>) -> Poll<Outcome<()>> {
    stall.map(|error| Err(Box::new(error)))
}

/// Writes `bytes` directly, not through `output`, but with its time limit.
async fn write_past<S: Transport>(
    stream: &S,
    output: &RefCell<Output>,
    bytes: &[u8],
) -> Result<()> {
    let timeout = output.borrow().write_timeout;
    transport::write_all(stream, timeout, bytes).await
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

pub(crate) fn push_hex(out: &mut Vec<u8>, number: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibbles = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    for nibble in (0..nibbles).rev() {
        out.push(DIGITS[number >> (4 * nibble) & 0xf]);
    }
}

/// Proof that a response was sent; returned only by the calls that send one.
#[derive(Debug)]
#[must_use = "a handler returns it"]
pub struct Sent(());

/// The duty of a handler to send one response.
pub struct Responder<'a, S: Transport> {
    stream: &'a S,
    output: &'a RefCell<Output>,
    waits_for_continue: &'a Cell<bool>,
}

impl<'a, S: Transport> Responder<'a, S> {
    pub(crate) fn new(
        stream: &'a S,
        output: &'a RefCell<Output>,
        waits_for_continue: &'a Cell<bool>,
    ) -> Self {
        Self {
            stream,
            output,
            waits_for_continue,
        }
    }

    /// Begins the response with a status from 200 to 599.
    pub fn status(self, status: u16) -> ResponseHead<'a, S> {
        let misuse =
            (!(200..600).contains(&status)).then_some("a response has a status from 200 to 599");
        self.output.borrow_mut().status_line(status);
        ResponseHead {
            responder: self,
            status,
            misuse,
        }
    }

    /// Begins the response with status 200.
    pub fn ok(self) -> ResponseHead<'a, S> {
        self.status(200)
    }
}

/// A response whose headers are being written.
pub struct ResponseHead<'a, S: Transport> {
    responder: Responder<'a, S>,
    status: u16,
    /// The first call that cannot be carried out; reported when the head is complete.
    misuse: Option<&'static str>,
}

impl<'a, S: Transport> ResponseHead<'a, S> {
    /// Adds a header. One that would break the message is left out, and sending the response fails: a name that is no token, a value with
    /// a line end, and the framing headers, which Janus writes. `date` is one of those unless [`Options::date`](crate::Options::date)
    /// leaves it to the handler.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let dated = self.responder.output.borrow().date;
        match check(name, value.as_ref(), dated) {
            Ok(()) => self
                .responder
                .output
                .borrow_mut()
                .header(name, value.as_ref()),
            Err(misuse) => self.misuse = self.misuse.or(Some(misuse)),
        }
        self
    }

    /// Closes the connection after this response.
    pub fn close(self) -> Self {
        self.responder.output.borrow_mut().keep_alive = false;
        self
    }

    /// Sends the response with this body.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a head that cannot be written, [`Error::Io`] and [`Error::Stalled`] when the connection ends.
    ///
    /// # Cancel safety
    /// A part of the response may have been written when the future is dropped: the connection ends after it.
    pub async fn send(self, body: impl AsRef<[u8]>) -> Result<Sent> {
        let body = body.as_ref();
        let length = (!status::is_bodyless(self.status)).then_some(body.len() as u64);
        self.finish_head(length, false)?;
        let Responder { stream, output, .. } = self.responder;
        let direct = {
            let mut out = output.borrow_mut();
            let wanted = length.is_some() && !out.to_head;
            let fits = out.bytes.len() + body.len() <= FLUSH_AT;
            if wanted && fits {
                out.bytes.extend_from_slice(body);
            }
            out.complete = fits || !wanted;
            wanted && !fits
        };
        if direct {
            flush(stream, output).await?;
            write_past(stream, output, body).await?;
            output.borrow_mut().complete = true;
        } else if output.borrow().bytes.len() >= FLUSH_AT {
            flush(stream, output).await?;
        }
        Ok(Sent(()))
    }

    /// Sends the head now and the body, of exactly `length` bytes, through the writer.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    ///
    /// # Cancel safety
    /// The future never waits.
    pub async fn send_sized(self, length: u64) -> Result<BodyWriter<'a, S>> {
        self.may_have_body()?;
        self.finish_head(Some(length), false)?;
        Ok(self.writer(Ending::Sized(length)))
    }

    /// Sends the head now and the body through the writer: in chunks, or to a client of HTTP/1.0 up to the end of the connection.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    ///
    /// # Cancel safety
    /// The future never waits.
    pub async fn stream(self) -> Result<BodyWriter<'a, S>> {
        self.may_have_body()?;
        let chunked = {
            let mut out = self.responder.output.borrow_mut();
            out.keep_alive &= out.minor >= 1;
            out.minor >= 1
        };
        self.finish_head(None, chunked)?;
        Ok(self.writer(if chunked {
            Ending::Chunked
        } else {
            Ending::Close
        }))
    }

    fn may_have_body(&self) -> Result<()> {
        match status::is_bodyless(self.status) {
            true => Err(Error::Misuse(
                "a response with this status has no body: use send",
            )),
            false => Ok(()),
        }
    }

    fn finish_head(&self, length: Option<u64>, chunked: bool) -> Result<()> {
        if let Some(misuse) = self.misuse {
            return Err(Error::Misuse(misuse));
        }
        let mut out = self.responder.output.borrow_mut();
        // Without the 100 it waits for, the client may or may not send the body: the connection cannot go on (RFC 9110 section 10.1.1).
        out.keep_alive &= !self.responder.waits_for_continue.replace(false);
        out.close_head(length, chunked, self.responder.stream.now());
        Ok(())
    }

    fn writer(self, ending: Ending) -> BodyWriter<'a, S> {
        let Responder { stream, output, .. } = self.responder;
        let discard = output.borrow().to_head;
        BodyWriter {
            stream,
            output,
            ending,
            discard,
        }
    }
}

/// Checks a header; `dated`: Janus writes the date.
fn check(name: &str, value: &[u8], dated: bool) -> Result<(), &'static str> {
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err("a header name consists of letters, digits and a few signs");
    }
    if value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        return Err("a header value contains no line end and no NUL");
    }
    let ours = match name.len() {
        4 if dated => "date",
        10 => "connection",
        14 => "content-length",
        17 => "transfer-encoding",
        _ => return Ok(()),
    };
    if name.eq_ignore_ascii_case(ours) {
        return Err(
            "content-length, transfer-encoding, connection and date are written by themselves",
        );
    }
    Ok(())
}

/// Returns whether the byte may stand in a token (RFC 9110 section 5.6.2).
const fn is_token(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'!' | b'#' | b'$' | b'%' | b'&'
        | b'\'' | b'*' | b'+' | b'^' | b'`' | b'|' | b'~')
}

#[derive(Clone, Copy)]
enum Ending {
    Sized(u64),
    Chunked,
    Close,
}

/// Writes the body of a response piece by piece. Dropped before [`BodyWriter::finish`], it leaves the response incomplete, which the
/// client detects because the connection ends.
pub struct BodyWriter<'a, S: Transport> {
    stream: &'a S,
    output: &'a RefCell<Output>,
    ending: Ending,
    /// Whether the request was HEAD.
    discard: bool,
}

impl<S: Transport> BodyWriter<'_, S> {
    /// Adds `bytes` to the body. They may wait in the output until more is added; see [`BodyWriter::flush`].
    ///
    /// # Errors
    /// [`Error::Misuse`] beyond the announced length, [`Error::Io`] and [`Error::Stalled`] when the connection ends.
    ///
    /// # Cancel safety
    /// A part of `bytes` may have been written when the future is dropped. The body cannot go on then: drop the writer, which ends the
    /// connection.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Ending::Sized(left) = &mut self.ending {
            *left = left.checked_sub(bytes.len() as u64).ok_or(Error::Misuse(
                "more was written than the length given for the body",
            ))?;
        }
        if bytes.is_empty() || self.discard {
            return Ok(());
        }
        let chunked = matches!(self.ending, Ending::Chunked);
        if chunked {
            let out = &mut self.output.borrow_mut().bytes;
            push_hex(out, bytes.len());
            out.extend_from_slice(b"\r\n");
        }
        if self.output.borrow().bytes.len() + bytes.len() <= FLUSH_AT {
            self.output.borrow_mut().bytes.extend_from_slice(bytes);
        } else {
            self.flush().await?;
            write_past(self.stream, self.output, bytes).await?;
        }
        if chunked {
            self.output.borrow_mut().bytes.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// Hands over everything written so far.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Stalled`] when the connection ends.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped: the next write or flush goes on.
    pub async fn flush(&mut self) -> Result<()> {
        Ok(flush(self.stream, self.output).await?)
    }

    /// Ends the body.
    ///
    /// # Errors
    /// Those of [`write`](Self::write); [`Error::Misuse`] before the announced length.
    ///
    /// # Cancel safety
    /// The future never waits.
    pub async fn finish(self) -> Result<Sent> {
        match self.ending {
            Ending::Sized(left) if left > 0 && !self.discard => {
                return Err(Error::Misuse(
                    "less was written than the length given for the body",
                ));
            }
            Ending::Chunked if !self.discard => {
                self.output
                    .borrow_mut()
                    .bytes
                    .extend_from_slice(b"0\r\n\r\n");
            }
            Ending::Sized(_) | Ending::Chunked | Ending::Close => {}
        }
        self.output.borrow_mut().complete = true;
        Ok(Sent(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for n in [0, 1, 9, 10, 99, 100, 4095, 4096, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, n);
            assert_eq!(out, n.to_string().into_bytes());
            out.clear();
            push_hex(&mut out, n as usize);
            assert_eq!(out, format!("{:x}", n as usize).into_bytes());
        }
    }

    #[test]
    fn headers_that_would_break_the_message_are_refused() {
        assert!(check("x-ok", b"fine; v=\"1\"", true).is_ok());
        for (name, value) in [
            ("", &b"v"[..]),
            ("a b", b"v"),
            ("a:", b"v"),
            ("a", b"v\r\nset-cookie: x"),
            ("a", b"\0"),
            ("Content-Length", b"5"),
            ("transfer-encoding", b"chunked"),
        ] {
            assert!(check(name, value, false).is_err(), "{name}");
        }
        // A proxy that does not write the date itself passes on another server's.
        assert!(check("Date", b"d", true).is_err());
        assert!(check("Date", b"d", false).is_ok());
    }
}
