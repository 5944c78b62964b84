//! What is refused, what overflows, who may go, and who is waited for.

use super::*;
use crate::{HISTORY, RingError};

fn limits(diverged: usize) -> Limits {
    Limits {
        diverged,
        ..Limits::default()
    }
}

/// Rounds of everybody's part until the update is at least so far.
fn until(bench: &mut Bench, phase: impl Fn(Phase) -> bool) {
    for _ in 0..1000 {
        bench.turn();
        if phase(bench.balancer.phase()) {
            return;
        }
    }
    panic!("it stays {:?}", bench.balancer.phase());
}

#[test]
fn what_would_not_fit_is_refused_before_anybody_sees_it() {
    let mut bench = Bench::new(4, limits(1000));
    bench.open(0..20_000);
    for (end, table) in &mut bench.shards {
        end.report_held(table.held());
    }
    let before = bench.balancer.current().newest().epoch();
    let refused = bench
        .balancer
        .begin(|draft| draft.set_ring(Ring::uniform(4, 16, 2)));
    let Err(Refused::Capacity { expected, limit }) = refused else {
        panic!("{refused:?}");
    };
    assert!(expected > 10_000 && limit == 1000, "{expected}");
    assert_eq!(bench.balancer.current().newest().epoch(), before);
    assert_eq!(bench.balancer.phase(), Phase::Idle);
    // A single point fits.
    let (at, shard) = bench
        .balancer
        .current()
        .newest()
        .ring()
        .points()
        .next()
        .unwrap();
    let other = ShardId((shard.0 + 1) % 4);
    let one = |draft: &mut Draft| _ = draft.give_point(at, other);
    bench.balancer.begin(one).unwrap();
    bench.run();
    assert!(bench.balancer.last().diverged > 0);
}

#[test]
fn too_many_reports_take_up_the_published_ring_again_and_lose_no_flow() {
    let mut bench = Bench::new(4, limits(1000));
    bench.open(0..20_000);
    let before: Vec<_> = bench.balancer.current().newest().ring().points().collect();
    // Nobody has said how many flows there are.
    bench
        .balancer
        .begin(|draft| draft.set_ring(Ring::uniform(4, 16, 2)))
        .unwrap();
    bench.run();
    let report = *bench.balancer.last();
    assert_eq!(
        (report.overflows, report.passes, report.diverged),
        (1, 2, 0)
    );
    assert!(bench.balancer.current().newest().ring().points().eq(before));
    assert_eq!(
        bench.balancer.current().newest().epoch().number(),
        2,
        "never a step back"
    );
    assert_eq!(bench.check(), 0);
}

#[test]
fn reports_wait_with_the_shard_while_the_control_side_lags() {
    let mut bench = Bench::new(2, Limits::default());
    bench.open(0..200_000);
    bench
        .balancer
        .begin(|draft| draft.set_ring(Ring::uniform(2, 16, 2)))
        .unwrap();
    let (end, table) = &mut bench.shards[0];
    end.refresh();
    let finished = (0..1000).any(|_| end.slice(table, 1000));
    assert!(!finished, "the channel is bounded, so it comes to a stop");
    bench.run();
    assert!(bench.balancer.last().diverged > 64 * 512);
    assert!(bench.check() < 10_000);
}

#[test]
fn a_ring_must_be_one_and_name_shards_that_are_there() {
    let mut bench = Bench::new(2, Limits::default());
    let nobody = |draft: &mut Draft| _ = draft.add_point(5, ShardId(7));
    assert_eq!(
        bench.balancer.begin(nobody),
        Err(Refused::NoShard(ShardId(7)))
    );
    let empty = |draft: &mut Draft| (0..2).for_each(|s| _ = draft.remove_shard(ShardId(s)));
    assert_eq!(
        bench.balancer.begin(empty),
        Err(Refused::Ring(RingError::Empty))
    );
    assert_eq!(bench.balancer.supersede(|_| {}), Err(Refused::NotPending));
    assert_eq!(bench.balancer.poll(), Phase::Idle);
}

#[test]
fn superseding_ends_before_the_history_is_full() {
    let mut bench = Bench::new(3, Limits::default());
    bench.open(0..3000);
    let other = |seed| move |draft: &mut Draft| draft.set_ring(Ring::uniform(3, 16, seed));
    bench.balancer.begin(other(2)).unwrap();
    let superseded = (3..100).take_while(|&seed| bench.balancer.supersede(other(seed)).is_ok());
    assert_eq!(superseded.count(), HISTORY - 3);
    assert!(bench.balancer.current().history_len() < HISTORY);
    bench.run();
    bench.check();
    assert_eq!(bench.balancer.last().passes as usize, HISTORY - 2);
    assert_eq!(bench.balancer.current().history_len(), 1);
}

#[test]
fn an_update_at_a_stroke_keeps_the_ring_once_flows_differ_from_it() {
    let mut bench = Bench::new(2, Limits::default());
    bench
        .balancer
        .start(|draft| _ = draft.listen(80, ShardId(0)))
        .unwrap();
    bench.run();
    bench.open(0..100);
    let ring = |draft: &mut Draft| draft.set_ring(Ring::uniform(2, 16, 2));
    bench
        .balancer
        .start(|draft| _ = draft.listen(80, ShardId(1)))
        .unwrap();
    bench.balancer.start(ring).unwrap();
    bench.run();
    bench.balancer.begin(|_| {}).unwrap();
    assert_eq!(bench.balancer.start(ring), Err(Refused::Busy));
    bench.run();
    assert!(bench.balancer.last().diverged > 0);
    let back = |draft: &mut Draft| draft.set_ring(Ring::uniform(2, 16, 1));
    assert_eq!(bench.balancer.start(back), Err(Refused::Flows));
    bench
        .balancer
        .start(|draft| _ = draft.listen(81, ShardId(1)))
        .unwrap();
    bench.run();
    assert_eq!(bench.check(), 0, "what differed is still known");
}

#[test]
fn a_shard_may_go_when_nobody_is_led_to_it() {
    let mut bench = Bench::new(3, Limits::default());
    bench.open(0..3000);
    let leaver = ShardId(2);
    assert!(!bench.balancer.may_go(leaver));
    bench
        .balancer
        .begin(|draft| _ = draft.remove_shard(leaver))
        .unwrap();
    bench.run();
    assert!(!bench.balancer.may_go(leaver), "it holds flows");
    bench.shards[2].1.flows.clear();
    assert!(
        !bench.balancer.may_go(leaver),
        "it is still published as their holder"
    );
    bench.balancer.begin(|_| {}).unwrap();
    until(&mut bench, |phase| matches!(phase, Phase::Grace(_)));
    assert!(
        !bench.balancer.may_go(leaver),
        "packets may be on their way"
    );
    bench.run();
    assert!(bench.balancer.may_go(leaver) && !bench.balancer.may_go(ShardId(0)));
    bench.shards.pop();
    let back = |draft: &mut Draft| draft.add_points(leaver, 4, 1);
    assert_eq!(bench.balancer.begin(back), Err(Refused::NoShard(leaver)));
    let end = bench.balancer.shard_end(leaver);
    bench.shards.push((end, Table::default()));
    bench.balancer.begin(back).unwrap();
    bench.run();
    bench.check();
}

#[test]
fn a_shard_that_is_gone_is_not_waited_for() {
    let mut bench = Bench::new(3, Limits::default());
    bench.open(0..300);
    bench
        .balancer
        .begin(|draft| _ = draft.remove_shard(ShardId(2)))
        .unwrap();
    bench.turn();
    bench.shards.pop();
    bench.run();
    assert!(bench.balancer.may_go(ShardId(2)));
}

#[test]
fn a_sleeping_core_holds_nobody_up_and_wakes_with_the_newest() {
    let mut bench = Bench::new(2, Limits::default());
    bench.open(0..1000);
    let mut sleeper = bench.balancer.io_end();
    bench
        .balancer
        .begin(|draft| draft.set_ring(Ring::uniform(2, 16, 2)))
        .unwrap();
    for _ in 0..100 {
        bench.turn();
    }
    assert_eq!(
        bench.balancer.phase(),
        Phase::Publishing,
        "one that is awake is waited for"
    );
    sleeper.park();
    bench.run();
    assert!(sleeper.refresh());
    assert_eq!(sleeper.steering().published().epoch().number(), 1);
    std::mem::swap(&mut bench.io, &mut sleeper);
    assert_eq!(bench.check(), 0);
}

#[test]
fn two_hundred_and_fifty_six_shards() {
    let mut balancer = Balancer::new(Ring::uniform(256, 4, 1), Limits::default());
    let io = balancer.io_end();
    let end = |shard| (balancer.shard_end(ShardId(shard)), Table::default());
    let shards = (0..=255).map(end).collect();
    let mut bench = Bench {
        balancer,
        shards,
        io,
    };
    bench.open(0..20_000);
    bench
        .balancer
        .begin(|draft| draft.set_ring(Ring::uniform(256, 4, 2)))
        .unwrap();
    bench.run();
    let report = bench.balancer.last();
    assert!(report.diverged > 19_000 && report.runs > 500, "{report:?}");
    assert!(bench.check() < 1000);
}
