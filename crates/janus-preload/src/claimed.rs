//! Connections that another process carries for this one, and that only this one has: once it has TCP of its own it claims them, so that they are carried no more
//! (`janus-process`, `pump::claim`). That is tried in calls that move bytes, as then the program waits for nothing. A child of a server that forks for each
//! connection gets such TCP once it has used its for long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use janus_process::{Errno, Numbers};
use libc::c_int;

use crate::inside::{self, FEW, is_inside, ours};
use crate::{choice, real, signals, watched};

/// Their descriptors, each the only one.
static ALONE: Numbers<FEW> = Numbers::none();
/// There may be some.
static ANY: AtomicBool = AtomicBool::new(false);
/// The program has threads: one may wait in the kernel for what would not be there any more.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);
static CALLS: Mutex<Option<HashMap<c_int, Calls>>> = Mutex::new(None);

/// Calls at one in which it might have come.
#[derive(Default)]
struct Calls {
    made: u32,
    /// The next in which that is tried.
    next: u32,
}

/// Calls after which a child that has one connection, of its parent's, gets TCP of its own for it.
const LONG_LIVED: u32 = 256;

/// One has come.
pub(crate) fn note(fd: c_int) {
    // Streams of libc have the first three.
    if fd > 2 && ALONE.add(fd) {
        ANY.store(true, Ordering::Relaxed);
        ours(|| choice::forget(fd));
    }
}

/// Whether a descriptor is one.
#[inline]
pub(crate) fn may_be(fd: c_int) -> bool {
    ALONE.has(fd)
}

/// It is closed, or others have it too from now on.
#[inline]
pub(crate) fn forget(fd: c_int) {
    if may_be(fd) {
        ALONE.remove(fd);
        ours(|| {
            calls(|calls| calls.remove(&fd));
            choice::forget(fd);
        });
    }
}

/// Likewise, several.
pub(crate) fn forget_between(first: c_int, last: c_int) {
    if ANY.load(Ordering::Relaxed) {
        let all = ours(|| ALONE.all());
        all.into_iter()
            .filter(|fd| (first..=last).contains(fd))
            .for_each(forget);
    }
}

/// The program is about to fork: its child has all of them too.
pub(crate) fn forget_all() {
    forget_between(0, c_int::MAX);
    ANY.store(false, Ordering::Relaxed);
}

/// The program has begun a thread.
pub(crate) fn has_thread() {
    HAS_THREADS.store(true, Ordering::Relaxed);
}

/// In a forked child: it has none.
pub(crate) fn has_no_thread() {
    HAS_THREADS.store(false, Ordering::Relaxed);
}

fn calls<R>(call: impl FnOnce(&mut HashMap<c_int, Calls>) -> R) -> R {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    call(calls.get_or_insert_default())
}

/// The program is about to move bytes by this descriptor. Whether it is one of Janus's from now on.
#[inline]
pub(crate) fn comes(fd: c_int) -> bool {
    may_be(fd) && !is_inside() && claim(fd)
}

fn has_unread(fd: c_int) -> bool {
    let mut unread: c_int = 0;
    // SAFETY: there is room for the number.
    let told = unsafe { real::ioctl(fd, libc::FIONREAD, (&raw mut unread).cast()) };
    told != 0 || unread > 0
}

/// Counts a call. How many there were, if it is one in which it is tried: a connection that always has something under way is to stay where it is, at little cost; and
/// a program that asks and is answered in turns is to be met in both.
fn is_due(fd: c_int) -> Option<u32> {
    calls(|calls| {
        let Calls { made, next } = calls.entry(fd).or_default();
        *made = made.saturating_add(1);
        (made >= next).then(|| {
            *next = made.saturating_add(*made / 2 + 1);
            *made
        })
    })
}

#[cold]
fn claim(fd: c_int) -> bool {
    if HAS_THREADS.load(Ordering::Relaxed) || has_unread(fd) {
        return false;
    }
    let Some(made) = ours(|| is_due(fd)) else {
        return false;
    };
    let process = match inside::process() {
        Some(process) => process,
        None if made < LONG_LIVED => return false,
        None => {
            let Some(process) = ours(|| janus_c::process::begins_for(fd)) else {
                forget(fd);
                return false;
            };
            ours(signals::begin);
            process
        }
    };
    match ours(|| process.claims_carried(fd)) {
        Ok(new) => {
            let instances = watched::take_out(fd);
            let came = ours(|| choice::takes_place(process, new, fd));
            forget(fd);
            watched::put_back(fd, instances);
            came.is_ok()
        }
        Err(Errno::EAGAIN) => false,
        Err(_) => {
            forget(fd);
            false
        }
    }
}
