//! Raw blocks for tasks: a few size classes cut from one reserved range, addressed by a 30-bit granule number so that
//! a waker can carry it. What is inside a block, its generation among it, is the executor's.

use crate::growth::{Grown, Growth};
use crate::region::MemError;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

/// Bytes per granule: blocks begin at multiples of it, one cache line.
pub const GRANULE: usize = 64;
/// Most granules an arena can have: numbers are 30 bits wide.
const GRANULES_MAX: u32 = 1 << 30;
/// No block.
const NONE: u32 = u32::MAX;
/// Where a free block keeps the number of the next one: the end of its first line, so that what the owner keeps at
/// the front survives, and one line is enough to take a block.
const LINK_OFFSET: usize = GRANULE - size_of::<u32>();

/// Sizes of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SizeClass {
    /// 64 bytes.
    B64,
    /// 128 bytes.
    B128,
    /// 256 bytes.
    B256,
    /// 512 bytes.
    B512,
    /// 1,024 bytes.
    B1024,
    /// 2,048 bytes.
    B2048,
    /// 4,096 bytes.
    B4096,
}

impl SizeClass {
    /// All classes, smallest first.
    pub const ALL: [Self; 7] = [
        Self::B64,
        Self::B128,
        Self::B256,
        Self::B512,
        Self::B1024,
        Self::B2048,
        Self::B4096,
    ];

    /// The smallest class that holds `bytes`; `None` above 4,096.
    #[inline]
    pub const fn of(bytes: usize) -> Option<Self> {
        let mut n = 0;
        while n < Self::ALL.len() {
            if bytes <= Self::ALL[n].bytes() {
                return Some(Self::ALL[n]);
            }
            n += 1;
        }
        None
    }

    /// Bytes in a block of this class.
    #[inline]
    pub const fn bytes(self) -> usize {
        GRANULE << self as usize
    }

    /// Granules in a block of this class.
    #[inline]
    const fn granules(self) -> u32 {
        1 << self as u32
    }
}

/// Size-classed blocks in one reserved range; addresses never move.
///
/// A block keeps its class for ever, and a free block keeps its contents except for the bytes 60 to 63. A fresh block
/// is all zero. So an owner who keeps a generation in the first 60 bytes finds it again.
pub struct SlotArena {
    base: NonNull<u8>,
    /// First granule never handed out.
    fresh: u32,
    limit: u32,
    kick: u32,
    max: u32,
    free: [u32; SizeClass::ALL.len()],
    used: [u32; SizeClass::ALL.len()],
    grown: Arc<Grown>,
}

// SAFETY: the arena owns its range; blocks are only handed out as raw pointers, whose use is the caller's promise.
unsafe impl Send for SlotArena {}

impl SlotArena {
    /// An arena of at most `granules` granules of 64 bytes.
    pub fn new(granules: u32, growth: &Growth) -> Result<Self, MemError> {
        if granules == 0 || granules > GRANULES_MAX {
            return Err(MemError::BadSize);
        }
        let grown = Grown::new(granules as usize * GRANULE, growth)?;
        let mut arena = Self {
            base: grown.region().base(),
            fresh: 0,
            limit: 0,
            kick: 0,
            max: granules,
            free: [NONE; SizeClass::ALL.len()],
            used: [0; SizeClass::ALL.len()],
            grown,
        };
        arena.refresh_limit();
        Ok(arena)
    }

    /// Takes a block: the most recently freed one of the class, else a fresh, zeroed one. `None` when the arena is
    /// full or the machine has no memory left.
    #[inline]
    pub fn alloc(&mut self, class: SizeClass) -> Option<u32> {
        let head = self.free[class as usize];
        let granule = if head != NONE {
            // SAFETY: a listed block is free, lies in ready memory, and holds the next number where `free` put it.
            self.free[class as usize] = unsafe { self.link(head).read() };
            head
        } else {
            self.alloc_fresh(class.granules())?
        };
        self.used[class as usize] += 1;
        Some(granule)
    }

    #[inline]
    fn alloc_fresh(&mut self, granules: u32) -> Option<u32> {
        let granule = self.fresh;
        if granule + granules > self.kick && !self.extend(granules) {
            return None;
        }
        self.fresh = granule + granules;
        Some(granule)
    }

    #[cold]
    fn extend(&mut self, granules: u32) -> bool {
        if self.fresh + granules <= self.limit {
            self.grown.ask_ahead();
            self.kick = self.limit;
            return true;
        }
        if self.fresh + granules > self.max {
            return false;
        }
        self.refresh_limit();
        while self.fresh + granules > self.limit && self.grown.grow_now() {
            self.refresh_limit();
        }
        self.fresh + granules <= self.limit
    }

    fn refresh_limit(&mut self) {
        let granules = (self.grown.ready() / GRANULE).min(self.max as usize);
        self.limit = granules as u32;
        self.kick = self.fresh + (self.limit - self.fresh) / 2;
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// `granule` came from [`alloc`](Self::alloc) with this `class` and was not freed since; nothing uses the block's
    /// bytes 60 to 63 until it is handed out again.
    #[inline]
    pub unsafe fn free(&mut self, granule: u32, class: SizeClass) {
        debug_assert!(granule < self.fresh && self.used[class as usize] > 0);
        // SAFETY: the caller's promise: the block is ours from here on and lies in ready memory.
        unsafe { self.link(granule).write(self.free[class as usize]) };
        self.free[class as usize] = granule;
        self.used[class as usize] -= 1;
    }

    /// Address of a block. Any number gives an address; only blocks handed out may be accessed there.
    #[inline(always)]
    pub fn ptr(&self, granule: u32) -> NonNull<u8> {
        let at = self.base.as_ptr().wrapping_add(granule as usize * GRANULE);
        // SAFETY: a granule number times 64 is below 2^38, so from a user-space base it cannot wrap round to null.
        unsafe { NonNull::new_unchecked(at) }
    }

    /// Whether `granule` lies in the part of the arena ever handed out.
    #[inline]
    pub fn contains(&self, granule: u32) -> bool {
        granule < self.fresh
    }

    /// Brings a block's first cache line close; any number is allowed.
    #[inline(always)]
    pub fn prefetch(&self, granule: u32) {
        crate::prefetch(self.ptr(granule).as_ptr());
    }

    #[inline(always)]
    fn link(&self, granule: u32) -> *mut u32 {
        self.ptr(granule).as_ptr().wrapping_add(LINK_OFFSET).cast()
    }

    /// Blocks of a class in use.
    pub fn used(&self, class: SizeClass) -> u32 {
        self.used[class as usize]
    }

    /// Bytes in blocks in use.
    pub fn used_bytes(&self) -> usize {
        SizeClass::ALL
            .iter()
            .map(|&class| self.used(class) as usize * class.bytes())
            .sum()
    }

    /// Memory made ready for blocks.
    pub fn committed_bytes(&self) -> usize {
        self.grown.ready()
    }

    /// How often a chunk was not there in time although a toucher grows this arena.
    pub fn late(&self) -> u64 {
        self.grown.late()
    }
}

impl fmt::Debug for SlotArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotArena")
            .field("used_bytes", &self.used_bytes())
            .field("committed_bytes", &self.committed_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_fit_what_they_are_asked_for() {
        assert_eq!(SizeClass::of(0), Some(SizeClass::B64));
        assert_eq!(SizeClass::of(64), Some(SizeClass::B64));
        assert_eq!(SizeClass::of(65), Some(SizeClass::B128));
        assert_eq!(SizeClass::of(4096), Some(SizeClass::B4096));
        assert_eq!(SizeClass::of(4097), None);
        for class in SizeClass::ALL {
            assert_eq!(class.bytes(), class.granules() as usize * GRANULE);
        }
    }

    #[test]
    fn blocks_do_not_overlap_and_keep_their_front_when_freed() {
        let mut arena = SlotArena::new(4096, &Growth::Inline).unwrap();
        let mut blocks = Vec::new();
        for round in 0..10u8 {
            for class in SizeClass::ALL {
                let granule = arena.alloc(class).unwrap();
                let at = arena.ptr(granule).as_ptr();
                // SAFETY: the block is ours and `class.bytes()` long.
                unsafe {
                    assert_eq!(at.read(), 0, "fresh blocks are zero");
                    at.write_bytes(round + 1, class.bytes());
                }
                blocks.push((granule, class, round + 1));
            }
        }
        for &(granule, class, value) in &blocks {
            // SAFETY: handed out above, and written.
            let block =
                unsafe { core::slice::from_raw_parts(arena.ptr(granule).as_ptr(), class.bytes()) };
            assert!(block.iter().all(|&b| b == value));
        }
        let (granule, class, value) = blocks[3];
        // SAFETY: handed out with this class, freed once.
        unsafe { arena.free(granule, class) };
        assert_eq!(arena.used(class), 9);
        // SAFETY: the memory stays readable; only the link's bytes have changed.
        let front = unsafe { core::slice::from_raw_parts(arena.ptr(granule).as_ptr(), 60) };
        assert!(front.iter().all(|&b| b == value));
        assert_eq!(arena.alloc(class), Some(granule), "last in, first out");
    }

    #[test]
    fn a_full_arena_says_so() {
        let mut arena = SlotArena::new(100, &Growth::Inline).unwrap();
        assert!(arena.alloc(SizeClass::B4096).is_some());
        assert!(arena.alloc(SizeClass::B4096).is_none());
        let small = core::iter::from_fn(|| arena.alloc(SizeClass::B64)).count();
        assert_eq!(small, 36);
        assert_eq!(arena.used_bytes(), 100 * GRANULE);
    }

    #[test]
    fn growth_is_followed() {
        let many = if cfg!(miri) { 3_000 } else { 300_000 };
        let mut arena = SlotArena::new(many, &Growth::Inline).unwrap();
        for n in 0..many {
            assert_eq!(arena.alloc(SizeClass::B64), Some(n));
        }
        assert!(arena.committed_bytes() >= many as usize * GRANULE);
    }
}
