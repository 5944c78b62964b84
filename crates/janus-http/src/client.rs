//! A small client: one connection, one request at a time, keep-alive. No pool of connections, no redirects, no TLS.

use std::cell::Cell;

use crate::body::{Body, BodyState};
use crate::framing::{self, Length};
use crate::head::{HeadIndex, Progress};
use crate::input::Input;
use crate::options::Options;
use crate::transport::{self, Transport};
use crate::{Error, Reject, Result};

mod sending;

pub use sending::RequestBody;

/// Most interim responses before a final one.
const INTERIM_MAX: u32 = 16;

/// A connection to a server.
pub struct Connection<S: Transport> {
    stream: S,
    input: Input<S::Piece>,
    index: Box<HeadIndex>,
    output: Vec<u8>,
    /// The last response, as long as a part of it may be unread.
    body: Option<BodyState<S::Piece>>,
    /// Most bytes of a body that are read into memory or skipped at once.
    body_limit: u64,
    /// Whether the server keeps the connection open, as far as is known.
    keep_alive: bool,
    /// Always false, since servers never wait for 100; bodies of both sides are read by the same code.
    waits_for_continue: Cell<bool>,
}

impl Connection<janus::net::TcpStream> {
    /// Connects to a server.
    ///
    /// # Errors
    /// [`Error::Io`], as [`TcpStream::connect`](janus::net::TcpStream::connect).
    ///
    /// # Cancel safety
    /// Dropping the future ends the attempt.
    pub async fn connect(address: impl janus::net::ToAddress) -> Result<Self> {
        Ok(Self::new(janus::net::TcpStream::connect(address).await?))
    }
}

impl<S: Transport> Connection<S> {
    /// Wraps an open connection.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            input: Input::new(Vec::new()),
            index: Box::default(),
            output: Vec::new(),
            body: None,
            body_limit: Options::DEFAULT.body_bytes,
            keep_alive: true,
            waits_for_continue: Cell::new(false),
        }
    }

    /// Returns the most bytes of a body that [`Response::read_to_end`] reads, or that a request skips: 8 MiB at first.
    pub const fn body_limit(&self) -> u64 {
        self.body_limit
    }

    /// Sets the most bytes of a body that [`Response::read_to_end`] reads, or that a request skips.
    pub const fn set_body_limit(&mut self, bytes: u64) {
        self.body_limit = bytes;
    }

    /// Returns whether another request can be sent.
    pub const fn is_open(&self) -> bool {
        self.keep_alive
    }

    /// Fetches `target` from `host`.
    ///
    /// # Errors
    /// Those of [`send`](Connection::send).
    ///
    /// # Cancel safety
    /// Like [`send`](Connection::send).
    pub async fn get(&mut self, host: &str, target: &str) -> Result<Response<'_, S>> {
        self.send("GET", target, &[("host", host)], b"").await
    }

    /// Sends a request and receives the head of its response. The unread rest of an earlier response is skipped. `headers` must contain
    /// `host`, and nothing about the body's length.
    ///
    /// # Errors
    /// [`Error::BodyTooLong`] when more than the [limit](Connection::body_limit) of an earlier response is unread,
    /// [`Error::Misuse`] for a request that cannot be written, [`Error::Io`] and [`Error::UnexpectedEnd`] when the connection ends,
    /// [`Error::Rejected`] for a malformed response. After an error the connection is not [open](Connection::is_open).
    ///
    /// # Cancel safety
    /// A part of the request may have been written when the future is dropped: the connection is not [open](Connection::is_open) then.
    pub async fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response<'_, S>> {
        let headers = headers.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        let length = Some(body.len() as u64);
        let mut request = self.begin(method, target, headers, length).await?;
        request.write(body).await?;
        request.finish().await
    }

    /// Sends the head of a request whose body is written piece by piece: `length` bytes, or in chunks if the length is unknown. Otherwise
    /// like [`send`](Connection::send).
    ///
    /// Until the response has come the connection is not [open](Connection::is_open), nor after a request that is given up half-way.
    ///
    /// # Errors
    /// Those of [`send`](Connection::send).
    ///
    /// # Cancel safety
    /// Like [`send`](Connection::send).
    pub async fn begin<'h>(
        &mut self,
        method: &str,
        target: &str,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        length: Option<u64>,
    ) -> Result<RequestBody<'_, S>> {
        self.finish_last().await?;
        if !self.keep_alive {
            return Err(Error::Misuse(
                "the server has closed this connection: open another one",
            ));
        }
        self.write_head(method, target, headers, length)?;
        self.keep_alive = false;
        transport::write_all(&self.stream, None, &self.output).await?;
        Ok(RequestBody::new(self, length, method == "HEAD"))
    }

    /// Receives the head of the response to the request.
    async fn receive(&mut self, to_head: bool) -> Result<Response<'_, S>> {
        let mut interim = 0;
        let framing = loop {
            self.receive_head().await?;
            let framing = framing::of_response(&self.index, self.input.bytes(), to_head)?;
            if !matches!(self.index.status(), 100..=199) {
                break framing;
            }
            interim += 1;
            if interim > INTERIM_MAX || self.index.status() == 101 {
                return Err(Reject::Syntax.into());
            }
            self.input.consume(self.index.len());
        };
        self.keep_alive = framing.keep_alive && framing.length != Length::UntilClose;
        self.body = Some(BodyState::new(framing.length, u64::MAX, None));
        Ok(Response { connection: self })
    }

    async fn finish_last(&mut self) -> Result<()> {
        let Some(mut state) = self.body.take() else {
            return Ok(());
        };
        let head = self.index.len();
        // If this fails half-way, the position in the stream is lost.
        let keep_alive = std::mem::replace(&mut self.keep_alive, false);
        if keep_alive {
            state.allow(self.body_limit);
            let first = self.input.bytes().get(head..).unwrap_or_default();
            Body::new(&self.stream, first, &mut state, &self.waits_for_continue)
                .skip()
                .await
                .map_err(|error| match error {
                    Error::Rejected(Reject::BodyTooLarge) => Error::BodyTooLong(self.body_limit),
                    other => other,
                })?;
        }
        state.leave(&mut self.input, head);
        self.keep_alive = keep_alive;
        Ok(())
    }

    fn write_head<'h>(
        &mut self,
        method: &str,
        target: &str,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        length: Option<u64>,
    ) -> Result<()> {
        let clean = |text: &[u8]| {
            !text.is_empty() && text.iter().all(|b| b.is_ascii_graphic() || *b >= 0x80)
        };
        let clean_value = |text: &[u8]| !text.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
        const SPACES: Error =
            Error::Misuse("method, target and headers contain no space or line end");
        if !clean(method.as_bytes()) || !clean(target.as_bytes()) {
            return Err(SPACES);
        }
        let out = &mut self.output;
        out.clear();
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
        put(&[method.as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\n"]);
        for (name, value) in headers {
            if !clean(name) || !clean_value(value) {
                return Err(SPACES);
            }
            let frames = [&b"content-length"[..], b"transfer-encoding"];
            if frames.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
                return Err(Error::Misuse(
                    "content-length and transfer-encoding are written by themselves",
                ));
            }
            put(&[name, b": ", value, b"\r\n"]);
        }
        match length {
            None => put(&[b"transfer-encoding: chunked\r\n"]),
            // RFC 9110 section 8.6: methods that may have content say so even when it is empty.
            Some(length) if length > 0 || matches!(method, "POST" | "PUT" | "PATCH") => {
                put(&[b"content-length: ", length.to_string().as_bytes(), b"\r\n"]);
            }
            Some(_) => {}
        }
        put(&[b"\r\n"]);
        Ok(())
    }

    async fn receive_head(&mut self) -> Result<()> {
        let limit = Options::DEFAULT.head_bytes;
        loop {
            let bytes = self.input.bytes();
            if !bytes.is_empty() && self.index.parse_response(bytes, limit)? == Progress::Whole {
                return Ok(());
            }
            let piece = transport::recv(&self.stream)
                .await?
                .ok_or(Error::UnexpectedEnd)?;
            self.input.push(piece);
        }
    }
}

/// A response: its head, and its body to be read.
pub struct Response<'a, S: Transport> {
    connection: &'a mut Connection<S>,
}

impl<S: Transport> Response<'_, S> {
    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.connection.index.status()
    }

    /// Returns names and values in the order in which they came.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.connection.index.headers(self.connection.input.bytes())
    }

    /// Returns the bytes of the body that are left; `None` where the server did not announce the length.
    pub fn remaining(&self) -> Option<u64> {
        self.connection
            .body
            .as_ref()
            .map_or(Some(0), BodyState::remaining)
    }

    /// Returns the first value of the header `name`, compared without case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.connection
            .index
            .header(self.connection.input.bytes(), name)
    }

    /// Returns the next bytes of the body, in the buffer they arrived in; `None` when it is complete.
    ///
    /// # Errors
    /// Those of [`Body::next`].
    ///
    /// # Cancel safety
    /// No byte is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<&[u8]>> {
        let Connection {
            stream,
            input,
            index,
            body,
            waits_for_continue,
            ..
        } = &mut *self.connection;
        let Some(state) = body else { return Ok(None) };
        let first = input.bytes().get(index.len()..).unwrap_or_default();
        Body::new(stream, first, state, waits_for_continue)
            .into_next()
            .await
    }

    /// Appends the rest of the body to `into`: as many bytes as the [limit](Connection::body_limit) allows.
    ///
    /// # Errors
    /// [`Error::BodyTooLong`] when the rest is longer than the limit: at once where the server announced the length, else when that many
    /// bytes are in `into`. The connection is not [open](Connection::is_open) then. Else those of [`Body::next`].
    ///
    /// # Cancel safety
    /// No byte is lost when the future is dropped: those read so far are in `into`.
    pub async fn read_to_end(&mut self, into: &mut Vec<u8>) -> Result<()> {
        let limit = self.connection.body_limit;
        let mut left = limit;
        let mut too_long = self.remaining().is_some_and(|rest| rest > limit);
        while !too_long {
            let Some(bytes) = self.next().await? else {
                return Ok(());
            };
            match left.checked_sub(bytes.len() as u64) {
                Some(rest) => {
                    left = rest;
                    into.extend_from_slice(bytes);
                }
                None => too_long = true,
            }
        }
        self.connection.keep_alive = false;
        Err(Error::BodyTooLong(limit))
    }
}

#[cfg(test)]
mod tests;
