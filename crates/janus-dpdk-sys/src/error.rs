//! DPDK's error codes as an error type. Nothing else.

use std::ffi::{CStr, c_int};
use std::fmt;

use crate::ffi;

/// A negative errno value, as the shim's functions answer it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error(pub c_int);

/// Turns what a function of the shim answered into a result.
pub fn check(answer: c_int) -> Result<c_int, Error> {
    if answer < 0 {
        Err(Error(answer))
    } else {
        Ok(answer)
    }
}

/// The name and version of the DPDK that is linked.
pub fn version() -> &'static str {
    // SAFETY: needs no initialisation and returns a string that is never freed.
    let text = unsafe { CStr::from_ptr(ffi::jd_version()) };
    text.to_str().unwrap_or("DPDK")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: never null; points to a literal or to a buffer of this thread that only its own next call changes.
        let text = unsafe { CStr::from_ptr(ffi::jd_error_text(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({})", self.0)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_words() {
        crate::load().expect("the shim");
        assert_eq!(check(3), Ok(3));
        assert_eq!(check(-22).unwrap_err().to_string(), "Invalid argument");
        assert!(format!("{:?}", Error(-1001)).ends_with("(-1001)"));
        assert!(version().starts_with("DPDK "), "{}", version());
    }
}
