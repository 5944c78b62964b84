//! Instances of epoll, the kernel's, in which a process waits for a socket that may become another: the queue of a listener in a forked child, or one
//! that is nowhere yet. What comes in its place is to be in the same.

use core::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{c_int, epoll_event};

use crate::inside::Inside;
use crate::{claimed, inside, made, ready, real};

struct Watch {
    instance: c_int,
    fd: c_int,
    event: epoll_event,
}

static WATCHES: Mutex<Vec<Watch>> = Mutex::new(Vec::new());

fn watches() -> MutexGuard<'static, Vec<Watch>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call of `epoll_ctl` is made.
///
/// # Safety
/// The event is null or there.
#[inline]
pub(crate) unsafe fn note(instance: c_int, op: c_int, fd: c_int, event: *const epoll_event) {
    let may_become = || {
        let is_listener = || inside::is_forked() && inside::may_follow(fd);
        made::may_be(fd) || claimed::may_be(fd) || is_listener()
    };
    if !inside::is_inside() && may_become() {
        let _inside = Inside::enter();
        let mut all = watches();
        all.retain(|it| (it.instance, it.fd) != (instance, fd));
        // SAFETY: the caller says so.
        let event = unsafe { event.as_ref() }.copied();
        let event = event.filter(|_| op != libc::EPOLL_CTL_DEL);
        all.extend(event.map(|event| Watch {
            instance,
            fd,
            event,
        }));
    }
}

/// Takes one out of all of them, and says what they were.
pub(crate) fn take_out(fd: c_int) -> Vec<(c_int, epoll_event)> {
    let _inside = Inside::enter();
    let mut all = watches();
    let its = all.extract_if(.., |it| it.fd == fd);
    let its: Vec<_> = its.map(|it| (it.instance, it.event)).collect();
    for (instance, _) in &its {
        // SAFETY: the call takes numbers. It fails for one that was closed since.
        unsafe { real::epoll_ctl(*instance, libc::EPOLL_CTL_DEL, fd, null_mut()) };
    }
    its
}

/// Puts what has this number now into all of them.
pub(crate) fn put_back(fd: c_int, instances: Vec<(c_int, epoll_event)>) {
    for (instance, mut event) in instances {
        // SAFETY: the event is there.
        unsafe { ready::epoll_ctl(instance, libc::EPOLL_CTL_ADD, fd, &mut event) };
    }
}
