//! Sockets that were made while this process had no TCP of its own: Janus has not begun, as programs make sockets that they never use; or it is a
//! forked child (`janus-process`, `children::made`). They are the kernel's until `bind` or `connect` says otherwise; epoll instances in which one is
//! by then get what comes in its place.

use std::net::SocketAddr;

use janus_process::{Connects, Errno, Numbers, Result};
use libc::{c_int, sockaddr, socklen_t};

use crate::inside::{self, FEW, Inside, is_inside, ours};
use crate::{choice, left, real, signals, watched};

/// Sockets of TCP's that were made so. One that was closed may be among them.
static MADE: Numbers<FEW> = Numbers::none();

/// A socket of TCP's was made.
pub(crate) fn note(fd: c_int) {
    if MADE.add(fd) {
        let _inside = Inside::enter();
        choice::forget(fd);
    }
}

/// A descriptor was closed, or it is known whose it is.
#[inline]
pub(crate) fn forget(fd: c_int) {
    if may_be(fd) {
        MADE.remove(fd);
    }
}

/// Whether a descriptor may be such a socket.
#[inline]
pub(crate) fn may_be(fd: c_int) -> bool {
    MADE.has(fd)
}

/// The name of one that is nowhere yet.
pub(crate) fn name(fd: c_int) -> Option<SocketAddr> {
    ours(|| janus_process::unused_tcp(fd))
}

/// One is about to be bound or connected to this place, or duplicated: it becomes a socket of this process's own if that is Janus's, which begins with
/// the first.
#[inline]
pub(crate) fn is_used(fd: c_int, at: impl FnOnce() -> Option<SocketAddr>) {
    if may_be(fd) && !is_inside() && !inside::is_forked() {
        becomes_ours(fd, at());
    }
}

#[cold]
fn becomes_ours(fd: c_int, at: Option<SocketAddr>) {
    let Some(at) = at else { return };
    let is_unused = || janus_process::unused_tcp(fd).is_some();
    if !ours(|| janus_c::process::takes(at) && is_unused()) {
        return forget(fd);
    }
    // If it cannot begin it has been said why; the program goes on with the kernel's sockets.
    let Ok(process) = ours(janus_c::process::get) else {
        return forget(fd);
    };
    let inside = Inside::enter();
    signals::begin();
    if left::are_there() {
        // Children of this process would not get them.
        left::take_over();
    }
    drop(inside);
    let instances = watched::take_out(fd);
    if ours(|| choice::from_the_kernel(process, fd)).is_ok() {
        forget(fd);
    }
    watched::put_back(fd, instances);
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
