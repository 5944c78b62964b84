//! Sets of tasks on a core driven by hand.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use super::*;
use crate::task::tests::{Core1, core};
use crate::task::yield_now;

const ROUNDS: u64 = if cfg!(miri) { 2 } else { 20 };

type Ends = Rc<RefCell<Vec<u32>>>;

/// Runs `with` as a task of a core to its end.
fn run<F: Future + 'static>(core: &mut Core1, with: F) -> Option<F::Output> {
    let done = Rc::new(RefCell::new(None));
    let to = Rc::clone(&done);
    drop(core.executor.spawn(async move {
        let output = with.await;
        *to.borrow_mut() = Some(output);
    }));
    core.run();
    done.take()
}

#[test]
fn ends_come_in_the_order_in_which_tasks_end() {
    let mut core = core();
    let ends = run(&mut core, async {
        let mut set = JoinSet::new();
        for turns in [3u32, 1, 2, 0] {
            set.spawn(async move {
                for _ in 0..turns {
                    yield_now().await;
                }
                turns
            });
        }
        assert_eq!(set.len(), 4);
        set.join_all().await
    });
    assert_eq!(ends, Some(vec![0, 1, 2, 3]));
    assert_eq!(core.executor.tasks(), 0);
}

#[test]
fn many_tasks_are_joined_once_each_and_places_are_used_again() {
    let mut core = core();
    let sum = run(&mut core, async {
        let (mut set, mut sum, mut places) = (JoinSet::new(), 0u64, 0);
        for round in 0..ROUNDS {
            for n in 0..50u64 {
                set.spawn(async move {
                    if (n + round) % 3 == 0 {
                        yield_now().await;
                    }
                    n
                });
            }
            while let Some(end) = set.join_next().await {
                sum += end.expect("ended well");
            }
            places = places.max(set.members.len());
        }
        (sum, places)
    });
    assert_eq!(sum, Some((ROUNDS * (0..50).sum::<u64>(), 50)));
}

#[test]
fn an_empty_set_gives_nothing_at_once() {
    let mut core = core();
    let got = run(&mut core, async {
        let mut set: JoinSet<u8> = JoinSet::default();
        assert!(set.is_empty() && set.try_join_next().is_none());
        set.join_next().await.is_none()
    });
    assert_eq!(got, Some(true));
}

#[test]
fn panics_and_aborts_are_told_of_one_task_each() {
    let mut core = core();
    let told = run(&mut core, async {
        let mut set = JoinSet::new();
        set.spawn(async { panic!("on purpose") });
        let abort = set.spawn(pending::<u8>());
        set.spawn(async { 3 });
        abort.abort();
        let (mut panics, mut cancelled, mut ended) = (0, 0, 0);
        while let Some(end) = set.join_next().await {
            match end {
                Ok(3) => ended += 1,
                Ok(_) => unreachable!("nobody gives that"),
                Err(error) if error.is_panic() => panics += 1,
                Err(_) => cancelled += 1,
            }
        }
        assert!(abort.is_finished());
        (panics, cancelled, ended)
    });
    assert_eq!(told, Some((1, 1, 1)));
}

struct Dropped(Rc<Cell<u32>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn held(drops: &Rc<Cell<u32>>) -> impl Future<Output = ()> + 'static {
    let held = Dropped(Rc::clone(drops));
    async move {
        let _held = held;
        pending::<()>().await;
    }
}

#[test]
fn a_set_that_is_dropped_ends_its_tasks_and_a_detached_one_does_not() {
    let mut core = core();
    let drops = Rc::new(Cell::new(0));
    let to = Rc::clone(&drops);
    run(&mut core, async move {
        let mut set = JoinSet::new();
        for _ in 0..5 {
            set.spawn(held(&to));
        }
        yield_now().await;
    });
    assert_eq!((drops.get(), core.executor.tasks()), (5, 0));
    let to = Rc::clone(&drops);
    run(&mut core, async move {
        let mut set = JoinSet::new();
        for _ in 0..5 {
            set.spawn(held(&to));
        }
        yield_now().await;
        set.detach_all();
        assert!(set.is_empty() && set.join_next().await.is_none());
    });
    assert_eq!((drops.get(), core.executor.tasks()), (5, 5));
    drop(core);
    assert_eq!(drops.get(), 10);
}

#[test]
fn shutdown_waits_until_all_are_gone() {
    let mut core = core();
    let drops = Rc::new(Cell::new(0));
    let to = Rc::clone(&drops);
    let after = run(&mut core, async move {
        let mut set = JoinSet::new();
        for _ in 0..5 {
            set.spawn(held(&to));
        }
        yield_now().await;
        set.shutdown().await;
        (to.get(), set.len())
    });
    assert_eq!(after, Some((5, 0)));
}

/// Waiting may be given up at any time: what ends meanwhile comes with the next wait.
#[test]
fn a_wait_that_is_dropped_loses_no_end() {
    let mut core = core();
    let ends: Ends = Rc::default();
    let to = Rc::clone(&ends);
    run(&mut core, async move {
        let mut set = JoinSet::new();
        for n in 0..4u32 {
            set.spawn(async move {
                for _ in 0..n {
                    yield_now().await;
                }
                n
            });
        }
        while !set.is_empty() {
            // One poll, then it is dropped.
            let polled = {
                let mut next = Box::pin(set.join_next());
                poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await
            };
            match polled {
                Poll::Ready(end) => to
                    .borrow_mut()
                    .push(end.expect("not empty").expect("ended")),
                Poll::Pending => yield_now().await,
            }
        }
    });
    assert_eq!(*ends.borrow(), [0, 1, 2, 3]);
}

/// More members than a poll's budget: joining them yields, and comes to its end.
#[test]
fn more_ends_than_a_budget_are_joined() {
    let mut core = core();
    let count = run(&mut core, async {
        let mut set = JoinSet::new();
        for n in 0..1000u32 {
            set.spawn(async move { n });
        }
        yield_now().await;
        set.join_all().await.len()
    });
    assert_eq!(count, Some(1000));
}
