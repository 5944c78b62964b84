//! Sleepers, bounds and ticks, on a clock the test moves.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use super::*;
use crate::task::tests::{Core1, core};

fn at(core: &mut Core1, millis: u64) {
    core.executor.advance(Instant::from_millis(millis));
    core.run();
}

#[test]
fn sleepers_wake_in_order_and_not_early() {
    let mut core = core();
    let woken = Rc::new(RefCell::new(Vec::new()));
    for ms in [30u64, 10, 20] {
        let woken = Rc::clone(&woken);
        drop(core.executor.spawn(async move {
            sleep(Duration::from_millis(ms)).await;
            woken.borrow_mut().push(ms);
        }));
    }
    at(&mut core, 0);
    at(&mut core, 9);
    assert!(woken.borrow().is_empty());
    assert!(
        core.executor
            .next_deadline()
            .is_some_and(|d| d >= Instant::from_millis(9))
    );
    for (now, count) in [(11, 1), (21, 2), (31, 3)] {
        at(&mut core, now);
        assert_eq!(woken.borrow().len(), count, "at {now} ms");
    }
    assert_eq!(*woken.borrow(), [10, 20, 30]);
    assert!(core.executor.next_deadline().is_none());
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    let mut core = core();
    let task = core.executor.spawn(sleep(Duration::from_secs(5)));
    at(&mut core, 0);
    assert!(core.executor.next_deadline().is_some());
    task.abort();
    at(&mut core, 1);
    assert!(core.executor.next_deadline().is_none());
}

#[test]
fn a_bound_cuts_off_what_takes_too_long_and_nothing_else() {
    let mut core = core();
    let seen = Rc::new(Cell::new((false, false)));
    let to = Rc::clone(&seen);
    drop(core.executor.spawn(async move {
        let quick = timeout(Duration::from_millis(10), async { 1 }).await == Ok(1);
        let slow = timeout(Duration::from_millis(10), pending::<()>()).await == Err(Elapsed);
        to.set((quick, slow));
    }));
    at(&mut core, 0);
    at(&mut core, 5);
    assert_eq!(seen.get(), (false, false));
    at(&mut core, 11);
    assert_eq!(seen.get(), (true, true));
    assert!(core.executor.next_deadline().is_none());
}

#[test]
fn ticks_keep_their_rhythm_when_one_is_late() {
    let mut core = core();
    let ticks = Rc::new(RefCell::new(Vec::new()));
    let to = Rc::clone(&ticks);
    drop(core.executor.spawn(async move {
        let mut every = interval(Duration::from_millis(10));
        for _ in 0..4 {
            let tick = every.tick().await;
            to.borrow_mut().push(tick.as_millis());
        }
    }));
    for now in [100, 111, 135, 136] {
        at(&mut core, now);
    }
    assert_eq!(*ticks.borrow(), [100, 110, 120, 130]);
}

#[test]
fn a_sleep_moved_to_another_task_wakes_that_one() {
    let mut core = core();
    let slept: Rc<RefCell<Option<Sleep>>> = Rc::default();
    let to = Rc::clone(&slept);
    drop(core.executor.spawn(async move {
        let mut sleep = sleep(Duration::from_millis(10));
        let first = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut sleep).poll(cx).is_ready())
        });
        assert!(!first.await);
        *to.borrow_mut() = Some(sleep);
    }));
    at(&mut core, 0);
    let done = Rc::new(Cell::new(false));
    let (to, sleep) = (
        Rc::clone(&done),
        slept.borrow_mut().take().expect("handed over"),
    );
    drop(core.executor.spawn(async move {
        sleep.await;
        to.set(true);
    }));
    at(&mut core, 1);
    at(&mut core, 11);
    assert!(done.get());
}

/// What is due already gives the others their turn, and a bound ends what never waits.
#[test]
fn a_loop_over_what_is_due_starves_nobody_and_has_a_bound() {
    let mut core = core();
    let (rounds, other) = (Rc::new(Cell::new(0u32)), Rc::new(Cell::new(0)));
    let to = Rc::clone(&rounds);
    let end = Rc::new(Cell::new(None));
    let ended = Rc::clone(&end);
    drop(core.executor.spawn(async move {
        let forever = async {
            loop {
                sleep(Duration::ZERO).await;
                to.set(to.get() + 1);
            }
        };
        ended.set(Some(
            timeout(Duration::from_millis(10), forever).await.is_err(),
        ));
    }));
    let (seen, to) = (Rc::clone(&rounds), Rc::clone(&other));
    drop(core.executor.spawn(async move { to.set(seen.get()) }));
    for ms in [0, 5] {
        core.executor.advance(Instant::from_millis(ms));
        let entered = core.executor.enter();
        core.executor.run(10);
        drop(entered);
    }
    assert_eq!(other.get(), 128);
    assert_eq!(end.get(), None);
    at(&mut core, 11);
    assert_eq!(end.get(), Some(true));
    assert!(rounds.get() > 1000);
}
