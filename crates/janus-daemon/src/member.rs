//! One member, as the daemon sees it: what it has said, its memory, its rings. Whatever it can write is read once.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use janus_io::loans::Borrower;
use janus_mem::Frame;
use janus_shm::{
    Bell, Consumer, Descriptor, Hello, Link, Message, Producer, Segment, VERSION, Violation,
    bytes_of_ring,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::account::Account;
use crate::flows::Flows;
use crate::patience::Progress;
use crate::ports::Port;
use crate::stock::Stock;

/// Entries of the largest ring that is taken, as a power of two.
const LOG2_MAX: u8 = 14;
const CORES_MAX: u8 = 16;
/// The most memory of a member: what of it is touched here counts as the daemon's.
pub(crate) const MEMORY_MAX: u64 = 1 << 30;
/// Time to join.
const JOINS_WITHIN: Duration = Duration::from_secs(5);
/// Buffers that were sent, for which a member is woken before there is time for it.
const SENT_AT_ONCE: u32 = 8;
/// Frames of one core that wait for buffers: as many as come for it while it does something else for a millisecond or two.
const WAITING_MAX: usize = 4096;
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
    /// Frames that there was no buffer for, as a device would have them in its queue, with their tags.
    waiting: VecDeque<(Frame, u32)>,
    /// Packets were put in that it has not been told of.
    fresh: bool,
    progress: Progress,
    /// Frames of lent buffers that the device has: each will want room in `done`.
    pub(crate) flying: u32,
}

/// The way that a frame has come to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossed {
    /// It has given no buffer for it.
    Not,
    /// Until it has given one.
    Waits,
    Copied,
    /// In the buffer that it was in.
    Handed,
}

/// Where its packets are.
pub(crate) enum Memory {
    None,
    /// In memory of its own.
    Own(Segment),
    /// In buffers of the daemon's.
    Lent(Borrower),
}

pub(crate) struct Member {
    pub(crate) stage: Stage,
    pub(crate) name: String,
    pub(crate) user: u32,
    /// The number by which it is known, also to the next daemon.
    pub(crate) identity: u32,
    /// The port for which it was taken in, as another has left it to it.
    pub(crate) heir_to: Option<u16>,
    /// Ports that it has by sending from them.
    pub(crate) taken: u32,
    pub(crate) account: Account,
    pub(crate) flows: Flows,
    /// When it has asked, or an address was there that it has waited for.
    pub(crate) since: Instant,
    /// It is not welcomed before there is an address.
    pub(crate) waits: Option<Waits>,
    pub(crate) cores: Vec<Core>,
    cores_wanted: u8,
    pub(crate) memory: Memory,
    rings: Option<Arc<Segment>>,
    pub(crate) claims: BTreeMap<u32, Port>,
    /// Readable once its process has ended: another may hold the line.
    pub(crate) process: Option<OwnedFd>,
    /// Last: who sees its end may rely on the memory's being unmapped.
    pub(crate) link: Link,
}

/// A program's wait for an address of the device.
pub(crate) struct Waits {
    pub(crate) hello: Hello,
    /// Then it is refused.
    pub(crate) until: Instant,
}

/// Why a member is cut off.
#[derive(Debug)]
pub(crate) enum Breach {
    Ring(Violation),
    /// It said what it may not say then.
    Words(&'static str),
    /// It has taken nothing for so long.
    Hangs(Duration),
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
            Breach::Hangs(time) => write!(
                f,
                "it has taken none of its packets for {time:?} (--patience says for how long it may)"
            ),
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
            heir_to: None,
            taken: 0,
            account: Account::new(&peer),
            flows: Flows::default(),
            since: Instant::now(),
            waits: None,
            cores: Vec::new(),
            cores_wanted: 0,
            memory: Memory::None,
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
        self.heir_to = hello.permit.as_ref().map(|it| it.port);
        self.cores_wanted = hello.cores;
        self.flows.follows = hello.member != 0;
        self.stage = Stage::Welcomed;
        Ok(())
    }

    /// It gives its memory.
    pub(crate) fn maps(
        &mut self,
        (packets, rings): (u64, u64),
        fds: Vec<OwnedFd>,
    ) -> Result<(), Breach> {
        let borrows = matches!(self.memory, Memory::Lent(_));
        let mut fds = fds.into_iter();
        let memory = if borrows { None } else { fds.next() };
        let (Some(of_rings), None) = (fds.next(), fds.next()) else {
            return Err(Breach::Words("its memory does not come with it"));
        };
        let most = u64::from(self.cores_wanted) * 4 * bytes_of_ring(LOG2_MAX);
        let fits = packets <= MEMORY_MAX && rings <= most;
        if self.stage != Stage::Welcomed || self.rings.is_some() || !fits {
            return Err(Breach::Words("it gives memory twice, or too much"));
        }
        if let Some(memory) = memory {
            self.memory = Memory::Own(Segment::open(memory, packets as usize)?);
        }
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
            waiting: VecDeque::new(),
            fresh: false,
            progress: Progress::default(),
            flying: 0,
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

    /// Gives it a frame, now or once there is a buffer for it.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        core: u8,
        frame: Frame,
        tag: u32,
        stock: &mut Stock,
    ) -> Result<Crossed, Breach> {
        let cores = self.cores.len();
        let core = match (self.stage, cores) {
            (Stage::Ready, 1..) => &mut self.cores[usize::from(core) % cores],
            _ => {
                stock.pool.free(frame.buf);
                return Ok(Crossed::Not);
            }
        };
        if (!stock.has_waiting() || core.waiting.is_empty())
            && let Some(into) = core.fill.take()?
        {
            return core.hand_over(into, (frame, tag), &self.memory, stock);
        }
        if core.waiting.len() < WAITING_MAX && stock.may_wait() {
            core.waiting.push_back((frame, tag));
            return Ok(Crossed::Waits);
        }
        stock.pool.free(frame.buf);
        Ok(Crossed::Not)
    }

    /// Gives it a frame that has waited, if there is a buffer for one: its length.
    #[cold]
    pub(crate) fn catches_up(
        &mut self,
        stock: &mut Stock,
    ) -> Result<Option<(usize, Crossed)>, Breach> {
        for core in &mut self.cores {
            if let Some((frame, _)) = core.waiting.front()
                && let Some(into) = core.fill.take()?
            {
                let len = frame.len.into();
                let next = core.waiting.pop_front().expect("it is the first");
                stock.waited();
                let crossed = core.hand_over(into, next, &self.memory, stock)?;
                return Ok(Some((len, crossed)));
            }
        }
        Ok(None)
    }

    /// It is gone, and has no use for what waits.
    pub(crate) fn lets_go(&mut self, stock: &mut Stock) {
        for (frame, _) in self
            .cores
            .iter_mut()
            .flat_map(|core| core.waiting.drain(..))
        {
            stock.waited();
            stock.pool.free(frame.buf);
        }
    }

    /// A frame of a buffer that it was lent has been sent.
    pub(crate) fn landed(&mut self, core: u8, it: Descriptor) -> Result<(), Violation> {
        if let Some(core) = self.cores.get_mut(usize::from(core)) {
            core.flying -= 1;
            core.done.put(it)?;
        }
        Ok(())
    }

    /// Tells it what it has received, and shows it what was sent. It is woken for the latter if that is much or there is time for it: nothing
    /// waits for those buffers but others that are to be sent.
    #[inline]
    pub(crate) fn tell(&mut self, has_time: bool) {
        for core in &mut self.cores {
            let mut rings = false;
            if core.fresh {
                core.fresh = false;
                core.fill.publish();
                rings = core.rx.publish();
            }
            match has_time || core.done.untold() >= SENT_AT_ONCE {
                true => rings |= core.done.publish(),
                false => core.done.show(),
            }
            if rings {
                core.bell.ring();
            }
        }
    }

    /// The daemon is about to sleep. False: there is something to send, or a buffer for what waits.
    pub(crate) fn arm(&mut self) -> Result<bool, Violation> {
        for core in &mut self.cores {
            if !core.tx.arm()? || !core.waiting.is_empty() && !core.fill.arm()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn disarm(&mut self) {
        for core in &mut self.cores {
            core.tx.disarm();
            core.fill.disarm();
        }
    }

    /// Since when it takes none of the packets that it has been given, if there are some.
    pub(crate) fn hangs_since(&mut self, now: Instant) -> Result<Option<Instant>, Violation> {
        let mut first = None;
        for core in &mut self.cores {
            let since = core.progress.is_at(core.rx.progress()?, now);
            first = first.into_iter().chain(since).min();
        }
        Ok(first)
    }

    /// Whether it has asked and not joined for too long: others may want its place.
    pub(crate) fn dawdles(&self) -> bool {
        let joins = self.stage != Stage::Ready && self.waits.is_none();
        joins && self.since.elapsed() > JOINS_WITHIN
    }

    /// It goes on in another process, whose end is that of the line that comes along.
    pub(crate) fn moves(&mut self, process: u32, mut fds: Vec<OwnedFd>) -> Result<(), Breach> {
        let (Stage::Ready, Some(line)) = (self.stage, fds.pop()) else {
            return Err(Breach::Words(
                "it moves before it is there, or to no process",
            ));
        };
        // Of another container's neither is known.
        if self.process.is_some() {
            self.process = Some(line);
            self.account.process = process;
        }
        Ok(())
    }

    /// Whether its process is no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(has_ended)
    }

    /// For people.
    pub(crate) fn called(&self) -> String {
        format!("{:?} of user {}", self.name, self.user)
    }

    /// One that has hung up is not told, and what it has said before is heard yet.
    pub(crate) fn say(&self, message: &Message) -> Result<(), Breach> {
        match self.link.send(message, &[]) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            said => Ok(said?),
        }
    }
}

pub(crate) fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

impl Core {
    /// Puts a frame into a buffer that it has given, or in that one's place if it borrows.
    // By a call, a round trip of 1.23 us took 40 ns more.
    #[inline(always)]
    fn hand_over(
        &mut self,
        mut into: Descriptor,
        (frame, tag): (Frame, u32),
        memory: &Memory,
        stock: &mut Stock,
    ) -> Result<Crossed, Breach> {
        (into.len, into.tag) = (u32::from(frame.len), tag);
        let mut crossed = Crossed::Copied;
        match memory {
            Memory::Own(memory) => {
                memory.write(into.offset, frame.data())?;
                stock.pool.free(frame.buf);
            }
            Memory::Lent(borrower) => {
                // Before it can be another's: should the daemon end here, the member is not to take it for its own.
                self.fill.publish();
                let given = stock.exchange(into.offset, frame, *borrower);
                let given = given.ok_or(Breach::Words("it gives what it does not have"))?;
                (into.offset, crossed) = given;
            }
            Memory::None => return Ok(Crossed::Not),
        }
        self.fresh = true;
        // There is room for each buffer that it has given, unless it gives some twice.
        match self.rx.put(into)? {
            true => Ok(crossed),
            false => Ok(Crossed::Not),
        }
    }

    /// Number of buffers that are given and hold nothing yet. What is wrong with their ring is heard of where it is used.
    pub(crate) fn buffers(&mut self) -> u64 {
        self.fill.waiting().unwrap_or(0).into()
    }
}
