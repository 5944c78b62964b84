//! A full exact table, as in most stateful load balancers: every flow is in it from its SYN to its end, so a flow can be
//! placed anywhere (here: dealt in turn, by weight) and no change moves any. It is state made by any SYN, and each I/O core
//! needs all of it.

use janus_csb::ShardId;

use super::pins::Pins;
use super::{Change, Cost, Held, Packet, Rival, Sent, control};

/// Deals flows to shards in turn, in proportion to weights, as evenly as whole flows allow.
pub struct Dealer {
    weights: Vec<f64>,
    credit: Vec<f64>,
}

impl Dealer {
    pub fn new(weights: Vec<f64>) -> Dealer {
        Dealer {
            credit: vec![0.0; weights.len()],
            weights,
        }
    }

    pub fn deal(&mut self) -> ShardId {
        let mut best = 0;
        for shard in 0..self.weights.len() {
            self.credit[shard] += self.weights[shard];
            if self.weights[shard] > 0.0
                && (self.credit[shard] > self.credit[best] || self.weights[best] == 0.0)
            {
                best = shard;
            }
        }
        self.credit[best] -= self.weights.iter().sum::<f64>();
        ShardId(best as u8)
    }
}

/// Every flow's shard.
pub struct FullTable {
    flows: Pins,
    dealer: Dealer,
}

impl FullTable {
    pub fn new(shards: usize, flows: usize) -> FullTable {
        FullTable {
            flows: Pins::new(flows),
            dealer: Dealer::new(vec![1.0; shards]),
        }
    }
}

impl Rival for FullTable {
    fn name(&self) -> &'static str {
        "full table"
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        if let Some(shard) = self.flows.get(packet) {
            return shard.into();
        }
        let shard = self.dealer.deal();
        self.flows.insert(packet, shard);
        shard.into()
    }

    fn close(&mut self, packet: &Packet, _: ShardId) {
        self.flows.remove(packet);
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        self.flows.look_up(packets, owners);
    }

    fn begin(&mut self, change: &Change, _: &mut dyn Held, cost: &mut Cost) {
        cost.piece(|| self.dealer = Dealer::new(control::weights(change)));
    }

    fn placement(&self, _: u32) -> Option<ShardId> {
        None
    }

    fn bytes(&self) -> usize {
        self.flows.bytes()
    }
}
