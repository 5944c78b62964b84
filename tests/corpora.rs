//! Every input that the fuzzers found worth keeping, through the same functions, on any compiler. A new input goes to
//! `fuzz/corpus/NAME`; one that broke something stays there for good.

#[path = "../fuzz/src/lib.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the fuzzer's crate has other doors"
)]
mod targets;

use std::path::Path;

/// Runs all inputs of a target. How many there were.
fn replay(name: &str, target: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let entries = std::fs::read_dir(&folder).expect("a corpus");
    let mut inputs: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    inputs.sort();
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

corpora!(wire, frames, segments, script, http_head);
