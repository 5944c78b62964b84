//! Runs a test with many seeds. The first that fails is named, with what replays it alone and the file its packets are
//! in.

use super::Network;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Names the one seed to run.
const SEED_VARIABLE: &str = "JANUS_SEED";

/// Runs `test` with a fresh network for each seed, or with the one that `JANUS_SEED` names. `name` goes into the name of
/// the file that a failure leaves in the folder of temporary files.
pub fn for_each_seed(name: &str, seeds: Range<u64>, test: impl Fn(&mut Network)) {
    let chosen = std::env::var(SEED_VARIABLE).ok().map(|value| {
        value
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("{SEED_VARIABLE}={value} is not a number"))
    });
    let seeds = chosen.map_or(seeds, |seed| seed..seed + 1);
    for seed in seeds {
        let mut network = Network::new(seed);
        let outcome = catch_unwind(AssertUnwindSafe(|| test(&mut network)));
        if let Err(panic) = outcome {
            let file = std::env::temp_dir().join(format!("janus-{name}-{seed}.pcapng"));
            let packets = match std::fs::write(&file, network.pcapng()) {
                Ok(()) => format!("its packets are in {}", file.display()),
                Err(error) => format!(
                    "its packets could not be written to {}: {error}",
                    file.display()
                ),
            };
            eprintln!(
                "{name} failed with seed {seed}: replay it with {SEED_VARIABLE}={seed}; {packets}"
            );
            resume_unwind(panic);
        }
    }
}
