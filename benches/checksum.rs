//! What the Internet checksum costs, ours against the crate `internet-checksum`, alternating over the same bytes in the
//! same run. Each answer of ours is compared with theirs before anything is timed.

mod support;

use std::hint::black_box;
use std::time::Instant;

use janus_wire::checksum::{finish, sum};
use support::Scale;
use support::report::Report;

/// Headers, small and full packets, and a jumbo frame.
const LENGTHS: [usize; 6] = [20, 40, 64, 512, 1_460, 9_000];
/// Where the bytes begin: even, as headers do, and not on a word.
const OFFSET: usize = 2;
/// About so many bytes are summed in one round, a call counted as this many more.
const CALL: usize = 60;

fn ours(bytes: &[u8]) -> [u8; 2] {
    finish(sum(bytes, 0)).to_be_bytes()
}

/// Nanoseconds a call.
fn time(calls: usize, mut call: impl FnMut() -> [u8; 2]) -> f64 {
    let begin = Instant::now();
    for _ in 0..calls {
        black_box(call());
    }
    begin.elapsed().as_nanos() as f64 / calls as f64
}

fn main() {
    let scale = Scale::get();
    let (rounds, volume) = (
        scale.pick(1, 9, 31),
        scale.pick(100_000, 10_000_000, 40_000_000),
    );
    let mut report = Report::new("checksum");
    let data: Vec<u8> = (0..16_384_u32).map(|i| (i * 7 + i / 13) as u8).collect();
    for len in LENGTHS {
        let bytes = &data[OFFSET..OFFSET + len];
        assert_eq!(
            ours(bytes),
            internet_checksum::checksum(bytes),
            "{len} bytes"
        );
        let calls = volume / (len + CALL);
        let (mut here, mut there, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            here.push(time(calls, || ours(black_box(bytes))));
            there.push(time(calls, || {
                internet_checksum::checksum(black_box(bytes))
            }));
            ratios.push(there[there.len() - 1] / here[here.len() - 1]);
        }
        let params = |who: &'static str| [("bytes", len.into()), ("implementation", who.into())];
        report.median("ns", &here, "ns", &params("janus"));
        report.median("ns", &there, "ns", &params("internet-checksum"));
        report.median("ratio", &ratios, "x", &[("bytes", len.into())]);
    }
    if scale != Scale::Smoke {
        report.finish();
    }
}
