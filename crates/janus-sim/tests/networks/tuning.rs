//! Buffers that follow the path: a long fast one is filled although they begin small, and they stay small where nobody
//! reads or where they may not grow.

use janus_sim::net::{LinkModel, Network, Pair};
use janus_tcp::{Config, ConnId};
use std::time::Duration;

/// 100 Mbit/s and 100 ms there and back: 1.25 MB are under way when it is full.
const RATE: u64 = 100_000_000;
const RAMP: Duration = Duration::from_millis(2_500);
const MEASURED: Duration = Duration::from_millis(1_500);

fn long_fast_path() -> (LinkModel, LinkModel) {
    let there = LinkModel {
        delay: Duration::from_millis(50),
        rate: Some(RATE),
        queue: 16 << 20,
        ..LinkModel::default()
    };
    let back = LinkModel {
        delay: Duration::from_millis(50),
        ..LinkModel::default()
    };
    (there, back)
}

/// The client writes all it can; the server reads all there is, if it `reads`. Gives the bytes read in the end, per
/// second, as a share of the rate, and how much was written.
fn share_of_rate(config: &Config, reads: bool) -> (f64, usize) {
    let mut network = Network::new(11);
    let (there, back) = long_fast_path();
    let mut pair = Pair::new(&mut network, config, there, back);
    let (client, server) = pair.open();
    let (from, to) = (pair.client, pair.server);
    let (mut written, mut read) = (0, 0);
    let mut chunk = vec![7; 1 << 16];
    let mut turn = |network: &mut Network, conn: (ConnId, ConnId)| {
        let now = network.now();
        while let Ok(n) = network.host(from).stack.write(now, conn.0, &chunk) {
            written += n;
        }
        while reads && let Ok(n @ 1..) = network.host(to).stack.read(now, conn.1, &mut chunk) {
            read += n;
        }
        (read, written)
    };
    let mut run = |network: &mut Network, time: Duration| {
        let mut done = (0, 0);
        network.run_until(time, |network| {
            done = turn(network, (client, server));
            false
        });
        done
    };
    let (before, _) = run(pair.network, RAMP);
    let (after, written) = run(pair.network, MEASURED);
    let rate = (after - before) as f64 * 8.0 / MEASURED.as_secs_f64();
    // Headers take their share of the link.
    (rate / (RATE as f64 * 1_448.0 / 1_500.0), written)
}

#[test]
fn a_long_fast_path_is_filled_from_small_buffers() {
    for timestamps in [true, false] {
        let config = Config {
            timestamps,
            ..Config::default()
        };
        assert!(config.receive_buffer <= 64 << 10 && config.send_buffer <= 64 << 10);
        let (share, _) = share_of_rate(&config, true);
        assert!(
            share >= 0.8,
            "{share:.3} of the rate, timestamps {timestamps}"
        );
    }
}

#[test]
fn without_growth_a_window_is_a_window() {
    let config = Config {
        receive_buffer_max: 0,
        ..Config::default()
    };
    let (share, _) = share_of_rate(&config, true);
    // 64 KiB in each 100 ms are 5.2 Mbit/s.
    assert!((0.04..0.08).contains(&share), "{share:.3} of the rate");
}

#[test]
fn what_nobody_reads_does_not_grow() {
    let config = Config::default();
    let (share, written) = share_of_rate(&config, false);
    assert_eq!(share, 0.0);
    // The window, and twice the congestion window that it allowed.
    assert!(written <= 256 << 10, "{written} bytes are held");
}
