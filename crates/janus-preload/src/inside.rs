//! Who is in Janus: a thread in one of its calls, and each thread that was started there. Their calls are libc's.

use core::cell::Cell;

use janus_process::Process;
use libc::c_int;

thread_local! {
    /// How deep this thread is in Janus.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, this thread's calls are libc's.
pub(crate) struct Inside;

impl Inside {
    pub(crate) fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Whether this thread's calls are libc's.
#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Whether a descriptor is one of Janus's, for a thread that is not in it.
#[inline]
pub(crate) fn is_ours(fd: c_int) -> bool {
    process().is_some_and(|process| process.has(fd))
}

/// The process, if it has been started, for a thread that is not in it.
#[inline]
pub(crate) fn process() -> Option<&'static Process> {
    if is_inside() {
        return None;
    }
    janus_c::process::rest_in_the_end();
    janus_c::process::started()
}

/// Whether this is a child that was forked from the process that has the connections.
pub(crate) fn is_forked() -> bool {
    janus_c::process::is_forked()
}

/// Runs a call of Janus's.
#[inline]
pub(crate) fn ours<R>(call: impl FnOnce() -> R) -> R {
    let _inside = Inside::enter();
    let answer = call();
    // It may be the end that has woken it.
    janus_c::process::rest_in_the_end();
    answer
}
