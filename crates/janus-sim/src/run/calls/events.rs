//! poll and epoll: what is ready, now or within a time.

use super::super::Runner;
use super::super::values::{c_int, field, int, len};
use super::{Attempt, Course, Result};
use crate::script::{Call, Expr};
use janus_posix::{EpollEvent, Errno, PollFd, abi};
use std::time::Duration;

/// Reads the time a call may wait, in milliseconds; `None`: for ever, for a negative number.
fn patience(timeout: &Expr) -> Result<Option<Duration>> {
    Ok(u64::try_from(int(timeout)?).ok().map(Duration::from_millis))
}

/// Bits as a script names them.
fn names(bits: u32) -> String {
    const NAMES: [(&str, i32); 11] = [
        ("POLLIN", abi::POLLIN),
        ("POLLPRI", abi::POLLPRI),
        ("POLLOUT", abi::POLLOUT),
        ("POLLERR", abi::POLLERR),
        ("POLLHUP", abi::POLLHUP),
        ("POLLNVAL", abi::POLLNVAL),
        ("POLLRDNORM", abi::POLLRDNORM),
        ("POLLRDBAND", abi::POLLRDBAND),
        ("POLLWRNORM", abi::POLLWRNORM),
        ("POLLWRBAND", abi::POLLWRBAND),
        ("POLLRDHUP", abi::POLLRDHUP),
    ];
    let known = NAMES.iter().filter(|(_, bit)| bits & *bit as u32 != 0);
    let mut parts: Vec<String> = known.clone().map(|(name, _)| (*name).to_owned()).collect();
    let rest = known.fold(bits, |bits, (_, bit)| bits & !(*bit as u32));
    if rest != 0 || bits == 0 {
        parts.push(format!("{rest:#x}"));
    }
    parts.join("|")
}

impl Runner<'_> {
    /// `poll([{fd=4, events=POLLIN, revents=POLLIN}], 1, 0) = 1`.
    pub(super) fn poll(
        &mut self,
        fds: &Expr,
        count: &Expr,
        timeout: &Expr,
        course: &mut Course,
    ) -> Result<Attempt> {
        let Expr::List(places) = fds else {
            return Err(format!(
                "`{fds}` is not an array such as `[{{fd=4, events=POLLIN}}]`"
            ));
        };
        if places.len() != len(count)? {
            return Err(format!(
                "the array has {} places, not {count}",
                places.len()
            ));
        }
        let mut asked = Vec::new();
        let mut expected = Vec::new();
        for place in places {
            let fd = field(place, "fd")?;
            asked.push(PollFd {
                // A negative one is passed over.
                fd: if int(fd)? < 0 {
                    -1
                } else {
                    self.live(fd)?.max(0)
                },
                events: c_int(field(place, "events")?)? as i16,
                revents: 0,
            });
            expected.push(match field(place, "revents") {
                Ok(revents) => c_int(revents)? as i16,
                Err(_) => 0,
            });
            // One that the script has not opened is not open, whatever has its number underneath.
            if int(fd)? >= 0 && self.fd(fd)?.is_none() {
                return Err(format!("the script has no descriptor {fd} open"));
            }
        }
        let now = self.world.instant();
        let told = self.world.sockets().poll(now, &mut asked);
        let patience = patience(timeout)?;
        if told == 0 && !course.timed_out && patience != Some(Duration::ZERO) {
            return Ok(self.blocked(course, patience));
        }
        for (index, (asked, expected)) in asked.iter().zip(expected).enumerate() {
            if asked.revents != expected {
                return Err(format!(
                    "revents of place {index}: expected {}, actual {}",
                    names(expected as u16 as u32),
                    names(asked.revents as u16 as u32)
                ));
            }
        }
        Ok(Attempt::value(told as i64))
    }

    pub(super) fn epoll_create(&mut self, call: &Call, size: &Expr) -> Result<Attempt> {
        if c_int(size)? <= 0 {
            return Ok(self.returned(Err(Errno::EINVAL)));
        }
        match self.world.sockets().epoll_create(0) {
            Ok(live) => self.opened(call, live, None),
            Err(errno) => Ok(self.returned(Err(errno))),
        }
    }

    /// `epoll_ctl(5, EPOLL_CTL_ADD, 4, {events=EPOLLIN, fd=4}) = 0`.
    pub(super) fn epoll_ctl(
        &mut self,
        epoll: &Expr,
        op: &Expr,
        fd: &Expr,
        event: &Expr,
    ) -> Result<Attempt> {
        let (epoll, live, op) = (self.live(epoll)?, self.live(fd)?, c_int(op)?);
        let EpollEvent { events, data } = epoll_event(event)?;
        if let Ok(named) = field(event, "fd")
            && int(named)? != int(fd)?
        {
            return Err(format!("the event says descriptor {named}, the call {fd}"));
        }
        let now = self.world.instant();
        let outcome = self
            .world
            .sockets()
            .epoll_ctl(now, epoll, op, live, events, data);
        Ok(self.returned(outcome.map(|()| 0)))
    }

    /// `epoll_wait(5, {events=EPOLLIN, fd=4}, 1, 0) = 1`: the event in braces is the first that must come.
    pub(super) fn epoll_wait(
        &mut self,
        epoll: &Expr,
        event: &Expr,
        (most, timeout): (&Expr, &Expr),
        course: &mut Course,
    ) -> Result<Attempt> {
        let (live, expected) = (self.live(epoll)?, epoll_event(event)?);
        // None asked for, or fewer, is refused underneath.
        let most = usize::try_from(c_int(most)?).unwrap_or(0).min(EVENTS_MAX);
        let mut events = vec![EpollEvent::default(); most];
        let now = self.world.instant();
        let told = match self.world.sockets().epoll_wait(now, live, &mut events) {
            Ok(told) => told,
            Err(errno) => return Ok(self.returned(Err(errno))),
        };
        let patience = patience(timeout)?;
        if told == 0 && !course.timed_out && patience != Some(Duration::ZERO) {
            return Ok(self.blocked(course, patience));
        }
        let first = if told == 0 {
            EpollEvent::default()
        } else {
            events[0]
        };
        if first.events != expected.events {
            return Err(format!(
                "events: expected {}, actual {}",
                names(expected.events),
                names(first.events)
            ));
        }
        if told > 0 && first.data != expected.data {
            return Err(format!(
                "the event's data: expected {}, actual {}",
                expected.data, first.data
            ));
        }
        Ok(Attempt::value(told as i64))
    }
}

/// Events that one call can tell.
const EVENTS_MAX: usize = 4_096;

/// `{events=EPOLLIN, fd=4}`, or with `ptr`, `u32`, `u64` for what is left with the kernel. A descriptor is left as the
/// script's number.
fn epoll_event(event: &Expr) -> Result<EpollEvent> {
    let events = int(field(event, "events")?)? as u32;
    let data = ["fd", "ptr", "u32", "u64"]
        .into_iter()
        .find_map(|name| field(event, name).ok());
    let Some(data) = data else {
        return Err(format!(
            "`{event}` leaves nothing with the event: fd, ptr, u32 or u64"
        ));
    };
    Ok(EpollEvent {
        events,
        data: int(data)? as u64,
    })
}
