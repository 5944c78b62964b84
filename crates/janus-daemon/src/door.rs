//! The socket at which programs ask to be taken in, and who may what, and how much of it.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use janus_shm::{Link, Permit};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::quota::Quotas;
use crate::seal::Seals;
use crate::{Rule, Settings};

/// How long a daemon that was killed may take to be gone.
const ENDS_WITHIN: Duration = Duration::from_millis(500);
/// Programs that ask at the same time.
const BACKLOG: i32 = 64;

pub(crate) struct Door {
    socket: OwnedFd,
    path: PathBuf,
    /// There was a daemon before, whose members are about to ask.
    pub(crate) follows: bool,
    /// Programs are members yet: the next daemon is to know by what it finds here that it follows one.
    pub(crate) is_left: bool,
    rules: Vec<Rule>,
    pub(crate) seals: Seals,
    pub(crate) quotas: Quotas,
}

impl Door {
    pub(crate) fn open(settings: &Settings) -> io::Result<Door> {
        let path = settings.socket.clone();
        let says = |error: io::Error, what: &str| {
            let text = format!("the socket {} {what}: {error}", path.display());
            io::Error::new(error.kind(), text)
        };
        let address = SocketAddrUnix::new(&path)
            .map_err(|errno| says(errno.into(), "cannot have that name"))?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| says(error, "has no folder"))?;
        }
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let is_taken = || -> io::Result<bool> {
            let asks = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
            Ok(connect(&asks, &address).is_ok())
        };
        let until = Instant::now() + ENDS_WITHIN;
        while is_taken()? {
            if Instant::now() >= until {
                let text = format!("another daemon listens at {} already", path.display());
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            std::thread::sleep(ENDS_WITHIN / 50);
        }
        // Left by a daemon that has ended.
        let follows = path.exists();
        if follows {
            fs::remove_file(&path).map_err(|error| says(error, "is in the way"))?;
        }
        let seals = Seals::open(&path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, kind, flags, None)?;
        bind(&socket, &address).map_err(|errno| says(errno.into(), "cannot be made"))?;
        // Any user may have a permit, and the kernel says who asks.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))
            .map_err(|error| says(error, "cannot be given its rights"))?;
        listen(&socket, BACKLOG)?;
        Ok(Door {
            socket,
            path,
            follows,
            is_left: false,
            rules: settings.allow.clone(),
            seals,
            quotas: Quotas::new(&settings.limits),
        })
    }

    /// One who asks, if there is one.
    pub(crate) fn next(&self) -> Option<Link> {
        // Where descriptors or memory are short it asks again.
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC).ok()?;
        Some(Link::new(socket))
    }

    /// Whether this user has anything to ask for.
    pub(crate) fn admits(&self, user: u32) -> bool {
        is_trusted(user) || self.rules.iter().any(|rule| concerns(rule, user))
    }

    /// Whether the bearer of a permit has what its giver may have.
    pub(crate) fn honours(&self, permit: &Permit) -> bool {
        self.seals.is_ours(permit) && self.allows(permit.user, permit.port)
    }

    /// Whether this user may have the port.
    pub(crate) fn allows(&self, user: u32, port: u16) -> bool {
        let allowed = |rule: &Rule| concerns(rule, user) && rule.ports.contains(&port);
        is_trusted(user) || self.rules.iter().any(allowed)
    }
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

fn concerns(rule: &Rule, user: u32) -> bool {
    rule.user.is_none_or(|it| it == user)
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if !self.is_left {
            // Another daemon may have taken it away.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_the_ports_that_they_are_allowed() {
        let own = rustix::process::geteuid().as_raw();
        let [one, other] = [own + 1, own + 2];
        let rule = |user, ports| Rule { user, ports };
        let folder = std::env::temp_dir().join(format!("janus-door-{}", std::process::id()));
        let settings = |allow| Settings {
            socket: folder.join("io.sock"),
            allow,
            limits: Vec::new(),
            lends: 0,
            patience: None,
            signals: false,
        };
        let door = Door::open(&settings(vec![rule(Some(one), 80..=81)])).unwrap();
        assert!(door.admits(one) && door.allows(one, 80) && door.allows(one, 81));
        assert!(!door.allows(one, 82));
        assert!(!door.admits(other) && !door.allows(other, 80));
        assert!([0, own].iter().all(|user| door.allows(*user, 1)));
        drop(door);
        let rules = vec![rule(Some(one), 80..=80), rule(None, 1_024..=2_048)];
        let door = Door::open(&settings(rules)).unwrap();
        assert!(door.allows(one, 80) && door.allows(one, 2_000) && door.allows(other, 2_000));
        assert!(!door.allows(other, 80));
        drop(door);
        fs::remove_dir_all(&folder).unwrap();
    }
}
