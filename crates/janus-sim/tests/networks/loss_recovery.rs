//! What loss recovery is worth, in figures over many seeds: how much is sent again though nothing was lost when the
//! network only reorders, and how many timeouts a tail loss probe spares. Every byte arrives in any case.

use janus_sim::net::{LinkModel, Network, Pair, Parting, for_each_seed};
use janus_tcp::{Config, Counters};
use std::cell::RefCell;
use std::time::Duration;

/// The counts of both hosts after `run` has run with each seed.
fn counts(
    name: &str,
    seeds: std::ops::Range<u64>,
    run: impl Fn(&mut Network) -> [Counters; 2],
) -> Counters {
    let sum = RefCell::new(Counters::default());
    for_each_seed(name, seeds, |network| {
        for counters in run(network) {
            sum.borrow_mut().add(&counters);
        }
    });
    sum.into_inner()
}

fn of_pair(pair: &mut Pair) -> [Counters; 2] {
    [pair.client, pair.server].map(|host| *pair.network.host(host).stack.counters())
}

fn with_sack(sack: bool) -> Config {
    Config {
        sack,
        ..Config::default()
    }
}

/// Everything a link can do at once, in both directions, with and without SACK at each end.
#[test]
fn loss_reordering_and_duplication_at_once_deliver_exactly() {
    for_each_seed("recovery-all-at-once", 0..60, |network| {
        let random = network.random();
        let link = LinkModel {
            delay: Duration::from_millis(random.within(1..40)),
            jitter: Duration::from_millis(random.within(0..10)),
            loss: random.within(0..150) as u16,
            duplicate: random.within(0..100) as u16,
            reorder: random.within(0..100) as u16,
            split: random.within(0..100) as u16,
            ..LinkModel::default()
        };
        let config = Config {
            sack: random.chance(800),
            timestamps: random.chance(500),
            ..Config::default()
        };
        let mut pair = Pair::new(network, &config, link.clone(), link);
        pair.exchange(120_000, 40_000, Parting::ShutdownBoth);
        pair.assert_clean();
    });
}

fn reordered(network: &mut Network, sack: bool) -> [Counters; 2] {
    let link = LinkModel {
        delay: Duration::from_millis(20),
        jitter: Duration::from_millis(8),
        ..LinkModel::default()
    };
    let mut pair = Pair::new(network, &with_sack(sack), link.clone(), link);
    pair.exchange(400_000, 0, Parting::ClientFirst);
    let counters = of_pair(&mut pair);
    pair.assert_clean();
    counters
}

/// Nothing is lost, but packets overtake each other all the time. By counting to three much is sent again in vain; by
/// RACK, once it has seen that the network reorders, next to nothing.
#[test]
fn mere_reordering_is_not_taken_for_loss() {
    let rack = counts("reordering-rack", 0..10, |network| reordered(network, true));
    let reno = counts("reordering-reno", 0..10, |network| {
        reordered(network, false)
    });
    let share = |counters: &Counters| {
        counters.retransmissions as f64 * 100.0 / counters.segments_out as f64
    };
    println!(
        "sent again in vain under reordering: {} of {} segments ({:.2} %) with RACK, {} of {} ({:.2} %) without SACK",
        rack.retransmissions,
        rack.segments_out,
        share(&rack),
        reno.retransmissions,
        reno.segments_out,
        share(&reno)
    );
    assert!(share(&rack) < 1.0, "{} again in vain", rack.retransmissions);
    assert!(rack.retransmissions * 4 < reno.retransmissions);
}

fn short_answers(network: &mut Network, sack: bool) -> [Counters; 2] {
    let link = LinkModel {
        delay: Duration::from_millis(20),
        loss: 60,
        ..LinkModel::default()
    };
    let mut pair = Pair::new(network, &with_sack(sack), link.clone(), link);
    for _ in 0..20 {
        pair.exchange(300, 12_000, Parting::ServerFirst);
    }
    let counters = of_pair(&mut pair);
    pair.assert_clean();
    counters
}

/// Answers of a few segments: what is lost is often the last of them, and no duplicate acknowledgement tells.
#[test]
fn probes_spare_timeouts_at_the_tail() {
    let rack = counts("tail-rack", 0..10, |network| short_answers(network, true));
    let reno = counts("tail-reno", 0..10, |network| short_answers(network, false));
    println!(
        "timeouts for 200 short answers at 6 % loss: {} with RACK-TLP ({} probes), {} without SACK",
        rack.timeouts, rack.tail_probes, reno.timeouts
    );
    assert!(rack.timeouts * 3 < reno.timeouts * 2);
    assert!(rack.tail_probes > 0);
}
