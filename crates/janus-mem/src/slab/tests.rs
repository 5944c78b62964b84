//! Promises of a slab: last in first out, stable addresses, warm reuse, and a `T` behind every number.

use super::*;
use crate::growth::Toucher;
use proptest::prelude::*;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Default, Clone, Copy, PartialEq, Debug)]
#[repr(align(64))]
struct Block {
    value: u64,
    rest: [u64; 5],
}

fn slab(max: u32) -> Slab<Block> {
    Slab::new(max, &Growth::Inline).unwrap()
}

#[test]
fn freed_slots_come_back_last_in_first_out_and_warm() {
    let mut slab = slab(8);
    let ids: Vec<u32> = (0..3).map(|_| slab.alloc().unwrap()).collect();
    assert_eq!(ids, [0, 1, 2]);
    slab[1].value = 77;
    slab.free(0);
    slab.free(1);
    assert_eq!(slab.len(), 1);
    assert_eq!(slab.alloc(), Some(1));
    assert_eq!(slab[1].value, 77, "what the last owner left");
    assert_eq!(slab.alloc(), Some(0));
    assert_eq!(slab.high_water(), 3);
}

#[test]
fn the_maximum_is_kept() {
    let mut slab = slab(3);
    let all: Vec<_> = (0..3).map(|_| slab.alloc().unwrap()).collect();
    assert_eq!(slab.alloc(), None);
    slab.free(all[1]);
    assert_eq!(slab.alloc(), Some(all[1]));
    assert_eq!(slab.alloc(), None);
}

#[test]
fn addresses_never_move_while_it_grows() {
    let many = if cfg!(miri) { 2_000 } else { 200_000 };
    let mut slab = slab(many);
    let first = slab.alloc().unwrap();
    let before = &raw const slab[first];
    for n in 1..many {
        let id = slab.alloc().unwrap();
        slab[id].value = u64::from(n);
    }
    assert_eq!(before, &raw const slab[first]);
    for n in 1..many {
        assert_eq!(slab[n].value, u64::from(n));
    }
    assert!(slab.committed_bytes() >= many as usize * size_of::<Block>());
    assert_eq!(slab.late(), 0);
}

#[test]
fn growing_ahead_gives_the_same_slots() {
    let many = if cfg!(miri) { 2_000 } else { 100_000 };
    let toucher = Toucher::spawn().unwrap();
    let mut slab = Slab::<Block>::new(many, &Growth::Ahead(toucher)).unwrap();
    for n in 0..many {
        assert_eq!(slab.alloc(), Some(n));
        assert_eq!(slab[n], Block::default());
    }
    assert_eq!(slab.alloc(), None);
}

#[test]
fn a_small_slab_costs_one_small_chunk() {
    let slab =
        Slab::<Block>::new(if cfg!(miri) { 100 } else { 100_000_000 }, &Growth::Inline).unwrap();
    assert!(slab.committed_bytes() <= 64 << 10);
}

#[test]
fn slots_larger_than_a_chunk_fit() {
    struct Huge([u8; 100_000]);
    impl Default for Huge {
        fn default() -> Self {
            Self([7; 100_000])
        }
    }
    let mut slab = Slab::<Huge>::new(3, &Growth::Inline).unwrap();
    for _ in 0..3 {
        let id = slab.alloc().unwrap();
        assert_eq!(slab[id].0[99_999], 7);
    }
    assert!(slab.alloc().is_none());
}

#[test]
fn contents_are_dropped_once() {
    #[derive(Default)]
    struct Counted(Option<Rc<Cell<u32>>>);
    impl Drop for Counted {
        fn drop(&mut self) {
            if let Some(count) = &self.0 {
                count.set(count.get() + 1);
            }
        }
    }
    let count = Rc::new(Cell::new(0));
    let mut slab = Slab::<Counted>::new(10, &Growth::Inline).unwrap();
    for _ in 0..4 {
        let id = slab.alloc().unwrap();
        slab[id] = Counted(Some(Rc::clone(&count)));
    }
    slab.free(2);
    assert_eq!(count.get(), 0, "a freed slot keeps its contents");
    drop(slab);
    assert_eq!(count.get(), 4);
}

#[test]
#[should_panic(expected = "slot 5 of 0")]
fn a_number_never_handed_out_panics() {
    let _ = slab(10)[5];
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "twice")]
fn a_double_free_is_caught_in_debug_builds() {
    let mut slab = slab(10);
    let id = slab.alloc().unwrap();
    slab.free(id);
    slab.free(id);
}

#[test]
fn sizes_are_checked() {
    assert_eq!(
        Slab::<Block>::new(0, &Growth::Inline).unwrap_err(),
        MemError::BadSize
    );
    assert_eq!(
        Slab::<Block>::new(u32::MAX, &Growth::Inline).unwrap_err(),
        MemError::BadSize
    );
    slab(1).prefetch(u32::MAX);
    slab(1).prefetch_next(u32::MAX);
}

#[test]
fn slots_of_no_whole_lines_lie_side_by_side() {
    #[derive(Default)]
    struct Odd([u64; 11]);
    let many = if cfg!(miri) { 1_000 } else { 100_000 };
    let mut slab = Slab::<Odd>::new(many, &Growth::Inline).unwrap();
    for n in 0..many {
        let id = slab.alloc().unwrap();
        slab[id].0 = [u64::from(n); 11];
        // Over the edges of chunks and pages, too.
        slab.prefetch(id);
    }
    let slots = slab.slots().iter().zip(0u64..);
    assert!(slots.into_iter().all(|(slot, n)| slot.0 == [n; 11]));
    let bytes = size_of::<Odd>() * many as usize;
    assert!(slab.committed_bytes() < bytes * 33 / 32 + crate::HUGE_PAGE);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 128 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a model: a number is never handed out twice, and holds what was last written.
    #[test]
    fn agrees_with_a_model(ops in prop::collection::vec((any::<bool>(), any::<u16>()), 1..400)) {
        let mut slab = slab(64);
        let mut model: Vec<(u32, u64)> = Vec::new();
        for (n, (take, pick)) in ops.into_iter().enumerate() {
            if take {
                match slab.alloc() {
                    Some(id) => {
                        prop_assert!(model.iter().all(|&(held, _)| held != id));
                        slab[id].value = n as u64;
                        model.push((id, n as u64));
                    }
                    None => prop_assert_eq!(model.len(), 64),
                }
            } else if !model.is_empty() {
                let (id, value) = model.swap_remove(pick as usize % model.len());
                prop_assert_eq!(slab[id].value, value);
                slab.free(id);
            }
            prop_assert_eq!(slab.len(), model.len());
            prop_assert_eq!(slab.slots().len(), slab.high_water() as usize);
            prop_assert!(model.iter().all(|&(id, value)| slab.slots()[id as usize].value == value));
        }
    }
}

/// Where the oldest comes first, every slot has rested as long as any other before it is used again.
#[test]
fn the_slot_that_has_rested_longest_can_come_first() {
    let mut slab: Slab<u64> = Slab::new(1_000, &Growth::Inline).unwrap();
    slab.reuse_oldest_first(0);
    let ids: Vec<u32> = (0..10).map(|_| slab.alloc().unwrap()).collect();
    for &id in ids.iter().rev() {
        slab.free(id);
    }
    assert!(slab.is_empty());
    let again: Vec<u32> = (0..10).map(|_| slab.alloc().unwrap()).collect();
    assert!(again.iter().eq(ids.iter().rev()));
    assert_eq!((slab.len(), slab.high_water()), (10, 10));
    slab.free(again[3]);
    slab.free(again[0]);
    assert_eq!(slab.alloc(), Some(again[3]));
    assert_eq!(slab.alloc(), Some(again[0]));
    assert_eq!(slab.alloc(), Some(10), "a fresh one when none has rested");
}

/// And so many slots have their turn before one comes again.
#[test]
fn slots_can_be_used_in_turn() {
    let mut slab: Slab<u64> = Slab::new(100, &Growth::Inline).unwrap();
    slab.reuse_oldest_first(60);
    assert!(slab.is_empty());
    let mut turn = || {
        let id = slab.alloc().unwrap();
        slab.free(id);
        id
    };
    let first: Vec<u32> = (0..60).map(|_| turn()).collect();
    let second: Vec<u32> = (0..60).map(|_| turn()).collect();
    assert_eq!(first, second);
    let mut sorted = first;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..60));
    let all = std::iter::from_fn(|| slab.alloc()).count();
    assert_eq!((all, slab.len()), (100, 100), "then the fresh ones");
    let mut small: Slab<u64> = Slab::new(10, &Growth::Inline).unwrap();
    small.reuse_oldest_first(60);
    assert_eq!(std::iter::from_fn(|| small.alloc()).count(), 10);
}
