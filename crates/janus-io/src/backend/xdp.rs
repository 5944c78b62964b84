//! The AF_XDP backend: packets of an interface of this machine that the kernel hands to this process before its own stack
//! sees them, and packets of ours that it sends there. A small program on the interface takes only what is for our
//! addresses (and ports); all the rest is the kernel's as before. Every error says what to do about it. No library: the
//! program is written by `program.rs`, loaded by `bpf.rs`.

mod asm;
mod attached;
mod bpf;
mod device;
mod ports;
mod program;
mod questions;
mod queue;
mod refusal;
mod ring;
mod socket;

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use janus_mem::{Depot, SLOT_SIZE, Slots};
use janus_wire::{Link, MacAddr, ethernet, icmpv6};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;

use crate::backend::held::Held;
use crate::backend::tap::{Interface, interface};
use crate::counter::Counter;
use crate::debug::opaque;
use crate::queue::{Backend, Caps, DeviceLosses, LossesFn, Queue, check_queues};
use attached::Attached;
use bpf::Attach;
pub use ports::Ports;
use program::{Address, Rules};
use queue::XdpQueue;
use refusal::Refusal;
pub(crate) use refusal::{LINUX as KERNEL, RIGHTS};
use socket::{Place, Socket, Step, Umem};

/// The most queues one interface is polled by.
pub const MAX_QUEUES: usize = 256;
/// The most addresses that packets are taken for.
pub const ADDRESSES_MAX: usize = 32;
/// The most ranges of ports.
pub const PORTS_MAX: usize = 32;
/// The kernel begins to write a packet so far into a buffer; it is more than the stack's own headroom.
const KERNEL_HEADROOM: usize = 256;
/// The longest MTU: a frame with a VLAN tag fits behind the kernel's headroom.
pub const MAX_MTU: u16 = (SLOT_SIZE - KERNEL_HEADROOM - ethernet::LEN - 4) as u16;
/// Entries of each ring, if there are buffers enough for that.
const DEPTH: u32 = 2048;
/// The least that is of use.
const DEPTH_MIN: u32 = 64;
/// All queues together may keep this part of the buffers for receiving.
const SHARE: u32 = 4;
/// How long and how often a queue that is in use is waited for.
const BUSY_WAIT: Duration = Duration::from_millis(10);
const BUSY_WAITS: u32 = 300;

/// Way in which the program is put onto the interface.
/// Exhaustive: a configuration has a word for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// By the driver if it can, else generic.
    #[default]
    Auto,
    /// By the driver, or not at all.
    Native,
    /// By the kernel, whatever the driver: slower.
    Generic,
}

/// Which interface to take packets from, and which packets.
#[derive(Clone)]
pub struct Xdp {
    name: String,
    depot: Arc<Depot>,
    addresses: Vec<IpAddr>,
    ports: Ports,
    mode: Mode,
    counters: Arc<XdpCounters>,
}

opaque!(Xdp);

/// Counts of what the queues of an interface could not do.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct XdpCounters {
    /// Times the kernel should have had more buffers to receive into and there were none.
    pub no_buffer: Counter,
    /// Buffers of a pool over other memory than the interface was opened with; nothing is received into them.
    pub foreign_pool: Counter,
    /// Frames in such memory that were copied in order to be sent.
    pub copied: Counter,
    /// Calls to send that failed.
    pub send_errors: Counter,
    /// Buffers the kernel gave back that it did not have.
    pub strange: Counter,
    /// Packets the kernel dropped because we were too slow to take them. Known when the queues are closed.
    pub lost_full: Counter,
    /// Packets the kernel dropped because it had no buffer of ours. Known when the queues are closed.
    pub lost_no_buffer: Counter,
    /// Packets the kernel dropped for other reasons, for instance their length. Known when the queues are closed.
    pub lost_other: Counter,
}

/// Whether this kernel has AF_XDP and lets us use it: makes a socket and a map, and drops them.
pub(crate) fn available() -> io::Result<()> {
    socket::raw_socket(libc::AF_XDP, libc::SOCK_RAW, 0)?;
    bpf::socket_map(1)?;
    Ok(())
}

impl XdpCounters {
    fn add(&self, found: &libc::xdp_statistics) {
        self.lost_full.add_shared(found.rx_ring_full);
        self.lost_no_buffer
            .add_shared(found.rx_fill_ring_empty_descs);
        self.lost_other.add_shared(found.rx_dropped);
    }
}

impl Xdp {
    /// The interface of this name. All packets are received into buffers of `depot`, and sent from there; all of its
    /// memory is made ready, and locked, when the interface is opened.
    #[must_use]
    pub fn new(name: impl Into<String>, depot: Arc<Depot>) -> Self {
        Self {
            name: name.into(),
            depot,
            addresses: Vec::new(),
            ports: Ports::default(),
            mode: Mode::Auto,
            counters: Arc::default(),
        }
    }

    /// Takes packets for this address.
    #[must_use]
    pub fn with_address(mut self, address: IpAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Takes TCP packets for these ports, and what belongs to them. Without any ports: all packets for the addresses.
    #[must_use]
    pub fn with_ports(mut self, ports: RangeInclusive<u16>) -> Self {
        self.ports.tcp.push(ports);
        self
    }

    /// Takes UDP packets for these ports, in the same way.
    #[must_use]
    pub fn with_udp_ports(mut self, ports: RangeInclusive<u16>) -> Self {
        self.ports.udp.push(ports);
        self
    }

    /// Way in which the program is put onto the interface.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Returns the counters of the queues; they stay readable after the interface is open.
    #[must_use]
    pub fn counters(&self) -> Arc<XdpCounters> {
        self.counters.clone()
    }

    /// Returns the rules of what the program is to take. An error: they make no sense.
    fn rules(&self, mac: MacAddr) -> io::Result<Rules> {
        let refuse = |refusal: Refusal<'_>| Err(refusal.on(&self.name));
        for (what, count, most) in [
            ("addresses", self.addresses.len(), ADDRESSES_MAX),
            ("ranges of ports", self.ports.len(), PORTS_MAX),
        ] {
            if count > most {
                return refuse(Refusal::TooMany { what, most });
            }
        }
        if self.addresses.is_empty() {
            return refuse(Refusal::NoAddress);
        }
        let kernels = device::kernel_addresses()?;
        let mut addresses = Vec::new();
        for &addr in &self.addresses {
            let shared = kernels.contains(&addr);
            if shared && self.ports.is_empty() {
                return refuse(Refusal::KernelsOwn(addr));
            }
            addresses.push(Address { addr, shared });
        }
        // The stack has this one too, if it speaks IPv6, and asks for neighbours from there.
        let near = IpAddr::V6(icmpv6::link_local(mac));
        if self.addresses.iter().any(IpAddr::is_ipv6) && !self.addresses.contains(&near) {
            let shared = kernels.contains(&near);
            addresses.push(Address { addr: near, shared });
        }
        Ok(Rules {
            addresses,
            ports: self.ports.clone(),
        })
    }

    /// Rings as deep as the buffers allow.
    fn depth(&self, queues: usize) -> io::Result<u32> {
        let queues = queues as u32;
        let most = self.depot.capacity() as u32 / (SHARE * queues);
        if most < DEPTH_MIN {
            let least = DEPTH_MIN * SHARE * queues;
            return Err(Refusal::Buffers { least }.on(&self.name));
        }
        Ok(1 << most.min(DEPTH).ilog2())
    }
}

/// Settings that all queues of an interface that is being opened share.
struct Opening<'a> {
    name: &'a str,
    interface: u32,
    umem: Umem,
    depth: u32,
    copy: bool,
}

impl Opening<'_> {
    /// The socket of one queue; the first one's memory is shared by the others.
    fn socket(&self, queue: u32, first: Option<BorrowedFd<'_>>) -> io::Result<Socket> {
        let place = Place {
            interface: self.interface,
            queue,
        };
        let mut waits = 0;
        loop {
            // SAFETY: the memory is a depot's, which the queue holds, and stays mapped until all its buffers are home; those
            // that the kernel has are no handles meanwhile (`held.rs`).
            let opened = unsafe { Socket::open(self.umem, first, place, self.depth, self.copy) };
            match opened {
                // Closed sockets leave their queue a moment later: so does the one of a process that was just ended.
                Err((Step::Bind, Errno::BUSY)) if waits < BUSY_WAITS => {
                    waits += 1;
                    std::thread::sleep(BUSY_WAIT);
                }
                other => {
                    return other.map_err(|(step, errno)| {
                        Refusal::Socket(step, errno, queue).on(self.name)
                    });
                }
            }
        }
    }
}

impl Backend for Xdp {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let name = self.name.as_str();
        check_queues(&format!("the interface {name}"), queues, MAX_QUEUES)?;
        let found = interface(name)?;
        let interface = name_to_index(device::any_socket()?, name)?;
        if found.mtu > u32::from(MAX_MTU) {
            let (mtu, most) = (found.mtu, MAX_MTU);
            return Err(Refusal::Mtu { mtu, most }.on(name));
        }
        if !found.up {
            return Err(Refusal::Down.on(name));
        }
        if found.mac == MacAddr::ZERO {
            return Err(Refusal::NotEthernet.on(name));
        }
        if let Some(has) = device::receive_queues(name)?
            && has as usize != queues
        {
            let asked = queues;
            return Err(Refusal::Queues { has, asked }.on(name));
        }
        let rules = self.rules(found.mac)?;
        let depth = self.depth(queues)?;
        let slots = self.depot.ready_all().map_err(io::Error::other)?;
        let groups = self.groups(interface)?;
        let attached = Attached::new(&rules, interface, queues as u32, self.mode, groups, name)?;
        let opening = Opening {
            name,
            interface,
            umem: umem(&slots),
            depth,
            // Without the driver's help for the program there is none for the memory.
            copy: attached.attach() == Attach::Generic,
        };
        let mut sockets = Vec::with_capacity(queues);
        for queue in 0..queues as u32 {
            let first = sockets.first().map(Socket::fd);
            sockets.push(opening.socket(queue, first)?);
        }
        let shares = rules.addresses.iter().any(|own| own.shared);
        // Generic is before the kernel has looked at any checksum, whatever the driver.
        let completes = attached.attach() == Attach::Generic || device::leaves_checksums(name)?;
        let attached = Arc::new(attached);
        let queue = |socket: Socket| XdpQueue {
            caps: caps(name, &found, &attached, &socket),
            socket: Some(socket),
            held: Held::new(&slots),
            filled: depth,
            completes,
            questions: shares.then(|| attached.questions()),
            counters: self.counters.clone(),
            kept_awake: 0,
            attached: attached.clone(),
            posted: self.depot.posted(depth),
        };
        let mut queues: Vec<XdpQueue> = sockets.into_iter().map(queue).collect();
        let mut pool = self.depot.pool();
        for (number, queue) in (0..).zip(&mut queues) {
            // Before the first packet can come.
            queue.refill(&mut pool);
            let socket = queue.socket.as_ref().map(Socket::fd);
            socket
                .map_or(Ok(()), |fd| attached.serve(number, fd))
                .map_err(|errno| Refusal::Socket(Step::Bind, errno, number).on(name))?;
        }
        let boxed = |queue| -> Box<dyn Queue> { Box::new(queue) };
        Ok(queues.into_iter().map(boxed).collect())
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        let counters = self.counters.clone();
        Some(Box::new(move || DeviceLosses {
            no_buffer: counters.no_buffer.get(),
            // The stack verifies every checksum of this device itself.
            bad_checksum: 0,
        }))
    }
}

/// Returns the capabilities of a queue: no hardware offloads.
fn caps(name: &str, found: &Interface, attached: &Attached, socket: &Socket) -> Caps {
    let mode = match attached.attach() {
        Attach::Native => "native",
        Attach::Generic => "generic",
    };
    let way = if socket.is_zero_copy() {
        "zero copy"
    } else {
        "copy"
    };
    Caps {
        link: Link::Ethernet,
        mtu: found.mtu as u16,
        mac: Some(found.mac),
        tx_checksum: false,
        rx_checksum: false,
        tso: false,
        gro: false,
        name: format!("xdp {name} ({mode}, {way})"),
    }
}

impl Xdp {
    /// Has the interface take in what is sent to the groups of our IPv6 addresses.
    fn groups(&self, interface: u32) -> io::Result<Option<OwnedFd>> {
        let own = self.addresses.iter().filter_map(|addr| match addr {
            IpAddr::V6(addr) => Some(*addr),
            IpAddr::V4(_) => None,
        });
        let own: Vec<Ipv6Addr> = own.collect();
        if own.is_empty() {
            return Ok(None);
        }
        device::listen_to_groups(interface, &own)
            .map(Some)
            .map_err(|errno| Refusal::Groups(errno).on(&self.name))
    }
}

/// A depot's memory as the kernel is told of it.
fn umem(slots: &Slots) -> Umem {
    Umem {
        base: slots.base.as_ptr(),
        // Whole chunks only: the last page may have more.
        len: slots.count as usize * SLOT_SIZE,
        chunk: SLOT_SIZE as u32,
    }
}
