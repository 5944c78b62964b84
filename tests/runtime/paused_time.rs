//! Time that jumps: what takes days takes none, in order, on one core and on several.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use janus::time::{advance, interval, now, pause, resume, sleep, timeout};
use janus::{JoinSet, spawn, spawn_blocking, spawn_on, yield_now};

const HOUR: Duration = Duration::from_secs(3600);

/// What a test that jumps may take, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[janus::test(start_paused = true)]
async fn a_day_takes_no_time() {
    let (begin, start) = (Instant::now(), now());
    sleep(24 * HOUR).await;
    assert!(begin.elapsed() < PATIENCE);
    let slept = now().saturating_since(start);
    assert!(slept >= 24 * HOUR && slept < 24 * HOUR + Duration::from_millis(1));
}

#[janus::test(start_paused = true)]
async fn time_stands_still_while_there_is_something_to_do() {
    let start = now();
    for _ in 0..10_000 {
        yield_now().await;
    }
    let worked = Instant::now();
    while worked.elapsed() < Duration::from_millis(5) {
        yield_now().await;
    }
    assert_eq!(now(), start);
}

#[janus::test(start_paused = true)]
async fn sleepers_wake_in_the_order_of_their_times() {
    let woken = Rc::new(RefCell::new(Vec::new()));
    let mut set = JoinSet::new();
    let start = now();
    for hours in [5u32, 1, 3, 2, 4] {
        let woken = woken.clone();
        set.spawn(async move {
            sleep(hours * HOUR).await;
            woken
                .borrow_mut()
                .push((hours, (now().saturating_since(start)).as_secs() / 3600));
        });
    }
    set.join_all().await;
    assert_eq!(*woken.borrow(), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
}

#[janus::test(start_paused = true)]
async fn bounds_and_ticks_are_exact_however_slow_the_machine() {
    let mut every = interval(Duration::from_secs(60));
    let first = every.tick().await;
    for tick in 1..=100 {
        // Real time passes here; this one does not.
        if tick % 25 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(every.tick().await, first + tick * Duration::from_secs(60));
    }
    let start = now();
    assert!(timeout(HOUR, std::future::pending::<()>()).await.is_err());
    assert!(now().saturating_since(start) >= HOUR);
    let inner = timeout(HOUR, sleep(HOUR / 2)).await;
    assert!(inner.is_ok() && now().saturating_since(start) < 2 * HOUR);
}

/// The call takes longer than the bound; but the clock waits for it.
#[janus::test(start_paused = true)]
async fn a_blocking_call_holds_the_clock() {
    let start = now();
    let call = spawn_blocking(|| std::thread::sleep(Duration::from_millis(60)));
    let bounded = timeout(Duration::from_millis(20), call).await;
    assert!(bounded.is_ok_and(|end| end.is_ok()));
    assert_eq!(now(), start);
    // Nobody awaits this one: its end is noticed all the same.
    let begin = Instant::now();
    drop(spawn_blocking(|| {
        std::thread::sleep(Duration::from_millis(30))
    }));
    sleep(HOUR).await;
    assert!(begin.elapsed() >= Duration::from_millis(25) && now().saturating_since(start) >= HOUR);
}

/// All cores must have nothing to do, and all see the same time.
#[janus::test(cores = 3, start_paused = true)]
async fn cores_sleep_and_wake_together() {
    static LOG: Mutex<Vec<(u64, usize)>> = Mutex::new(Vec::new());
    static ENDED: AtomicUsize = AtomicUsize::new(0);
    let core = janus::core_id().expect("a core");
    let start = now();
    for round in 1..=20 {
        // The cores' times are 3, 4 and 5 hours apart.
        sleep((3 + core as u32) * HOUR).await;
        let hours = (now().saturating_since(start)).as_secs() / 3600;
        assert_eq!(hours, round * (3 + core as u64));
        LOG.lock().expect("whole").push((hours, core));
    }
    if ENDED.fetch_add(1, Ordering::SeqCst) == 2 {
        let log = LOG.lock().expect("whole").clone();
        let mut sorted = log.clone();
        sorted.sort_by_key(|(hours, _)| *hours);
        let hours = |log: &[(u64, usize)]| log.iter().map(|(h, _)| *h).collect::<Vec<_>>();
        assert_eq!(log.len(), 60);
        assert_eq!(hours(&log), hours(&sorted), "no core is ahead of another");
    }
}

/// A message on its way to a core that sleeps holds the clock.
#[janus::test(cores = 3, start_paused = true)]
async fn what_is_sent_to_a_sleeping_core_comes_before_the_next_hour() {
    if janus::core_id() != Some(0) {
        return;
    }
    let guard = spawn(sleep(1000 * HOUR));
    let start = now();
    let served = Arc::new(AtomicUsize::new(0));
    for round in 0..300 {
        let served = served.clone();
        let there = spawn_on(1 + round % 2, move || async move {
            yield_now().await;
            served.fetch_add(1, Ordering::SeqCst)
        });
        assert_eq!(there.await.expect("ended well"), round);
        assert_eq!(now(), start, "round {round}");
    }
    guard.abort();
}

#[janus::test(start_paused = true)]
async fn a_clock_that_is_moved_wakes_whom_it_has_passed() {
    let start = now();
    let woken = Rc::new(RefCell::new(Vec::new()));
    for hours in [1u32, 2, 3] {
        let woken = woken.clone();
        spawn(async move {
            sleep(hours * HOUR).await;
            woken.borrow_mut().push(hours);
        });
    }
    yield_now().await;
    advance(HOUR / 2).await;
    assert_eq!(now(), start + HOUR / 2);
    assert!(woken.borrow().is_empty());
    // The wheel's grain is a third of a millisecond.
    advance(2 * HOUR - HOUR / 2 + Duration::from_millis(1)).await;
    yield_now().await;
    assert_eq!(*woken.borrow(), [1, 2]);
    assert_eq!(now(), start + 2 * HOUR + Duration::from_millis(1));
    advance(Duration::ZERO).await;
    assert_eq!(woken.borrow().len(), 2);
    sleep(HOUR).await;
    assert_eq!(*woken.borrow(), [1, 2, 3]);
}

#[janus::test(start_paused = true)]
async fn a_clock_that_is_let_go_runs_until_it_is_stopped() {
    let start = now();
    // Before it runs: what passes between the two lines is part of the sleep.
    let begin = Instant::now();
    resume();
    // Nothing to do but wait, and yet no jump.
    sleep(Duration::from_millis(50)).await;
    assert!(begin.elapsed() >= Duration::from_millis(49));
    let ran = now().saturating_since(start);
    assert!(ran >= Duration::from_millis(50) && ran < PATIENCE);
    pause();
    yield_now().await;
    let stopped = now();
    assert!(stopped >= start + ran);
    std::thread::sleep(Duration::from_millis(20));
    yield_now().await;
    assert_eq!(now(), stopped);
    let begin = Instant::now();
    sleep(24 * HOUR).await;
    assert!(begin.elapsed() < PATIENCE && now() >= stopped + 24 * HOUR);
}

/// Cores asleep by one clock are woken to sleep by the other, and all are moved together.
#[janus::test(cores = 3, start_paused = true)]
async fn all_cores_run_stand_and_move_together() {
    const ROUNDS: usize = 20;
    let start = now();
    if janus::core_id() != Some(0) {
        // Longer than anybody has patience by the machine's clock.
        sleep(ROUNDS as u32 * HOUR).await;
        assert!(now() >= start + ROUNDS as u32 * HOUR);
        return;
    }
    for round in 0..ROUNDS {
        // Asleep by the clock that stands, since this core is awake; to be woken by the one that runs.
        let there = spawn_on(1, || sleep(Duration::from_millis(3)));
        std::thread::sleep(Duration::from_millis(1));
        resume();
        there.await.expect("ended well");
        pause();
        if round % 2 == 0 {
            advance(HOUR / 2).await;
        }
        let begin = Instant::now();
        sleep(HOUR).await;
        assert!(begin.elapsed() < PATIENCE);
    }
    let there = spawn_on(1, || async { now() });
    let there = there.await.expect("ended well");
    assert!(there >= start + ROUNDS as u32 * HOUR);
}

#[janus::test]
async fn the_machines_clock_cannot_be_stopped() {
    for refused in [
        spawn(async { pause() }).await,
        spawn(async { resume() }).await,
        spawn(advance(HOUR)).await,
    ] {
        assert!(refused.expect_err("a panic").is_panic());
    }
}

#[janus::test(start_paused = true)]
async fn a_clock_stands_or_runs_once() {
    assert!(spawn(async { pause() }).await.is_err());
    resume();
    assert!(spawn(async { resume() }).await.is_err());
    assert!(spawn(advance(HOUR)).await.is_err());
    pause();
}
