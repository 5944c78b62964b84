//! A program presents itself to a daemon, and hears its answer: a welcome, or a refusal. A daemon whose device has no address yet says so first.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_shm::{
    Bell, Consumer, Hello, Link, Message, Mode, Network, Producer, Received, Segment, VERSION,
    Violation, Welcome, bytes_of_ring,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::Wishes;
use super::addresses::of_welcome;
use super::line::{ANSWER_WITHIN, Packets, Refusal, wait};
use super::queue::Ends;

/// How long a daemon may say that it waits for an address.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// A daemon that has taken this program in, and has not been told of its memory.
pub(super) struct Greeted {
    pub(super) link: Arc<Link>,
    pub(super) welcome: Welcome,
    pub(super) network: Network,
    /// Descriptors that came along.
    pub(super) fds: Vec<OwnedFd>,
}

/// The daemon's answer to a hello, with the addresses that its device has. One that waits for an address says so first.
fn welcomed(link: &Link, path: &Path) -> io::Result<(Welcome, Network, Vec<OwnedFd>)> {
    let strange = |what: &str| {
        let text = format!("what answers at {} is no daemon: {what}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    };
    let (mut until, mut told) = (Instant::now() + ANSWER_WITHIN, None);
    while wait(
        [link.as_fd()],
        Some(until.saturating_duration_since(Instant::now())),
    ) {
        match link.receive()? {
            Received::Message(Message::Welcome(welcome), fds) => {
                let network = told.unwrap_or_else(|| of_welcome(&welcome));
                return Ok((welcome, network, fds));
            }
            Received::Message(Message::Network(network), _) => {
                let more = Duration::from_millis(network.wait_ms.into()).min(WAIT_MAX);
                until = Instant::now() + ANSWER_WITHIN + more;
                told = Some(network);
            }
            Received::Message(Message::Refused { errno, why, .. }, _) => {
                return Err(Refusal { errno, why }.into());
            }
            Received::Message(..) | Received::Strange(_) => {
                return Err(strange("it says something else"));
            }
            Received::Nothing => {}
            Received::End => return Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
    let text = match told {
        Some(it) if it.addresses.is_empty() => "has no address yet",
        _ => "does not answer",
    };
    let text = format!("the daemon at {} {text}", path.display());
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// `ports`: the first that it had, or 0, and how many; were it to ask for more than it had, those would be the next member's.
pub(super) fn hello(wishes: &Wishes, member: u32, ports: (u16, u16)) -> Hello {
    Hello {
        versions: (VERSION, VERSION),
        name: wishes.name.clone(),
        mode: Mode::Isolated,
        cores: wishes.queues as u8,
        member,
        ports,
        buffers: 0,
        permit: wishes.permit.clone(),
    }
}

impl Greeted {
    /// By the first daemon, of which buffers may be borrowed.
    pub(super) fn by_daemon(path: &Path, wishes: &Wishes) -> io::Result<Greeted> {
        let mut hello = hello(wishes, 0, (0, wishes.ports));
        if wishes.borrows {
            (hello.mode, hello.buffers) = (Mode::Shared, wishes.buffers);
        }
        Greeted::at(path, &hello).map_err(|error| hung_up(path, error))
    }

    pub(super) fn at(path: &Path, hello: &Hello) -> io::Result<Greeted> {
        let link = Link::new(connected(path)?);
        link.send(&Message::Hello(hello.clone()), &[])?;
        let (welcome, network, fds) = welcomed(&link, path)?;
        Ok(Greeted {
            link: Arc::new(link),
            welcome,
            network,
            fds,
        })
    }

    /// Tells it where memory and rings are; our ends of the rings.
    pub(super) fn agree(
        &self,
        packets: &Packets,
        lent: bool,
        bells: &[(Bell, Bell)],
    ) -> io::Result<Vec<Ends>> {
        let ring = bytes_of_ring(packets.log2);
        let rings = Segment::create("janus-rings", bells.len() * 4 * ring as usize)?;
        let memory = Message::Memory {
            packets: if lent { 0 } else { packets.len },
            rings: rings.len() as u64,
        };
        let both = [packets.memory.as_fd(), rings.as_fd()];
        self.link.send(&memory, &both[usize::from(lent)..])?;
        let rings = Arc::new(rings);
        let mut all = Vec::new();
        for (core, (_, daemons)) in (0..).zip(bells) {
            let first = u64::from(core) * 4;
            let offsets = [0, 1, 2, 3].map(|at| (first + at) * ring);
            let log2 = packets.log2;
            let message = Message::Rings {
                core,
                offsets,
                log2,
            };
            self.link.send(&message, &[daemons.as_fd()])?;
            let [fill, rx, tx, done] = offsets;
            let ends = || -> Result<Ends, Violation> {
                Ok(Ends {
                    fill: Producer::new(rings.clone(), fill, log2)?,
                    rx: Consumer::new(rings.clone(), rx, log2)?,
                    tx: Producer::new(rings.clone(), tx, log2)?,
                    done: Consumer::new(rings.clone(), done, log2)?,
                })
            };
            all.push(ends().map_err(io::Error::other)?);
        }
        Ok(all)
    }
}

fn connected(path: &Path) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(path)?;
    match connect(&socket, &address) {
        Ok(()) => Ok(socket),
        Err(errno) => {
            let error = io::Error::from(errno);
            let hint = match errno {
                Errno::NOENT | Errno::CONNREFUSED => {
                    "start `janus daemon` there, or say by `daemon_socket` where one is"
                }
                Errno::ACCESS => "its user has not let this one in",
                _ => "it cannot be reached",
            };
            let text = format!("no daemon at {}: {hint} ({error})", path.display());
            Err(io::Error::new(error.kind(), text))
        }
    }
}

/// The reason of an error, where it is that the line was cut.
pub(super) fn hung_up(path: &Path, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            let text = format!("the daemon at {} has hung up", path.display());
            io::Error::new(io::ErrorKind::ConnectionRefused, text)
        }
        _ => error,
    }
}
