//! Pointers that a caller hands in, followed as the kernel follows them: what is not mapped, or may not be written, is
//! `EFAULT` and never a signal. So the bytes are copied by the kernel, which checks every page.

use core::ffi::c_void;
use janus_posix::Errno;

/// Bytes of the caller, somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UserPtr(usize);

impl UserPtr {
    /// # Safety
    ///
    /// If there is memory at the address, then the caller of the C function gave it away for the length of that call, to
    /// read from or to write to as the function's contract says. A bad address is no harm.
    pub(crate) unsafe fn new<T>(pointer: *const T) -> UserPtr {
        UserPtr(pointer.expose_provenance())
    }

    /// The address found in a structure of the caller, such as a vector of buffers.
    ///
    /// # Safety
    ///
    /// As for [`UserPtr::new`].
    pub(crate) unsafe fn from_address(address: usize) -> UserPtr {
        UserPtr(address)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the pointer moved on by `bytes` bytes.
    pub(crate) fn offset(self, bytes: usize) -> UserPtr {
        UserPtr(self.0.wrapping_add(bytes))
    }

    /// Copies what can be read from here; says how much that is.
    pub(crate) fn read_some(self, into: &mut [u8]) -> usize {
        if into.is_empty() {
            return 0;
        }
        let mine = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        // SAFETY: the kernel writes within `into`, which is borrowed mutably, and checks the other address itself.
        let n = unsafe {
            libc::process_vm_readv(libc::getpid(), &mine, 1, &self.theirs(into.len()), 1, 0)
        };
        if n < 0 && not_for_us() {
            return self.read_unchecked(into);
        }
        usize::try_from(n).unwrap_or(0)
    }

    /// Copies what can be written to here; says how much that is.
    pub(crate) fn write_some(self, from: &[u8]) -> usize {
        if from.is_empty() {
            return 0;
        }
        let mine = libc::iovec {
            iov_base: from.as_ptr().cast_mut().cast(),
            iov_len: from.len(),
        };
        // SAFETY: the kernel reads within `from`, checks the other address itself, and what is there was given away by
        // the caller (`UserPtr::new`).
        let n = unsafe {
            libc::process_vm_writev(libc::getpid(), &mine, 1, &self.theirs(from.len()), 1, 0)
        };
        if n < 0 && not_for_us() {
            return self.write_unchecked(from);
        }
        usize::try_from(n).unwrap_or(0)
    }

    /// Copies all of it, or it is a bad address.
    pub(crate) fn read(self, into: &mut [u8]) -> Result<(), Errno> {
        whole(self.read_some(into), into.len())
    }

    /// Copies all of it, or it is a bad address.
    pub(crate) fn write(self, from: &[u8]) -> Result<(), Errno> {
        whole(self.write_some(from), from.len())
    }

    /// Reads `len` bytes from here.
    pub(crate) fn bytes(self, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// The C `int` here.
    pub(crate) fn int(self) -> Result<i32, Errno> {
        let mut bytes = [0; 4];
        self.read(&mut bytes)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    fn theirs(self, len: usize) -> libc::iovec {
        libc::iovec {
            iov_base: core::ptr::without_provenance_mut::<c_void>(self.0),
            iov_len: len,
        }
    }

    /// Where the kernel will not copy for a process: only NULL is caught.
    fn read_unchecked(self, into: &mut [u8]) -> usize {
        if self.is_null() {
            return 0;
        }
        let from = core::ptr::with_exposed_provenance::<u8>(self.0);
        // SAFETY: the caller says that so many bytes are there (`UserPtr::new`); `into` is ours alone.
        unsafe { core::ptr::copy(from, into.as_mut_ptr(), into.len()) };
        into.len()
    }

    /// As `read_unchecked`.
    fn write_unchecked(self, from: &[u8]) -> usize {
        if self.is_null() {
            return 0;
        }
        let to = core::ptr::with_exposed_provenance_mut::<u8>(self.0);
        // SAFETY: the caller says that so many bytes may be written there (`UserPtr::new`).
        unsafe { core::ptr::copy(from.as_ptr(), to, from.len()) };
        from.len()
    }
}

fn whole(copied: usize, len: usize) -> Result<(), Errno> {
    if copied == len {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

/// Whether the system call itself is forbidden or missing, as under some sandboxes.
fn not_for_us() -> bool {
    let error = std::io::Error::last_os_error().raw_os_error();
    matches!(error, Some(libc::ENOSYS | libc::EPERM))
}
