//! Every interleaving of buffers that come home and a depot that goes: the mapping is handed out once, never while
//! somebody still uses it, and never not at all.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// What stands for the memory: used by whoever has a buffer, unmapped by whoever is last.
struct World {
    reclaim: BufferReclaim<()>,
    memory: UnsafeCell<u32>,
    unmapped: loom::sync::atomic::AtomicU32,
}

// SAFETY: reads by owners of buffers, one write after them; that this is so is what loom checks.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new(out: u32) -> Arc<Self> {
        let world = Self {
            reclaim: BufferReclaim::new(),
            memory: UnsafeCell::new(7),
            unmapped: loom::sync::atomic::AtomicU32::new(0),
        };
        world.reclaim.begin(());
        world.reclaim.fresh().store(out, Ordering::Relaxed);
        Arc::new(world)
    }

    fn look(&self) {
        // SAFETY: loom panics if it is written meanwhile.
        assert_eq!(self.memory.with(|memory| unsafe { *memory }), 7);
    }

    fn reap(&self, last: Last<'_, ()>) {
        // SAFETY: loom panics if anybody else is at it.
        self.memory.with_mut(|memory| unsafe { *memory = 0 });
        self.unmapped.fetch_add(1, Ordering::Relaxed);
        last.finish();
    }

    fn drop_one(&self) {
        self.look();
        if let Some(last) = self.reclaim.put_back_one() {
            self.reap(last);
        }
    }
}

#[test]
fn the_last_one_unmaps_whoever_it_is() {
    static BY_DEPOT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    loom::model(|| {
        let world = World::new(2);
        let droppers: Vec<_> = (0..2)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || world.drop_one())
            })
            .collect();
        if let Some(last) = world.reclaim.orphan() {
            world.reap(last);
            BY_DEPOT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        droppers
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(world.unmapped.load(Ordering::Relaxed), 1);
    });
    assert!(BY_DEPOT.load(std::sync::atomic::Ordering::Relaxed) > 0);
}

/// A buffer goes out and home through a pool meanwhile; the pool's depot lives until it has.
#[test]
fn what_a_pool_holds_is_waited_for() {
    loom::model(|| {
        let world = World::new(2);
        // One is home already.
        world.reclaim.put_back(1);
        let stray = {
            let world = world.clone();
            thread::spawn(move || world.drop_one())
        };
        let pool = {
            let world = world.clone();
            thread::spawn(move || {
                world.reclaim.took(1);
                world.look();
                world.reclaim.put_back(1);
            })
        };
        pool.join().unwrap();
        if let Some(last) = world.reclaim.orphan() {
            world.reap(last);
        }
        stray.join().unwrap();
        assert_eq!(world.unmapped.load(Ordering::Relaxed), 1);
    });
}
