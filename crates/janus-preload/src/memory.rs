//! Memory of the library's: libc's, but not in a handler. What that has interrupted may be `malloc`, whose lock its thread has then. There memory
//! comes from a range of the library's own, and libc's waits to be given back until no handler runs.

use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::alloc::{GlobalAlloc, Layout, System};

use janus_process::interrupts;

use crate::inside::Inside;

/// Bytes of the range, which are the kernel's until they are used.
const RANGE: usize = 256 << 20;
/// Bytes that are made usable at a time, and the least of them that a piece has.
const STEP: usize = 64 << 10;
const PIECE_MIN: usize = 64;
/// Sizes of pieces: powers of two.
const SIZES: usize = (RANGE / PIECE_MIN).ilog2() as usize + 1;
/// The range begins with a page.
const ALIGN_MAX: usize = 4096;

/// While it lives, a handler runs on this thread, whatever it has interrupted. One that is left by a jump leaves the thread as it is, and its
/// memory in the range.
pub(crate) struct Handling(bool);

impl Handling {
    pub(crate) fn begin() -> Handling {
        Handling(interrupts::in_handler(true))
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        interrupts::in_handler(self.0);
    }
}

struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

// SAFETY: pieces are libc's, or of the range, by their addresses, and each goes back to where it is from.
unsafe impl GlobalAlloc for Memory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if interrupts::is_in_handler() && layout.align() <= ALIGN_MAX {
            return OWN.take(layout);
        }
        give_back_what_waits();
        // SAFETY: the caller keeps the contract, here and below.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above; a piece of the range is so long.
        unsafe {
            if !interrupts::is_in_handler() {
                return System.alloc_zeroed(layout);
            }
            let piece = self.alloc(layout);
            if !piece.is_null() {
                piece.write_bytes(0, layout.size());
            }
            piece
        }
    }

    #[inline]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if OWN.has(piece) {
            OWN.give_back(piece, layout);
        } else if interrupts::is_in_handler() {
            waits(piece);
        } else {
            // SAFETY: as above.
            unsafe { System.dealloc(piece, layout) }
        }
    }

    #[inline]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; both pieces are as long as what is copied.
        unsafe {
            if !interrupts::is_in_handler() && !OWN.has(piece) {
                return System.realloc(piece, layout, size);
            }
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(piece, layout.size().min(size));
                self.dealloc(piece, layout);
            }
            new
        }
    }
}

/// A piece that is free, in a list.
struct Free {
    next: *mut Free,
}

/// Pieces of libc's that handlers have given back.
static WAITING: AtomicPtr<Free> = AtomicPtr::new(null_mut());

/// libc's pieces have room for an address.
fn waits(piece: *mut u8) {
    let piece: *mut Free = piece.cast();
    let mut next = WAITING.load(Ordering::Relaxed);
    loop {
        // SAFETY: it is free, and as large.
        unsafe { piece.write(Free { next }) };
        match WAITING.compare_exchange_weak(next, piece, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => next = now,
        }
    }
}

#[inline]
fn give_back_what_waits() {
    if !WAITING.load(Ordering::Relaxed).is_null() {
        give_all_back(WAITING.swap(null_mut(), Ordering::Acquire));
    }
}

#[cold]
fn give_all_back(mut piece: *mut Free) {
    while !piece.is_null() {
        // SAFETY: it is in the list, which is this thread's now, and libc's.
        unsafe {
            let next = (*piece).next;
            libc::free(piece.cast());
            piece = next;
        }
    }
}

/// The range. A fork may find another thread at work in it: it is whole after each store.
struct Own {
    /// Where it begins; 0 before it is there.
    begin: AtomicUsize,
    taken: AtomicBool,
    state: UnsafeCell<State>,
}

struct State {
    /// Bytes that were ever given, and that are usable.
    given: usize,
    usable: usize,
    free: [*mut Free; SIZES],
}

// SAFETY: the state is used by who has taken it.
unsafe impl Sync for Own {}

static OWN: Own = Own {
    begin: AtomicUsize::new(0),
    taken: AtomicBool::new(false),
    state: UnsafeCell::new(State {
        given: 0,
        usable: 0,
        free: [null_mut(); SIZES],
    }),
};

/// In a forked child: the thread that was at work in it is not there.
pub(crate) fn in_child() {
    OWN.taken.store(false, Ordering::Release);
}

/// The size of the pieces that such a layout gets, and which of all sizes that is.
fn size_of(layout: Layout) -> (usize, usize) {
    let size = layout.size().max(layout.align()).max(PIECE_MIN);
    let size = size.next_power_of_two();
    (size, (size / PIECE_MIN).ilog2() as usize)
}

impl Own {
    #[inline]
    fn has(&self, piece: *mut u8) -> bool {
        let begin = self.begin.load(Ordering::Relaxed);
        begin != 0 && piece.addr().wrapping_sub(begin) < RANGE
    }

    fn with<R>(&self, does: impl FnOnce(&mut State) -> R) -> R {
        // Another handler on this thread would wait for ever.
        let _inside = Inside::enter();
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: it is this thread's until it is given back.
        let done = does(unsafe { &mut *self.state.get() });
        self.taken.store(false, Ordering::Release);
        done
    }

    /// Null: there is none.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        let (size, which) = size_of(layout);
        self.with(|state| {
            let free = *state.free.get(which)?;
            if free.is_null() {
                return self.new_piece(state, size);
            }
            // SAFETY: it is in the list.
            state.free[which] = unsafe { (*free).next };
            Some(free.cast())
        })
        .unwrap_or(null_mut())
    }

    #[cold]
    fn give_back(&self, piece: *mut u8, layout: Layout) {
        let (_, which) = size_of(layout);
        self.with(|state| {
            let (piece, next): (*mut Free, _) = (piece.cast(), state.free[which]);
            // SAFETY: it is free, and as large.
            unsafe { piece.write(Free { next }) };
            state.free[which] = piece;
        });
    }

    fn new_piece(&self, state: &mut State, size: usize) -> Option<*mut u8> {
        let begin = self.reserved()?;
        let at = state.given.next_multiple_of(size);
        let end = at.checked_add(size).filter(|end| *end <= RANGE)?;
        if end > state.usable {
            let usable = end.next_multiple_of(STEP);
            let (from, len) = (state.usable, usable - state.usable);
            // SAFETY: nothing of this part of the range was given yet.
            let done = unsafe {
                libc::mprotect(
                    begin.add(from).cast(),
                    len,
                    libc::PROT_READ | libc::PROT_WRITE,
                )
            };
            if done != 0 {
                return None;
            }
            state.usable = usable;
        }
        state.given = end;
        // SAFETY: the range goes beyond it.
        Some(unsafe { begin.add(at) })
    }

    fn reserved(&self) -> Option<*mut u8> {
        let begin = self.begin.load(Ordering::Relaxed);
        if begin != 0 {
            return Some(core::ptr::with_exposed_provenance_mut(begin));
        }
        // SAFETY: a new place, that nothing can be done with yet.
        let place = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            libc::mmap(null_mut(), RANGE, libc::PROT_NONE, flags, -1, 0)
        };
        if place == libc::MAP_FAILED {
            return None;
        }
        self.begin
            .store(place.expose_provenance(), Ordering::Relaxed);
        Some(place.cast())
    }
}
