//! What a shard of the small world holds: three stores of slots, visited one after the other, and records that move
//! between them as connections do.

use std::collections::HashMap;

use janus_csb::{DivergenceFilter, FlowId, Flows};

use crate::world::{PORTS, key_of};

/// The state of a flow, which is the store it is in. The traversal goes through them in another order than a flow
/// does: a record that moves from the second to the first moves behind the cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Open,
    Opening,
    TimeWait,
}

const STORES: usize = 3;

#[derive(Default)]
pub(crate) struct Store {
    slots: [Vec<Option<u32>>; STORES],
    places: HashMap<u32, (usize, usize)>,
    moved: Vec<u32>,
    traversed: bool,
    /// Wrong: movers do not report (rule 6).
    silent: bool,
}

impl Store {
    pub(crate) fn new(silent: bool) -> Store {
        Store {
            silent,
            ..Store::default()
        }
    }

    pub(crate) fn state(&self, flow: u32) -> Option<State> {
        let &(store, _) = self.places.get(&flow)?;
        Some([State::Open, State::Opening, State::TimeWait][store])
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Some flow of this shard, by a random number.
    pub(crate) fn any(&self, random: u64) -> Option<u32> {
        let live: Vec<u32> = self.slots.iter().flatten().flatten().copied().collect();
        (!live.is_empty()).then(|| live[random as usize % live.len()])
    }

    /// Puts the flow into a store, out of the one it is in. The lowest free slot is taken, as a slab does.
    pub(crate) fn put(&mut self, flow: u32, state: State) {
        let known = self.remove(flow);
        let store = state as usize;
        let free = self.slots[store].iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            self.slots[store].push(None);
            self.slots[store].len() - 1
        });
        self.slots[store][slot] = Some(flow);
        self.places.insert(flow, (store, slot));
        if known && self.traversed && !self.silent {
            self.moved.push(flow);
        }
    }

    pub(crate) fn remove(&mut self, flow: u32) -> bool {
        let place = self.places.remove(&flow);
        if let Some((store, slot)) = place {
            self.slots[store][slot] = None;
        }
        place.is_some()
    }
}

fn show(flow: u32, filter: &mut DivergenceFilter<'_>) {
    filter.flow(key_of(flow), port_of(flow), || FlowId(u128::from(flow)));
}

pub(crate) fn port_of(flow: u32) -> u16 {
    PORTS[flow as usize % PORTS.len()]
}

impl Flows for Store {
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        if cursor == 0 {
            self.traversed = true;
            self.moved.clear();
        }
        let (mut store, mut slot) = ((cursor >> 32) as usize, cursor as u32 as usize);
        for _ in 0..budget {
            while slot >= self.slots[store].len() {
                (store, slot) = (store + 1, 0);
                if store == STORES {
                    self.traversed = false;
                    return None;
                }
            }
            if let Some(flow) = self.slots[store][slot] {
                show(flow, filter);
            }
            slot += 1;
        }
        Some((store as u64) << 32 | slot as u64)
    }

    fn take_moved(&mut self, filter: &mut DivergenceFilter<'_>) {
        for flow in std::mem::take(&mut self.moved) {
            if self.places.contains_key(&flow) {
                show(flow, filter);
            }
        }
    }

    fn held(&self) -> usize {
        self.len()
    }
}
