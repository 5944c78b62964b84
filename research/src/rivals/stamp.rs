//! Cheetah, stateless (Barbette, Tang, Yao, Kostić, Maguire, Papadimitratos, Chiesa: "A high-speed load-balancer design
//! with guaranteed per-connection-consistency", NSDI 2020): the holder writes its number, xored with a keyed hash of the
//! flow, into the low bits of the TCP timestamps it sends; the peer echoes them, and steering reads them back. No table
//! at all. SYNs are placed by a Maglev table. A peer without timestamps (RFC 7323 is an option) leaves nothing
//! to read: its packets can only go by the hash.

use janus_csb::ShardId;

use super::maglev::{Maglev, SLOTS};
use super::{Change, Cost, Held, Packet, Rival, Sent, control};
use crate::rivals::world::mix;

/// Two no-operations, kind and length of the timestamps option: how all common stacks begin their options.
const LAYOUT: [u8; 4] = [1, 1, 8, 10];

/// The options of a SYN of a peer that uses timestamps, and those of one that does not.
pub fn syn_options(timestamps: bool) -> [u8; 12] {
    let mut options = [0; 12];
    if timestamps {
        options[..4].copy_from_slice(&LAYOUT);
    }
    options
}

/// What a shard's number is hidden under: who does not know the secret cannot aim at a shard.
const SECRET: u64 = 0x6368_6565_7461_6821;

fn veil(key: u32) -> u8 {
    mix(u64::from(key) ^ SECRET) as u8
}

/// The options of a flow's packets, once its holder has sent its number.
pub fn stamped(packet: &Packet, holder: ShardId) -> [u8; 12] {
    let mut options = packet.options;
    if options.starts_with(&LAYOUT) {
        // The rest of the echo is the clock of the holder.
        options[8..].copy_from_slice(&(packet.id as u32).to_be_bytes());
        options[11] = holder.0 ^ veil(packet.key);
    }
    options
}

/// The holder, if the packet echoes it.
#[inline]
pub fn echoed(packet: &Packet) -> Option<ShardId> {
    let echoes = packet.options.starts_with(&LAYOUT);
    echoes.then(|| ShardId(packet.options[11] ^ veil(packet.key)))
}

/// Owner bits in the echoed timestamp.
pub struct Stamp {
    placement: Maglev,
    name: &'static str,
}

impl Stamp {
    pub fn new(shards: usize, name: &'static str) -> Stamp {
        Stamp {
            placement: Maglev::fill(SLOTS, &vec![1.0; shards]),
            name,
        }
    }
}

impl Rival for Stamp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        self.placement.owner(packet.key).into()
    }

    fn echo(&self, packet: &Packet, holder: ShardId) -> [u8; 12] {
        stamped(packet, holder)
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        for (packet, owner) in packets.iter().zip(owners) {
            *owner = echoed(packet).unwrap_or_else(|| self.placement.owner(packet.key));
        }
    }

    fn begin(&mut self, change: &Change, _: &mut dyn Held, cost: &mut Cost) {
        let next = Maglev::fill(SLOTS, &control::weights(change));
        cost.piece(|| self.placement = next);
    }

    fn placement(&self, key: u32) -> Option<ShardId> {
        Some(self.placement.owner(key))
    }

    fn bytes(&self) -> usize {
        self.placement.bytes()
    }
}
