//! Answers of calls, and the calls that send or receive.

use std::io::Error;

use libc::{c_int, c_void};

use crate::plan::By;

// glibc's second names.
unsafe extern "C" {
    fn __read(fd: c_int, into: *mut c_void, len: usize) -> isize;
    fn __write(fd: c_int, from: *const c_void, len: usize) -> isize;
}

/// A call's value or minus errno, and the bytes that it gave.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) value: i64,
    pub(crate) bytes: Vec<u8>,
    /// What else it told.
    pub(crate) told: String,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        let mut text = self.value.to_string();
        if !self.bytes.is_empty() {
            let sum = self.bytes.iter().fold(0_u32, |sum, byte| {
                sum.wrapping_mul(0x0100_0193) ^ u32::from(*byte)
            });
            text += &format!(" #{:02x}.. {sum:08x}", self.bytes[0]);
        }
        if !self.told.is_empty() {
            text += " ";
            text += &self.told;
        }
        text
    }
}

pub(crate) fn answer<T: Into<i64>>(value: T) -> Answer {
    let value = match value.into() {
        -1 => -i64::from(Error::last_os_error().raw_os_error().unwrap_or(-1)),
        value => value,
    };
    Answer {
        value,
        ..Answer::default()
    }
}

/// Sends by one of the functions that can.
///
/// # Safety
/// The descriptor may be used.
pub(crate) unsafe fn send(fd: c_int, bytes: &[u8], flags: c_int, by: By) -> isize {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let mut parts = [first, second].map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    let flags = flags | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are there, in two parts that are as long together.
    unsafe {
        match by {
            By::Socket => libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags),
            By::File => __write(fd, bytes.as_ptr().cast(), bytes.len()),
            By::Parts => libc::writev(fd, parts.as_ptr(), 2),
            By::Message => {
                let mut message: libc::msghdr = core::mem::zeroed();
                message.msg_iov = parts.as_mut_ptr();
                message.msg_iovlen = 2;
                libc::sendmsg(fd, &message, flags)
            }
        }
    }
}

/// Receives by one of the functions that can.
pub(crate) fn recv(fd: c_int, len: usize, flags: c_int, by: By) -> Answer {
    let mut into = vec![0u8; len];
    let (first, second) = into.split_at_mut(len / 2);
    let mut parts = [first, second].map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    });
    // SAFETY: there is so much room, in two parts that have as much together.
    let got = unsafe {
        match by {
            By::Socket => libc::recv(fd, into.as_mut_ptr().cast(), len, flags),
            By::File => __read(fd, into.as_mut_ptr().cast(), len),
            By::Parts => libc::readv(fd, parts.as_ptr(), 2),
            By::Message => {
                let mut message: libc::msghdr = core::mem::zeroed();
                message.msg_iov = parts.as_mut_ptr();
                message.msg_iovlen = 2;
                libc::recvmsg(fd, &mut message, flags)
            }
        }
    };
    let mut got = answer(got as i64);
    into.truncate(usize::try_from(got.value).unwrap_or(0));
    got.bytes = into;
    got
}
