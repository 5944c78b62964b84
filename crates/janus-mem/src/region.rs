//! A reserved range of addresses whose committed prefix only grows: the only calls to `mmap` and its kin in the house.
//! What is stored in a region, and when it grows, is decided elsewhere (`growth.rs` and its users).

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(miri))]
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Size of a huge page on the machines we run on.
pub const HUGE_PAGE: usize = 2 << 20;
/// Size of an ordinary page: commits are rounded to it while a region is small.
pub(crate) const PAGE: usize = 4096;

/// Why memory could not be had. Says what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemError {
    /// The kernel refused to reserve this many bytes of addresses.
    Reserve {
        /// Bytes that were asked for.
        bytes: usize,
        /// The kernel's error number.
        errno: i32,
    },
    /// The kernel refused to back reserved addresses with memory.
    Commit {
        /// Bytes that were asked for, on top of those committed before.
        bytes: usize,
        /// The kernel's error number.
        errno: i32,
    },
    /// The size asked for is zero or beyond what the index of its kind can reach.
    BadSize,
    /// All 8,192 region numbers are in use.
    TooManyRegions,
}

impl fmt::Display for MemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Reserve { bytes, errno } => {
                write!(
                    f,
                    "cannot reserve {bytes} bytes of addresses (errno {errno}): raise `ulimit -v` or lower the maxima in the configuration"
                )
            }
            Self::Commit { bytes, errno } => {
                write!(
                    f,
                    "cannot get {bytes} more bytes of memory (errno {errno}): lower the maxima or give the machine more memory"
                )
            }
            Self::BadSize => {
                f.write_str("a table must hold at least one entry and at most 2^32-2, packet buffers can be 2^27-1 at most")
            }
            Self::TooManyRegions => {
                f.write_str("too many packet-buffer regions in one process: drop unused runtimes")
            }
        }
    }
}

impl std::error::Error for MemError {}

/// Kind of memory that backs a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Explicitly reserved huge pages (`MAP_HUGETLB`) from the first whole huge page on.
    Hugetlb,
    /// Ordinary memory for which transparent huge pages were asked (`MADV_HUGEPAGE`).
    Transparent,
    /// Ordinary pages.
    Plain,
}

/// A reserved range of addresses with a committed prefix. The base never moves.
pub struct Region {
    base: NonNull<u8>,
    reserved: usize,
    committed: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    kind: RegionKind,
    /// Whether the next whole chunk should be tried as `MAP_HUGETLB`.
    #[cfg_attr(miri, expect(dead_code))]
    try_hugetlb: bool,
    /// A failed `MAP_HUGETLB` left the reservation in doubt: nothing more is committed.
    sealed: bool,
}

// SAFETY: the region owns its mapping; the base is only handed out as a raw pointer and all state is behind a mutex
// or an atomic.
unsafe impl Send for Region {}
// SAFETY: as above; `commit` and `touch` may run on any thread at once.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes` of addresses (rounded up to whole huge pages) and commits none of them.
    pub fn reserve(bytes: usize) -> Result<Self, MemError> {
        Self::reserve_with(bytes, sys::advise)
    }

    /// Likewise, of ordinary pages: for what is first touched in a packet loop, which would wait for a huge page to be cleared.
    pub fn reserve_in_pages(bytes: usize) -> Result<Self, MemError> {
        Self::reserve_with(bytes, sys::decline)
    }

    /// Likewise, of memory that another process can map: the descriptor is what it maps, as long as the reservation.
    #[cfg(not(miri))]
    pub fn reserve_shared(bytes: usize) -> Result<(Self, OwnedFd), MemError> {
        let region = Self::reserve_with(bytes, |_, _| (RegionKind::Plain, false))?;
        let memory = sys::share(region.base, region.reserved)?;
        Ok((region, memory))
    }

    /// Memory that another process has made so, of so many bytes: all of it can be used, and nothing is touched.
    #[cfg(not(miri))]
    pub fn map_shared(memory: BorrowedFd<'_>, bytes: usize) -> Result<Self, MemError> {
        let region = Self::reserve_with(bytes, |_, _| (RegionKind::Plain, false))?;
        if region.reserved != bytes || !sys::is_as_long(memory, bytes) {
            return Err(MemError::BadSize);
        }
        sys::map(region.base, bytes, memory, true)?;
        region.committed.store(bytes, Ordering::Release);
        Ok(region)
    }

    fn reserve_with(
        bytes: usize,
        advise: fn(NonNull<u8>, usize) -> (RegionKind, bool),
    ) -> Result<Self, MemError> {
        if bytes == 0 || bytes > (1 << 46) {
            return Err(MemError::BadSize);
        }
        let reserved = sys::round_reserve(bytes);
        let base = sys::reserve(reserved)?;
        let (kind, try_hugetlb) = advise(base, reserved);
        #[cfg(not(miri))]
        crate::unforked::is_mapped(base, reserved);
        Ok(Self {
            base,
            reserved,
            committed: AtomicUsize::new(0),
            state: Mutex::new(State {
                kind,
                try_hugetlb,
                sealed: false,
            }),
        })
    }

    /// The address of the first byte; aligned to a huge page.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes of addresses held.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Length of the usable prefix.
    #[inline]
    pub fn committed(&self) -> usize {
        self.committed.load(Ordering::Acquire)
    }

    /// Returns the kind of memory that backs the committed part.
    pub fn kind(&self) -> RegionKind {
        self.lock().kind
    }

    /// Makes at least the first `to` bytes usable (rounded up to pages, cut at the reservation); new bytes read as
    /// zero. Costs a system call, but touches nothing. Returns the new committed length.
    pub fn commit(&self, to: usize) -> Result<usize, MemError> {
        let mut state = self.lock();
        let from = self.committed.load(Ordering::Relaxed);
        let unit = if to < HUGE_PAGE { PAGE } else { HUGE_PAGE };
        let to = to.next_multiple_of(unit).min(self.reserved);
        if to <= from {
            return Ok(from);
        }
        if state.sealed {
            return Err(MemError::Commit {
                bytes: to - from,
                errno: 12,
            });
        }
        sys::commit(self.base, from, to, &mut state)?;
        self.committed.store(to, Ordering::Release);
        Ok(to)
    }

    /// Touches `[from, to)` so that no later access faults. Only committed bytes are touched; contents do not change.
    pub fn touch(&self, from: usize, to: usize) {
        let to = to.min(self.committed());
        if from >= to {
            return;
        }
        sys::populate(self.base, from, to);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the state half changed: it is written last.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        sys::release(self.base, self.reserved);
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("reserved", &self.reserved)
            .field("committed", &self.committed())
            .field("kind", &self.kind())
            .finish()
    }
}

/// The system calls.
#[cfg(not(miri))]
mod sys {
    use super::{HUGE_PAGE, MemError, PAGE, RegionKind, State};
    use core::ffi::c_void;
    use core::ptr::NonNull;
    use rustix::fs::{
        MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
    };
    use rustix::mm::{
        Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
    };
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    /// Neither side can make it smaller, which would kill who reads beyond the end, nor larger.
    const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

    pub(super) fn round_reserve(bytes: usize) -> usize {
        bytes.next_multiple_of(HUGE_PAGE)
    }

    pub(super) fn reserve(len: usize) -> Result<NonNull<u8>, MemError> {
        let padded = len + HUGE_PAGE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice aliases nothing.
        let raw =
            unsafe { mmap_anonymous(core::ptr::null_mut(), padded, ProtFlags::empty(), flags) }
                .map_err(|e| MemError::Reserve {
                    bytes: len,
                    errno: e.raw_os_error(),
                })?
                .cast::<u8>();
        let head = raw.align_offset(HUGE_PAGE);
        let base = raw.wrapping_add(head);
        // SAFETY: both pieces lie inside the mapping made above, outside the part that is kept. A refusal only
        // leaves a few reserved addresses behind.
        unsafe {
            if head > 0 {
                let _ = munmap(raw.cast::<c_void>(), head);
            }
            if head < HUGE_PAGE {
                let _ = munmap(base.wrapping_add(len).cast::<c_void>(), HUGE_PAGE - head);
            }
        }
        NonNull::new(base).ok_or(MemError::Reserve {
            bytes: len,
            errno: 12,
        })
    }

    /// Puts memory that has a descriptor where a reservation is: sealed, as it may not be taken away from those who have mapped it.
    pub(super) fn share(base: NonNull<u8>, len: usize) -> Result<OwnedFd, MemError> {
        let made = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let memory = memfd_create("janus-packets", flags)?;
            ftruncate(&memory, len as u64)?;
            fcntl_add_seals(&memory, FIXED | SealFlags::SEAL)?;
            Ok(memory)
        };
        let memory = made().map_err(|errno| refused(len, errno))?;
        map(base, len, memory.as_fd(), false)?;
        Ok(memory)
    }

    /// Maps it there, with rights or until they are given.
    pub(super) fn map(
        base: NonNull<u8>,
        len: usize,
        memory: BorrowedFd<'_>,
        rights: bool,
    ) -> Result<(), MemError> {
        let (flags, at) = (MapFlags::SHARED | MapFlags::FIXED, base.as_ptr().cast());
        let rights = match rights {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::empty(),
        };
        // SAFETY: the range is our own reservation, of which nothing is in use.
        unsafe { mmap(at, len, rights, flags, memory, 0) }.map_err(|errno| refused(len, errno))?;
        // SAFETY: as above; the advice changes no contents. Where there are no huge pages for such memory it says so, and has ordinary ones.
        let _ = unsafe { madvise(at, len, Advice::LinuxHugepage) };
        crate::unforked::keep_from_children(base, len);
        Ok(())
    }

    fn refused(bytes: usize, errno: rustix::io::Errno) -> MemError {
        let errno = errno.raw_os_error();
        MemError::Reserve { bytes, errno }
    }

    /// Whether it is a memfd of so many bytes for ever.
    pub(super) fn is_as_long(memory: BorrowedFd<'_>, bytes: usize) -> bool {
        let fixed = fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(FIXED));
        fixed && fstat(memory).is_ok_and(|stat| stat.st_size == bytes as i64)
    }

    /// Asks for huge pages; says what was had and whether reserved huge pages are worth trying.
    pub(super) fn advise(base: NonNull<u8>, len: usize) -> (RegionKind, bool) {
        // SAFETY: the range is our own reservation; the advice changes no contents.
        let transparent =
            unsafe { madvise(base.as_ptr().cast::<c_void>(), len, Advice::LinuxHugepage) }.is_ok();
        let kind = if transparent {
            RegionKind::Transparent
        } else {
            RegionKind::Plain
        };
        (kind, free_hugetlb_pages() > 0)
    }

    /// Asks for none; says likewise.
    pub(super) fn decline(base: NonNull<u8>, len: usize) -> (RegionKind, bool) {
        // SAFETY: the range is our own reservation; the advice changes no contents. A kernel without huge pages refuses it, and has none.
        let _ = unsafe { madvise(base.as_ptr().cast::<c_void>(), len, Advice::LinuxNoHugepage) };
        (RegionKind::Plain, false)
    }

    fn free_hugetlb_pages() -> usize {
        std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    }

    pub(super) fn commit(
        base: NonNull<u8>,
        from: usize,
        to: usize,
        state: &mut State,
    ) -> Result<(), MemError> {
        let at = base.as_ptr().wrapping_add(from).cast::<c_void>();
        let len = to - from;
        let rw = ProtFlags::READ | ProtFlags::WRITE;
        let whole = from.is_multiple_of(HUGE_PAGE) && to.is_multiple_of(HUGE_PAGE);
        if state.try_hugetlb && whole {
            if free_hugetlb_pages() * HUGE_PAGE >= len {
                let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::HUGETLB;
                // SAFETY: `[from, to)` is the uncommitted part of our own reservation: no reference into it exists.
                if unsafe { mmap_anonymous(at, len, rw, flags) }.is_ok() {
                    crate::unforked::is_mapped_anew(at, len);
                    state.kind = RegionKind::Hugetlb;
                    return Ok(());
                }
                // Kernels differ in whether the failed call has already torn down the old mapping. Put ordinary
                // memory there if so; if the place is taken we cannot know by whom, so the region stops growing.
                let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
                state.try_hugetlb = false;
                // SAFETY: NOREPLACE never touches an existing mapping.
                return unsafe { mmap_anonymous(at, len, rw, flags) }
                    .map(|_| ())
                    .map_err(|e| {
                        state.sealed = true;
                        MemError::Commit {
                            bytes: len,
                            errno: e.raw_os_error(),
                        }
                    });
            }
            state.try_hugetlb = false;
        }
        // SAFETY: `[from, to)` lies inside our own reservation; giving it rights invalidates nothing.
        unsafe { mprotect(at, len, MprotectFlags::READ | MprotectFlags::WRITE) }.map_err(|e| {
            MemError::Commit {
                bytes: len,
                errno: e.raw_os_error(),
            }
        })
    }

    pub(super) fn populate(base: NonNull<u8>, from: usize, to: usize) {
        let at = base.as_ptr().wrapping_add(from).cast::<c_void>();
        // SAFETY: the range is committed memory of our own; populating never changes contents (Linux 5.14).
        if unsafe { madvise(at, to - from, Advice::LinuxPopulateWrite) }.is_ok() {
            return;
        }
        for offset in (from..to).step_by(PAGE) {
            // SAFETY: the byte is committed memory of our own. The addition of zero is one atomic instruction, so it
            // loses no store of an owner who already uses the page.
            unsafe {
                let byte = base
                    .as_ptr()
                    .add(offset)
                    .cast::<core::sync::atomic::AtomicU8>();
                (*byte).fetch_add(0, core::sync::atomic::Ordering::Relaxed);
            }
        }
    }

    pub(super) fn release(base: NonNull<u8>, len: usize) {
        crate::unforked::forget(base);
        // SAFETY: called once, from Drop: whoever used the region held it alive until now.
        let done = unsafe { munmap(base.as_ptr().cast::<c_void>(), len) };
        debug_assert!(done.is_ok(), "munmap of our own mapping");
    }
}

/// Under Miri a region is one zeroed allocation: no reservation, no growth, but every access is checked.
#[cfg(miri)]
mod sys {
    use super::{MemError, PAGE, RegionKind, State};
    use core::ptr::NonNull;
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE).expect("a small region")
    }

    pub(super) fn round_reserve(bytes: usize) -> usize {
        bytes.next_multiple_of(PAGE)
    }

    pub(super) fn reserve(len: usize) -> Result<NonNull<u8>, MemError> {
        // SAFETY: the length is not zero: `Region::reserve` refused that.
        NonNull::new(unsafe { alloc_zeroed(layout(len)) }).ok_or(MemError::Reserve {
            bytes: len,
            errno: 12,
        })
    }

    pub(super) fn advise(_: NonNull<u8>, _: usize) -> (RegionKind, bool) {
        (RegionKind::Plain, false)
    }

    pub(super) fn decline(_: NonNull<u8>, _: usize) -> (RegionKind, bool) {
        (RegionKind::Plain, false)
    }

    pub(super) fn commit(
        _: NonNull<u8>,
        _: usize,
        _: usize,
        _: &mut State,
    ) -> Result<(), MemError> {
        Ok(())
    }

    pub(super) fn populate(_: NonNull<u8>, _: usize, _: usize) {}

    pub(super) fn release(base: NonNull<u8>, len: usize) {
        // SAFETY: allocated with the same layout by `reserve`, released once, from Drop.
        unsafe { dealloc(base.as_ptr(), layout(len)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_committed_prefix_reads_zero_and_keeps_what_is_written() {
        let region = Region::reserve(64 << 10).unwrap();
        assert_eq!(region.committed(), 0);
        assert_eq!(region.commit(1).unwrap(), PAGE);
        assert_eq!(region.commit(1).unwrap(), PAGE, "commit is idempotent");
        // SAFETY: the first page is committed and no other reference to it exists.
        let page = unsafe { core::slice::from_raw_parts_mut(region.base().as_ptr(), PAGE) };
        assert!(page.iter().all(|&b| b == 0));
        page[17] = 9;
        region.commit(4 * PAGE).unwrap();
        region.touch(0, 4 * PAGE);
        assert_eq!(page[17], 9, "touching changes nothing");
    }

    #[test]
    fn ordinary_pages_are_had_one_by_one() {
        let region = Region::reserve_in_pages(4 * HUGE_PAGE).unwrap();
        region.commit(4 * HUGE_PAGE).unwrap();
        assert_eq!(region.kind(), RegionKind::Plain);
        for at in [0, HUGE_PAGE, 3 * HUGE_PAGE + 5] {
            // SAFETY: the byte is committed, and the region is known here only.
            unsafe { region.base().as_ptr().add(at).write(7) };
        }
        #[cfg(not(miri))]
        assert!(resident(&region) <= 3 * PAGE, "{}", resident(&region));
    }

    /// Bytes of it that are there, as the kernel says.
    #[cfg(not(miri))]
    fn resident(region: &Region) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let base = format!("{:x}-", region.base().as_ptr().addr());
        let from = maps.find(&base).expect("it is mapped");
        let line = maps[from..].lines().find(|line| line.starts_with("Rss:"));
        let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
        kilobytes.parse::<usize>().unwrap() << 10
    }

    #[test]
    fn commits_stop_at_the_reservation() {
        let region = Region::reserve(PAGE).unwrap();
        let all = region.commit(usize::MAX / 2).unwrap();
        assert_eq!(all, region.reserved());
        region.touch(all + PAGE, usize::MAX);
    }

    #[test]
    #[cfg(not(miri))]
    fn another_mapping_of_shared_memory_has_what_is_written() {
        use std::os::fd::AsFd;
        use std::os::unix::fs::FileExt;
        let (region, memory) = Region::reserve_shared(5 * PAGE).unwrap();
        region.commit(2 * PAGE).unwrap();
        // SAFETY: the byte is committed, and the region is known here only.
        unsafe { region.base().as_ptr().add(PAGE + 3).write(7) };
        let memory = std::fs::File::from(memory);
        let mut seen = [0; 2];
        memory.read_exact_at(&mut seen, PAGE as u64 + 2).unwrap();
        assert_eq!(seen, [0, 7]);
        assert_eq!(memory.metadata().unwrap().len(), region.reserved() as u64);
        assert!(memory.set_len(0).is_err(), "it is sealed");
        let bytes = region.reserved();
        let theirs = Region::map_shared(memory.as_fd(), bytes).unwrap();
        assert_eq!(theirs.committed(), bytes);
        // SAFETY: the byte is in the mapping, and this thread alone knows that.
        assert_eq!(unsafe { theirs.base().as_ptr().add(PAGE + 3).read() }, 7);
        for wrong in [bytes - PAGE, bytes + HUGE_PAGE] {
            assert!(
                Region::map_shared(memory.as_fd(), wrong).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert_eq!(Region::reserve(0).unwrap_err(), MemError::BadSize);
        assert_eq!(Region::reserve(usize::MAX).unwrap_err(), MemError::BadSize);
    }

    #[test]
    #[cfg(not(miri))]
    fn big_reservations_cost_addresses_only() {
        let region = Region::reserve(64 << 30).unwrap();
        assert_eq!(region.base().as_ptr() as usize % HUGE_PAGE, 0);
        region.commit(3 * HUGE_PAGE).unwrap();
        region.touch(2 * HUGE_PAGE, 3 * HUGE_PAGE);
    }
}
