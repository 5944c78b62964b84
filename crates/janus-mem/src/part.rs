//! A part of a packet buffer, with its handle, in eight bytes: for those who wait with one in hand. A task is as large as
//! the largest thing it keeps while it waits, and an echo keeps what it got until it has sent it. Where buffers come from
//! and go to is `depot.rs` and `pool.rs`.

use crate::frame::{PacketBuf, SLOT_SIZE};
use core::fmt;
use core::mem::ManuallyDrop;
use core::num::{NonZeroU32, NonZeroU64};

/// Width of an offset and of a length: both reach [`SLOT_SIZE`].
const AT_BITS: u32 = 12;
const AT: u64 = (1 << AT_BITS) - 1;
/// Width of a region's number. The registry gives out no higher ones.
pub(crate) const REGION_BITS: u32 = 13;
/// Width of a slot's number: 256 GiB of buffers in a depot, which makes no more.
pub(crate) const SLOT_BITS: u32 = 64 - REGION_BITS - 2 * AT_BITS;

const _: () = assert!(SLOT_SIZE as u64 <= AT && SLOT_BITS == 27);

/// Some bytes of a buffer that is owned with them. Dropping it gives the buffer back the slow way; the hot paths take
/// it out again ([`into_buf`](Self::into_buf)) for their pool.
///
/// ```text
///  63       51 50          24 23       12 11        0
/// ┌───────────┬──────────────┬───────────┬───────────┐
/// │ region 13 │ slot      27 │ offset 12 │ length 12 │
/// └───────────┴──────────────┴───────────┴───────────┘
/// ```
pub struct Part {
    /// Never zero, as slots are counted from 1.
    bits: NonZeroU64,
}

const _: () = assert!(size_of::<Option<Part>>() == 8);

impl Part {
    /// The `len` bytes of `buf` from `off` on.
    ///
    /// # Panics
    /// When they lead out of the slot.
    #[inline]
    pub fn new(buf: PacketBuf, off: u16, len: u16) -> Self {
        assert!(
            usize::from(off) + usize::from(len) <= SLOT_SIZE,
            "packet buffer: a part beyond the slot"
        );
        let region = u64::from(buf.region()) << (SLOT_BITS + 2 * AT_BITS);
        let slot = u64::from(buf.into_slot()) << (2 * AT_BITS);
        let bits = region | slot | u64::from(off) << AT_BITS | u64::from(len);
        // SAFETY: a slot's number is at least 1, and below 2^27 (`Depot::new`), so that its bits are among these.
        let bits = unsafe { NonZeroU64::new_unchecked(bits) };
        Self { bits }
    }

    #[inline]
    fn off(&self) -> u16 {
        (self.bits.get() >> AT_BITS & AT) as u16
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.bits.get() & AT) as usize
    }

    /// No bytes are left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leaves out the first `count` bytes, at most all that are there.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        let count = count.min(self.len()) as u64;
        // The length has them, and the offset has room for them: together they stay within the slot.
        let bits = self.bits.get() + (count << AT_BITS) - count;
        // SAFETY: the slot's bits are as they were.
        self.bits = unsafe { NonZeroU64::new_unchecked(bits) };
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // Not dropped: only looked through.
        let buf = ManuallyDrop::new(self.handle());
        let slot: *const [u8; SLOT_SIZE] = buf.bytes();
        let at = usize::from(self.off());
        // SAFETY: the slot is this part's alone, which keeps the buffer as a handle does, and stays as long as the
        // part is borrowed.
        unsafe { &(&*slot)[at..at + self.len()] }
    }

    /// The handle again, its offset where the part begins.
    #[inline]
    pub fn into_buf(self) -> PacketBuf {
        let off = self.off();
        let mut buf = ManuallyDrop::new(self).handle();
        buf.set_off(off);
        buf
    }

    /// The buffer's handle: beside this part, so only one of the two may be dropped.
    #[inline]
    fn handle(&self) -> PacketBuf {
        let bits = self.bits.get();
        let region = (bits >> (SLOT_BITS + 2 * AT_BITS)) as u16;
        let slot = (bits >> (2 * AT_BITS)) as u32 & ((1 << SLOT_BITS) - 1);
        // SAFETY: `new` put a slot's number there, which is never zero.
        PacketBuf::new(region, unsafe { NonZeroU32::new_unchecked(slot) })
    }
}

impl Drop for Part {
    #[inline]
    fn drop(&mut self) {
        drop(self.handle());
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Depot, Growth};

    #[test]
    fn bytes_and_buffer_come_through() {
        let depot = Depot::new(64, &Growth::Inline).unwrap();
        let mut pool = depot.pool();
        for (off, len) in [(0, 0), (0, 2048), (54, 64), (2048, 0), (2047, 1), (1, 2047)] {
            let mut buf = pool.alloc().unwrap();
            for (at, byte) in buf.bytes_mut().iter_mut().enumerate() {
                *byte = (at * 7 + usize::from(off)) as u8;
            }
            let want = buf.bytes()[usize::from(off)..usize::from(off + len)].to_vec();
            let (region, raw) = (buf.region(), buf.bytes().as_ptr());
            let mut part = Part::new(buf, off, len);
            assert_eq!(part.bytes(), want);
            assert_eq!(part.is_empty(), len == 0);
            let passed = usize::from(len) / 3;
            part.advance(passed);
            assert_eq!(part.bytes(), &want[passed..]);
            part.advance(usize::MAX);
            assert!(part.is_empty());
            let buf = part.into_buf();
            assert_eq!((buf.region(), buf.bytes().as_ptr()), (region, raw));
            assert_eq!(buf.off(), off + len);
            pool.free(buf);
        }
    }

    #[test]
    fn one_that_is_dropped_gives_its_buffer_back_once() {
        let depot = Depot::new(64, &Growth::Inline).unwrap();
        let mut pool = depot.pool();
        let parts: Vec<Part> = (0..10)
            .map(|_| Part::new(pool.alloc().unwrap(), 0, 10))
            .collect();
        let held = depot.stats().outstanding;
        assert_eq!(depot.stats().strays, 0);
        drop(parts);
        let stats = depot.stats();
        assert_eq!((stats.strays, stats.outstanding), (10, held - 10));
    }

    #[test]
    #[should_panic(expected = "beyond the slot")]
    fn a_part_that_leads_out_of_its_slot_is_refused() {
        let depot = Depot::new(1, &Growth::Inline).unwrap();
        let buf = depot.pool().alloc().unwrap();
        drop(Part::new(buf, 2000, 49));
    }

    #[test]
    fn the_largest_numbers_fit() {
        let slot = NonZeroU32::new((1 << SLOT_BITS) - 1).unwrap();
        let region = (1 << REGION_BITS) - 1;
        // Of no depot: neither looked at nor dropped.
        let part = ManuallyDrop::new(Part::new(PacketBuf::new(region, slot), 2000, 48));
        let buf = ManuallyDrop::new(part.handle());
        assert_eq!(buf.region(), region);
        assert_eq!(ManuallyDrop::into_inner(buf).into_slot(), slot.get());
        assert_eq!((part.off(), part.len()), (2000, 48));
    }

    #[test]
    fn a_depot_has_no_slot_that_a_part_cannot_name() {
        let most = 1 << SLOT_BITS;
        assert_eq!(
            Depot::new(most, &Growth::Inline).unwrap_err(),
            crate::MemError::BadSize
        );
    }
}
