//! Which set of keys should stand before `H_diff`: an I/O core asks it for each packet whose cell of the ring is not
//! clean. Measured: building, asking in bursts (strangers, members, half of each), false positives, memory. The keys lie in the
//! moved arcs of a ring, as those of an update do, and the strangers beside them.

use std::hint::black_box;
use std::time::Instant;

use filters::blocked::{Line, Sectors, Split, Word};
use filters::crates::{Bloomfilter, FastbloomMurmur, FastbloomSip, Fuse};
use filters::exact::{ExactCells, Lines, SmallCells, Sorted};
use filters::{BURST, KeySet, false_positives};
use janus_research::report::Report;
use janus_research::{Scale, filters};

/// One key in this many of the circle belongs to an arc that moved.
const MOVED: u32 = 16;
const STRANGERS: usize = 1 << 20;

fn main() {
    let scale = Scale::get();
    let sizes: &[usize] = &[10_000, 100_000, 500_000, 2_000_000];
    let sizes = scale.pick(&[2_000][..], sizes, sizes);
    let rounds = scale.pick(1, 5, 15);
    let mut report = Report::new("filters");
    for &size in sizes {
        let keys = draw(size, 1);
        let strangers = strangers(&keys, scale.pick(1 << 14, STRANGERS, 8 * STRANGERS));
        let mut trial = Trial {
            report: &mut report,
            keys: &keys,
            strangers: &strangers,
            rounds,
        };
        trial.run::<Bloomfilter>();
        trial.run::<FastbloomSip>();
        trial.run::<FastbloomMurmur>();
        trial.run::<Line>();
        trial.run::<Sectors>();
        trial.run::<Split>();
        trial.run::<Word>();
        trial.run::<Fuse>();
        trial.run::<SmallCells>();
        trial.run::<ExactCells>();
        trial.run::<Lines>();
        trial.run::<Sorted>();
    }
    report.finish();
}

/// Keys in the moved arcs: every sixteenth arc of 4,096 moved.
fn draw(count: usize, seed: u32) -> Vec<u32> {
    (0..count as u32)
        .map(|i| {
            let key = filters::murmur::mix_32(i.wrapping_mul(0x9e37_79b1) ^ seed);
            let arc = key >> 20;
            (arc / MOVED * MOVED) << 20 | key & 0x000f_ffff
        })
        .collect()
}

fn strangers(keys: &[u32], count: usize) -> Vec<u32> {
    let mut known = keys.to_vec();
    known.sort_unstable();
    let mut found = draw(count + count / 8, 0x5eed);
    found.retain(|key| known.binary_search(key).is_err());
    found.truncate(count);
    found
}

struct Trial<'a> {
    report: &'a mut Report,
    keys: &'a [u32],
    strangers: &'a [u32],
    rounds: usize,
}

impl Trial<'_> {
    fn run<S: KeySet>(&mut self) {
        let params = [("filter", S::NAME.into()), ("keys", self.keys.len().into())];
        let mut set = S::build(self.keys, 7);
        let mut builds = Vec::new();
        for round in 0..self.rounds {
            let start = Instant::now();
            set = S::build(black_box(self.keys), 7 + round as u64);
            builds.push(start.elapsed().as_nanos() as f64 / self.keys.len() as f64);
        }
        for keys in self.keys.chunks(BURST) {
            let all = u64::MAX >> (BURST - keys.len());
            assert_eq!(set.ask(keys), all, "{}: a key got lost", S::NAME);
        }
        self.report
            .median("build_ns_per_key", &builds, "ns", &params);
        self.report.row(
            "bits_per_key",
            set.bytes() as f64 * 8.0 / self.keys.len() as f64,
            "bit",
            &params,
        );
        self.report.row(
            "false_positives_per_million",
            false_positives(&set, self.strangers) * 1e6,
            "1",
            &params,
        );
        let count = self.strangers.len().min(STRANGERS);
        let strangers = &self.strangers[..count];
        let members: Vec<u32> = shuffled(self.keys, count);
        let half: Vec<u32> = (0..count)
            .map(|i| {
                if filters::murmur::mix_32(i as u32) & 1 == 0 {
                    strangers[i]
                } else {
                    members[i]
                }
            })
            .collect();
        for (asked, keys) in [
            ("strangers", strangers),
            ("half", &half),
            ("members", &members),
        ] {
            let times: Vec<f64> = (0..self.rounds).map(|_| ask_ns(&set, keys)).collect();
            let params = [
                params[0].clone(),
                params[1].clone(),
                ("asked", asked.into()),
            ];
            self.report.median("ask_ns", &times, "ns", &params);
        }
    }
}

fn shuffled(keys: &[u32], count: usize) -> Vec<u32> {
    (0..count as u32)
        .map(|i| keys[((u64::from(filters::murmur::mix_32(i)) * keys.len() as u64) >> 32) as usize])
        .collect()
}

fn ask_ns<S: KeySet>(set: &S, keys: &[u32]) -> f64 {
    let start = Instant::now();
    for burst in keys.chunks(BURST) {
        black_box(set.ask(black_box(burst)));
    }
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}
