//! Handles: [`PacketBuf`] owns one packet-buffer slot, [`Frame`] is a packet in it. Where slots come from and go to
//! is `depot.rs` and `pool.rs`; what the bytes mean is no concern of this room.

use crate::registry;
use core::fmt;
use core::mem::ManuallyDrop;
use core::num::NonZeroU32;

/// Bytes in a packet buffer.
pub const SLOT_SIZE: usize = 2048;
/// Where the data of a fresh buffer begins: room for the headers that go in front of a payload.
pub const HEADROOM: u16 = 128;
/// Bit of [`Frame::tag`] on the way out: the buffer is lent to the wire and must come back as a completion.
pub const LENT: u16 = 1;
/// Bit of [`Frame::tag`] on the way in, beside the steering's: the packet is one of our own for one of our addresses, and has crossed no
/// device. Only what hands such packets on sets it.
pub const LOOPED: u16 = 1 << 13;
/// Bit of [`Frame::tag`] on the way in, beside the steering's: the packet may be another program's. Where nothing has use for it, it is
/// [turned back](Frame::turn_back) and not answered.
pub const RETURNS: u16 = 1 << 12;
/// Bit of [`Frame::tag`] on the way out: the packet came in with [`RETURNS`] and goes back unaltered.
pub const TURNED: u16 = 1 << 1;
/// Bit of [`Frame::tag`] on the way out, beside [`TURNED`]: it came in with [`LOOPED`] too.
pub const TURNED_LOOPED: u16 = 1 << 2;

/// An owned packet buffer of [`SLOT_SIZE`] bytes: a number, never an address, so it means the same in every process
/// that maps the region.
///
/// The hot paths give it back with [`Pool::free`](crate::Pool::free). Merely dropped it finds its way home through
/// the depot's slow path, on any thread, so a buffer cannot leak.
#[repr(C)]
pub struct PacketBuf {
    /// Counted from 1, so that an `Option` of a handle is no larger than the handle.
    slot: NonZeroU32,
    region: u16,
    off: u16,
}

const _: () = assert!(size_of::<PacketBuf>() == 8 && size_of::<Option<PacketBuf>>() == 8);

impl PacketBuf {
    /// Only pools make handles: the slot must be the caller's alone, in a registered region.
    #[inline(always)]
    pub(crate) fn new(region: u16, slot: NonZeroU32) -> Self {
        Self {
            slot,
            region,
            off: HEADROOM,
        }
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> u16 {
        self.region
    }

    #[inline(always)]
    pub(crate) fn into_slot(self) -> u32 {
        ManuallyDrop::new(self).slot.get()
    }

    /// Offset of the data in the slot: [`HEADROOM`] in a fresh buffer.
    #[inline]
    pub fn off(&self) -> u16 {
        self.off
    }

    /// Moves the beginning of the data.
    ///
    /// # Panics
    /// Beyond the end of the slot.
    #[inline]
    pub fn set_off(&mut self, off: u16) {
        assert!(
            off as usize <= SLOT_SIZE,
            "packet buffer: offset beyond the slot"
        );
        self.off = off;
    }

    /// The whole slot.
    #[inline]
    pub fn bytes(&self) -> &[u8; SLOT_SIZE] {
        // SAFETY: a live handle names a slot of a registered, committed region (a depot unmaps only when every handle
        // is home), initialised since it was mapped, and owned by this handle alone.
        unsafe { &*self.ptr().cast::<[u8; SLOT_SIZE]>() }
    }

    /// The whole slot.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8; SLOT_SIZE] {
        // SAFETY: as in `bytes`; `&mut self` makes the access exclusive.
        unsafe { &mut *self.ptr().cast::<[u8; SLOT_SIZE]>() }
    }

    /// Brings the first cache line of the data close.
    #[inline(always)]
    pub fn prefetch(&self) {
        crate::prefetch(self.ptr().wrapping_add(self.off as usize));
    }

    /// Brings the lines close in which headers will be written before data at [`HEADROOM`].
    #[inline(always)]
    pub fn prefetch_headers(&mut self) {
        crate::prefetch::prefetch_to_write(self.ptr().wrapping_add(usize::from(HEADROOM) - 64));
    }

    #[inline(always)]
    fn ptr(&self) -> *mut u8 {
        registry::base(self.region).wrapping_add(self.slot.get() as usize * SLOT_SIZE)
    }

    /// The handle as a number, for a ring shared with another process or for a device. Ownership goes along. The slot,
    /// counted from 1, is in the low 32 bits, the region in the next 16, the offset in the topmost.
    #[inline]
    pub fn into_raw(self) -> u64 {
        let this = ManuallyDrop::new(self);
        u64::from(this.slot.get()) | u64::from(this.region) << 32 | u64::from(this.off) << 48
    }

    /// The handle again.
    ///
    /// # Safety
    /// `raw` came from [`into_raw`](Self::into_raw) and is turned back only once; its region is registered in this
    /// process under the same number.
    #[inline]
    pub unsafe fn from_raw(raw: u64) -> Self {
        // SAFETY: slots are counted from 1, and the caller vouches that this was one.
        let slot = unsafe { NonZeroU32::new_unchecked(raw as u32) };
        Self {
            slot,
            region: (raw >> 32) as u16,
            off: (raw >> 48) as u16,
        }
    }
}

impl Drop for PacketBuf {
    #[inline]
    fn drop(&mut self) {
        registry::bring_home(self.region, self.slot.get());
    }
}

impl fmt::Debug for PacketBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketBuf({}:{}+{})", self.region, self.slot, self.off)
    }
}

/// A packet: `len` bytes of a buffer from its offset on, with 48 bits that travel along.
#[repr(C)]
#[derive(Debug)]
pub struct Frame {
    /// The buffer; its offset is where the packet begins.
    pub buf: PacketBuf,
    /// Bytes of the packet.
    pub len: u16,
    /// Received: the steering tag, [`LOOPED`] and [`RETURNS`]. Sent: [`LENT`], [`TURNED`] and [`TURNED_LOOPED`].
    pub tag: u16,
    /// Received: the flow key. Sent: the cookie of the completion.
    pub key: u32,
}

const _: () = assert!(size_of::<Frame>() == 16 && size_of::<Option<Frame>>() == 16);

impl Frame {
    /// The first `len` bytes of the buffer's data, untagged.
    #[inline]
    pub fn new(buf: PacketBuf, len: u16) -> Self {
        Self {
            buf,
            len,
            tag: 0,
            key: 0,
        }
    }

    /// The packet.
    ///
    /// # Panics
    /// When offset and length lead out of the slot.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let off = self.buf.off as usize;
        &self.buf.bytes()[off..off + self.len as usize]
    }

    /// The packet.
    ///
    /// # Panics
    /// When offset and length lead out of the slot.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let off = self.buf.off as usize;
        let end = off + self.len as usize;
        &mut self.buf.bytes_mut()[off..end]
    }

    /// Whether the wire must give this frame back as a completion.
    #[inline]
    pub fn is_lent(&self) -> bool {
        self.tag & LENT != 0
    }

    /// Whether this packet, which has come in, is one of our own that has crossed no device.
    #[inline]
    pub fn is_looped(&self) -> bool {
        self.tag & LOOPED != 0
    }

    /// Whether this packet, which has come in, is to be turned back where nothing has use for it.
    #[inline]
    pub fn returns(&self) -> bool {
        self.tag & RETURNS != 0
    }

    /// Makes a packet that has come in one that goes out where it came from.
    pub fn turn_back(&mut self) {
        let looped = if self.is_looped() { TURNED_LOOPED } else { 0 };
        (self.tag, self.key) = (TURNED | looped, 0);
    }

    /// Sets the steering tag of a frame that has come in. Where it came from stays.
    #[inline]
    pub fn steer(&mut self, tag: u16) {
        self.tag = tag | self.tag & (LOOPED | RETURNS);
    }
}
