//! Paths that carry less than the hosts' links: with routers that say so and with routers that do not, in one direction
//! and both, with other trouble besides, and healed later. All bytes must arrive, and not one at a time.

use std::time::Duration;

use janus_sim::net::{LinkModel, Network, Pair, Parting};
use janus_tcp::Config;

fn narrow(mtu: usize, black_hole: bool) -> LinkModel {
    LinkModel {
        mtu,
        black_hole,
        ..LinkModel::default()
    }
}

#[test]
fn a_router_that_speaks_costs_one_round_trip() {
    for mtu in [1_400, 1_280, 1_006, 600] {
        let mut network = Network::new(mtu as u64);
        let model = narrow(mtu, false);
        let mut pair = Pair::new(&mut network, &Config::default(), model.clone(), model);
        pair.exchange(200_000, 200_000, Parting::ShutdownBoth);
        let (client, server) = (pair.client, pair.server);
        pair.assert_clean();
        for host in [client, server] {
            let counters = *network.host(host).stack.counters();
            assert_eq!(
                (counters.paths_shrunk, counters.black_holes),
                (1, 0),
                "{mtu}"
            );
        }
        // No more than two first windows of full segments were in vain.
        let too_big = network.tally().too_big;
        assert!((1..=20).contains(&too_big), "{too_big} at {mtu}");
    }
}

#[test]
fn a_silent_router_costs_some_timeouts_and_no_more() {
    for mtu in [1_400, 1_280, 1_100, 600] {
        let mut network = Network::new(mtu as u64);
        let model = narrow(mtu, true);
        let mut pair = Pair::new(&mut network, &Config::default(), model.clone(), model);
        pair.exchange(200_000, 200_000, Parting::ShutdownBoth);
        let (client, server) = (pair.client, pair.server);
        pair.assert_clean();
        for host in [client, server] {
            let counters = *network.host(host).stack.counters();
            assert!(
                (1..=2).contains(&counters.black_holes),
                "{mtu}: {counters:?}"
            );
        }
        let too_big = network.tally().too_big;
        assert!((1..=60).contains(&too_big), "{too_big} at {mtu}");
    }
}

#[test]
fn narrow_paths_with_every_other_trouble_deliver_exactly() {
    for seed in 0..12 {
        let mut network = Network::new(seed);
        let mut model = LinkModel::draw(network.random());
        model.mtu = network.random().within(560..1_500) as usize;
        model.black_hole = seed % 2 == 0;
        let mut pair = Pair::new(&mut network, &Config::default(), model.clone(), model);
        pair.exchange(60_000, 60_000, Parting::ClientFirst);
        pair.assert_clean();
        assert!(network.tally().too_big > 0, "seed {seed}");
    }
}

/// A path that was narrow for a while: what is known of it is forgotten or found out to be over.
#[test]
fn a_path_that_healed_carries_full_segments_again() {
    for black_hole in [false, true] {
        let mut network = Network::new(3);
        let model = narrow(1_200, black_hole);
        let mut pair = Pair::new(&mut network, &Config::default(), model.clone(), model);
        pair.exchange(100_000, 100_000, Parting::ShutdownBoth);
        let (client, server) = (pair.client, pair.server);
        pair.network.set_link(client, server, LinkModel::default());
        pair.network.set_link(server, client, LinkModel::default());
        pair.network.run_for(Duration::from_secs(700));
        pair.exchange(100_000, 100_000, Parting::ShutdownBoth);
        let (ours, _) = pair.open();
        // The timestamps option takes twelve bytes of 1,460.
        let info = pair.network.host(client).stack.info(ours).unwrap();
        assert_eq!(info.mss, 1_448, "black hole: {black_hole}");
        let before = pair.network.tally().too_big;
        pair.exchange(100_000, 100_000, Parting::ShutdownBoth);
        assert_eq!(pair.network.tally().too_big, before);
    }
}
