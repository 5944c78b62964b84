//! The rivals of `benches/csb_compare.rs` are not made of straw: each keeps a figure that was published for it, and
//! breaks what theory says it breaks.

use janus_csb::ShardId;
use janus_research::rivals;
use rivals::anchor::{Anchor, Jet};
use rivals::exact::{Dealer, FullTable};
use rivals::maglev::{Maglev, MaglevOnly, SLOTS};
use rivals::ours::Ours;
use rivals::paper::Paper;
use rivals::pins::Pins;
use rivals::rss::StaticRss;
use rivals::rsspp::RssPlusPlus;
use rivals::stamp::Stamp;
use rivals::stamped::Stamped;
use rivals::world::{Sizes, Trace, Verdict, World, mix};
use rivals::{Packet, Rival};

const TRACE: Trace = Trace {
    flows: 20_000,
    shards: 16,
    updates: 16,
    churn: 0.1,
    sizes: Sizes::Uniform,
    plain: 0.0,
    seed: 5,
};

fn run(rival: &mut dyn Rival, trace: Trace) -> Verdict {
    World::new(trace, rival).run(rival)
}

fn broken_share(verdict: &Verdict) -> f64 {
    verdict.broken as f64 / verdict.exposed as f64
}

fn settled(all: &[f64]) -> f64 {
    let rest = &all[all.len() / 2..];
    rest.iter().sum::<f64>() / rest.len() as f64
}

/// Linux, networking/scaling: a table of at least four entries per queue leaves about 16 % between the queues.
#[test]
fn rss_with_four_entries_per_queue_is_uneven_by_a_sixth() {
    for entries in [128, 256, 512] {
        let gap = |queues: usize| {
            let shares = StaticRss::new(entries, queues).shares(queues);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            1.0 - *least as f64 / *most as f64
        };
        let counts = entries / 8 + 1..=entries / 4;
        let mean = counts.clone().map(gap).sum::<f64>() / counts.count() as f64;
        assert!((0.15..0.17).contains(&mean), "{entries} entries: {mean}");
    }
}

/// The abstract of RSS++: without it the most loaded core asks for 25 % of over-provisioning, with it for hardly any, and
/// state goes with its bucket, so nothing breaks; without that the same moves break connections.
#[test]
fn rsspp_saves_the_over_provisioning() {
    let trace = Trace {
        sizes: Sizes::Elephants,
        ..TRACE
    };
    let rss = run(&mut StaticRss::new(128, 16), trace);
    let rsspp = run(&mut RssPlusPlus::new(16), trace);
    let pinned = run(&mut RssPlusPlus::pinned(16), trace);
    assert!(
        settled(&rss.by_cycles) > 1.25,
        "{}",
        settled(&rss.by_cycles)
    );
    assert!(
        settled(&rsspp.by_cycles) < 1.15,
        "{}",
        settled(&rsspp.by_cycles)
    );
    assert_eq!(rsspp.broken, 0);
    assert!(rsspp.migrated > 0 && broken_share(&pinned) > 0.01);
}

/// Section 3.4 of the Maglev paper: with M > 100 N the shares differ by 1 % at most (they differ by one slot), and filling
/// takes M log M steps on average.
#[test]
fn maglev_is_even_to_a_slot_and_fills_in_m_log_m() {
    let backends = SLOTS / 100;
    let table = Maglev::fill(SLOTS, &vec![1.0; backends]);
    let mut shares = vec![0; backends];
    table
        .slots()
        .iter()
        .for_each(|&backend| shares[usize::from(backend)] += 1);
    let (least, most) = (*shares.iter().min().unwrap(), *shares.iter().max().unwrap());
    assert!(
        f64::from(most - least) <= 0.01 * SLOTS as f64 / backends as f64 && least > 0,
        "{least} to {most}"
    );
    // The sum of M / (M - n): each step meets a free slot with that chance.
    let expected = SLOTS as f64 * ((SLOTS as f64).ln() + 0.577);
    let ratio = table.steps as f64 / expected;
    assert!(
        (0.9..1.1).contains(&ratio),
        "{} steps, {expected} expected",
        table.steps
    );
}

/// Section 5.3: disruption is small but not minimal. A backend's end moves its own slots, and a few besides.
#[test]
fn maglev_moves_a_little_more_than_it_must() {
    let backends = 1_000;
    let before = Maglev::fill(SLOTS, &vec![1.0; backends]);
    let mut weights = vec![1.0; backends];
    weights[17] = 0.0;
    let after = Maglev::fill(SLOTS, &weights);
    let changed = before
        .slots()
        .iter()
        .zip(after.slots())
        .filter(|(a, b)| a != b)
        .count();
    let must = before
        .slots()
        .iter()
        .filter(|&&backend| backend == 17)
        .count();
    assert!(
        changed > must && changed < SLOTS / 50,
        "{changed} changed, {must} must have"
    );
    let verdict = run(&mut MaglevOnly::new(16), TRACE);
    assert!(
        broken_share(&verdict) > 0.01,
        "without a table it breaks flows"
    );
}

/// The AnchorHash paper: minimal disruption both ways, balance as of uniform choice, and at most 1 + ln(a / w) hashes.
#[test]
fn anchorhash_disrupts_minimally_and_hashes_logarithmically() {
    let keys: Vec<u32> = (0..50_000u64).map(|i| mix(i) as u32).collect();
    let owners =
        |anchor: &Anchor| -> Vec<usize> { keys.iter().map(|&key| anchor.find(key, 0).0).collect() };
    let mut anchor = Anchor::new(1_000, 500);
    for bucket in (0..400).map(|i| (i * 7) % 500) {
        let before = owners(&anchor);
        if anchor.working().is_multiple_of(50) {
            anchor.remove(bucket);
            let after = owners(&anchor);
            assert!(
                before
                    .iter()
                    .zip(&after)
                    .all(|(&b, &a)| a == b || b == bucket),
                "only its own keys move"
            );
            assert!(after.iter().all(|&owner| anchor.is_working(owner)));
            assert_eq!(anchor.add(), Some(bucket), "last out, first in");
            assert_eq!(owners(&anchor), before, "and exactly they come back");
        }
        anchor.remove(bucket);
    }
    let (hashes, working) = (
        keys.iter()
            .map(|&key| f64::from(anchor.find(key, 0).1))
            .sum::<f64>(),
        100.0,
    );
    let mean = hashes / keys.len() as f64;
    let bound = 1.0 + (1_000.0f64 / working).ln();
    assert!(
        mean < bound * 1.01 && mean > bound * 0.95,
        "{mean} hashes, {bound} by theory"
    );
    let mut shares = vec![0.0; 1_000];
    owners(&anchor)
        .iter()
        .for_each(|&owner| shares[owner] += 1.0);
    // 500 keys a bucket, a deviation of 22: five of them are out of reach for a hundred buckets.
    assert!(
        shares
            .iter()
            .filter(|&&share| share > 0.0)
            .all(|share: &f64| (share - 500.0).abs() < 5.0 * 22.4)
    );
}

/// The JET paper: tracked are |H| / (|W| + |H|) of the flows; its evaluation's case is a horizon of a tenth.
#[test]
fn jet_tracks_the_share_of_the_horizon() {
    let anchor = Anchor::new(1_100, 1_000);
    let keys = 200_000u64;
    let tracked = (0..keys)
        .filter(|&i| anchor.find(mix(i) as u32, 100).2)
        .count() as f64
        / keys as f64;
    assert!((tracked - 100.0 / 1_100.0).abs() < 0.003, "{tracked}");
    // And those are the ones that an addition moves.
    let mut wider = anchor.clone();
    (0..100).for_each(|_| assert!(wider.add().is_some()));
    for key in (0..20_000).map(|i| mix(i) as u32) {
        let (bucket, _, unsafe_) = anchor.find(key, 100);
        assert_eq!(unsafe_, wider.find(key, 0).0 != bucket);
    }
    let mut jet = Jet::new(16, TRACE.flows);
    assert_eq!(run(&mut jet, TRACE).broken, 0, "nothing breaks");
    assert!(jet.tracked() < TRACE.flows, "not every flow is tracked");
}

/// The Cheetah paper: no violation whatever changes, without any table; and only as long as every peer echoes.
#[test]
fn owner_bits_break_nothing_that_is_echoed() {
    let verdict = run(&mut Stamp::new(16, "all"), TRACE);
    assert_eq!(verdict.broken, 0);
    let some = run(
        &mut Stamp::new(16, "some"),
        Trace {
            plain: 0.05,
            ..TRACE
        },
    );
    assert!(
        some.broken > 0 && broken_share(&some) < 0.05,
        "at most those without timestamps: {}",
        some.broken
    );
}

/// As a hint in front of our balancer they break nothing either way, and need no forwards for those who echo.
#[test]
fn owner_bits_as_a_hint_break_nothing_at_all() {
    let plain = Trace {
        plain: 0.05,
        ..TRACE
    };
    let behind = run(&mut Stamped::new(16, 64, TRACE.flows), plain);
    let alone = run(&mut Ours::new(16, 64, TRACE.flows), plain);
    assert_eq!((behind.broken, behind.second_flows), (0, 0));
    assert!(
        behind.forwards < alone.forwards,
        "{} and {}",
        behind.forwards,
        alone.forwards
    );
}

#[test]
fn a_full_table_breaks_nothing_and_deals_evenly() {
    let verdict = run(&mut FullTable::new(16, TRACE.flows), TRACE);
    assert_eq!((verdict.broken, verdict.second_flows), (0, 0));
    let mut dealer = Dealer::new(vec![1.0, 2.0, 0.0, 1.0]);
    let mut dealt = [0; 4];
    (0..400).for_each(|_| dealt[dealer.deal().index()] += 1);
    assert_eq!(dealt, [100, 200, 0, 100], "as the weights say, to a flow");
}

#[test]
fn the_papers_balancer_breaks_some() {
    let verdict = run(&mut Paper::new(16, 64), TRACE);
    assert!(
        verdict.broken > 0 && broken_share(&verdict) < 0.01,
        "{} broken",
        verdict.broken
    );
}

/// Under the very flows and updates under which the paper's balancer breaks some, ours breaks none, and it is work that it
/// gets: a good part of the flows differ from the ring, and packets are forwarded.
#[test]
fn ours_breaks_nothing() {
    for sizes in [Sizes::Uniform, Sizes::Elephants] {
        let mut ours = Ours::new(16, 64, TRACE.flows);
        let verdict = run(&mut ours, Trace { sizes, ..TRACE });
        assert_eq!((verdict.broken, verdict.second_flows), (0, 0), "{sizes:?}");
        let last = ours.balancer().last();
        assert!(
            last.diverged > last.held / 100 && verdict.forwards > 0,
            "{last:?}, {} forwards",
            verdict.forwards
        );
    }
}

/// The table that the exact rivals rest on, against a plain map, through growth, overflowing lines and removal.
#[test]
fn pins_are_a_map() {
    let mut pins = Pins::new(50);
    let mut map = std::collections::HashMap::new();
    for i in 0..60_000u64 {
        let packet = Packet {
            id: mix(i) % 3_000,
            ..Packet::default()
        };
        let shard = ShardId((mix(!i) % 200) as u8);
        match map.remove(&packet.id) {
            Some(was) => {
                assert_eq!(pins.get(&packet), Some(was));
                assert!(pins.remove(&packet));
            }
            None => {
                assert_eq!(pins.get(&packet), None);
                assert!(!pins.remove(&packet));
                pins.insert(&packet, shard);
                map.insert(packet.id, shard);
            }
        }
        assert_eq!(pins.count(), map.len());
    }
    for (&id, &shard) in &map {
        assert_eq!(
            pins.get(&Packet {
                id,
                ..Packet::default()
            }),
            Some(shard)
        );
    }
}
