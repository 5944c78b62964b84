//! Bytes of files that go to sockets.

use janus_c::bytes;
use janus_process::Errno;
use libc::{c_int, c_uint, c_void, off_t, off64_t, size_t, ssize_t};

use crate::bytes::is_ours_to_move;
use crate::choice;
use crate::inside::{Inside, is_inside, is_ours_to_use};
use crate::real;

/// Bytes of a file that are read at once.
const PIECE: usize = 64 << 10;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    if is_inside() || !is_ours_to_move(out) {
        // SAFETY: the caller keeps sendfile's contract.
        return unsafe { real::sendfile(out, from, offset, count) };
    }
    let _inside = Inside::enter();
    // SAFETY: the caller keeps sendfile's contract: the offset is null or its own.
    unsafe {
        let begin = match offset.is_null() {
            true => libc::lseek(from, 0, libc::SEEK_CUR),
            false => *offset,
        };
        if begin < 0 {
            return -1;
        }
        let sent = send_from(out, from, begin, count);
        if sent > 0 {
            match offset.is_null() {
                true => _ = libc::lseek(from, begin + sent as off_t, libc::SEEK_SET),
                false => *offset = begin + sent as off_t,
            }
        }
        sent
    }
}

/// Sends what is in the file from a place on. What has been sent counts, whatever became of the rest.
unsafe fn send_from(out: c_int, from: c_int, begin: off_t, count: size_t) -> ssize_t {
    let mut piece = vec![0u8; PIECE.min(count)];
    let mut sent = 0;
    while sent < count {
        let room = PIECE.min(count - sent);
        let told = |failed: ssize_t| if sent > 0 { sent as ssize_t } else { failed };
        // SAFETY: the piece has so much room, and the calls keep to it.
        unsafe {
            let got = libc::pread(from, piece.as_mut_ptr().cast(), room, begin + sent as off_t);
            if got <= 0 {
                return told(got);
            }
            let more = if sent + (got as usize) < count {
                libc::MSG_MORE
            } else {
                0
            };
            let went = bytes::send(out, piece.as_ptr().cast::<c_void>(), got as usize, more);
            if went < 0 {
                // An epoll instance is no file that takes bytes.
                if choice::last_error() == Errno::ENOTSOCK {
                    janus_c::fail(Errno::EINVAL);
                }
                return told(went);
            }
            sent += went as usize;
            if went < got {
                break;
            }
        }
    }
    sent as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    out: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: both types are the same here; the caller keeps sendfile's contract.
    unsafe { sendfile(out, from, offset, count) }
}

/// A pipe takes nothing back: what was read of it could not be sent. EINVAL is what says "not with these", and programs then copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_ours_to_use(from) || is_ours_to_use(to) {
        return janus_c::fail(Errno::EINVAL) as ssize_t;
    }
    // SAFETY: the caller keeps splice's contract.
    unsafe { real::splice(from, from_offset, to, to_offset, len, flags) }
}
