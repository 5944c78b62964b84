//! Our packet buffers as another side of one piece of memory sees them, the kernel or a daemon: places in it. A buffer that the other side
//! has is a number there, not a handle; this table says which ones it has and what for, makes handles of them when they come back, and brings
//! all of them home when the other side is gone.

use janus_mem::{Frame, PacketBuf, SLOT_SIZE, Slots};

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

/// The buffers that the other side of one queue holds.
pub(crate) struct Held {
    region: u16,
    /// By slot, from 0.
    holdings: Vec<Holding>,
    pub(crate) filling: u32,
    pub(crate) sending: u32,
}

impl Held {
    pub(crate) fn new(slots: &Slots) -> Self {
        Self {
            region: slots.region,
            holdings: vec![Holding::Ours; slots.count as usize],
            filling: 0,
            sending: 0,
        }
    }

    /// Gives away a buffer to receive into: its address there. A buffer of another region comes back.
    #[inline]
    pub(crate) fn fill(&mut self, buf: PacketBuf) -> Result<u64, PacketBuf> {
        let (slot, _) = self.slot_of(buf)?;
        self.holdings[slot] = Holding::Filling;
        self.filling += 1;
        Ok(address(slot, 0))
    }

    /// Gives away a frame to send: its address and length there. One of another region comes back.
    #[inline]
    pub(crate) fn send(&mut self, frame: Frame) -> Result<(u64, u16), Frame> {
        let Frame { buf, len, tag, key } = frame;
        match self.slot_of(buf) {
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
        let (slot, off) = self.place(address)?;
        let fits = usize::from(off) + len as usize <= SLOT_SIZE;
        if self.holdings[slot] != Holding::Filling || !fits {
            return None;
        }
        self.holdings[slot] = Holding::Ours;
        self.filling -= 1;
        // SAFETY: the table says that the other side had it, so no handle exists; it says so no more.
        Some(Frame::new(unsafe { self.handle(slot, off) }, len as u16))
    }

    /// The other side has sent what is at `address`. `None` if it was not given to it.
    #[inline]
    pub(crate) fn sent(&mut self, address: u64) -> Option<Frame> {
        let (slot, off) = self.place(address)?;
        let Holding::Sending(len, tag, key) = self.holdings[slot] else {
            return None;
        };
        self.holdings[slot] = Holding::Ours;
        self.sending -= 1;
        Some(Frame {
            // SAFETY: as in `received`.
            buf: unsafe { self.handle(slot, off) },
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
                    drop(unsafe { self.handle(slot, 0) });
                }
                Holding::Sending(..) => return self.sent(address(slot, 0)),
            }
        }
        *at = 0;
        None
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
                drop(unsafe { self.handle(slot, 0) });
            }
        }
        (self.filling, self.sending) = (0, 0);
    }

    /// Slot and offset of a buffer of this region, whose handle ends here.
    #[inline]
    fn slot_of(&self, buf: PacketBuf) -> Result<(usize, u16), PacketBuf> {
        let raw = buf.into_raw();
        if (raw >> 32) as u16 == self.region {
            return Ok((raw as u32 as usize - 1, (raw >> 48) as u16));
        }
        // SAFETY: turned back once, where it was made.
        Err(unsafe { PacketBuf::from_raw(raw) })
    }

    #[inline]
    fn place(&self, address: u64) -> Option<(usize, u16)> {
        let slot = usize::try_from(address / SLOT_SIZE as u64).ok()?;
        (slot < self.holdings.len()).then_some((slot, (address % SLOT_SIZE as u64) as u16))
    }

    /// # Safety
    /// `slot` was taken by [`slot_of`](Self::slot_of) and is turned back only once.
    #[inline]
    unsafe fn handle(&self, slot: usize, off: u16) -> PacketBuf {
        let (slot, region, off) = (slot as u64 + 1, u64::from(self.region), u64::from(off));
        let raw = slot | region << 32 | off << 48;
        // SAFETY: the same number that `into_raw` gave, but for the offset, which is less than a slot; once, by the caller.
        unsafe { PacketBuf::from_raw(raw) }
    }
}

#[inline]
fn address(slot: usize, off: u16) -> u64 {
    slot as u64 * SLOT_SIZE as u64 + u64::from(off)
}

#[cfg(test)]
mod tests {
    use super::*;
    use janus_mem::{Depot, Growth, LENT};

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
