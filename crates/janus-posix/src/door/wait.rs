//! Waiting for what happens on descriptors: poll and epoll.

use super::cabi::memory::UserPtr;
use super::room::Room;
use crate::Errno;

type Result<T> = std::result::Result<T, Errno>;

pub(super) fn poll(_room: &Room, _polled: UserPtr, _count: usize, _timeout: i32) -> Result<i32> {
    Err(Errno(libc::ENOSYS))
}

pub(super) fn epoll_create(_room: &Room, _size: i32) -> Result<i32> {
    Err(Errno(libc::ENOSYS))
}

pub(super) fn epoll_ctl(
    _room: &Room,
    _epoll: i32,
    _op: i32,
    _fd: i32,
    _event: UserPtr,
) -> Result<i32> {
    Err(Errno(libc::ENOSYS))
}

pub(super) fn epoll_wait(
    _room: &Room,
    _epoll: i32,
    _events: UserPtr,
    _max: i32,
    _timeout: i32,
) -> Result<i32> {
    Err(Errno(libc::ENOSYS))
}
