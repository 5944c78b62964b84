//! stdio on a socket. A stream of libc's reads and writes by calls of libc's own, which no library can stand in front of; one over a socket
//! of Janus's is made of functions instead, which are ours.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use libc::{FILE, c_char, c_int, c_void, size_t, ssize_t};

use crate::inside::{self, Inside, is_ours_to_use};
use crate::{bytes, claimed, descriptors, real};

/// Functions of a stream (`cookie_io_functions_t`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    /// None: a socket has no place to go to.
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

/// Descriptors of streams over sockets, by the stream's address: libc says that such a stream has none.
static STREAMS: Mutex<Option<HashMap<usize, c_int>>> = Mutex::new(None);

fn streams<R>(call: impl FnOnce(&mut HashMap<usize, c_int>) -> R) -> R {
    let _inside = Inside::enter();
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    call(streams.get_or_insert_default())
}

/// The descriptor is its own cookie.
fn descriptor(cookie: *mut c_void) -> c_int {
    cookie.addr() as c_int
}

unsafe extern "C" fn read(cookie: *mut c_void, into: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: libc says that there is so much room.
    unsafe { bytes::read(descriptor(cookie), into.cast(), len) }
}

/// Says 0 where write says -1: a stream's function has no other word for it.
unsafe extern "C" fn write(cookie: *mut c_void, from: *const c_char, len: size_t) -> ssize_t {
    // SAFETY: libc says that so many bytes are there.
    unsafe { bytes::write(descriptor(cookie), from.cast(), len) }.max(0)
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    let fd = descriptor(cookie);
    streams(|streams| streams.retain(|_, it| *it != fd));
    descriptors::close(fd)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if !is_ours_to_use(fd) {
        claimed::forget(fd);
        // SAFETY: the caller keeps fdopen's contract.
        return unsafe { real::fdopen(fd, mode) };
    }
    let functions = Functions {
        read,
        write,
        seek: None,
        close,
    };
    let cookie = core::ptr::without_provenance_mut(fd as usize);
    // SAFETY: the functions take the descriptor that the cookie is; the mode is the caller's.
    let stream = unsafe { fopencookie(cookie, mode, functions) };
    if !stream.is_null() {
        streams(|streams| streams.insert(stream.addr(), fd));
    }
    stream
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
    if inside::process().is_some()
        && let Some(fd) = streams(|streams| streams.get(&stream.addr()).copied())
    {
        return fd;
    }
    // SAFETY: the caller keeps fileno's contract.
    unsafe { real::fileno(stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: the caller keeps fileno's contract.
    unsafe { fileno(stream) }
}
