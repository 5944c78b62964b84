//! When and by whom a region grows: the chunk sizes, the background thread that touches memory ahead of need, and the
//! late path where the owner has to do it. What the memory is used for is not known here.

use crate::region::{HUGE_PAGE, MemError, PAGE, Region};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crossbeam::channel::{Receiver, Sender, bounded};
#[cfg(not(miri))]
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;

/// First chunk of every growing structure: small, so that a runtime in a test costs little. That the hottest slots thus
/// lie in ordinary pages was measured against a first chunk of one huge page: no difference in `accept_rate` and `rps`.
const FIRST_CHUNK: usize = 64 << 10;
/// Largest chunk: bounds both the memory held in spare and the time the toucher spends on one request.
const CHUNK_MAX: usize = 16 << 20;
/// Most growth requests waiting for the toucher; one more is dropped and its owner grows inline, counted as late.
pub const TOUCH_QUEUE_MAX: usize = 1024;

/// How a structure gets its next chunk of memory.
#[derive(Clone, Debug, Default)]
pub enum Growth {
    /// Committed by the owner when needed, touched by first use.
    #[default]
    Inline,
    /// Committed and touched ahead of need by a background thread.
    Ahead(Toucher),
}

/// Handle of the thread that commits and touches memory. The thread ends with its last handle.
#[derive(Clone, Debug)]
pub struct Toucher {
    requests: Sender<Request>,
}

/// A range to grow, and the length of its usable prefix when that was asked for.
type Request = (Arc<Grown>, usize);

impl Toucher {
    /// Starts the thread.
    pub fn spawn() -> std::io::Result<Self> {
        let (requests, inbox) = bounded(TOUCH_QUEUE_MAX);
        thread::Builder::new()
            .name("janus-touch".into())
            .stack_size(128 << 10)
            .spawn(move || touch_all(&inbox))?;
        Ok(Self { requests })
    }
}

fn touch_all(inbox: &Receiver<Request>) {
    while let Ok((grown, from)) = inbox.recv() {
        grown.grow_ahead(from);
    }
}

/// A region together with how it grows. `ready` bytes of it may be used; any thread may ask for more.
pub(crate) struct Grown {
    region: Region,
    /// Usable prefix; never more than is committed.
    ready: AtomicUsize,
    asked: AtomicBool,
    late: AtomicU64,
    toucher: Option<Toucher>,
    /// Dropped once the memory is.
    _life: Option<Life>,
}

/// Dropped when memory that another has lent is used no more.
pub type Life = Box<dyn core::any::Any + Send + Sync>;

impl Grown {
    /// Reserves `bytes` and commits the first chunk; touches it when growing ahead.
    pub(crate) fn new(bytes: usize, growth: &Growth) -> Result<Arc<Self>, MemError> {
        Self::of(Region::reserve(bytes)?, bytes, growth)
    }

    /// Grows by ordinary pages, each touched by its first use.
    pub(crate) fn in_pages(bytes: usize) -> Result<Arc<Self>, MemError> {
        Self::of(Region::reserve_in_pages(bytes)?, bytes, &Growth::Inline)
    }

    /// Memory that another process can map, by the descriptor.
    #[cfg(not(miri))]
    pub(crate) fn shared(bytes: usize, growth: &Growth) -> Result<(Arc<Self>, OwnedFd), MemError> {
        let (region, memory) = Region::reserve_shared(bytes)?;
        Ok((Self::of(region, bytes, growth)?, memory))
    }

    /// Memory that another process lends, all of it at once.
    #[cfg(not(miri))]
    pub(crate) fn lent(
        memory: BorrowedFd<'_>,
        bytes: usize,
        life: Life,
    ) -> Result<Arc<Self>, MemError> {
        let region = Region::map_shared(memory, bytes)?;
        Ok(Arc::new(Self {
            ready: AtomicUsize::new(region.committed()),
            region,
            asked: AtomicBool::new(false),
            late: AtomicU64::new(0),
            toucher: None,
            _life: Some(life),
        }))
    }

    fn of(region: Region, bytes: usize, growth: &Growth) -> Result<Arc<Self>, MemError> {
        let ready = region.commit(FIRST_CHUNK.min(bytes.next_multiple_of(PAGE)))?;
        let toucher = match growth {
            Growth::Inline => None,
            Growth::Ahead(toucher) => {
                region.touch(0, ready);
                Some(toucher.clone())
            }
        };
        Ok(Arc::new(Self {
            region,
            ready: AtomicUsize::new(ready),
            asked: AtomicBool::new(false),
            late: AtomicU64::new(0),
            toucher,
            _life: None,
        }))
    }

    #[inline]
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Length of the usable prefix.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }

    /// How often the owner had to grow inline although a toucher was there to do it.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Asks the toucher for the next chunk. Cheap and idempotent; does nothing when growing inline.
    pub(crate) fn ask_ahead(self: &Arc<Self>) {
        let Some(toucher) = &self.toucher else { return };
        let from = self.ready();
        if from >= self.region.reserved() || self.asked.swap(true, Ordering::AcqRel) {
            return;
        }
        if toucher.requests.try_send((Arc::clone(self), from)).is_err() {
            self.asked.store(false, Ordering::Release);
        }
    }

    /// The owner has used up the `seen` bytes that were ready when it looked: grows them here and now, unless another thread has done so
    /// since. False when there is no more to be had.
    #[cold]
    pub(crate) fn grow_past(&self, seen: usize) -> bool {
        let ready = self.ready();
        if ready > seen {
            return true;
        }
        if ready >= self.region.reserved() {
            return false;
        }
        let to = if self.toucher.is_some() {
            self.late.fetch_add(1, Ordering::Relaxed);
            ready + FIRST_CHUNK.max(ready.min(HUGE_PAGE))
        } else {
            next_chunk_end(ready)
        };
        match self.region.commit(to) {
            Ok(committed) => {
                // The toucher may have committed much more already; what it has not touched yet stays its work.
                self.publish(committed.min(to.next_multiple_of(HUGE_PAGE)));
                true
            }
            Err(_) => false,
        }
    }

    /// Commits and touches all there can be, here and now.
    pub(crate) fn grow_all(&self) -> Result<(), MemError> {
        // Up to a whole huge page first: the rest can then be reserved ones.
        for to in [HUGE_PAGE, self.region.reserved()] {
            let from = self.ready();
            let committed = self.region.commit(to)?;
            self.region.touch(from, committed);
            self.publish(committed);
        }
        Ok(())
    }

    /// The toucher's side: the chunk after the first `from` bytes, made usable huge page by huge page. An owner who was not served in
    /// time may use its beginning already, and does not get another chunk for that.
    fn grow_ahead(&self, from: usize) {
        let end = next_chunk_end(from);
        if let Ok(committed) = self.region.commit(end) {
            let (mut at, end) = (from, end.min(committed));
            while at < end {
                let next = (at + HUGE_PAGE).min(end);
                self.region.touch(at, next);
                self.publish(next);
                at = next;
            }
        }
        self.asked.store(false, Ordering::Release);
    }

    fn publish(&self, ready: usize) {
        self.ready.fetch_max(ready, Ordering::AcqRel);
    }
}

impl core::fmt::Debug for Grown {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Grown")
            .field("region", &self.region)
            .field("ready", &self.ready())
            .finish()
    }
}

/// Part of a chunk that is left when its user asks for the next one. Little, as what is ready and unused is memory too; more once a chunk has come
/// late, as to touch one takes a time that depends on the machine, and to use one up on the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    eighths: u32,
}

impl Notice {
    pub(crate) const SHORT: Notice = Notice { eighths: 1 };
    /// A quarter of 2 MiB lasts 8 ms where a million connections a second come; to clear as much takes 5 ms on a slow machine.
    const EIGHTHS_MAX: u32 = 2;

    /// How many of `limit` are used by then, of which `used` are now.
    pub(crate) fn place(self, used: u32, limit: u32) -> u32 {
        limit - (limit - used) / 8 * self.eighths
    }

    /// A chunk was used up before the next had come.
    pub(crate) fn was_short(&mut self) {
        self.eighths = (2 * self.eighths).min(Self::EIGHTHS_MAX);
    }
}

/// Where the chunk after the first `ready` bytes ends: doubling up to one huge page, then a 32nd more each time in
/// whole huge pages.
fn next_chunk_end(ready: usize) -> usize {
    if ready < HUGE_PAGE {
        (ready * 2).clamp(FIRST_CHUNK, HUGE_PAGE)
    } else {
        let whole = ready / 32 / HUGE_PAGE * HUGE_PAGE;
        ready + whole.clamp(HUGE_PAGE, CHUNK_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_short_of_memory_asks_earlier_from_then_on() {
        let mut notice = Notice::SHORT;
        let mut places = Vec::new();
        for _ in 0..3 {
            places.push(notice.place(800, 1_600));
            notice.was_short();
        }
        assert_eq!(places, [1_500, 1_400, 1_400]);
        assert_eq!(notice.place(1_600, 1_600), 1_600);
    }

    #[test]
    fn chunks_are_small_first_and_bounded_later() {
        assert_eq!(next_chunk_end(0), FIRST_CHUNK);
        assert_eq!(next_chunk_end(FIRST_CHUNK), 2 * FIRST_CHUNK);
        assert_eq!(next_chunk_end(HUGE_PAGE), 2 * HUGE_PAGE);
        let mut at = 0;
        while at < 20 << 30 {
            let next = next_chunk_end(at);
            assert!(next > at && next - at <= CHUNK_MAX);
            assert!(next < HUGE_PAGE || next.is_multiple_of(HUGE_PAGE));
            at = next;
        }
    }

    #[test]
    fn inline_growth_reaches_the_end_and_stops() {
        let grown = Grown::new(256 << 10, &Growth::Inline).unwrap();
        while grown.grow_past(grown.ready()) {}
        assert_eq!(grown.ready(), grown.region().reserved());
        assert_eq!(grown.late(), 0, "inline growth is not late growth");
    }

    #[test]
    fn all_at_once_leaves_nothing_to_grow() {
        let grown = Grown::new(5 << 20, &Growth::Inline).unwrap();
        grown.grow_all().unwrap();
        assert_eq!(grown.ready(), grown.region().reserved());
        grown.grow_all().unwrap();
        assert!(!grown.grow_past(grown.ready()));
    }

    #[test]
    fn what_came_since_the_owner_looked_is_enough() {
        let toucher = Toucher::spawn().unwrap();
        let grown = Grown::new(256 << 10, &Growth::Ahead(toucher)).unwrap();
        // Both the next chunk and the last one: the second time there is nothing left to grow.
        while grown.ready() < grown.region().reserved() {
            let seen = grown.ready();
            grown.grow_ahead(seen);
            let ready = grown.ready();
            assert!(grown.grow_past(seen));
            assert_eq!((grown.ready(), grown.late()), (ready, 0));
        }
    }

    #[test]
    fn a_late_chunk_is_not_had_twice() {
        let toucher = Toucher::spawn().unwrap();
        let grown = Grown::new(8 << 20, &Growth::Ahead(toucher)).unwrap();
        // The toucher is asked and does not come; the owner goes on without it, and then it comes.
        let asked = grown.ready();
        assert!(grown.grow_past(asked));
        grown.grow_ahead(asked);
        assert_eq!(grown.late(), 1);
        assert_eq!(grown.ready(), next_chunk_end(asked));
        // Asked in time it brings the next one.
        let asked = grown.ready();
        grown.grow_ahead(asked);
        assert_eq!(grown.ready(), next_chunk_end(asked));
    }

    #[test]
    fn the_toucher_runs_ahead() {
        let toucher = Toucher::spawn().unwrap();
        let grown = Grown::new(256 << 10, &Growth::Ahead(toucher)).unwrap();
        let first = grown.ready();
        grown.ask_ahead();
        while grown.ready() == first {
            thread::yield_now();
        }
        assert_eq!(grown.late(), 0);
        let more = grown.grow_past(grown.ready());
        assert!(more || grown.ready() == grown.region().reserved());
    }
}
