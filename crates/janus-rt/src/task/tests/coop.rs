//! The budget of a poll.

use super::*;

/// Does what is ready `wanted` times, and says how often it could.
async fn greedy(wanted: usize, done: Rc<Cell<usize>>) {
    for _ in 0..wanted {
        consume_budget().await;
        done.set(done.get() + 1);
    }
}

#[test]
fn a_task_that_always_finds_something_lets_the_others_go_on() {
    let mut core = core();
    let (done, other) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    drop(core.executor.spawn(greedy(1000, Rc::clone(&done))));
    let (seen, to) = (Rc::clone(&done), Rc::clone(&other));
    drop(core.executor.spawn(async move { to.set(seen.get()) }));
    core.run();
    assert_eq!((done.get(), other.get()), (1000, 128));
}

#[test]
fn a_budget_is_a_poll_s() {
    let core = core();
    let done = Rc::new(Cell::new(0));
    let entered = core.executor.enter();
    for polls in 1..=3 {
        drop(core.executor.spawn(greedy(100, Rc::clone(&done))));
        assert_eq!(core.executor.run(1), 1);
        assert_eq!(done.get(), polls * 100, "each task has its own");
    }
    drop(core.executor.spawn(greedy(300, Rc::clone(&done))));
    for (polls, total) in [(1, 128), (2, 256), (3, 300)] {
        assert_eq!(core.executor.run(1), 1);
        assert_eq!(done.get() - 300, total, "{polls} polls");
    }
    assert!(!core.executor.has_ready());
    // Outside of a task there is none.
    let mut all = Box::pin(greedy(1000, Rc::clone(&done)));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(all.as_mut().poll(&mut cx).is_ready());
    drop(entered);
}

#[test]
fn without_constraint_it_goes_on() {
    let mut core = core();
    let (inner, outer) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (first, second) = (Rc::clone(&inner), Rc::clone(&outer));
    drop(core.executor.spawn(async move {
        greedy(100, Rc::clone(&second)).await;
        unconstrained(greedy(1000, first)).await;
        greedy(100, second).await;
    }));
    let entered = core.executor.enter();
    assert_eq!(core.executor.run(1), 1);
    assert_eq!(
        (inner.get(), outer.get()),
        (1000, 128),
        "what was used up before counts after"
    );
    drop(entered);
    core.run();
    assert_eq!(outer.get(), 200);
}

#[test]
fn joining_what_has_ended_takes_from_the_budget() {
    let mut core = core();
    let joined = Rc::new(Cell::new(0));
    let ended: Vec<_> = (0..200)
        .map(|n| core.executor.spawn(async move { n }))
        .collect();
    core.run();
    let to = Rc::clone(&joined);
    drop(core.executor.spawn(async move {
        for handle in ended {
            handle.await.expect("ended well");
            to.set(to.get() + 1);
        }
    }));
    let entered = core.executor.enter();
    core.executor.run(1);
    assert_eq!(joined.get(), 128);
    drop(entered);
    core.run();
    assert_eq!(joined.get(), 200);
}
