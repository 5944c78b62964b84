//! The controller of all rivals whose one lever is how many new flows a shard gets: in proportion to what the shard
//! is short of, and never more than twice or less than half of its share. All get the same, so that what differs is what
//! the mechanism makes of it.

use super::Change;

/// How strongly a difference in load is answered.
const GAIN: f64 = 2.0;

/// The share of new flows that each shard should get, 1 on average over the active ones, 0 for the others.
pub fn weights(change: &Change) -> Vec<f64> {
    let fair = change.fair();
    let mut weights: Vec<f64> = change
        .active
        .iter()
        .zip(&change.load)
        .map(|(&active, &load)| match active {
            true if fair > 0.0 => (1.0 + GAIN * (fair - load) / fair).clamp(0.5, 2.0),
            true => 1.0,
            false => 0.0,
        })
        .collect();
    let mean = weights.iter().sum::<f64>() / change.members().count() as f64;
    weights.iter_mut().for_each(|weight| *weight /= mean);
    weights
}

/// The same in whole parts, `parts` on average, at least one for an active shard.
pub fn parts(change: &Change, parts: u16) -> Vec<u16> {
    let whole = |weight: f64| {
        if weight > 0.0 {
            (weight * f64::from(parts)).round().max(1.0) as u16
        } else {
            0
        }
    };
    weights(change).into_iter().map(whole).collect()
}
