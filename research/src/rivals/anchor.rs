//! AnchorHash (Mendelson, Vargaftik, Barabash, Lorenz, Keslassy, Orda: "AnchorHash: a scalable consistent hash", ToN
//! 2021), the in-place form with four arrays, and on it JET ("Load balancing with JET: just enough tracking for
//! connection consistency", CoNEXT 2021): only flows that could change their shard when the shards of the *horizon* are
//! added are tracked, a share of |H| / (|W| + |H|). Shards have many buckets each, so that weights are numbers of
//! buckets. Changes that JET does not foresee (a re-weighting, a removal whose connections must live on) get what
//! our own updates have: one visit of all flows, which makes the tracked set exact again.

use janus_csb::ShardId;

use super::pins::Pins;
use super::{Change, Cost, Held, Packet, Rival, Sent, control};
use crate::rivals::world::mix;

/// Buckets, working or removed, and which of them a key belongs to.
#[derive(Clone)]
pub struct Anchor {
    /// 0 for a working bucket, else how many worked just after it was removed.
    removed_at: Vec<u32>,
    /// Who took a bucket's place when it was removed.
    successor: Vec<u32>,
    /// The working buckets without a gap, and where each bucket is, or was, in there.
    working: Vec<u32>,
    place: Vec<u32>,
    removed: Vec<u32>,
    count: usize,
}

impl Anchor {
    /// `capacity` buckets, of which the first `working` work.
    pub fn new(capacity: usize, working: usize) -> Anchor {
        assert!(
            0 < working && working <= capacity,
            "some buckets must work, not more than there are"
        );
        let all: Vec<u32> = (0..capacity as u32).collect();
        let mut removed_at = all.clone();
        removed_at[..working].fill(0);
        Anchor {
            removed_at,
            successor: all.clone(),
            working: all.clone(),
            removed: all[working..].iter().rev().copied().collect(),
            place: all,
            count: working,
        }
    }

    /// Puts the bucket that was removed last back to work.
    pub fn add(&mut self) -> Option<usize> {
        let bucket = self.removed.pop()?;
        let (b, n) = (bucket as usize, self.count);
        self.removed_at[b] = 0;
        self.place[self.working[n] as usize] = n as u32;
        self.working[self.place[b] as usize] = bucket;
        self.successor[b] = bucket;
        self.count += 1;
        Some(b)
    }

    /// Takes a working bucket out.
    pub fn remove(&mut self, bucket: usize) {
        assert!(
            self.removed_at[bucket] == 0 && self.count > 1,
            "it works, and not alone"
        );
        self.removed.push(bucket as u32);
        self.count -= 1;
        let last = self.working[self.count];
        self.removed_at[bucket] = self.count as u32;
        self.working[self.place[bucket] as usize] = last;
        self.successor[bucket] = last;
        self.place[last as usize] = self.place[bucket];
    }

    /// The bucket of a key, how many hashes that took, and whether one of the `horizon` buckets that were removed last
    /// would get the key if they came back.
    #[inline]
    pub fn find(&self, key: u32, horizon: usize) -> (usize, u32, bool) {
        let mut hash = mix(u64::from(key) ^ 0x616e_6368);
        let mut bucket = below(hash, self.removed_at.len() as u32);
        let (mut hashes, mut unsafe_) = (1, false);
        while self.removed_at[bucket] > 0 {
            let removed_at = self.removed_at[bucket];
            unsafe_ |= (removed_at as usize) < self.count + horizon;
            hash = mix(hash ^ bucket as u64);
            hashes += 1;
            let mut next = below(hash, removed_at);
            while self.removed_at[next] >= removed_at {
                next = self.successor[next] as usize;
            }
            bucket = next;
        }
        (bucket, hashes, unsafe_)
    }

    pub fn working(&self) -> usize {
        self.count
    }

    pub fn is_working(&self, bucket: usize) -> bool {
        self.removed_at[bucket] == 0
    }

    pub fn bytes(&self) -> usize {
        self.removed_at.len() * 4 * size_of::<u32>()
    }
}

fn below(hash: u64, bound: u32) -> usize {
    (((hash >> 32) * u64::from(bound)) >> 32) as usize
}

/// AnchorHash with an exact set of the flows that it would lose.
pub struct Jet {
    anchor: Anchor,
    shard_of: Vec<ShardId>,
    tracked: Pins,
    horizon: usize,
}

impl Jet {
    /// Buckets of a shard with an average weight.
    const BUCKETS: u16 = 64;

    pub fn new(shards: usize, flows: usize) -> Jet {
        let working = shards * usize::from(Jet::BUCKETS);
        // A quarter to spare: two or three shards more, and what they are heavier than average.
        let capacity = working + working / 4;
        Jet {
            anchor: Anchor::new(capacity, working),
            shard_of: (0..capacity)
                .map(|bucket| ShardId((bucket % shards) as u8))
                .collect(),
            tracked: Pins::new(flows / 8),
            horizon: usize::from(Jet::BUCKETS),
        }
    }

    /// Flows in the set.
    pub fn tracked(&self) -> usize {
        self.tracked.count()
    }

    fn owner(&self, key: u32) -> (ShardId, bool) {
        let (bucket, _, unsafe_) = self.anchor.find(key, self.horizon);
        (self.shard_of[bucket], unsafe_)
    }

    fn buckets_of(&self, shard: usize) -> Vec<usize> {
        let mine = |&bucket: &usize| {
            self.anchor.is_working(bucket) && self.shard_of[bucket].index() == shard
        };
        (0..self.shard_of.len()).filter(mine).collect()
    }

    /// The buckets and shards after the change, and whether a flow outside the horizon may have changed its shard.
    fn changed(&self, change: &Change) -> (Anchor, Vec<ShardId>, usize, bool) {
        let (mut anchor, mut shard_of, mut horizon) =
            (self.anchor.clone(), self.shard_of.clone(), self.horizon);
        let mut unforeseen = false;
        let want = control::parts(change, Jet::BUCKETS);
        let mut surplus = Vec::new();
        let mut short = Vec::new();
        for (shard, &want) in want.iter().enumerate() {
            let (want, mut mine) = (usize::from(want), self.buckets_of(shard));
            if want == 0 && !mine.is_empty() {
                mine.iter().for_each(|&bucket| anchor.remove(bucket));
                (horizon, unforeseen) = (mine.len(), true);
            } else if mine.is_empty() && want > 0 {
                // A shard comes: with as many buckets as the horizon foresaw.
                (0..horizon)
                    .filter_map(|_| anchor.add())
                    .for_each(|bucket| shard_of[bucket] = ShardId(shard as u8));
                horizon = usize::from(Jet::BUCKETS);
            } else {
                (mine.len() > want).then(|| surplus.extend(mine.drain(want..)));
                short.extend((mine.len()..want).map(|_| ShardId(shard as u8)));
            }
        }
        for (bucket, shard) in surplus.into_iter().zip(short) {
            (shard_of[bucket], unforeseen) = (shard, true);
        }
        (anchor, shard_of, horizon, unforeseen)
    }
}

impl Rival for Jet {
    fn name(&self) -> &'static str {
        "anchorhash + jet"
    }

    fn open(&mut self, packet: &Packet) -> Sent {
        if let Some(shard) = self.tracked.get(packet) {
            return shard.into();
        }
        let (shard, _) = self.owner(packet.key);
        self.tracked.insert(packet, shard);
        shard.into()
    }

    fn opened(&mut self, packet: &Packet, sent: Sent, _: Option<ShardId>) -> ShardId {
        // While it was on its way nobody could have visited it; from now on only those are tracked that must be.
        let (shard, unsafe_) = self.owner(packet.key);
        if !unsafe_ && shard == sent.to {
            self.tracked.remove(packet);
        }
        sent.to
    }

    fn close(&mut self, packet: &Packet, _: ShardId) {
        self.tracked.remove(packet);
    }

    fn look_up(&mut self, packets: &[Packet], owners: &mut [ShardId]) {
        for (packet, owner) in packets.iter().zip(owners.iter_mut()) {
            *owner = self.owner(packet.key).0;
        }
        self.tracked.look_up(packets, owners);
    }

    fn begin(&mut self, change: &Change, held: &mut dyn Held, cost: &mut Cost) {
        let (anchor, shard_of, horizon, unforeseen) = self.changed(change);
        (self.anchor, self.shard_of, self.horizon) = (anchor, shard_of, horizon);
        if !unforeseen {
            return;
        }
        let mut slices = cost.slices();
        held.visit(&mut |packet, holder| {
            let (shard, unsafe_) = self.owner(packet.key);
            let (needed, there) = (
                unsafe_ || shard != holder,
                self.tracked.get(packet).is_some(),
            );
            if needed && !there {
                self.tracked.insert(packet, holder);
            } else if there && !needed {
                self.tracked.remove(packet);
            }
            slices.tick();
        });
    }

    fn placement(&self, key: u32) -> Option<ShardId> {
        Some(self.owner(key).0)
    }

    fn bytes(&self) -> usize {
        self.anchor.bytes() + size_of_val(&*self.shard_of) + self.tracked.bytes()
    }
}
