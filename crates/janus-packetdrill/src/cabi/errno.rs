//! How a C function says that it failed: -1, and the reason in the calling thread's `errno`.

use janus_posix::Errno;

/// Sets the calling thread's `errno`.
pub(crate) fn set(errno: Errno) {
    // SAFETY: the function gives the address of an int that belongs to the calling thread.
    unsafe { *libc::__errno_location() = errno.0 };
}
