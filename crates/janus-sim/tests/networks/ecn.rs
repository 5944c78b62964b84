//! ECN end to end (RFC 3168): a queue that marks before it is full lowers the sender's window, so that nothing is lost and
//! nothing is sent again.

use janus_sim::net::{LinkModel, Network, Pair, Parting, for_each_seed};
use janus_tcp::{Config, CongestionControl, Counters, Ecn};
use std::time::Duration;

/// Retransmissions and marks of a transfer of 3 MB from client to server, and packets lost.
fn transfer(
    network: &mut Network,
    ecn: Ecn,
    congestion: CongestionControl,
    mark_above: usize,
) -> (Counters, Counters, u64) {
    let config = Config {
        ecn,
        congestion,
        receive_buffer: 4 << 20,
        send_buffer: 4 << 20,
        ..Config::default()
    };
    let bottleneck = LinkModel {
        delay: Duration::from_millis(10),
        rate: Some(20_000_000),
        queue: 100_000,
        mark_above,
        ..LinkModel::default()
    };
    let back = LinkModel {
        delay: Duration::from_millis(10),
        ..LinkModel::default()
    };
    let mut pair = Pair::new(network, &config, bottleneck, back);
    pair.exchange(3_000_000, 0, Parting::ClientFirst);
    let counters = |pair: &mut Pair, host| *pair.network.host(host).stack.counters();
    let (client, server) = (pair.client, pair.server);
    let result = (counters(&mut pair, client), counters(&mut pair, server));
    pair.assert_clean();
    (result.0, result.1, network.tally().lost)
}

#[test]
fn a_queue_that_marks_loses_nothing() {
    for congestion in [CongestionControl::Cubic, CongestionControl::NewReno] {
        for_each_seed("ecn", 0..3, |network| {
            let (client, server, lost) = transfer(network, Ecn::On, congestion, 20_000);
            assert_eq!((lost, client.retransmissions), (0, 0));
            assert!(server.marks_in > 0 && client.mark_reductions > 0);
            // Once for each window, not for each mark.
            assert!(
                client.mark_reductions < server.marks_in / 2,
                "{} of {}",
                client.mark_reductions,
                server.marks_in
            );
        });
    }
}

#[test]
fn without_ecn_the_same_queue_overflows() {
    for_each_seed("no-ecn", 0..3, |network| {
        let (client, server, lost) = transfer(network, Ecn::Off, CongestionControl::Cubic, 20_000);
        assert!(lost > 0 && client.retransmissions > 0);
        assert_eq!((server.marks_in, client.mark_reductions), (0, 0));
    });
}
