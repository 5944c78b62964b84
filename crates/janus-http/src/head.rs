//! Message heads: the places of method, target and headers in the received bytes. The index holds offsets, not references, so that it can
//! be reused from request to request. [`crate::framing`] evaluates what the headers mean for the body.

use core::mem::MaybeUninit;

use crate::Reject;

/// Most header lines in a head; [`Reject::HeadTooLarge`] beyond.
pub const HEADERS_MAX: usize = 64;
/// Bytes of the longest head that offsets of 16 bits can describe.
pub const BYTES_MAX: usize = u16::MAX as usize;

#[derive(Clone, Copy, Default, Debug)]
struct Span {
    at: u16,
    len: u16,
}

impl Span {
    /// Returns the place of `part` in `whole`, of which it is a slice.
    #[inline]
    fn of(part: &[u8], whole: &[u8]) -> Self {
        let at = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        debug_assert!(at + part.len() <= whole.len());
        Self {
            at: at as u16,
            len: part.len() as u16,
        }
    }

    /// Returns the bytes; empty if `whole` is not the slice that the span was made from.
    #[inline]
    fn get(self, whole: &[u8]) -> &[u8] {
        let at = usize::from(self.at);
        whole
            .get(at..at + usize::from(self.len))
            .unwrap_or_default()
    }

    #[inline]
    fn text(self, whole: &[u8]) -> &str {
        str::from_utf8(self.get(whole)).unwrap_or_default()
    }
}

/// Result of parsing a part of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The head is complete.
    Whole,
    /// More bytes are needed.
    Partial,
}

/// Places of the parts of one head.
#[derive(Debug)]
pub struct HeadIndex {
    method: Span,
    target: Span,
    minor: u8,
    status: u16,
    len: u16,
    count: u8,
    headers: [(Span, Span); HEADERS_MAX],
}

impl Default for HeadIndex {
    fn default() -> Self {
        Self {
            method: Span::default(),
            target: Span::default(),
            minor: 1,
            status: 0,
            len: 0,
            count: 0,
            headers: [(Span::default(), Span::default()); HEADERS_MAX],
        }
    }
}

impl HeadIndex {
    /// Parses a request head at the start of `bytes`, of which the first `limit` may belong to it.
    ///
    /// # Errors
    /// The reason for which the head is refused.
    pub fn parse_request(&mut self, bytes: &[u8], limit: usize) -> Result<Progress, Reject> {
        let window = &bytes[..bytes.len().min(limit.min(BYTES_MAX))];
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let len = match request.parse_with_uninit_headers(window, &mut headers) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return partial(window, bytes.len(), limit),
            Err(error) => return Err(refused(error, window)),
        };
        self.method = Span::of(request.method.unwrap_or_default().as_bytes(), window);
        self.target = Span::of(request.path.unwrap_or_default().as_bytes(), window);
        self.minor = request.version.unwrap_or(0);
        self.len = len as u16;
        self.keep_headers(request.headers, window);
        Ok(Progress::Whole)
    }

    /// Parses a response head at the start of `bytes`, of which the first `limit` may belong to it.
    ///
    /// # Errors
    /// The reason for which the head is refused.
    pub fn parse_response(&mut self, bytes: &[u8], limit: usize) -> Result<Progress, Reject> {
        let window = &bytes[..bytes.len().min(limit.min(BYTES_MAX))];
        let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            window,
            &mut headers,
        );
        let len = match parsed {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return partial(window, bytes.len(), limit),
            Err(httparse::Error::TooManyHeaders) => return Err(Reject::HeadTooLarge),
            Err(httparse::Error::Version) => return Err(Reject::Version),
            Err(_) => return Err(Reject::Syntax),
        };
        self.status = response.code.unwrap_or(0);
        self.minor = response.version.unwrap_or(0);
        self.len = len as u16;
        self.keep_headers(response.headers, window);
        Ok(Progress::Whole)
    }

    fn keep_headers(&mut self, headers: &[httparse::Header<'_>], window: &[u8]) {
        self.count = 0;
        for (place, header) in self.headers.iter_mut().zip(headers) {
            *place = (
                Span::of(header.name.as_bytes(), window),
                Span::of(header.value, window),
            );
            self.count += 1;
        }
    }

    /// Returns the bytes of the head, its empty line included.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether no head was parsed yet.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the minor version: 0 or 1.
    #[inline]
    pub const fn minor(&self) -> u8 {
        self.minor
    }

    /// Returns the status of a response.
    #[inline]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Returns the method of a request, as it was written.
    #[inline]
    pub fn method<'b>(&self, bytes: &'b [u8]) -> &'b str {
        self.method.text(bytes)
    }

    /// Returns whether a request has this method. Methods are case-sensitive.
    #[inline]
    pub fn has_method(&self, bytes: &[u8], method: &str) -> bool {
        self.method.get(bytes) == method.as_bytes()
    }

    /// Returns the target of a request, as it was written.
    #[inline]
    pub fn target<'b>(&self, bytes: &'b [u8]) -> &'b str {
        self.target.text(bytes)
    }

    /// Returns names and values in the order in which they came.
    #[inline]
    pub fn headers<'b>(
        &self,
        bytes: &'b [u8],
    ) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + use<'b, '_> {
        self.headers[..usize::from(self.count)]
            .iter()
            .map(move |(name, value)| (name.get(bytes), value.get(bytes)))
    }

    /// Returns the first value of the header `name`, compared without case.
    pub fn header<'b>(&self, bytes: &'b [u8], name: &str) -> Option<&'b [u8]> {
        self.headers(bytes)
            .find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}

/// Asks for more bytes, unless the limit is reached: then the head, or even its first line, is too long.
fn partial(window: &[u8], there: usize, limit: usize) -> Result<Progress, Reject> {
    if there < limit.min(BYTES_MAX) {
        return Ok(Progress::Partial);
    }
    let first_line_ended = window.trim_ascii_start().contains(&b'\n');
    Err(if first_line_ended {
        Reject::HeadTooLarge
    } else {
        Reject::TargetTooLong
    })
}

#[cold]
fn refused(error: httparse::Error, window: &[u8]) -> Reject {
    match error {
        httparse::Error::TooManyHeaders => Reject::HeadTooLarge,
        httparse::Error::Version if names_another_version(window) => Reject::Version,
        _ => Reject::Syntax,
    }
}

/// Returns whether the request line ends in a well-formed version other than 1.0 and 1.1 (RFC 9112 section 2.3).
fn names_another_version(window: &[u8]) -> bool {
    let line = window
        .trim_ascii_start()
        .split(|b| *b == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii_end();
    let word = line.rsplit(|b| *b == b' ').next().unwrap_or_default();
    matches!(word, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit())
}

/// Finds the empty line that ends the head at the start of `bytes`, so that a head that comes byte by byte is parsed once and not once a
/// byte. `from` is how far an earlier call has searched; the second value is where the next call goes on.
pub fn find_end(bytes: &[u8], from: usize) -> (bool, usize) {
    let mut at = from;
    while let Some(newline) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(|b| *b == b'\n'))
    {
        let after = at + newline + 1;
        match bytes.get(after..) {
            Some([b'\n', ..] | [b'\r', b'\n', ..]) => return (true, after),
            // Undecided: this line's end is checked again when more bytes have come.
            Some([] | [b'\r']) => return (false, after - 1),
            _ => at = after,
        }
    }
    (false, bytes.len())
}

#[cfg(test)]
mod tests;
