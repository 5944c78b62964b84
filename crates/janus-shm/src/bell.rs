//! A bell wakes the other side when it sleeps: one end of a pair of sockets. Neither side can make the other wait: an eventfd's flags and counter
//! are both sides' to change, a socket is asked not to wait by each call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

/// One end. Readable once the other has rung.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Both ends.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(Bell, Bell)> {
        let flags = SocketFlags::CLOEXEC;
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((Bell(one), Bell(other)))
    }

    /// An end that came from the other side. What is none is not heard.
    #[must_use]
    pub fn new(end: OwnedFd) -> Bell {
        Bell(end)
    }

    /// Wakes the other side.
    pub fn ring(&self) {
        // Where there is no room it rings already.
        let _ = send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Takes note of all rings. False: the other side has closed its end.
    ///
    /// # Errors
    /// It is no bell.
    pub fn hear(&self) -> io::Result<bool> {
        let mut into = [0; 64];
        match recv(&self.0, &mut into, RecvFlags::DONTWAIT) {
            Ok((got, _)) => Ok(got > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_waits_and_tells_of_its_end() {
        let (one, other) = Bell::pair().unwrap();
        assert!(other.hear().unwrap(), "nothing yet");
        // More than there is room for.
        (0..1_000_000).for_each(|_| one.ring());
        assert!(other.hear().unwrap());
        drop(one);
        while other.hear().unwrap() {}
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let none = Bell::new(file.into());
        none.ring();
        assert!(none.hear().is_err());
    }
}
