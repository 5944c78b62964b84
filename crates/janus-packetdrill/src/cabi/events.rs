//! `struct pollfd` and `struct epoll_event`.

use super::memory::UserPtr;
use core::mem::offset_of;
use janus_posix::Errno;
use libc::{epoll_event, pollfd};

/// Descriptors one `poll` may name: RLIMIT_NOFILE's usual ceiling.
const POLL_MAX: usize = 1 << 20;
/// Events one `epoll_wait` may ask for (EP_MAX_EVENTS).
const EPOLL_MAX: i32 = i32::MAX / size_of::<epoll_event>() as i32;

/// One entry of `poll`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Polled {
    pub(crate) fd: i32,
    pub(crate) wanted: i16,
    pub(crate) seen: i16,
}

/// The entries at `pointer`.
pub(crate) fn read_polled(pointer: UserPtr, count: usize) -> Result<Vec<Polled>, Errno> {
    if count > POLL_MAX {
        return Err(Errno::EINVAL);
    }
    let bytes = pointer.bytes(count * size_of::<pollfd>())?;
    let entries = bytes.chunks_exact(size_of::<pollfd>()).map(|entry| Polled {
        fd: i32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]),
        wanted: i16::from_ne_bytes([entry[4], entry[5]]),
        seen: 0,
    });
    Ok(entries.collect())
}

/// Tells what was seen of each.
pub(crate) fn write_seen(pointer: UserPtr, entries: &[Polled]) -> Result<(), Errno> {
    for (index, entry) in entries.iter().enumerate() {
        let at = index * size_of::<pollfd>() + offset_of!(pollfd, revents);
        pointer.offset(at).write(&entry.seen.to_ne_bytes())?;
    }
    Ok(())
}

/// Reads the events to watch for, and the data to return with them.
pub(crate) fn read_interest(pointer: UserPtr) -> Result<(u32, u64), Errno> {
    let bytes = pointer.bytes(size_of::<epoll_event>())?;
    let data = &bytes[offset_of!(epoll_event, u64)..];
    let events = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok((
        events,
        u64::from_ne_bytes(*data.first_chunk().unwrap_or(&[0; 8])),
    ))
}

/// How many events a caller has room for.
pub(crate) fn room(max: i32) -> Result<usize, Errno> {
    if max <= 0 || max > EPOLL_MAX {
        return Err(Errno::EINVAL);
    }
    Ok(max as usize)
}

/// Tells what has happened.
pub(crate) fn write_happened(pointer: UserPtr, events: &[(u32, u64)]) -> Result<(), Errno> {
    for (index, (events, data)) in events.iter().enumerate() {
        let at = pointer.offset(index * size_of::<epoll_event>());
        at.write(&events.to_ne_bytes())?;
        at.offset(offset_of!(epoll_event, u64))
            .write(&data.to_ne_bytes())?;
    }
    Ok(())
}
