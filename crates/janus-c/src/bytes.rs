//! Receiving and sending. Each function has the arguments of the C function of that name and returns what that does.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "each has the contract of the C function of its name"
)]

use std::io::{IoSlice, IoSliceMut};

use janus_process::{Errno, Result};
use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::errno::size;
use crate::layout;
use crate::process;
use crate::restart::goes_on;

/// Most control bytes that one message brings or asks for (`net.core.optmem_max`).
const CONTROL_MAX: usize = 131_072;

fn receive(fd: c_int, into: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize> {
    process::get()?.receive(fd, into, flags, goes_on)
}

/// Sends; who writes to what is closed gets SIGPIPE too, unless he asked for none.
fn send_all(fd: c_int, from: &[IoSlice<'_>], flags: c_int) -> Result<usize> {
    let sent = process::get()?.send(fd, from, flags, goes_on);
    sigpipe(sent, flags)
}

fn sigpipe(sent: Result<usize>, flags: c_int) -> Result<usize> {
    if sent == Err(Errno::EPIPE) && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: the call takes a number. The signal is this thread's, as the kernel's is.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    sent
}

/// Result of a call that files have too: an epoll instance is none that could be read or written.
fn of_file(done: Result<usize>) -> ssize_t {
    size(done.map_err(|error| match error {
        Errno::ENOTSOCK => Errno::EINVAL,
        other => other,
    }))
}

pub unsafe fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    let read = || {
        // No room is no question (sock_read_iter).
        if len == 0 {
            return process::get()?.check(fd).map(|()| 0);
        }
        // SAFETY: the caller keeps read's contract.
        let into = unsafe { layout::room(into, len) }?;
        receive(fd, &mut [IoSliceMut::new(into)], 0)
    };
    of_file(read())
}

pub unsafe fn recv(fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller keeps recv's contract.
    let into = unsafe { layout::room(into, len) };
    size(into.and_then(|into| receive(fd, &mut [IoSliceMut::new(into)], flags)))
}

/// The peer of a stream is known; no name is told, as on Linux.
pub unsafe fn recvfrom(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    _name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller keeps recvfrom's contract.
    unsafe {
        let received = recv(fd, into, len, flags);
        if received >= 0 && !name_len.is_null() {
            name_len.write_unaligned(0);
        }
        received
    }
}

pub unsafe fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let read = || {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the caller keeps readv's contract.
        let mut into = unsafe { layout::scatter(parts, count) }?;
        if into.iter().all(|part| part.is_empty()) {
            return process::get()?.check(fd).map(|()| 0);
        }
        receive(fd, &mut into, 0)
    };
    of_file(read())
}

pub unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let receive = || {
        if message.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: the caller keeps recvmsg's contract.
        unsafe {
            let message = &mut *message;
            if message.msg_iovlen > layout::PARTS_MAX {
                return Err(Errno::EMSGSIZE);
            }
            let mut into = layout::scatter(message.msg_iov, message.msg_iovlen)?;
            let room = match message.msg_control.is_null() {
                true => 0,
                false => message.msg_controllen.min(CONTROL_MAX),
            };
            let mut control = Vec::new();
            let process = process::get()?;
            let (received, told) =
                process.receive_message(fd, &mut into, flags, (&mut control, room), goes_on)?;
            if !control.is_empty() {
                let to = message.msg_control.cast();
                core::ptr::copy_nonoverlapping(control.as_ptr(), to, control.len());
            }
            message.msg_controllen = control.len();
            message.msg_flags = told;
            message.msg_namelen = 0;
            Ok(received)
        }
    };
    size(receive())
}

pub unsafe fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller keeps write's contract.
    let from = unsafe { layout::bytes(from, len) };
    of_file(from.and_then(|from| send_all(fd, &[IoSlice::new(from)], 0)))
}

pub unsafe fn send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller keeps send's contract.
    let from = unsafe { layout::bytes(from, len) };
    size(from.and_then(|from| send_all(fd, &[IoSlice::new(from)], flags)))
}

/// A stream goes to its peer, whatever the address says.
pub unsafe fn sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    _name: *const sockaddr,
    _name_len: socklen_t,
) -> ssize_t {
    // SAFETY: the caller keeps sendto's contract.
    unsafe { send(fd, from, len, flags) }
}

pub unsafe fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let write = || {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the caller keeps writev's contract.
        send_all(fd, &unsafe { layout::gather(parts, count) }?, 0)
    };
    of_file(write())
}

pub unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let send = || {
        if message.is_null() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: the caller keeps sendmsg's contract.
        unsafe {
            let message = &*message;
            if message.msg_iovlen > layout::PARTS_MAX {
                return Err(Errno::EMSGSIZE);
            }
            if message.msg_controllen > CONTROL_MAX {
                return Err(Errno(libc::ENOBUFS));
            }
            let from = layout::gather(message.msg_iov, message.msg_iovlen)?;
            let control = layout::bytes(message.msg_control, message.msg_controllen)?;
            let sent = process::get()?.send_message(fd, &from, control, flags, goes_on);
            sigpipe(sent, flags)
        }
    };
    size(send())
}
