//! The body of a message, lent out in the buffers it arrives in. [`crate::framing`] decides how a body ends; its content is the reader's
//! affair.

use std::cell::Cell;

use crate::chunked::{Decoder, Step};
use crate::framing::Length;
use crate::input::Input;
use crate::pace::Pace;
use crate::transport::{self, Transport};
use crate::{Error, Reject, Result};

/// Remaining part of a body.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Sized(u64),
    Chunked(Decoder),
    UntilClose,
    Done,
}

impl Rest {
    /// Finds the data at the start of `input`, if any, and the bytes that it and its framing take.
    fn take(&mut self, input: &[u8]) -> Result<Step, Reject> {
        let step = match self {
            Self::Done => Step {
                consumed: 0,
                data: 0..0,
            },
            Self::UntilClose => Step {
                consumed: input.len(),
                data: 0..input.len(),
            },
            Self::Sized(rest) => {
                let len = (*rest).min(input.len() as u64);
                *rest -= len;
                Step {
                    consumed: len as usize,
                    data: 0..len as usize,
                }
            }
            Self::Chunked(decoder) => decoder.step(input)?,
        };
        match self {
            Self::Sized(0) => *self = Self::Done,
            Self::Chunked(decoder) if decoder.is_done() => *self = Self::Done,
            _ => {}
        }
        Ok(step)
    }
}

/// Progress through one body. Kept beside the [`Body`] that readers get, so that a part they left unread can be skipped.
pub(crate) struct BodyState<P> {
    rest: Rest,
    /// Bytes taken of the input that arrived together with the head.
    used: usize,
    /// A piece that arrived later, and the bytes of it that are taken.
    piece: Option<P>,
    at: usize,
    /// Data bytes that may still be read.
    allowance: u64,
    /// Limits of a slow sender, on a server.
    pace: Option<Pace>,
}

impl<P> BodyState<P> {
    pub(crate) fn new(length: Length, allowance: u64, pace: Option<Pace>) -> Self {
        let rest = match length {
            Length::Sized(0) => Rest::Done,
            Length::Sized(n) => Rest::Sized(n),
            Length::Chunked => Rest::Chunked(Decoder::new()),
            Length::UntilClose => Rest::UntilClose,
        };
        Self {
            rest,
            used: 0,
            piece: None,
            at: 0,
            allowance,
            pace,
        }
    }

    pub(crate) const fn is_done(&self) -> bool {
        matches!(self.rest, Rest::Done)
    }

    /// Returns the bytes left, if the sender announced the length.
    pub(crate) const fn remaining(&self) -> Option<u64> {
        match self.rest {
            Rest::Sized(n) => Some(n),
            Rest::Done => Some(0),
            Rest::Chunked(_) | Rest::UntilClose => None,
        }
    }

    /// Allows this many bytes from here on, in place of any earlier allowance.
    pub(crate) fn allow(&mut self, bytes: u64) {
        self.allowance = bytes;
    }
}

impl<P: core::ops::Deref<Target = [u8]>> BodyState<P> {
    /// Takes the next data from the received bytes; the step's range refers to the buffer they are in.
    fn step(&mut self, first: &[u8]) -> Result<Step, Reject> {
        let (buffer, at) = match &self.piece {
            Some(piece) => (&piece[..], &mut self.at),
            None => (first, &mut self.used),
        };
        let input = buffer.get(*at..).unwrap_or_default();
        let Step { consumed, data } = self.rest.take(input)?;
        self.allowance = self
            .allowance
            .checked_sub(data.len() as u64)
            .ok_or(Reject::BodyTooLarge)?;
        let data = *at + data.start..*at + data.end;
        *at += consumed;
        Ok(Step { consumed, data })
    }

    /// Returns whether all received bytes are taken.
    fn is_dry(&self, first: &[u8]) -> bool {
        match &self.piece {
            Some(piece) => self.at >= piece.len(),
            None => self.used >= first.len(),
        }
    }

    /// Removes head and body from `input` and leaves the bytes of the next message.
    pub(crate) fn leave(self, input: &mut Input<P>, head: usize) {
        match self.piece {
            Some(piece) => input.replace(piece, self.at),
            None => input.consume(head + self.used),
        }
    }
}

/// The body of a message, to be read.
pub struct Body<'a, S: Transport> {
    stream: &'a S,
    /// Bytes that arrived together with the head.
    first: &'a [u8],
    state: &'a mut BodyState<S::Piece>,
    /// The client waits for 100 before it sends the body.
    waits_for_continue: &'a Cell<bool>,
}

impl<'a, S: Transport> Body<'a, S> {
    pub(crate) fn new(
        stream: &'a S,
        first: &'a [u8],
        state: &'a mut BodyState<S::Piece>,
        waits_for_continue: &'a Cell<bool>,
    ) -> Self {
        Self {
            stream,
            first,
            state,
            waits_for_continue,
        }
    }

    /// Returns whether there is nothing left to read.
    pub const fn is_done(&self) -> bool {
        self.state.is_done()
    }

    /// Returns the bytes left; `None` where the sender did not announce the length.
    pub const fn remaining(&self) -> Option<u64> {
        self.state.remaining()
    }

    /// Returns the next bytes of the body, in the buffer they arrived in; `None` when it is complete.
    ///
    /// # Errors
    /// [`Error::Io`] when the connection fails, [`Error::UnexpectedEnd`] when the peer shuts down within the body, [`Error::Rejected`] for
    /// a body that is malformed, too long or too slow.
    ///
    /// # Cancel safety
    /// No byte is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<&[u8]>> {
        Body::new(self.stream, self.first, self.state, self.waits_for_continue)
            .into_next()
            .await
    }

    /// Like [`Body::next`], for a body that was made for one call.
    pub(crate) async fn into_next(mut self) -> Result<Option<&'a [u8]>> {
        let data = loop {
            let step = self.state.step(self.first)?;
            if !step.data.is_empty() {
                break step.data;
            }
            if self.state.is_done() || (self.state.is_dry(self.first) && !self.fill().await?) {
                return Ok(None);
            }
        };
        let state: &'a BodyState<S::Piece> = self.state;
        let from = state.piece.as_deref().unwrap_or(self.first);
        Ok(from.get(data))
    }

    /// Appends the rest of the body to `into`.
    ///
    /// # Errors
    /// Those of [`next`](Body::next).
    ///
    /// # Cancel safety
    /// No byte is lost when the future is dropped: those read so far are in `into`.
    pub async fn read_to_end(&mut self, into: &mut Vec<u8>) -> Result<()> {
        while let Some(bytes) = self.next().await? {
            into.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Reads the rest of the body and discards it.
    ///
    /// # Errors
    /// Those of [`next`](Body::next).
    ///
    /// # Cancel safety
    /// Nothing but skipped bytes is lost when the future is dropped.
    pub async fn skip(&mut self) -> Result<()> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    /// Waits for more bytes; returns false when the peer has shut down and the body ends with that.
    async fn fill(&mut self) -> Result<bool> {
        if self.waits_for_continue.replace(false) {
            let timeout = self.state.pace.and_then(|pace| pace.write_timeout());
            transport::write_all(self.stream, timeout, b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let received = match &mut self.state.pace {
            Some(pace) => pace.recv(self.stream).await?,
            None => transport::recv(self.stream).await?,
        };
        match received {
            Some(piece) => {
                self.state.piece = Some(piece);
                self.state.at = 0;
                Ok(true)
            }
            None if matches!(self.state.rest, Rest::UntilClose) => {
                self.state.rest = Rest::Done;
                Ok(false)
            }
            None => Err(Error::UnexpectedEnd),
        }
    }
}
