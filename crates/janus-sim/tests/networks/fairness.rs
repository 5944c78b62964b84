//! Long transfers over one bottleneck share it: equal ones about equally, and CUBIC leaves room for Reno where the path
//! holds little (RFC 9438 section 4.3). In virtual time, with bounds wide enough for what chance and tail drop do.

use janus_sim::goodput::Transfers;
use janus_sim::net::{LinkModel, Network, Pair, for_each_seed};
use janus_tcp::{Config, CongestionControl};
use std::time::Duration;

/// Mbit/s that each got of 5 Mbit/s, with 30 ms of round trip and as much of buffer.
fn shares(network: &mut Network, algorithms: &[CongestionControl]) -> Vec<f64> {
    let config = Config {
        receive_buffer: 256 << 10,
        send_buffer: 256 << 10,
        ..Config::default()
    };
    let there = LinkModel {
        delay: Duration::from_millis(15),
        // So that the two do not move in step for ever.
        jitter: Duration::from_micros(300),
        rate: Some(5_000_000),
        queue: 18_750,
        ..LinkModel::default()
    };
    let back = LinkModel {
        delay: Duration::from_millis(15),
        ..LinkModel::default()
    };
    let mut pair = Pair::new(network, &config, there, back);
    let mut transfers = Transfers::begin(&mut pair, algorithms);
    transfers.run_for(&mut pair, Duration::from_secs(5));
    transfers.run_for(&mut pair, Duration::from_secs(25))
}

/// No one has more than `most` times what another has, and nothing is wasted.
fn assert_shared(algorithms: [CongestionControl; 2], most: f64) {
    for_each_seed("fairness", 0..1, |network| {
        let got = shares(network, &algorithms);
        let ratio = got[0].max(got[1]) / got[0].min(got[1]);
        assert!(ratio < most, "{algorithms:?} got {got:.2?}");
        assert!(got[0] + got[1] > 4.3, "{algorithms:?} got {got:.2?}");
    });
}

#[test]
fn two_reno_flows_share() {
    assert_shared([CongestionControl::NewReno; 2], 2.0);
}

#[test]
fn two_cubic_flows_share() {
    assert_shared([CongestionControl::Cubic; 2], 2.0);
}

#[test]
fn cubic_is_reno_friendly_on_a_short_path() {
    assert_shared([CongestionControl::Cubic, CongestionControl::NewReno], 2.5);
}
