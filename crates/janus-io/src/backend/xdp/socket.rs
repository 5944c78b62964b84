//! One AF_XDP socket: made, given its memory and its four rings, bound to a queue of an interface, and kicked when the
//! kernel wants to be told. What travels in the rings is `queue.rs`.

use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

use super::bpf::last_error;
use super::ring::{Inward, Layout, Outward};

/// Packet descriptor in a ring.
pub(super) type Desc = libc::xdp_desc;

/// Memory that the kernel reads packets from and writes them to, in chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Umem {
    pub(super) base: *const u8,
    pub(super) len: usize,
    pub(super) chunk: u32,
}

/// Which queue of which interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) interface: u32,
    pub(super) queue: u32,
}

/// Where opening a socket can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Socket,
    Umem,
    Rings,
    Bind,
}

/// A bound socket with its rings.
pub(super) struct Socket {
    // Before the descriptor: unmapped first.
    pub(super) fill: Outward<u64>,
    pub(super) completed: Inward<u64>,
    pub(super) rx: Inward<Desc>,
    pub(super) tx: Outward<Desc>,
    /// Readable when the socket is. Whoever waits may keep copies of this one: of the socket itself they would keep it open.
    waiting: OwnedFd,
    fd: OwnedFd,
}

impl Socket {
    /// Makes and binds a socket. The first of an interface registers `umem`; the others share it by its descriptor.
    /// `copy`: not even asked whether the driver could do without copying.
    ///
    /// # Safety
    /// The memory stays mapped for as long as the socket is open, and what lies in it belongs to the kernel whenever a
    /// ring says so.
    pub(super) unsafe fn open(
        umem: Umem,
        shared: Option<BorrowedFd<'_>>,
        place: Place,
        depth: u32,
        copy: bool,
    ) -> Result<Self, (Step, Errno)> {
        let fd = raw_socket(libc::AF_XDP, libc::SOCK_RAW, 0).map_err(|e| (Step::Socket, e))?;
        if shared.is_none() {
            let reg = libc::xdp_umem_reg {
                addr: umem.base.expose_provenance() as u64,
                len: umem.len as u64,
                chunk_size: umem.chunk,
                headroom: 0,
                flags: 0,
                tx_metadata_len: 0,
            };
            set(&fd, libc::XDP_UMEM_REG, &reg).map_err(|e| (Step::Umem, e))?;
        }
        // SAFETY: the socket is an AF_XDP one, and has no rings yet.
        let (fill, completed, rx, tx) =
            unsafe { rings(&fd, depth) }.map_err(|e| (Step::Rings, e))?;
        let mut flags = libc::XDP_USE_NEED_WAKEUP | if copy { libc::XDP_COPY } else { 0 };
        if shared.is_some() {
            // Copying and waking are as the first socket has them.
            flags = libc::XDP_SHARED_UMEM;
        }
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: place.interface,
            sxdp_queue_id: place.queue,
            sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
        };
        bind(&fd, &address).map_err(|e| (Step::Bind, e))?;
        let waiting = watch(&fd).map_err(|e| (Step::Rings, e))?;
        Ok(Self {
            fill,
            completed,
            rx,
            tx,
            waiting,
            fd,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the descriptor to sleep on.
    pub(super) fn wait_fd(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }

    /// Whether the driver reads and writes our memory itself.
    pub(super) fn is_zero_copy(&self) -> bool {
        let mut options = libc::xdp_options { flags: 0 };
        get(&self.fd, libc::XDP_OPTIONS, &mut options).is_ok()
            && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
    }

    /// Reads the kernel's counts of what it could not do.
    pub(super) fn statistics(&self) -> Result<libc::xdp_statistics, Errno> {
        let mut found = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        get(&self.fd, libc::XDP_STATISTICS, &mut found)?;
        Ok(found)
    }

    /// Tells the kernel that there is something to send.
    #[inline]
    pub(super) fn kick_tx(&self) -> Result<(), Errno> {
        rustix::net::send(&self.fd, &[], rustix::net::SendFlags::DONTWAIT).map(drop)
    }

    /// Tells the kernel that there are buffers to receive into.
    #[inline]
    pub(super) fn kick_rx(&self) {
        // The rings tell the same as its result would (nothing there, the interface is down).
        let nothing: &mut [u8] = &mut [];
        let _ = rustix::net::recv(&self.fd, nothing, rustix::net::RecvFlags::DONTWAIT);
    }
}

/// A descriptor that is readable when `fd` is, and does not hold it open.
fn watch(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let waiting = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &waiting,
        fd,
        epoll::EventData::new_u64(0),
        epoll::EventFlags::IN,
    )?;
    Ok(waiting)
}

type Rings = (Outward<u64>, Inward<u64>, Inward<Desc>, Outward<Desc>);

/// # Safety
/// `fd` is an AF_XDP socket without rings.
unsafe fn rings(fd: &OwnedFd, depth: u32) -> Result<Rings, Errno> {
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
        libc::XDP_TX_RING,
    ] {
        set(fd, ring, &depth)?;
    }
    const NOWHERE: libc::xdp_ring_offset = libc::xdp_ring_offset {
        producer: 0,
        consumer: 0,
        desc: 0,
        flags: 0,
    };
    let mut found = libc::xdp_mmap_offsets {
        rx: NOWHERE,
        tx: NOWHERE,
        fr: NOWHERE,
        cr: NOWHERE,
    };
    get(fd, libc::XDP_MMAP_OFFSETS, &mut found)?;
    let layout = |offset: libc::xdp_ring_offset| Layout {
        producer: offset.producer,
        consumer: offset.consumer,
        flags: offset.flags,
        entries: offset.desc,
        depth,
    };
    let (at, fd) = (found, fd.as_fd());
    // SAFETY: the rings were made just now with this depth, at these places; those of memory hold addresses, the other two
    // descriptors.
    unsafe {
        Ok((
            Outward::new(fd, libc::XDP_UMEM_PGOFF_FILL_RING, layout(at.fr))?,
            Inward::new(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, layout(at.cr))?,
            Inward::new(fd, libc::XDP_PGOFF_RX_RING as u64, layout(at.rx))?,
            Outward::new(fd, libc::XDP_PGOFF_TX_RING as u64, layout(at.tx))?,
        ))
    }
}

/// A socket of a family that `rustix` has no name for.
pub(super) fn raw_socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just made it, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bind(fd: &OwnedFd, address: &libc::sockaddr_xdp) -> Result<(), Errno> {
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address is as long as said.
    let done = unsafe { libc::bind(fd.as_raw_fd(), (&raw const *address).cast(), len) };
    check(done)
}

/// Sets an option of an AF_XDP socket.
fn set<T>(fd: &OwnedFd, name: i32, value: &T) -> Result<(), Errno> {
    set_at(fd, libc::SOL_XDP, name, value)
}

/// Sets an option of a socket, as long as its type.
pub(super) fn set_at<T>(fd: &OwnedFd, level: i32, name: i32, value: &T) -> Result<(), Errno> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = (&raw const *value).cast();
    // SAFETY: the value is as long as said; the kernel only reads it. (Memory that an address in it names is the concern of
    // `Socket::open`.)
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, len) })
}

fn get<T>(fd: &OwnedFd, name: i32, value: &mut T) -> Result<(), Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = (&raw mut *value).cast();
    // SAFETY: the value is as long as said, made of integers only, and ours to write.
    let done =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, value, &raw mut len) };
    check(done)?;
    // A kernel from before 5.4 knows shorter ones, without flags; it has no links for programs either.
    if len as usize == size_of::<T>() {
        Ok(())
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

fn check(result: i32) -> Result<(), Errno> {
    if result < 0 {
        Err(last_error())
    } else {
        Ok(())
    }
}
