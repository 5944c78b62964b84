//! What steering a packet costs, and how even the ring is: 16 shards with 16 points each, random 4-tuples, keys from
//! the Toeplitz hash, 32 packets of each stream. The micro part (criterion) compares one lookup at a time, a batch,
//! and the binary search that the radix index stands for.

mod support;

use std::cell::RefCell;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion};
use janus_csb::{Publisher, Ring, ShardId, Steering};
use janus_wire::{FlowKeyV4, MICROSOFT_KEY, Toeplitz};
use support::Scale;
use support::report::Report;

const SHARDS: usize = 16;
const POINTS: u16 = 16;
const SEED: u32 = 1;
const PACKETS_PER_STREAM: usize = 32;
/// An I/O core takes this many packets at a time.
const BURST: usize = 64;
const PORT: u16 = 80;

fn main() {
    let scale = Scale::get();
    let all: &[usize] = &[1_000_000, 4_000_000, 10_000_000, 20_000_000];
    let streams = scale.pick(&[10_000][..], all, all);
    let runs = scale.pick(1, 3, 7);
    let mut report = Report::new("csb");
    let tuples = random_tuples(streams[streams.len() - 1]);
    for &streams in streams {
        measure(&mut report, &tuples[..streams], runs);
    }
    if scale != Scale::Smoke {
        micro(&mut report, &tuples[..1 << 20], scale == Scale::Quick);
        report.finish();
    }
}

fn random_tuples(count: usize) -> Vec<FlowKeyV4> {
    let mut random = Random(0x6a61_6e75_7320_6373);
    (0..count)
        .map(|_| {
            let (addresses, ports) = (random.next(), random.next());
            FlowKeyV4 {
                peer: Ipv4Addr::from((addresses >> 32) as u32),
                local: Ipv4Addr::from(addresses as u32),
                peer_port: (ports >> 16) as u16,
                local_port: ports as u16,
            }
        })
        .collect()
}

fn measure(report: &mut Report, tuples: &[FlowKeyV4], runs: usize) {
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    let keys: Vec<u32> = tuples
        .iter()
        .map(|tuple| toeplitz.hash_arriving_v4(tuple))
        .collect();
    let publisher = Publisher::new(Steering::new(Ring::uniform(SHARDS, POINTS, SEED)));
    let mut reader = publisher.reader();

    let lookups = rates(runs, tuples.len(), || {
        for keys in keys.chunks(BURST) {
            reader.refresh();
            let mut owners = [ShardId(0); BURST];
            let tag = reader.current().look_up_batch(
                keys,
                &[PORT; BURST][..keys.len()],
                &mut owners[..keys.len()],
            );
            black_box((owners, tag));
        }
    });
    let with_hash = rates(runs, tuples.len(), || {
        for tuples in tuples.chunks(BURST) {
            reader.refresh();
            let (mut keys, mut ports, mut owners) = ([0; BURST], [0; BURST], [ShardId(0); BURST]);
            for (i, tuple) in tuples.iter().enumerate() {
                (keys[i], ports[i]) = (toeplitz.hash_arriving_v4(tuple), tuple.local_port);
            }
            let n = tuples.len();
            let tag = reader
                .current()
                .look_up_batch(&keys[..n], &ports[..n], &mut owners[..n]);
            black_box((owners, tag));
        }
    });
    let params = [
        ("streams", tuples.len().into()),
        ("shards", SHARDS.into()),
        ("points", u32::from(POINTS).into()),
    ];
    report.median("lookup_mkeys_per_s", &lookups, "M/s", &params);
    report.median("hash_and_lookup_mkeys_per_s", &with_hash, "M/s", &params);
    report.row(
        "imbalance_max_over_mean",
        imbalance(reader.current(), &keys),
        "1",
        &params,
    );
}

/// Millions of packets a second, once for each run.
fn rates(runs: usize, streams: usize, mut one_packet_of_each: impl FnMut()) -> Vec<f64> {
    let mut rate = || {
        let start = Instant::now();
        for _ in 0..PACKETS_PER_STREAM {
            one_packet_of_each();
        }
        (streams * PACKETS_PER_STREAM) as f64 / start.elapsed().as_secs_f64() / 1e6
    };
    rate();
    (0..runs).map(|_| rate()).collect()
}

fn imbalance(steering: &Steering, keys: &[u32]) -> f64 {
    let mut load = [0u64; SHARDS];
    for &key in keys {
        load[steering.look_up(key, PORT).0.index()] += 1;
    }
    let max = load.iter().copied().max().unwrap_or(0);
    max as f64 * SHARDS as f64 / keys.len() as f64
}

/// The lookup a ring without an index needs.
fn binary_search(points: &[(u32, ShardId)], key: u32) -> ShardId {
    let at = points.partition_point(|&(position, _)| position < key);
    points[if at == points.len() { 0 } else { at }].1
}

fn micro(report: &mut Report, tuples: &[FlowKeyV4], quick: bool) {
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    let keys: Vec<u32> = tuples
        .iter()
        .map(|tuple| toeplitz.hash_arriving_v4(tuple))
        .collect();
    let measure = Duration::from_millis(if quick { 400 } else { 3000 });
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(measure / 4)
        .measurement_time(measure)
        .sample_size(if quick { 10 } else { 50 });
    for (shards, points) in [(4, 16), (16, 16), (64, 64)] {
        let ring = Ring::uniform(shards, points, SEED);
        let sorted: Vec<_> = ring.points().collect();
        let mut run = |op: &str, look_up: &mut dyn FnMut(&[u32], &mut [ShardId])| {
            let times = Rc::new(RefCell::new(Vec::new()));
            let name = format!("csb/{op}/{shards}x{points}");
            criterion.bench_function(&name, |bencher| sample(bencher, &keys, look_up, &times));
            let params = [
                ("op", op.into()),
                ("shards", shards.into()),
                ("points", u32::from(points).into()),
            ];
            report.median("lookup_ns", &times.borrow(), "ns", &params);
        };
        run("single", &mut |keys, out| {
            keys.iter()
                .zip(out)
                .for_each(|(&key, owner)| *owner = ring.owner(key));
        });
        run("batch", &mut |keys, out| ring.owners(keys, out));
        run("binary_search", &mut |keys, out| {
            keys.iter()
                .zip(out)
                .for_each(|(&key, owner)| *owner = binary_search(&sorted, key));
        });
    }
}

/// Times bursts over the keys in turn (so that no branch predictor learns them) and keeps ns per key of each sample.
fn sample(
    bencher: &mut Bencher<'_>,
    keys: &[u32],
    look_up: &mut dyn FnMut(&[u32], &mut [ShardId]),
    times: &Rc<RefCell<Vec<f64>>>,
) {
    let mut bursts = keys.chunks_exact(BURST).cycle();
    bencher.iter_custom(|count| {
        let start = Instant::now();
        for burst in bursts.by_ref().take(count as usize) {
            let mut owners = [ShardId(0); BURST];
            look_up(black_box(burst), &mut owners);
            black_box(owners);
        }
        let took = start.elapsed();
        times
            .borrow_mut()
            .push(took.as_nanos() as f64 / (count as f64 * BURST as f64));
        took
    });
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
