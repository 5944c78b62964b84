//! One sending queue's way to one receiving queue: a ring of empty buffers that the receiver posts, and a ring of full
//! ones. The buffers go round; only the copy touches their bytes. Knows nothing of flows, bells and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use janus_mem::{Frame, PacketBuf, Pool, Posted};

use crate::batch::{BURST, Burst};
use crate::queue::Batch;
use crate::ring::{Consumer, Producer, ring};

/// On the lane, a frame's tag says whose buffer it is: one the sender had to bring itself.
const BROUGHT: u16 = 1;
/// Below so many posted buffers the refill may use the pool's reserve, as a NIC's would.
const POST_MIN: u32 = 16;

pub(super) struct LaneTx {
    empty: Consumer<PacketBuf>,
    full: Producer<Frame>,
    /// Posted buffers at hand.
    spare: Burst<PacketBuf>,
    /// Frames copied, not yet published.
    pending: Batch,
    /// Frames published since the last [`flush`](Self::flush).
    flushed: usize,
    primed: Arc<AtomicBool>,
}

pub(super) struct LaneRx {
    empty: Producer<PacketBuf>,
    full: Consumer<Frame>,
    /// Buffers posted that have not come back as frames.
    posted: u32,
    /// Tells the depot of them, from the first time on.
    told: Option<Posted>,
    primed: Arc<AtomicBool>,
}

pub(super) fn lane(depth: u32) -> (LaneTx, LaneRx) {
    let depth = depth.max(4);
    let (empty_tx, empty_rx) = ring(depth);
    // Room for all posted buffers and as many brought ones: publishing never fails.
    let (full_tx, full_rx) = ring(2 * depth);
    let primed = Arc::new(AtomicBool::new(false));
    let tx = LaneTx {
        empty: empty_rx,
        full: full_tx,
        spare: Burst::new(),
        pending: Burst::new(),
        flushed: 0,
        primed: primed.clone(),
    };
    (
        tx,
        LaneRx {
            empty: empty_tx,
            full: full_rx,
            posted: 0,
            told: None,
            primed,
        },
    )
}

impl LaneTx {
    /// Copies a frame over; false when there is no buffer for it.
    #[inline]
    pub(super) fn carry(&mut self, frame: &[u8], pool: &mut Pool) -> bool {
        let Some((mut buf, tag)) = self.buffer(pool) else {
            return false;
        };
        let off = usize::from(buf.off());
        buf.bytes_mut()[off..off + frame.len()].copy_from_slice(frame);
        let mut copy = Frame::new(buf, frame.len() as u16);
        copy.tag = tag;
        if let Err(copy) = self.pending.push(copy) {
            self.flushed += self.full.push_batch(&mut self.pending);
            let _ = self.pending.push(copy);
        }
        true
    }

    #[inline]
    fn buffer(&mut self, pool: &mut Pool) -> Option<(PacketBuf, u16)> {
        if self.spare.is_empty() {
            self.empty.pop_batch(&mut self.spare);
            for buf in self.spare.iter() {
                buf.prefetch();
            }
        }
        if let Some(buf) = self.spare.pop() {
            return Some((buf, 0));
        }
        self.bring(pool)
    }

    /// A receiver that was never polled has posted nothing yet, and the first SYN should not be lost to that: until
    /// then the sender brings the buffer.
    #[cold]
    fn bring(&mut self, pool: &mut Pool) -> Option<(PacketBuf, u16)> {
        let waiting = self.full.in_flight() + self.pending.len();
        if self.primed.load(Ordering::Acquire) || waiting >= self.full.capacity() / 2 {
            return None;
        }
        Some((pool.alloc()?, BROUGHT))
    }

    /// Publishes what was copied; how many frames.
    #[inline]
    pub(super) fn flush(&mut self) -> usize {
        self.flushed += self.full.push_batch(&mut self.pending);
        debug_assert!(
            self.pending.is_empty(),
            "the ring has room for every buffer that can be on it"
        );
        std::mem::take(&mut self.flushed)
    }
}

impl LaneRx {
    /// Appends what has come and fits.
    #[inline]
    pub(super) fn receive(&mut self, out: &mut Batch) {
        let posted = &mut self.posted;
        self.full.pop_each(out.room(), |mut frame| {
            // The processing passes come soon: the header line should be there by then.
            frame.buf.prefetch();
            *posted -= u32::from(frame.tag != BROUGHT);
            frame.tag = 0;
            let _ = out.push(frame);
        });
    }

    /// Keeps up to `max` buffers posted, in steps of half a burst. False: the pool had too few.
    #[inline]
    #[must_use]
    pub(super) fn post(&mut self, pool: &mut Pool, max: u32) -> bool {
        let max = max.min(self.empty.capacity() as u32);
        let missing = max - self.posted.min(max);
        if missing as usize >= (BURST / 2).min(max as usize / 2) {
            let lacking = self.post_missing(pool, missing);
            let told = self.told.get_or_insert_with(|| pool.depot().posted(max));
            told.lacks(lacking);
            return lacking == 0;
        }
        true
    }

    /// How many the pool had not.
    fn post_missing(&mut self, pool: &mut Pool, missing: u32) -> u32 {
        let posted = self.posted;
        let (mut given, mut found) = (0, true);
        let mut source = std::iter::from_fn(|| {
            if given == missing {
                return None;
            }
            let buf = if posted + given < POST_MIN {
                pool.alloc_reserved()
            } else {
                pool.alloc()
            };
            found = buf.is_some();
            given += u32::from(found);
            buf
        });
        self.empty.push_from(&mut source);
        self.posted += given;
        if found { 0 } else { missing - given }
    }

    /// From now on the sender relies on posted buffers alone.
    pub(super) fn prime(&self) {
        self.primed.store(true, Ordering::Release);
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.full.is_empty()
    }
}
