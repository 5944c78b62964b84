//! Updates that tell of moves.

use super::*;

impl Bench {
    /// Moves every so many flows of a shard to another.
    fn move_some(&mut self, from: usize, to: usize, every: usize) -> usize {
        let stamp = self.shards[from].0.stamp();
        let flows = self.shards[from].1.flows.iter();
        let chosen: Vec<_> = flows.step_by(every).map(|(&n, &held)| (n, held)).collect();
        for &(name, held) in &chosen {
            self.shards[from].1.flows.remove(&name);
            let gone = (ShardId(to as u8), stamp, held);
            self.shards[from].1.gone.push(gone);
            self.shards[to].1.flows.insert(name, held);
        }
        chosen.len()
    }

    fn tidy(&mut self) -> UpdateReport {
        self.balancer.tidy().expect("no update is under way");
        self.run();
        *self.balancer.last()
    }
}

/// With flows that differ.
fn bench(limits: Limits) -> Bench {
    let mut bench = Bench::new(4, limits);
    bench.open((0..20_000).step_by(2));
    let ring = Ring::uniform(4, 16, 2);
    let change = |draft: &mut Draft| draft.set_ring(ring);
    bench.balancer.begin(change).expect("there is room");
    bench.open((1..20_000).step_by(2));
    bench.run();
    bench
}

/// Found without a hop, or as flows of the key of one that differs are.
fn is_found(bench: &mut Bench) {
    let forwards = bench.check();
    assert!(forwards <= 1000, "{forwards} forwards");
}

#[test]
fn after_the_first_it_tells_of_what_has_moved_since() {
    let mut bench = bench(Limits::default());
    let first = bench.tidy();
    assert_eq!((first.of_news, first.told), (0, first.diverged));
    assert!(first.diverged > 5_000);
    for (round, (from, to)) in (1u64..).zip([(0, 1), (1, 2), (2, 1), (1, 0), (0, 3)]) {
        let moved = bench.move_some(from, to, 3);
        let report = bench.tidy();
        assert_eq!((report.of_news, report.told), (round, moved));
        is_found(&mut bench);
        bench.shards[from].1.gone.clear();
    }
    // All together say the same.
    let known = bench.balancer.last().diverged;
    bench.balancer.begin(|_| {}).expect("there is room");
    bench.run();
    let all = bench.balancer.last();
    assert_eq!((all.of_news, all.diverged), (5, known));
    is_found(&mut bench);
}

#[test]
fn a_change_in_between_has_all_told_anew() {
    let mut bench = bench(Limits::default());
    bench.tidy();
    assert_eq!(bench.tidy().of_news, 1);
    let listens = |draft: &mut Draft| _ = draft.listen(PORT + 1, ShardId(0));
    bench.balancer.start(listens).expect("nothing is pending");
    bench.run();
    let report = bench.tidy();
    assert_eq!((report.of_news, report.told), (1, report.diverged));
    // And a pending layout that is superseded.
    bench.balancer.tidy().expect("no update is under way");
    let change = |draft: &mut Draft| draft.set_ring(Ring::uniform(4, 16, 3));
    bench.balancer.supersede(change).expect("one is pending");
    bench.run();
    let report = bench.balancer.last();
    assert_eq!((report.of_news, report.told), (1, report.diverged));
    is_found(&mut bench);
}

#[test]
fn moves_that_would_not_fit_have_all_told_anew() {
    let limits = Limits {
        diverged: 10_000,
        ..Limits::default()
    };
    let mut bench = Bench::new(4, limits);
    bench.open(0..20_000);
    bench.tidy();
    // Every flow of three shards, to where the ring does not want it.
    let moved = (1..4).map(|from| bench.move_some(from, 0, 1));
    let moved: usize = moved.sum();
    assert!(moved > limits.diverged);
    bench.balancer.tidy().expect("no update is under way");
    for _ in 0..1_000 {
        bench.turn();
    }
    assert!(bench.balancer.last().of_news == 0 && bench.balancer.phase() != Phase::Idle);
    // Enough of them end.
    let mut left = 0;
    for (_, table) in &mut bench.shards {
        table.flows.retain(|name, _| name % 4 == 0);
        table.gone.retain(|(.., held)| held.id.0 % 4 == 0);
        left += table.flows.len();
    }
    bench.run();
    assert_eq!((bench.balancer.last().of_news, left), (0, 5_000));
    is_found(&mut bench);
}
