//! Bytes in the packet buffer that they lie in, as an application receives and gives them.

use janus_mem::PacketBuf;

/// Bytes in a packet buffer: `buf.bytes()[off..off + len]`. Received ones lie where they came in.
#[derive(Debug)]
pub struct Piece {
    /// The buffer.
    pub buf: PacketBuf,
    /// Where the bytes begin.
    pub off: u16,
    /// How many there are.
    pub len: u16,
}

impl Piece {
    pub(crate) fn end(&self) -> usize {
        usize::from(self.off) + usize::from(self.len)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buf.bytes()[usize::from(self.off)..self.end()]
    }
}
