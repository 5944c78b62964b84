//! Whoever started the program and wants to know when it serves and when it ends: systemd with `Type=notify`, or anybody else
//! who names a socket in `NOTIFY_SOCKET` (sd_notify(3)).

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const VARIABLE: &str = "NOTIFY_SOCKET";

/// The service manager that started this program, if it wants to be told how it is.
#[derive(Debug)]
pub struct Supervisor {
    socket: UnixDatagram,
    at: SocketAddr,
    ready: AtomicBool,
    stopping: AtomicBool,
}

impl Supervisor {
    /// The one that the environment names.
    pub(crate) fn of_the_environment() -> Option<Supervisor> {
        let name = std::env::var_os(VARIABLE).filter(|name| !name.is_empty())?;
        let supervisor = Supervisor::at(&name);
        if supervisor.is_none() {
            eprintln!("janus: {VARIABLE} names no socket that can be told anything: {name:?}");
        }
        supervisor
    }

    /// The one at a path, or at a name of the kernel's that follows `@`.
    fn at(name: &OsStr) -> Option<Supervisor> {
        let at = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(name),
        };
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Supervisor {
            socket,
            at: at.ok()?,
            ready: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        })
    }

    /// Connections are served.
    pub fn ready(&self) {
        if !self.ready.swap(true, Ordering::AcqRel) {
            self.say("READY=1");
        }
    }

    /// The end begins.
    pub fn stopping(&self) {
        if !self.stopping.swap(true, Ordering::AcqRel) {
            self.say("STOPPING=1");
        }
    }

    /// It keeps the descriptor by this name, and gives it to the program's successor, in the place of those that it has kept so before.
    pub(crate) fn keep(&self, name: &str, fd: BorrowedFd<'_>) {
        self.say(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
        self.say_with(&format!("FDSTORE=1\nFDNAME={name}"), &[fd]);
    }

    fn say(&self, what: &str) {
        self.say_with(what, &[]);
    }

    fn say_with(&self, what: &str, fds: &[BorrowedFd<'_>]) {
        if let Err(error) = self.send(what.as_bytes(), fds) {
            eprintln!("janus: {VARIABLE} could not be told {what}: {error}");
        }
    }

    fn send(&self, what: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.socket.connect_addr(&self.at)?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let flags = SendFlags::NOSIGNAL;
        sendmsg(
            self.socket.as_fd(),
            &[IoSlice::new(what)],
            &mut control,
            flags,
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_told_once_by_either_kind_of_name() {
        let folder = std::env::temp_dir().join(format!("janus-notify-{}", std::process::id()));
        let name = format!("janus-notify-{}", std::process::id());
        let path = SocketAddr::from_pathname(&folder).unwrap();
        let hidden = SocketAddr::from_abstract_name(&name).unwrap();
        let named = [folder.clone().into_os_string(), format!("@{name}").into()];
        for (at, name) in [path, hidden].into_iter().zip(named) {
            let heard = UnixDatagram::bind_addr(&at).unwrap();
            let supervisor = Supervisor::at(&name).unwrap();
            for _ in 0..2 {
                supervisor.ready();
            }
            supervisor.keep("janus0", heard.as_fd());
            supervisor.stopping();
            let mut told = [0; 64];
            let [lets_go, keeps] =
                ["FDSTOREREMOVE", "FDSTORE"].map(|what| format!("{what}=1\nFDNAME=janus0"));
            for expected in ["READY=1", &lets_go, &keeps, "STOPPING=1"] {
                let len = heard.recv(&mut told).unwrap();
                assert_eq!(&told[..len], expected.as_bytes());
            }
            heard.set_nonblocking(true).unwrap();
            assert!(heard.recv(&mut told).is_err(), "nothing more");
        }
        std::fs::remove_file(folder).unwrap();
    }
}
