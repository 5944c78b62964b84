//! poll, select and epoll, over sockets of Janus's and descriptors of the kernel's at once. Each function has the arguments of the C function
//! of that name and returns what that does.
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "each has the contract of the C function of its name"
)]

use core::time::Duration;

use janus_process::{Errno, Event, Polled, Result, abi};
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, timespec, timeval};

use crate::errno::{done, number};
use crate::process;

/// Descriptors that one `poll` may name: RLIMIT_NOFILE's usual ceiling.
const POLL_MAX: usize = 1 << 20;
/// EP_MAX_EVENTS.
const EVENTS_MAX: usize = c_int::MAX as usize / size_of::<epoll_event>();
/// Events asked for at once: a program that has room for more is told of the others by its next call.
const EVENTS_AT_ONCE: usize = 1_024;

/// Milliseconds as `poll` and `epoll_wait` take them.
fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A time that a pointer names; null waits for ever.
unsafe fn time(timeout: *const timespec) -> Result<Option<Duration>> {
    if timeout.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller keeps the contract of ppoll and its kin.
    let time = unsafe { timeout.read_unaligned() };
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno::EINVAL)?;
    match u32::try_from(time.tv_nsec) {
        Ok(nanos @ 0..1_000_000_000) => Ok(Some(Duration::new(seconds, nanos))),
        _ => Err(Errno::EINVAL),
    }
}

unsafe fn poll_for(fds: *mut pollfd, count: nfds_t, limit: Option<Duration>) -> Result<c_int> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    if count > POLL_MAX {
        return Err(Errno::EINVAL);
    }
    if count > 0 && fds.is_null() {
        return Err(Errno::EFAULT);
    }
    let fds = match count {
        0 => &mut [],
        // SAFETY: the caller keeps poll's contract: so many places are there, and his alone.
        _ => unsafe { core::slice::from_raw_parts_mut(fds, count) },
    };
    let mut polled: Vec<Polled> = fds
        .iter()
        .map(|it| Polled {
            fd: it.fd,
            events: it.events,
            revents: 0,
        })
        .collect();
    let told = process::get()?.poll(&mut polled, limit)?;
    fds.iter_mut()
        .zip(&polled)
        .for_each(|(place, it)| place.revents = it.revents);
    Ok(told as c_int)
}

pub unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller keeps poll's contract.
    number(unsafe { poll_for(fds, count, millis(timeout)) })
}

/// `ppoll` without a mask of signals: that is its caller's to set.
pub unsafe fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec) -> c_int {
    // SAFETY: the caller keeps ppoll's contract.
    number(unsafe { time(timeout).and_then(|limit| poll_for(fds, count, limit)) })
}

/// The events that `select` asks for by its three sets, and those that each set tells of (POLLIN_SET and so on).
const SETS: [(i32, i32); 3] = [
    (
        abi::POLLIN | abi::POLLRDNORM | abi::POLLRDBAND,
        abi::POLLIN | abi::POLLRDNORM | abi::POLLRDBAND | abi::POLLHUP | abi::POLLERR,
    ),
    (
        abi::POLLOUT | abi::POLLWRNORM | abi::POLLWRBAND,
        abi::POLLOUT | abi::POLLWRNORM | abi::POLLWRBAND | abi::POLLERR,
    ),
    (abi::POLLPRI, abi::POLLPRI),
];

/// The words of a set: it may be larger than `fd_set` says, as the program allocates it.
unsafe fn bit<'a>(set: *mut fd_set, fd: usize) -> (&'a mut u64, u64) {
    // SAFETY: the caller keeps select's contract: the set has a bit for each descriptor below the first argument.
    (
        unsafe { &mut *set.cast::<u64>().add(fd / 64) },
        1 << (fd % 64),
    )
}

unsafe fn select_for(
    count: c_int,
    sets: [*mut fd_set; 3],
    limit: Option<Duration>,
) -> Result<c_int> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    let mut polled = Vec::new();
    for fd in 0..count {
        let mut events = 0;
        for (set, (_, tells)) in sets.iter().zip(SETS) {
            // SAFETY: the caller keeps select's contract.
            if !set.is_null() && unsafe { bit(*set, fd) }.0.to_owned() & (1 << (fd % 64)) != 0 {
                events |= tells;
            }
        }
        if events != 0 {
            polled.push(Polled {
                fd: fd as c_int,
                events: events as i16,
                revents: 0,
            });
        }
    }
    let process = process::get()?;
    let is_there = |it: &Polled| i32::from(it.revents) & abi::POLLNVAL == 0;
    let told = process.poll_exactly(&mut polled, Some(Duration::ZERO))?;
    if !polled.iter().all(is_there) {
        return Err(Errno::EBADF);
    }
    if told == 0 && limit != Some(Duration::ZERO) {
        // One that is closed meanwhile counts as ready for all that it was asked for.
        process.poll_exactly(&mut polled, limit)?;
    }
    let mut told = 0;
    for it in polled {
        for (set, (asks, tells)) in sets.iter().zip(SETS) {
            if set.is_null() || i32::from(it.events) & asks == 0 {
                continue;
            }
            // SAFETY: as above.
            let (word, bit) = unsafe { bit(*set, it.fd as usize) };
            let asked = *word & bit != 0;
            *word &= !bit;
            if asked && i32::from(it.revents) & (tells | abi::POLLNVAL) != 0 {
                *word |= bit;
                told += 1;
            }
        }
    }
    Ok(told)
}

pub unsafe fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let limit = match timeout.is_null() {
        true => Ok(None),
        false => {
            // SAFETY: the caller keeps select's contract.
            let time = unsafe { timeout.read_unaligned() };
            match (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec)) {
                (Ok(seconds), Ok(micros)) => Ok(Some(
                    Duration::from_secs(seconds) + Duration::from_micros(micros),
                )),
                _ => Err(Errno::EINVAL),
            }
        }
    };
    // SAFETY: the caller keeps select's contract.
    number(limit.and_then(|limit| unsafe { select_for(count, [read, write, except], limit) }))
}

/// `pselect` without a mask of signals: that is its caller's to set.
pub unsafe fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller keeps pselect's contract.
    number(unsafe {
        time(timeout).and_then(|limit| select_for(count, [read, write, except], limit))
    })
}

pub fn epoll_create(flags: c_int) -> c_int {
    number(process::get().and_then(|process| process.epoll_create(flags)))
}

pub unsafe fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let control = || {
        let event = match (op, event.is_null()) {
            (abi::EPOLL_CTL_DEL, _) => Event::default(),
            (_, true) => return Err(Errno::EFAULT),
            // SAFETY: the caller keeps epoll_ctl's contract.
            _ => unsafe { of_c(event.read_unaligned()) },
        };
        process::get()?.epoll_ctl(epfd, op, fd, event)
    };
    done(control())
}

fn of_c(event: epoll_event) -> Event {
    Event {
        events: event.events,
        data: event.u64,
    }
}

unsafe fn epoll_wait_for(
    epfd: c_int,
    into: *mut epoll_event,
    max: c_int,
    limit: Option<Duration>,
) -> Result<c_int> {
    let room = usize::try_from(max).unwrap_or(0);
    if room == 0 || room > EVENTS_MAX {
        return Err(Errno::EINVAL);
    }
    if into.is_null() {
        return Err(Errno::EFAULT);
    }
    let mut few = [Event::default(); 64];
    let mut many;
    let happened = match room {
        ..=64 => &mut few[..room],
        _ => {
            many = vec![Event::default(); room.min(EVENTS_AT_ONCE)];
            &mut many[..]
        }
    };
    let told = process::get()?.epoll_wait(epfd, happened, limit)?;
    for (at, event) in happened[..told].iter().enumerate() {
        let event = epoll_event {
            events: event.events,
            u64: event.data,
        };
        // SAFETY: the caller keeps epoll_wait's contract: there is room for `max` events.
        unsafe { into.add(at).write_unaligned(event) };
    }
    Ok(told as c_int)
}

pub unsafe fn epoll_wait(epfd: c_int, into: *mut epoll_event, max: c_int, timeout: c_int) -> c_int {
    // SAFETY: the caller keeps epoll_wait's contract.
    number(unsafe { epoll_wait_for(epfd, into, max, millis(timeout)) })
}

/// `epoll_pwait2` without a mask of signals: that is its caller's to set.
pub unsafe fn epoll_wait_exactly(
    epfd: c_int,
    into: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller keeps epoll_pwait2's contract.
    number(unsafe { time(timeout).and_then(|limit| epoll_wait_for(epfd, into, max, limit)) })
}
