//! socket, bind, listen, accept, connect, shutdown, names and options.

use janus_c::calls;
use libc::{c_int, c_void, sockaddr, socklen_t};

use crate::inside::{self, Inside, is_inside, is_ours_to_use, ours};
use crate::{carried, choice, claimed, left, made, real};

#[unsafe(no_mangle)]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & 0xf == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if !tcp || inside::process().is_none() {
        // SAFETY: the call takes numbers.
        let fd = unsafe { real::socket(domain, kind, protocol) };
        if tcp && !is_inside() {
            made::note(fd);
        }
        return fd;
    }
    let _inside = Inside::enter();
    let fd = calls::socket(domain, kind, protocol);
    choice::forget(fd);
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller keeps bind's contract, here and below.
    unsafe {
        match decided(fd, name, len) {
            Decided::Ours => ours(|| calls::bind(fd, name, len)),
            Decided::Kernels => made::bind(fd, name, len),
            Decided::Failed(answer) => answer,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller keeps connect's contract, here and below.
    unsafe {
        match decided(fd, name, len) {
            Decided::Ours => ours(|| calls::connect(fd, name, len)),
            Decided::Kernels => made::connect(fd, name, len),
            Decided::Failed(answer) => answer,
        }
    }
}

enum Decided {
    Ours,
    Kernels,
    Failed(c_int),
}

/// Decides for a socket that is bound or connected to what the name says.
///
/// # Safety
/// As for bind.
unsafe fn decided(fd: c_int, name: *const sockaddr, len: socklen_t) -> Decided {
    left::is_used(fd);
    // SAFETY: the caller keeps bind's contract.
    made::is_used(fd, || unsafe { choice::place(name, len) });
    let Some(process) = inside::process().filter(|process| process.has(fd)) else {
        return Decided::Kernels;
    };
    let _inside = Inside::enter();
    // SAFETY: the caller keeps bind's contract.
    let Some(at) = (unsafe { choice::place(name, len) }) else {
        return Decided::Ours;
    };
    match choice::decide(process, fd, at) {
        Ok(true) => Decided::Kernels,
        Ok(false) => Decided::Ours,
        Err(error) => Decided::Failed(janus_c::fail(error)),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    made::is_used(fd, || made::name(fd));
    match is_ours_to_use(fd) {
        true => ours(|| calls::listen(fd, backlog)),
        false => carried::listen(fd, backlog),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller keeps accept's contract.
    unsafe {
        match is_ours_to_use(fd) {
            true => accept4_ours(fd, name, len, 0),
            false => carried::accept4(fd, name, len, 0),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    name: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps accept4's contract.
    unsafe {
        match is_ours_to_use(fd) {
            true => accept4_ours(fd, name, len, flags),
            false => carried::accept4(fd, name, len, flags),
        }
    }
}

/// A connection that is accepted may be one that another process carries.
///
/// # Safety
/// accept4's contract.
unsafe fn accept4_ours(fd: c_int, name: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller keeps the contract.
    let got = ours(|| unsafe { calls::accept4(fd, name, len, flags) });
    if got >= 0 && !inside::is_ours(got) {
        claimed::note(got);
    }
    got
}

#[unsafe(no_mangle)]
pub extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    match is_ours_to_use(fd) {
        true => ours(|| calls::shutdown(fd, how)),
        // SAFETY: the call takes numbers.
        false => unsafe { real::shutdown(fd, how) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller keeps getsockname's contract.
    unsafe {
        match is_ours_to_use(fd) {
            true => ours(|| calls::getsockname(fd, name, len)),
            false => carried::getsockname(fd, name, len),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller keeps getpeername's contract.
    unsafe {
        match is_ours_to_use(fd) {
            true => ours(|| calls::getpeername(fd, name, len)),
            false => carried::getpeername(fd, name, len),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: the caller keeps setsockopt's contract.
    unsafe {
        if !is_ours_to_use(fd) {
            let set = carried::setsockopt(fd, level, name, value, len);
            // A forked child asks the kernel for them when it has to.
            let is_made = made::may_be(fd) && !inside::is_forked();
            if set == 0 && !is_inside() && (is_made || claimed::may_be(fd)) {
                note_option(fd, level, name, value, len);
            }
            return set;
        }
        let _inside = Inside::enter();
        let set = calls::setsockopt(fd, level, name, value, len);
        if set == 0 && !is_connected(fd) {
            note_option(fd, level, name, value, len);
        }
        set
    }
}

/// # Safety
/// setsockopt's contract.
unsafe fn note_option(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) {
    if !value.is_null() {
        let _inside = Inside::enter();
        // SAFETY: the caller says that so many bytes are there.
        let bytes = unsafe { core::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
        choice::note_option(fd, level, name, bytes);
    }
}

/// Whether a socket has a peer: then it is Janus's for good.
fn is_connected(fd: c_int) -> bool {
    janus_c::process::started().is_some_and(|process| process.getpeername(fd).is_ok())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps getsockopt's contract.
    unsafe {
        match is_ours_to_use(fd) {
            true => ours(|| calls::getsockopt(fd, level, name, value, len)),
            false => carried::getsockopt(fd, level, name, value, len),
        }
    }
}
