//! Errors of a connection, and the status with which a refused request is answered.

use std::fmt;
use std::io;

/// Shorthand of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Shorthand within this crate, where results pass through many hands: with an error of one word they are moved in registers.
pub(crate) type Outcome<T> = core::result::Result<T, Box<Error>>;

/// Reason for which a message is refused. Each has the status that the server answers with before it closes the connection; the client
/// reports the same values for responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reject {
    /// Not HTTP, or HTTP with a line that is not allowed.
    Syntax,
    /// More than one length, both length and transfer coding, or a length that is no number (RFC 9112 section 6.3).
    Framing,
    /// A chunk size, extension or trailer that is not allowed (RFC 9112 section 7.1).
    Chunk,
    /// No `Host`, or more than one (RFC 9112 section 3.2).
    Host,
    /// The head did not come in time.
    HeadTimeout,
    /// The body did not come in time, or too slowly.
    BodyTimeout,
    /// The body is longer than the limit.
    BodyTooLarge,
    /// The request line alone is longer than the longest head.
    TargetTooLong,
    /// An expectation other than `100-continue`.
    Expectation,
    /// The head is longer, or has more lines, than the limit.
    HeadTooLarge,
    /// A transfer coding other than `chunked`, or a method that does not apply here.
    NotImplemented,
    /// Another major version of HTTP.
    Version,
}

impl Reject {
    /// Returns the status code of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::Syntax | Self::Framing | Self::Chunk | Self::Host => 400,
            Self::HeadTimeout | Self::BodyTimeout => 408,
            Self::BodyTooLarge => 413,
            Self::TargetTooLong => 414,
            Self::Expectation => 417,
            Self::HeadTooLarge => 431,
            Self::NotImplemented => 501,
            Self::Version => 505,
        }
    }

    /// Returns a sentence for the reader of the answer.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Syntax => "the request is not valid HTTP/1.1",
            Self::Framing => "the length of the body is ambiguous",
            Self::Chunk => "the chunked body is not valid",
            Self::Host => "exactly one Host header is needed",
            Self::HeadTimeout => "the request head took too long",
            Self::BodyTimeout => "the request body took too long",
            Self::BodyTooLarge => "the body is longer than this server takes",
            Self::TargetTooLong => "the request line is longer than this server takes",
            Self::Expectation => "only 100-continue can be expected",
            Self::HeadTooLarge => "the request head is larger than this server takes",
            Self::NotImplemented => "this transfer coding or method is not implemented",
            Self::Version => "only HTTP/1.0 and HTTP/1.1 are spoken",
        }
    }
}

/// Reason for which a connection ended early.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The transport failed.
    Io(io::Error),
    /// The peer sent a message that is refused.
    Rejected(Reject),
    /// The peer shut down in the middle of a message.
    UnexpectedEnd,
    /// The peer acknowledged nothing of the written bytes for too long; the connection is reset.
    Stalled,
    /// A response's body is longer than the client reads at once; the value is the limit in bytes, which
    /// [`Connection::set_body_limit`](crate::Connection::set_body_limit) changes.
    BodyTooLong(u64),
    /// The local caller asked for something that cannot be written: the text says what to do instead.
    Misuse(&'static str),
    /// A handler's own error; see [`Error::other`].
    Handler(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Wraps an error of a handler's own; the client gets status 500 and no detail.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Handler(error.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => fmt::Display::fmt(error, f),
            Self::Rejected(reject) => f.write_str(reject.explanation()),
            Self::UnexpectedEnd => f.write_str("the peer ended in the middle of a message"),
            Self::Stalled => f.write_str("the peer takes nothing of what is written"),
            Self::BodyTooLong(limit) => write!(
                f,
                "the response's body is longer than {limit} bytes: raise `Connection::set_body_limit`, or read it piece by piece with \
                 `Response::next`"
            ),
            Self::Misuse(what) => f.write_str(what),
            Self::Handler(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl From<Box<Self>> for Error {
    fn from(error: Box<Self>) -> Self {
        *error
    }
}

impl From<io::Error> for Box<Error> {
    #[cold]
    fn from(error: io::Error) -> Self {
        Self::new(error.into())
    }
}

impl From<Reject> for Box<Error> {
    #[cold]
    fn from(reject: Reject) -> Self {
        Self::new(reject.into())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Handler(error) => Some(&**error),
            Self::Rejected(_)
            | Self::UnexpectedEnd
            | Self::Stalled
            | Self::BodyTooLong(_)
            | Self::Misuse(_) => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Reject> for Error {
    fn from(reject: Reject) -> Self {
        Self::Rejected(reject)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Io(error) => error,
            Error::Rejected(reject) => Self::new(io::ErrorKind::InvalidData, reject.explanation()),
            Error::UnexpectedEnd => Self::new(io::ErrorKind::UnexpectedEof, error),
            Error::Stalled => Self::new(io::ErrorKind::TimedOut, error),
            Error::BodyTooLong(_) => Self::new(io::ErrorKind::InvalidData, error),
            Error::Misuse(what) => Self::new(io::ErrorKind::InvalidInput, what),
            Error::Handler(error) => Self::other(error),
        }
    }
}
