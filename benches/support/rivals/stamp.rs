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

/// Owner bits in the echoed timestamp.
pub struct Stamp {
    placement: Maglev,
    secret: u64,
    name: &'static str,
}

impl Stamp {
    pub fn new(shards: usize, name: &'static str) -> Stamp {
        Stamp {
            placement: Maglev::fill(SLOTS, &vec![1.0; shards]),
            secret: 0x6368_6565_7461_6821,
            name,
        }
    }

    fn veil(&self, key: u32) -> u8 {
        mix(u64::from(key) ^ self.secret) as u8
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
        let mut options = packet.options;
        if options.starts_with(&LAYOUT) {
            // The rest of the echo is the clock of the holder.
            options[8..].copy_from_slice(&(packet.id as u32).to_be_bytes());
            options[11] = holder.0 ^ self.veil(packet.key);
        }
        options
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        for (packet, owner) in packets.iter().zip(owners) {
            let stamped = packet.options.starts_with(&LAYOUT);
            *owner = match stamped {
                true => ShardId(packet.options[11] ^ self.veil(packet.key)),
                false => self.placement.owner(packet.key),
            };
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
