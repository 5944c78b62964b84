//! Breadth first through all states, so that the first violation found has the shortest trace.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::mem::discriminant;

use crate::rules::Violation;
use crate::state::State;
use crate::world::{Action, World};

/// What a search found.
pub(crate) struct Found {
    /// Different states reached.
    pub(crate) states: usize,
    /// Actions of the longest shortest way.
    pub(crate) depth: usize,
    /// What must never happen, and how it does.
    pub(crate) violation: Option<(Violation, Vec<Action>)>,
    /// Whether every state was reached, or the bound first.
    pub(crate) complete: bool,
    /// One action of each sort that happened: what never does has not been tried.
    pub(crate) happened: Vec<Action>,
}

/// Where a state came from: the state's number, and the action.
type Parent = (u32, Action);

/// Reaches every state of the world, or `states_max` of them, or a violation.
pub(crate) fn search(world: &World, states_max: usize) -> Found {
    let initial = world.initial().canonical();
    let mut seen: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    seen.insert(fingerprint(&initial));
    let mut parents: Vec<Parent> = vec![(0, Action::Publish)];
    let mut layer = vec![(0u32, initial)];
    let mut actions = Vec::new();
    let mut happened: Vec<Action> = Vec::new();
    let mut depth = 0;
    while !layer.is_empty() && parents.len() < states_max {
        let mut next = Vec::new();
        for (number, state) in layer {
            world.actions(&state, &mut actions);
            for &action in &actions {
                if !happened
                    .iter()
                    .any(|one| discriminant(one) == discriminant(&action))
                {
                    happened.push(action);
                }
                match world.apply(&state, action) {
                    Ok(reached) if seen.insert(fingerprint(&reached)) => {
                        next.push((parents.len() as u32, reached));
                        parents.push((number, action));
                    }
                    Ok(_) => {}
                    Err(violation) => {
                        return Found {
                            states: parents.len(),
                            depth,
                            violation: Some((violation, trace(&parents, number, action))),
                            complete: false,
                            happened,
                        };
                    }
                }
            }
        }
        depth += usize::from(!next.is_empty());
        layer = next;
    }
    Found {
        states: parents.len(),
        depth,
        violation: None,
        complete: layer.is_empty(),
        happened,
    }
}

fn trace(parents: &[Parent], mut number: u32, last: Action) -> Vec<Action> {
    let mut trace = vec![last];
    while number != 0 {
        let (parent, action) = parents[number as usize];
        trace.push(action);
        number = parent;
    }
    trace.reverse();
    trace
}

/// 64 bits for a state. Two states with one fingerprint would hide one of them: with 10^8 states the odds of a single
/// such pair are one in four thousand.
fn fingerprint(state: &State) -> u64 {
    let mut hasher = Mixer(0);
    state.hash(&mut hasher);
    hasher.finish()
}

/// Multiply and fold, over whole words; small values are gathered first.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        self.0 = (product as u64 ^ (product >> 64) as u64)
            .rotate_left(23)
            .wrapping_add(word);
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        let mut hash = self.0;
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0xe703_7ed1_a0b4_28db);
        hash ^ (hash >> 29)
    }
}

/// A fingerprint is a hash already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed")
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
