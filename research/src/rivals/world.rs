//! The flows that all rivals are put under: how heavy they are, how they come and go, which changes of the shards happen
//! meanwhile, and the judge of what becomes of them. Everything follows from a seed, and is the same for each rival; a
//! flow that a rival broke is opened anew by its client, as clients do.

use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Instant;

use janus_csb::ShardId;
use janus_wire::{FlowKeyV4, MICROSOFT_KEY, Toeplitz};

use super::rsspp::{BUCKETS, bucket};
use super::stamp::syn_options;
use super::{BURST, Change, Cost, Held, Packet, Rival, SHARDS_MAX, Sent};

/// SplitMix64's last step: a bijection of 64 bits.
#[inline]
pub fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Numbers from a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (((self.bits() >> 32) * bound as u64) >> 32) as usize
    }

    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How the load is spread over the flows.
#[derive(Clone, Copy, Debug)]
pub enum Sizes {
    /// All the same.
    Uniform,
    /// The flow of rank r weighs r^-s.
    Zipf(f64),
    /// One in a thousand weighs a thousand: half of the load.
    Elephants,
}

impl Sizes {
    fn draw(self, random: &mut Random, flows: usize) -> f64 {
        let u = random.unit();
        match self {
            Sizes::Uniform => 1.0,
            Sizes::Zipf(s) => (u * flows as f64).ceil().max(1.0).powf(-s),
            Sizes::Elephants => {
                if u < 1e-3 {
                    1_000.0
                } else {
                    1.0
                }
            }
        }
    }
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    pub flows: usize,
    pub shards: usize,
    pub updates: usize,
    /// The share of the flows that end, and are followed by others, between two updates.
    pub churn: f64,
    pub sizes: Sizes,
    /// The share of the peers that use no TCP timestamps.
    pub plain: f64,
    pub seed: u64,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Live flows whose packets came to a shard that did not hold them, of all that went through an update.
    pub broken: u64,
    /// Repeated SYNs that came to another shard than their flow's.
    pub second_flows: u64,
    /// Flows that went through an update, summed over the updates.
    pub exposed: u64,
    pub forwards: u64,
    pub looked_up: u64,
    /// The share of the keys whose placement changed, and the least share that gives the same weights.
    pub moved: f64,
    pub moved_ideal: f64,
    /// The fullest active shard over the mean, by flows and by cycles, at each update.
    pub by_flows: Vec<f64>,
    pub by_cycles: Vec<f64>,
    pub bytes: usize,
    pub migrated: usize,
    pub update_ms: Vec<f64>,
    pub pieces_us: Vec<f64>,
}

/// Whether a SYN begins a flow, or repeats what began it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Syn {
    First,
    Again,
}

/// The flows and their holders.
pub struct World {
    trace: Trace,
    pub packets: Vec<Packet>,
    pub holder: Vec<ShardId>,
    weight: Vec<f64>,
    random: Random,
    /// Apart, so that what a rival breaks does not change what comes after.
    reopened: Random,
    toeplitz: Toeplitz,
    active: Vec<bool>,
    /// SYNs on their way: of new flows, whose slots are empty meanwhile, and repeated ones.
    under_way: Vec<(usize, Packet, Sent, Syn)>,
    live: Vec<bool>,
}

impl Held for World {
    fn visit(&self, see: &mut dyn FnMut(&Packet, ShardId)) {
        self.visit_at(0..self.packets.len(), see);
    }

    fn visit_at(&self, places: Range<usize>, see: &mut dyn FnMut(&Packet, ShardId)) -> Option<()> {
        (places.start < self.packets.len()).then(|| {
            for slot in places.start..places.end.min(self.packets.len()) {
                if self.live[slot] {
                    see(&self.packets[slot], self.holder[slot]);
                }
            }
        })
    }

    fn count(&self) -> usize {
        self.packets.len()
    }

    fn migrate(&mut self, moves: &mut dyn FnMut(&Packet, ShardId) -> Option<ShardId>) -> usize {
        let mut count = 0;
        let live = self.live.iter();
        for ((packet, holder), live) in self.packets.iter().zip(&mut self.holder).zip(live) {
            if !live {
                continue;
            }
            if let Some(to) = moves(packet, *holder).filter(|to| to != holder) {
                *holder = to;
                count += 1;
            }
        }
        count
    }
}

impl World {
    /// A world in which `rival` has placed all flows.
    pub fn new(trace: Trace, rival: &mut dyn Rival) -> World {
        let mut world = World {
            trace,
            packets: vec![Packet::default(); trace.flows],
            holder: vec![ShardId(0); trace.flows],
            weight: vec![0.0; trace.flows],
            random: Random::new(trace.seed),
            reopened: Random::new(!trace.seed),
            toeplitz: Toeplitz::new(&MICROSOFT_KEY),
            active: (0..trace.shards).map(|_| true).collect(),
            under_way: Vec::new(),
            live: vec![false; trace.flows],
        };
        assert!(trace.shards <= SHARDS_MAX, "at most {SHARDS_MAX} shards");
        for slot in 0..trace.flows {
            let flow = world.draw();
            world.open(slot, flow, rival);
            world.arrive(rival, &mut Verdict::default());
        }
        world
    }

    /// The next flow of the trace: its name and weight.
    fn draw(&mut self) -> (u64, f64) {
        let name = self.random.bits();
        (
            name,
            self.trace.sizes.draw(&mut self.random, self.trace.flows),
        )
    }

    /// A new flow in this slot.
    fn open(&mut self, slot: usize, (name, weight): (u64, f64), rival: &mut dyn Rival) {
        self.weight[slot] = weight;
        self.place(slot, name, rival);
    }

    fn place(&mut self, slot: usize, name: u64, rival: &mut dyn Rival) {
        let tuple = FlowKeyV4 {
            peer: Ipv4Addr::from((name >> 32) as u32),
            local: Ipv4Addr::from(0x0a00_0000 | name as u32 & 0xffff),
            peer_port: (name >> 16) as u16,
            local_port: 80,
        };
        let timestamps = mix(name) >> 11 >= (self.trace.plain * (1u64 << 53) as f64) as u64;
        let packet = Packet {
            id: name,
            key: self
                .toeplitz
                .hash_v4(tuple.peer, tuple.local, tuple.peer_port, tuple.local_port),
            options: syn_options(timestamps),
        };
        let sent = rival.open(&packet);
        self.live[slot] = false;
        self.under_way.push((slot, packet, sent, Syn::First));
    }

    /// What was on its way is taken in.
    fn arrive(&mut self, rival: &mut dyn Rival, verdict: &mut Verdict) {
        for (slot, mut packet, sent, syn) in std::mem::take(&mut self.under_way) {
            if syn == Syn::First {
                self.holder[slot] = rival.opened(&packet, sent, None);
                packet.options = rival.echo(&packet, self.holder[slot]);
                self.packets[slot] = packet;
                self.live[slot] = true;
            } else if self.live[slot] && self.packets[slot].id == packet.id {
                let at = rival.opened(&packet, sent, Some(self.holder[slot]));
                verdict.second_flows += u64::from(at != self.holder[slot]);
            }
        }
    }

    fn end(&mut self, slot: usize, rival: &mut dyn Rival) {
        rival.close(&self.packets[slot], self.holder[slot]);
    }

    /// `share` of the flows end and others come; one SYN in fifty is sent again, by a flow that lives.
    fn churn(&mut self, share: f64, rival: &mut dyn Rival) {
        for _ in 0..(self.trace.flows as f64 * share) as usize {
            let slot = self.random.below(self.trace.flows);
            let repeats = self.random.below(50) == 0;
            let next = self.draw();
            if !self.live[slot] {
                continue;
            }
            if repeats {
                let options = syn_options(self.packets[slot].options[0] != 0);
                let again = Packet {
                    options,
                    ..self.packets[slot]
                };
                let sent = rival.open(&again);
                self.under_way.push((slot, again, sent, Syn::Again));
            } else {
                self.end(slot, rival);
                self.open(slot, next, rival);
            }
        }
    }

    /// Where a packet of the flow ends that came to `shard` first; whether that is its holder.
    fn follow(
        &self,
        slot: usize,
        shard: &mut ShardId,
        rival: &mut dyn Rival,
        verdict: &mut Verdict,
    ) -> bool {
        let mut hops = 0;
        while *shard != self.holder[slot] {
            match rival.forward(&self.packets[slot], *shard, hops) {
                Some(next) => *shard = next,
                None => return false,
            }
            (hops, verdict.forwards) = (hops + 1, verdict.forwards + 1);
        }
        true
    }

    /// A packet of each of these flows; what is broken is opened anew.
    fn packets_of(&mut self, slots: &[usize], rival: &mut dyn Rival, verdict: &mut Verdict) {
        for slots in slots.chunks(BURST) {
            let mut packets = [Packet::default(); BURST];
            let mut owners = [ShardId(u8::MAX); BURST];
            slots
                .iter()
                .zip(&mut packets)
                .for_each(|(&slot, packet)| *packet = self.packets[slot]);
            rival.look_up(&packets[..slots.len()], &mut owners[..slots.len()]);
            verdict.looked_up += slots.len() as u64;
            for (&slot, packet, mut owner) in slots
                .iter()
                .zip(&packets)
                .zip(owners)
                .map(|((s, p), o)| (s, p, o))
            {
                // A flow may be in the burst twice and already be another.
                if self.live[slot]
                    && packet.id == self.packets[slot].id
                    && !self.follow(slot, &mut owner, rival, verdict)
                {
                    verdict.broken += 1;
                    self.end(slot, rival);
                    let name = self.reopened.bits();
                    self.place(slot, name, rival);
                }
            }
        }
    }

    fn traffic(&mut self, rival: &mut dyn Rival, verdict: &mut Verdict) {
        self.arrive(rival, verdict);
        let slots: Vec<usize> = (0..self.trace.flows / 64)
            .map(|_| self.random.below(self.trace.flows))
            .collect();
        self.packets_of(&slots, rival, verdict);
        // Their SYNs wait while the update takes its next step.
        self.churn(self.trace.churn / 16.0, rival);
    }

    /// A packet of every flow.
    fn audit(&mut self, rival: &mut dyn Rival, verdict: &mut Verdict) {
        self.arrive(rival, verdict);
        let all: Vec<usize> = (0..self.trace.flows).collect();
        self.packets_of(&all, rival, verdict);
        self.arrive(rival, verdict);
        verdict.exposed += self.trace.flows as u64;
    }

    fn change(&mut self, update: usize) -> Change {
        // A shard leaves, the load is evened out, it comes back, and so on with the next one.
        let leaving = (update / 8 * 5) % self.trace.shards;
        match update % 8 {
            4 => self.active[leaving] = false,
            7 => self.active[leaving] = true,
            _ => {}
        }
        let mut load = vec![0.0; self.trace.shards];
        let mut bucket_load = vec![0.0; BUCKETS];
        for ((packet, holder), weight) in self.packets.iter().zip(&self.holder).zip(&self.weight) {
            load[holder.index()] += weight;
            bucket_load[bucket(packet.key)] += weight;
        }
        Change {
            active: self.active.clone(),
            load,
            bucket_load,
        }
    }

    fn weigh(&self, verdict: &mut Verdict) {
        let (mut flows, mut cycles) = (vec![0.0; self.trace.shards], vec![0.0; self.trace.shards]);
        for (holder, weight) in self.holder.iter().zip(&self.weight) {
            flows[holder.index()] += 1.0;
            cycles[holder.index()] += weight;
        }
        let fullest = |load: &[f64]| {
            let active: Vec<f64> = load
                .iter()
                .zip(&self.active)
                .filter(|(_, a)| **a)
                .map(|(l, _)| *l)
                .collect();
            active.iter().copied().fold(0.0, f64::max)
                / (active.iter().sum::<f64>() / active.len() as f64)
        };
        verdict.by_flows.push(fullest(&flows));
        verdict.by_cycles.push(fullest(&cycles));
    }

    /// Lets it all happen.
    pub fn run(&mut self, rival: &mut dyn Rival) -> Verdict {
        const PROBES: usize = 1 << 15;
        let probes: Vec<u32> = (0..PROBES as u64)
            .map(|i| mix(i ^ 0x7072_6f62) as u32)
            .collect();
        let placed = |rival: &dyn Rival| -> Vec<Option<ShardId>> {
            probes.iter().map(|&k| rival.placement(k)).collect()
        };
        let mut verdict = Verdict::default();
        for update in 0..self.trace.updates {
            self.churn(self.trace.churn, rival);
            self.arrive(rival, &mut verdict);
            // Some SYNs are on their way whenever a change begins.
            self.churn(self.trace.churn / 16.0, rival);
            let (change, before) = (self.change(update), placed(rival));
            let mut cost = Cost::default();
            let begin = Instant::now();
            rival.begin(&change, self, &mut cost);
            let mut working = begin.elapsed();
            loop {
                self.traffic(rival, &mut verdict);
                let begin = Instant::now();
                let done = rival.step(self, &mut cost);
                working += begin.elapsed();
                if done {
                    break;
                }
            }
            verdict.update_ms.push(working.as_secs_f64() * 1e3);
            verdict.pieces_us.append(&mut cost.pieces_us);
            verdict.migrated += cost.migrated;
            self.audit(rival, &mut verdict);
            self.weigh(&mut verdict);
            let (moved, ideal) = moved(&before, &placed(rival));
            (verdict.moved, verdict.moved_ideal) =
                (verdict.moved + moved, verdict.moved_ideal + ideal);
        }
        verdict.bytes = rival.bytes();
        verdict
    }
}

/// The share of the probes that changed their shard, and how many must have, as the shards' shares are.
fn moved(before: &[Option<ShardId>], after: &[Option<ShardId>]) -> (f64, f64) {
    let mut shares = [0i64; 256];
    let mut moved = 0;
    for (before, after) in before.iter().zip(after) {
        let (Some(before), Some(after)) = (before, after) else {
            return (0.0, 0.0);
        };
        moved += usize::from(before != after);
        shares[before.index()] -= 1;
        shares[after.index()] += 1;
    }
    let ideal = shares.iter().map(|share| share.unsigned_abs()).sum::<u64>() as f64 / 2.0;
    (
        moved as f64 / before.len() as f64,
        ideal / before.len() as f64,
    )
}
