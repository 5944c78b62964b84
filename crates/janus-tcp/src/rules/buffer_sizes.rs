//! Sizes of buffers that change while the stack runs. The unit in which windows are offered does not: a SYN said it, and what is
//! half open, or answered with a cookie, keeps no other note of it.

#[cfg(test)]
mod tests;

use crate::rules::config::{Config, scale_for};

/// Buffer sizes of connections whose options set none: see the fields of [`Config`] with the same names.
/// Exhaustive: all four sizes belong together, in a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// [`Config::receive_buffer`].
    pub receive: u32,
    /// [`Config::receive_buffer_max`].
    pub receive_max: u32,
    /// [`Config::send_buffer`].
    pub send: u32,
    /// [`Config::send_buffer_max`].
    pub send_max: u32,
}

impl BufferSizes {
    /// Whether a stack that began with `first` can offer the windows of these whole.
    pub fn can_follow(&self, first: &BufferSizes) -> bool {
        self.scale() <= first.scale()
    }

    /// The shift that lets a 16-bit window name the whole receive buffer (RFC 7323 section 2).
    pub(crate) fn scale(&self) -> u8 {
        scale_for(self.receive.max(self.receive_max))
    }
}

impl Config {
    /// Its sizes of buffers.
    pub fn buffer_sizes(&self) -> BufferSizes {
        BufferSizes {
            receive: self.receive_buffer,
            receive_max: self.receive_buffer_max,
            send: self.send_buffer,
            send_max: self.send_buffer_max,
        }
    }

    /// With these instead.
    #[must_use]
    pub fn with_buffer_sizes(self, sizes: BufferSizes) -> Config {
        Config {
            receive_buffer: sizes.receive,
            receive_buffer_max: sizes.receive_max,
            send_buffer: sizes.send,
            send_buffer_max: sizes.send_max,
            ..self
        }
    }
}
