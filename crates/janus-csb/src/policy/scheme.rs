//! PIKA's five schemes: which shard serves a connection that has just been made, drawn for each connection by the time that the shards'
//! connections take from being offered to being closed. They move no point of the ring: the connection goes to the shard that is drawn.
//! The names are the paper's; what each does, where no more than its name is known here, is this project's reading of it (`docs/csb.md`).

use crate::shard::{ShardId, ShardSet};

#[cfg(test)]
mod tests;

/// How a shard is drawn. The number in a name is the *tariff*: a connection is dear elsewhere by this factor, as it has to be moved there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Each as often as any other, whatever its connections take.
    Naive,
    /// In inverse proportion to the time.
    Unfiltered2,
    /// Like that, with so high a tariff that nearly all stay, until a shard is a hundred times as slow as others.
    Unfiltered100,
    /// In inverse proportion to the time, without those where too many wait.
    Filtered2,
    /// Two as `Naive` draws them, and of these the one that takes less time.
    Tournament2,
}

/// A shard that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The shard.
    pub shard: ShardId,
    /// Median of the last [`ServiceWindow::LEN`](super::ServiceWindow::LEN) times from offered to closed; `None` before that is known.
    pub service_ns: Option<u64>,
    /// Connections that wait there to be accepted.
    pub waiting: u32,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 5] = [
        Scheme::Naive,
        Scheme::Unfiltered2,
        Scheme::Unfiltered100,
        Scheme::Filtered2,
        Scheme::Tournament2,
    ];

    /// Factor by which a connection takes longer anywhere else than where it is.
    fn tariff(self) -> f64 {
        match self {
            Scheme::Naive => 1.0,
            Scheme::Unfiltered100 => 100.0,
            Scheme::Unfiltered2 | Scheme::Filtered2 | Scheme::Tournament2 => 2.0,
        }
    }
}

/// One shard's draws by a scheme.
#[derive(Clone, Debug)]
pub struct Dealer {
    scheme: Scheme,
    /// Shards where too many wait.
    filtered: ShardSet,
}

impl Dealer {
    /// With so many connections waiting a shard is filtered, until there are no more than the second number.
    const WATERMARKS: (u32, u32) = (16, 4);

    /// Draws by this scheme.
    pub fn new(scheme: Scheme) -> Dealer {
        Dealer {
            scheme,
            filtered: ShardSet::EMPTY,
        }
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Draws the shard that serves a connection which is at `here`. `random` gives numbers of 64 random bits. With no other to draw it
    /// stays.
    pub fn draw(
        &mut self,
        here: ShardId,
        shards: &[Candidate],
        mut random: impl FnMut() -> u64,
    ) -> ShardId {
        let costs = self.costs(here, shards);
        let mut even = || (random() >> 32) as usize % costs.len();
        let drawn = match self.scheme {
            _ if costs.is_empty() => return here,
            Scheme::Naive => even(),
            Scheme::Tournament2 => {
                let (a, b) = (even(), even());
                if costs[b] < costs[a] { b } else { a }
            }
            Scheme::Unfiltered2 | Scheme::Unfiltered100 | Scheme::Filtered2 => {
                self.filter(shards);
                let all_filtered = shards.iter().all(|s| self.filtered.contains(s.shard));
                let left_out =
                    |at: usize| !all_filtered && self.filtered.contains(shards[at].shard);
                let weight = |at: usize| if left_out(at) { 0.0 } else { 1.0 / costs[at] };
                let all: f64 = (0..costs.len()).map(weight).sum();
                let mut left = all * (random() >> 11) as f64 / (1u64 << 53) as f64;
                let reached = |at: &usize| {
                    left -= weight(*at);
                    left < 0.0
                };
                // Rounding may leave a rest at the end.
                (0..costs.len()).find(reached).unwrap_or(costs.len() - 1)
            }
        };
        shards[drawn].shard
    }

    /// Returns the time that a connection of `here` takes at each. A shard that has not served enough counts as the mean of the others.
    fn costs(&self, here: ShardId, shards: &[Candidate]) -> Vec<f64> {
        let known = || shards.iter().filter_map(|s| s.service_ns);
        let mean = known().sum::<u64>() as f64 / known().count().max(1) as f64;
        let cost = |candidate: &Candidate| {
            let ns = candidate.service_ns.map_or(mean, |ns| ns as f64);
            let elsewhere = candidate.shard != here;
            ns.max(1.0) * if elsewhere { self.scheme.tariff() } else { 1.0 }
        };
        shards.iter().map(cost).collect()
    }

    fn filter(&mut self, shards: &[Candidate]) {
        if self.scheme != Scheme::Filtered2 {
            return;
        }
        let (high, low) = Dealer::WATERMARKS;
        for candidate in shards {
            if candidate.waiting >= high {
                self.filtered.insert(candidate.shard);
            } else if candidate.waiting <= low {
                self.filtered.remove(candidate.shard);
            }
        }
    }
}
