//! Publishing: one writer replaces the steering, many readers adopt it between batches. A reader never waits: when
//! the writer holds the lock at that moment, the reader goes on with what it has and looks again next time.
//! Checked by loom.

use std::sync::{PoisonError, TryLockError};

use crate::steering::Steering;
use crate::sync::{Arc, AtomicU64, Mutex, MutexGuard, Ordering};

#[cfg(test)]
mod at_once;
#[cfg(test)]
mod tests;

/// State shared by the writer and the readers.
#[derive(Debug)]
struct Shared {
    /// Number of the steering in `slot`; changed only with the lock held, read without.
    version: AtomicU64,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
struct Slot {
    steering: Arc<Steering>,
    /// The version each living reader has adopted.
    readers: Vec<Arc<Adopted>>,
}

/// On a line of its own: every reader writes its own one.
#[derive(Debug)]
#[repr(align(128))]
struct Adopted(AtomicU64);

/// In the place of a version: the reader sleeps between two batches and holds no steering.
const PARKED: u64 = u64::MAX;

/// The writing end: the balancer's, of which there is one.
#[derive(Debug)]
pub(crate) struct Publisher {
    shared: Arc<Shared>,
    current: Arc<Steering>,
    /// Replaced steerings that a reader may still hold: kept so that the last drop, and the freeing of a ring, never
    /// falls to a reader in its loop. At most one for each reader, and one more.
    replaced: Vec<Arc<Steering>>,
}

impl Publisher {
    /// Starts with this steering.
    pub(crate) fn new(steering: Steering) -> Publisher {
        let current = Arc::new(steering);
        let slot = Mutex::new(Slot {
            steering: current.clone(),
            readers: Vec::new(),
        });
        Publisher {
            shared: Arc::new(Shared {
                version: AtomicU64::new(1),
                slot,
            }),
            current,
            replaced: Vec::new(),
        }
    }

    /// A new reader, for an I/O core or a shard. It has adopted what is current.
    pub(crate) fn reader(&self) -> Reader {
        Reader::new(self.shared.clone())
    }

    /// The steering as the writer last left it.
    pub(crate) fn current(&self) -> &Steering {
        &self.current
    }

    /// Whether every living reader has adopted the current steering, or sleeps and will adopt it before anything else.
    pub(crate) fn settled(&self) -> bool {
        let version = self.shared.version.load(Ordering::Relaxed);
        self.shared
            .lock()
            .readers
            .iter()
            .map(|reader| reader.0.load(Ordering::Acquire))
            .all(|adopted| adopted == version || adopted == PARKED)
    }

    /// Everybody adopts `next` from now on.
    pub(crate) fn replace(&mut self, next: Steering) {
        let next = Arc::new(next);
        {
            let mut slot = self.shared.lock();
            slot.steering = next.clone();
            // Under the lock, so that whoever holds it reads a version and a steering that belong together.
            self.shared.version.fetch_add(1, Ordering::Release);
        }
        self.replaced
            .push(std::mem::replace(&mut self.current, next));
        self.replaced.retain(|old| Arc::strong_count(old) > 1);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // Nothing in the lock's scope can be left half done, so a panic elsewhere does not spoil what it guards.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reading end, one for each thread that looks up or walks.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    /// None while parked: who sleeps holds no memory.
    current: Option<Arc<Steering>>,
    /// The version of `current`; [`PARKED`] without one.
    seen: u64,
    adopted: Arc<Adopted>,
}

impl Reader {
    fn new(shared: Arc<Shared>) -> Reader {
        let mut slot = shared.lock();
        let seen = shared.version.load(Ordering::Relaxed);
        let adopted = Arc::new(Adopted(AtomicU64::new(seen)));
        slot.readers.push(adopted.clone());
        let current = slot.steering.clone();
        drop(slot);
        Reader {
            shared,
            current: Some(current),
            seen,
            adopted,
        }
    }

    /// Adopts the newest steering if there is one; says whether it did. To be called between batches only: what a
    /// batch began with it ends with. One relaxed load when nothing is new, and never a wait.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        self.is_behind() && self.adopt()
    }

    #[cold]
    fn adopt(&mut self) -> bool {
        let slot = if self.seen == PARKED {
            // It has nothing to go on with, and slept: it can wait for the moment in which the writer swaps a pointer.
            self.shared.lock()
        } else {
            match self.shared.slot.try_lock() {
                Ok(slot) => slot,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            }
        };
        self.current = Some(slot.steering.clone());
        self.seen = self.shared.version.load(Ordering::Relaxed);
        // With the lock held, so that the writer never takes one that wakes for one that sleeps. Its Acquire pairs
        // with this: when it sees the version, nothing of an older batch is to come.
        self.adopted.0.store(self.seen, Ordering::Release);
        drop(slot);
        true
    }

    /// Whether [`refresh`](Reader::refresh) has something to adopt: asked before a thread sleeps, when whoever publishes
    /// rings it already.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.shared.version.load(Ordering::Relaxed) != self.seen
    }

    /// Gives the steering back before the thread sleeps, between two batches, so that the writer does not wait for this
    /// reader and no old ring stays alive. The next [`refresh`](Reader::refresh) adopts the newest for certain, and
    /// must come before anything is looked up.
    pub fn park(&mut self) {
        self.seen = PARKED;
        self.current = None;
        self.adopted.0.store(PARKED, Ordering::Release);
    }

    /// The steering adopted last.
    ///
    /// # Panics
    /// Between [`park`](Reader::park) and the next [`refresh`](Reader::refresh).
    #[inline]
    pub fn current(&self) -> &Steering {
        match &self.current {
            Some(steering) => steering,
            None => panic!("a parked reader refreshes before it looks up"),
        }
    }
}

impl Clone for Reader {
    fn clone(&self) -> Reader {
        Reader::new(self.shared.clone())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared
            .lock()
            .readers
            .retain(|reader| !Arc::ptr_eq(reader, &self.adopted));
    }
}
