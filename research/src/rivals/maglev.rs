//! Maglev hashing (Eisenbud et al., "Maglev: a fast and reliable software network load balancer", NSDI 2016, section
//! 3.4): every backend has a permutation of the table's slots, and they take turns in taking the next free slot of
//! their own. With M > 100 N slots the shares differ by 1 % at most. Weights as in its successors: a backend takes
//! turns in proportion.

use janus_csb::ShardId;

use super::{Change, Cost, Held, Packet, Rival, Sent, control};
use crate::rivals::world::mix;

/// The paper's smaller table, a prime.
pub const SLOTS: usize = 65_537;

/// A filled table.
pub struct Maglev {
    table: Box<[u16]>,
    /// Steps along the permutations that filling took.
    pub steps: usize,
}

impl Maglev {
    /// A table filled by backends of these weights; 0 takes no slot.
    pub fn fill(slots: usize, weights: &[f64]) -> Maglev {
        const FREE: u16 = u16::MAX;
        let heaviest = weights.iter().copied().fold(0.0, f64::max);
        assert!(
            heaviest > 0.0 && weights.len() < usize::from(FREE),
            "somebody must take the slots"
        );
        let start = |backend: usize| mix(backend as u64 ^ 0x6d61_676c) % slots as u64;
        let skip = |backend: usize| mix(backend as u64 ^ 0x6c65_7600_0000) % (slots as u64 - 1) + 1;
        let mut turn: Vec<(u64, u64, f64)> = (0..weights.len())
            .map(|b| (start(b), skip(b), 0.0))
            .collect();
        let mut table = vec![FREE; slots].into_boxed_slice();
        let (mut filled, mut steps) = (0, 0);
        while filled < slots {
            for (backend, (next, skip, due)) in turn.iter_mut().enumerate() {
                *due += weights[backend] / heaviest;
                if *due < 1.0 || filled == slots {
                    continue;
                }
                *due -= 1.0;
                loop {
                    let slot = *next as usize;
                    *next = (*next + *skip) % slots as u64;
                    steps += 1;
                    if table[slot] == FREE {
                        table[slot] = backend as u16;
                        filled += 1;
                        break;
                    }
                }
            }
        }
        Maglev { table, steps }
    }

    /// The backend of each slot.
    pub fn slots(&self) -> &[u16] {
        &self.table
    }

    #[inline]
    pub fn owner(&self, key: u32) -> ShardId {
        let slot = (u64::from(key) * self.table.len() as u64) >> 32;
        ShardId(self.table[slot as usize] as u8)
    }

    /// Bytes of the table.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.table)
    }
}

/// Maglev hashing alone: what it does to connections without a table of them.
pub struct MaglevOnly(Maglev);

impl MaglevOnly {
    pub fn new(shards: usize) -> MaglevOnly {
        MaglevOnly(Maglev::fill(SLOTS, &vec![1.0; shards]))
    }
}

impl Rival for MaglevOnly {
    fn name(&self) -> &'static str {
        "maglev 65537"
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        self.0.owner(packet.key).into()
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        for (packet, owner) in packets.iter().zip(owners) {
            *owner = self.0.owner(packet.key);
        }
    }

    fn begin(&mut self, change: &Change, _: &mut dyn Held, cost: &mut Cost) {
        // Filled beside the old one, which is in use meanwhile; nobody waits for more than the swap.
        let next = Maglev::fill(SLOTS, &control::weights(change));
        cost.piece(|| self.0 = next);
    }

    fn placement(&self, key: u32) -> Option<ShardId> {
        Some(self.0.owner(key))
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
