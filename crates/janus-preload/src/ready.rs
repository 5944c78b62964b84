//! poll, select and epoll. A call that names nothing of Janus's is libc's; so is an epoll instance until something of Janus's is added.

use core::ptr::null_mut;

use std::time::Instant;

use janus_c::ready;
use janus_process::{Process, Result};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::inside::{self, is_ours, is_ours_to_use, ours};
use crate::{adopted, left, real, watched};

/// While it lives, this thread blocks other signals: what ppoll and its kin do for the length of a wait. (One that comes between the change
/// and the wait is seen by the wait too, as its handler has run.)
struct Masked(Option<sigset_t>);

impl Masked {
    /// # Safety
    /// `mask` is null or names a set.
    unsafe fn by(mask: *const sigset_t) -> Masked {
        if mask.is_null() {
            return Masked(None);
        }
        // SAFETY: as the caller says; the other set is plain data that the call writes.
        unsafe {
            let mut before = core::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, mask, &mut before);
            Masked(Some(before))
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the set is the one that was there before.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, null_mut()) };
        }
    }
}

/// Whether no descriptor can be anything but the kernel's.
fn knows_none() -> bool {
    inside::process().is_none() && !inside::is_forked() && !left::are_there()
}

unsafe fn names_ours(fds: *const pollfd, count: nfds_t) -> bool {
    if fds.is_null() || knows_none() {
        return false;
    }
    // SAFETY: the caller of poll says that there are so many.
    (0..count as usize).any(|at| is_ours_to_use(unsafe { (*fds.add(at)).fd }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller keeps poll's contract.
    unsafe {
        match names_ours(fds, count) {
            true => ours(|| ready::poll(fds, count, timeout)),
            false => real::poll(fds, count, timeout),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    _room: libc::size_t,
) -> c_int {
    // SAFETY: the caller keeps poll's contract.
    unsafe { poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps ppoll's contract.
    unsafe {
        if !names_ours(fds, count) {
            return real::ppoll(fds, count, timeout, mask);
        }
        let _masked = Masked::by(mask);
        ours(|| ready::ppoll(fds, count, timeout))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: libc::size_t,
) -> c_int {
    // SAFETY: the caller keeps ppoll's contract.
    unsafe { ppoll(fds, count, timeout, mask) }
}

unsafe fn sets_name_ours(count: c_int, sets: [*mut fd_set; 3]) -> bool {
    if knows_none() {
        return false;
    }
    let named = |set: &*mut fd_set, fd: usize| {
        // SAFETY: the caller of select says that each set has a bit for each descriptor below the count.
        !set.is_null() && unsafe { *set.cast::<u64>().add(fd / 64) } & (1 << (fd % 64)) != 0
    };
    (0..usize::try_from(count).unwrap_or(0))
        .any(|fd| sets.iter().any(|set| named(set, fd)) && is_ours_to_use(fd as c_int))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller keeps select's contract.
    unsafe {
        match sets_name_ours(count, [read, write, except]) {
            true => ours(|| ready::select(count, read, write, except, timeout)),
            false => real::select(count, read, write, except, timeout),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps pselect's contract.
    unsafe {
        if !sets_name_ours(count, [read, write, except]) {
            return real::pselect(count, read, write, except, timeout, mask);
        }
        let _masked = Masked::by(mask);
        ours(|| ready::pselect(count, read, write, except, timeout))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn epoll_create(size: c_int) -> c_int {
    match size {
        ..=0 => janus_c::fail(janus_process::Errno::EINVAL),
        _ => epoll_create1(0),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the call takes a number.
    unsafe { real::epoll_create1(flags) }
}

/// Another thread may have been first.
fn adopt(process: &Process, epfd: c_int) -> Result<()> {
    match process.has(epfd) {
        true => Ok(()),
        false => process.epoll_adopt(epfd),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    if op == libc::EPOLL_CTL_ADD {
        left::is_used(fd);
        inside::claim(fd);
    }
    // SAFETY: the caller keeps epoll_ctl's contract, here and below.
    unsafe { watched::note(epfd, op, fd, event) };
    let Some(process) = inside::process() else {
        // SAFETY: as above.
        return unsafe { real::epoll_ctl(epfd, op, fd, event) };
    };
    if process.has(fd) && !process.has(epfd) {
        // From now on it watches sockets of ours too; what it watches of the kernel's it goes on to watch.
        if let Err(error) = ours(|| adopted::adopt(epfd, || adopt(process, epfd))) {
            return janus_c::fail(error);
        }
    }
    // SAFETY: as above.
    unsafe {
        match process.has(epfd) {
            true => ours(|| ready::epoll_ctl(epfd, op, fd, event)),
            false => real::epoll_ctl(epfd, op, fd, event),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epfd: c_int,
    into: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller keeps epoll_wait's contract.
    unsafe {
        if is_ours(epfd) {
            return ours(|| ready::epoll_wait(epfd, into, max, timeout));
        }
        let begin = Instant::now();
        let kernels = || real::epoll_wait(epfd, into, max, timeout);
        match adopted::wait(epfd, into, kernels) {
            Some(told) => told,
            None => ours(|| ready::epoll_wait(epfd, into, max, left(timeout, begin))),
        }
    }
}

/// Milliseconds that are left of a limit.
fn left(timeout: c_int, begin: Instant) -> c_int {
    let passed = c_int::try_from(begin.elapsed().as_millis()).unwrap_or(c_int::MAX);
    if timeout < 0 {
        timeout
    } else {
        (timeout - passed).max(0)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    epfd: c_int,
    into: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps epoll_pwait's contract.
    unsafe {
        let mut limit = timeout;
        if !is_ours(epfd) {
            let begin = Instant::now();
            let kernels = || real::epoll_pwait(epfd, into, max, timeout, mask);
            if let Some(told) = adopted::wait(epfd, into, kernels) {
                return told;
            }
            limit = left(timeout, begin);
        }
        let _masked = Masked::by(mask);
        ours(|| ready::epoll_wait(epfd, into, max, limit))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    epfd: c_int,
    into: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller keeps epoll_pwait2's contract.
    unsafe {
        let kernels = || real::epoll_pwait2(epfd, into, max, timeout, mask);
        if !is_ours(epfd)
            && let Some(told) = adopted::wait(epfd, into, kernels)
        {
            return told;
        }
        // The limit begins anew for one that was called out, which waits longer by what has passed.
        let _masked = Masked::by(mask);
        ours(|| ready::epoll_wait_exactly(epfd, into, max, timeout))
    }
}
