//! Connections that another process carries for this one, and the queues by which they come: streams of AF_UNIX to the kernel, and to the program as far as can be what they were.
//! They tell their names, and take options of TCP and IP, of which nothing comes: the connection has its own process's.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::IntoRawFd;

use libc::{c_int, c_void, sockaddr, socklen_t};

use janus_c::calls;
use janus_process::{Connects, Errno, Names};

use crate::inside::{self, Inside};
use crate::{life, made, real};

/// Names of what a descriptor stands for, if that is carried.
fn names(fd: c_int) -> Option<Names> {
    let _inside = Inside::enter();
    Names::of(fd)
}

/// The address of the listener from whose queue a descriptor takes.
fn listener(fd: c_int) -> Option<SocketAddr> {
    let _inside = Inside::enter();
    Names::of_listener(fd)
}

/// `accept4` of what is none of ours.
///
/// # Safety
/// accept4's contract.
pub(crate) unsafe fn accept4(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps the contract.
    unsafe {
        let got = real::accept4(fd, name, len, flags);
        // As the kernel says of a socket that does not listen.
        if got >= 0 || *libc::__errno_location() != libc::EINVAL || listener(fd).is_none() {
            return got;
        }
        let inside = Inside::enter();
        match inside::waits(|| janus_process::accept(fd, flags)) {
            Ok((end, peer)) => {
                if !name.is_null() && calls::tell(Ok(peer), name, len) != 0 {
                    return -1;
                }
                let end = end.into_raw_fd();
                drop(inside);
                inside::has_accepted(fd, end);
                end
            }
            // Nothing comes any more. If that is so because who listened is gone, the child listens itself.
            Err(Errno::EINVAL) if janus_c::process::may_follow(fd) => {
                drop(inside);
                match inside::serves(fd) {
                    true => life::accept4(fd, name, len, flags),
                    false => janus_c::fail(Errno::EINVAL),
                }
            }
            Err(error) => janus_c::fail(error),
        }
    }
}

/// The state of one that this process has asked for.
fn connects(fd: c_int) -> Option<Connects> {
    let asked = made::may_be(fd).then(Inside::enter);
    asked.and_then(|_inside| Connects::of(fd))
}

/// Whether a descriptor stands for a connection that is carried.
pub(crate) fn is_there(fd: c_int) -> bool {
    fd >= 0 && names(fd).is_some()
}

/// `listen` likewise: it listens already, or its parent lets it.
pub(crate) fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the call takes numbers.
    let listens = unsafe { real::listen(fd, backlog) };
    if listens == 0 || listener(fd).is_none() {
        return listens;
    }
    let _inside = Inside::enter();
    match janus_c::process::listens(fd, backlog) {
        Some(Err(error)) => janus_c::fail(error),
        _ => 0,
    }
}

/// The address of a connection that is not there: none, of its family.
fn nowhere(fd: c_int) -> Option<SocketAddr> {
    match connects(fd)? {
        Connects::Pending(SocketAddr::V6(_)) => Some((Ipv6Addr::UNSPECIFIED, 0).into()),
        _ => Some((Ipv4Addr::UNSPECIFIED, 0).into()),
    }
}

/// `getsockname` of what is none of ours.
///
/// # Safety
/// getsockname's contract, here and below.
pub(crate) unsafe fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller keeps the contract.
    unsafe {
        let local = names(fd).map(|names| names.local);
        match local.or_else(|| listener(fd)).or_else(|| nowhere(fd)) {
            Some(local) => calls::tell(Ok(local), name, len),
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
            None if listener(fd).is_some() || connects(fd).is_some() => {
                janus_c::fail(Errno(libc::ENOTCONN))
            }
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
    // The kernel's streams of AF_UNIX cannot share a port.
    let is_networks = is_of_tcp(level) || (level, name) == (libc::SOL_SOCKET, libc::SO_REUSEPORT);
    match set != 0 && is_networks && is_carried(fd) {
        true => 0,
        false => set,
    }
}

/// Linux's answer for an option of TCP or IP that was never set.
fn default_of(level: c_int, name: c_int) -> c_int {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => 7_200,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => 75,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => 9,
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => 64,
        _ => 0,
    }
}

fn is_of_tcp(level: c_int) -> bool {
    [libc::IPPROTO_TCP, libc::IPPROTO_IP, libc::IPPROTO_IPV6].contains(&level)
}

fn is_carried(fd: c_int) -> bool {
    names(fd).is_some() || listener(fd).is_some() || connects(fd).is_some()
}

/// `getsockopt` likewise; numbers of TCP's and IP's are what they were at first.
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
    // SAFETY: the caller keeps the contract; a number is written where the caller has room for one.
    unsafe {
        let got = real::getsockopt(fd, level, name, value, len);
        let has_room = !value.is_null() && !len.is_null() && *len as usize == size_of::<c_int>();
        if got != 0 && has_room && is_of_tcp(level) && is_carried(fd) {
            value
                .cast::<c_int>()
                .write_unaligned(default_of(level, name));
            return 0;
        }
        let is_number = got == 0 && level == libc::SOL_SOCKET && has_room;
        if is_number
            && name == libc::SO_ERROR
            && let Some(Connects::Failed(why)) = connects(fd)
        {
            value.cast::<c_int>().write_unaligned(why.0);
            return got;
        }
        let answered = [
            libc::SO_DOMAIN,
            libc::SO_PROTOCOL,
            libc::SO_TYPE,
            libc::SO_ACCEPTCONN,
        ];
        if !is_number || !answered.contains(&name) {
            return got;
        }
        let (connection, listens) = (names(fd), listener(fd));
        let local = connection.map(|names| names.local);
        let Some(local) = local.or(listens).or_else(|| nowhere(fd)) else {
            return got;
        };
        let number = match name {
            libc::SO_DOMAIN if local.is_ipv4() => libc::AF_INET,
            libc::SO_DOMAIN => libc::AF_INET6,
            libc::SO_PROTOCOL => libc::IPPROTO_TCP,
            libc::SO_TYPE => libc::SOCK_STREAM,
            _ => (listens.is_some() && !janus_c::process::is_bound_only(fd)).into(),
        };
        value.cast::<c_int>().write_unaligned(number);
        got
    }
}
