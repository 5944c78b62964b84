//! Every interleaving of threads that take and put. A slot with two owners would be two accesses to one cell at a time,
//! which loom reports.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Slots, their links, and what their owners write into them.
struct World {
    magazines: Magazines,
    strays: Strays,
    links: Vec<AtomicU32>,
    slots: Vec<UnsafeCell<u32>>,
}

// SAFETY: the cells are only touched by the owner of their slot; that this is so is what loom checks.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    /// Magazines 0 to `stacked - 1`, the last on top.
    fn new(slots: u32, stacked: u32) -> Arc<Self> {
        let world = Self {
            magazines: Magazines::new(),
            strays: Strays::new(),
            links: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            slots: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
        };
        (0..stacked).for_each(|name| world.push(name));
        Arc::new(world)
    }

    fn link(&self, slot: u32) -> &AtomicU32 {
        &self.links[slot as usize]
    }

    fn own(&self, slot: u32) {
        // SAFETY: loom panics if anybody else is at it.
        self.slots[slot as usize].with_mut(|cell| unsafe { *cell += 1 });
    }

    fn push(&self, name: u32) {
        self.own(name);
        self.magazines.push(name, |slot| self.link(slot));
    }

    fn pop(&self) -> Option<u32> {
        let name = self.magazines.pop(|slot| self.link(slot))?;
        self.own(name);
        Some(name)
    }

    fn push_stray(&self, slot: u32) {
        self.own(slot);
        self.strays.push(slot, |slot| self.link(slot));
    }

    fn take_strays(&self) -> Vec<u32> {
        let mut taken = Vec::new();
        let mut at = self.strays.take_all();
        while at != NONE {
            self.own(at);
            taken.push(at);
            at = self.link(at).load(Ordering::Relaxed);
        }
        taken
    }

    fn all(&self, mut held: Vec<u32>) -> Vec<u32> {
        held.extend(std::iter::from_fn(|| self.pop()));
        held.extend(self.take_strays());
        held.sort_unstable();
        held
    }
}

/// One takes a magazine while another takes two and puts the first back: the head is the same again, and what is below
/// it is not.
#[test]
fn a_head_that_came_back_is_not_taken_for_the_old_one() {
    loom::model(|| {
        let world = World::new(2, 2);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                let first = world.pop();
                let second = world.pop();
                first.into_iter().for_each(|name| world.push(name));
                second
            })
        };
        let mine = world.pop();
        let theirs = other.join().unwrap();
        let held = mine.into_iter().chain(theirs).collect();
        assert_eq!(world.all(held), [0, 1]);
    });
}

#[test]
fn three_threads_share_magazines() {
    // All interleavings of three take long; three preemptions find what the mutations make.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = World::new(3, 2);
        let others: Vec<_> = (0..2)
            .map(|_| {
                let world = world.clone();
                thread::spawn(move || {
                    if let Some(name) = world.pop() {
                        world.push(name);
                    }
                    world.pop()
                })
            })
            .collect();
        world.push(2);
        let mine = world.pop();
        let held = others
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .chain(mine)
            .collect();
        assert_eq!(world.all(held), [0, 1, 2]);
    });
}

/// Dropped on two threads while a third collects.
#[test]
fn strays_are_collected_once() {
    static WHOLE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = World::new(3, 0);
        // Where loom must try every thread: left alone it looks only at the last access to each atomic. Relaxed, so that it
        // orders nothing itself.
        let crossing = Arc::new(AtomicU32::new(0));
        let others: Vec<_> = [vec![0, 1], vec![2]]
            .into_iter()
            .map(|slots| {
                let (world, crossing) = (world.clone(), crossing.clone());
                thread::spawn(move || {
                    slots.into_iter().for_each(|slot| world.push_stray(slot));
                    crossing.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        crossing.fetch_add(1, Ordering::Relaxed);
        let first = world.take_strays();
        if first.len() == 3 {
            WHOLE.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.all(first), [0, 1, 2]);
    });
    // The model is worth something only if it comes to collecting a chain of both.
    assert!(WHOLE.load(std::sync::atomic::Ordering::Relaxed));
}

/// A stray goes into a magazine's place in the chain of links and back: the two stacks share the table.
#[test]
fn a_slot_goes_from_one_stack_to_the_other() {
    loom::model(|| {
        let world = World::new(2, 1);
        let other = {
            let world = world.clone();
            thread::spawn(move || {
                world.push_stray(1);
                world.pop()
            })
        };
        for slot in world.take_strays() {
            world.push(slot);
        }
        let mine = world.pop();
        let theirs = other.join().unwrap();
        let held = mine.into_iter().chain(theirs).collect();
        assert_eq!(world.all(held), [0, 1]);
    });
}
