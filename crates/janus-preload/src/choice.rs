//! The choice of whose a TCP socket is: what it is bound or connected to decides. Before that it is the kernel's if Janus has not begun when it is
//! made, and else Janus's. One that turns out to be the other's is made there, gets the options that it was given so far, and takes the descriptor's
//! place.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use janus_process::{Errno, Process, Result, abi};
use libc::{c_int, c_void, sockaddr, socklen_t};

use crate::real;

/// Options of sockets that are not decided yet, in the order in which they were set.
static GIVEN: Mutex<Option<HashMap<c_int, Vec<Given>>>> = Mutex::new(None);

struct Given {
    level: c_int,
    name: c_int,
    value: Box<[u8]>,
}

fn given<R>(call: impl FnOnce(&mut HashMap<c_int, Vec<Given>>) -> R) -> R {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    call(given.get_or_insert_default())
}

/// A socket was made, or is gone.
pub(crate) fn forget(fd: c_int) {
    given(|given| given.remove(&fd));
}

/// An option was set.
pub(crate) fn note_option(fd: c_int, level: c_int, name: c_int, value: &[u8]) {
    given(|given| {
        let options = given.entry(fd).or_default();
        // Some are set again with each answer of a server's.
        options.retain(|it| (it.level, it.name) != (level, name));
        options.push(Given {
            level,
            name,
            value: value.into(),
        });
    });
}

/// Makes the socket the kernel's if `at` is. Whether it is now.
pub(crate) fn decide(process: &Process, fd: c_int, at: SocketAddr) -> Result<bool> {
    let takes = janus_c::process::takes(at);
    // One that is somewhere already stays what it is.
    let decided = process.getsockname(fd).is_ok_and(|name| name.port() != 0);
    if takes || decided {
        return Ok(false);
    }
    to_the_kernel(process, fd)?;
    Ok(true)
}

fn to_the_kernel(process: &Process, fd: c_int) -> Result<()> {
    let domain = match process.getsockname(fd)? {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    // SAFETY: the calls take numbers; what the first gives has no other owner.
    let new = unsafe {
        match real::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            -1 => return Err(last_error()),
            new => OwnedFd::from_raw_fd(new),
        }
    };
    for Given { level, name, value } in given(|given| given.remove(&fd)).unwrap_or_default() {
        let (bytes, len) = (value.as_ptr().cast::<c_void>(), value.len() as socklen_t);
        // SAFETY: so many bytes are there. What the kernel refuses of what was taken here is as if it had not been asked for.
        unsafe { real::setsockopt(new.as_raw_fd(), level, name, bytes, len) };
    }
    let flags = process.fcntl(fd, abi::F_GETFL, 0)? & libc::O_NONBLOCK;
    let close_on_exec = process.fcntl(fd, abi::F_GETFD, 0)? & libc::FD_CLOEXEC != 0;
    let flag = if close_on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the calls take numbers, of descriptors that are open.
    unsafe {
        real::fcntl(
            new.as_raw_fd(),
            libc::F_SETFL,
            flags as usize as *mut c_void,
        );
        process.give_up(fd, |fd| match real::dup3(new.as_raw_fd(), fd, flag) {
            -1 => Err(last_error()),
            _ => Ok(()),
        })
    }
}

/// Makes a socket of the kernel's that is nowhere yet Janus's.
pub(crate) fn from_the_kernel(process: &Process, fd: c_int) -> Result<()> {
    let domain = option(fd, libc::SO_DOMAIN)?;
    let new = process.socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)?;
    takes_place(process, new, fd)
}

/// Puts a socket of Janus's, `new`, in the place of what the kernel has there, with the options that this was given.
pub(crate) fn takes_place(process: &Process, new: c_int, fd: c_int) -> Result<()> {
    let becomes = || {
        given(|given| {
            for Given { level, name, value } in given.get(&fd).into_iter().flatten() {
                // An option that Janus refuses and the kernel took is as if it had not been asked for.
                let _ = process.setsockopt(new, *level, *name, value);
            }
        });
        // SAFETY: the calls take numbers.
        let (flags, of_descriptor) = unsafe {
            let flags = real::fcntl(fd, libc::F_GETFL, null_mut());
            (flags, real::fcntl(fd, libc::F_GETFD, null_mut()))
        };
        process.fcntl(new, abi::F_SETFL, flags.max(0) & libc::O_NONBLOCK)?;
        process.duplicate_to(new, fd, of_descriptor.max(0) & libc::FD_CLOEXEC != 0)
    };
    let becomes = becomes();
    process.close(new)?;
    becomes
}

/// A number that the kernel tells of a socket.
fn option(fd: c_int, name: c_int) -> Result<c_int> {
    let (mut value, mut len) = (0, size_of::<c_int>() as socklen_t);
    let to = (&raw mut value).cast::<c_void>();
    // SAFETY: there is room for a number.
    match unsafe { real::getsockopt(fd, libc::SOL_SOCKET, name, to, &mut len) } {
        0 => Ok(value),
        _ => Err(last_error()),
    }
}

/// `errno`.
pub(crate) fn last_error() -> Errno {
    Errno(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

/// Where an address is, if it is one that decides.
///
/// # Safety
/// As for bind.
pub(crate) unsafe fn place(name: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    // SAFETY: the caller keeps bind's contract.
    unsafe { janus_c::address(name, len) }.ok().flatten()
}
