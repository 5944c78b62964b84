//! Every script under `tests/packetdrill` at the root of the repository, each with several seeds, so that nothing
//! hangs on one initial sequence number. `JANUS_SCRIPT=part` runs only those whose path contains `part`.

use janus_sim::run::{Options, run_file};
use std::path::{Path, PathBuf};

/// Seeds each script runs with.
const SEEDS: std::ops::Range<u64> = 0..4;
/// Folders may nest this deep.
const DEPTH_MAX: usize = 6;

fn scripts(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() && depth < DEPTH_MAX {
            scripts(&path, depth + 1, found);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            found.push(path);
        }
    }
}

#[test]
fn all_scripts_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packetdrill");
    let folder = folder.canonicalize().expect("the folder of scripts");
    let mut found = Vec::new();
    scripts(&folder, 0, &mut found);
    found.sort();
    let wanted = std::env::var("JANUS_SCRIPT").unwrap_or_default();
    found.retain(|path| path.to_string_lossy().contains(&wanted));
    assert!(!found.is_empty(), "no script matches `{wanted}`");
    let mut failed = 0;
    for path in &found {
        let failure = SEEDS
            .map(|seed| {
                run_file(
                    path,
                    &Options {
                        seed,
                        ..Options::default()
                    },
                )
            })
            .find_map(Result::err);
        if let Some(failure) = failure {
            eprintln!("{failure}\n");
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "scripts failed, of {}", found.len());
}
