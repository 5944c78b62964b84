//! An exact table from flows to shards, as the rivals that keep one use it: cache lines of eight entries, each 56
//! bits that identify the flow and the shard; the line is prefetched for the whole burst before any is looked at. Sized
//! once for the flows it may hold.

use janus_csb::ShardId;
use janus_mem::prefetch;

use super::{BURST, Packet};
use crate::rivals::world::mix;

/// A free entry. No flow is that: its name bits would have to be all ones.
const FREE: u64 = u64::MAX;

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line([u64; 8]);

/// Flows and their shards.
pub struct Pins {
    lines: Box<[Line]>,
    len: usize,
}

impl Pins {
    /// Entries of a line that are used when the table is as full as it is meant to be.
    const LOAD: f64 = 5.6;

    /// A table for `flows` flows.
    pub fn new(flows: usize) -> Pins {
        let lines = (flows as f64 / Pins::LOAD).ceil() as usize;
        Pins {
            lines: vec![Line([FREE; 8]); lines.max(2)].into(),
            len: 0,
        }
    }

    fn name(packet: &Packet) -> u64 {
        mix(packet.id) | 0xff
    }

    /// From the name's upper half: 32 bits are enough for the tables here.
    fn home(&self, name: u64) -> usize {
        ((name >> 32) as usize * self.lines.len()) >> 32
    }

    /// Notes a flow.
    pub fn insert(&mut self, packet: &Packet, shard: ShardId) {
        // Every other doubling of the load would only make the lines longer chains.
        if self.len + 1 > self.lines.len() * 7 {
            self.grow();
        }
        let name = Pins::name(packet);
        self.put(name & !0xff | u64::from(shard.0));
        self.len += 1;
    }

    fn put(&mut self, entry: u64) {
        let mut at = self.home(entry);
        loop {
            if let Some(slot) = self.lines[at].0.iter_mut().find(|slot| **slot == FREE) {
                *slot = entry;
                return;
            }
            at = (at + 1) % self.lines.len();
        }
    }

    /// Twice the lines, in one go: a table that was sized for its flows never gets here.
    fn grow(&mut self) {
        let wider = vec![Line([FREE; 8]); self.lines.len() * 2].into();
        let old = std::mem::replace(&mut self.lines, wider);
        old.iter()
            .flat_map(|line| line.0)
            .filter(|&entry| entry != FREE)
            .for_each(|entry| self.put(entry));
    }

    /// Forgets a flow; whether it was there. The last entry that could have gone to this line takes its place.
    pub fn remove(&mut self, packet: &Packet) -> bool {
        let name = Pins::name(packet);
        let count = self.lines.len();
        let mut at = self.home(name);
        let slot = loop {
            match self.lines[at]
                .0
                .iter()
                .position(|&entry| entry | 0xff == name && entry != FREE)
            {
                Some(slot) => break slot,
                None if self.lines[at].0.contains(&FREE) => return false,
                None => at = (at + 1) % count,
            }
        };
        let full = !self.lines[at].0.contains(&FREE);
        self.lines[at].0[slot] = FREE;
        self.len -= 1;
        if full {
            self.close_gap(at);
        }
        true
    }

    /// A line that was full has room: entries that overflowed past it may have to come home.
    fn close_gap(&mut self, from: usize) {
        let count = self.lines.len();
        let mut at = (from + 1) % count;
        loop {
            let full = !self.lines[at].0.contains(&FREE);
            for slot in 0..8 {
                let entry = self.lines[at].0[slot];
                if entry != FREE && self.home(entry) != at {
                    self.lines[at].0[slot] = FREE;
                    self.put(entry);
                }
            }
            if !full || at == from {
                return;
            }
            at = (at + 1) % count;
        }
    }

    /// The shards of flows that are in the table; others keep what `owners` says.
    pub fn look_up(&self, packets: &[Packet], owners: &mut [ShardId]) {
        let mut names = [(0usize, 0u64); BURST];
        for (packet, out) in packets.iter().zip(&mut names) {
            let name = Pins::name(packet);
            *out = (self.home(name), name);
            prefetch(&raw const self.lines[out.0]);
        }
        for (&(mut at, name), owner) in names.iter().zip(&mut owners[..packets.len()]) {
            loop {
                let line = &self.lines[at].0;
                // No branch inside: which of the entries it is, if any, is as random as the flows.
                let hit = line.iter().fold(
                    FREE,
                    |hit, &entry| if entry | 0xff == name { entry } else { hit },
                );
                *owner = if hit == FREE {
                    *owner
                } else {
                    ShardId(hit as u8)
                };
                if (hit != FREE) | line.contains(&FREE) {
                    break;
                }
                at = (at + 1) % self.lines.len();
            }
        }
    }

    pub fn get(&self, packet: &Packet) -> Option<ShardId> {
        const NOBODY: ShardId = ShardId(u8::MAX);
        let mut owner = [NOBODY];
        self.look_up(&[*packet], &mut owner);
        (owner[0] != NOBODY).then_some(owner[0])
    }

    pub fn count(&self) -> usize {
        self.len
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }
}
