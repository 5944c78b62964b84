//! The body of a message, lent out in the buffers it arrives in. Which framing a body has is decided in
//! [`crate::framing`]; what is in it is the reader's matter.

use std::cell::Cell;

use crate::chunked::{Decoder, Step};
use crate::framing::Length;
use crate::input::Input;
use crate::pace::Pace;
use crate::transport::{self, Transport};
use crate::{Error, Reject, Result};

/// What is still to come of a body.
#[derive(Clone, Copy, Debug)]
enum Rest {
    Sized(u64),
    Chunked(Decoder),
    UntilClose,
    Done,
}

impl Rest {
    /// The data at the start of `input`, if there is any, and how much of the input that and its framing are.
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

/// Progress through one body. Kept beside the [`Body`] that readers get, so that what they leave can be passed over.
pub(crate) struct BodyState<P> {
    rest: Rest,
    /// Bytes taken of what arrived together with the head.
    used: usize,
    /// What arrived later, and how much of it is taken.
    piece: Option<P>,
    at: usize,
    /// Data bytes that may still be read.
    allowance: u64,
    /// The bounds on its sender, on a server.
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

    /// The bytes that are left, where the sender said how many.
    pub(crate) const fn remaining(&self) -> Option<u64> {
        match self.rest {
            Rest::Sized(n) => Some(n),
            Rest::Done => Some(0),
            Rest::Chunked(_) | Rest::UntilClose => None,
        }
    }

    /// Allows so many bytes from here on, whatever was allowed before.
    pub(crate) fn allow(&mut self, bytes: u64) {
        self.allowance = bytes;
    }
}

impl<P: core::ops::Deref<Target = [u8]>> BodyState<P> {
    /// Takes what it can from the bytes that are there; the step's data is a range of the buffer they are in.
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

    /// All that has arrived was taken.
    fn is_dry(&self, first: &[u8]) -> bool {
        match &self.piece {
            Some(piece) => self.at >= piece.len(),
            None => self.used >= first.len(),
        }
    }

    /// Takes head and body away from `input` and leaves there what belongs to the next message.
    pub(crate) fn leave(self, input: &mut Input<P>, head: usize) {
        match self.piece {
            Some(piece) => input.replace(piece, self.at),
            None => input.consume(head + self.used),
        }
    }
}

/// The body of a message as it is read.
pub struct Body<'a, S: Transport> {
    stream: &'a S,
    /// What arrived together with the head.
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

    /// There is nothing left to read.
    pub const fn is_done(&self) -> bool {
        self.state.is_done()
    }

    /// The bytes that are left, where the sender said how many.
    pub const fn remaining(&self) -> Option<u64> {
        self.state.remaining()
    }

    /// The next bytes of the body, in the buffer they arrived in; `None` when it is complete.
    pub async fn next(&mut self) -> Result<Option<&[u8]>> {
        Body::new(self.stream, self.first, self.state, self.waits_for_continue)
            .into_next()
            .await
    }

    /// [`Body::next`] for a body that was made for one call.
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

    /// Adds the rest of the body to `into`.
    pub async fn read_to_end(&mut self, into: &mut Vec<u8>) -> Result<()> {
        while let Some(bytes) = self.next().await? {
            into.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Reads the rest of the body and throws it away.
    pub async fn skip(&mut self) -> Result<()> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    /// Waits for more; false when the peer has ended and that is how the body ends.
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
