//! Two hosts, and networks of more, deliver exactly what was written through whatever a seed makes of the links, and
//! hold nothing afterwards. A failure names its seed: `JANUS_SEED=… cargo test` replays it.

use janus_sim::net::{LinkModel, Network, Pair, Parting, for_each_seed};
use janus_tcp::Config;
use std::time::Duration;

/// Links, sizes and manner of parting by chance.
fn some_exchange(network: &mut Network) {
    let (there, back) = (
        LinkModel::draw(network.random()),
        LinkModel::draw(network.random()),
    );
    let sizes = (
        network.random().within(0..30_000) as usize,
        network.random().within(0..30_000) as usize,
    );
    let parting = match network.random().within(0..3) {
        0 => Parting::ShutdownBoth,
        1 => Parting::ClientFirst,
        _ => Parting::ServerFirst,
    };
    let mut pair = Pair::new(network, &Config::default(), there, back);
    pair.exchange(sizes.0, sizes.1, parting);
    pair.assert_clean();
}

#[test]
fn two_hosts_deliver_exactly_through_any_link() {
    for_each_seed("two-hosts", 0..400, some_exchange);
}

#[test]
fn small_buffers_deliver_exactly_too() {
    for_each_seed("small-buffers", 0..60, |network| {
        let config = Config {
            receive_buffer: network.random().within(1_000..8_000) as u32,
            send_buffer: network.random().within(1_000..8_000) as u32,
            receive_buffer_max: 0,
            send_buffer_max: 0,
            timestamps: network.random().chance(500),
            ..Config::default()
        };
        let link = LinkModel::draw(network.random());
        let mut pair = Pair::new(network, &config, link.clone(), link);
        pair.exchange(20_000, 10_000, Parting::ShutdownBoth);
        pair.assert_clean();
    });
}

#[test]
fn many_connections_one_after_another_leave_nothing() {
    for_each_seed("in-turn", 0..10, |network| {
        let link = LinkModel {
            loss: 50,
            reorder: 50,
            delay: Duration::from_millis(5),
            ..LinkModel::default()
        };
        let mut pair = Pair::new(network, &Config::default(), link.clone(), link);
        for _ in 0..20 {
            pair.exchange(500, 5_000, Parting::ServerFirst);
        }
        pair.assert_clean();
    });
}
