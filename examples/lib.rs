//! Programs on Janus, one file each: `cargo run --release --example NAME` from the repository's root.
