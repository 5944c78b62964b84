//! Descriptors that came from another process. To close or to ask about one of a file system in user space may take as long as that process
//! likes: the kinds that are agreed on are told apart by calls that ask no file system, and all others are closed by a thread of their own.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use rustix::fs::fcntl_get_seals;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

/// Descriptors that wait to be closed.
const WAITING_MAX: usize = 256;

/// Whether it is a memfd, or a socket within the machine.
#[must_use]
pub fn is_agreed_on(fd: &OwnedFd) -> bool {
    fcntl_get_seals(fd).is_ok() || socket_domain(fd) == Ok(AddressFamily::UNIX)
}

/// The thread that closes the others.
#[derive(Debug)]
pub struct Closer(SyncSender<OwnedFd>);

impl Closer {
    /// Starts it.
    ///
    /// # Errors
    /// The system's.
    pub fn start() -> std::io::Result<Closer> {
        let (sends, closes) = sync_channel::<OwnedFd>(WAITING_MAX);
        let thread = std::thread::Builder::new().name("janus-close".into());
        thread.stack_size(64 << 10).spawn(move || {
            for fd in closes {
                drop(fd);
            }
        })?;
        Ok(Closer(sends))
    }

    /// Closes a descriptor some time. False: too many wait, and this one stays open.
    pub fn close(&self, fd: OwnedFd) -> bool {
        match self.0.try_send(fd) {
            Ok(()) => true,
            Err(TrySendError::Full(fd) | TrySendError::Disconnected(fd)) => {
                std::mem::forget(fd);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bell, Segment};
    use rustix::io::dup;
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::{Duration, Instant};

    #[test]
    fn only_what_is_agreed_on_is_kept() {
        let of = |fd: &dyn AsFd| dup(fd.as_fd()).unwrap();
        assert!(is_agreed_on(&of(&Segment::create("test", 4096).unwrap())));
        assert!(is_agreed_on(&of(&Bell::pair().unwrap().0)));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(!is_agreed_on(&of(&file)));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_agreed_on(&of(&tcp)));
        let number = file.as_raw_fd();
        let path = format!("/proc/self/fd/{number}");
        assert!(std::fs::read_link(&path).is_ok());
        assert!(Closer::start().unwrap().close(file.into()));
        let begin = Instant::now();
        // Another test may open something under the same number.
        while std::fs::read_link(&path).is_ok_and(|to| to.ends_with("exe")) {
            assert!(begin.elapsed() < Duration::from_secs(10), "it is open yet");
            std::thread::yield_now();
        }
    }
}
