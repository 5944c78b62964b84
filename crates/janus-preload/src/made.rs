//! Sockets that a forked child makes, which has no process of its own (`janus-process`, `children::made`). They are the kernel's until `bind` or `connect`
//! says otherwise; epoll instances in which one is by then get what comes in its place.

use std::net::SocketAddr;

use janus_process::{Connects, Errno, Result};
use libc::{c_int, sockaddr, socklen_t};

use crate::inside::{self, is_inside, ours};
use crate::numbers::Numbers;
use crate::{choice, real, watched};

/// Sockets of TCP's that this child has made. One that was closed may be among them.
static MADE: Numbers = Numbers::none();

/// A socket of TCP's was made.
pub(crate) fn note(fd: c_int) {
    MADE.add(fd);
}

/// Whether a descriptor may be such a socket.
#[inline]
pub(crate) fn may_be(fd: c_int) -> bool {
    MADE.has(fd)
}

/// `bind` of what is none of ours.
///
/// # Safety
/// bind's contract.
pub(crate) unsafe fn bind(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller keeps the contract.
    unsafe {
        let decided = decide(fd, name, len, janus_c::process::binds);
        decided.unwrap_or_else(|| real::bind(fd, name, len))
    }
}

/// `connect` likewise.
///
/// # Safety
/// connect's contract.
pub(crate) unsafe fn connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int {
    if !is_inside() && may_be(fd) {
        match ours(|| Connects::of(fd)) {
            Some(Connects::Pending(_)) => return janus_c::fail(Errno::EALREADY),
            Some(Connects::Done) => return janus_c::fail(Errno::EISCONN),
            Some(Connects::Failed(why)) => return janus_c::fail(why),
            None => {}
        }
    }
    let connects = |fd, at| {
        let asked = janus_c::process::connects(fd, at)?;
        Some(asked.and_then(|it| inside::waits(|| it.ends())))
    };
    // SAFETY: the caller keeps the contract.
    unsafe {
        let decided = decide(fd, name, len, connects);
        decided.unwrap_or_else(|| real::connect(fd, name, len))
    }
}

/// # Safety
/// As for bind.
unsafe fn decide(
    fd: c_int,
    name: *const sockaddr,
    len: socklen_t,
    by: impl FnOnce(c_int, SocketAddr) -> Option<Result<()>>,
) -> Option<c_int> {
    if is_inside() || !may_be(fd) {
        return None;
    }
    // SAFETY: the caller keeps the contract.
    let at = unsafe { choice::place(name, len) }?;
    let instances = watched::take_out(fd);
    let decided = ours(|| by(fd, at));
    watched::put_back(fd, instances);
    Some(match decided? {
        Ok(()) => 0,
        Err(error) => janus_c::fail(error),
    })
}
