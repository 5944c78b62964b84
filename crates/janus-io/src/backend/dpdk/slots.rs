//! The packet buffers of a depot as DPDK's mbufs: drivers take their receive buffers from our pools and give what they
//! have sent back there, each buffer with an mbuf of its own for good, so that no payload is ever copied. A lent buffer
//! comes back to the queue that sent it the moment the driver frees its mbuf, on whatever thread. Holds no port.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{CString, c_int, c_void};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use janus_dpdk_sys::{check, ffi};
use janus_mem::{Depot, Frame, HEADROOM, PacketBuf, Pool, RegionKind, SLOT_SIZE};

/// Return value of a hook when there are no buffers: `-ENOBUFS`.
const NO_BUFFERS: c_int = -105;
/// The page that huge memory consists of.
const HUGE: u64 = 2 << 20;
const PLAIN: u64 = 4096;

/// A depot's buffers with their mbufs.
pub(super) struct Slots {
    raw: NonNull<ffi::jd_slots>,
    /// State that the hooks read; its address must not change.
    shared: Box<Shared>,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mbufs' pool is made for any thread; `base` is only handed to DPDK.
unsafe impl Send for Slots {}
// SAFETY: as above; nothing here changes after `new`.
unsafe impl Sync for Slots {}

struct Shared {
    region: u16,
    depot: Arc<Depot>,
    /// For DPDK's calls on threads that poll no queue of this depot: while a port is set up, and when it ends.
    spare: Mutex<Pool>,
    /// Buffers that drivers hold, by those calls; the queues count theirs.
    held: AtomicIsize,
}

/// State that a queue and the hooks share: where the queue's lent buffers come back to.
#[derive(Default)]
pub(super) struct Home {
    /// Buffers that drivers took on this queue's calls, less what they gave back there. Written by its thread.
    held: AtomicIsize,
    /// Like `held`, but for calls on threads that poll no queue.
    held_elsewhere: AtomicIsize,
    /// Came back on another thread.
    elsewhere: Mutex<Vec<Frame>>,
    any_elsewhere: AtomicBool,
}

/// A call into DPDK on a queue's thread: what the hooks may use until it returns.
struct Turn {
    /// Null where it is not of this depot.
    pool: *mut Pool,
    region: u16,
    finished: *mut VecDeque<Frame>,
    home: *const Home,
}

thread_local! {
    static TURN: Cell<*const Turn> = const { Cell::new(ptr::null()) };
}

impl Home {
    /// Moves what came back on other threads to `finished`.
    pub(super) fn bring(&self, finished: &mut VecDeque<Frame>) {
        if self.any_elsewhere.load(Ordering::Acquire) {
            let mut elsewhere = lock(&self.elsewhere);
            self.any_elsewhere.store(false, Ordering::Relaxed);
            finished.extend(elsewhere.drain(..));
        }
    }

    /// Buffers that drivers took here, less what they gave back.
    pub(super) fn held(&self) -> isize {
        self.held.load(Ordering::SeqCst) + self.held_elsewhere.load(Ordering::SeqCst)
    }

    /// Adds `n` buffers that went to a driver (or came from it, below zero). By the queue's own thread only.
    #[inline]
    pub(super) fn add(&self, n: isize) {
        // One writer: a load and a store, instead of a locked add.
        let held = self.held.load(Ordering::Relaxed);
        self.held.store(held + n, Ordering::Relaxed);
    }
}

impl Slots {
    /// Makes all of the depot's memory ready, shows it to DPDK and gives each buffer its mbuf.
    pub(super) fn new(depot: &Arc<Depot>) -> io::Result<Slots> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let slots = depot.ready_all().map_err(io::Error::other)?;
        let shared = Box::new(Shared {
            region: slots.region,
            depot: depot.clone(),
            spare: Mutex::new(depot.pool()),
            held: AtomicIsize::new(0),
        });
        let config = ffi::jd_slots_config {
            hooks: ffi::jd_hooks {
                context: ptr::from_ref(&*shared).cast_mut().cast(),
                take,
                give,
                finish,
                available,
            },
            base: slots.base.as_ptr().cast(),
            count: slots.count,
            slot_size: SLOT_SIZE as u16,
            region: slots.region,
            socket: -1,
            reserved: 0,
        };
        let huge = slots.kind == RegionKind::Hugetlb && (slots.len as u64).is_multiple_of(HUGE);
        let page = if huge { HUGE } else { PLAIN };
        // SAFETY: the memory is the depot's and stays mapped as long as it lives, which `shared` sees to.
        check(unsafe { ffi::jd_memory_add(config.base, slots.len as u64, page) })
            .map_err(|error| io::Error::other(format!("DPDK takes no packet buffers: {error}")))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("janus{number}")).expect("no zero in it");
        let mut error = 0;
        // SAFETY: `config` is read during the call only; its context and memory live as long as the slots do.
        let raw = unsafe { ffi::jd_slots_create(name.as_ptr(), &raw const config, &raw mut error) };
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: registered above, and no device has seen it.
            let _ = unsafe { ffi::jd_memory_remove(config.base, slots.len as u64) };
            let error = check(error).err().map_or(String::new(), |e| e.to_string());
            return Err(io::Error::other(format!(
                "DPDK has no memory for {} mbufs ({error}): lower `packet_buffers`, or give it more with `-m`",
                slots.count
            )));
        };
        Ok(Slots {
            raw,
            shared,
            base: slots.base,
            len: slots.len,
        })
    }

    pub(super) fn raw(&self) -> *mut ffi::jd_slots {
        self.raw.as_ptr()
    }

    /// Returns the mempool for a port's receive queues.
    pub(super) fn pool(&self) -> *mut ffi::rte_mempool {
        // SAFETY: the slots live.
        unsafe { ffi::jd_slots_pool(self.raw()) }
    }

    pub(super) fn region(&self) -> u16 {
        self.shared.region
    }

    /// Shows the buffers to a port's device.
    pub(super) fn map_for(&self, port: u16) -> Result<(), janus_dpdk_sys::Error> {
        // SAFETY: the memory is registered and lives as long as this does, which the port's owner holds.
        check(unsafe { ffi::jd_memory_map(port, self.base.as_ptr().cast(), self.len as u64) })
            .map(|_| ())
    }

    /// Buffers that drivers hold through calls on no queue's thread; with what the homes count, all they hold.
    pub(super) fn held(&self) -> isize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Ends them for good. `held_by_homes` is what all homes together count.
    pub(super) fn end(self: Box<Self>, held_by_homes: isize) {
        if self.held() + held_by_homes != 0 {
            // A driver that is closed still has some: what it may touch must stay, so it is never freed.
            Box::leak(self);
            return;
        }
        // SAFETY: no driver holds an mbuf of it and the port that was given the pool is closed; both calls happen once,
        // as `self` ends here.
        unsafe {
            ffi::jd_slots_free(self.raw.as_ptr());
            let _ = ffi::jd_memory_remove(self.base.as_ptr().cast(), self.len as u64);
        }
    }

    /// Calls DPDK on a queue's thread: meanwhile its hooks use `pool`, and what comes back goes to `finished`.
    #[inline]
    pub(super) fn in_turn<R>(
        &self,
        pool: &mut Pool,
        finished: &mut VecDeque<Frame>,
        home: &Home,
        call: impl FnOnce() -> R,
    ) -> R {
        /// Also when `call` panics nothing of this stack frame stays behind.
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                TURN.set(ptr::null());
            }
        }
        let ours = Arc::ptr_eq(pool.depot(), &self.shared.depot);
        let turn = Turn {
            pool: if ours { pool } else { ptr::null_mut() },
            region: self.shared.region,
            finished,
            home,
        };
        TURN.set(&raw const turn);
        let _reset = Reset;
        call()
    }

    /// A buffer of this depot, for who has no pool of it.
    pub(super) fn alloc(&self) -> Option<PacketBuf> {
        lock(&self.shared.spare).alloc()
    }

    /// Gives back what calls outside of turns have in stock.
    pub(super) fn flush_spare(&self) {
        lock(&self.shared.spare).flush();
    }
}

/// A buffer of this region by its slot's number.
///
/// # Safety
/// The slot is the caller's alone.
#[inline]
pub(super) unsafe fn buffer(region: u16, slot: u32, off: u16) -> PacketBuf {
    let raw = u64::from(slot) | u64::from(region) << 32 | u64::from(off) << 48;
    // SAFETY: the number that `PacketBuf::into_raw` gives for this slot, whose only owner the caller is.
    unsafe { PacketBuf::from_raw(raw) }
}

/// The frame that was lent.
///
/// # Safety
/// As [`buffer`].
#[inline]
pub(super) unsafe fn frame(packet: &ffi::jd_slot) -> Frame {
    // SAFETY: the caller's.
    let buf = unsafe { buffer(packet.region, packet.slot, packet.off) };
    let mut frame = Frame::new(buf, packet.len);
    (frame.tag, frame.key) = (packet.tag, packet.key);
    frame
}

/// The turn on this thread, if it is one of a queue of this depot, with a pool of it.
#[inline]
fn turn_of(region: u16) -> Option<*const Turn> {
    let turn = TURN.get();
    // SAFETY: not null: `in_turn` is on this thread's stack, and its `Turn` lives until it returns.
    let ours = |turn: *const Turn| unsafe { (*turn).region == region && !(*turn).pool.is_null() };
    (!turn.is_null() && ours(turn)).then_some(turn)
}

unsafe extern "C" fn take(context: *mut c_void, slots: *mut u32, count: u32) -> c_int {
    // SAFETY: the context is the `Shared` that the hooks were made with, which outlives the slots.
    let shared = unsafe { &*context.cast::<Shared>() };
    // SAFETY: the shim asks for `count` numbers and has room for them.
    let out = unsafe { std::slice::from_raw_parts_mut(slots, count as usize) };
    match turn_of(shared.region) {
        // SAFETY: `in_turn` borrows the pool for the length of this call, on this thread.
        Some(turn) => unsafe {
            let taken = take_from(&mut *(*turn).pool, shared.region, out);
            if taken == 0 {
                (*(*turn).home).add(out.len() as isize);
            }
            taken
        },
        None => {
            let taken = take_from(&mut lock(&shared.spare), shared.region, out);
            if taken == 0 {
                shared.held.fetch_add(out.len() as isize, Ordering::SeqCst);
            }
            taken
        }
    }
}

/// All or none.
fn take_from(pool: &mut Pool, region: u16, out: &mut [u32]) -> c_int {
    for at in 0..out.len() {
        let Some(buf) = pool.alloc_reserved() else {
            for &slot in &out[..at] {
                // SAFETY: taken just now and handed to no one else.
                pool.free(unsafe { buffer(region, slot, HEADROOM) });
            }
            return NO_BUFFERS;
        };
        out[at] = buf.into_raw() as u32;
    }
    0
}

unsafe extern "C" fn give(context: *mut c_void, slots: *const u32, count: u32) {
    // SAFETY: as in `take`.
    let shared = unsafe { &*context.cast::<Shared>() };
    // SAFETY: the shim gives `count` numbers.
    let slots = unsafe { std::slice::from_raw_parts(slots, count as usize) };
    let put = |pool: &mut Pool| {
        for &slot in slots {
            // SAFETY: the driver owned the slot and has given it up.
            pool.free(unsafe { buffer(shared.region, slot, HEADROOM) });
        }
    };
    match turn_of(shared.region) {
        // SAFETY: as in `take`.
        Some(turn) => unsafe {
            put(&mut *(*turn).pool);
            (*(*turn).home).add(-(count as isize));
        },
        None => {
            put(&mut lock(&shared.spare));
            shared.held.fetch_sub(count as isize, Ordering::SeqCst);
        }
    }
}

unsafe extern "C" fn finish(home: *mut c_void, loan: *const ffi::jd_slot) {
    // SAFETY: `home` is what `jd_slots_transmit` was given: a queue's, which outlives its port.
    let home = unsafe { &*home.cast::<Home>() };
    // SAFETY: the shim gives the frame as it was sent; the driver owned its slot and has given it up.
    let frame = unsafe { frame(&*loan) };
    let turn = TURN.get();
    // SAFETY: as in `turn_of`.
    if !turn.is_null() && ptr::eq(unsafe { (*turn).home }, home) {
        // SAFETY: `in_turn` borrows the list for the length of this call, on this thread.
        unsafe { (*(*turn).finished).push_back(frame) };
        home.add(-1);
        return;
    }
    lock(&home.elsewhere).push(frame);
    home.any_elsewhere.store(true, Ordering::Release);
    if turn.is_null() {
        home.held_elsewhere.fetch_sub(1, Ordering::SeqCst);
    } else {
        // SAFETY: as in `turn_of`: the thread's own home.
        unsafe { (*(*turn).home).add(-1) };
    }
}

unsafe extern "C" fn available(context: *mut c_void) -> u32 {
    // SAFETY: as in `take`.
    let depot = unsafe { &(*context.cast::<Shared>()).depot };
    depot.capacity().saturating_sub(depot.in_use()) as u32
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds it panics half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
