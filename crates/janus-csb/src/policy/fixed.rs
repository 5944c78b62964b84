//! Weights as they are given. The ring is made to meet them, whatever the load.

use crate::shard::ShardId;

use super::{Policy, Round, Wish};

/// Weights that somebody chose.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    weights: Vec<(ShardId, f64)>,
}

impl Fixed {
    /// How far a share may be from its weight before the ring is changed, as a part of it.
    const BAND: f64 = 0.05;

    /// These weights; a shard that is not named has weight 1, so none named means all alike.
    pub fn new(weights: &[(ShardId, f64)]) -> Fixed {
        Fixed {
            weights: weights.to_vec(),
        }
    }

    fn weight(&self, shard: ShardId) -> f64 {
        let named = self
            .weights
            .iter()
            .rev()
            .find(|&&(named, _)| named == shard);
        named.map_or(1.0, |&(_, weight)| weight)
    }
}

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn weigh(&mut self, round: &Round<'_>) -> Wish {
        let named = round.shards.iter().map(|sample| sample.shard);
        let weights: Vec<(ShardId, f64)> = named.map(|shard| (shard, self.weight(shard))).collect();
        Wish {
            strain: round.distance(&weights) / Fixed::BAND.ln_1p(),
            weights,
            firm: true,
        }
    }
}
