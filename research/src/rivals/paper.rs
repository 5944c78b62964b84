//! The stream balancer of the Janus paper, to the letter ([`crate::reference`]), with traffic between its steps.

use std::sync::Arc;

use crate::reference::{Bloom, Filter, IoCore, Tables, Update};
use janus_csb::policy::{Bounds, Targets, level, plan};
use janus_csb::{Ring, ShardId};

use super::{Change, Cost, Held, Packet, Rival, Sent, control};

/// Of the Bloom filter.
const RATE: f64 = 1e-4;
const SEED: u32 = 1;

/// One I/O core and the update it takes part in.
pub struct Paper {
    io: IoCore<Bloom>,
    tables: Arc<Tables<Bloom>>,
    ring: Arc<Ring>,
    update: Option<(Update<Bloom>, usize)>,
}

/// The ring both balancers begin with: so many points of each shard, evened out.
pub fn first_ring(shards: usize, points: u16) -> Ring {
    level(&Ring::uniform(shards, points, SEED), &[])
}

/// The ring both go on to: the planner moves points until the shards have the shares that the common controller wants.
pub fn next_ring(ring: &Ring, change: &Change) -> Ring {
    let mut targets = Targets::default();
    for (shard, weight) in control::weights(change).into_iter().enumerate() {
        targets.set(ShardId(shard as u8), weight);
    }
    let bounds = Bounds {
        tolerance: 0.01,
        steps: 1_000,
        moved: 1.0,
        points: 256,
    };
    let planned = plan(ring, &targets, None, &bounds).expect("points of a ring make a ring");
    planned.ring().clone()
}

impl Paper {
    /// With so many points of each shard.
    pub fn new(shards: usize, points: u16) -> Paper {
        let ring = Arc::new(first_ring(shards, points));
        let tables = Arc::new(Tables::new(ring.clone(), Bloom::new(1, RATE, SEED)));
        Paper {
            io: IoCore::new(tables.clone()),
            tables,
            ring,
            update: None,
        }
    }

    /// Bytes of the filter and of `H_diff`.
    pub fn parts(&self) -> (usize, usize) {
        (self.tables.filter().bytes(), self.tables.diff().bytes())
    }
}

impl Rival for Paper {
    fn name(&self) -> &'static str {
        "csb of the paper"
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        self.io.steer_syn(packet.key).into()
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        for (packet, owner) in packets.iter().zip(owners) {
            *owner = self.io.steer(packet.key);
        }
    }

    fn begin(&mut self, change: &Change, held: &mut dyn Held, _: &mut Cost) {
        self.ring = Arc::new(next_ring(&self.ring, change));
        // The paper sizes the filter for what will move; it is told here, and not charged for asking.
        let mut moved = 0;
        held.visit(&mut |packet, holder| {
            moved += usize::from(self.ring.owner(packet.key) != holder)
        });
        self.update = Some((
            Update::new(self.ring.clone(), Bloom::new(moved, RATE, SEED)),
            0,
        ));
        self.io.begin(self.ring.clone());
    }

    fn step(&mut self, held: &mut dyn Held, cost: &mut Cost) -> bool {
        let Some((update, step)) = &mut self.update else {
            return true;
        };
        *step += 1;
        match *step {
            1 | 2 => {
                let second = *step == 2;
                let mut slices = cost.slices();
                held.visit(&mut |packet, holder| {
                    let one = std::iter::once(packet.key);
                    if second {
                        update.pass_two(holder, one)
                    } else {
                        update.pass_one(holder, one)
                    };
                    slices.tick();
                });
                false
            }
            _ => {
                if let Some((update, _)) = self.update.take() {
                    self.tables = Arc::new(update.finish());
                    cost.piece(|| self.io.swap(self.tables.clone()));
                }
                true
            }
        }
    }

    fn placement(&self, key: u32) -> Option<ShardId> {
        Some(self.ring.owner(key))
    }

    fn bytes(&self) -> usize {
        let (filter, diff) = self.parts();
        self.ring.bytes() + filter + diff + self.io.fly().len() * size_of::<u32>() * 2
    }
}
