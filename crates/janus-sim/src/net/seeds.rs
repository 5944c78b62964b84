//! Runs a test with many seeds. The first that fails is named, with what replays it alone and the file its packets are
//! in.

use super::Network;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Names the seeds to run instead: `17`, or `0..20000` for a long run.
const SEED_VARIABLE: &str = "JANUS_SEED";

/// Runs `test` with a fresh network for each seed, or with those that `JANUS_SEED` names. `name` goes into the name of
/// the file that a failure leaves in the folder of temporary files.
pub fn for_each_seed(name: &str, seeds: Range<u64>, test: impl Fn(&mut Network)) {
    let seeds = match std::env::var(SEED_VARIABLE) {
        Ok(value) => chosen(&value)
            .unwrap_or_else(|| panic!("{SEED_VARIABLE}={value} is neither a seed nor a range")),
        Err(_) => seeds,
    };
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

/// `17` or `0..20000`.
fn chosen(value: &str) -> Option<Range<u64>> {
    match value.split_once("..") {
        Some((from, to)) => Some(from.parse().ok()?..to.parse().ok()?),
        None => value.parse().ok().map(|seed: u64| seed..seed + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_chosen_one_or_many() {
        assert_eq!(
            (chosen("17"), chosen("3..9"), chosen("x"), chosen("3..")),
            (Some(17..18), Some(3..9), None, None)
        );
    }

    #[test]
    fn a_failing_seed_leaves_its_packets() {
        let outcome =
            catch_unwind(|| for_each_seed("a-test-of-failing", 5..6, |_| panic!("on purpose")));
        assert!(outcome.is_err());
        let file = std::env::temp_dir().join("janus-a-test-of-failing-5.pcapng");
        assert!(
            std::fs::read(&file).is_ok_and(|bytes| bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]))
        );
        std::fs::remove_file(file).expect("the file just read");
    }
}
