//! Places of one memory's packet buffers as other sides of it count them: in bytes from its beginning.

use janus_mem::{PacketBuf, SLOT_SIZE, Slots};

/// The buffers of one region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    region: u16,
    count: u32,
}

#[inline]
pub(crate) fn address(slot: usize, off: u16) -> u64 {
    slot as u64 * SLOT_SIZE as u64 + u64::from(off)
}

impl Places {
    pub(crate) fn new(slots: &Slots) -> Self {
        Self {
            region: slots.region,
            count: slots.count,
        }
    }

    /// Slot, from 0, and offset of a buffer of this region, whose handle ends here. Another's comes back.
    #[inline]
    pub(crate) fn of(&self, buf: PacketBuf) -> Result<(usize, u16), PacketBuf> {
        let raw = buf.into_raw();
        if (raw >> 32) as u16 == self.region {
            return Ok((raw as u32 as usize - 1, (raw >> 48) as u16));
        }
        // SAFETY: turned back once, where it was made.
        Err(unsafe { PacketBuf::from_raw(raw) })
    }

    /// Slot and offset of an address from which on so many bytes are in one buffer.
    #[inline]
    pub(crate) fn at(&self, address: u64, len: u32) -> Option<(usize, u16)> {
        let slot = usize::try_from(address / SLOT_SIZE as u64).ok()?;
        let off = (address % SLOT_SIZE as u64) as u16;
        let fits =
            slot < self.count as usize && u64::from(off) + u64::from(len) <= SLOT_SIZE as u64;
        fits.then_some((slot, off))
    }

    /// # Safety
    /// `slot` was taken by [`of`](Self::of), here or in another process with the same memory, and is turned back only once.
    #[inline]
    pub(crate) unsafe fn handle(&self, slot: usize, off: u16) -> PacketBuf {
        let (slot, region, off) = (slot as u64 + 1, u64::from(self.region), u64::from(off));
        let raw = slot | region << 32 | off << 48;
        // SAFETY: the same number that `into_raw` gave, but for the offset, which is less than a slot; once, by the caller.
        unsafe { PacketBuf::from_raw(raw) }
    }
}
