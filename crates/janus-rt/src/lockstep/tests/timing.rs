//! Tasks that wait, in all the ways there are, and tasks that send each other to other cores, beside the traffic: under
//! the virtual clock nothing is early, nothing is much later than a core that is held up allows, and the whole course is
//! a function of the seed. `JANUS_LOCKSTEP_SEED` runs one again.

use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use super::server::{Ledger, serve};
use super::{COMBINED, SPLIT};
use crate::lockstep::rng::Rng;
use crate::lockstep::{Layout, World};
use crate::time::{interval, now, sleep, sleep_until, timeout};

const TASKS: u32 = 40;
const ROUNDS: u32 = 8;
/// The longest that a task waits on purpose.
const WAIT_NS: u64 = 20_000_000;
/// Time that a held-up core, other shards and the grain of its timers may add.
const LATE_MAX: Duration = Duration::from_millis(15);

/// Core, task, round, which way of waiting, and when it was over.
type Event = (usize, u32, u32, u64, u64);

#[derive(Clone, Default)]
struct Trace(Rc<RefCell<Entries>>);

#[derive(Default)]
struct Entries {
    events: Vec<Event>,
    cores_done: usize,
}

async fn program(trace: Trace, ledger: Ledger, seed: u64) -> crate::Result {
    crate::spawn(async move {
        let _ = serve(ledger).await;
    });
    let core = crate::core_id().expect("this is a core");
    let task = |who| crate::spawn(wait_about(trace.clone(), who, seed ^ (core as u64) << 32));
    let tasks: Vec<_> = (0..TASKS).map(task).collect();
    for task in tasks {
        task.await?;
    }
    trace.0.borrow_mut().cores_done += 1;
    pending().await
}

async fn wait_about(trace: Trace, who: u32, seed: u64) {
    let core = crate::core_id().expect("this is a core");
    let mut rng = Rng::new(seed ^ u64::from(who) << 20);
    for round in 0..ROUNDS {
        let way = rng.below(6);
        let wait = Duration::from_nanos(1 + rng.below(WAIT_NS));
        let due = now() + wait;
        wait_one_way(way, wait, &mut rng).await;
        let late = now().saturating_since(due);
        // To another core and back takes as long as it takes.
        if way < 5 {
            assert!(now() >= due, "task {who} of core {core}, way {way}: early");
            assert!(
                late < LATE_MAX,
                "task {who} of core {core}, way {way}: {late:?}"
            );
        }
        let event = (core, who, round, way, now().as_nanos());
        trace.0.borrow_mut().events.push(event);
    }
}

async fn wait_one_way(way: u64, wait: Duration, rng: &mut Rng) {
    match way {
        0 => sleep(wait).await,
        1 => sleep_until(now() + wait).await,
        2 => assert!(timeout(wait, pending::<()>()).await.is_err()),
        3 => assert!(timeout(wait + 4 * LATE_MAX, sleep(wait)).await.is_ok()),
        4 => {
            let mut ticks = interval(wait);
            let begin = ticks.tick().await;
            assert_eq!(ticks.tick().await, begin + wait);
        }
        _ => {
            let there = rng.below(3) as usize;
            let told = crate::spawn_on(there, move || async move {
                sleep(wait / 8).await;
                crate::core_id()
            });
            assert_eq!(told.await.expect("it ends"), Some(there));
        }
    }
}

fn course(seed: u64, layout: Layout) -> (Vec<Event>, u64) {
    let (trace, ledger) = (Trace::default(), Ledger::default());
    let (of_cores, of_server) = (trace.clone(), ledger.clone());
    let mut world = World::new(
        seed,
        layout,
        |builder| builder,
        move || program(of_cores.clone(), of_server.clone(), seed),
    );
    for port in 0..40 {
        world.peer.add([10, 0, 0, 1].into(), 20_000 + port);
    }
    let cores = layout.shards;
    world.run_until(|_| trace.0.borrow().cores_done == cores);
    world.peer.closing = true;
    world.run_until(|world| world.peer.live() == 0);
    world.end();
    let tally = &world.peer.tally;
    assert_eq!(tally.broken, Vec::<String>::new(), "seed {seed}");
    assert_eq!(ledger.errors(), Vec::<String>::new(), "seed {seed}");
    let events = trace.0.borrow().events.clone();
    assert_eq!(events.len(), cores * (TASKS * ROUNDS) as usize);
    (events, tally.completed)
}

#[test]
fn waiting_is_neither_early_nor_much_too_late_and_a_function_of_the_seed() {
    let given = std::env::var("JANUS_LOCKSTEP_SEED").ok();
    let given = given.and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = given.map_or_else(|| (500..502).collect(), |seed| vec![seed]);
    let mut courses = Vec::new();
    for (at, seed) in seeds.into_iter().enumerate() {
        let layout = [SPLIT, COMBINED][at % 2];
        println!("JANUS_LOCKSTEP_SEED={seed} {layout:?}");
        let first = course(seed, layout);
        assert!(first.1 > 50, "{} connections beside it", first.1);
        assert!(first == course(seed, layout), "seed {seed}: another course");
        assert!(!courses.contains(&first), "another seed is another course");
        courses.push(first);
    }
}
