//! Our packet buffers as another side of one piece of memory sees them, the kernel or a daemon: places in it. A buffer that the other side
//! has is a number there, not a handle; this table says which ones it has and what for, makes handles of them when they come back, and brings
//! all of them home when the other side is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use janus_mem::{Frame, PacketBuf, Slots};

use crate::backend::places::{Places, address};

/// Purpose for which the other side has a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holding {
    /// It has not.
    #[default]
    Ours,
    /// To receive into.
    Filling,
    /// To send: length, tag and key of the frame.
    Sending(u16, u16, u32),
}

/// Which of the buffers in a memory that is another's are ours, by slot. All queues of a program have the same.
pub(crate) type Ours = Arc<[AtomicBool]>;

/// The buffers that the other side of one queue holds.
pub(crate) struct Held {
    places: Places,
    /// Buffers change hands for good: what is received is in others than were given for it.
    exchanges: Option<Ours>,
    /// By slot, from 0.
    holdings: Vec<Holding>,
    pub(crate) filling: u32,
    pub(crate) sending: u32,
}

impl Held {
    pub(crate) fn new(slots: &Slots) -> Self {
        Self {
            places: Places::new(slots),
            exchanges: None,
            holdings: vec![Holding::Ours; slots.count as usize],
            filling: 0,
            sending: 0,
        }
    }

    /// Of a program whose buffers are another's.
    pub(crate) fn exchanging(slots: &Slots, ours: Ours) -> Self {
        Self {
            exchanges: Some(ours),
            ..Self::new(slots)
        }
    }

    /// Gives away a buffer to receive into: its address there. A buffer of another region comes back.
    #[inline]
    pub(crate) fn fill(&mut self, buf: PacketBuf) -> Result<u64, PacketBuf> {
        let (slot, _) = self.places.of(buf)?;
        match &self.exchanges {
            // As what it wrote before goes along.
            Some(ours) => ours[slot].store(false, Ordering::Release),
            None => self.holdings[slot] = Holding::Filling,
        }
        self.filling += 1;
        Ok(address(slot, 0))
    }

    /// Gives away a frame to send: its address and length there. One of another region comes back.
    #[inline]
    pub(crate) fn send(&mut self, frame: Frame) -> Result<(u64, u16), Frame> {
        let Frame { buf, len, tag, key } = frame;
        match self.places.of(buf) {
            Ok((slot, off)) => {
                self.holdings[slot] = Holding::Sending(len, tag, key);
                self.sending += 1;
                Ok((address(slot, off), len))
            }
            Err(buf) => Err(Frame { buf, len, tag, key }),
        }
    }

    /// The other side has received `len` bytes at `address`. `None` if it never had that buffer for it.
    #[inline]
    pub(crate) fn received(&mut self, address: u64, len: u32) -> Option<Frame> {
        let (slot, off) = self.places.at(address, len)?;
        let was_given = match &self.exchanges {
            Some(ours) => !ours[slot].swap(true, Ordering::Acquire),
            None => {
                let had = std::mem::take(&mut self.holdings[slot]);
                if had != Holding::Filling {
                    self.holdings[slot] = had;
                }
                had == Holding::Filling
            }
        };
        self.filling -= u32::from(was_given);
        // SAFETY: the table says that the other side had it, so no handle exists; it says so no more.
        was_given.then(|| Frame::new(unsafe { self.places.handle(slot, off) }, len as u16))
    }

    /// The other side has sent what is at `address`. `None` if it was not given to it.
    #[inline]
    pub(crate) fn sent(&mut self, address: u64) -> Option<Frame> {
        let (slot, off) = self.places.at(address, 0)?;
        let Holding::Sending(len, tag, key) = self.holdings[slot] else {
            return None;
        };
        self.holdings[slot] = Holding::Ours;
        self.sending -= 1;
        Some(Frame {
            // SAFETY: as in `received`.
            buf: unsafe { self.places.handle(slot, off) },
            len,
            tag,
            key,
        })
    }

    /// The next frame that was to be sent, from place `at` on, which moves on; buffers to receive into come home by the way. `None`: there is
    /// nothing more, and `at` is 0 again.
    ///
    /// # Safety
    /// The other side writes into none of them any more.
    pub(crate) unsafe fn next_home(&mut self, at: &mut usize) -> Option<Frame> {
        while *at < self.holdings.len() {
            let slot = *at;
            *at += 1;
            match self.holdings[slot] {
                Holding::Ours => {}
                Holding::Filling => {
                    self.holdings[slot] = Holding::Ours;
                    self.filling -= 1;
                    // SAFETY: the table said that the other side had it, and by the caller it has it no more.
                    drop(unsafe { self.places.handle(slot, 0) });
                }
                Holding::Sending(..) => return self.sent(address(slot, 0)),
            }
        }
        *at = 0;
        None
    }

    /// Buffers are exchanged no more. These come back of those that were given; how many others do not.
    pub(crate) fn keeps_its_own(&mut self, back: impl Iterator<Item = u64>) -> u32 {
        if self.exchanges.is_none() {
            return 0;
        }
        for address in back {
            drop(self.received(address, 0));
        }
        self.exchanges = None;
        std::mem::take(&mut self.filling)
    }

    /// Buffers that the other side has stay its own, if they are exchanged: how many those are.
    pub(crate) fn forget_exchanged(&mut self) -> u32 {
        if self.exchanges.is_none() {
            return 0;
        }
        self.holdings.fill(Holding::Ours);
        std::mem::take(&mut self.filling) + std::mem::take(&mut self.sending)
    }

    /// All buffers back, wherever they were.
    ///
    /// # Safety
    /// The other side writes into none of them any more.
    pub(crate) unsafe fn bring_home(&mut self) {
        for slot in 0..self.holdings.len() {
            if self.holdings[slot] != Holding::Ours {
                self.holdings[slot] = Holding::Ours;
                // SAFETY: the table said that the other side had it, and by the caller it has it no more.
                drop(unsafe { self.places.handle(slot, 0) });
            }
        }
        (self.filling, self.sending) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use janus_mem::{Depot, Growth, LENT, SLOT_SIZE};

    #[test]
    fn buffers_come_back_as_they_went_and_only_once() {
        let depot = Depot::new(256, &Growth::Inline).unwrap();
        let mut held = Held::new(&depot.ready_all().unwrap());
        let mut pool = depot.pool();
        let into = held.fill(pool.alloc().unwrap()).unwrap();
        let mut frame = Frame::new(pool.alloc().unwrap(), 60);
        (frame.tag, frame.key) = (LENT | 7 << 8, 0xfeed);
        frame.data_mut()[59] = 9;
        let (from, len) = held.send(frame).unwrap();
        assert_eq!((held.filling, held.sending, len), (1, 1, 60));
        // Not what it was given for, not given at all, nowhere.
        assert!(held.sent(into).is_none() && held.received(from, 60).is_none());
        assert!(held.sent(from + SLOT_SIZE as u64).is_none());
        assert!(held.received(u64::MAX, 60).is_none());
        assert!(held.received(into + 2000, 60).is_none(), "beyond its slot");
        let received = held.received(into + 256, 60).unwrap();
        assert_eq!((received.buf.off(), received.len), (256, 60));
        assert!(held.received(into + 256, 60).is_none(), "once");
        let sent = held.sent(from).unwrap();
        assert!(held.sent(from).is_none(), "once");
        assert_eq!((sent.tag, sent.key), (LENT | 7 << 8, 0xfeed));
        assert_eq!(sent.data()[59], 9);
        drop((received, sent, pool));
        assert_eq!(depot.stats().outstanding, 0);
    }

    #[test]
    fn what_the_other_side_had_comes_home_and_strangers_are_handed_back() {
        let depot = Depot::new(256, &Growth::Inline).unwrap();
        let mut held = Held::new(&depot.ready_all().unwrap());
        let mut pool = depot.pool();
        for _ in 0..40 {
            held.fill(pool.alloc().unwrap()).unwrap();
            held.send(Frame::new(pool.alloc().unwrap(), 60)).unwrap();
        }
        let other = Depot::new(64, &Growth::Inline).unwrap();
        let stranger = other.pool().alloc().unwrap();
        let stranger = held.fill(stranger).unwrap_err();
        let stranger = held.send(Frame::new(stranger, 60)).unwrap_err();
        assert_eq!(stranger.buf.off(), janus_mem::HEADROOM);
        drop((pool, stranger));
        assert_eq!(depot.stats().outstanding, 80);
        let (mut at, mut sent) = (0, 0);
        // SAFETY: there is no other side in this test.
        while let Some(frame) = unsafe { held.next_home(&mut at) } {
            sent += 1;
            drop(frame);
        }
        assert_eq!((sent, at, held.filling, held.sending), (40, 0, 0, 0));
        // SAFETY: as above.
        unsafe { held.bring_home() };
        assert_eq!(
            (depot.stats().outstanding, other.stats().outstanding),
            (0, 0)
        );
    }
}
