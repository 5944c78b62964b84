//! A daemon that has the one device of several programs, its members. Their packets cross in memory that each shares with the daemon alone: what
//! comes for a port goes to the member that has claimed it, what a member sends is looked at before it goes out. All that is no member's
//! (questions for link addresses, pings, unclaimed ports) a stack of the daemon's own answers, the keeper.
//!
//! The daemon steers by ports, not by connections: those are the members', who keep them when it ends, and join the next one. It knows which there
//! are, as far as it has seen them begin, so that they do not outlive their member unnoticed by their peers.
//! Never here: TCP; how a device is opened (`janus-rt`); the form of messages and rings (`janus-shm`).

#![forbid(unsafe_code)]

mod absent;
mod account;
mod check;
mod desk;
mod door;
mod doors;
mod flows;
mod groups;
mod inside;
mod keeper;
mod member;
mod network;
mod patience;
mod ports;
mod publisher;
mod quota;
mod resets;
mod seal;
mod statistics;
mod steer;
mod stock;
mod switch;

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use janus::{BoxError, Builder, Supervisor};
use janus_io::Counter;
use janus_io::park::{Parker, Unparker};
use janus_mem::Depot;

use absent::Absent;
use keeper::Keeper;
use network::Leased;
use publisher::Publisher;
use switch::Switch;

pub use quota::{Limit, Rate};
pub use statistics::{MemberStatistics, Statistics, Traffic};

/// The most programs that a daemon takes in.
pub const MEMBERS_MAX: usize = 128;
/// The most that it takes in for one port that another has left to them: a server with a process for each connection is to leave places for others.
pub const HEIRS_MAX: usize = MEMBERS_MAX / 2;

/// The most buffers of a daemon that lends some: members map all of them, and give the memory to the next daemon as their own.
const BUFFERS_MAX: usize = member::MEMORY_MAX as usize / janus_mem::SLOT_SIZE;

/// Leave to claim ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A user; `None`: any.
    pub user: Option<u32>,
    /// Ports, of TCP and of UDP.
    pub ports: RangeInclusive<u16>,
}

/// Where a daemon listens, and to whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its socket. What is there from a daemon before is removed.
    pub socket: PathBuf,
    /// Besides the daemon's own user and root, who may claim all.
    pub allow: Vec<Rule>,
    /// How much members may send. Where nothing is said: as much as they like.
    pub limits: Vec<Limit>,
    /// Packet buffers, besides the device's, that members of the daemon's own user may borrow: their packets are not copied.
    pub lends: u32,
    /// Time after which a member is cut off that takes none of the packets which it has been given; `None`: never.
    pub patience: Option<Duration>,
    /// SIGTERM and SIGINT end it.
    pub signals: bool,
}

/// Counts of a daemon.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Frames that went to members.
    pub to_members: Counter,
    /// Frames that came from members and went out.
    pub from_members: Counter,
    /// Frames that went from member to member.
    pub inside: Counter,
    /// Frames that went to the keeper.
    pub to_keeper: Counter,
    /// Frames that a member had no buffer for.
    pub lost_no_buffer: Counter,
    /// Frames that the device, or the keeper, had no room for.
    pub lost_full: Counter,
    /// Frames without an owner: malformed, of other protocols, pieces whose beginning has not been seen.
    pub lost_unknown: Counter,
    /// SYNs for ports whose member has just died.
    pub lost_reserved: Counter,
    /// Frames that a member of a group has sent back as another's.
    pub turned_back: Counter,
    /// Frames that a member may not send: from another address, another port, or no packets.
    pub refused: Counter,
    /// Frames of members over the rate of their user.
    pub limited: Counter,
    /// Frames, among those to and from members, that crossed without a copy.
    pub uncopied: Counter,
    /// Buffers that were lent to members.
    pub lent: Counter,
    /// Buffers that are not lent any more.
    pub returned: Counter,
    /// Descriptors that a member sent, of strange kinds, which could not be closed without waiting.
    pub left_open: Counter,
    /// Connections of members that were seen to begin.
    pub begun: Counter,
    /// Those among them that are over, or not remembered any more: the others are there.
    pub ended: Counter,
    /// SYNs to peers of members that are gone, so that they are reset.
    pub asked: Counter,
    /// Connections of members that are gone that were reset after that, by either side.
    pub told: Counter,
    /// Members that were taken in.
    pub joined: Counter,
    /// Members that went in order.
    pub left: Counter,
    /// Members that ended without a word.
    pub died: Counter,
    /// Members that were cut off because they broke the rules, or hung.
    pub cut_off: Counter,
}

impl Counters {
    /// Frames that were given to members.
    fn given(&self) -> u64 {
        self.to_members.get() + self.inside.get()
    }
}

impl std::fmt::Display for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [
            ("to members", &self.to_members),
            ("from members", &self.from_members),
            ("from one to another", &self.inside),
            ("to the keeper", &self.to_keeper),
            ("lost without a buffer", &self.lost_no_buffer),
            ("lost in full queues", &self.lost_full),
            ("lost as nobody's", &self.lost_unknown),
            ("lost for a dead member's port", &self.lost_reserved),
            ("turned back", &self.turned_back),
            ("refused", &self.refused),
            ("over a rate", &self.limited),
            ("not copied", &self.uncopied),
        ];
        f.write_str("frames:")?;
        for (what, counter) in all {
            write!(f, " {} {what},", counter.get())?;
        }
        let (joined, left) = (self.joined.get(), self.left.get());
        let (died, cut_off) = (self.died.get(), self.cut_off.get());
        let (begun, ended, told) = (self.begun.get(), self.ended.get(), self.told.get());
        write!(
            f,
            " programs: {joined} joined, {left} left, {died} died, {cut_off} cut off; connections: {begun} begun, {ended} ended, {told} reset \
             after their program's end"
        )
    }
}

/// Where a daemon with this socket remembers its lease, if nothing else is said: in a file beside it.
fn lease_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lease");
    path.into()
}

/// A daemon that has its device and its socket.
pub struct Daemon {
    switch: Switch,
    keeper: Keeper,
    publisher: Publisher,
    supervisor: Option<Supervisor>,
    parker: Parker,
    stop: Stop,
    counters: Arc<Counters>,
    buffers: Arc<Depot>,
}

/// Ends a daemon from another thread.
#[derive(Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    wakes: Unparker,
}

impl Stop {
    /// The daemon ends soon.
    pub fn stop(&self) {
        self.asked.store(true, Ordering::Release);
        self.wakes.wake();
    }
}

impl std::fmt::Debug for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stop").field(&self.asked).finish()
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Daemon").field(&self.counters).finish()
    }
}

impl Daemon {
    /// Opens the device that `builder` describes, and the socket.
    ///
    /// # Errors
    /// Either cannot be had; the error says what to do.
    pub fn open(builder: Builder, settings: &Settings) -> Result<Daemon, BoxError> {
        // First: where another daemon listens, its device is not touched.
        let door = door::Door::open(settings)?;
        let mut device = builder.open_device(settings.lends)?;
        if settings.lends > 0 && device.depot.capacity() > BUFFERS_MAX {
            let text = format!("{BUFFERS_MAX} packet buffers at most, with those to lend");
            return Err(text.into());
        }
        if device.portal.is_some() {
            eprintln!("janus: the portal is the daemon's device; `backend` names another");
        }
        let (counters, buffers) = (Arc::new(Counters::default()), device.depot.clone());
        let parker = Parker::new()?;
        let stop = Stop {
            asked: Arc::default(),
            wakes: parker.unparker(),
        };
        let ends = settings.signals.then(|| stop.clone());
        let leased = device.leases.as_mut().map(|leases| {
            // Members outlive their daemon: the next one is to have their address.
            let file = || lease_of(&settings.socket);
            leases.file.get_or_insert_with(file);
            Leased::new(leases.wait, parker.unparker())
        });
        let (keeper, cable) = Keeper::start(&device, ends, leased.as_ref())?;
        let asked = (stop.asked.clone(), leased);
        let supervisor = device.supervisor.take();
        // Those of the daemon before, which are in its file yet.
        let absent = match &device.leases {
            None if door.follows => Absent::of(settings),
            // An address that is asked for is answered by packets.
            _ => Absent::default(),
        };
        let switch = Switch::new(
            device,
            cable,
            door,
            absent,
            settings,
            asked,
            counters.clone(),
        )?;
        Ok(Daemon {
            switch,
            keeper,
            publisher: Publisher::create(&settings.socket),
            supervisor,
            parker,
            stop,
            counters,
            buffers,
        })
    }

    /// Its counts, which stay readable.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// Its packet buffers: all are home once it and its device's other end are gone.
    #[must_use]
    pub fn buffers(&self) -> Arc<Depot> {
        self.buffers.clone()
    }

    /// How to end it.
    #[must_use]
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Carries packets until it is stopped.
    ///
    /// # Errors
    /// The system's, when it cannot be waited for anything any more; or no server gives an address, where one is asked for.
    pub fn run(self) -> io::Result<()> {
        let Daemon {
            mut switch,
            keeper,
            mut publisher,
            supervisor,
            parker,
            ..
        } = self;
        if let Some(supervisor) = &supervisor {
            supervisor.ready();
        }
        let done = switch.run(&parker, &mut publisher);
        if let Some(supervisor) = &supervisor {
            supervisor.stopping();
        }
        // Its file before its socket: what has a socket has figures.
        match switch.door.is_left {
            true => publisher.leaves(),
            false => drop(publisher),
        }
        drop(switch);
        keeper.end();
        done
    }
}
