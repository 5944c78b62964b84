//! One member, as the daemon sees it: what it has said, its memory, its rings. Whatever it can write is read once.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_shm::{
    Bell, Consumer, Descriptor, Hello, Link, Message, Producer, Segment, VERSION, Violation,
    bytes_of_ring,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::account::Account;
use crate::ports::Port;

/// Entries of the largest ring that is taken, as a power of two.
const LOG2_MAX: u8 = 14;
const CORES_MAX: u8 = 16;
/// The most memory of a member: what of it is touched here counts as the daemon's.
const MEMORY_MAX: u64 = 1 << 30;
/// Time to join.
const JOINS_WITHIN: Duration = Duration::from_secs(5);
/// Claims of one member.
pub(crate) const CLAIMS_MAX: usize = 4096;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has asked, and said nothing yet.
    Asks,
    Welcomed,
    /// Packets go both ways.
    Ready,
}

/// One of its cores.
pub(crate) struct Core {
    fill: Consumer,
    rx: Producer,
    pub(crate) tx: Consumer,
    pub(crate) done: Producer,
    pub(crate) bell: Bell,
    /// Packets were put in that it has not been told of.
    fresh: bool,
}

pub(crate) struct Member {
    pub(crate) stage: Stage,
    pub(crate) name: String,
    pub(crate) user: u32,
    /// The number by which it is known, also to the next daemon.
    pub(crate) identity: u32,
    /// Ports that it has by sending from them.
    pub(crate) taken: u32,
    pub(crate) account: Account,
    since: Instant,
    pub(crate) cores: Vec<Core>,
    cores_wanted: u8,
    pub(crate) memory: Option<Segment>,
    rings: Option<Arc<Segment>>,
    pub(crate) claims: BTreeMap<u32, Port>,
    /// Readable once its process has ended: a child of it may hold the line.
    pub(crate) process: Option<OwnedFd>,
    /// Last: who sees its end may rely on the memory's being unmapped.
    pub(crate) link: Link,
}

/// Why a member is cut off.
#[derive(Debug)]
pub(crate) enum Breach {
    Ring(Violation),
    /// It said what it may not say then.
    Words(&'static str),
    System(io::Error),
}

impl From<Violation> for Breach {
    fn from(it: Violation) -> Breach {
        Breach::Ring(it)
    }
}

impl From<io::Error> for Breach {
    fn from(it: io::Error) -> Breach {
        Breach::System(it)
    }
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Breach::Ring(violation) => violation.fmt(f),
            Breach::Words(what) => f.write_str(what),
            Breach::System(error) => error.fmt(f),
        }
    }
}

impl Member {
    pub(crate) fn new(link: Link) -> io::Result<Member> {
        let peer = link.peer()?;
        Ok(Member {
            stage: Stage::Asks,
            name: String::new(),
            user: peer.user,
            identity: 0,
            taken: 0,
            account: Account::new(&peer),
            since: Instant::now(),
            cores: Vec::new(),
            cores_wanted: 0,
            memory: None,
            rings: None,
            claims: BTreeMap::new(),
            // Of another container's process there is none; then its line says that it has ended.
            process: (peer.process).and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok()),
            link,
        })
    }

    /// It presents itself.
    pub(crate) fn greets(&mut self, hello: &Hello) -> Result<(), Breach> {
        let (oldest, newest) = hello.versions;
        if self.stage != Stage::Asks {
            return Err(Breach::Words("it presents itself twice"));
        }
        if !(oldest..=newest).contains(&VERSION) {
            return Err(Breach::Words("it speaks no version that is spoken here"));
        }
        if !(1..=CORES_MAX).contains(&hello.cores) {
            return Err(Breach::Words("it wants no core, or too many"));
        }
        self.name.clone_from(&hello.name);
        self.cores_wanted = hello.cores;
        self.stage = Stage::Welcomed;
        Ok(())
    }

    /// It gives its memory.
    pub(crate) fn maps(
        &mut self,
        (packets, rings): (u64, u64),
        fds: Vec<OwnedFd>,
    ) -> Result<(), Breach> {
        let Ok([memory, of_rings]) = <[OwnedFd; 2]>::try_from(fds) else {
            return Err(Breach::Words("its memory does not come with it"));
        };
        let most = u64::from(self.cores_wanted) * 4 * bytes_of_ring(LOG2_MAX);
        let fits = packets <= MEMORY_MAX && rings <= most;
        if self.stage != Stage::Welcomed || self.memory.is_some() || !fits {
            return Err(Breach::Words("it gives memory twice, or too much"));
        }
        self.memory = Some(Segment::open(memory, packets as usize)?);
        self.rings = Some(Arc::new(Segment::open(of_rings, rings as usize)?));
        Ok(())
    }

    /// It says where a core's rings are.
    pub(crate) fn rings(
        &mut self,
        core: u8,
        offsets: [u64; 4],
        log2: u8,
        mut fds: Vec<OwnedFd>,
    ) -> Result<(), Breach> {
        let (Some(rings), Some(bell)) = (&self.rings, fds.pop()) else {
            return Err(Breach::Words("its rings have no memory, or no bell"));
        };
        let is_next = usize::from(core) == self.cores.len() && core < self.cores_wanted;
        if !is_next || log2 > LOG2_MAX || self.stage != Stage::Welcomed {
            return Err(Breach::Words("its rings are none that were agreed on"));
        }
        let [fill, rx, tx, done] = offsets;
        self.cores.push(Core {
            fill: Consumer::new(rings.clone(), fill, log2)?,
            rx: Producer::new(rings.clone(), rx, log2)?,
            tx: Consumer::new(rings.clone(), tx, log2)?,
            done: Producer::new(rings.clone(), done, log2)?,
            bell: Bell::new(bell),
            fresh: false,
        });
        Ok(())
    }

    /// Packets may come.
    pub(crate) fn is_ready(&mut self) -> Result<(), Breach> {
        let whole = self.cores.len() == usize::from(self.cores_wanted);
        if self.stage != Stage::Welcomed || !whole {
            return Err(Breach::Words("it is ready before it can be"));
        }
        self.stage = Stage::Ready;
        Ok(())
    }

    /// Copies a frame into a buffer of the member's. False: it has given none.
    #[inline]
    pub(crate) fn deliver(&mut self, core: u8, bytes: &[u8], tag: u32) -> Result<bool, Violation> {
        let cores = self.cores.len();
        let (Stage::Ready, Some(memory), true) = (self.stage, &self.memory, cores > 0) else {
            return Ok(false);
        };
        let core = &mut self.cores[usize::from(core) % cores];
        let mut into = [Descriptor::default()];
        if core.fill.pop(&mut into)? == 0 {
            return Ok(false);
        }
        let [mut into] = into;
        memory.write(into.offset, bytes)?;
        (into.len, into.tag) = (bytes.len() as u32, tag);
        // There is room for each buffer that it has given, unless it gives some twice.
        let put = core.rx.push(&[into])? == 1;
        core.fresh = true;
        Ok(put)
    }

    /// Tells it what was put in.
    #[inline]
    pub(crate) fn tell(&mut self) {
        for core in &mut self.cores {
            if core.fresh {
                core.fresh = false;
                core.fill.publish();
                if core.rx.publish() {
                    core.bell.ring();
                }
            }
        }
    }

    /// The daemon is about to sleep. False: there is something to send.
    pub(crate) fn arm(&mut self) -> Result<bool, Violation> {
        for core in &mut self.cores {
            if !core.tx.arm()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn disarm(&mut self) {
        self.cores.iter_mut().for_each(|core| core.tx.disarm());
    }

    /// Whether it has asked and not joined for too long: others may want its place.
    pub(crate) fn dawdles(&self) -> bool {
        self.stage != Stage::Ready && self.since.elapsed() > JOINS_WITHIN
    }

    /// Whether its process is no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(|process| {
            let mut polled = [PollFd::new(process, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        })
    }

    /// For people.
    pub(crate) fn called(&self) -> String {
        format!("{:?} of user {}", self.name, self.user)
    }

    pub(crate) fn say(&self, message: &Message) -> Result<(), Breach> {
        Ok(self.link.send(message, &[])?)
    }
}

impl Core {
    /// Buffers that are given and hold nothing yet. What is wrong with their ring is heard of where it is used.
    pub(crate) fn buffers(&mut self) -> u64 {
        self.fill.waiting().unwrap_or(0).into()
    }

    /// Buffers that were sent are the member's again.
    pub(crate) fn sent(&mut self) {
        self.tx.publish();
        if self.done.publish() {
            self.bell.ring();
        }
    }
}
