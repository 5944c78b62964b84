//! The chunked transfer coding (RFC 9112 section 7.1), decoded in place. Strict where a lenient reader would differ from a strict one:
//! line ends are CR LF, sizes are hex digits. Extensions and trailers are skipped, within bounds.

use core::ops::Range;

use crate::Reject;

/// Most hex digits of a chunk size, leading zeros included.
pub const SIZE_DIGITS_MAX: u32 = 15;
/// Most bytes of chunk extensions in one body. No recipient uses their content; they only make a reader work.
pub const EXTENSION_BYTES_MAX: u32 = 4096;
/// Most bytes of trailers after one body.
pub const TRAILER_BYTES_MAX: u32 = 8192;

/// Position of the next byte in the coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// In the digits of a size.
    Size,
    /// In the rest of a size line.
    Extension,
    /// At the LF of a size line.
    SizeLf,
    /// In the data of a chunk.
    Data,
    /// At the CR behind the data.
    DataCr,
    /// At the LF behind the data.
    DataLf,
    /// At the start of a trailer line, or of the last empty line.
    Trailer,
    /// Inside a trailer line.
    TrailerLine,
    /// At the LF of a trailer line.
    TrailerLf,
    /// At the very last LF.
    LastLf,
    /// After it.
    Done,
}

/// Decodes one body, piece by piece as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    at: At,
    size: u64,
    digits: u32,
    extension: u32,
    trailer: u32,
}

/// One step through the input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// Bytes of the input that are used up, data included.
    pub consumed: usize,
    /// Range of the input that is data; empty when more input is needed or the body has ended.
    pub data: Range<usize>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Makes a decoder that stands before the first chunk.
    pub const fn new() -> Self {
        Self {
            at: At::Size,
            size: 0,
            digits: 0,
            extension: 0,
            trailer: 0,
        }
    }

    /// Returns whether the last chunk and its trailers were read.
    #[inline]
    pub const fn is_done(&self) -> bool {
        matches!(self.at, At::Done)
    }

    /// Decodes `input` up to the end of the next run of data, the end of the body, or the end of the input.
    ///
    /// # Errors
    /// [`Reject::Chunk`] for a coding that is malformed or exceeds a bound.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Reject> {
        let mut used = 0;
        while let Some(&byte) = input.get(used) {
            match self.at {
                At::Data => {
                    let len = usize::try_from(self.size)
                        .unwrap_or(usize::MAX)
                        .min(input.len() - used);
                    self.size -= len as u64;
                    if self.size == 0 {
                        self.at = At::DataCr;
                    }
                    return Ok(Step {
                        consumed: used + len,
                        data: used..used + len,
                    });
                }
                At::Done => break,
                _ => {
                    self.line_byte(byte)?;
                    used += 1;
                }
            }
        }
        Ok(Step {
            consumed: used,
            data: used..used,
        })
    }

    fn line_byte(&mut self, byte: u8) -> Result<(), Reject> {
        self.at = match (self.at, byte) {
            (At::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.digits += 1;
                if self.digits > SIZE_DIGITS_MAX {
                    return Err(Reject::Chunk);
                }
                self.size = self.size << 4 | u64::from(digit);
                At::Size
            }
            (At::Size, _) if self.digits == 0 => return Err(Reject::Chunk),
            (At::Size | At::Extension, b'\r') => At::SizeLf,
            (At::Size, b';' | b' ' | b'\t') => self.extension_byte()?,
            (At::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.extension_byte()?,
            (At::SizeLf, b'\n') => {
                self.digits = 0;
                if self.size == 0 {
                    At::Trailer
                } else {
                    At::Data
                }
            }
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size,
            (At::Trailer, b'\r') => At::LastLf,
            (At::Trailer | At::TrailerLine, b'\t' | b' '..=b'~' | 0x80..) => self.trailer_byte()?,
            (At::TrailerLine, b'\r') => At::TrailerLf,
            (At::TrailerLf, b'\n') => At::Trailer,
            (At::LastLf, b'\n') => At::Done,
            _ => return Err(Reject::Chunk),
        };
        Ok(())
    }

    fn extension_byte(&mut self) -> Result<At, Reject> {
        self.extension += 1;
        if self.extension > EXTENSION_BYTES_MAX {
            Err(Reject::Chunk)
        } else {
            Ok(At::Extension)
        }
    }

    fn trailer_byte(&mut self) -> Result<At, Reject> {
        self.trailer += 1;
        if self.trailer > TRAILER_BYTES_MAX {
            Err(Reject::HeadTooLarge)
        } else {
            Ok(At::TrailerLine)
        }
    }
}

#[cfg(test)]
mod tests;
