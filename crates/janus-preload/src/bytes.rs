//! Receiving and sending.

use janus_c::bytes;
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec,
};

use crate::inside::{is_ours_to_use, ours};
use crate::{claimed, handed, real};

/// Whether bytes that are moved by a descriptor are Janus's.
#[inline]
pub(crate) fn is_ours_to_move(fd: c_int) -> bool {
    is_ours_to_use(fd) || claimed::comes(fd)
}

/// A function of libc's that is asked whose its first argument is.
macro_rules! by_descriptor {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $ours:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, $($argument: $type),*) -> $result {
            // SAFETY: the caller keeps the contract of libc's function of this name.
            unsafe {
                match is_ours_to_move(fd) {
                    true => ours(|| $ours(fd, $($argument),*)),
                    false => real::$name(fd, $($argument),*),
                }
            }
        }
    )*};
}

by_descriptor! {
    read(into: *mut c_void, len: size_t) -> ssize_t = bytes::read;
    readv(parts: *const iovec, count: c_int) -> ssize_t = bytes::readv;
    recv(into: *mut c_void, len: size_t, flags: c_int) -> ssize_t = bytes::recv;
    recvfrom(into: *mut c_void, len: size_t, flags: c_int, name: *mut sockaddr, name_len: *mut socklen_t) -> ssize_t = bytes::recvfrom;
    recvmsg(message: *mut msghdr, flags: c_int) -> ssize_t = bytes::recvmsg;
    recvmmsg(messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int = recv_messages;
    write(from: *const c_void, len: size_t) -> ssize_t = bytes::write;
    writev(parts: *const iovec, count: c_int) -> ssize_t = bytes::writev;
    send(from: *const c_void, len: size_t, flags: c_int) -> ssize_t = bytes::send;
    sendto(from: *const c_void, len: size_t, flags: c_int, name: *const sockaddr, name_len: socklen_t) -> ssize_t = bytes::sendto;
    sendmmsg(messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int = send_messages;
    __read_chk(into: *mut c_void, len: size_t, room: size_t) -> ssize_t = read_within;
    __recv_chk(into: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t = recv_within;
    __recvfrom_chk(into: *mut c_void, len: size_t, room: size_t, flags: c_int, name: *mut sockaddr, name_len: *mut socklen_t) -> ssize_t = recvfrom_within;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller keeps sendmsg's contract.
    unsafe {
        match is_ours_to_move(fd) {
            true => ours(|| bytes::sendmsg(fd, message, flags)),
            false => handed::sendmsg(fd, message, flags),
        }
    }
}

/// The buffer is smaller than the program says: what the fortified functions of glibc do.
fn check(len: size_t, room: size_t) {
    if len > room {
        eprintln!("*** buffer overflow detected ***: terminated");
        std::process::abort();
    }
}

unsafe fn read_within(fd: c_int, into: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    check(len, room);
    // SAFETY: the caller keeps read's contract.
    unsafe { bytes::read(fd, into, len) }
}

unsafe fn recv_within(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check(len, room);
    // SAFETY: the caller keeps recv's contract.
    unsafe { bytes::recv(fd, into, len, flags) }
}

unsafe fn recvfrom_within(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    name: *mut sockaddr,
    name_len: *mut socklen_t,
) -> ssize_t {
    check(len, room);
    // SAFETY: the caller keeps recvfrom's contract.
    unsafe { bytes::recvfrom(fd, into, len, flags, name, name_len) }
}

/// One message after the other; the first that fails ends it, and is told only if it is the very first.
unsafe fn each_message(
    messages: *mut mmsghdr,
    count: c_uint,
    mut each: impl FnMut(*mut msghdr) -> ssize_t,
) -> c_int {
    for at in 0..count {
        // SAFETY: the caller says that there are so many.
        unsafe {
            let message = messages.add(at as usize);
            let done = each(&raw mut (*message).msg_hdr);
            if done < 0 {
                return if at == 0 { -1 } else { at as c_int };
            }
            (*message).msg_len = done as c_uint;
        }
    }
    count as c_int
}

unsafe fn recv_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    _timeout: *mut timespec,
) -> c_int {
    let mut flags = flags;
    // SAFETY: the caller keeps recvmmsg's contract.
    unsafe {
        each_message(messages, count, |message| {
            let received = bytes::recvmsg(fd, message, flags & !libc::MSG_WAITFORONE);
            if flags & libc::MSG_WAITFORONE != 0 {
                flags |= libc::MSG_DONTWAIT;
            }
            received
        })
    }
}

unsafe fn send_messages(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller keeps sendmmsg's contract.
    unsafe {
        each_message(messages, count, |message| {
            bytes::sendmsg(fd, message, flags)
        })
    }
}
