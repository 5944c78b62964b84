//! A piece of memory that two processes map: a sealed memfd. Reached by copies and by single words, never by references to bytes that the
//! other side may change.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU32;

use janus_mem::unforked;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::Violation;
use crate::kept::Kept;

/// A word that both sides reach. Under `--cfg loom` `segment/model.rs` takes this file's place.
pub(crate) type Word = AtomicU32;
pub(crate) use std::sync::atomic::fence;
/// TMPFS_MAGIC: memory in ordinary pages.
const TMPFS: i64 = 0x0102_1994;
/// Neither side can make it smaller, which would kill who reads beyond the end, nor larger.
const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Memory of a fixed length that another process can have too.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
    fd: Kept,
}

// SAFETY: the mapping belongs to the value, and is reached by raw copies and by atomics only.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes one, all zero.
    ///
    /// # Errors
    /// The system's; InvalidInput for a length of 0.
    pub fn create(name: &str, len: usize) -> io::Result<Segment> {
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, len as u64)?;
        fcntl_add_seals(&fd, FIXED | SealFlags::SEAL)?;
        Segment::map(fd, len)
    }

    /// Maps one that came from another process, which says that it has this length.
    ///
    /// # Errors
    /// InvalidData: it is no sealed memfd of this length, or one of reserved huge pages, whose lack kills who reaches for one.
    pub fn open(fd: OwnedFd, len: usize) -> io::Result<Segment> {
        // Only a memfd has seals.
        let sealed = fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(FIXED));
        // Asked for once it can change no more.
        let as_long =
            sealed && fstatfs(&fd)?.f_type == TMPFS && fstat(&fd)?.st_size == len as i64 && len > 0;
        if !as_long {
            let text = format!("no sealed memory of {len} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Segment::map(fd, len)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<Segment> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice aliases nothing.
        let base = unsafe { mmap(null_mut(), len, rights, MapFlags::SHARED, &fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        unforked::keep_from_children(base, len);
        let fd = Kept::new(fd);
        Ok(Segment { base, len, fd })
    }

    /// Its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether so many bytes are in it from there on.
    ///
    /// # Errors
    /// [`Violation::Outside`].
    pub fn check(&self, offset: u64, len: u64) -> Result<usize, Violation> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len as u64 => Ok(offset as usize),
            _ => Err(Violation::Outside { offset, len }),
        }
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// [`Violation::Outside`].
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Violation> {
        let at = self.check(offset, into.len() as u64)?;
        // SAFETY: the bytes are in the mapping, as was checked. The other side may write them meanwhile: then the copy is a mixture, which its
        // reader must expect of whoever wrote it.
        unsafe {
            self.base
                .add(at)
                .copy_to_nonoverlapping(NonNull::new_unchecked(into.as_mut_ptr()), into.len())
        };
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// [`Violation::Outside`].
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Violation> {
        let at = self.check(offset, from.len() as u64)?;
        // SAFETY: as for reading.
        unsafe {
            self.base
                .as_ptr()
                .add(at)
                .copy_from_nonoverlapping(from.as_ptr(), from.len())
        };
        Ok(())
    }

    /// Says that the bytes at this offset will be wanted soon.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        janus_mem::prefetch(self.base.as_ptr().wrapping_add(offset as usize));
    }

    /// A word of it.
    ///
    /// # Errors
    /// [`Violation::Outside`], also of one that is not aligned.
    pub fn word(&self, offset: u64) -> Result<&AtomicU32, Violation> {
        let at = self.check(offset, 4)?;
        if !offset.is_multiple_of(4) {
            return Err(Violation::Outside { offset, len: 4 });
        }
        // SAFETY: the word is in the mapping and aligned, as a mapping begins at a page; it lasts as long as the segment.
        Ok(unsafe { self.base.add(at).cast::<AtomicU32>().as_ref() })
    }
}

/// To be sent to the other process.
impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        unforked::forget(self.base);
        // SAFETY: the mapping is the value's, and nothing borrows from it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::dup;
    use std::sync::atomic::Ordering;

    #[test]
    fn both_sides_see_what_is_written() {
        let ours = Segment::create("test", 8192).unwrap();
        let theirs = Segment::open(dup(&ours).unwrap(), 8192).unwrap();
        ours.write(4000, b"across a page").unwrap();
        let mut seen = [0; 13];
        theirs.read(4000, &mut seen).unwrap();
        assert_eq!(&seen, b"across a page");
        theirs.word(8188).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(ours.word(8188).unwrap().load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_lies_outside_is_not_reached() {
        let segment = Segment::create("test", 100).unwrap();
        for (offset, len) in [(0, 101), (100, 1), (u64::MAX, 1), (1, u64::MAX), (99, 2)] {
            let refused = segment.check(offset, len).unwrap_err();
            assert_eq!(refused, Violation::Outside { offset, len });
        }
        assert!(segment.read(90, &mut [0; 11]).is_err());
        assert!(segment.write(90, &[0; 11]).is_err());
        assert!(segment.word(2).is_err(), "not aligned");
        assert!(segment.word(98).is_err());
        assert!(segment.read(100, &mut []).is_ok());
    }

    #[test]
    fn only_sealed_memory_of_the_length_it_is_said_to_have_is_taken() {
        let open = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&open, 4096).unwrap();
        assert!(
            Segment::open(dup(&open).unwrap(), 4096).is_err(),
            "not sealed"
        );
        fcntl_add_seals(&open, SealFlags::SHRINK).unwrap();
        assert!(
            Segment::open(dup(&open).unwrap(), 4096).is_err(),
            "could grow"
        );
        fcntl_add_seals(&open, SealFlags::GROW).unwrap();
        assert!(
            Segment::open(dup(&open).unwrap(), 8192).is_err(),
            "not as long"
        );
        assert!(Segment::open(dup(&open).unwrap(), 0).is_err());
        Segment::open(open, 4096).unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let len = file.metadata().unwrap().len() as usize;
        assert!(Segment::open(file.into(), len).is_err(), "a file");
        assert!(Segment::create("test", 0).is_err());
    }

    #[test]
    fn a_forked_child_does_not_have_it() {
        let segment = Segment::create("test", 4096).unwrap();
        let begins = format!("{:x}-", segment.base.addr());
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut its = maps.lines().skip_while(|line| !line.starts_with(&begins));
        let flags = its.find_map(|line| line.strip_prefix("VmFlags: "));
        let flags = flags.expect("what the kernel says of it");
        assert!(flags.split(' ').any(|flag| flag == "dc"), "{flags}");
    }
}
