//! A queue of an interface with offloads: no checksum is computed for what is sent, nor checked for what the kernel vouches
//! for; segments of a flow that follow each other are written as one frame; and what the kernel joined is read as one frame
//! and cut up. To the stack every segment is a frame of its own, so nothing behind knows.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use janus_mem::{Frame, Pool};
use janus_wire::tcp::CHECKSUM_AT;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, write, writev};

use super::TapCounters;
use super::claim::Claim;
use super::rx_scatter::{BUFFER_ROOM, RxScatter, Shape};
use super::vnet::{self, Joined};
use crate::backend::large::Layout;
use crate::backend::large::cut::{Cut, HEADERS_MAX};
use crate::backend::large::join::{self, Run};
use crate::backend::sound;
use crate::batch::BURST;
use crate::queue::{Batch, Caps, Queue, retire};

pub(super) struct OffloadQueue {
    caps: Caps,
    fd: OwnedFd,
    _claim: Arc<Claim>,
    scatter: RxScatter,
    /// Segments of one joined frame that did not fit a burst. While there are any, nothing is read.
    waiting: VecDeque<Frame>,
    /// Those of the joined frame at hand that had to be copied.
    copied: VecDeque<Frame>,
    counters: Arc<TapCounters>,
}

/// Segments as many as fit `out`; the rest waits.
fn hand_on(waiting: &mut VecDeque<Frame>, out: &mut Batch, frame: Frame) {
    if let Err(frame) = out.push(frame) {
        waiting.push_back(frame);
    }
}

impl OffloadQueue {
    pub(super) fn new(
        caps: Caps,
        fd: OwnedFd,
        claim: Arc<Claim>,
        counters: Arc<TapCounters>,
    ) -> OffloadQueue {
        OffloadQueue {
            caps,
            fd,
            _claim: claim,
            scatter: RxScatter::new(),
            waiting: VecDeque::with_capacity(BURST),
            copied: VecDeque::with_capacity(BURST),
            counters,
        }
    }

    /// Reads one frame. False when there is none.
    fn read(&mut self, pool: &mut Pool, out: &mut Batch) -> bool {
        if !self.scatter.prepare(pool) {
            self.counters.no_buffer.add_shared(1);
            return false;
        }
        let (header, len) = match self.scatter.read(&self.fd) {
            Ok(read) => read,
            Err(errno) => {
                if errno != Errno::AGAIN {
                    self.counters.read_errors.add_shared(1);
                }
                return false;
            }
        };
        match header.joined {
            Joined::No => self.take_plain(&header, len, pool, out),
            Joined::Tcp4 | Joined::Tcp6 => self.take_joined(&header, len, pool, out),
            Joined::Unknown => self.counters.lost_uncut.add_shared(1),
        }
        true
    }

    /// One packet.
    fn take_plain(&mut self, header: &vnet::Header, len: usize, pool: &mut Pool, out: &mut Batch) {
        let frame = match self.scatter.take_whole(len) {
            Some(buf) => Some(Frame::new(buf, len as u16)),
            None => self.put_together(len, pool),
        };
        self.scatter.small_came(pool);
        let Some(frame) = frame else { return };
        let sound = match header.is_checked() {
            true => sound::has_sound_header(frame.data()),
            false => sound::is_sound(frame.data()),
        };
        if sound {
            hand_on(&mut self.waiting, out, frame);
        } else {
            self.counters.lost_checksum.add_shared(1);
            pool.free(frame.buf);
        }
    }

    /// A packet that fell into several buffers.
    #[cold]
    fn put_together(&mut self, len: usize, pool: &mut Pool) -> Option<Frame> {
        if len > BUFFER_ROOM {
            // Longer than any packet of this link: somebody has raised its MTU.
            self.counters.lost_uncut.add_shared(1);
            return None;
        }
        let Some(buf) = pool.alloc() else {
            self.counters.no_buffer.add_shared(1);
            return None;
        };
        let mut frame = Frame::new(buf, len as u16);
        self.scatter.gather(0, frame.data_mut());
        Some(frame)
    }

    /// Many segments in one.
    fn take_joined(&mut self, header: &vnet::Header, len: usize, pool: &mut Pool, out: &mut Batch) {
        let mut head = [0; HEADERS_MAX];
        let head = &mut head[..len.min(HEADERS_MAX)];
        self.scatter.gather(0, head);
        let cut = Cut::new(head, len, usize::from(header.size)).filter(|cut| {
            let joined = if cut.layout.v6 {
                Joined::Tcp6
            } else {
                Joined::Tcp4
            };
            joined == header.joined && cut.headers_len() + cut.size <= BUFFER_ROOM
        });
        let Some(cut) = cut else {
            self.counters.lost_uncut.add_shared(1);
            return;
        };
        // A frame that is not vouched for has an unchecked checksum, and the checksum of the whole is no longer known once it is cut.
        if !header.is_checked() || !sound::has_sound_header(&head[..cut.headers_len()]) {
            self.counters.lost_checksum.add_shared(1);
            return;
        }
        let shape = Shape {
            headers: cut.headers_len(),
            size: cut.size,
        };
        let count = cut.count();
        let in_place = match self.scatter.shape() == Some(shape) {
            true => count.min(self.scatter.ready()),
            false => 0,
        };
        self.counters.joined_in.add_shared(1);
        // Copies first: taking the buffers of the others moves the bytes that lie there.
        for index in in_place..count {
            match self.copy_out(&cut, index, pool) {
                Some(frame) => self.copied.push_back(frame),
                None => self.counters.no_buffer.add_shared(1),
            }
        }
        self.counters.copied_in.add_shared(self.copied.len() as u64);
        for (index, buf) in self.scatter.take(in_place).enumerate() {
            let len = shape.headers + cut.part(index).len();
            let mut frame = Frame::new(buf, len as u16);
            cut.write_headers(index, frame.data_mut());
            hand_on(&mut self.waiting, out, frame);
        }
        for frame in self.copied.drain(..) {
            hand_on(&mut self.waiting, out, frame);
        }
        self.scatter.expect(shape, count);
    }

    /// A segment of the frame that was read, in a buffer of its own.
    fn copy_out(&self, cut: &Cut, index: usize, pool: &mut Pool) -> Option<Frame> {
        let (part, headers) = (cut.part(index), cut.headers_len());
        let mut frame = Frame::new(pool.alloc()?, (headers + part.len()) as u16);
        cut.write_headers(index, frame.data_mut());
        self.scatter
            .gather(headers + part.start, &mut frame.data_mut()[headers..]);
        Some(frame)
    }

    /// Writes the first frames of a batch as one.
    #[inline]
    fn write(&self, frames: &mut [Frame], run: &Run) -> Result<(), Errno> {
        let mut header = vnet::Header::default();
        if let Some(at) = &run.layout {
            header = header.with_checksum(at.tcp, CHECKSUM_AT);
            if run.count > 1 {
                return self.write_joined(frames, run, at, header);
            }
            join::seal_one(frames[0].data_mut(), at);
        }
        let front = header.to_bytes();
        let frame = &mut frames[0];
        let off = usize::from(frame.buf.off());
        let Some(from) = off.checked_sub(vnet::LEN) else {
            let slices = [IoSlice::new(&front), IoSlice::new(frame.data())];
            return writev(&self.fd, &slices).map(drop);
        };
        // The bytes before a frame are unused; and the kernel reads one place with less work than two.
        let bytes = &mut frame.buf.bytes_mut()[from..off + usize::from(frame.len)];
        bytes[..vnet::LEN].copy_from_slice(&front);
        write(&self.fd, bytes).map(drop)
    }

    fn write_joined(
        &self,
        frames: &[Frame],
        run: &Run,
        at: &Layout,
        header: vnet::Header,
    ) -> Result<(), Errno> {
        let header = header.with_segments(at.v6, at.payload, run.size);
        // The frames stay as they are: they may have to wait, and be looked at again.
        let mut front = [0; vnet::LEN + HEADERS_MAX];
        let front = &mut front[..vnet::LEN + at.payload];
        front[..vnet::LEN].copy_from_slice(&header.to_bytes());
        front[vnet::LEN..].copy_from_slice(&frames[0].data()[..at.payload]);
        join::seal(&mut front[vnet::LEN..], at, run.total, run.flags);
        let mut slices = [IoSlice::new(&[]); 1 + BURST];
        slices[0] = IoSlice::new(front);
        for (slice, frame) in slices[1..].iter_mut().zip(&frames[..run.count]) {
            *slice = IoSlice::new(&frame.data()[at.payload..]);
        }
        writev(&self.fd, &slices[..=run.count])?;
        self.counters.joined_out.add_shared(1);
        Ok(())
    }
}

impl Queue for OffloadQueue {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, pool: &mut Pool, out: &mut Batch) {
        while !out.is_full() {
            match self.waiting.pop_front() {
                Some(frame) => hand_on(&mut self.waiting, out, frame),
                None if self.read(pool, out) => {}
                None => return,
            }
        }
    }

    fn tx_burst(&mut self, pool: &mut Pool, frames: &mut Batch, done: &mut Batch) {
        // Each of them might be LENT.
        let most = done.room().min(frames.len());
        let mut taken = 0;
        while taken < most {
            let run = join::run(&frames[taken..most]);
            match self.write(&mut frames[taken..], &run) {
                // The kernel's queue is full: the rest stays.
                Err(Errno::AGAIN) => break,
                Err(_) => self.counters.lost_refused.add_shared(run.count as u64),
                Ok(()) => {}
            }
            taken += run.count;
        }
        for frame in frames.pull().take(taken) {
            retire(frame, pool, done);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn arm(&mut self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests;
