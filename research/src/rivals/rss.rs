//! Receive-side scaling as NICs have it: the low seven bits of the Toeplitz hash pick one of 128 entries. Nobody measures
//! anything; when a queue comes or goes only as many entries are written as must be. Source: Linux, `networking/scaling`,
//! which also says how uneven a table of four entries per queue is: about 16 % between the queues.

use janus_csb::ShardId;

use super::{Change, Cost, Held, Packet, Rival, Sent};

/// The indirection table.
pub struct StaticRss {
    table: Box<[ShardId]>,
}

impl StaticRss {
    /// Entries of the usual hardware.
    pub const ENTRIES: usize = 128;

    /// A table of `entries`, a power of two, dealt to the queues in turn.
    pub fn new(entries: usize, queues: usize) -> StaticRss {
        assert!(
            entries.is_power_of_two(),
            "low bits of the hash pick the entry"
        );
        StaticRss {
            table: (0..entries)
                .map(|entry| ShardId((entry % queues) as u8))
                .collect(),
        }
    }

    /// How many entries each queue has.
    pub fn shares(&self, queues: usize) -> Vec<usize> {
        let mut shares = vec![0; queues];
        self.table
            .iter()
            .for_each(|queue| shares[queue.index()] += 1);
        shares
    }

    fn at(&self, key: u32) -> ShardId {
        self.table[key as usize & (self.table.len() - 1)]
    }

    fn rewrite(&mut self, change: &Change) {
        let mut count = vec![0usize; change.active.len()];
        for queue in &self.table {
            count[queue.index()] += 1;
        }
        let members: Vec<usize> = change.members().collect();
        let fewest = |count: &[usize]| {
            members
                .iter()
                .copied()
                .min_by_key(|&m| count[m])
                .expect("a member")
        };
        let most = |count: &[usize]| {
            members
                .iter()
                .copied()
                .max_by_key(|&m| count[m])
                .expect("a member")
        };
        for entry in self
            .table
            .iter_mut()
            .filter(|entry| !change.active[entry.index()])
        {
            let to = fewest(&count);
            (count[entry.index()], count[to]) = (count[entry.index()] - 1, count[to] + 1);
            *entry = ShardId(to as u8);
        }
        loop {
            let (from, to) = (most(&count), fewest(&count));
            if count[from] <= count[to] + 1 {
                return;
            }
            let entry = self
                .table
                .iter_mut()
                .find(|entry| entry.index() == from)
                .expect("it has the most");
            *entry = ShardId(to as u8);
            (count[from], count[to]) = (count[from] - 1, count[to] + 1);
        }
    }
}

impl Rival for StaticRss {
    fn name(&self) -> &'static str {
        "rss 128"
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        self.at(packet.key).into()
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        for (packet, owner) in packets.iter().zip(owners) {
            *owner = self.at(packet.key);
        }
    }

    fn begin(&mut self, change: &Change, _: &mut dyn Held, cost: &mut Cost) {
        cost.piece(|| self.rewrite(change));
    }

    fn placement(&self, key: u32) -> Option<ShardId> {
        Some(self.at(key))
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.table)
    }
}
