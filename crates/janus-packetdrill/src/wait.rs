//! Waiting for what happens on descriptors: poll and epoll.

use super::cabi::events::{self, Polled};
use super::cabi::memory::UserPtr;
use super::calls::publish;
use super::descriptors::Kind;
use super::room::{Attempt, Patience, Room, State};
use janus_posix::{EpollEvent, Errno, abi};
use std::time::Duration;

type Result<T> = std::result::Result<T, Errno>;

/// Milliseconds, as poll and epoll_wait count; `None`: for ever.
fn patience(timeout: i32) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Returns the events that are present on a descriptor, among those asked for.
fn look(state: &mut State, polled: &Polled) -> i16 {
    if polled.fd < 0 {
        return 0;
    }
    let seen = match state.open.get(polled.fd) {
        Err(_) => return libc::POLLNVAL,
        Ok(Kind::PipeOut(pipe)) => state.open.pipe(pipe).readable(),
        Ok(Kind::PipeIn(pipe)) => state.open.pipe(pipe).writable(),
        Ok(Kind::Socket(socket)) => {
            let (mut sockets, now) = state.sockets();
            match sockets.readiness(now, socket) {
                Ok(mask) => mask as i16,
                Err(_) => return libc::POLLNVAL,
            }
        }
    };
    seen & (polled.wanted | libc::POLLERR | libc::POLLHUP)
}

pub(super) fn poll(room: &Room, polled: UserPtr, count: usize, timeout: i32) -> Result<i32> {
    let mut entries = events::read_polled(polled, count)?;
    let mut waited = Patience::default();
    let told = room.wait(|state| {
        let until = waited.until(state, patience(timeout));
        let mut told = 0;
        for entry in &mut entries {
            entry.seen = look(state, entry);
            told += i32::from(entry.seen != 0);
        }
        if told > 0 || timeout == 0 {
            return Attempt::Done(Ok(told));
        }
        when_time_is_over(until)
    })?;
    events::write_seen(polled, &entries)?;
    Ok(told)
}

/// Nothing yet: nothing at all, when the time is over. Who may not wait and would for ever is told so.
fn when_time_is_over(until: Option<u64>) -> Attempt<i32> {
    let instead = match until {
        Some(_) => Ok(0),
        None => Err(Errno::EAGAIN),
    };
    Attempt::Blocked(instead, until)
}

pub(super) fn epoll_create(room: &Room, size: i32) -> Result<i32> {
    if size <= 0 {
        return Err(Errno::EINVAL);
    }
    room.call(|state| {
        let epoll = state.host.sockets().epoll_create(0)?;
        publish(state, epoll)
    })
}

pub(super) fn epoll_ctl(room: &Room, epoll: i32, op: i32, fd: i32, event: UserPtr) -> Result<i32> {
    let (wanted, data) = match op {
        abi::EPOLL_CTL_DEL => (0, 0),
        _ => events::read_interest(event)?,
    };
    room.call(|state| {
        let Kind::Socket(epoll) = state.open.get(epoll)? else {
            return Err(Errno::EINVAL);
        };
        let Kind::Socket(fd) = state.open.get(fd)? else {
            // Pipes are for splice only here: what the kernel says of what cannot be watched.
            return Err(Errno(libc::EPERM));
        };
        let (mut sockets, now) = state.sockets();
        sockets.epoll_ctl(now, epoll, op, fd, wanted, data)?;
        Ok(0)
    })
}

pub(super) fn epoll_wait(
    room: &Room,
    epoll: i32,
    into: UserPtr,
    max: i32,
    timeout: i32,
) -> Result<i32> {
    let mut happened = vec![EpollEvent::default(); events::room(max)?];
    let mut waited = Patience::default();
    let told = room.wait(|state| {
        let until = waited.until(state, patience(timeout));
        let found = match state.open.get(epoll) {
            Ok(Kind::Socket(epoll)) => {
                let (mut sockets, now) = state.sockets();
                sockets.epoll_wait(now, epoll, &mut happened)
            }
            Ok(_) => Err(Errno::EINVAL),
            Err(errno) => Err(errno),
        };
        match found {
            Ok(0) if timeout != 0 => when_time_is_over(until),
            found => Attempt::Done(found.map(|told| told as i32)),
        }
    })?;
    let told_events = happened[..told as usize].iter();
    let pairs: Vec<(u32, u64)> = told_events
        .map(|event| (event.events, event.data))
        .collect();
    events::write_happened(into, &pairs)?;
    Ok(told)
}
