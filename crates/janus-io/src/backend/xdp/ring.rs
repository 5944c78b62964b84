//! The rings that an AF_XDP socket shares with the kernel: a producer's and a consumer's index, flags, and entries, in
//! memory that the kernel maps for us. Entries move in runs, and each run moves an index once. What the entries mean is
//! `queue.rs`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Where the parts of a ring are, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) flags: u64,
    pub(super) entries: u64,
    /// Entries; a power of two.
    pub(super) depth: u32,
}

/// A mapped ring of `T`.
struct Mapped<T> {
    base: NonNull<u8>,
    len: usize,
    layout: Layout,
    entries: NonNull<T>,
}

// SAFETY: the mapping is owned; one thread at a time uses it, through `&mut`, and the other side is the kernel.
unsafe impl<T: Send> Send for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// # Safety
    /// `fd` is an AF_XDP socket with a ring of `T` at `offset`, set up with this depth; the layout is the kernel's.
    unsafe fn new(fd: BorrowedFd<'_>, offset: u64, layout: Layout) -> Result<Self, Errno> {
        assert!(layout.depth.is_power_of_two());
        let len = layout.entries as usize + layout.depth as usize * size_of::<T>();
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe { mmap(core::ptr::null_mut(), len, rights, flags, fd, offset)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        // SAFETY: the kernel's offset of the entries, which end where the mapping ends.
        let entries = unsafe { base.add(layout.entries as usize) }.cast();
        Ok(Self {
            base,
            len,
            layout,
            entries,
        })
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the kernel's offset of a 32-bit word in the mapping, which lives as long as `self`; both sides access it
        // atomically only.
        unsafe { &*self.base.as_ptr().add(at as usize).cast::<AtomicU32>() }
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        self.word(self.layout.producer)
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        self.word(self.layout.consumer)
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        let at = index & (self.layout.depth - 1);
        // SAFETY: masked to the depth, which the entries have.
        unsafe { self.entries.as_ptr().add(at as usize) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, unmapped once; no reference outlives `self`.
        let done = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "munmap of our own mapping");
    }
}

/// A ring that we fill and the kernel empties.
pub(super) struct Outward<T> {
    ring: Mapped<T>,
    /// Where the next entry goes; published by [`publish`](Self::publish).
    next: u32,
    /// Index up to which the kernel had taken entries when last asked.
    taken: u32,
}

impl<T: Copy> Outward<T> {
    /// # Safety
    /// As for the mapping: `fd` is an AF_XDP socket with an empty ring of `T` at `offset`, of this layout.
    pub(super) unsafe fn new(
        fd: BorrowedFd<'_>,
        offset: u64,
        layout: Layout,
    ) -> Result<Self, Errno> {
        Ok(Self {
            // SAFETY: the caller's.
            ring: unsafe { Mapped::new(fd, offset, layout)? },
            next: 0,
            taken: 0,
        })
    }

    /// Entries that fit.
    #[inline]
    pub(super) fn room(&mut self) -> usize {
        // Acquire: what the kernel has taken it has read before it said so.
        self.taken = self.ring.consumer().load(Ordering::Acquire);
        (self.ring.layout.depth - self.waiting_known()) as usize
    }

    /// Entries the kernel has not taken yet, those not published included.
    #[inline]
    pub(super) fn waiting(&mut self) -> u32 {
        self.taken = self.ring.consumer().load(Ordering::Acquire);
        self.waiting_known()
    }

    #[inline]
    fn waiting_known(&self) -> u32 {
        // Clamped, so that not even a kernel gone astray makes us write over what it reads.
        self.next
            .wrapping_sub(self.taken)
            .min(self.ring.layout.depth)
    }

    /// Writes the next entry; there must be [`room`](Self::room).
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        debug_assert!(self.waiting_known() < self.ring.layout.depth);
        // SAFETY: the entry lies within the ring, and the kernel does not read it before it is published.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel what was pushed.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Whether the kernel wants a call to go on with this ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        let flags = self.ring.word(self.ring.layout.flags);
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that the kernel fills and we empty.
pub(super) struct Inward<T> {
    ring: Mapped<T>,
    /// The next entry to read; published by [`publish`](Self::publish).
    next: u32,
    /// Index up to which the kernel had filled entries when last asked.
    filled: u32,
}

impl<T: Copy> Inward<T> {
    /// # Safety
    /// As for [`Outward::new`].
    pub(super) unsafe fn new(
        fd: BorrowedFd<'_>,
        offset: u64,
        layout: Layout,
    ) -> Result<Self, Errno> {
        Ok(Self {
            // SAFETY: the caller's.
            ring: unsafe { Mapped::new(fd, offset, layout)? },
            next: 0,
            filled: 0,
        })
    }

    /// Entries to read.
    #[inline]
    pub(super) fn waiting(&mut self) -> usize {
        // Acquire: the entries were written before the index.
        self.filled = self.ring.producer().load(Ordering::Acquire);
        self.filled
            .wrapping_sub(self.next)
            .min(self.ring.layout.depth) as usize
    }

    /// Reads the next entry; there must be one [`waiting`](Self::waiting).
    #[inline]
    pub(super) fn pop(&mut self) -> T {
        debug_assert!(self.filled != self.next);
        // SAFETY: the kernel has filled this entry and leaves it alone until it is given back; any bits are a `T` (the
        // rings hold integers only).
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        entry
    }

    /// Gives what was read back to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}
