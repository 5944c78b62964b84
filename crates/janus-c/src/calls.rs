//! The life of a socket. Each function has the arguments of the C function of that name and returns what that does.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "each has the contract of the C function of its name"
)]

use janus_process::{Errno, Result, abi};
use libc::{c_int, c_ulong, c_void, sockaddr, socklen_t};

use crate::errno::{done, number};
use crate::layout;
use crate::process;
use crate::restart::goes_on;

/// The longest value of an option that is read.
const OPTION_MAX: usize = 4_096;

pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    number(process::get().and_then(|process| process.socket(domain, kind, protocol)))
}

pub unsafe fn bind(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    let bind = || {
        // SAFETY: the caller keeps bind's contract.
        let address = unsafe { layout::address(name, len) }?;
        process::get()?.bind(fd, address.ok_or(Errno::EAFNOSUPPORT)?)
    };
    done(bind())
}

pub fn listen(fd: c_int, backlog: c_int) -> c_int {
    done(process::get().and_then(|process| process.listen(fd, backlog)))
}

pub unsafe fn accept4(fd: c_int, name: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    let accept = || {
        let process = process::get()?;
        let (new, peer) = process.accept4(fd, flags, goes_on)?;
        // SAFETY: the caller keeps accept's contract.
        if let Err(error) = unsafe { layout::tell(peer, name, len) } {
            process.close(new)?;
            return Err(error);
        }
        Ok(new)
    };
    number(accept())
}

pub unsafe fn connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    let connect = || {
        // SAFETY: the caller keeps connect's contract.
        let address = unsafe { layout::address(name, len) }?;
        process::get()?.connect(fd, address, goes_on)
    };
    done(connect())
}

pub fn shutdown(fd: c_int, how: c_int) -> c_int {
    done(process::get().and_then(|process| process.shutdown(fd, how)))
}

pub fn close(fd: c_int) -> c_int {
    done(process::get().and_then(|process| process.close(fd)))
}

/// Another descriptor of the same socket, not below `least`.
pub fn duplicate(fd: c_int, least: c_int, close_on_exec: bool) -> c_int {
    number(process::get().and_then(|process| process.duplicate(fd, least, close_on_exec)))
}

pub unsafe fn getsockname(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let address = process::get().and_then(|process| process.getsockname(fd));
    // SAFETY: the caller keeps getsockname's contract.
    unsafe { tell(address, name, len) }
}

pub unsafe fn getpeername(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let address = process::get().and_then(|process| process.getpeername(fd));
    // SAFETY: the caller keeps getpeername's contract.
    unsafe { tell(address, name, len) }
}

/// Tells a name, or why there is none.
pub unsafe fn tell(
    address: Result<std::net::SocketAddr>,
    name: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller keeps getsockname's contract.
    done(address.and_then(|address| unsafe { layout::tell(address, some(name)?, len) }))
}

/// The address at which a client outside reaches what a socket is bound to.
pub unsafe fn reachable_at(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let address = process::get().and_then(|process| {
        let local = process.getsockname(fd)?;
        Ok(process.reachable_at(local))
    });
    // SAFETY: the caller keeps the function's contract.
    unsafe { tell(address, name, len) }
}

fn some<T>(pointer: *mut T) -> Result<*mut T> {
    match pointer.is_null() {
        true => Err(Errno::EFAULT),
        false => Ok(pointer),
    }
}

pub unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let set = || {
        if c_int::try_from(len).is_err() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller keeps setsockopt's contract.
        let value = unsafe { layout::bytes(value, (len as usize).min(OPTION_MAX)) }?;
        process::get()?.setsockopt(fd, level, name, value)
    };
    done(set())
}

pub unsafe fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let get = || {
        let len = some(len)?;
        // SAFETY: the caller keeps getsockopt's contract.
        let room = unsafe { len.read_unaligned() };
        if c_int::try_from(room).is_err() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as above.
        let into = unsafe { layout::room(value, (room as usize).min(OPTION_MAX)) }?;
        let told = process::get()?.getsockopt(fd, level, name, into)?;
        // SAFETY: as above.
        unsafe { len.write_unaligned(told as socklen_t) };
        Ok(())
    };
    done(get())
}

pub fn fcntl(fd: c_int, command: c_int, argument: c_int) -> c_int {
    number(process::get().and_then(|process| process.fcntl(fd, command, argument)))
}

pub unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let ioctl = || {
        let request = c_int::try_from(request).map_err(|_| Errno::ENOTTY)?;
        let process = process::get()?;
        let place = some(argument.cast::<c_int>());
        if request == abi::FIONBIO {
            // SAFETY: the caller keeps ioctl's contract: FIONBIO reads an int.
            let on = unsafe { place?.read_unaligned() };
            return process.ioctl(fd, request, on);
        }
        let told = process.ioctl(fd, request, 0)?;
        // SAFETY: the others that are understood write one.
        unsafe { place?.write_unaligned(told) };
        Ok(0)
    };
    number(ioctl())
}
