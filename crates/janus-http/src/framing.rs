//! Framing of a message by its head: how the body ends, whether the connection is kept, whether the client waits for 100 (RFC 9112
//! sections 6, 9.3; RFC 9110 section 10.1.1). An ambiguous length is refused: a proxy in front may have read it the other way.

use crate::Reject;
use crate::head::HeadIndex;

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// This many bytes; 0 when there is no body.
    Sized(u64),
    /// In chunks.
    Chunked,
    /// Up to the end of the connection; responses only.
    UntilClose,
}

/// Framing of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Framing {
    /// The body's length.
    pub length: Length,
    /// Whether the sender keeps the connection.
    pub keep_alive: bool,
    /// Whether the client waits for 100 before it sends the body.
    pub expects_continue: bool,
}

/// Values of the headers that matter here, before they are compared.
#[derive(Default)]
struct Found {
    content_length: Option<u64>,
    transfer: Transfer,
    hosts: u32,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Transfer {
    #[default]
    Absent,
    Chunked,
    /// Unknown codings, without `chunked` after them so far.
    Unknown,
    /// Unknown codings, then `chunked`: a complete message, but not one that we can decode.
    UnknownChunked,
}

impl Found {
    fn read(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        // The length rules out nearly every other header before a byte is compared.
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts += 1,
            6 if name.eq_ignore_ascii_case(b"expect") => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Reject::Expectation);
                }
                self.expects_continue = true;
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in list(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                // RFC 9112 section 6.3 lets a recipient join equal values; an honest client sends one.
                if self.content_length.is_some() {
                    return Err(Reject::Framing);
                }
                self.content_length = Some(number(value)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                for coding in list(value) {
                    self.transfer = self.transfer.then(coding)?;
                }
                if self.transfer == Transfer::Absent {
                    return Err(Reject::Framing); // an empty list
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the length of the body, if the headers decide it.
    fn length(&self, minor: u8) -> Result<Option<Length>, Reject> {
        if self.transfer == Transfer::Absent {
            return Ok(self.content_length.map(Length::Sized));
        }
        // RFC 9112 section 6.1: both are an attack until proven otherwise, and 1.0 never had transfer codings.
        if self.content_length.is_some() || minor == 0 {
            return Err(Reject::Framing);
        }
        match self.transfer {
            Transfer::Chunked => Ok(Some(Length::Chunked)),
            Transfer::UnknownChunked => Err(Reject::NotImplemented),
            Transfer::Unknown | Transfer::Absent => Err(Reject::Framing),
        }
    }

    const fn goes_on(&self, minor: u8) -> bool {
        !self.close && (minor >= 1 || self.keep_alive)
    }
}

impl Transfer {
    fn then(self, coding: &[u8]) -> Result<Self, Reject> {
        let chunked = coding.eq_ignore_ascii_case(b"chunked");
        match (self, chunked) {
            (Self::Absent, true) => Ok(Self::Chunked),
            (Self::Absent | Self::Unknown, false) => Ok(Self::Unknown),
            (Self::Unknown, true) => Ok(Self::UnknownChunked),
            // `chunked` must come last and once.
            (Self::Chunked | Self::UnknownChunked, _) => Err(Reject::Framing),
        }
    }
}

/// Evaluates the headers of a request.
///
/// # Errors
/// [`Reject::Framing`], [`Reject::Host`], [`Reject::Expectation`] or [`Reject::NotImplemented`].
#[inline]
pub fn of_request(head: &HeadIndex, bytes: &[u8]) -> Result<Framing, Reject> {
    let mut found = Found::default();
    for (name, value) in head.headers(bytes) {
        found.read(name, value)?;
    }
    let minor = head.minor();
    if found.hosts > 1 || (found.hosts == 0 && minor >= 1) {
        return Err(Reject::Host);
    }
    let length = found.length(minor)?.unwrap_or(Length::Sized(0));
    if head.has_method(bytes, "CONNECT") {
        return Err(Reject::NotImplemented);
    }
    Ok(Framing {
        length,
        keep_alive: found.goes_on(minor),
        // RFC 9110 section 10.1.1: ignored from 1.0 clients; without a body there is nothing to wait for.
        expects_continue: found.expects_continue && minor >= 1 && length != Length::Sized(0),
    })
}

/// Evaluates the headers of a response; `to_head`: the request's method was `HEAD`.
///
/// # Errors
/// [`Reject::Framing`] or [`Reject::NotImplemented`].
pub fn of_response(head: &HeadIndex, bytes: &[u8], to_head: bool) -> Result<Framing, Reject> {
    let mut found = Found::default();
    for (name, value) in head.headers(bytes) {
        match found.read(name, value) {
            // Has no meaning in a response.
            Err(Reject::Expectation) => {}
            other => other?,
        }
    }
    let minor = head.minor();
    let bodyless = to_head || matches!(head.status(), 100..=199 | 204 | 304);
    let length = match found.length(minor)? {
        _ if bodyless => Length::Sized(0),
        Some(length) => length,
        None => Length::UntilClose,
    };
    let keep_alive = found.goes_on(minor) && length != Length::UntilClose;
    Ok(Framing {
        length,
        keep_alive,
        expects_continue: false,
    })
}

/// Returns the elements of a comma list without empty ones (RFC 9110 section 5.6.1).
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// Parses digits and nothing else: no sign, no list, no space inside.
fn number(value: &[u8]) -> Result<u64, Reject> {
    if value.is_empty() {
        return Err(Reject::Framing);
    }
    let mut number = 0u64;
    for byte in value {
        if !byte.is_ascii_digit() {
            return Err(Reject::Framing);
        }
        // A number beyond 64 bits is valid syntax, and too large for any limit.
        number = number
            .checked_mul(10)
            .and_then(|n| n.checked_add(u64::from(byte - b'0')))
            .ok_or(Reject::BodyTooLarge)?;
    }
    Ok(number)
}

#[cfg(test)]
mod tests;
