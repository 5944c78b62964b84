//! An epoll instance is the kernel's until a socket of Janus's is added to it. Threads that wait for it by then wait in the kernel: they are
//! called out, and go on waiting in Janus.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, epoll_event};

use crate::inside::is_ours;
use crate::real;

/// Instances with numbers below this call their waiters out; in others they stay until something of the kernel's happens.
const FDS: usize = 4_096;
/// Set in a place of [`WAITING`] while its instance is adopted.
const ADOPTED: u32 = 1 << 31;
/// The longest time that waiters are waited for.
const LONG: Duration = Duration::from_secs(1);

/// Threads that wait in the kernel, by the number of the instance.
static WAITING: [AtomicU32; FDS] = [const { AtomicU32::new(0) }; FDS];

fn place(epfd: c_int) -> Option<&'static AtomicU32> {
    WAITING.get(usize::try_from(epfd).ok()?)
}

/// Data of the event that calls out: an address that no program uses.
fn call() -> u64 {
    WAITING.as_ptr().addr() as u64
}

/// One that rings.
fn bell() -> Option<OwnedFd> {
    // SAFETY: the call takes numbers; what it gives has no other owner.
    unsafe {
        match libc::eventfd(1, libc::EFD_CLOEXEC) {
            -1 => None,
            fd => Some(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// In a forked child: none of the threads that waited is there.
pub(crate) extern "C" fn forget() {
    WAITING.iter().for_each(|it| it.store(0, Ordering::SeqCst));
}

/// Waits for an instance of the kernel's by `wait`, which puts events at `into`. `None`: it is Janus's now, and nothing has happened yet.
///
/// # Safety
/// epoll_wait's contract.
pub(crate) unsafe fn wait(
    epfd: c_int,
    into: *mut epoll_event,
    mut wait: impl FnMut() -> c_int,
) -> Option<c_int> {
    let Some(place) = place(epfd) else {
        return Some(wait());
    };
    loop {
        while place.fetch_add(1, Ordering::SeqCst) & ADOPTED != 0 {
            place.fetch_sub(1, Ordering::SeqCst);
            std::thread::yield_now();
        }
        if is_ours(epfd) {
            place.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let told = wait();
        place.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: the kernel has put so many events there.
        let kept = unsafe { without_calls(into, usize::try_from(told).unwrap_or(0)) };
        if told <= 0 || kept > 0 {
            return Some(told.min(kept as c_int));
        }
    }
}

/// Takes the event that calls out from so many events. How many are left.
unsafe fn without_calls(into: *mut epoll_event, count: usize) -> usize {
    let mut kept = 0;
    for at in 0..count {
        // SAFETY: the caller says that there are so many.
        unsafe {
            let event = into.add(at).read_unaligned();
            if event.u64 != call() {
                into.add(kept).write_unaligned(event);
                kept += 1;
            }
        }
    }
    kept
}

/// Makes an instance Janus's by `adopt` while no thread waits for it.
pub(crate) fn adopt<R>(epfd: c_int, adopt: impl FnOnce() -> R) -> R {
    let Some(place) = place(epfd) else {
        return adopt();
    };
    let waiting = place.fetch_or(ADOPTED, Ordering::SeqCst);
    let mut event = epoll_event {
        events: libc::EPOLLIN as u32,
        u64: call(),
    };
    if waiting & !ADOPTED != 0
        && let Some(bell) = bell()
    {
        let fd = bell.as_raw_fd();
        // SAFETY: the event is there, and the bell is open until it is taken out.
        unsafe { real::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, &mut event) };
        let until = Instant::now() + LONG;
        while place.load(Ordering::SeqCst) & !ADOPTED != 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        // SAFETY: as above.
        unsafe { real::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, null_mut()) };
    }
    let adopted = adopt();
    place.fetch_and(!ADOPTED, Ordering::SeqCst);
    adopted
}
