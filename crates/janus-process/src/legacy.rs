//! A listener as one program leaves it to the next (`exec`). Its number becomes a mark: one end of a pair of the kernel's, whose name says
//! that it is one, and in which a description of the listener waits to be read, as often as it is asked for.
//!
//! The mark is the descriptor itself. It goes where that goes, by `dup` and through programs that know nothing of it, and is gone when the
//! number is closed or given to something else; a note in the environment would outlast all of that. It is a socket and not a sealed file,
//! as programs look whether what they were given is a socket. Who wrote it is not asked of the kernel: a program believes marks only that it was
//! begun with, and these are of whoever began it.
//!
//! The other end of the pair stays with the process that listened, which hears there whether the next program serves (`succession`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use janus::Permit;
use janus_posix::{Sockets, abi};
use janus_tcp::Instant;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind,
    getsockname, recv, send, socket_with, socketpair,
};

use crate::address::{self, ADDRESS};
use crate::{Errno, Result, errno, kernel};

/// Opens the name of a mark.
const MARK: &[u8] = b"janus-legacy/";
/// Opens a description; another version's is not read.
const VERSION: &[u8] = b"janus-legacy-2\0";
/// More than any description takes.
pub(crate) const TEXT_MAX: usize = 4096;
/// Length of the largest option.
const OPTION_MAX: usize = 16;
/// Where `struct tcp_info` of a listening socket has its backlog.
const BACKLOG_AT: usize = 28;

/// Options that a description has where a new socket's are others: the level, the name, the length.
const OPTIONS: &[(i32, i32, usize)] = &[
    // Before the address, which they are about.
    (abi::IPPROTO_IPV6, abi::IPV6_V6ONLY, 4),
    (abi::SOL_SOCKET, abi::SO_REUSEADDR, 4),
    (abi::SOL_SOCKET, abi::SO_REUSEPORT, 4),
    (abi::SOL_SOCKET, abi::SO_RCVBUF, 4),
    (abi::SOL_SOCKET, abi::SO_SNDBUF, 4),
    (abi::SOL_SOCKET, abi::SO_KEEPALIVE, 4),
    (abi::SOL_SOCKET, abi::SO_OOBINLINE, 4),
    (abi::SOL_SOCKET, abi::SO_PRIORITY, 4),
    (abi::SOL_SOCKET, abi::SO_LINGER, 8),
    (abi::SOL_SOCKET, abi::SO_RCVLOWAT, 4),
    (abi::SOL_SOCKET, abi::SO_RCVTIMEO, 16),
    (abi::SOL_SOCKET, abi::SO_SNDTIMEO, 16),
    (abi::SOL_SOCKET, abi::SO_MARK, 4),
    (abi::SOL_SOCKET, abi::SO_ZEROCOPY, 4),
    (abi::SOL_TCP, abi::TCP_NODELAY, 4),
    (abi::SOL_TCP, abi::TCP_MAXSEG, 4),
    (abi::SOL_TCP, abi::TCP_CORK, 4),
    (abi::SOL_TCP, abi::TCP_KEEPIDLE, 4),
    (abi::SOL_TCP, abi::TCP_KEEPINTVL, 4),
    (abi::SOL_TCP, abi::TCP_KEEPCNT, 4),
    (abi::SOL_TCP, abi::TCP_SYNCNT, 4),
    (abi::SOL_TCP, abi::TCP_LINGER2, 4),
    (abi::SOL_TCP, abi::TCP_DEFER_ACCEPT, 4),
    (abi::SOL_TCP, abi::TCP_WINDOW_CLAMP, 4),
    (abi::SOL_TCP, abi::TCP_QUICKACK, 4),
    (abi::SOL_TCP, abi::TCP_CONGESTION, 16),
    (abi::SOL_TCP, abi::TCP_USER_TIMEOUT, 4),
    (abi::SOL_TCP, abi::TCP_NOTSENT_LOWAT, 4),
    (abi::SOL_TCP, abi::TCP_INQ, 4),
    (abi::SOL_IP, abi::IP_TOS, 4),
    (abi::SOL_IP, abi::IP_TTL, 4),
    (abi::IPPROTO_IPV6, abi::IPV6_TCLASS, 4),
    (abi::IPPROTO_IPV6, abi::IPV6_UNICAST_HOPS, 4),
];

/// Whether `getsockopt` tells twice of what `setsockopt` was given.
fn is_told_doubled(level: i32, name: i32) -> bool {
    level == abi::SOL_SOCKET && [abi::SO_RCVBUF, abi::SO_SNDBUF].contains(&name)
}

/// Description of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Legacy {
    pub(crate) local: SocketAddr,
    /// By which it may be listened at; without it, as the settings say.
    pub(crate) permit: Option<Permit>,
    backlog: i32,
    /// Places in [`OPTIONS`], and what each is set to.
    options: Vec<(u8, Vec<u8>)>,
}

fn option(sockets: &mut Sockets<'_>, socket: i32, at: usize) -> Option<Vec<u8>> {
    let (level, name, len) = OPTIONS[at];
    let mut value = [0; OPTION_MAX];
    let got = sockets.getsockopt(socket, level, name, &mut value[..len]);
    (got == Ok(len)).then(|| value[..len].to_vec())
}

impl Legacy {
    /// Describes a socket that listens.
    pub(crate) fn of(
        sockets: &mut Sockets<'_>,
        now: Instant,
        socket: i32,
        permit: Option<Permit>,
    ) -> Result<Legacy> {
        let local = sockets.getsockname(socket)?;
        let mut info = [0; BACKLOG_AT + 4];
        let got = sockets.getsockopt(socket, abi::SOL_TCP, abi::TCP_INFO, &mut info)?;
        let backlog = info[..got].last_chunk().ok_or(Errno::EINVAL)?;
        let fresh = sockets.socket(family(local), abi::SOCK_STREAM, 0)?;
        let mut options = Vec::new();
        for at in 0..OPTIONS.len() {
            let set = option(sockets, socket, at);
            if set != option(sockets, fresh, at) {
                options.extend(set.map(|value| (at as u8, value)));
            }
        }
        sockets.close(now, fresh)?;
        Ok(Legacy {
            local,
            permit,
            backlog: i32::from_ne_bytes(*backlog),
            options,
        })
    }

    /// Describes a socket of the kernel's that is to be bound or connected there, and that is nowhere yet.
    pub(crate) fn of_kernels(fd: RawFd, at: SocketAddr) -> Result<Legacy> {
        let family = match at {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let (fd, kind, flags) = (kernel::named(fd)?, SocketType::STREAM, SocketFlags::CLOEXEC);
        let fresh = socket_with(family, kind, flags, None).map_err(errno)?;
        let mut all = Legacy::at(at);
        for (place, (level, name, len)) in (0..).zip(OPTIONS) {
            let told = |fd: BorrowedFd<'_>| {
                let mut value = vec![0; *len];
                let got = kernel::option(fd, *level, *name, &mut value);
                (got == Ok(*len)).then_some(value)
            };
            let set = told(fd);
            if set != told(fresh.as_fd()) {
                all.options.extend(set.map(|value| (place, value)));
            }
        }
        Ok(all)
    }

    /// Describes a socket as it is at first.
    pub(crate) fn at(local: SocketAddr) -> Legacy {
        Legacy {
            local,
            permit: None,
            backlog: 0,
            options: Vec::new(),
        }
    }

    /// Makes a socket that listens like the one that is described.
    pub(crate) fn listen(&self, sockets: &mut Sockets<'_>, now: Instant) -> Result<i32> {
        self.make(sockets, now, |sockets, socket| {
            sockets.bind(socket, self.local)?;
            sockets.listen(socket, self.backlog)
        })
    }

    /// Makes one with its options, which is begun by `begin`.
    pub(crate) fn make(
        &self,
        sockets: &mut Sockets<'_>,
        now: Instant,
        begin: impl FnOnce(&mut Sockets<'_>, i32) -> Result<()>,
    ) -> Result<i32> {
        let socket = sockets.socket(family(self.local), abi::SOCK_STREAM, 0)?;
        for (at, value) in &self.options {
            let Some((level, name, _)) = OPTIONS.get(usize::from(*at)) else {
                continue;
            };
            let half = match value[..].try_into() {
                Ok(told) if is_told_doubled(*level, *name) => {
                    Some((i32::from_ne_bytes(told) / 2).to_ne_bytes())
                }
                _ => None,
            };
            let value = half.as_ref().map_or(&value[..], |half| half);
            // The stack may be another version's; without one of them it listens all the same.
            let _ = sockets.setsockopt(now, socket, *level, *name, value);
        }
        match begin(sockets, socket) {
            Ok(()) => Ok(socket),
            Err(error) => {
                sockets.close(now, socket)?;
                Err(error)
            }
        }
    }

    /// The description as bytes.
    pub(crate) fn text(&self) -> Box<[u8]> {
        let mut text = VERSION.to_vec();
        address::put(&mut text, self.local);
        text.extend(self.backlog.to_ne_bytes());
        text.push(self.permit.is_some().into());
        if let Some(it) = &self.permit {
            text.extend(it.user.to_ne_bytes());
            text.extend(it.seal.to_ne_bytes());
            text.push(it.group.len() as u8);
            text.extend(it.group.as_bytes());
        }
        for (at, value) in &self.options {
            text.extend([*at, value.len() as u8]);
            text.extend(value);
        }
        text.into_boxed_slice()
    }

    pub(crate) fn from_text(text: &[u8]) -> Option<Legacy> {
        let (local, rest) = text.strip_prefix(VERSION)?.split_at_checked(ADDRESS)?;
        let local = address::get(local)?;
        let (backlog, rest) = rest.split_first_chunk()?;
        let (has_permit, mut rest) = rest.split_first()?;
        let mut permit = None;
        if *has_permit != 0 {
            let (user, after) = rest.split_first_chunk()?;
            let (seal, after) = after.split_first_chunk()?;
            let (len, after) = after.split_first()?;
            let (group, after) = after.split_at_checked((*len).into())?;
            rest = after;
            permit = Some(Permit {
                user: u32::from_ne_bytes(*user),
                group: str::from_utf8(group).ok()?.to_owned(),
                port: local.port(),
                seal: u64::from_ne_bytes(*seal),
            });
        }
        let mut options = Vec::new();
        while let Some(([at, len], values)) = rest.split_first_chunk() {
            let (value, others) = values.split_at_checked((*len).into())?;
            options.push((*at, value.to_vec()));
            rest = others;
        }
        Some(Legacy {
            local,
            permit,
            backlog: i32::from_ne_bytes(*backlog),
            options,
        })
    }

    /// Reads what a mark describes.
    pub(crate) fn read(mark: RawFd) -> Result<Legacy> {
        let mut text = [0; TEXT_MAX];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (got, _) = recv(kernel::named(mark)?, &mut text[..], flags).map_err(errno)?;
        Legacy::from_text(&text[..got]).ok_or(Errno::EINVAL)
    }
}

fn family(local: SocketAddr) -> i32 {
    match local {
        SocketAddr::V4(_) => abi::AF_INET,
        SocketAddr::V6(_) => abi::AF_INET6,
    }
}

/// Makes a mark with this description. The second is its other end.
pub(crate) fn mark(text: &[u8]) -> Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None).map_err(errno)?;
    let (mark, other) = pair;
    let name = SocketAddrUnix::new_abstract_name(&address::unique(MARK)).map_err(errno)?;
    bind(&mark, &name).map_err(errno)?;
    send(&other, text, SendFlags::NOSIGNAL).map_err(errno)?;
    Ok((mark, other))
}

/// Names of the marks among these descriptors, with the descriptors that are each.
pub(crate) fn marks(among: impl IntoIterator<Item = RawFd>) -> HashMap<Vec<u8>, Vec<RawFd>> {
    let mut all: HashMap<Vec<u8>, Vec<RawFd>> = HashMap::new();
    for fd in among {
        if let Some(name) = name(fd) {
            all.entry(name).or_default().push(fd);
        }
    }
    all
}

/// The name of the mark that a descriptor is.
fn name(fd: RawFd) -> Option<Vec<u8>> {
    let name = getsockname(kernel::named(fd).ok()?.as_fd()).ok()?;
    let name = SocketAddrUnix::try_from(name).ok()?;
    let name = name.abstract_name()?;
    name.starts_with(MARK).then(|| name.to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_mark_is_read_as_often_as_it_is_asked_for() {
        let legacy = Legacy {
            local: "[2001:db8::1]:443".parse().unwrap(),
            permit: Some(Permit {
                user: 33,
                group: "web".into(),
                port: 443,
                seal: u64::MAX,
            }),
            backlog: 511,
            options: vec![(1, vec![1, 0, 0, 0]), (8, vec![7; 8])],
        };
        let (one, other) = mark(&legacy.text()).unwrap();
        let copy = one.try_clone().unwrap();
        let (another, _) = mark(&legacy.text()).unwrap();
        // Whoever left it has ended.
        drop(other);
        for fd in [&one, &copy, &one] {
            assert_eq!(Legacy::read(fd.as_raw_fd()), Ok(legacy.clone()));
        }
        let all = [&one, &copy, &another].map(AsRawFd::as_raw_fd);
        let mut marks: Vec<_> = marks(all).into_values().collect();
        marks.sort_by_key(Vec::len);
        assert_eq!(marks, [vec![all[2]], vec![all[0], all[1]]]);
    }

    #[test]
    fn what_is_no_mark_is_none() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let name = address::unique(b"something-else/");
        bind(&pair.0, &SocketAddrUnix::new_abstract_name(&name).unwrap()).unwrap();
        assert!(marks([pair.0.as_raw_fd(), pair.1.as_raw_fd(), -1]).is_empty());
        assert_eq!(Legacy::from_text(b"janus-legacy-1\0"), None);
        let text = VERSION.to_vec();
        assert_eq!(Legacy::from_text(&text), None, "it is cut off");
    }
}
