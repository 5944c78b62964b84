//! Every script under `tests/packetdrill` at the root of the repository, each with several seeds, so that nothing
//! hangs on one initial sequence number. `JANUS_SCRIPT=part` runs only those whose path contains `part`.

use janus_sim::run::{Failure, Options, run_file, run_script};
use std::path::{Path, PathBuf};

mod own;

use own::{all, over_v6};

/// Seeds each script runs with.
const SEEDS: std::ops::Range<u64> = 0..2;

/// Runs each with every seed, and tells what failed.
fn run_all(found: &[PathBuf], run: impl Fn(&Path, &Options) -> Result<(), Failure>) {
    let mut failed = 0;
    for path in found {
        let with_seed = |seed| Options {
            seed,
            ..Options::default()
        };
        let failure = SEEDS
            .map(|seed| run(path, &with_seed(seed)))
            .find_map(Result::err);
        if let Some(failure) = failure {
            eprintln!("{failure}\n");
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "scripts failed, of {}", found.len());
}

#[test]
fn all_scripts_pass() {
    run_all(&all(), |path, options| run_file(path, options).map(|_| ()));
}

#[test]
fn all_scripts_pass_over_ipv6() {
    let all = all();
    let found: Vec<PathBuf> = all
        .iter()
        .filter(|p| over_v6(p).is_some())
        .cloned()
        .collect();
    let most = found.len() * 4 >= all.len() * 3;
    assert!(
        most || std::env::var("JANUS_SCRIPT").is_ok(),
        "only {} of {}",
        found.len(),
        all.len()
    );
    run_all(&found, |path, options| {
        let script = over_v6(path).expect("looked at before");
        let name = format!("{} over IPv6", path.display());
        run_script(&name, &script, options).map(|_| ())
    });
}
