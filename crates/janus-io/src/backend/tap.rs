//! The TAP backend: an Ethernet interface of this machine's kernel, whose far end of the cable is this process. One
//! `read` or `write` a frame, non-blocking, one descriptor a queue; with the kernel's offloads (`offload.rs`), one for many
//! segments. Every error says what to do about it. Knows no addresses of ours: what the stack answers to is the runtime's
//! business.

mod claim;
mod inherited;
mod interface;
mod offload;
mod rx_scatter;
mod vnet;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use janus_mem::{Frame, HEADROOM, Pool, SLOT_SIZE};
use janus_wire::{Link, MacAddr};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::counter::Counter;
use crate::queue::{Backend, Batch, Caps, DeviceLosses, LossesFn, Queue, check_queues, retire};
use claim::Claim;
pub use inherited::interface_of;
pub use interface::{Interface, interface};
use offload::OffloadQueue;

/// The most queues the kernel gives one interface.
pub const MAX_QUEUES: usize = 256;
/// The device the kernel offers interfaces at.
pub const DEVICE: &str = "/dev/net/tun";
/// The longest MTU: a frame with a VLAN tag fits behind the headroom of one buffer.
pub const MAX_MTU: u16 = SLOT_SIZE as u16 - HEADROOM - janus_wire::ethernet::LEN as u16 - 4;

/// Which interface to open, and how to set up the kernel's side of it.
#[derive(Clone, Debug)]
pub struct Tap {
    /// Name of the interface; made if it does not exist, and gone again with this process if so. A queue of it that a service manager has
    /// kept for this process (sd_listen_fds(3)) is taken first.
    pub name: String,
    /// The kernel's own address on it and the length of the network's prefix. `None` leaves addresses, MTU and state
    /// as they are, for an interface that somebody else has set up.
    pub kernel_address: Option<(Ipv4Addr, u8)>,
    /// The MTU to set together with the address.
    pub mtu: u16,
    /// Leave checksums to the kernel, and let segments of a flow cross joined, where the kernel offers it.
    pub offloads: bool,
    /// Take the interface although another program has it, and let others take it.
    pub shared: bool,
    counters: Arc<TapCounters>,
}

/// Counts of what the queues of an interface could not deliver, and of frames that crossed joined.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct TapCounters {
    /// Frames the kernel refused, for instance while the interface is down.
    pub lost_refused: Counter,
    /// Reads that failed with something else than "nothing there".
    pub read_errors: Counter,
    /// Times a frame was there and no buffer for it; it waits in the kernel's queue, which drops when full.
    pub no_buffer: Counter,
    /// Frames whose checksum does not hold. Without offloads the stack counts them.
    pub lost_checksum: Counter,
    /// Joined frames that are none of TCP, or cannot be cut into packets of this link.
    pub lost_uncut: Counter,
    /// Joined frames that were received.
    pub joined_in: Counter,
    /// Segments of those that did not fall into place and were copied.
    pub copied_in: Counter,
    /// Joined frames that were sent.
    pub joined_out: Counter,
}

impl Tap {
    /// An interface that is set up already, or is to be made and set up by hand.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            kernel_address: None,
            mtu: 1500,
            offloads: true,
            shared: false,
            counters: Arc::default(),
        }
    }

    /// Gives the kernel's side this address and brings it up.
    #[must_use]
    pub fn with_kernel_address(mut self, address: Ipv4Addr, prefix: u8) -> Self {
        self.kernel_address = Some((address, prefix));
        self
    }

    /// Every segment crosses by itself, with its checksum.
    #[must_use]
    pub fn without_offloads(mut self) -> Self {
        self.offloads = false;
        self
    }

    /// Returns the counters of the queues; they stay readable after the interface is open.
    #[must_use]
    pub fn counters(&self) -> Arc<TapCounters> {
        self.counters.clone()
    }
}

impl Backend for Tap {
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>> {
        check_queues(
            &format!("the TAP interface {}", self.name),
            queues,
            MAX_QUEUES,
        )?;
        let mut fds = Vec::with_capacity(queues);
        let mut offloads = self.offloads;
        // Before anything is attached: whoever has it loses nothing.
        let claim = Arc::new(if self.shared {
            Claim::none()
        } else {
            Claim::alone(&self.name)?
        });
        let left = inherited::take(&self.name);
        // By ourselves, where queues are left.
        let attached = left.is_empty() && interface::has_carrier(&self.name);
        for (queue, fd) in left.into_iter().take(queues) {
            offloads &= interface::knows_offloads(&fd);
            if queue.headers != offloads {
                return Err(inherited::is_of_another_kind(&self.name));
            }
            take_large(&fd, &self.name, queues, offloads)?;
            fds.push(fd);
        }
        for _ in fds.len()..queues {
            let (fd, offered) = attach(&self.name, queues, offloads)?;
            offloads = offered;
            fds.push(fd);
        }
        // Programs of others make no claims; that it is a TAP interface is known by now.
        if attached && !self.shared {
            return Err(claim::taken(&self.name));
        }
        // Without the right to change the interface it stays as it is.
        let _ = interface::lengthen_queues(&self.name);
        if let Some((address, prefix)) = self.kernel_address {
            interface::set_up(&self.name, address, prefix, self.mtu)
                .map_err(|errno| explain(errno, Step::SetUp, &self.name, queues))?;
        }
        let found = interface(&self.name)?;
        if found.mtu > u32::from(MAX_MTU) {
            let text = format!(
                "the TAP interface {} has an MTU of {}, at most {MAX_MTU} fits a buffer: \
                 `ip link set dev {} mtu 1500`",
                self.name, found.mtu, self.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let caps = Caps {
            link: Link::Ethernet,
            mtu: found.mtu as u16,
            mac: Some(found.far_mac()),
            tx_checksum: offloads,
            rx_checksum: offloads,
            tso: offloads,
            gro: offloads,
            name: format!("tap {}", self.name),
        };
        let queue = |fd| -> Box<dyn Queue> {
            if offloads {
                let counters = self.counters.clone();
                let claim = claim.clone();
                return Box::new(OffloadQueue::new(caps.clone(), fd, claim, counters));
            }
            Box::new(TapQueue {
                caps: caps.clone(),
                fd,
                _claim: claim.clone(),
                counters: self.counters.clone(),
            })
        };
        Ok(fds.into_iter().map(queue).collect())
    }

    fn losses(&self) -> Option<Box<LossesFn>> {
        let counters = self.counters.clone();
        Some(Box::new(move || DeviceLosses {
            no_buffer: counters.no_buffer.get(),
            bad_checksum: counters.lost_checksum.get(),
        }))
    }
}

/// Opens an interface that stands for a device of ours before the kernel: with that device's link address and MTU, up,
/// without an IP address. One descriptor for each queue.
pub(crate) fn open_for_kernel(
    name: &str,
    queues: usize,
    mac: MacAddr,
    mtu: u16,
) -> io::Result<Vec<OwnedFd>> {
    check_queues(&format!("the TAP interface {name}"), queues, MAX_QUEUES)?;
    let fds = (0..queues)
        .map(|_| Ok(attach(name, queues, false)?.0))
        .collect::<io::Result<_>>()?;
    interface::stand_for(name, mac, mtu)
        .map_err(|errno| explain(errno, Step::SetUp, name, queues))?;
    Ok(fds)
}

/// Opens one more queue of the interface, with offloads if they are wanted and offered.
fn attach(name: &str, queues: usize, offloads: bool) -> io::Result<(OwnedFd, bool)> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(DEVICE, flags, Mode::empty())
        .map_err(|errno| explain(errno, Step::OpenDevice, name, queues))?;
    let offloads = offloads && interface::knows_offloads(&fd);
    match interface::attach(&fd, name, true, offloads) {
        // An interface made by hand without `multi_queue` serves one queue all the same.
        Err(Errno::INVAL) if queues == 1 => interface::attach(&fd, name, false, offloads),
        other => other,
    }
    .map_err(|errno| explain(errno, Step::Attach, name, queues))?;
    take_large(&fd, name, queues, offloads)?;
    Ok((fd, offloads))
}

fn take_large(fd: &OwnedFd, name: &str, queues: usize, offloads: bool) -> io::Result<()> {
    match interface::take_large(fd, offloads) {
        Err(errno) if offloads => Err(explain(errno, Step::Attach, name, queues)),
        _ => Ok(()),
    }
}

/// Where opening an interface can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    OpenDevice,
    Attach,
    SetUp,
}

/// The error with the step that would make it work.
fn explain(errno: Errno, step: Step, name: &str, queues: usize) -> io::Error {
    let by_hand = format!("`sudo ip tuntap add dev {name} mode tap user $USER multi_queue`");
    let admin =
        "run as root, or give the program the right: `sudo setcap cap_net_admin+ep PROGRAM`";
    let what_to_do = match (step, errno) {
        (Step::OpenDevice, Errno::NOENT | Errno::NODEV | Errno::NXIO) => format!(
            "{DEVICE} is missing: `sudo modprobe tun`; in a container pass the device in (`--device {DEVICE}`)"
        ),
        (Step::OpenDevice, Errno::ACCESS | Errno::PERM) => {
            format!("{DEVICE} may not be opened: `sudo chmod 666 {DEVICE}`, or run as root")
        }
        (Step::Attach, Errno::PERM | Errno::ACCESS) => {
            format!(
                "making the TAP interface {name} needs CAP_NET_ADMIN: {admin}, or make it once: {by_hand}"
            )
        }
        (Step::Attach, Errno::BUSY) => format!(
            "the TAP interface {name} is in use by another process, or was made for one queue: choose another name; \
             one for many queues is made with {by_hand}"
        ),
        (Step::Attach, Errno::INVAL) => format!(
            "{name} is no TAP interface, or none that takes {queues} queues: choose another name (`tap_name`); one that does is \
             made with {by_hand}"
        ),
        (Step::Attach, Errno::TOOBIG) => {
            format!("the TAP interface {name} takes no {queues} queues: use fewer I/O cores")
        }
        (Step::SetUp, Errno::PERM | Errno::ACCESS) => format!(
            "setting the kernel's address on {name} needs CAP_NET_ADMIN: {admin}, or say `tap_kernel_address = \"none\"` \
             and set it by hand: `sudo ip address add ADDRESS/PREFIX dev {name} && sudo ip link set {name} up`"
        ),
        (Step::OpenDevice, _) => format!("{DEVICE} cannot be opened"),
        (Step::Attach, _) => format!("the TAP interface {name} cannot be attached to"),
        (Step::SetUp, _) => format!("the TAP interface {name} cannot be set up"),
    };
    let cause = io::Error::from(errno);
    io::Error::new(cause.kind(), format!("{what_to_do} ({cause})"))
}

struct TapQueue {
    caps: Caps,
    fd: OwnedFd,
    _claim: Arc<Claim>,
    counters: Arc<TapCounters>,
}

impl Queue for TapQueue {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        while !out.is_full() {
            let Some(mut buf) = pool.alloc_reserved() else {
                self.counters.no_buffer.add_shared(1);
                return;
            };
            let off = usize::from(buf.off());
            match rustix::io::read(&self.fd, &mut buf.bytes_mut()[off..]) {
                Ok(len) => {
                    let _ = out.push(Frame::new(buf, len as u16));
                }
                Err(errno) => {
                    if errno != Errno::AGAIN {
                        self.counters.read_errors.add_shared(1);
                    }
                    return pool.free(buf);
                }
            }
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        let most = done.room().min(frames.len());
        let mut taken = 0;
        for frame in &frames[..most] {
            match rustix::io::write(&self.fd, frame.data()) {
                // The kernel's queue is full: the rest stays.
                Err(Errno::AGAIN) => break,
                Err(_) => self.counters.lost_refused.add_shared(1),
                Ok(_) => {}
            }
            taken += 1;
        }
        for frame in frames.pull().take(taken) {
            retire(frame, pool, done);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl Interface {
    /// An address for our end of the cable: unlike the kernel's, the same at every start for the same interface
    /// address, unicast and locally administered.
    #[must_use]
    pub fn far_mac(&self) -> MacAddr {
        let MacAddr(mut mac) = self.mac;
        mac[0] = (mac[0] | 2) & !1;
        mac[5] ^= 1;
        MacAddr(mac)
    }
}

#[cfg(test)]
mod tests;
