//! Every input that the fuzzers found worth keeping, through the same functions, on any compiler. A new input goes to
//! `fuzz/corpus/NAME`; one that broke something stays there for good.

#[path = "../fuzz/src/lib.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the fuzzer's crate has other doors"
)]
mod targets;

use std::path::{Path, PathBuf};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name)
}

fn inputs(name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(corpus(name)).expect("a corpus");
    let mut inputs: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    inputs.sort();
    inputs
}

/// Runs all inputs of a target. How many there were.
fn replay(name: &str, target: fn(&[u8])) -> usize {
    let inputs = inputs(name);
    for input in &inputs {
        let bytes = std::fs::read(input).expect("an input");
        // The name is seen when the target panics.
        println!("{}", input.display());
        target(&bytes);
    }
    inputs.len()
}

macro_rules! corpora {
    ($($name:ident),+ $(,)?) => { $(
        #[test]
        fn $name() {
            let count = replay(stringify!($name), targets::$name);
            assert!(count >= 10, "{count} inputs are no corpus");
        }
    )+ };
}

corpora!(wire, frames, segments, script, http_head, parcel, message);

/// Parcels of another version are refused at their first bytes, and a corpus of them tries nothing.
#[test]
fn the_corpus_of_parcels_is_of_this_version() {
    if std::env::var_os("JANUS_WRITE").is_some() {
        for (name, input) in targets::samples() {
            let file = corpus("parcel").join(name);
            std::fs::write(file, input).expect("a file that can be written");
        }
    }
    let whole = inputs("parcel")
        .iter()
        .filter(|input| targets::is_parcel(&std::fs::read(input).expect("an input")))
        .count();
    assert!(
        whole >= 12,
        "{whole} parcels can be read: JANUS_WRITE=1 cargo test --test corpora writes them anew"
    );
}
