//! Connections that another process carries for this one: streams of AF_UNIX to the kernel, and to the program as far as can be what they were.
//! They tell their names, and take options of TCP and IP, of which nothing comes: the connection has its own process's.

use libc::{c_int, c_void, sockaddr, socklen_t};

use janus_c::calls;
use janus_process::Names;

use crate::inside::Inside;
use crate::real;

/// Names of what a descriptor stands for, if that is carried.
fn names(fd: c_int) -> Option<Names> {
    let _inside = Inside::enter();
    Names::of(fd)
}

/// `getsockname` of what is none of ours.
///
/// # Safety
/// getsockname's contract, here and below.
pub(crate) unsafe fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller keeps the contract.
    unsafe {
        match names(fd) {
            Some(names) => calls::tell(Ok(names.local), name, len),
            None => real::getsockname(fd, name, len),
        }
    }
}

/// `getpeername` likewise.
pub(crate) unsafe fn getpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: as above.
    unsafe {
        match names(fd) {
            Some(names) => calls::tell(Ok(names.peer), name, len),
            None => real::getpeername(fd, name, len),
        }
    }
}

/// `setsockopt` likewise.
///
/// # Safety
/// setsockopt's contract.
pub(crate) unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the contract.
    let set = unsafe { real::setsockopt(fd, level, name, value, len) };
    let of_tcp = [libc::IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6].contains(&level);
    match set != 0 && of_tcp && names(fd).is_some() {
        true => 0,
        false => set,
    }
}

/// `getsockopt` likewise.
///
/// # Safety
/// getsockopt's contract.
pub(crate) unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps the contract; what is written over is what the kernel has written there.
    unsafe {
        let got = real::getsockopt(fd, level, name, value, len);
        let is_number =
            got == 0 && level == libc::SOL_SOCKET && *len as usize == size_of::<c_int>();
        if is_number
            && [libc::SO_DOMAIN, libc::SO_PROTOCOL].contains(&name)
            && let Some(names) = names(fd)
        {
            let family = if names.local.is_ipv4() {
                libc::AF_INET
            } else {
                libc::AF_INET6
            };
            let number = if name == libc::SO_DOMAIN {
                family
            } else {
                libc::IPPROTO_TCP
            };
            value.cast::<c_int>().write_unaligned(number);
        }
        got
    }
}
