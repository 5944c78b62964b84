//! Where the kernel writes a frame that may be up to 64 KiB long. As long as none was joined, into one piece of memory that is
//! always warm, out of which a packet is copied into a buffer: cheaper than telling the kernel of more than one place. Once
//! joined frames come, buffers lie ready so that the payload of each segment falls into a buffer of its own, behind room for
//! headers: if headers and segments are as long as they were last time, nothing is copied but headers. What falls elsewhere is
//! copied together again.

use std::io::IoSliceMut;

use janus_mem::{HEADROOM, PacketBuf, Pool, Posted, SLOT_SIZE};
use rustix::fd::AsFd;
use rustix::io::{Errno, read, readv};

use super::vnet;

/// Buffers that lie ready: all that 64 KiB are in segments of an Ethernet packet's length.
const BUFFERS: usize = 46;
/// Bytes that a buffer holds behind its headroom.
pub(super) const BUFFER_ROOM: usize = SLOT_SIZE - HEADROOM as usize;
/// The longest frame: an IP packet of 64 KiB, its link header and two tags.
const FRAME_MAX: usize = u16::MAX as usize + 1 + janus_wire::ethernet::LEN + 8;
/// Joined frames, one after the other, that need less buffers until no more lie ready.
const LOOK_EVERY: u32 = 64;
/// Where the header before a frame begins in the first buffer, so that the frame follows it.
const FRONT: usize = HEADROOM as usize - vnet::LEN;

/// How the last joined frame was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of all headers.
    pub(super) headers: usize,
    /// Payload of each segment.
    pub(super) size: usize,
}

pub(super) struct RxScatter {
    /// Empty, in the order in which they are written to.
    buffers: Vec<PacketBuf>,
    /// Expected shape of a joined frame; without it the whole frame lies in `spill`, where else only its rest does.
    shape: Option<Shape>,
    /// Buffers to keep ready for such a frame: as many as the longest of late had segments.
    wanted: usize,
    /// Segments of the longest, and how many there were, since `wanted` was looked at.
    longest: usize,
    joined: u32,
    /// Tells the depot of the ready buffers, while there are joined frames.
    posted: Option<Posted>,
    /// Frames that were not joined, one after the other.
    small: usize,
    /// Bytes of a frame that fall behind the buffers, or the whole frame with its header.
    spill: Box<[u8]>,
}

impl RxScatter {
    pub(super) fn new() -> RxScatter {
        RxScatter {
            buffers: Vec::with_capacity(BUFFERS),
            shape: None,
            wanted: 0,
            longest: 0,
            joined: 0,
            posted: None,
            small: 0,
            spill: vec![0; vnet::LEN + FRAME_MAX].into_boxed_slice(),
        }
    }

    /// Lays buffers ready. False when there is none at all.
    #[inline]
    pub(super) fn prepare(&mut self, pool: &mut Pool) -> bool {
        if self.buffers.is_empty() {
            let Some(first) = pool.alloc_reserved() else {
                return false;
            };
            self.buffers.push(first);
        }
        if self.shape.is_some() {
            self.lay_ready(pool);
        }
        true
    }

    fn lay_ready(&mut self, pool: &mut Pool) {
        if self.posted.is_none() {
            self.posted = Some(pool.depot().posted(BUFFERS as u32));
        }
        while self.buffers.len() < self.wanted {
            let Some(buf) = pool.alloc() else { return };
            self.buffers.push(buf);
        }
        for buf in self.buffers.drain(self.wanted.max(1)..) {
            pool.free(buf);
        }
    }

    /// Reads one frame: what the kernel says of it, and how long it is.
    #[inline]
    pub(super) fn read(&mut self, fd: impl AsFd) -> Result<(vnet::Header, usize), Errno> {
        let (len, before) = match self.shape {
            None => (read(fd, &mut self.spill[..])?, self.spill.first_chunk()),
            Some(shape) => {
                let len = self.read_into_buffers(fd, shape)?;
                let first = self.buffers.first().map(|buf| &buf.bytes()[FRONT..]);
                (len, first.and_then(|bytes| bytes.first_chunk()))
            }
        };
        // Less than its own header the kernel never gives.
        let len = len.checked_sub(vnet::LEN).ok_or(Errno::IO)?;
        let before = before.ok_or(Errno::NOBUFS)?;
        Ok((vnet::Header::from_bytes(*before), len))
    }

    fn read_into_buffers(&mut self, fd: impl AsFd, shape: Shape) -> Result<usize, Errno> {
        let to = usize::from(HEADROOM) + shape.headers + shape.size;
        let used = self.buffers.len();
        let mut slices: [_; BUFFERS + 1] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (index, buf) in self.buffers.iter_mut().enumerate() {
            let from = match index {
                0 => FRONT,
                _ => usize::from(HEADROOM) + shape.headers,
            };
            slices[index] = IoSliceMut::new(&mut buf.bytes_mut()[from..to]);
        }
        slices[used] = IoSliceMut::new(&mut self.spill);
        readv(fd, &mut slices[..=used])
    }

    /// Takes the frame of `len` bytes that was read and not joined, in a buffer of its own. `None` where it does not lie so
    /// that this is to be had cheaply.
    #[inline]
    pub(super) fn take_whole(&mut self, len: usize) -> Option<PacketBuf> {
        match self.shape {
            None if len <= BUFFER_ROOM => {
                let mut buf = self.buffers.pop()?;
                let at = usize::from(HEADROOM);
                buf.bytes_mut()[at..at + len]
                    .copy_from_slice(&self.spill[vnet::LEN..vnet::LEN + len]);
                Some(buf)
            }
            Some(shape) if len <= shape.headers + shape.size => self.take(1).next(),
            _ => None,
        }
    }

    /// Takes buffers from the front.
    #[inline]
    pub(super) fn take(&mut self, count: usize) -> impl Iterator<Item = PacketBuf> {
        let count = count.min(self.buffers.len());
        self.buffers.drain(..count)
    }

    /// How many buffers lie ready.
    pub(super) fn ready(&self) -> usize {
        self.buffers.len()
    }

    /// Returns the shape that was expected of the frame that was read.
    pub(super) fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Copies bytes of the frame that was read, from `at` on, wherever they fell. Before any buffer is taken.
    pub(super) fn gather(&self, at: usize, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let piece = self.piece(at + done);
            let n = piece.len().min(into.len() - done);
            if n == 0 {
                return;
            }
            into[done..done + n].copy_from_slice(&piece[..n]);
            done += n;
        }
    }

    /// Returns the bytes in one piece from the frame's byte `at` on.
    fn piece(&self, at: usize) -> &[u8] {
        let Some(Shape { headers, size }) = self.shape else {
            return self.spill.get(vnet::LEN + at..).unwrap_or_default();
        };
        let (first, base) = (headers + size, usize::from(HEADROOM));
        let (index, within, from, len) = match at.checked_sub(first) {
            Some(behind) => (1 + behind / size, behind % size, base + headers, size),
            None => (0, at, base, first),
        };
        match self.buffers.get(index) {
            Some(buf) => &buf.bytes()[from + within..from + len],
            None => {
                let held = first + (self.buffers.len() - 1) * size;
                self.spill.get(at - held..).unwrap_or_default()
            }
        }
    }

    /// A joined frame was made so, of so many segments that fit a buffer each: the next will be too.
    pub(super) fn expect(&mut self, shape: Shape, segments: usize) {
        self.small = 0;
        debug_assert!(shape.headers + shape.size <= BUFFER_ROOM);
        self.shape = Some(shape);
        let segments = segments.min(BUFFERS);
        self.longest = self.longest.max(segments);
        self.joined += 1;
        if self.joined == LOOK_EVERY {
            self.wanted = self.longest;
            (self.longest, self.joined) = (0, 0);
        }
        self.wanted = self.wanted.max(segments);
    }

    /// A frame came that was not joined.
    #[inline]
    pub(super) fn small_came(&mut self, pool: &mut Pool) {
        if self.shape.is_some() {
            self.small += 1;
            // Until then laying buffers ready has cost about as much as copying the next joined frame would.
            if self.small > self.wanted / 2 + 2 {
                self.expect_small(pool);
            }
        }
    }

    #[cold]
    fn expect_small(&mut self, pool: &mut Pool) {
        self.shape = None;
        self.posted = None;
        (self.wanted, self.longest, self.joined) = (0, 0, 0);
        self.small = 0;
        for buf in self.buffers.drain(1.min(self.buffers.len())..) {
            pool.free(buf);
        }
    }
}
