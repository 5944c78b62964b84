//! The exception path: a device that belongs to us alone, such as a card under DPDK, still has traffic of this machine's
//! kernel. [`ExceptionBackend`] wraps a device: what arrives and is for none of our addresses goes to the kernel through a
//! TAP interface with the device's link address, and what the kernel sends there leaves by the device. One TAP queue for
//! each queue of the device, no copy on our side, no address of the kernel's known here.
//!
//! What is told apart are addresses, not ports: an address is ours or the kernel's.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use janus_mem::{Frame, Pool};
use janus_wire::{Link, MacAddr, arp, dhcp, ethernet, icmpv6, ipv4, ipv6, proto};
use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::backend::tap;
use crate::counter::Counter;
use crate::debug::opaque;
use crate::queue::{Backend, Batch, Caps, LossesFn, Queue};

/// Turns between two looks at what the kernel sends, while the core is busy: a look costs a system call.
const LOOK_EVERY: u32 = 32;

/// Counts of frames that went past our stack, over all queues.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ExceptionCounters {
    /// Frames handed to the kernel.
    pub to_kernel: Counter,
    /// Frames of the kernel's that left by the device.
    pub from_kernel: Counter,
    /// Frames the kernel did not take: its queue was full, or its interface down.
    pub lost_to_kernel: Counter,
    /// Frames of the kernel's that did not fit the device.
    pub lost_from_kernel: Counter,
}

/// The addresses that stay here. Whoever has it may name others while the device is open.
#[derive(Clone, Debug, Default)]
pub struct Ours(Arc<Named>);

#[derive(Debug, Default)]
struct Named {
    addresses: Mutex<Vec<IpAddr>>,
    /// How often others were named.
    changes: AtomicU64,
}

impl Ours {
    /// From now on it is these.
    pub fn set(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        *self.addresses() = addresses.into_iter().collect();
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    fn addresses(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        let addresses = &self.0.addresses;
        addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device whose foreign traffic is the kernel's.
pub struct ExceptionBackend {
    inner: Box<dyn Backend>,
    interface: String,
    ours: Ours,
    asks: bool,
    counters: Arc<ExceptionCounters>,
}

opaque!(ExceptionBackend);

impl ExceptionBackend {
    /// Wraps a device of Ethernet frames. `ours` are the addresses that stay here; all others are for the kernel's
    /// interface of that name, which is made and brought up, without an address.
    #[must_use]
    pub fn new(
        inner: Box<dyn Backend>,
        interface: impl Into<String>,
        ours: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        let named = Ours::default();
        named.set(ours);
        Self {
            inner,
            interface: interface.into(),
            ours: named,
            asks: false,
            counters: Arc::default(),
        }
    }

    /// Addresses of ours are asked for by DHCP: what is said to such clients, and ARP for whomever, is for both.
    #[must_use]
    pub fn asking(mut self) -> Self {
        self.asks = true;
        self
    }

    /// Returns the handle by which the addresses that stay here can be changed.
    #[must_use]
    pub fn ours(&self) -> Ours {
        self.ours.clone()
    }

    /// Returns the counts of frames that go past; they stay readable after the device is open.
    #[must_use]
    pub fn counters(&self) -> Arc<ExceptionCounters> {
        self.counters.clone()
    }
}

impl Backend for ExceptionBackend {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        let Self {
            inner,
            interface,
            ours,
            asks,
            counters,
        } = *self;
        let inner = inner.open(queues)?;
        let caps = inner.first().map(|queue| queue.caps().clone());
        let Some((caps, mac)) = caps.and_then(|caps| caps.mac.map(|mac| (caps, mac))) else {
            return Err(io::Error::other(
                "the exception path needs a device with link addresses",
            ));
        };
        debug_assert_eq!(caps.link, Link::Ethernet);
        let taps = tap::open_for_kernel(&interface, queues, mac, caps.mtu)?;
        inner
            .into_iter()
            .zip(taps)
            .map(|(inner, tap)| -> io::Result<Box<dyn Queue>> {
                Ok(Box::new(ExceptionQueue {
                    either: either(&inner, &tap)?,
                    inner,
                    tap,
                    router: ExceptionRouter::new(ours.clone(), mac, asks),
                    received: Batch::new(),
                    sending: Batch::new(),
                    turns: 0,
                    counters: counters.clone(),
                }))
            })
            .collect()
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        self.inner.losses()
    }
}

/// Readable when the device's descriptor is, or the kernel has sent something.
fn either(inner: &dyn Queue, tap: &OwnedFd) -> io::Result<OwnedFd> {
    let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in [inner.wait_fd(), Some(tap.as_fd())].into_iter().flatten() {
        epoll::add(
            &both,
            fd,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
    }
    Ok(both)
}

struct ExceptionQueue {
    inner: Box<dyn Queue>,
    tap: OwnedFd,
    either: OwnedFd,
    router: ExceptionRouter,
    /// From the device, not yet judged.
    received: Batch,
    /// From the kernel, not yet taken by the device.
    sending: Batch,
    turns: u32,
    counters: Arc<ExceptionCounters>,
}

impl Queue for ExceptionQueue {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        if self.received.is_empty() {
            self.inner.rx_burst(pool, &mut self.received);
            self.router.refresh();
        }
        for frame in self.received.pull().take(out.room()) {
            let whose = self.router.whose(frame.data());
            if whose != Whose::Ours {
                pass(&self.tap, frame.data(), &self.counters);
            }
            if whose == Whose::Kernels {
                pool.free(frame.buf);
            } else {
                let refused = out.push(frame);
                debug_assert!(refused.is_ok(), "no more are taken than there is room");
            }
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        self.inner.tx_burst(pool, frames, done);
        self.turns += 1;
        if self.turns >= LOOK_EVERY && self.sending.is_empty() {
            self.turns = 0;
            self.look(pool);
        }
        if !self.sending.is_empty() {
            let before = self.sending.len();
            self.inner.tx_burst(pool, &mut self.sending, done);
            let taken = before - self.sending.len();
            self.counters.from_kernel.add_shared(taken as u64);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.either.as_fd())
    }

    fn arm(&mut self) -> bool {
        // Whatever wakes the core: the kernel's frames are looked for at once.
        self.turns = LOOK_EVERY;
        self.inner.arm() && self.received.is_empty() && self.sending.is_empty()
    }
}

impl ExceptionQueue {
    /// Reads what the kernel has sent.
    fn look(&mut self, pool: &mut Pool) {
        let longest = self.inner.caps().frame_max();
        while !self.sending.is_full() {
            let Some(mut buf) = pool.alloc() else { return };
            let off = usize::from(buf.off());
            match rustix::io::read(&self.tap, &mut buf.bytes_mut()[off..]) {
                Ok(len) if len <= longest => {
                    let _ = self.sending.push(Frame::new(buf, len as u16));
                }
                Ok(_) => {
                    self.counters.lost_from_kernel.add_shared(1);
                    pool.free(buf);
                }
                Err(_) => return pool.free(buf),
            }
        }
    }
}

/// Hands one frame to the kernel.
fn pass(tap: &OwnedFd, frame: &[u8], counters: &ExceptionCounters) {
    match rustix::io::retry_on_intr(|| -> Result<usize, Errno> { rustix::io::write(tap, frame) }) {
        Ok(_) => counters.to_kernel.add_shared(1),
        Err(_) => counters.lost_to_kernel.add_shared(1),
    }
}

/// Receiver of a frame: our stack, the kernel, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Kernels,
    Both,
}

/// Decides, for one queue.
struct ExceptionRouter {
    named: Ours,
    /// Addresses named when last looked at, with the link-local address that goes with them.
    ours: Vec<IpAddr>,
    changes: u64,
    mac: MacAddr,
    asks: bool,
}

impl ExceptionRouter {
    fn new(named: Ours, mac: MacAddr, asks: bool) -> ExceptionRouter {
        let mut router = ExceptionRouter {
            named,
            ours: Vec::new(),
            changes: 0,
            mac,
            asks,
        };
        router.refresh();
        router
    }

    /// Looks whether others were named.
    #[inline]
    fn refresh(&mut self) {
        let changes = self.named.0.changes.load(Ordering::Acquire);
        if changes != self.changes {
            self.changes = changes;
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        self.ours.clone_from(&self.named.addresses());
        if self.ours.iter().any(IpAddr::is_ipv6) {
            self.ours.push(IpAddr::V6(icmpv6::link_local(self.mac)));
        }
    }

    /// Decides by the address that a frame is for, or that it asks for. A frame that names no address is for both, or for the kernel where
    /// our stack would make nothing of it.
    fn whose(&self, frame: &[u8]) -> Whose {
        let of = |addr: IpAddr| match self.ours.contains(&addr) {
            true => Whose::Ours,
            false => Whose::Kernels,
        };
        let Ok((header, packet)) = ethernet::Header::parse(frame) else {
            return Whose::Kernels;
        };
        match header.ethertype {
            ethernet::ethertype::ARP => match arp::Packet::parse(packet) {
                // An announcement is news for everybody.
                Ok(arp) if arp.sender_ip == arp.target_ip => Whose::Both,
                Ok(arp) => match of(arp.target_ip.into()) {
                    // It may be about an address that we are about to have.
                    Whose::Kernels if self.asks => Whose::Both,
                    whose => whose,
                },
                Err(_) => Whose::Kernels,
            },
            ethernet::ethertype::IPV4 if self.asks && dhcp::is_for_client(frame) => Whose::Both,
            ethernet::ethertype::IPV4 => match ipv4::parse(packet) {
                Ok(ip) => of(ip.dst.into()),
                Err(_) => Whose::Kernels,
            },
            ethernet::ethertype::IPV6 => match ipv6::parse(packet) {
                Ok(ip)
                    if ip.dst.is_multicast() && ip.proto == proto::ICMPV6 && !ip.is_fragment() =>
                {
                    match icmpv6::parse(ip.payload()) {
                        Ok(icmpv6::Message::NeighbourSolicitation { target, .. }) => {
                            of(target.into())
                        }
                        _ => Whose::Both,
                    }
                }
                Ok(ip) => of(ip.dst.into()),
                Err(_) => Whose::Kernels,
            },
            _ => Whose::Kernels,
        }
    }
}

#[cfg(test)]
mod tests;
