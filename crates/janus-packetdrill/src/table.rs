//! The table of functions, in the order in which the tool's header has them, and the one symbol it looks for.

use super::cabi::thread;
use super::entry::{self, User};
use super::netdev;
use super::room::Room;
use core::ffi::{CStr, c_char, c_int, c_longlong, c_uint, c_ulong, c_void};
use libc::{epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};
use libc::{loff_t, timeval};
use std::sync::Arc;

/// First argument of every function: `userdata`.
pub(super) type U = *mut c_void;

macro_rules! table {
    ($($(#[$doc:meta])* $name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions that packetdrill calls instead of the kernel. They are those of POSIX; `fcntl` and `ioctl`,
        /// variadic in C, take their one optional argument always.
        #[repr(C)]
        pub struct Interface {
            /// Handed to every function.
            pub userdata: *mut c_void,
            $(
                $(#[$doc])*
                pub $name: unsafe extern "C" fn(*mut c_void, $($argument),*) $(-> $result)?,
            )*
        }

        impl Interface {
            fn new(userdata: *mut c_void) -> Interface {
                Interface { userdata, $($name: entry::$name,)* }
            }
        }
    };
}

table! {
    /// Ends the host; nothing may be called after it.
    free: fn();
    /// `socket(2)`.
    socket: fn(c_int, c_int, c_int) -> c_int;
    /// `bind(2)`.
    bind: fn(c_int, *const sockaddr, socklen_t) -> c_int;
    /// `listen(2)`.
    listen: fn(c_int, c_int) -> c_int;
    /// `accept(2)`.
    accept: fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    /// `connect(2)`.
    connect: fn(c_int, *const sockaddr, socklen_t) -> c_int;
    /// `read(2)`.
    read: fn(c_int, *mut c_void, size_t) -> ssize_t;
    /// `readv(2)`.
    readv: fn(c_int, *const iovec, c_int) -> ssize_t;
    /// `recv(2)`.
    recv: fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    /// `recvfrom(2)`.
    recvfrom: fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    /// `recvmsg(2)`.
    recvmsg: fn(c_int, *mut msghdr, c_int) -> ssize_t;
    /// `write(2)`.
    write: fn(c_int, *const c_void, size_t) -> ssize_t;
    /// `writev(2)`.
    writev: fn(c_int, *const iovec, c_int) -> ssize_t;
    /// `send(2)`.
    send: fn(c_int, *const c_void, size_t, c_int) -> ssize_t;
    /// `sendto(2)`.
    sendto: fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
    /// `sendmsg(2)`.
    sendmsg: fn(c_int, *const msghdr, c_int) -> ssize_t;
    /// `fcntl(2)`.
    fcntl: fn(c_int, c_int, usize) -> c_int;
    /// `ioctl(2)`.
    ioctl: fn(c_int, c_ulong, *mut c_void) -> c_int;
    /// `close(2)`.
    close: fn(c_int) -> c_int;
    /// `shutdown(2)`.
    shutdown: fn(c_int, c_int) -> c_int;
    /// `getsockopt(2)`.
    getsockopt: fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    /// `setsockopt(2)`.
    setsockopt: fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    /// `poll(2)`.
    poll: fn(*mut pollfd, nfds_t, c_int) -> c_int;
    /// Hands the stack a packet, from the IP header on.
    netdev_send: fn(*const c_void, size_t) -> c_int;
    /// Waits for the next packet the stack sends, and says when it did.
    netdev_receive: fn(*mut c_void, *mut size_t, *mut c_longlong) -> c_int;
    /// `usleep(3)` on the stack's clock.
    usleep: fn(c_uint) -> c_int;
    /// `gettimeofday(2)` on the stack's clock.
    gettimeofday: fn(*mut timeval, *mut c_void) -> c_int;
    /// `epoll_create(2)`.
    epoll_create: fn(c_int) -> c_int;
    /// `epoll_ctl(2)`.
    epoll_ctl: fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    /// `epoll_wait(2)`.
    epoll_wait: fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    /// `pipe(2)`.
    pipe: fn(*mut c_int) -> c_int;
    /// `splice(2)`.
    splice: fn(c_int, *mut loff_t, c_int, *mut loff_t, size_t, c_uint) -> c_int;
}

/// Fills the table with a host of its own. What is wrong with `flags` is said on standard error, and every function
/// then fails. The calling thread is the one that plays the script: its calls never wait.
///
/// # Safety
///
/// `flags` is NULL or a C string; `table` has room for an [`Interface`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, table: *mut Interface) {
    if table.is_null() {
        return;
    }
    let flags = match flags.is_null() {
        true => "".into(),
        // SAFETY: it is a C string, as the contract of this function says.
        false => unsafe { CStr::from_ptr(flags) }.to_string_lossy(),
    };
    let host = std::panic::catch_unwind(|| {
        thread::unlock_memory();
        netdev::host(&flags)
    });
    let room = match host {
        Ok(Ok(host)) => Some(Room::new(host)),
        Ok(Err(message)) => {
            eprintln!("janus: {message}");
            None
        }
        Err(_) => None,
    };
    let user = Arc::new(User::new(room));
    let table_of_ours = Interface::new(Arc::into_raw(user).cast_mut().cast());
    // SAFETY: there is room for it, as the contract of this function says.
    unsafe { table.write(table_of_ours) };
}
