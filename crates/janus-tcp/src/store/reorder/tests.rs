//! The store against a model that keeps a byte at each place, under texts that overlap, repeat and come backwards.

use std::sync::Arc;

use janus_mem::{Depot, SLOT_SIZE};
use proptest::prelude::*;

use super::*;
use crate::store::keys::{HotId, Key};

const START: SeqNum = SeqNum(u32::MAX - 3_000);
const SPACE: usize = 12_000;
const LIMIT: u32 = 40;

struct World {
    depot: Arc<Depot>,
    pool: Pool,
    segments: Segments,
    reorders: Reorders,
    id: u32,
    /// What came first at each place beyond [`START`], if anything did.
    model: Vec<Option<u8>>,
}

impl World {
    fn new() -> World {
        let depot = Depot::new(512, &Growth::Inline).expect("memory");
        let mut reorders = Reorders::new(128, 99, &Growth::Inline).expect("memory");
        World {
            pool: depot.pool(),
            depot,
            segments: Segments::new(512, &Growth::Inline).expect("memory"),
            id: reorders
                .attach(HotId::new(0).expect("a slot"))
                .expect("a block"),
            reorders,
            model: vec![None; SPACE],
        }
    }

    /// A text of bytes `fill` arrives as `arrives/gaps` has it; false when it was not kept.
    fn arrive(&mut self, at: usize, len: usize, fill: u8) -> bool {
        let mut buf = self.pool.alloc().expect("a buffer");
        let off = 190;
        buf.bytes_mut()[off..off + len].fill(fill);
        let mut frame = Frame::new(buf, 0);
        let mut text = Text {
            seq: START + at as u32,
            off: off as u16,
            len: len as u16,
        };
        let mut memory = Memory {
            segments: &mut self.segments,
            pool: &mut self.pool,
        };
        let known = |place: &Option<u8>| place.is_some();
        let was_known = self.model[at..at + len].iter().any(known);
        let id = self.id;
        let twice = self.reorders.fit(id, &mut text, &mut frame, &mut memory);
        assert_eq!(twice.is_some(), was_known, "a repeat is seen");
        if let Some((from, to)) = twice {
            let from = (from - START) as usize;
            let to = (to - START) as usize;
            assert!(self.model[from..to].iter().all(known));
        }
        let joined = text.len > 0 && self.reorders.join(id, &text, &frame, &mut memory);
        let kept = if joined || text.len == 0 {
            memory.pool.free(frame.buf);
            true
        } else if self.reorders.has_room(id, LIMIT) {
            self.reorders.keep(id, &text, frame, &mut memory)
        } else {
            memory.pool.free(frame.buf);
            false
        };
        // What lay inside the text was taken over by it, and goes with it; what it was cut to was here before.
        let from = (text.seq - START) as usize;
        for place in &mut self.model[from..from + usize::from(text.len)] {
            *place = if kept { place.or(Some(fill)) } else { None };
        }
        kept
    }

    fn held(&mut self) -> usize {
        self.pool.flush();
        self.depot.stats().outstanding
    }

    fn model_ranges(&self) -> Vec<(SeqNum, SeqNum)> {
        let (mut all, mut at) = (Vec::new(), 0);
        while at < SPACE {
            let len = self.model[at..].iter().take_while(|b| b.is_some()).count();
            if len > 0 {
                all.push((START + at as u32, START + (at + len) as u32));
            }
            at += len.max(1);
        }
        all
    }

    fn check(&mut self) {
        assert_eq!(self.reorders.all(self.id), self.model_ranges());
        let slots = self.reorders.slots();
        assert_eq!(slots as usize, self.segments.len());
        assert_eq!(slots as usize, self.held());
        assert!(slots <= LIMIT, "{slots} buffers");
        let mut blocks = Vec::new();
        self.reorders.report(self.id, |left, right| {
            blocks.push((left, right));
            blocks.len() < 4
        });
        let ranges = self.model_ranges();
        assert_eq!(blocks.len(), ranges.len().min(4));
        for (i, block) in blocks.iter().enumerate() {
            assert!(ranges.contains(block), "{block:?} is not held");
            assert!(!blocks[..i].contains(block), "{block:?} is named twice");
        }
    }

    /// Takes everything out from the front, as a filled gap does, and compares it.
    fn drain(&mut self) {
        let mut inbox = SegList::default();
        for (start, end) in self.model_ranges() {
            let mut memory = Memory {
                segments: &mut self.segments,
                pool: &mut self.pool,
            };
            let id = self.id;
            let next = self.reorders.deliver(id, start, &mut inbox, &mut memory);
            assert_eq!(next, Some(end));
        }
        let held: Vec<u8> = self.model.iter().flatten().copied().collect();
        assert_eq!(inbox.bytes as usize, held.len());
        let (mut bytes, mut count) = (Vec::new(), 0);
        while let Some(seg) = self.segments.pop_front(&mut inbox) {
            bytes.extend_from_slice(self.segments[seg].payload());
            count += 1;
            self.segments.free(seg, &mut self.pool);
        }
        assert_eq!(bytes, held);
        assert_eq!((inbox.count, inbox.bytes), (0, 0), "{count} segments");
        assert_eq!((self.reorders.slots(), self.held()), (0, 0));
    }
}

fn text() -> impl Strategy<Value = (usize, usize)> {
    let len = prop_oneof![Just(1usize), 1..60usize, 400..1_000usize, Just(1_448usize)];
    (0..SPACE - 1_500, len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn holds_what_came_first_and_says_so(texts in proptest::collection::vec(text(), 1..120)) {
        let mut world = World::new();
        for (i, (at, len)) in texts.into_iter().enumerate() {
            world.arrive(at, len, i as u8);
            world.check();
        }
        world.drain();
    }

    #[test]
    fn gives_up_the_highest_only(texts in proptest::collection::vec(text(), 1..60), place in 0..SPACE) {
        let mut world = World::new();
        for (i, (at, len)) in texts.into_iter().enumerate() {
            world.arrive(at, len, i as u8);
        }
        let (before, seq) = (world.reorders.all(world.id), START + place as u32);
        let slots = world.reorders.slots();
        let mut memory = Memory { segments: &mut world.segments, pool: &mut world.pool };
        let pruned = world.reorders.prune(world.id, seq, &mut memory);
        prop_assert_eq!(world.reorders.slots() + pruned, slots);
        let after = world.reorders.all(world.id);
        let higher = before.iter().any(|range| range.0.gt(seq));
        prop_assert_eq!(pruned > 0, higher);
        for (i, range) in after.iter().enumerate() {
            prop_assert_eq!(range.0, before[i].0);
            prop_assert!(range.1 == before[i].1 || i + 1 == after.len());
        }
        for (start, end) in world.reorders.all(world.id) {
            for place in (end - START) as usize..SPACE {
                let lower = after.iter().any(|r| (r.0 - START) as usize <= place && place < (r.1 - START) as usize);
                if !lower && place >= (start - START) as usize {
                    world.model[place] = None;
                }
            }
        }
        if after.is_empty() {
            world.model.fill(None);
        }
        world.check();
        world.drain();
    }

    #[test]
    fn nothing_waits_beyond_the_end(texts in proptest::collection::vec(text(), 1..40), end in 0..SPACE) {
        let mut world = World::new();
        for (i, (at, len)) in texts.into_iter().enumerate() {
            world.arrive(at, len, i as u8);
        }
        let mut memory = Memory { segments: &mut world.segments, pool: &mut world.pool };
        world.reorders.note_fin(world.id, START + end as u32, &mut memory);
        world.model[end..].fill(None);
        prop_assert_eq!(world.reorders.all(world.id), world.model_ranges());
        world.drain();
    }
}

#[test]
fn the_block_with_the_latest_text_is_named_first() {
    let mut world = World::new();
    let mut first = |at: usize, len: usize| {
        world.arrive(at, len, 7);
        let mut blocks = Vec::new();
        world.reorders.report(world.id, |left, right| {
            blocks.push(((left - START) as usize, (right - START) as usize));
            blocks.len() < 4
        });
        blocks
    };
    assert_eq!(first(1_000, 100), [(1_000, 1_100)]);
    assert_eq!(first(3_000, 100), [(3_000, 3_100), (1_000, 1_100)]);
    assert_eq!(first(1_100, 50), [(1_000, 1_150), (3_000, 3_100)]);
    assert_eq!(first(2_000, 1_000), [(2_000, 3_100), (1_000, 1_150)]);
    let more = first(5_000, 10);
    assert_eq!(more, [(5_000, 5_010), (2_000, 3_100), (1_000, 1_150)]);
    // A repeat is what triggered the answer too.
    let repeat = first(2_100, 10);
    assert_eq!(repeat, [(2_000, 3_100), (5_000, 5_010), (1_000, 1_150)]);
}

#[test]
fn small_texts_share_buffers_whichever_way_they_come() {
    let orders: [fn(usize) -> usize; 2] = [|i| i, |i| 1_999 - i];
    for order in orders {
        let mut world = World::new();
        for i in 0..2_000 {
            assert!(world.arrive(3 + order(i) * 3, 3, i as u8));
        }
        let slots = world.reorders.slots() as usize;
        assert!(slots <= 6_000 / (SLOT_SIZE / 2), "{slots} buffers");
        world.drain();
    }
}
