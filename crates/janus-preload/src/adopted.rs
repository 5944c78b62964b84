//! Instances of epoll that become Janus's while threads wait for them in the kernel, as one does when the first socket of ours is added to
//! it. Those threads are called, and wait on where that socket is seen.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use janus_process::{CALL, Errno, Process};
use libc::{c_int, epoll_event};
use rustix::event::{EventfdFlags, eventfd};

use crate::inside::{Inside, is_inside, is_ours};
use crate::real;

/// Threads that wait in the kernel for the instance of each number. Higher numbers are not called.
static WAITING: [AtomicU16; 1 << 16] = [const { AtomicU16::new(0) }; 1 << 16];
/// Bells that are in an instance until its threads have heard them.
static RINGING: Mutex<Option<HashMap<c_int, OwnedFd>>> = Mutex::new(None);

fn waiting(epfd: c_int) -> Option<&'static AtomicU16> {
    WAITING.get(usize::try_from(epfd).ok()?)
}

/// A thread waits for an instance of the kernel's. `None`: it is Janus's meanwhile, and there is nothing to tell of it yet.
///
/// # Safety
/// `wait` is a wait of libc's for `epfd`, and writes to `into`.
pub(crate) unsafe fn wait(
    epfd: c_int,
    into: *mut epoll_event,
    wait: impl FnOnce() -> c_int,
) -> Option<c_int> {
    let Some(waiting) = waiting(epfd).filter(|_| !is_inside()) else {
        return Some(wait());
    };
    // Counted before it is looked whose it is, and called after it is said: one of the two sees the other.
    waiting.fetch_add(1, Ordering::SeqCst);
    let told = (!is_ours(epfd)).then(wait);
    let others = waiting.fetch_sub(1, Ordering::SeqCst) - 1;
    if !is_ours(epfd) {
        return told;
    }
    if others == 0 {
        is_heard(epfd);
    }
    match told {
        // SAFETY: the kernel has written so many.
        Some(some @ 1..) => match unsafe { without_call(into, some as usize) } {
            0 => None,
            left => Some(left as c_int),
        },
        other => other,
    }
}

/// Takes the bell's event from those that a thread was told; how many are left.
unsafe fn without_call(into: *mut epoll_event, told: usize) -> usize {
    let mut left = 0;
    for at in 0..told {
        // SAFETY: as the caller says; `left` is never beyond `at`.
        unsafe {
            let event = into.add(at).read_unaligned();
            if event.u64 != CALL {
                into.add(left).write_unaligned(event);
                left += 1;
            }
        }
    }
    left
}

/// Makes an instance Janus's, and calls those who wait for it.
///
/// # Errors
/// Those of [`Process::epoll_adopt`].
pub(crate) fn adopt(process: &Process, epfd: c_int) -> Result<(), Errno> {
    let _inside = Inside::enter();
    process.epoll_adopt(epfd)?;
    if waiting(epfd).is_none_or(|waiting| waiting.load(Ordering::SeqCst) == 0) {
        return Ok(());
    }
    let mut ringing = RINGING.lock().unwrap_or_else(PoisonError::into_inner);
    // Without a descriptor for it they wait until something of the kernel's happens.
    let Ok(bell) = eventfd(1, EventfdFlags::CLOEXEC) else {
        return Ok(());
    };
    let bell = janus_process::keep_raised(bell);
    let mut event = epoll_event {
        events: libc::EPOLLIN as u32,
        u64: CALL,
    };
    // SAFETY: the event is there for as long as the call.
    unsafe { real::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, bell.as_raw_fd(), &mut event) };
    let all = ringing.get_or_insert_default();
    all.insert(epfd, bell);
    drop(ringing);
    // They may all have left before it rang.
    if waiting(epfd).is_some_and(|waiting| waiting.load(Ordering::SeqCst) == 0) {
        is_heard(epfd);
    }
    Ok(())
}

/// No thread waits in the kernel any more.
#[cold]
fn is_heard(epfd: c_int) {
    let _inside = Inside::enter();
    let mut ringing = RINGING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bell) = ringing.as_mut().and_then(|all| all.remove(&epfd)) {
        // SAFETY: the call takes numbers. An instance that is closed has it no more.
        unsafe {
            real::epoll_ctl(
                epfd,
                libc::EPOLL_CTL_DEL,
                bell.as_raw_fd(),
                core::ptr::null_mut(),
            )
        };
        janus_process::let_go(bell);
    }
}
