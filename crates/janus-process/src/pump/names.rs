//! Names of connections that are carried, and of queues of them. The carrier's end of a pair is bound to one that holds the addresses, so that a
//! process that has the other end can ask the kernel for them, however it came by it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::net::{SocketAddrAny, SocketAddrUnix, bind, getpeername, getsockname};

use crate::address::{self, ADDRESS, UNIQUE};
use crate::{Errno, kernel};

const CONNECTION: &[u8] = b"janus-connection/";
const LISTENER: &[u8] = b"janus-listener/";
const CONNECTS: &[u8] = b"janus-connects/";
const FAILED: &[u8] = b"janus-failed/";
const CLAIM: &[u8] = b"janus-claim/";

/// Addresses of a connection: its own, and its peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// This side's.
    pub local: SocketAddr,
    /// The other side's.
    pub peer: SocketAddr,
}

impl Names {
    /// Names the carrier's end. Without a name nothing else is lost.
    pub(super) fn give(self, to: &OwnedFd) {
        give(CONNECTION, &[self.local, self.peer], to);
    }

    /// Those of the connection that this descriptor stands for, if it is one that is carried.
    pub fn of(fd: RawFd) -> Option<Names> {
        let told = told(fd, CONNECTION)?;
        let (local, peer) = told.split_at_checked(ADDRESS)?;
        Some(Names {
            local: address::get(local)?,
            peer: address::get(peer)?,
        })
    }

    /// Names the giving end of a listener's queue.
    pub(super) fn give_listener(local: SocketAddr, to: &OwnedFd) {
        give(LISTENER, &[local], to);
    }

    /// The address of the listener from whose queue this descriptor takes, if it does.
    pub fn of_listener(fd: RawFd) -> Option<SocketAddr> {
        address::get(&told(fd, LISTENER)?)
    }
}

/// State of a connection that another process makes for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connects {
    /// Nothing yet; it is to be one to this address.
    Pending(SocketAddr),
    /// It is there.
    Done,
    /// It cannot be had.
    Failed(Errno),
}

impl Connects {
    /// Names the end of who has asked for it.
    pub(crate) fn give(remote: SocketAddr, to: &OwnedFd) {
        give(CONNECTS, &[remote], to);
    }

    /// Names the carrier's end: there is no connection.
    pub(super) fn fail(why: Errno, to: &OwnedFd) {
        let mut name = address::unique(FAILED);
        name.extend(why.0.to_ne_bytes());
        call(&name, to);
    }

    /// State of what this descriptor stands for, if it was asked for by its holder.
    pub fn of(fd: RawFd) -> Option<Connects> {
        let named = kernel::named(fd).ok()?;
        let own = name_in(getsockname(named).ok()?, CONNECTS)?;
        let why = told(fd, FAILED).and_then(|why| Some(i32::from_ne_bytes(why.try_into().ok()?)));
        match why {
            Some(why) => Some(Connects::Failed(Errno(why))),
            None if Names::of(fd).is_some() => Some(Connects::Done),
            // The process that was to make it is gone.
            None if kernel::has_hung_up(named) => Some(Connects::Failed(Errno::ETIMEDOUT)),
            None => address::get(&own).map(Connects::Pending),
        }
    }
}

/// Names the line by which a connection is claimed, at the end of who claims it.
pub(super) fn claims(line: impl AsFd) {
    call(&address::unique(CLAIM), line);
}

/// Whether a descriptor is the other end of one.
pub(super) fn is_claim(fd: &OwnedFd) -> bool {
    told(fd.as_raw_fd(), CLAIM).is_some()
}

fn give(begin: &[u8], addresses: &[SocketAddr], to: &OwnedFd) {
    let mut name = address::unique(begin);
    for one in addresses {
        address::put(&mut name, *one);
    }
    call(&name, to);
}

fn call(name: &[u8], it: impl AsFd) {
    if let Ok(name) = SocketAddrUnix::new_abstract_name(name) {
        let _ = bind(it, &name);
    }
}

/// The rest of the other end's name.
fn told(fd: RawFd, begin: &[u8]) -> Option<Vec<u8>> {
    name_in(getpeername(kernel::named(fd).ok()?).ok()??, begin)
}

fn name_in(address: SocketAddrAny, begin: &[u8]) -> Option<Vec<u8>> {
    let address = SocketAddrUnix::try_from(address).ok()?;
    let name = address.abstract_name()?.strip_prefix(begin)?;
    Some(name.get(UNIQUE..)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_tells_the_names() {
        for (local, peer) in [
            ("192.0.2.1:80", "192.0.2.2:40000"),
            ("[2001:db8::1]:65535", "[2001:db8::2]:1"),
            ("[::ffff:192.0.2.1]:80", "[::ffff:192.0.2.2]:81"),
        ] {
            let names = Names {
                local: local.parse().unwrap(),
                peer: peer.parse().unwrap(),
            };
            let ends: Vec<_> = (0..2)
                .map(|_| super::super::pair(Some(names)).unwrap())
                .collect();
            for (theirs, ours) in &ends {
                assert_eq!(Names::of(theirs.as_raw_fd()), Some(names));
                assert_eq!(Names::of(ours.as_raw_fd()), None);
            }
        }
        let (theirs, _ours) = super::super::pair(None).unwrap();
        assert_eq!(Names::of(theirs.as_raw_fd()), None);
        assert_eq!(Names::of(-1), None);
    }
}
