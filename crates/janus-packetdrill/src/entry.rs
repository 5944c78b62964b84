//! The table of functions, in the order in which the tool's header has them, and the functions themselves: from C's arguments to the
//! calls, and from their outcome to a number and `errno`. A panic stops here: it becomes a message on standard error, and the host is
//! out of order.

use super::cabi::errno;
use super::cabi::iovec::Buffers;
use super::cabi::memory::UserPtr;
use super::cabi::message::Message;
use super::room::Room;
use super::{calls, netdev, splice, transfer, wait};
use core::ffi::{c_int, c_longlong, c_uint, c_ulong, c_void};
use janus_posix::Errno;
use libc::{epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};
use libc::{loff_t, timeval};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// First argument of every function: `userdata`.
type U = *mut c_void;

/// Data that `userdata` points to.
pub(super) struct User {
    /// Without it, the settings were wrong.
    room: Option<Room>,
    out_of_order: AtomicBool,
}

impl User {
    pub(super) fn new(room: Option<Room>) -> User {
        User {
            room,
            out_of_order: AtomicBool::new(false),
        }
    }
}

/// Carries out a call.
fn enter<T: Into<i64>>(user: U, name: &str, call: impl FnOnce(&Room) -> Result<T, Errno>) -> isize {
    let outcome = match attend(user, |user| {
        let room = match &user.room {
            Some(room) if !user.out_of_order.load(Ordering::Relaxed) => room,
            _ => return Err(Errno(libc::EIO)),
        };
        catch_unwind(AssertUnwindSafe(|| call(room))).unwrap_or_else(|_| {
            eprintln!("janus: {name} panicked; every call fails from now on");
            user.out_of_order.store(true, Ordering::Relaxed);
            Err(Errno(libc::EIO))
        })
    }) {
        Some(outcome) => outcome,
        None => Err(Errno::EINVAL),
    };
    match outcome {
        Ok(value) => value.into() as isize,
        Err(reason) => {
            errno::set(reason);
            -1
        }
    }
}

/// Keeps what `userdata` points to alive for as long as the call lasts.
fn attend<T>(user: U, call: impl FnOnce(&User) -> T) -> Option<T> {
    let user = user.cast_const().cast::<User>();
    if user.is_null() {
        return None;
    }
    // SAFETY: `userdata` came from `Arc::into_raw` and `free`, which ends its life, was not called yet.
    let user = unsafe {
        Arc::increment_strong_count(user);
        Arc::from_raw(user)
    };
    Some(call(&user))
}

/// A pointer of the caller.
fn at<T>(pointer: *const T) -> UserPtr {
    // SAFETY: these functions are called under the contracts of POSIX's, which give away what they point to.
    unsafe { UserPtr::new(pointer) }
}

unsafe extern "C" fn free(u: U) {
    let ended = attend(u, |user| {
        let end = || user.room.as_ref().map(Room::end);
        catch_unwind(AssertUnwindSafe(end)).is_ok()
    });
    if ended.is_some() {
        // SAFETY: it came from `Arc::into_raw`, and the caller lets go of it here. Whoever is still in a call has a
        // share of his own.
        drop(unsafe { Arc::from_raw(u.cast_const().cast::<User>()) });
    }
}

/// Makes the table of functions from one row each, in the order of the tool's header. `userdata` goes before the arguments, [`enter`]
/// carries out the call, and what follows `then` makes the result of its outcome.
macro_rules! table {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $kind:ty),*) -> $result:ty =
            |$room:ident| $call:expr $(, then $then:expr)?;
    )*) => {
        /// Functions that packetdrill calls instead of the kernel. They are those of POSIX; `fcntl` and `ioctl`, variadic in C, take
        /// their one optional argument always.
        #[repr(C)]
        #[allow(missing_docs, reason = "the names are those of the manual pages")]
        pub struct Interface {
            /// Handed to every function.
            pub userdata: U,
            /// Ends the host; nothing may be called after it.
            pub free: unsafe extern "C" fn(U),
            $($(#[$doc])* pub $name: unsafe extern "C" fn(U, $($kind),*) -> $result,)*
        }

        impl Interface {
            pub(super) fn new(userdata: U) -> Interface {
                Interface { userdata, free, $($name,)* }
            }
        }

        $(unsafe extern "C" fn $name(u: U, $($argument: $kind),*) -> $result {
            let outcome = enter(u, stringify!($name), |$room| $call) as $result;
            $(let outcome = ($then)(outcome);)?
            outcome
        })*
    };
}

table! {
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int =
        |room| calls::socket(room, domain, kind, protocol);
    bind(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int =
        |room| calls::bind(room, fd, at(name), len);
    listen(fd: c_int, backlog: c_int) -> c_int = |room| calls::listen(room, fd, backlog);
    accept(fd: c_int, name: *mut sockaddr, len: *mut socklen_t) -> c_int =
        |room| calls::accept(room, fd, at(name), at(len));
    connect(fd: c_int, name: *const sockaddr, len: socklen_t) -> c_int =
        |room| calls::connect(room, fd, at(name), len);

    read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t =
        |room| transfer::read(room, fd, &Buffers::one(at(into), len));
    readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t = |room| {
        calls::check(room, fd)?;
        transfer::read(room, fd, &buffers(vector, count)?)
    };
    recv(fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t =
        |room| transfer::receive(room, fd, &Buffers::one(at(into), len), flags);
    recvfrom(
        fd: c_int, into: *mut c_void, len: size_t, flags: c_int,
        name: *mut sockaddr, name_len: *mut socklen_t
    ) -> ssize_t = |room| {
        let buffers = Buffers::one(at(into), len);
        transfer::receive_from(room, fd, &buffers, flags, at(name), at(name_len))
    };
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t = |room| {
        calls::check(room, fd)?;
        transfer::receive_message(room, fd, &Message::read(at(message))?, flags)
    };

    write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t =
        |room| transfer::write(room, fd, &Buffers::one(at(from), len));
    writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t = |room| {
        calls::check(room, fd)?;
        transfer::write(room, fd, &buffers(vector, count)?)
    };
    send(fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        |room| transfer::send(room, fd, &Buffers::one(at(from), len), flags);
    sendto(
        fd: c_int, from: *const c_void, len: size_t, flags: c_int,
        name: *const sockaddr, name_len: socklen_t
    ) -> ssize_t = |room| {
        let buffers = Buffers::one(at(from), len);
        transfer::send_to(room, fd, &buffers, flags, at(name), name_len)
    };
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t = |room| {
        calls::check(room, fd)?;
        transfer::send_message(room, fd, &Message::read(at(message))?, flags)
    };

    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int =
        |room| calls::fcntl(room, fd, command, argument as c_int);
    ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int =
        |room| calls::ioctl(room, fd, request, at(argument));
    close(fd: c_int) -> c_int = |room| calls::close(room, fd);
    shutdown(fd: c_int, how: c_int) -> c_int = |room| calls::shutdown(room, fd, how);
    getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t
    ) -> c_int = |room| calls::getsockopt(room, fd, (level, name), at(value), at(len));
    setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t
    ) -> c_int = |room| calls::setsockopt(room, fd, (level, name), at(value), len);

    poll(polled: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int =
        |room| wait::poll(room, at(polled), count as usize, timeout);
    /// Hands the stack a packet, from the IP header on.
    netdev_send(packet: *const c_void, len: size_t) -> c_int =
        |room| netdev::send(room, at(packet), len);
    /// Waits for the next packet the stack sends, and says when it did. The tool takes a failure for a reason to try again, for ever:
    /// a packet of no bytes ends the script.
    netdev_receive(into: *mut c_void, len: *mut size_t, time: *mut c_longlong) -> c_int =
        |room| netdev::receive(room, at(into), at(len), at(time)),
        then |outcome| {
            if outcome < 0 {
                let _ = at(len).write(&0_usize.to_ne_bytes());
            }
            0
        };
    /// `usleep(3)` on the stack's clock.
    usleep(micros: c_uint) -> c_int = |room| {
        room.sleep(micros.into());
        Ok(0)
    };
    /// `gettimeofday(2)` on the stack's clock.
    gettimeofday(time: *mut timeval, _zone: *mut c_void) -> c_int =
        |room| netdev::time(room, at(time));

    epoll_create(size: c_int) -> c_int = |room| wait::epoll_create(room, size);
    epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int =
        |room| wait::epoll_ctl(room, epoll, op, fd, at(event));
    epoll_wait(epoll: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int =
        |room| wait::epoll_wait(room, epoll, at(events), max, timeout);

    pipe(ends: *mut c_int) -> c_int = |room| calls::pipe(room, at(ends));
    splice(
        from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t, len: size_t, flags: c_uint
    ) -> c_int = |room| splice::splice(room, (from, at(from_at)), (to, at(to_at)), len, flags);
}

/// A vector of buffers whose length is a C `int`.
fn buffers(vector: *const iovec, count: c_int) -> Result<Buffers, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    Buffers::read(at(vector), count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdev::host;

    /// A panic that reached C would be undefined. After one, the state of the host is unknown.
    #[test]
    fn a_panic_becomes_a_failure_and_stays_one() {
        let user = Arc::new(User::new(Some(Room::new(host("").unwrap()))));
        let u: U = Arc::into_raw(Arc::clone(&user)).cast_mut().cast();
        assert_eq!(enter(u, "fine", |_| Ok(7)), 7);
        let call = |_: &Room| -> Result<i32, Errno> { panic!("of the test") };
        assert_eq!(enter(u, "broken", call), -1);
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(enter(u, "fine", |_| Ok(7)), -1);
        // SAFETY: it came from `into_raw` above and is not used after this.
        unsafe { free(u) };
        assert_eq!(Arc::strong_count(&user), 1);
    }
}
