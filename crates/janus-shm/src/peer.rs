//! The process at the other end of a socket, as the kernel knows it.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::process::Pid;

/// The other side of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process; `None` if that has no number in this process's namespace, as one of another container has none.
    pub process: Option<Pid>,
    /// Its user.
    pub user: u32,
}

/// Process and user of the other side, at the time when it connected.
///
/// `rustix` has this call too, but its process is never 0, which the kernel says of a process of another namespace.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `peer`, of which each value is one of its type.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    match done {
        0 => Ok(Peer {
            process: Pid::from_raw(peer.pid),
            user: peer.uid,
        }),
        _ => Err(io::Error::last_os_error()),
    }
}
