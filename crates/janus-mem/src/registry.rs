//! The process-wide table from region number to memory, and the part of a depot that handles can reach without
//! holding it: where a dropped buffer goes. Entries are never freed, only reused, so a thread that is just returning
//! a buffer may still look at one after its depot is gone. The pools' side is `depot.rs`.

use crate::buffer_reclaim::{BufferReclaim, Last};
use crate::frame::SLOT_SIZE;
use crate::growth::Grown;
use crate::part::REGION_BITS;
use crate::region::MemError;
use crate::stacks::{Magazines, Strays};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Region numbers are as wide as a part has room for.
const REGIONS_MAX: usize = 1 << REGION_BITS;
/// Where slot 0 of each region would be (slots are counted from 1, so it lies before the region): all that the hot
/// path needs. Zero pages, touched as used.
static BASES: [AtomicPtr<u8>; REGIONS_MAX] = [const { AtomicPtr::new(null_mut()) }; REGIONS_MAX];
static ENTRIES: [AtomicPtr<Entry>; REGIONS_MAX] =
    [const { AtomicPtr::new(null_mut()) }; REGIONS_MAX];
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers {
    next: 0,
    free: Vec::new(),
});
static ORPHANED: AtomicUsize = AtomicUsize::new(0);

struct Numbers {
    next: usize,
    free: Vec<u16>,
}

/// State that the handles of one region share. Lives forever; serves one depot after another.
pub(crate) struct Entry {
    pub(crate) id: u16,
    pub(crate) magazines: Magazines,
    /// Buffers dropped one by one.
    pub(crate) returned: Strays,
    /// Those in `magazines` and in `returned` are home.
    pub(crate) reclaim: BufferReclaim<Mapping>,
    /// Buffers that came back one by one, ever.
    pub(crate) strays: AtomicU64,
    links: AtomicPtr<AtomicU32>,
}

/// Memory that is given back to the system when a depot is gone and its last buffer is home.
pub(crate) struct Mapping {
    grown: Arc<Grown>,
    links: *mut [AtomicU32],
}

// SAFETY: `links` is an owned allocation of atomics, touched only through `Entry::link` and freed in `reap`.
unsafe impl Send for Mapping {}

#[inline(always)]
pub(crate) fn base(region: u16) -> *mut u8 {
    // Relaxed: the handle that carries the number reached this thread by a path that synchronised.
    BASES[region as usize].load(Ordering::Relaxed)
}

/// Depots dropped while buffers of theirs were still out: their memory stays mapped until the last one is dropped.
pub fn orphaned_depots() -> usize {
    ORPHANED.load(Ordering::Relaxed)
}

/// A buffer was dropped: it goes onto its region's chain, whoever drops it.
#[cold]
#[inline(never)]
pub(crate) fn bring_home(region: u16, slot: u32) {
    let entry = ENTRIES[region as usize].load(Ordering::Acquire);
    // SAFETY: a handle exists only for a registered region, and entries are never freed.
    let entry = unsafe { &*entry };
    entry.returned.push(slot, |slot| entry.link(slot));
    entry.strays.fetch_add(1, Ordering::Relaxed);
    // From here on the slot is no longer ours, and with it any claim on the mapping: only the entry may be touched.
    if let Some(last) = entry.reclaim.put_back_one() {
        entry.reap(last);
    }
}

/// Gives a region a number and its entry.
pub(crate) fn register(grown: &Arc<Grown>, slots: u32) -> Result<&'static Entry, MemError> {
    let id = {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        match numbers.free.pop() {
            Some(id) => id,
            None if numbers.next < REGIONS_MAX => {
                numbers.next += 1;
                (numbers.next - 1) as u16
            }
            None => return Err(MemError::TooManyRegions),
        }
    };
    let mut entry = ENTRIES[id as usize].load(Ordering::Acquire);
    if entry.is_null() {
        entry = Box::into_raw(Box::new(Entry::new(id)));
        ENTRIES[id as usize].store(entry, Ordering::Release);
    }
    // SAFETY: entries are never freed.
    let entry = unsafe { &*entry };
    let links = Box::into_raw(zeroed_links(slots as usize + 1));
    entry
        .links
        .store(links.cast::<AtomicU32>(), Ordering::Release);
    let slot_zero = grown.region().base().as_ptr().wrapping_sub(SLOT_SIZE);
    BASES[id as usize].store(slot_zero, Ordering::Release);
    entry.reclaim.begin(Mapping {
        grown: Arc::clone(grown),
        links,
    });
    Ok(entry)
}

/// Zeroed by the allocator, so that big tables cost memory only where used.
fn zeroed_links(len: usize) -> Box<[AtomicU32]> {
    let zeroed = Box::<[AtomicU32]>::new_zeroed_slice(len);
    // SAFETY: all-zero bytes are a valid AtomicU32.
    unsafe { zeroed.assume_init() }
}

impl Entry {
    fn new(id: u16) -> Self {
        Self {
            id,
            magazines: Magazines::new(),
            returned: Strays::new(),
            reclaim: BufferReclaim::new(),
            strays: AtomicU64::new(0),
            links: AtomicPtr::new(null_mut()),
        }
    }

    /// The link of a slot. The caller holds a slot of this region or a pool, so the links are there.
    #[inline]
    pub(crate) fn link(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: the links have one entry for every slot number ever handed out, and stay until every slot is home
        // and the depot is gone; the caller's slot or pool keeps that from being so.
        unsafe { &*self.links.load(Ordering::Relaxed).add(slot as usize) }
    }

    /// The depot and all its pools are gone: unmaps now, or when the last buffer comes home.
    pub(crate) fn orphan(&self) {
        ORPHANED.fetch_add(1, Ordering::Relaxed);
        if let Some(last) = self.reclaim.orphan() {
            self.reap(last);
        }
    }

    fn reap(&self, last: Last<'_, Mapping>) {
        BASES[self.id as usize].store(null_mut(), Ordering::Release);
        self.links.store(null_mut(), Ordering::Release);
        self.magazines.clear();
        self.returned.clear();
        self.strays.store(0, Ordering::Release);
        let Mapping { grown, links } = last.finish();
        // SAFETY: made by Box::into_raw in `register`; every slot is home and no pool is left, so no thread follows a link any more, and a
        // mapping is handed out once.
        drop(unsafe { Box::from_raw(links) });
        drop(grown);
        ORPHANED.fetch_sub(1, Ordering::Relaxed);
        NUMBERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .free
            .push(self.id);
    }
}
