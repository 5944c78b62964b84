//! Vectors of buffers, and one buffer as the shortest of them.

use super::memory::UserPtr;
use janus_posix::Errno;

/// `UIO_MAXIOV`.
pub(crate) const IOV_MAX: usize = 1_024;
/// `sizeof(struct iovec)`.
const IOVEC_LEN: usize = 2 * size_of::<usize>();
/// Most bytes that one call reads; it is more than the largest buffer of a socket holds.
pub(crate) const READ_MAX: usize = 16 << 20;
/// Most bytes that one call writes: half of Linux's MAX_RW_COUNT.
pub(crate) const WRITE_MAX: usize = 1 << 30;

/// Buffers of the caller, one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Buffers {
    spans: Vec<(UserPtr, usize)>,
    len: usize,
}

impl Buffers {
    pub(crate) fn one(pointer: UserPtr, len: usize) -> Buffers {
        Buffers {
            spans: vec![(pointer, len)],
            len,
        }
    }

    /// The vector at `pointer`, with the kernel's bounds (import_iovec).
    pub(crate) fn read(pointer: UserPtr, count: usize) -> Result<Buffers, Errno> {
        if count > IOV_MAX {
            return Err(Errno::EINVAL);
        }
        let bytes = pointer.bytes(count * IOVEC_LEN)?;
        let mut buffers = Buffers {
            spans: Vec::with_capacity(count),
            len: 0,
        };
        for entry in bytes.chunks_exact(IOVEC_LEN) {
            let (base, len) = entry.split_at(IOVEC_LEN / 2);
            let word = |bytes: &[u8]| usize::from_ne_bytes(*bytes.first_chunk().unwrap_or(&[0; 8]));
            let (base, len) = (word(base), word(len));
            if isize::try_from(len).is_err() {
                return Err(Errno::EINVAL);
            }
            // SAFETY: the caller gave the vector away, and with it what it names.
            buffers
                .spans
                .push((unsafe { UserPtr::from_address(base) }, len));
            buffers.len = buffers.len.saturating_add(len);
        }
        if isize::try_from(buffers.len).is_err() {
            return Err(Errno::EINVAL);
        }
        Ok(buffers)
    }

    /// Bytes in all of them.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The pieces that hold the first `len` bytes.
    fn pieces(&self, len: usize) -> impl Iterator<Item = (UserPtr, usize)> {
        let mut left = len;
        self.spans.iter().filter_map(move |&(pointer, len)| {
            let here = len.min(left);
            left -= here;
            (here > 0).then_some((pointer, here))
        })
    }

    /// The first bytes, at most `most`. What cannot be read ends them; if that is all, the address is bad.
    pub(crate) fn gather(&self, most: usize) -> Result<Vec<u8>, Errno> {
        let wanted = most.min(self.len);
        let mut bytes = vec![0; wanted];
        let mut done = 0;
        for (pointer, len) in self.pieces(wanted) {
            let n = pointer.read_some(&mut bytes[done..done + len]);
            done += n;
            if n < len {
                break;
            }
        }
        if done == 0 && wanted > 0 {
            return Err(Errno::EFAULT);
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// How many of the first `most` bytes may be written to. They are written to, with what is there.
    pub(crate) fn writable(&self, most: usize) -> usize {
        let mut done = 0;
        for (pointer, len) in self.pieces(most) {
            let mut there = vec![0; len];
            let n = pointer.read_some(&mut there);
            let n = pointer.write_some(&there[..n]);
            done += n;
            if n < len {
                break;
            }
        }
        done
    }

    /// Puts bytes at the front; says how many found a place, unless none did and that is because of an address.
    pub(crate) fn scatter(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut done = 0;
        for (pointer, len) in self.pieces(bytes.len()) {
            let n = pointer.write_some(&bytes[done..done + len]);
            done += n;
            if n < len {
                break;
            }
        }
        if done == 0 && !bytes.is_empty() && self.len > 0 {
            return Err(Errno::EFAULT);
        }
        Ok(done)
    }
}
