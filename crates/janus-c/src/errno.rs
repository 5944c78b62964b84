//! How a C function says that it failed: -1, and the reason in the calling thread's `errno`.

use janus_process::{Errno, Result};
use libc::{c_int, ssize_t};

/// Sets the calling thread's `errno`; what the function returns then.
pub fn fail(error: Errno) -> c_int {
    // SAFETY: the function gives the address of an int that belongs to the calling thread.
    unsafe { *libc::__errno_location() = error.0 };
    -1
}

/// 0, or the error.
pub(crate) fn done(result: Result<()>) -> c_int {
    number(result.map(|()| 0))
}

pub(crate) fn number(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(fail)
}

pub(crate) fn size(result: Result<usize>) -> ssize_t {
    match result {
        Ok(size) => size as ssize_t,
        Err(error) => fail(error) as ssize_t,
    }
}
