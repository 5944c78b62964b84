//! Received bytes that are not consumed yet: in the buffer they arrived in while they fit one, copied together only when a head spans
//! several. The caller bounds the length of a head.

use std::ops::Deref;

/// Received bytes of a connection between two messages.
pub(crate) struct Input<P> {
    piece: Option<P>,
    /// Used instead of `piece` when it is not empty.
    carry: Vec<u8>,
    at: usize,
}

impl<P: Deref<Target = [u8]>> Input<P> {
    /// Makes an empty input; `carry` is an empty buffer whose memory is reused.
    pub(crate) fn new(mut carry: Vec<u8>) -> Self {
        carry.clear();
        Self {
            piece: None,
            carry,
            at: 0,
        }
    }

    /// Returns the bytes at hand.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        let whole = match &self.piece {
            _ if !self.carry.is_empty() => &self.carry[..],
            Some(piece) => piece,
            None => &[],
        };
        whole.get(self.at..).unwrap_or_default()
    }

    /// Removes the first `count` bytes.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.at += count;
        if self.bytes().is_empty() {
            self.clear();
        }
    }

    /// Skips empty lines before a message, which are no part of it (RFC 9112 section 2.2).
    #[inline]
    pub(crate) fn skip_empty_lines(&mut self) {
        let ends = self
            .bytes()
            .iter()
            .take_while(|b| matches!(b, b'\r' | b'\n'))
            .count();
        if ends > 0 {
            self.consume(ends);
        }
    }

    /// Appends a piece to the bytes at hand. Copies only if there are any.
    pub(crate) fn push(&mut self, piece: P) {
        if self.bytes().is_empty() {
            self.replace(piece, 0);
            return;
        }
        if let Some(first) = self.piece.take() {
            self.carry.extend_from_slice(&first[self.at..]);
            self.at = 0;
        }
        self.carry.extend_from_slice(&piece);
    }

    /// Replaces all bytes, which are used up, by `piece` from `at` on.
    pub(crate) fn replace(&mut self, piece: P, at: usize) {
        self.clear();
        if at < piece.len() {
            self.piece = Some(piece);
            self.at = at;
        }
    }

    fn clear(&mut self) {
        self.piece = None;
        self.carry.clear();
        self.at = 0;
    }

    /// Returns the buffer, to be reused.
    pub(crate) fn into_carry(self) -> Vec<u8> {
        self.carry
    }
}

#[cfg(test)]
mod tests {
    use super::Input;

    #[test]
    fn one_piece_is_lent_and_two_are_joined() {
        let mut input = Input::<Box<[u8]>>::new(Vec::new());
        assert!(input.bytes().is_empty());
        let piece: Box<[u8]> = b"\r\n\nGET".to_vec().into();
        let address = piece.as_ptr();
        input.push(piece);
        input.skip_empty_lines();
        assert_eq!(
            (input.bytes(), input.bytes().as_ptr()),
            (&b"GET"[..], address.wrapping_add(3))
        );
        input.consume(1);
        input.push(b" /".to_vec().into());
        input.push(b"!".to_vec().into());
        assert_eq!(input.bytes(), b"ET /!");
        input.consume(4);
        assert_eq!(input.bytes(), b"!");
        input.consume(1);
        assert!(input.bytes().is_empty() && input.piece.is_none() && input.carry.is_empty());
        input.replace(b"ab".to_vec().into(), 1);
        assert_eq!(input.bytes(), b"b");
        input.replace(b"ab".to_vec().into(), 2);
        assert!(input.bytes().is_empty());
    }
}
