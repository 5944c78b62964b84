//! The names of `janus.h`. What each does, and what a caller owes it, is said there and with the function that it calls.

#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the contract is that of janus.h"
)]

use core::ffi::CStr;

use libc::{
    c_char, c_int, c_ulong, c_void, epoll_event, fd_set, iovec, msghdr, nfds_t, pollfd, size_t,
    sockaddr, socklen_t, ssize_t, timeval,
};

use crate::refs::Ref;
use crate::{bytes, calls, process, ready, refs};

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

#[unsafe(no_mangle)]
pub extern "C" fn jn_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    calls::socket(domain, kind, protocol)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_bind(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::bind(fd, name, len) }
}

#[unsafe(no_mangle)]
pub extern "C" fn jn_listen(fd: c_int, backlog: c_int) -> c_int {
    calls::listen(fd, backlog)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_accept4(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::accept4(fd, name, len, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::connect(fd, name, len) }
}

#[unsafe(no_mangle)]
pub extern "C" fn jn_shutdown(fd: c_int, how: c_int) -> c_int {
    calls::shutdown(fd, how)
}

#[unsafe(no_mangle)]
pub extern "C" fn jn_close(fd: c_int) -> c_int {
    calls::close(fd)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_getsockname(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::getsockname(fd, name, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_getpeername(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::getpeername(fd, name, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::setsockopt(fd, level, name, value, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::getsockopt(fd, level, name, value, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::read(fd, into, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::readv(fd, parts, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_recv(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::recv(fd, into, len, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::recvmsg(fd, message, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::write(fd, from, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::writev(fd, parts, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_send(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::send(fd, from, len, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::sendmsg(fd, message, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { ready::poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { ready::select(count, read, write, except, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { ready::epoll_ctl(epfd, op, fd, event) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_epoll_wait(
    epfd: c_int,
    into: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { ready::epoll_wait(epfd, into, max, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_accept(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::accept4(fd, name, len, 0) }
}

#[unsafe(no_mangle)]
pub extern "C" fn jn_dup(fd: c_int) -> c_int {
    calls::duplicate(fd, 0, false)
}

/// C passes the argument of any command as an int here; those that take a pointer mean nothing to a socket.
#[unsafe(no_mangle)]
pub extern "C" fn jn_fcntl(fd: c_int, command: c_int, argument: c_int) -> c_int {
    calls::fcntl(fd, command, argument)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::ioctl(fd, request, argument) }
}

#[unsafe(no_mangle)]
pub extern "C" fn jn_epoll_create1(flags: c_int) -> c_int {
    ready::epoll_create(flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_recvfrom(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::recvfrom(fd, into, len, flags, name, name_len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    name: *const sockaddr,
    name_len: socklen_t,
) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { bytes::sendto(fd, from, len, flags, name, name_len) }
}

/// The size means nothing, but must be one.
#[unsafe(no_mangle)]
pub extern "C" fn jn_epoll_create(size: c_int) -> c_int {
    match size {
        1.. => ready::epoll_create(0),
        _ => crate::fail(janus_process::Errno::EINVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_reachable_at(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { calls::reachable_at(fd, name, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_recv_ref(fd: c_int, place: *mut Ref, flags: c_int) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { refs::recv_ref(fd, place, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_send_ref(fd: c_int, place: *mut Ref) -> ssize_t {
    // SAFETY: the caller keeps the function's contract.
    unsafe { refs::send_ref(fd, place) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn jn_release(place: *mut Ref) -> c_int {
    // SAFETY: the caller keeps the function's contract.
    unsafe { refs::release(place) }
}

#[unsafe(no_mangle)]
pub extern "C" fn jn_version() -> *const c_char {
    VERSION.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn jn_init() -> c_int {
    match process::get() {
        Ok(_) => 0,
        Err(error) => crate::fail(error),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn jn_end() {
    process::end();
}
