//! Threads that are in Janus: one in a call of its, and each that was started there. Their calls are libc's.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use janus_process::{Process, interrupts};
use libc::c_int;

use crate::{carried, claimed, left, signals, watched};

/// Words of a set of descriptors with numbers below 65,536: programs have few higher ones, and those of these kinds stay the kernel's.
pub(crate) const FEW: usize = (1 << 16) / 64;

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
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 && interrupts::is_due() {
            interrupts::deliver();
        }
    }
}

/// While it lives, a thread that is in Janus is outside of it: a handler of a signal runs.
pub(crate) struct Outside(u32);

impl Outside {
    pub(crate) fn step() -> Outside {
        Outside(DEPTH.replace(0))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        DEPTH.set(self.0);
    }
}

/// Waits in a call of the kernel's that a handler may interrupt: as long as it lasts this thread is outside.
pub(crate) fn waits<R>(call: impl FnOnce() -> R) -> R {
    let _outside = Outside::step();
    call()
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

/// Whether a descriptor is one that Janus works with itself, for a thread that is not in it.
#[inline]
pub(crate) fn is_kept(fd: c_int) -> bool {
    process().is_some_and(|process| process.keeps(fd))
}

/// [`is_ours`]; what another program has left is taken over, and in a forked child a connection of its parent's is the kernel's from its first use on.
#[inline]
pub(crate) fn is_ours_to_use(fd: c_int) -> bool {
    left::is_used(fd);
    is_ours(fd) || claim(fd) && is_ours(fd)
}

/// In a forked child: it has taken a connection from the queue that it shares with its like. If it has another one at that time it serves several at once,
/// and what listens is its own from now on where that can be. A child that has one at a time goes on as it is: none waits at the queue for a child that is
/// busy.
pub(crate) fn has_accepted(listener: c_int, connection: c_int) {
    /// The connection that was taken before.
    static LAST: AtomicI32 = AtomicI32::new(-1);
    // First: where no daemon has the device it costs no call of the kernel's.
    if !ours(|| janus_c::process::may_serve(listener)) {
        return;
    }
    claimed::note(connection);
    let last = LAST.swap(connection, Ordering::Relaxed);
    if process().is_some() || last != connection && carried::is_there(last) {
        serves(listener);
    }
}

/// Makes a listener of its parent's the child's own, if that can be. It is waited for as it was before.
pub(crate) fn serves(listener: c_int) -> bool {
    let instances = watched::take_out(listener);
    let inside = Inside::enter();
    let serves = janus_c::process::serves(listener);
    if serves {
        signals::begin();
    }
    drop(inside);
    watched::put_back(listener, instances);
    serves
}

/// About to fork, before all else is: from here on handlers wait until both processes are what they will be. A child whose parent is gone takes its
/// place for children of its own, at what listens.
pub(crate) extern "C" fn before_fork() {
    if !is_inside() {
        takes_its_parents_place();
        claimed::forget_all();
    }
    core::mem::forget(Inside::enter());
}

/// The last of a fork, in both processes.
pub(crate) extern "C" fn after_fork() {
    drop(Inside);
}

fn takes_its_parents_place() {
    // First what costs no call of the kernel's, here and where one is claimed.
    let servable = ours(janus_c::process::servable);
    if !servable.is_empty() && ours(janus_c::process::is_orphan) {
        for fd in servable {
            serves(fd);
        }
    }
}

/// In a forked child: whether a descriptor was a listener of its parent's that a process of the child's own may have once that has ended.
pub(crate) fn may_follow(fd: c_int) -> bool {
    ours(|| janus_c::process::may_follow(fd))
}

/// In a forked child: it is about to use this descriptor. Whether it was a socket of its parent's up to now.
#[inline]
pub(crate) fn claim(fd: c_int) -> bool {
    let was_parents = janus_c::process::was_parents(fd) && !is_inside();
    if was_parents {
        claim_parents(fd);
    }
    was_parents
}

/// In a forked child: it closes these descriptors, or puts others in their place.
#[inline]
pub(crate) fn child_closes(first: c_int, last: c_int) {
    if janus_c::process::is_forked() && !is_inside() {
        let _inside = Inside::enter();
        janus_c::process::child_closes(first, last);
    }
}

/// That one cannot be had, as it is no connection, is told once.
#[cold]
fn claim_parents(fd: c_int) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if may_follow(fd) && ours(janus_c::process::is_orphan) && serves(fd) {
        return;
    }
    let inside = Inside::enter();
    let is_alone = janus_c::process::has_alone(fd);
    if janus_c::process::claims(fd) {
        drop(inside);
        if is_alone {
            claimed::note(fd);
        }
    } else if !TOLD.swap(true, Ordering::Relaxed) {
        eprintln!(
            "janus: process {} was forked, and has of its parent the sockets that listen and that are connected only",
            std::process::id()
        );
    }
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

/// Whether this is a child that was forked from a process with connections, and has none of its own.
pub(crate) fn is_forked() -> bool {
    janus_c::process::is_forked() && janus_c::process::started().is_none()
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
