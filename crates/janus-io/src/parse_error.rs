//! The error of text that names addresses, networks or ports. Reading the text is its type's; only the message lives here.

use std::fmt;

/// Text that was not understood. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl ParseError {
    /// Makes an error of a message that says what to write instead.
    #[must_use]
    pub fn new(message: impl Into<String>) -> ParseError {
        ParseError(message.into())
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}
