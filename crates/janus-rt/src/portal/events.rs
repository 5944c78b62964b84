//! The carrier's sources of events: an epoll set and a doorbell. Only system calls live here.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

/// Most events taken in one call; the rest comes with the next.
const EVENTS_MAX: usize = 128;

/// Wakes the carrier from another thread.
pub(super) struct Doorbell(OwnedFd);

impl Doorbell {
    pub(super) fn new() -> io::Result<Doorbell> {
        Ok(Doorbell(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    pub(super) fn ring(&self) {
        // Only a counter at its maximum refuses, and then it rings already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A Janus port as the kernel offers it at one of its addresses, which are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DoorId {
    pub(super) port: u16,
    pub(super) number: u8,
}

/// Target of an event. Packed into epoll's 64 bits: kind above, number below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Doorbell,
    /// A queue of the inner wire has frames.
    Wire,
    /// One of the kernel's listeners for a Janus port.
    Door(DoorId),
    /// The kernel's connection of this bridge.
    Bridge(u32),
}

impl Source {
    fn pack(self) -> u64 {
        match self {
            Source::Doorbell => 0,
            Source::Wire => 1 << 32,
            Source::Door(door) => 2 << 32 | u64::from(door.number) << 16 | u64::from(door.port),
            Source::Bridge(slot) => 3 << 32 | u64::from(slot),
        }
    }

    fn unpack(word: u64) -> Source {
        match word >> 32 {
            0 => Source::Doorbell,
            1 => Source::Wire,
            2 => Source::Door(DoorId {
                port: word as u16,
                number: (word >> 16) as u8,
            }),
            _ => Source::Bridge(word as u32),
        }
    }
}

/// Readiness that an event reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) source: Source,
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) broken: bool,
}

pub(super) struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        Ok(Epoll {
            fd: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Reports `source` as long as it can be read (level).
    pub(super) fn watch_level(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        Ok(epoll::add(
            &self.fd,
            fd,
            EventData::new_u64(source.pack()),
            EventFlags::IN,
        )?)
    }

    /// Reports each change of `source` once (edge); the owner remembers what is possible.
    pub(super) fn watch_edge(&self, fd: impl AsFd, source: Source) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.fd,
            fd,
            EventData::new_u64(source.pack()),
            flags,
        )?)
    }

    /// Waits at most `timeout` (`None`: forever) and calls `each` for what changed.
    pub(super) fn wait(
        &self,
        timeout: Option<Duration>,
        mut each: impl FnMut(Change),
    ) -> io::Result<()> {
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs().min(3600) as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let (events, _) = match epoll::wait(&self.fd, &mut events[..], timeout.as_ref()) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            let flags = event.flags;
            let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            each(Change {
                source: Source::unpack(event.data.u64()),
                readable: broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
                writable: broken || flags.contains(EventFlags::OUT),
                broken,
            });
        }
        Ok(())
    }
}
