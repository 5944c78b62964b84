//! Packet I/O, part by part: rings and pools beside other people's, a hop and a wake, the way from an I/O core to a shard
//! and back, the first packet after idleness, batch sizes under load, and devices beside a plain loop over the same
//! system calls. `cargo bench --bench io -- ring wake` runs some parts only; without a word all run. AF_XDP and DPDK have
//! benchmarks of their own, `xdp` and `dpdk`, with their ceilings in them.

mod batching;
mod echo;
mod first_packet;
mod mirror;
mod pin;
mod pipeline;
mod pools;
mod rings;
mod stillness;
#[path = "../support/mod.rs"]
mod support;
mod tap;
mod wake;
mod wire;

use support::Scale;
use support::report::Report;

type Part = fn(Scale, &mut Report);

const PARTS: [(&str, Part); 8] = [
    ("ring", rings::run),
    ("pool", pools::run),
    ("wake", wake::run),
    ("pipeline", pipeline::run),
    ("wire", wire::run),
    ("tap", tap::run),
    ("first_packet", first_packet::run),
    ("batching", batching::run),
];

fn main() {
    let scale = Scale::get();
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|word| PARTS.iter().all(|(name, _)| name != word))
    {
        eprintln!(
            "no part is called {unknown}: {:?}",
            PARTS.map(|(name, _)| name)
        );
        std::process::exit(2);
    }
    let mut report = Report::new("io");
    for (name, run) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            report.progress(name);
            run(scale, &mut report);
        }
    }
    report.finish();
}
