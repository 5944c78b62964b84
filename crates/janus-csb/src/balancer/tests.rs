use std::collections::BTreeMap;

mod bounds;
mod tidy;

use super::*;
use crate::{DivergenceFilter, FlowId, Flows, Held, ShardId, Step, Work, walk};

/// What a shard holds, by name; the cursor is the last name visited, plus one.
#[derive(Default)]
struct Table {
    flows: BTreeMap<u64, Held>,
    /// Flows that have left it, where to, and when.
    gone: Vec<(ShardId, u32, Held)>,
}

impl Flows for Table {
    fn visit(
        &mut self,
        cursor: u64,
        budget: usize,
        filter: &mut DivergenceFilter<'_>,
    ) -> Option<u64> {
        if cursor == 0 {
            for &(at, stamp, held) in &self.gone {
                filter.gone_to(at, stamp, held);
            }
        }
        if filter.news_only() {
            return None;
        }
        let mut next = None;
        for (&name, &held) in self.flows.range(cursor..).take(budget) {
            filter.held(held);
            next = Some(name + 1);
        }
        next.filter(|&next| self.flows.range(next..).next().is_some())
    }

    fn take_moved(&mut self, _: &mut DivergenceFilter<'_>) {}

    fn held(&self) -> usize {
        self.flows.len()
    }
}

struct Bench {
    balancer: Balancer,
    shards: Vec<(ShardEnd, Table)>,
    io: IoEnd,
}

const PORT: u16 = 80;

fn key(i: u64) -> u32 {
    // A tenth of them twice.
    let i = if i % 20 < 2 { i / 2 * 2 } else { i };
    (i as u32).wrapping_mul(0x9e37_79b1)
}

impl Bench {
    fn new(shards: u8, limits: Limits) -> Bench {
        let mut balancer = Balancer::new(Ring::uniform(usize::from(shards), 16, 1), limits);
        let io = balancer.io_end();
        let shards = (0..shards)
            .map(|shard| (balancer.shard_end(ShardId(shard)), Table::default()))
            .collect();
        Bench {
            balancer,
            shards,
            io,
        }
    }

    /// Each flow is created where the newest ring says.
    fn open(&mut self, names: impl Iterator<Item = u64>) {
        for name in names {
            let held = Held {
                key: key(name),
                port: PORT,
                id: FlowId(u128::from(name)),
            };
            let owner = self.balancer.current().newest().owner(held.key, PORT);
            self.shards[owner.index()].1.flows.insert(name, held);
        }
    }

    /// Everybody does a part of what it has to.
    fn turn(&mut self) -> Phase {
        for (end, table) in &mut self.shards {
            end.refresh();
            match end.work() {
                Work::Nothing => {}
                Work::Traverse => _ = end.slice(table, 100),
                Work::Drain(round) => end.drained(round),
            }
        }
        self.io.refresh();
        self.balancer.poll()
    }

    /// Until the update is over.
    fn run(&mut self) {
        for _ in 0..10_000 {
            if self.turn() == Phase::Idle {
                return;
            }
        }
        panic!("the update does not end: {:?}", self.balancer.phase());
    }

    /// Every flow is found, by the walk at the latest; how many packets had to be forwarded.
    fn check(&mut self) -> usize {
        let mut forwards = 0;
        for (shard, (_, table)) in self.shards.iter().enumerate() {
            for (&name, held) in &table.flows {
                let mut owner = [ShardId(0)];
                let tags = self
                    .io
                    .look_up_batch(&[held.key], &[PORT], |_| held.id, &mut owner);
                let [mut at] = owner;
                let mut tag = tags.get(0);
                while at.index() != shard {
                    match walk(
                        self.shards[at.index()].0.steering(),
                        at,
                        held.key,
                        PORT,
                        tag,
                    ) {
                        Step::Forward { to, tag: next } => (at, tag) = (to, next),
                        end => panic!("flow {name} at s{shard} is lost at {at}: {end:?}"),
                    }
                    forwards += 1;
                }
            }
        }
        forwards
    }
}

#[test]
fn an_update_leaves_every_flow_where_it_is_and_finds_it() {
    let mut bench = Bench::new(4, Limits::default());
    bench.open((0..20_000).step_by(2));
    assert_eq!(bench.check(), 0);
    for update in 1..=6u32 {
        bench
            .balancer
            .begin(|draft| draft.set_ring(Ring::uniform(4, 16, 1 + update)))
            .unwrap();
        assert_eq!(bench.balancer.begin(|_| {}), Err(Refused::Busy));
        if update == 1 {
            // The same keys, while the ring is another.
            bench.open((1..20_000).step_by(2));
        }
        bench.run();
        let report = *bench.balancer.last();
        assert_eq!(report.held, 20_000);
        assert!(report.diverged > 5000 && report.runs > 16, "{report:?}");
        assert!(update == 1 || report.exact > 200, "{report:?}");
        // A flow that the ring names, under the key of one that differs: the only ones that take a hop.
        let forwards = bench.check();
        assert!(forwards <= 1000, "{forwards} forwards");
        assert_eq!(bench.balancer.current().history_len(), 1);
    }
}

#[test]
fn flows_opened_during_an_update_need_forwards_until_the_swap_or_the_pending_opens() {
    let mut bench = Bench::new(4, Limits::default());
    bench
        .balancer
        .begin(|draft| draft.set_ring(Ring::uniform(4, 16, 2)))
        .unwrap();
    for (end, _) in &mut bench.shards {
        end.refresh();
    }
    bench.io.refresh();
    bench.open(0..1000);
    let forwards = bench.check();
    assert!(forwards > 500, "{forwards}");
    for (shard, (_, table)) in bench.shards.iter().enumerate() {
        for held in table.flows.values() {
            bench.io.learn(*held, ShardId(shard as u8));
        }
    }
    assert_eq!(bench.check(), 0);
    assert!(bench.io.learned() > 500);
    bench.run();
    assert_eq!((bench.check(), bench.io.learned()), (0, 0));
}
