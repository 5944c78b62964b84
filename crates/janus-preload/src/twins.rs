//! Second names of glibc's functions: a program that was linked with one goes past the first.

use libc::{
    c_int, c_uint, c_void, fd_set, iovec, nfds_t, off_t, pid_t, pollfd, rlimit, size_t, sockaddr,
    socklen_t, ssize_t, timeval,
};

use crate::inside::is_ours_to_use;
use crate::{bytes, descriptors, life, limits, ready, real};

macro_rules! twins {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $first:path;)*) => {$(
        /// # Safety
        /// The contract of the function with the other name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            #[allow(unused_unsafe, reason = "some of them are safe")]
            // SAFETY: the caller keeps its contract.
            unsafe { $first($($argument),*) }
        }
    )*};
}

twins! {
    __close(fd: c_int) -> c_int = descriptors::close;
    __dup2(fd: c_int, new: c_int) -> c_int = descriptors::dup2;
    __fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int = descriptors::fcntl;
    __connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int = life::connect;
    __read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t = bytes::read;
    __write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t = bytes::write;
    __send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t = bytes::send;
    __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = ready::poll;
    __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int = ready::select;
    prlimit64(pid: pid_t, which: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int = limits::prlimit;
    setrlimit64(which: c_uint, new: *const rlimit) -> c_int = limits::setrlimit;
    getrlimit64(which: c_uint, old: *mut rlimit) -> c_int = limits::getrlimit;
    preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = preadv2;
    pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = pwritev2;
}

/// From nowhere in particular (-1) it is `readv`; flags are about files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn preadv2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller keeps preadv2's contract.
    unsafe {
        match offset == -1 && is_ours_to_use(fd) {
            true => bytes::readv(fd, parts, count),
            false => real::preadv2(fd, parts, count, offset, flags),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller keeps pwritev2's contract.
    unsafe {
        match offset == -1 && is_ours_to_use(fd) {
            true => bytes::writev(fd, parts, count),
            false => real::pwritev2(fd, parts, count, offset, flags),
        }
    }
}

/// SIOCATMARK.
const AT_MARK: libc::c_ulong = 0x8905;

/// glibc's own asks by a call that no library can stand in front of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut is_there: c_int = 0;
    // SAFETY: the request writes one int.
    match unsafe { descriptors::ioctl(fd, AT_MARK, (&raw mut is_there).cast()) } {
        -1 => -1,
        _ => is_there,
    }
}
