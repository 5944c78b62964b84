//! A moving mean for each shard that forgets with time, not with the number of samples: rounds need not be regular.

use core::time::Duration;

use crate::shard::ShardId;

#[derive(Clone, Debug)]
pub(super) struct Smooth {
    /// How long ago a sample was that counts 1/e of a fresh one.
    memory: Duration,
    means: Vec<Option<(Duration, f64)>>,
}

impl Smooth {
    pub(super) fn new(memory: Duration) -> Smooth {
        Smooth {
            memory,
            means: vec![None; 256],
        }
    }

    /// The mean with one more value. The first value is the mean.
    pub(super) fn add(&mut self, at: Duration, shard: ShardId, value: f64) -> f64 {
        let mean = &mut self.means[shard.index()];
        let now = match *mean {
            None => value,
            Some((before, mean)) => {
                let passed = at.saturating_sub(before).as_secs_f64();
                let keep = (-passed / self.memory.as_secs_f64().max(1e-9)).exp();
                mean * keep + value * (1.0 - keep)
            }
        };
        *mean = Some((at, now));
        now
    }
}

#[test]
fn it_forgets_with_time_however_many_samples_there_are() {
    let second = Duration::from_secs(1);
    let (mut often, mut seldom) = (Smooth::new(second), Smooth::new(second));
    let shard = ShardId(3);
    assert_eq!(often.add(Duration::ZERO, shard, 8.0), 8.0);
    seldom.add(Duration::ZERO, shard, 8.0);
    let mut mean = 0.0;
    for n in 1..=100 {
        mean = often.add(second * n / 100, shard, 0.0);
    }
    assert!((mean - 8.0 / core::f64::consts::E).abs() < 1e-9, "{mean}");
    let mean_of_one = seldom.add(second, shard, 0.0);
    assert!((mean - mean_of_one).abs() < 1e-9);
}
