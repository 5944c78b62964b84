//! Sleepers, bounds and ticks, on a clock the test moves.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use super::*;
use crate::task::FIRED_MAX;
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
fn sleepers_of_one_moment_wake_over_several_turns() {
    const SLEEPERS: usize = if cfg!(miri) { 10 } else { 5_000 };
    let mut core = core();
    let woken = Rc::new(Cell::new(0));
    for _ in 0..SLEEPERS {
        let woken = Rc::clone(&woken);
        drop(core.executor.spawn(async move {
            sleep(Duration::from_millis(10)).await;
            woken.set(woken.get() + 1);
        }));
    }
    at(&mut core, 0);
    let moment = Instant::from_millis(11);
    while woken.get() < SLEEPERS {
        let next = core.executor.next_deadline();
        assert!(next.is_some_and(|next| next <= moment), "the rest is due");
        let before = woken.get();
        at(&mut core, 11);
        assert!((before + 1..=before + FIRED_MAX).contains(&woken.get()));
    }
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

/// A loop over due timers yields to other tasks, and `timeout` ends a loop that never waits.
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

#[test]
fn an_interval_begins_where_it_is_told_and_can_be_set_anew() {
    let mut core = core();
    let ticks = Rc::new(RefCell::new(Vec::new()));
    let to = Rc::clone(&ticks);
    at(&mut core, 100);
    drop(core.executor.spawn(async move {
        let mut every = interval_at(Instant::from_millis(150), Duration::from_millis(10));
        assert_eq!(every.period(), Duration::from_millis(10));
        for _ in 0..2 {
            let tick = every.tick().await;
            to.borrow_mut().push(tick.as_millis());
        }
        every.reset_after(Duration::from_millis(100));
        let tick = every.tick().await;
        to.borrow_mut().push(tick.as_millis());
        every.reset();
        let tick = every.tick().await;
        to.borrow_mut().push(tick.as_millis());
        every.reset_immediately();
        let tick = every.tick().await;
        to.borrow_mut().push(tick.as_millis());
        every.reset_at(Instant::from_millis(500));
        let tick = every.tick().await;
        to.borrow_mut().push(tick.as_millis());
    }));
    core.run();
    for now in [149, 151, 161, 200, 262, 273, 499, 501] {
        at(&mut core, now);
    }
    assert_eq!(*ticks.borrow(), [150, 160, 261, 272, 273, 500]);
}

#[test]
fn a_tick_that_is_not_waited_for_to_its_end_is_not_lost() {
    let mut core = core();
    let ticks = Rc::new(RefCell::new(Vec::new()));
    let to = Rc::clone(&ticks);
    drop(core.executor.spawn(async move {
        let mut every = interval_at(Instant::from_millis(30), Duration::from_millis(30));
        for _ in 0..4 {
            if let Ok(tick) = timeout(Duration::from_millis(20), every.tick()).await {
                to.borrow_mut().push(tick.as_millis());
            }
        }
    }));
    for now in [0, 21, 31, 52, 61, 80] {
        at(&mut core, now);
    }
    assert_eq!(*ticks.borrow(), [30, 60]);
}

#[test]
fn a_bound_by_the_clock_holds_from_the_start() {
    let mut core = core();
    let seen = Rc::new(Cell::new(None));
    let to = Rc::clone(&seen);
    at(&mut core, 10);
    drop(core.executor.spawn(async move {
        let bound = timeout_at(Instant::from_millis(30), pending::<()>());
        sleep_until(Instant::from_millis(20)).await;
        to.set(Some((bound.await, now().as_millis())));
    }));
    core.run();
    for now in [21, 29, 31] {
        at(&mut core, now);
    }
    assert_eq!(seen.get(), Some((Err(Elapsed), 31)));
}

#[test]
fn a_sleep_says_when_it_ends() {
    let mut core = core();
    let seen = Rc::new(Cell::new(false));
    let to = Rc::clone(&seen);
    drop(core.executor.spawn(async move {
        let mut sleep = sleep_until(Instant::from_millis(5));
        assert!(!sleep.is_elapsed());
        assert_eq!(sleep.deadline(), Some(Instant::from_millis(5)));
        (&mut sleep).await;
        assert!(sleep.is_elapsed());
        assert_eq!(super::sleep(Duration::from_millis(1)).deadline(), None);
        to.set(true);
    }));
    at(&mut core, 0);
    at(&mut core, 6);
    assert!(seen.get());
}
