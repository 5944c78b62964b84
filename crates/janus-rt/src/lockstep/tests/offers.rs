//! Speculative accept with a core whose acceptor is away half of the time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use janus_tcp::Instant;

use super::server::{Ledger, Server, listener};
use super::{COMBINED, SPLIT, run_with, world_of};
use crate::OfferCounters;
use crate::balance::SpeculativeAccept;
use crate::lockstep::Layout;
use crate::time::{now, sleep_until, timeout};

/// The acceptor of core 0 takes nothing in the second half of each.
const PERIOD: Duration = Duration::from_millis(100);
/// Virtual time of a run.
const TIME: Duration = Duration::from_millis(400);

/// Where connections came from, in the order in which they were accepted, and when.
type Accepted = Rc<RefCell<Vec<(std::net::SocketAddr, Instant)>>>;

async fn accepts(ledger: Ledger, accepted: Accepted, stalls: bool) -> crate::Result {
    let server = Server::new(ledger)?;
    let listener = listener().await?;
    let stalls = stalls && crate::core_id() == Some(0);
    loop {
        let incoming = if stalls {
            let into = Duration::from_nanos(now().as_nanos() % PERIOD.as_nanos() as u64);
            match timeout((PERIOD / 2).saturating_sub(into), listener.accept()).await {
                Ok(incoming) => incoming?,
                Err(_) => {
                    sleep_until(now() + (PERIOD - into.max(PERIOD / 2))).await;
                    continue;
                }
            }
        } else {
            listener.accept().await?
        };
        accepted.borrow_mut().push((incoming.1, now()));
        server.accepted(incoming);
    }
}

#[derive(Debug)]
struct Seen {
    /// Of the times from a handshake's end, at the peer, until the connection was accepted.
    p99: Duration,
    a_second: f64,
    offers: OfferCounters,
}

fn one_run(seed: u64, layout: Layout, how: SpeculativeAccept, stalls: bool) -> Seen {
    let accepted = Accepted::default();
    let main = |ledger| accepts(ledger, accepted.clone(), stalls);
    let (mut world, ledger) = world_of(seed, layout, |b| b.speculative_accept(how), main);
    world.peer.calm();
    let begun = world.now();
    let mut problems = Vec::new();
    run_with(&mut world, u64::MAX, |world| {
        problems.append(&mut world.peer.tally.broken);
        world.peer.closing |= world.now().saturating_since(begun) > TIME;
        !(world.peer.closing && world.peer.live() == 0)
    });
    world.end();
    problems.extend(ledger.errors());
    assert_eq!(problems, Vec::<String>::new(), "seed {seed}");
    let mut connected: HashMap<_, Vec<Instant>> = HashMap::new();
    for (who, at) in world.peer.tally.connected.drain(..).rev() {
        connected.entry(who).or_default().push(at);
    }
    let accepted = accepted.borrow();
    let mut times: Vec<Duration> = Vec::new();
    for (who, at) in accepted.iter() {
        let since = connected.get_mut(who).and_then(Vec::pop);
        times.push(at.saturating_since(since.expect("it was connected")));
    }
    times.sort();
    let offers = world.offers();
    let in_time = |(_, at): &&(_, Instant)| at.saturating_since(begun) < TIME;
    Seen {
        p99: times[times.len() * 99 / 100],
        a_second: accepted.iter().filter(in_time).count() as f64 / TIME.as_secs_f64(),
        offers,
    }
}

fn of_four(layout: Layout) -> Layout {
    Layout {
        shards: 4,
        ..layout
    }
}

#[test]
fn connections_of_an_acceptor_that_is_away_are_accepted_elsewhere() {
    for (seed, layout) in [(3_001, of_four(SPLIT)), (3_002, of_four(COMBINED))] {
        let three = Layout {
            shards: 3,
            ..layout
        };
        let alone = one_run(seed, three, SpeculativeAccept::Off, false);
        let off = one_run(seed, layout, SpeculativeAccept::Off, true);
        println!("seed {seed}: {alone:?}, off {off:?}");
        assert!(off.p99 > Duration::from_millis(25), "{off:?}");
        assert_eq!(off.offers.offered, 0);
        for how in [SpeculativeAccept::On, SpeculativeAccept::Auto] {
            let on = one_run(seed, layout, how, true);
            println!("seed {seed}: {how:?} {on:?}");
            assert!(on.p99 <= Duration::from_millis(2), "{on:?}");
            assert!(on.a_second >= 0.99 * alone.a_second, "{on:?}, {alone:?}");
            let OfferCounters {
                offered,
                claimed,
                returned,
                ..
            } = on.offers;
            assert!(claimed > 20 && offered == claimed + returned, "{on:?}");
        }
    }
}

#[test]
fn connections_that_a_scheme_deals_are_all_served() {
    let schemes = [
        SpeculativeAccept::Naive,
        SpeculativeAccept::Unfiltered2,
        SpeculativeAccept::Unfiltered100,
        SpeculativeAccept::Filtered2,
        SpeculativeAccept::Tournament2,
    ];
    for (seed, how) in (3_100..).zip(schemes) {
        let layout = of_four(if seed % 2 == 0 { SPLIT } else { COMBINED });
        let seen = one_run(seed, layout, how, true);
        println!("seed {seed}: {how:?} {seen:?}");
        let OfferCounters {
            offered,
            claimed,
            returned,
            ..
        } = seen.offers;
        // With the highest tariff nearly all stay.
        let least = if how == SpeculativeAccept::Unfiltered100 {
            1
        } else {
            20
        };
        assert!(
            offered >= least && offered == claimed + returned,
            "{seen:?}"
        );
    }
}
