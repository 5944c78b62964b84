//! Where the kernel writes a frame that may be up to 64 KiB long. Buffers lie ready so that the payload of each segment of a
//! joined frame falls into a buffer of its own, behind room for headers: if headers and segments are as long as they were
//! last time, nothing is copied but headers. What falls elsewhere is copied together again.

use std::io::IoSliceMut;

use janus_mem::{HEADROOM, PacketBuf, Pool, SLOT_SIZE};
use rustix::fd::AsFd;
use rustix::io::{Errno, readv};

use super::vnet;

/// Buffers that lie ready: all that 64 KiB are in segments of an Ethernet packet's length.
const BUFFERS: usize = 46;
/// What a buffer holds behind its headroom.
pub(super) const BUFFER_ROOM: usize = SLOT_SIZE - HEADROOM as usize;
/// The longest frame: an IP packet of 64 KiB, its link header and two tags.
const FRAME_MAX: usize = u16::MAX as usize + 1 + janus_wire::ethernet::LEN + 8;
/// Frames that were not joined, one after the other, until only one buffer lies ready.
const SMALL_MAX: u32 = 64;

/// How the last joined frame was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of all headers.
    pub(super) headers: usize,
    /// Payload of each segment.
    pub(super) size: usize,
}

pub(super) struct Landing {
    /// Empty, in the order in which they are written to.
    buffers: Vec<PacketBuf>,
    /// What is expected; without it one buffer lies ready for all of a frame.
    shape: Option<Shape>,
    small: u32,
    /// What falls behind the buffers.
    spill: Box<[u8]>,
}

impl Landing {
    pub(super) fn new() -> Landing {
        Landing {
            buffers: Vec::with_capacity(BUFFERS),
            shape: None,
            small: 0,
            spill: vec![0; FRAME_MAX].into_boxed_slice(),
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
            while self.buffers.len() < BUFFERS {
                let Some(buf) = pool.alloc() else { break };
                self.buffers.push(buf);
            }
        }
        true
    }

    /// Reads one frame: what the kernel says of it, and how long it is.
    #[inline]
    pub(super) fn read(&mut self, fd: impl AsFd) -> Result<(vnet::Header, usize), Errno> {
        let mut before = [0; vnet::LEN];
        let len = match self.shape {
            None => {
                let [first, ..] = &mut self.buffers[..] else {
                    return Err(Errno::NOBUFS);
                };
                let mut slices = [
                    IoSliceMut::new(&mut before),
                    IoSliceMut::new(&mut first.bytes_mut()[usize::from(HEADROOM)..]),
                    IoSliceMut::new(&mut self.spill),
                ];
                readv(fd, &mut slices)?
            }
            Some(Shape { headers, size }) => {
                let used = 1 + self.buffers.len();
                let mut slices: [_; BUFFERS + 2] =
                    std::array::from_fn(|_| IoSliceMut::new(&mut []));
                slices[0] = IoSliceMut::new(&mut before);
                for (index, buf) in self.buffers.iter_mut().enumerate() {
                    let from = usize::from(HEADROOM) + if index == 0 { 0 } else { headers };
                    let to = usize::from(HEADROOM) + headers + size;
                    slices[1 + index] = IoSliceMut::new(&mut buf.bytes_mut()[from..to]);
                }
                slices[used] = IoSliceMut::new(&mut self.spill);
                readv(fd, &mut slices[..=used])?
            }
        };
        // Less than its own header the kernel never gives.
        let len = len.checked_sub(vnet::LEN).ok_or(Errno::IO)?;
        Ok((vnet::Header::from_bytes(before), len))
    }

    /// What the first buffer can hold of a frame.
    #[inline]
    pub(super) fn first_len(&self) -> usize {
        self.shape
            .map_or(BUFFER_ROOM, |shape| shape.headers + shape.size)
    }

    /// Takes the first buffer.
    #[inline]
    pub(super) fn take_first(&mut self) -> Option<PacketBuf> {
        self.take(1).next()
    }

    /// Takes buffers from the front.
    pub(super) fn take(&mut self, count: usize) -> impl Iterator<Item = PacketBuf> {
        let count = count.min(self.buffers.len());
        self.buffers.drain(..count)
    }

    /// How many buffers lie ready.
    pub(super) fn ready(&self) -> usize {
        self.buffers.len()
    }

    /// What was expected of the frame that was read.
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

    /// What lies in one piece from the frame's byte `at` on.
    fn piece(&self, at: usize) -> &[u8] {
        let first = self.first_len();
        let base = usize::from(HEADROOM);
        let (index, within, from, len) = match self.shape {
            Some(Shape { headers, size }) if at >= first => {
                let behind = at - first;
                (1 + behind / size, behind % size, base + headers, size)
            }
            _ => (at / first, at % first, base, first),
        };
        match self.buffers.get(index) {
            Some(buf) => &buf.bytes()[from + within..from + len],
            None => {
                let held = match self.shape {
                    Some(Shape { size, .. }) => first + (self.buffers.len() - 1) * size,
                    None => first,
                };
                &self.spill[(at - held).min(self.spill.len())..]
            }
        }
    }

    /// A joined frame was made so, of segments that fit a buffer: the next will be too.
    pub(super) fn expect(&mut self, shape: Shape) {
        self.small = 0;
        debug_assert!(shape.headers + shape.size <= BUFFER_ROOM);
        self.shape = Some(shape);
    }

    /// A frame came that was not joined.
    #[inline]
    pub(super) fn small_came(&mut self, pool: &mut Pool) {
        if self.shape.is_some() {
            self.small += 1;
            if self.small >= SMALL_MAX {
                self.expect_small(pool);
            }
        }
    }

    #[cold]
    fn expect_small(&mut self, pool: &mut Pool) {
        self.shape = None;
        self.small = 0;
        for buf in self.buffers.drain(1.min(self.buffers.len())..) {
            pool.free(buf);
        }
    }
}
