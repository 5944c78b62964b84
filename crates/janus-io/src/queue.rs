//! Interface of packet devices: a [`Backend`] is opened into [`Queue`]s, one for each core that polls it. Everything crosses in bursts, so
//! a dynamic call costs nothing per frame. Holds no device.

use std::io;

use janus_mem::{Frame, Pool};
use janus_wire::{Link, MacAddr};
use rustix::fd::BorrowedFd;

use crate::batch::Burst;

/// A burst of frames.
pub type Batch = Burst<Frame>;

/// Capabilities of a device, and the form of its frames.
/// Exhaustive: each device says all of it in a literal.
#[derive(Clone, Debug)]
pub struct Caps {
    /// First header of the frames.
    pub link: Link,
    /// The longest IP packet, in bytes.
    pub mtu: u16,
    /// The address our end of the link should use, where the link has addresses.
    pub mac: Option<MacAddr>,
    /// The device fills in the TCP checksums of what is sent. Those of IP and UDP are the sender's in any case.
    pub tx_checksum: bool,
    /// The device vouches for the checksums of IP, TCP and UDP in whole packets that are received: it has checked them, or they were
    /// left to it and their fields may hold the pseudo header's sum only. Those of fragments and of ICMP are the receiver's.
    pub rx_checksum: bool,
    /// Segments of a flow that follow each other in a burst cross to the device as one, which it cuts again.
    pub tso: bool,
    /// Received segments that the device has joined come as one; the queue cuts them, so a frame is a packet all the same.
    pub gro: bool,
    /// For people: which device this is.
    pub name: String,
}

impl Caps {
    /// The longest frame, link header included.
    #[must_use]
    pub fn frame_max(&self) -> usize {
        usize::from(self.mtu) + self.link.header_len()
    }
}

/// One core's end of a device. Nothing here blocks.
pub trait Queue: Send {
    /// Returns the capabilities of the device.
    fn caps(&self) -> &Caps;

    /// Appends received frames to `out`, as many as are there and fit. Their tag and key are 0. Buffers come from
    /// `pool`; without any, what the device holds waits or is lost there, counted.
    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch);

    /// Takes what it can from the front of `frames`; what it has no room for stays there, in order. Of the frames it
    /// took and is finished with, those that are LENT go to `done` (at once or in a later call; no more are taken than
    /// fit there) and the others back to `pool`.
    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch);

    /// Readable when there may be something to receive: what a sleeping core waits for.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// The core is about to sleep on [`wait_fd`](Self::wait_fd). False when there is work already: then it must not.
    fn arm(&mut self) -> bool {
        true
    }
}

impl<Q: Queue + ?Sized> Queue for Box<Q> {
    fn caps(&self) -> &Caps {
        (**self).caps()
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        (**self).rx_burst(pool, out);
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        (**self).tx_burst(pool, frames, done);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).wait_fd()
    }

    fn arm(&mut self) -> bool {
        (**self).arm()
    }
}

/// Frames that never reached the stack, counted by the device over all its queues. What a checksum or a buffer kept from the
/// stack itself is in the stack's own counters.
/// Exhaustive: the metrics take it apart, so that no field is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLosses {
    /// Times a packet buffer to receive into was wanted and none was free. Frames wait in the device meanwhile, or are lost there.
    pub no_buffer: u64,
    /// Frames that the device, or the queue for it, dropped for a wrong checksum.
    pub bad_checksum: u64,
}

/// Reads the losses of a device, for as long as anybody wants to.
pub type LossesFn = dyn Fn() -> DeviceLosses + Send + Sync;

/// A device that is not opened yet.
pub trait Backend: Send {
    /// Opens it with this many queues. An error says what to do about it; asking for more queues than the device can
    /// have is one.
    fn open(self: Box<Self>, queues: usize) -> io::Result<Vec<Box<dyn Queue>>>;

    /// Returns the reader of the device's losses; `None` where it counts none. To be asked before it is opened.
    fn losses(&self) -> Option<Box<LossesFn>> {
        None
    }
}

/// The error of a backend that is asked for a number of queues it cannot have.
pub(crate) fn check_queues(name: &str, asked: usize, max: usize) -> io::Result<()> {
    if (1..=max).contains(&asked) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{name} can have 1 to {max} queues, not {asked}: use as many I/O cores (combined: as many shards)"
        ),
    ))
}

/// Finishes with a frame that was sent: a LENT one goes to `done`, which must have room, any other to the pool.
#[inline]
pub(crate) fn retire(frame: Frame, pool: &mut Pool, done: &mut Batch) {
    if frame.is_lent() {
        let refused = done.push(frame);
        debug_assert!(
            refused.is_ok(),
            "no more LENT frames are taken than fit in `done`"
        );
    } else {
        pool.free(frame.buf);
    }
}
