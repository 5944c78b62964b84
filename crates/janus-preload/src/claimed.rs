//! Connections that another process carries for this one, and that only this one has: once it has TCP of its own it claims them, so that they are carried no more
//! (`janus-process`, `pump::claim`). That is tried in calls that move bytes, as then the program waits for nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use janus_process::{Errno, Numbers};
use libc::c_int;

use crate::inside::{self, FEW, is_inside, ours};
use crate::{choice, real, watched};

/// Their descriptors, each the only one.
static ALONE: Numbers<FEW> = Numbers::none();
/// There may be some.
static ANY: AtomicBool = AtomicBool::new(false);
/// The program has threads: one may wait in the kernel for what would not be there any more.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);
/// Calls so far at each in which it might have come.
static CALLS: Mutex<Option<HashMap<c_int, u32>>> = Mutex::new(None);

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
        ours(|| calls(|calls| calls.remove(&fd)));
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

fn calls<R>(call: impl FnOnce(&mut HashMap<c_int, u32>) -> R) -> R {
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

/// Tries again after twice as many calls: a connection that always has something under way stays where it is.
#[cold]
fn claim(fd: c_int) -> bool {
    let Some(process) = inside::process().filter(|_| !HAS_THREADS.load(Ordering::Relaxed)) else {
        return false;
    };
    if has_unread(fd) {
        return false;
    }
    let made = ours(|| {
        calls(|calls| {
            let made = calls.entry(fd).or_default();
            *made = made.wrapping_add(1);
            *made
        })
    });
    if !made.is_power_of_two() {
        return false;
    }
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
