//! Listeners come and go while clients connect, each when nothing is half done there and nothing waits to be accepted: so
//! whatever a client loses, it loses because new connections had not been given to the others.

use std::time::Duration;

use janus_tcp::{Config, SynCookies};

use super::server::{Ledger, Server, listener, serve};
use super::{COMBINED, Layout, SPLIT, colliding, run};
use crate::lockstep::World;
use crate::lockstep::rng::Rng;
use crate::shard::core_context;
use crate::time::{sleep, timeout};

/// A core listens, and does not, for up to so long.
const SPELL_US: u64 = 3_000;
const CONNECTIONS: u64 = 700;

/// Accepts for a while and lets go for a while, in turn; the first core never lets go.
async fn come_and_go(ledger: Ledger, seed: u64) -> crate::Result {
    let core = crate::core_id().unwrap_or_default();
    if core == 0 {
        return serve(ledger).await;
    }
    let server = Server::new(ledger)?;
    let mut rng = Rng::new(seed ^ core as u64);
    loop {
        let listener = listener().await?;
        let mut spell = Duration::from_micros(1 + rng.below(SPELL_US));
        while let Ok(next) = timeout(spell, listener.accept()).await {
            server.accepted(next?);
            spell = spell.saturating_sub(Duration::from_micros(100));
        }
        loop {
            while let Ok(next) = timeout(Duration::ZERO, listener.accept()).await {
                server.accepted(next?);
            }
            // A tuple that is used again in TIME-WAIT gets a record, cookies or not.
            let half_open = core_context::with(|ctx| ctx.stack.borrow().half_open());
            if half_open == Some(0) {
                break;
            }
            sleep(Duration::from_micros(200)).await;
        }
        drop(listener);
        sleep(Duration::from_micros(rng.below(SPELL_US))).await;
    }
}

fn hold(layout: Layout, seed: u64) {
    let ledger = Ledger::default();
    let tcp = Config {
        syn_cookies: SynCookies::Always,
        time_wait: Duration::from_millis(30),
        ..Config::default()
    };
    let mut world = World::new(
        seed,
        layout,
        |builder| builder.tcp(tcp),
        || come_and_go(ledger.clone(), seed),
    );
    world.peer.calm();
    let toeplitz = world.shards[0].ctx.shared.toeplitz.clone();
    let mut rng = Rng::new(!seed);
    for (address, port) in (0..60).flat_map(|_| colliding(&toeplitz, &mut rng, 4)) {
        world.peer.add(address, port);
    }
    run(&mut world, CONNECTIONS);
    let counters = |shard: &crate::shard::Shard| shard.ctx.forwarder.borrow().counters;
    let sum = |of: fn(crate::ForwardCounters) -> u64| {
        let all = world.shards.iter().map(|shard| of(counters(shard)));
        all.sum::<u64>()
    };
    let waited = sum(|counters| counters.waited);
    let updates = world.conductor.mailbox.done().updates;
    println!("{layout:?}, seed {seed}: {updates} updates, {waited} packets waited");
    assert_eq!(world.peer.tally.broken, Vec::<String>::new(), "seed {seed}");
    assert_eq!(ledger.errors(), Vec::<String>::new(), "seed {seed}");
    assert!(updates > 20 && waited > 20, "{updates} {waited}");
    assert_eq!(sum(|counters| counters.dropped_waiting), 0);
}

#[test]
fn a_listener_that_goes_costs_no_client_its_connection() {
    for (layout, seed) in [(SPLIT, 500), (COMBINED, 600), (SPLIT, 501), (COMBINED, 601)] {
        hold(layout, seed);
    }
}
