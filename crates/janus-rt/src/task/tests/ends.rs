//! The ways a task can end, the unkind ones: panics in every place, drops that spawn, aborts at every await, handles
//! that outlive their core, wakes from everywhere meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::task::Wake;

use super::*;

/// Counts its drops, and panics in each when told to.
struct Bomb {
    drops: Rc<Cell<usize>>,
    panics: bool,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        assert!(!self.panics, "in drop");
    }
}

fn bomb(drops: &Rc<Cell<usize>>, panics: bool) -> Bomb {
    Bomb {
        drops: Rc::clone(drops),
        panics,
    }
}

/// After whatever happened the core still serves.
fn still_serves(core: &mut Core1) {
    let done = Rc::new(Cell::new(false));
    let to = Rc::clone(&done);
    drop(core.executor.spawn(async move { to.set(true) }));
    core.run();
    assert!(done.get());
    assert_eq!(core.executor.tasks(), 0);
}

#[test]
fn a_future_that_panics_in_its_drop_ends_alone() {
    let mut core = core();
    let drops = Rc::new(Cell::new(0));
    // When done; when panicking; when aborted.
    let held = bomb(&drops, true);
    let done = core.executor.spawn(async move {
        let _held = held;
    });
    let held = bomb(&drops, true);
    let aborted = core.executor.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    core.run();
    aborted.abort();
    core.run();
    assert_eq!(drops.get(), 2);
    assert!(core.here(|| done.is_finished() && aborted.is_finished()));
    drop((done, aborted));
    still_serves(&mut core);
    assert_eq!(core.executor.counters().panicked, 2);
}

#[test]
fn an_output_that_panics_in_its_drop_is_dropped_once() {
    let mut core = core();
    let drops = Rc::new(Cell::new(0));
    let output = bomb(&drops, true);
    drop(core.executor.spawn(async move { output }));
    core.run();
    let output = bomb(&drops, true);
    let handle = core.executor.spawn(async move { output });
    core.run();
    core.here(|| drop(handle));
    assert_eq!(drops.get(), 2);
    still_serves(&mut core);
}

#[test]
fn a_panic_with_a_payload_that_panics_in_its_drop_stays_where_it_is() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            std::panic::panic_any(Second);
        }
    }
    struct Second;
    impl Drop for Second {
        fn drop(&mut self) {
            panic!("and again");
        }
    }
    let mut core = core();
    drop(
        core.executor
            .spawn(async { std::panic::panic_any(Payload) }),
    );
    core.run();
    let handle = core
        .executor
        .spawn(async { std::panic::panic_any(Payload) });
    core.run();
    drop::<JoinHandle<()>>(handle);
    still_serves(&mut core);
}

#[test]
fn a_waker_that_panics_does_not_end_the_core() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in wake");
        }
    }
    let mut core = core();
    let mut handle = core.executor.spawn(async {});
    let waker = Waker::from(Arc::new(Panics));
    let mut cx = Context::from_waker(&waker);
    assert!(core.here(|| Pin::new(&mut handle).poll(&mut cx).is_pending()));
    core.run();
    let end = core.here(|| Pin::new(&mut handle).poll(&mut cx));
    assert!(end.ready_and(|end| end.is_ok()));
    still_serves(&mut core);
}

#[test]
fn an_output_larger_than_any_slot_comes_through_its_box() {
    let mut core = core();
    let mut handle = core.executor.spawn(async { [7u8; 20_000] });
    let unclaimed = core.executor.spawn(async { [8u8; 20_000] });
    core.run();
    let mut cx = Context::from_waker(Waker::noop());
    let entered = core.executor.enter();
    let Poll::Ready(Ok(output)) = Pin::new(&mut handle).poll(&mut cx) else {
        panic!("it has ended")
    };
    assert!(output.iter().all(|&byte| byte == 7));
    drop((unclaimed, entered));
    let polled_again = catch_unwind(AssertUnwindSafe(|| {
        let _ = Pin::new(&mut handle).poll(&mut cx);
    }));
    assert!(polled_again.is_err(), "a handle gives its output once");
    still_serves(&mut core);
}

#[test]
fn only_the_last_who_joins_is_woken() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut core = core();
    let (first, second) = (
        Arc::new(Count(AtomicUsize::new(0))),
        Arc::new(Count(AtomicUsize::new(0))),
    );
    let mut handle = core.executor.spawn(yield_now());
    for count in [&first, &second, &second] {
        let waker = Waker::from(Arc::clone(count));
        let mut cx = Context::from_waker(&waker);
        assert!(core.here(|| Pin::new(&mut handle).poll(&mut cx).is_pending()));
    }
    assert_eq!(Arc::strong_count(&first), 1, "the one before is not kept");
    core.run();
    assert_eq!(first.0.load(Ordering::SeqCst), 0);
    assert_eq!(second.0.load(Ordering::SeqCst), 1);
    assert_eq!(Arc::strong_count(&second), 1);
    drop(handle);
    still_serves(&mut core);
}

#[test]
fn a_task_can_be_dropped_at_every_await() {
    const AWAITS: usize = 6;
    async fn job(drops: Rc<Cell<usize>>) -> Bomb {
        let mut held = Vec::new();
        for _ in 0..AWAITS {
            held.push(bomb(&drops, false));
            yield_now().await;
        }
        let inner = spawn(std::future::ready(bomb(&drops, false)));
        inner.await.expect("ended well")
    }
    for polls in 0..=AWAITS + 3 {
        for way in 0..3 {
            let drops = Rc::new(Cell::new(0));
            let mut core = core();
            let handle = core.executor.spawn(job(Rc::clone(&drops)));
            let entered = core.executor.enter();
            for _ in 0..polls {
                core.executor.run(1);
            }
            match way {
                0 => {
                    handle.abort();
                    while core.executor.run(10) > 0 {}
                    drop(handle);
                }
                1 => {
                    drop(handle);
                    while core.executor.run(10) > 0 {}
                }
                _ => drop(handle),
            }
            drop(entered);
            if way < 2 {
                still_serves(&mut core);
            }
            drop(core);
            let made = polls.min(AWAITS) + usize::from(polls > AWAITS);
            let made = if way == 1 { AWAITS + 1 } else { made };
            assert_eq!(drops.get(), made, "{polls} polls, way {way}");
            assert_eq!(Rc::strong_count(&drops), 1);
        }
    }
}

#[test]
fn what_drops_spawn_while_the_core_ends_is_dropped_too() {
    struct Respawns(Rc<Cell<usize>>, usize);
    impl Drop for Respawns {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            if self.1 > 0 {
                let next = Respawns(Rc::clone(&self.0), self.1 - 1);
                drop(spawn(async move {
                    let _next = next;
                    pending::<()>().await;
                }));
            }
        }
    }
    let drops = Rc::new(Cell::new(0));
    let mut core = core();
    let first = Respawns(Rc::clone(&drops), 5);
    let handle = core.executor.spawn(async move {
        let _first = first;
        pending::<()>().await;
    });
    core.run();
    drop(core);
    assert_eq!(drops.get(), 6);
    assert!(handle.is_finished(), "the handle outlives its core");
}

#[test]
fn what_is_spawned_on_a_core_that_has_ended_is_dropped() {
    let Core1 { executor, .. } = core();
    let entered = executor.enter();
    drop(executor);
    let drops = Rc::new(Cell::new(0));
    let held = bomb(&drops, false);
    let mut handle = spawn(async move { drop(held) });
    assert_eq!(drops.get(), 1);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(
        Pin::new(&mut handle)
            .poll(&mut cx)
            .ready_and(|end| end.is_err_and(|e| e.is_cancelled()))
    );
    drop(entered);
}

#[test]
fn a_task_may_hold_its_own_handle_when_it_ends() {
    let mut core = core();
    let slot: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
    let own = Rc::clone(&slot);
    let task = core.executor.spawn(async move {
        yield_now().await;
        // Dropped by the future's own drop, after it was ready.
        let _own = own.borrow_mut().take();
        let _ = &own;
    });
    *slot.borrow_mut() = Some(task);
    core.run();
    still_serves(&mut core);
}

#[test]
fn numbers_that_are_no_tasks_wake_nobody() {
    let mut core = core();
    let (stored, polls) = (Rc::default(), Rc::default());
    drop(waiting(&core, &stored, &polls));
    // Of the class of 256 bytes: three of four granules are inside of it.
    let big = core.executor.spawn(async {
        let held = [1u64; 20];
        pending::<()>().await;
        assert_eq!(held[3], 1);
    });
    core.run();
    let inside = big.granule().map_or(0, |granule| granule + 1);
    let entered = core.executor.enter();
    for number in [inside, 4095, 1 << 29, u32::MAX >> 2, u32::MAX] {
        wake_local(number);
    }
    assert!(!core.executor.has_ready());
    drop(entered);
    drop(big);
    core.run();
    assert_eq!(polls.get(), 1);
}

#[test]
fn a_core_may_end_while_others_wake_it() {
    let rounds = if cfg!(miri) { 2 } else { 50 };
    for _ in 0..rounds {
        let mut core = core();
        let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..8 {
            let wakers = Arc::clone(&wakers);
            drop(core.executor.spawn(poll_fn(move |cx| {
                wakers.lock().expect("whole").push(cx.waker().clone());
                Poll::<()>::Pending
            })));
        }
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (wakers, stop) = (Arc::clone(&wakers), Arc::clone(&stop));
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let some: Vec<Waker> = wakers.lock().expect("whole").clone();
                        some.iter().for_each(Waker::wake_by_ref);
                        wakers.lock().expect("whole").truncate(100);
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            let entered = core.executor.enter();
            while let Some(Message::Wake(word)) = core.reader.pop() {
                core.executor.wake_word(word);
            }
            core.executor.run(64);
            drop(entered);
        }
        drop(core);
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("nothing panics");
        }
    }
}

#[test]
fn panics_in_a_round_are_the_ends_of_their_tasks_and_of_no_others() {
    let mut core = core();
    let ended = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let ended = Rc::clone(&ended);
            core.executor.spawn(async move {
                yield_now().await;
                assert!(number % 3 != 1, "on purpose");
                ended.set(ended.get() + 1);
            })
        })
        .collect();
    // Twenty that yield, then ten of which some panic: each counts as polled once.
    core.here(|| assert_eq!(core.executor.run(30), 30));
    assert_eq!((ended.get(), core.executor.counters().panicked), (7, 3));
    core.here(|| assert_eq!(core.executor.run(100), 10));
    assert_eq!((ended.get(), core.executor.counters().panicked), (13, 7));
    for (number, mut task) in tasks.into_iter().enumerate() {
        let mut cx = Context::from_waker(Waker::noop());
        let end = core.here(|| Pin::new(&mut task).poll(&mut cx));
        let panicked = end.ready_and(|end| end.is_err_and(|error| error.is_panic()));
        assert_eq!(panicked, number % 3 == 1);
    }
    assert_eq!(core.executor.tasks(), 0);
    still_serves(&mut core);
}

/// `Poll::is_ready` with a look inside.
trait ReadyAnd<T> {
    fn ready_and(self, look: impl FnOnce(T) -> bool) -> bool;
}

impl<T> ReadyAnd<T> for Poll<T> {
    fn ready_and(self, look: impl FnOnce(T) -> bool) -> bool {
        match self {
            Poll::Ready(value) => look(value),
            Poll::Pending => false,
        }
    }
}
