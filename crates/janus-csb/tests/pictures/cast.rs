//! Shards that hold flows and do their part of an update, for the pictures.

use std::collections::BTreeMap;

use janus_csb::{DivergenceFilter, FlowId, Flows, Held, ShardEnd, Work};

pub(crate) const PORT: u16 = 443;

/// What a shard holds, by name; the cursor is the last name visited, plus one.
#[derive(Default)]
pub(crate) struct Table(pub(crate) BTreeMap<u64, Held>);

impl Table {
    pub(crate) fn open(&mut self, name: u64, key: u32) {
        let id = FlowId(u128::from(name));
        let held = Held {
            key,
            port: PORT,
            id,
        };
        self.0.insert(name, held);
    }
}

impl Flows for Table {
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        let mut next = None;
        for (&name, &held) in self.0.range(cursor..).take(budget) {
            filter.held(held);
            next = Some(name + 1);
        }
        next.filter(|&next| self.0.range(next..).next().is_some())
    }

    fn take_moved(&mut self, _: &mut DivergenceFilter<'_>) {}

    fn held(&self) -> usize {
        self.0.len()
    }
}

pub(crate) struct Shard {
    pub(crate) end: ShardEnd,
    pub(crate) table: Table,
}

/// What a shard did in a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Did {
    Nothing,
    Slice,
    Drained,
}

impl Shard {
    pub(crate) fn turn(&mut self, budget: usize) -> Did {
        self.end.refresh();
        match self.end.work() {
            Work::Nothing => Did::Nothing,
            Work::Traverse => {
                self.end.slice(&mut self.table, budget);
                Did::Slice
            }
            Work::Drain(round) => {
                self.end.drained(round);
                Did::Drained
            }
        }
    }
}

/// Keys as a hash makes them: the same with every run.
pub(crate) fn key(n: u64) -> u32 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) as u32
}
