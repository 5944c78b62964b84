//! The device of a program that shares one with others: a daemon has it, and packets cross in memory. The program's buffers are in memory that
//! the daemon has mapped too: it copies what it receives into those that it was given, and copies what is to be sent out of them. Or they
//! are the daemon's own, which it lends: then buffers change hands, and nothing is copied (`loan`). When the daemon ends, the program keeps its
//! connections, and dials until another is there; to TCP that is a loss.

mod addresses;
mod greeted;
mod line;
mod loan;
mod queue;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use janus_mem::{Depot, Growth, SLOT_SIZE};
use janus_shm::Welcome;
pub use janus_shm::{Device, NAME_MAX, Network, Permit, keep_descriptors_by};
use janus_wire::{Link, MacAddr, ethernet};

use crate::backend::held::{Held, Ours};
use crate::counter::Counter;
use crate::debug::opaque;
use crate::queue::{Backend, Caps, DeviceLosses, LossesFn, Queue, check_queues};
pub use addresses::TellFn;
use greeted::Greeted;
use line::Line;
use queue::MemberQueue;

/// The most queues of one member.
pub const MAX_QUEUES: usize = 16;
/// The longest MTU: a frame fits behind the headroom of one buffer.
pub const MAX_MTU: u16 = SLOT_SIZE as u16 - janus_mem::HEADROOM - ethernet::LEN as u16;
/// Entries of each ring, if there are buffers enough for that.
const DEPTH: u32 = 1024;
const DEPTH_MIN: u32 = 64;
/// All queues together may keep this part of the buffers for receiving, and while there is no daemon another for sending.
const SHARE: u32 = 4;

/// Counts of what the queues could not do.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MemberCounters {
    /// Times the daemon should have had more buffers to receive into and there were none.
    pub no_buffer: Counter,
    /// Buffers of a pool over other memory than the daemon has; nothing is received into them, and nothing sent.
    pub foreign_pool: Counter,
    /// Buffers that the daemon gave back and did not have.
    pub strange: Counter,
    /// Frames that were to be sent while there was no daemon.
    pub lost_no_daemon: Counter,
    /// Daemons that were followed by another, or broke the rules.
    pub daemons_lost: Counter,
}

/// A program that a daemon has taken in.
pub struct Member {
    line: Arc<Line>,
    depot: Arc<Depot>,
    /// Of buffers that are borrowed.
    ours: Option<Ours>,
    queues: usize,
    counters: Arc<MemberCounters>,
}

opaque!(Member);

/// A program's requests to a daemon.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// Its name, for people.
    pub name: String,
    /// Programs with which it divides connections to the ports that all of them listen at; empty: none.
    pub group: String,
    /// Ports for connections that it begins.
    pub ports: u16,
    /// Cores that poll.
    pub queues: usize,
    /// Packet buffers.
    pub buffers: u32,
    /// They may be borrowed of the daemon, if it lends some.
    pub borrows: bool,
    /// A port that another program has left to this one: its right to be taken in.
    pub permit: Option<Permit>,
}

/// Asks the daemon for ports, from any thread.
#[derive(Clone)]
pub struct Ports(Arc<Line>);

opaque!(Ports);

impl Member {
    /// Asks the daemon at `socket` to take this program in.
    ///
    /// # Errors
    /// There is none, or it refuses; the error says what to do.
    pub fn join(socket: &Path, wishes: &Wishes, growth: &Growth) -> io::Result<Member> {
        check_queues("a member of a daemon", wishes.queues, MAX_QUEUES)?;
        let most = wishes.buffers / (SHARE * wishes.queues as u32);
        if most < DEPTH_MIN {
            let least = DEPTH_MIN * SHARE * wishes.queues as u32;
            let text = format!("a member of a daemon wants `packet_buffers` of {least} at least");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let log2 = most.min(DEPTH).ilog2() as u8;
        let counters = Arc::new(MemberCounters::default());
        let mut greeted = Greeted::by_daemon(socket, wishes)?;
        let (depot, ours, memory) = match loan::of(&mut greeted)? {
            Some((depot, ours, memory)) => (depot, Some(ours), memory),
            None => {
                let made = Depot::shared(wishes.buffers, growth);
                let (depot, memory) = made.map_err(io::Error::other)?;
                (depot, None, memory)
            }
        };
        let packets = line::Packets {
            len: rustix::fs::fstat(&memory)?.st_size as u64,
            memory,
            lent: ours.is_some(),
            log2,
        };
        let line = Line::dial(socket, wishes, greeted, packets, counters.clone())?;
        Ok(Member {
            line,
            depot,
            ours,
            queues: wishes.queues,
            counters,
        })
    }

    /// The buffers into which all packets are received.
    #[must_use]
    pub fn depot(&self) -> Arc<Depot> {
        self.depot.clone()
    }

    /// The daemon's description of its device.
    #[must_use]
    pub fn welcome(&self) -> &Welcome {
        self.line.welcome()
    }

    /// The addresses that the daemon's device has now.
    #[must_use]
    pub fn network(&self) -> Network {
        self.line.addresses().now()
    }

    /// The way to ask for ports.
    #[must_use]
    pub fn ports(&self) -> Ports {
        Ports(self.line.clone())
    }

    /// Returns the counters of the queues; they stay readable after they are open.
    #[must_use]
    pub fn counters(&self) -> Arc<MemberCounters> {
        self.counters.clone()
    }
}

impl Ports {
    /// Asks for a port of TCP, or of UDP. 0 leaves it to the daemon. Waits for the answer; while there is no daemon, for the next one.
    ///
    /// # Errors
    /// AddrInUse, PermissionDenied, TimedOut.
    pub fn claim(&self, udp: bool, address: SocketAddr) -> io::Result<u16> {
        self.0.claim(udp, address)
    }

    /// Says whether new connections to this port of TCP are to come only while no other member takes any.
    pub fn reserve(&self, port: u16, reserve: bool) {
        self.0.reserve(port, reserve);
    }

    /// Another program leaves this one a port, which is claimed by that right from now on.
    pub fn may_have(&self, permit: Permit) {
        self.0.may_have(permit);
    }

    /// A port of TCP is claimed in this group from now on, in whatever group the program is; `None`: in that one.
    pub fn is_shared_in(&self, port: u16, group: Option<&'static str>) {
        self.0.is_shared_in(port, group);
    }

    /// The permit by which another program may listen at this port of TCP too; none where ports are this program's alone.
    #[must_use]
    pub fn permit(&self, port: u16) -> Option<Permit> {
        self.0.permit(port)
    }

    /// Whether packets for this port are for this program, and not for another member.
    #[must_use]
    pub fn has(&self, udp: bool, port: u16) -> bool {
        self.0.has(udp, port)
    }

    /// Ends the thread that hears the daemon, so that this process can be copied, until [`goes_on`](Ports::goes_on).
    pub fn rests(&self) {
        self.0.rests();
    }

    /// Hears the daemon again, here or in a copy.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn goes_on(&self) -> io::Result<()> {
        self.0.goes_on()
    }

    /// This process is a copy, which has the member from now on: the daemon is told.
    ///
    /// # Errors
    /// As the system says.
    pub fn moves(&self) -> io::Result<()> {
        self.0.moves()
    }

    /// Says that another member claims this one's ports of TCP soon after its end. The daemon keeps them for a moment
    /// then, as those of a member that died.
    pub fn is_succeeded(&self) {
        self.0.is_succeeded();
    }

    /// Has `tell` called when the device has other addresses than `known`, at once if that is so already, and from then on by the thread that
    /// listens to the daemon.
    pub fn follow(&self, known: &Network, tell: Box<TellFn>) {
        self.0.addresses().follow(known, tell);
    }

    /// This program is to have connections at a port where others of its group have some.
    ///
    /// # Errors
    /// It was not left the port. [`io::ErrorKind::WouldBlock`]: there is no daemon at the moment.
    pub fn may_bring(&self, local: SocketAddr) -> io::Result<()> {
        self.0.may_bring(local)
    }

    /// A connection is here that another program of the group has had until now: its end, and its peer's. What comes for it is to come here.
    pub fn brings(&self, ends: (SocketAddr, SocketAddr)) {
        self.0.brings(ends);
    }

    /// Whether the daemon has heard of all ports that were given back, and of all [brought](Ports::brings) connections. What opens connections to such ports and is
    /// for this program is in its rings then.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        self.0.is_heard()
    }

    /// Gives a port back.
    pub fn release(&self, udp: bool, port: u16) {
        self.0.release(udp, port);
    }
}

impl Backend for Member {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        check_queues("a member of this daemon", queues, self.queues)?;
        let welcome = self.line.welcome();
        let (rx_checksum, tx_checksum) = welcome.checksums;
        let mac = welcome.device.mac();
        let caps = Caps {
            link: mac.map_or(Link::Ip, |_| Link::Ethernet),
            mtu: welcome.mtu.min(MAX_MTU),
            mac: mac.map(MacAddr),
            tx_checksum,
            rx_checksum,
            tso: false,
            gro: false,
            name: format!("daemon {}", self.line.path().display()),
        };
        let slots = self.depot.slots();
        let held = || match &self.ours {
            Some(ours) => Held::exchanging(&slots, ours.clone()),
            None => Held::new(&slots),
        };
        let queue = |number| -> Box<dyn Queue> {
            Box::new(MemberQueue::new(
                caps.clone(),
                self.line.berth(number),
                held(),
                self.depot.clone(),
                self.counters.clone(),
            ))
        };
        let opened = (0..queues).map(queue).collect();
        self.line.begin()?;
        Ok(opened)
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        let counters = self.counters.clone();
        Some(Box::new(move || DeviceLosses {
            no_buffer: counters.no_buffer.get(),
            bad_checksum: 0,
        }))
    }
}
