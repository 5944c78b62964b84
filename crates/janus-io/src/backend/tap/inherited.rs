//! Queues that whoever started this process kept open since the one before it: a service manager that passes descriptors from number 3 on
//! (sd_listen_fds(3)). Packets that came meanwhile wait in them. Which of its descriptors are queues, and of which interface, the kernel says.

use std::env;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::io::{FdFlags, fcntl_setfd};

use super::interface;

/// The first that is passed.
const FIRST: RawFd = 3;

/// Those that nothing has taken yet; `None` before the first look.
static LEFT: Mutex<Option<Vec<(interface::Queue, OwnedFd)>>> = Mutex::new(None);

/// Takes those of this interface.
pub(super) fn take(interface: &str) -> Vec<(interface::Queue, OwnedFd)> {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    let left = left.get_or_insert_with(|| all(passed()));
    let is_ours = |(queue, _): &mut (interface::Queue, OwnedFd)| queue.interface == interface;
    left.extract_if(.., is_ours).collect()
}

/// How many descriptors this process was passed, by its environment.
fn passed() -> RawFd {
    let said = |name| env::var(name).ok()?.parse::<u32>().ok();
    match said("LISTEN_PID") == Some(std::process::id()) {
        true => said("LISTEN_FDS").map_or(0, |count| count.min(1024) as RawFd),
        false => 0,
    }
}

fn all(count: RawFd) -> Vec<(interface::Queue, OwnedFd)> {
    let owned = |number: RawFd| {
        // SAFETY: it is borrowed for these two calls, to which a number that is no descriptor is an error.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let queue = interface::queue_of(fd).ok()?;
        fcntl_setfd(fd, FdFlags::CLOEXEC).ok()?;
        // SAFETY: by sd_listen_fds(3) it is this process's to have and to close. It is looked for once, and this backend alone takes queues of
        // interfaces.
        Some((queue, unsafe { OwnedFd::from_raw_fd(number) }))
    };
    (FIRST..FIRST + count).filter_map(owned).collect()
}

/// A queue cannot be changed once it is there.
pub(super) fn is_of_another_kind(interface: &str) -> io::Error {
    let text = format!(
        "the service manager has kept a queue of {interface} from before the offloads were set otherwise (`tap_offloads`, or faults that spoil \
         packets): stop the service, so that it lets go of it, and start it again"
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// The interface of which a descriptor is a queue.
#[must_use]
pub fn interface_of(fd: impl AsFd) -> Option<String> {
    Some(interface::queue_of(fd).ok()?.interface)
}
