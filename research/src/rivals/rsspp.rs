//! RSS++ (Barbette, Katsikas, Maguire, Kostić: "RSS++: load and state-aware receive side scaling", CoNEXT 2019): the
//! load of every bucket of the indirection table is counted, and every so often buckets of overloaded cores go to
//! underloaded ones, the largest that fit first, as few as bring the imbalance below a threshold. The state of a
//! bucket's flows goes with it. With more buckets than NICs have, since a user-level table may.
//!
//! Where connections cannot be moved (a task that holds one lives on its core), the same table breaks them: that is
//! [`RssPlusPlus::pinned`].

use janus_csb::ShardId;

use super::{Change, Cost, Held, Packet, Rival, Sent};

/// Buckets of the table.
pub const BUCKETS: usize = 4096;
/// A core is left alone that is this close to its fair load.
const TOLERANCE: f64 = 0.01;

/// The bucket of a key.
pub fn bucket(key: u32) -> usize {
    key as usize & (BUCKETS - 1)
}

/// The table, and whether flows can move with their bucket.
pub struct RssPlusPlus {
    table: Box<[ShardId]>,
    migrates: bool,
}

impl RssPlusPlus {
    /// As published: state moves.
    pub fn new(shards: usize) -> RssPlusPlus {
        let table = (0..BUCKETS)
            .map(|bucket| ShardId((bucket % shards) as u8))
            .collect();
        RssPlusPlus {
            table,
            migrates: true,
        }
    }

    /// The same over connections that cannot move.
    pub fn pinned(shards: usize) -> RssPlusPlus {
        RssPlusPlus {
            migrates: false,
            ..RssPlusPlus::new(shards)
        }
    }

    /// The buckets that should move, and where to.
    pub fn solve(&self, change: &Change) -> Vec<(usize, ShardId)> {
        let load = &change.bucket_load;
        let mut of_shard = vec![0.0; change.active.len()];
        for (bucket, shard) in self.table.iter().enumerate() {
            of_shard[shard.index()] += load[bucket];
        }
        let fair = of_shard.iter().sum::<f64>() / change.members().count() as f64;
        let room = fair * (1.0 + TOLERANCE);
        let mut order: Vec<usize> = (0..BUCKETS).collect();
        order.sort_by(|&a, &b| load[b].total_cmp(&load[a]));
        let mut moves = Vec::new();
        for bucket in order {
            let from = self.table[bucket].index();
            let leaves = !change.active[from];
            if !leaves && of_shard[from] <= room {
                continue;
            }
            let to = change
                .members()
                .min_by(|&a, &b| of_shard[a].total_cmp(&of_shard[b]))
                .expect("a member");
            // Moved only if that helps: both cores' distance to fair must shrink.
            let helps = of_shard[from] - load[bucket] >= fair * (1.0 - TOLERANCE)
                && of_shard[to] + load[bucket] <= room;
            if leaves || helps {
                of_shard[from] -= load[bucket];
                of_shard[to] += load[bucket];
                moves.push((bucket, ShardId(to as u8)));
            }
        }
        moves
    }
}

impl Rival for RssPlusPlus {
    fn name(&self) -> &'static str {
        if self.migrates {
            "rss++ 4096, state moves"
        } else {
            "rss++ 4096, pinned"
        }
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        self.table[bucket(packet.key)].into()
    }

    fn opened(&mut self, packet: &Packet, sent: Sent, _: Option<ShardId>) -> ShardId {
        // The new core takes a bucket over when the old one's queue is empty: what waited there comes along.
        if self.migrates {
            self.table[bucket(packet.key)]
        } else {
            sent.to
        }
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        for (packet, owner) in packets.iter().zip(owners) {
            *owner = self.table[bucket(packet.key)];
        }
    }

    fn begin(&mut self, change: &Change, held: &mut dyn Held, cost: &mut Cost) {
        let moves = self.solve(change);
        let mut moved = vec![false; BUCKETS];
        for &(bucket, to) in &moves {
            self.table[bucket] = to;
            moved[bucket] = true;
        }
        if !self.migrates {
            return;
        }
        // A bucket waits while its flows are on their way. All were moved in one go here; each bucket is charged its share.
        let begin = crate::thread_time::thread_time_us();
        let table = &self.table;
        let count = held
            .migrate(&mut |packet, _| moved[bucket(packet.key)].then(|| table[bucket(packet.key)]));
        let each = (crate::thread_time::thread_time_us() - begin) / moves.len().max(1) as f64;
        cost.pieces_us.extend(moves.iter().map(|_| each));
        cost.migrated += count;
    }

    fn placement(&self, key: u32) -> Option<ShardId> {
        Some(self.table[bucket(key)])
    }

    fn bytes(&self) -> usize {
        // The counters that the solver reads are part of the table.
        self.table.len() * (size_of::<ShardId>() + size_of::<u32>())
    }
}
