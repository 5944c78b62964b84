//! What the comparison suggests, tried: owner bits in timestamps as a hint in front of our balancer. A packet that echoes
//! goes straight to the shard that the echo names; SYNs and packets without an echo go by the balancer, and the walk
//! repairs what is wrong. Nothing of the protocol changes: steering is a hint anyway.

use janus_csb::ShardId;

use super::ours::Ours;
use super::stamp::{echoed, stamped};
use super::{BURST, Change, Cost, Held, Packet, Rival, Sent};

/// Our balancer behind the echo.
pub struct Stamped {
    ours: Ours,
    shards: u8,
}

impl Stamped {
    pub fn new(shards: usize, points: u16, flows: usize) -> Stamped {
        Stamped {
            ours: Ours::new(shards, points, flows),
            shards: shards as u8,
        }
    }

    /// A peer can echo anything.
    fn named(&self, packet: &Packet) -> Option<ShardId> {
        echoed(packet).filter(|shard| shard.0 < self.shards)
    }
}

impl Rival for Stamped {
    fn name(&self) -> &'static str {
        "csb, ours, behind owner bits"
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        self.ours.open(packet)
    }

    fn opened(&mut self, packet: &Packet, sent: Sent, holder: Option<ShardId>) -> ShardId {
        self.ours.opened(packet, sent, holder)
    }

    fn echo(&self, packet: &Packet, holder: ShardId) -> [u8; 12] {
        stamped(packet, holder)
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        let mut at = [0u8; BURST];
        let mut count = 0;
        // No branch on who echoes and who does not.
        for (i, (packet, owner)) in packets.iter().zip(owners.iter_mut()).enumerate() {
            let named = self.named(packet);
            *owner = named.unwrap_or(ShardId(0));
            at[count] = i as u8;
            count += usize::from(named.is_none());
        }
        if count > 0 {
            let (mut plain, mut found) = ([Packet::default(); BURST], [ShardId(0); BURST]);
            for (&i, packet) in at[..count].iter().zip(&mut plain) {
                *packet = packets[usize::from(i)];
            }
            self.ours.look_up(&plain[..count], &mut found[..count]);
            for (&i, &shard) in at[..count].iter().zip(&found) {
                owners[usize::from(i)] = shard;
            }
        }
    }

    fn forward(&mut self, packet: &Packet, shard: ShardId, hops: usize) -> Option<ShardId> {
        self.ours.forward(packet, shard, hops)
    }

    fn begin(&mut self, change: &Change, held: &mut dyn Held, cost: &mut Cost) {
        self.ours.begin(change, held, cost);
    }

    fn step(&mut self, held: &mut dyn Held, cost: &mut Cost) -> bool {
        self.ours.step(held, cost)
    }

    fn placement(&self, key: u32) -> Option<ShardId> {
        self.ours.placement(key)
    }

    fn bytes(&self) -> usize {
        self.ours.bytes()
    }
}
