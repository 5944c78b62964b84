//! How many bits of payload one core takes in (`dir=rx`) and sends (`dir=tx`) over few connections, in segments of 1,448
//! bytes: MTU 1500, timestamps, checksums computed and checked by both sides. The engine alone, in the turns that a shard
//! has; the far end's time is left out. `read=copy` copies what came to the application's buffer, `read=lent` hands the
//! packet buffers up. What the far end and the application get is compared with what was sent.

mod support;

use std::time::Duration;
use support::Scale;
use support::report::Report;
use support::stream::{Dir, PAYLOAD, Streams};

fn main() {
    let scale = Scale::get();
    let (runs, time) = scale.pick(
        (1, Duration::from_millis(30)),
        (5, Duration::from_millis(600)),
        (7, Duration::from_secs(2)),
    );
    let mut report = Report::new("bulk");
    for conns in [1, 16] {
        for dir in [Dir::Rx { lent: false }, Dir::Rx { lent: true }, Dir::Tx] {
            measure(&mut report, dir, conns, runs, time);
        }
    }
    report.finish();
}

fn measure(report: &mut Report, dir: Dir, conns: usize, runs: usize, time: Duration) {
    let mut bench = Streams::new(conns);
    bench.open();
    bench.run(dir, time / 4);
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let (bytes, server_ns) = bench.run(dir, time);
        rates.push(bytes * 8.0 / server_ns);
        costs.push(server_ns * PAYLOAD as f64 / bytes);
    }
    let (name, how) = match dir {
        Dir::Rx { lent: false } => ("rx", "copy"),
        Dir::Rx { lent: true } => ("rx", "lent"),
        Dir::Tx => ("tx", "copy"),
    };
    let params = [
        ("dir", name.into()),
        ("read", how.into()),
        ("conns", conns.into()),
        ("placement", "engine".into()),
    ];
    report.median("gbit_per_s", &rates, "Gbit/s", &params);
    report.median("server_ns_per_segment", &costs, "ns", &params);
    report.row("bad_answers", bench.app.wrong as f64, "count", &params);
    if bench.app.wrong > 0 {
        eprintln!("wrong bytes: {:?}", bench.server.stack.counters());
    }
}
