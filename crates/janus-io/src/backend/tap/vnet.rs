//! The ten bytes in front of every frame of an interface with offloads: the kernel's `struct virtio_net_hdr`, in the machine's
//! byte order.

/// Bytes of it.
pub(super) const LEN: usize = 10;

/// The transport checksum is not filled in: the field holds the sum of the pseudo header.
const NEEDS_CHECKSUM: u8 = 1;
/// The transport checksum was checked.
const DATA_VALID: u8 = 2;
/// The window was reduced: the first segment says so.
const ECN: u8 = 0x80;

/// Kind of joined packet that a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Joined {
    /// A single packet.
    #[default]
    No,
    /// Segments of TCP over IPv4.
    Tcp4,
    /// Segments of TCP over IPv6.
    Tcp6,
    /// A kind that the kernel was not asked for.
    Unknown,
}

/// Header before a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    flags: u8,
    pub(super) joined: Joined,
    /// Bytes of all headers, where segments are joined; a hint.
    pub(super) headers: u16,
    /// Payload of each segment.
    pub(super) size: u16,
    checksum_from: u16,
    checksum_at: u16,
}

impl Header {
    /// The checksum of what begins at `from` is to be filled in, `at` bytes behind.
    pub(super) fn with_checksum(self, from: usize, at: usize) -> Header {
        Header {
            flags: NEEDS_CHECKSUM,
            checksum_from: from as u16,
            checksum_at: at as u16,
            ..self
        }
    }

    /// The frame is to be cut into segments.
    pub(super) fn with_segments(self, v6: bool, headers: usize, size: usize) -> Header {
        Header {
            joined: if v6 { Joined::Tcp6 } else { Joined::Tcp4 },
            headers: headers as u16,
            size: size as u16,
            ..self
        }
    }

    /// The kernel vouches for the transport checksum: it made the packet, or looked.
    pub(super) fn is_checked(&self) -> bool {
        self.flags & (NEEDS_CHECKSUM | DATA_VALID) != 0
    }

    pub(super) fn to_bytes(self) -> [u8; LEN] {
        let joined = match self.joined {
            Joined::No | Joined::Unknown => 0,
            Joined::Tcp4 => 1,
            Joined::Tcp6 => 4,
        };
        let mut bytes = [0; LEN];
        bytes[..2].copy_from_slice(&[self.flags, joined]);
        let words = [
            self.headers,
            self.size,
            self.checksum_from,
            self.checksum_at,
        ];
        for (place, word) in bytes[2..].as_chunks_mut::<2>().0.iter_mut().zip(words) {
            *place = word.to_ne_bytes();
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; LEN]) -> Header {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Header {
            flags: bytes[0],
            joined: match bytes[1] & !ECN {
                0 => Joined::No,
                1 => Joined::Tcp4,
                4 => Joined::Tcp6,
                _ => Joined::Unknown,
            },
            headers: word(2),
            size: word(4),
            checksum_from: word(6),
            checksum_at: word(8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_round() {
        let header = Header::default()
            .with_checksum(34, 16)
            .with_segments(true, 66, 1448);
        assert!(header.is_checked() && !Header::default().is_checked());
        assert_eq!(Header::from_bytes(header.to_bytes()), header);
        let mut bytes = header.to_bytes();
        assert_eq!(bytes[..2], [1, 4]);
        bytes[1] = 1 | ECN;
        assert_eq!(Header::from_bytes(bytes).joined, Joined::Tcp4);
        bytes[1] = 5;
        assert_eq!(Header::from_bytes(bytes).joined, Joined::Unknown);
    }
}
