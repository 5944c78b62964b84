//! The executor driven by hand on the test's thread, as a shard's loop drives it.

mod coop;
mod elsewhere;
mod ends;

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use janus_mem::Growth;

use super::*;
use crate::inbox::{GENERATION_MAX, InboxReader, Message, ShardIdentity};
use crate::warning::Warnings;

pub(crate) struct Core1 {
    pub(crate) executor: Executor,
    pub(crate) reader: InboxReader,
    rung: Arc<AtomicUsize>,
}

pub(crate) fn core() -> Core1 {
    let rung = Arc::new(AtomicUsize::new(0));
    let bell = Arc::clone(&rung);
    let reader = InboxReader::new(move || {
        bell.fetch_add(1, Ordering::SeqCst);
    });
    let identity = ShardIdentity::register(Arc::clone(reader.inbox())).expect("a free number");
    let executor = Executor::new(identity, &Growth::Inline, Room::FULL).expect("memory");
    Core1 {
        executor,
        reader,
        rung,
    }
}

impl Core1 {
    /// Shows in `pulse` what it does.
    pub(crate) fn watched(self, pulse: Arc<Pulse>, warnings: Arc<Warnings>) -> Core1 {
        let executor = self.executor.watched(pulse, warnings, usize::MAX);
        Core1 { executor, ..self }
    }

    /// Calls `f` as if on the core's thread.
    pub(crate) fn here<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = self.executor.enter();
        f()
    }

    /// Runs until nothing is ready; bounded.
    pub(crate) fn run(&mut self) -> usize {
        let mut polled = 0;
        for _ in 0..10_000 {
            while let Some(message) = self.reader.pop() {
                match message {
                    Message::Wake(word) => self.executor.wake_word(word),
                    Message::WakeAll => self.executor.wake_all(),
                    Message::Detach(task) => self.executor.detach(task),
                    Message::Abort(task) => self.executor.abort(task),
                    Message::Run(job) => {
                        let _entered = self.executor.enter();
                        self.executor.run_job(job);
                    }
                    Message::Close { .. } => {}
                }
            }
            let _entered = self.executor.enter();
            match self.executor.run(64) {
                0 => return polled,
                n => polled += n,
            }
        }
        panic!("tasks never come to rest");
    }
}

#[test]
fn a_task_runs_to_its_end_and_its_output_is_joined() {
    let mut core = core();
    let got = Rc::new(Cell::new(0));
    let to = Rc::clone(&got);
    let inner = core.executor.spawn(async { 40 });
    drop(
        core.executor
            .spawn(async move { to.set(inner.await.expect("ended well") + 2) }),
    );
    core.run();
    assert_eq!(got.get(), 42);
    assert_eq!(core.executor.tasks(), 0);
}

#[test]
fn an_echo_sized_future_fits_one_cache_line() {
    struct Echo([u8; 40]);
    impl Future for Echo {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
            assert_eq!(self.0[39], 7);
            Poll::Ready(())
        }
    }
    let class = header::class_of::<header::Inline<Echo>>();
    assert_eq!(class.map(class::Class::bytes), Some(64));
    let mut core = core();
    drop(core.executor.spawn(Echo([7; 40])));
    core.run();
    assert_eq!(core.executor.counters().boxed, 0);
}

#[test]
fn a_future_too_large_for_a_slot_is_boxed_and_runs() {
    let mut core = core();
    let sum = Rc::new(Cell::new(0));
    let to = Rc::clone(&sum);
    drop(core.executor.spawn(async move {
        let big = [1u8; 10_000];
        yield_now().await;
        to.set(big.iter().map(|&b| usize::from(b)).sum());
    }));
    core.run();
    assert_eq!((sum.get(), core.executor.counters().boxed), (10_000, 1));
}

/// A task that stores its waker and counts its polls.
fn waiting(
    core: &Core1,
    stored: &Rc<RefCell<Option<Waker>>>,
    polls: &Rc<Cell<usize>>,
) -> JoinHandle<()> {
    let (stored, polls) = (Rc::clone(stored), Rc::clone(polls));
    core.executor.spawn(poll_fn(move |cx| {
        polls.set(polls.get() + 1);
        *stored.borrow_mut() = Some(cx.waker().clone());
        if polls.get() < 3 {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }))
}

#[test]
fn wakes_reach_the_task_from_here_and_from_another_thread() {
    let mut core = core();
    let (stored, polls) = (Rc::default(), Rc::default());
    core.here(|| drop(waiting(&core, &stored, &polls)));
    core.run();
    let wake = |core: &Core1| {
        core.here(|| stored.borrow().as_ref().expect("stored").wake_by_ref());
    };
    wake(&core);
    wake(&core);
    core.run();
    assert_eq!(polls.get(), 2, "two wakes before a poll are one");
    assert_eq!(
        core.rung.load(Ordering::SeqCst),
        0,
        "no message for a wake on the own thread"
    );
    let waker = stored.borrow_mut().take().expect("stored");
    std::thread::spawn(move || waker.wake())
        .join()
        .expect("the thread ends");
    assert_eq!(core.rung.load(Ordering::SeqCst), 1);
    core.run();
    assert_eq!((polls.get(), core.executor.tasks()), (3, 0));
}

#[test]
fn a_stale_waker_does_not_wake_the_slots_next_task() {
    let mut core = core();
    let (stored, polls) = (Rc::default(), Rc::new(Cell::new(2)));
    drop(waiting(&core, &stored, &polls));
    core.run();
    let stale = stored.borrow_mut().take().expect("stored");
    let again = Rc::new(Cell::new(0));
    let count = Rc::clone(&again);
    drop(core.executor.spawn(poll_fn(move |_| {
        count.set(count.get() + 1);
        Poll::<()>::Pending
    })));
    core.run();
    let entered = core.executor.enter();
    stale.wake_by_ref();
    drop(entered);
    std::thread::spawn(move || stale.wake())
        .join()
        .expect("the thread ends");
    core.run();
    assert_eq!(
        again.get(),
        1,
        "the slot was reused, the old waker means nothing"
    );
}

/// Tasks without handles may come and go in one slot for ever: no number of theirs is used up.
#[test]
fn tasks_without_names_wear_out_no_slot() {
    let mut core = core();
    let named = core.executor.spawn(async {});
    let granule = named.granule();
    let generation = |core: &Core1| {
        let named = core.executor.spawn(async {});
        let task = named.task().expect("of this core");
        assert_eq!(Some(task.granule()), granule, "the same slot again");
        task.generation()
    };
    drop(named);
    core.run();
    let before = generation(&core);
    core.run();
    let left = Rc::new(Cell::new(10_000u32));
    // Each leaves its waker, which then wakes the next in its slot; and half of them wait a little.
    let wakers: Rc<RefCell<Vec<Waker>>> = Rc::default();
    let begin = || {
        let (count, kept) = (left.get(), Rc::clone(&wakers));
        let Some(one_less) = left.get().checked_sub(1) else {
            return false;
        };
        left.set(one_less);
        begin(|| async move {
            kept.borrow_mut().truncate(3);
            poll_fn(|cx| {
                kept.borrow_mut().insert(0, cx.waker().clone());
                Poll::Ready(())
            })
            .await;
            if count % 2 == 0 {
                yield_now().await;
            }
        });
        for waker in wakers.borrow().iter() {
            waker.wake_by_ref();
        }
        true
    };
    let _entered = core.executor.enter();
    while left.get() > 0 {
        core.executor.run_with(1, begin);
        while core.executor.run(10) > 0 {}
    }
    let counters = core.executor.counters();
    assert!(counters.spawned > 10_000 && counters.retired == 0);
    assert_eq!(core.executor.tasks(), 0);
    assert_eq!(generation(&core), before + 1);
}

#[test]
fn a_task_that_begins_with_a_panic_ends_alone() {
    let core = core();
    let (begun, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let _entered = core.executor.enter();
    let polled = core.executor.run_with(5, || {
        begun.set(begun.get() + 1);
        let (number, ended) = (begun.get(), Rc::clone(&ended));
        begin(|| async move {
            assert!(number != 2, "for a test");
            ended.set(ended.get() + 1);
        });
        true
    });
    assert_eq!((polled, begun.get(), ended.get()), (5, 5, 4));
    let counters = core.executor.counters();
    assert_eq!((counters.panicked, core.executor.tasks()), (1, 0));
}

#[test]
fn a_slot_whose_generations_are_used_up_is_retired() {
    let mut core = core();
    drop(core.executor.spawn(async {}));
    core.run();
    let entered = core.executor.enter();
    // The slot is free: its next task will have the last generation.
    context::with(|c| {
        let slot = c.arena.check(0).expect("the first slot");
        c.arena.header(slot).set_generation(GENERATION_MAX);
    });
    drop(entered);
    drop(core.executor.spawn(async {}));
    core.run();
    assert_eq!(core.executor.counters().retired, 1);
    let next = core.executor.spawn(async {});
    assert_ne!(next.granule(), Some(0));
    core.run();
}

#[test]
fn executors_do_not_wake_each_others_tasks() {
    let (mut first, mut second) = (core(), core());
    let (stored, polls) = (Rc::default(), Rc::default());
    drop(waiting(&first, &stored, &polls));
    let other = Rc::new(Cell::new(0));
    let count = Rc::clone(&other);
    drop(second.executor.spawn(poll_fn(move |_| {
        count.set(count.get() + 1);
        Poll::<()>::Pending
    })));
    first.run();
    second.run();
    let entered = second.executor.enter();
    stored.borrow().as_ref().expect("stored").wake_by_ref();
    drop(entered);
    second.run();
    assert_eq!((polls.get(), other.get()), (1, 1));
    first.run();
    assert_eq!(
        (polls.get(), other.get()),
        (2, 1),
        "the wake went to the inbox of its own shard"
    );
}

#[test]
fn a_panic_ends_one_task_and_is_told_to_who_joins() {
    let mut core = core();
    let seen = Rc::new(RefCell::new(String::new()));
    let to = Rc::clone(&seen);
    let bad = core.executor.spawn(async { panic!("on purpose") });
    drop(core.executor.spawn(async move {
        let error: JoinError = bad.await.map(|(): ()| ()).expect_err("it panicked");
        assert!(error.is_panic() && !error.is_cancelled());
        *to.borrow_mut() = error.to_string();
    }));
    core.run();
    assert_eq!(*seen.borrow(), "the task panicked: on purpose");
    assert_eq!(
        (core.executor.tasks(), core.executor.counters().panicked),
        (0, 1)
    );
}

struct Dropped(Rc<Cell<usize>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn abort_drops_the_future_and_tells_who_joins() {
    let mut core = core();
    let drops = Rc::new(Cell::new(0));
    let held = Dropped(Rc::clone(&drops));
    let task = core.executor.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    core.run();
    task.abort();
    core.run();
    assert_eq!(drops.get(), 1);
    assert!(core.here(|| task.is_finished()));
    let cancelled = Rc::new(Cell::new(false));
    let to = Rc::clone(&cancelled);
    drop(
        core.executor
            .spawn(async move { to.set(task.await.is_err_and(|e| e.is_cancelled())) }),
    );
    core.run();
    assert!(cancelled.get());
    assert_eq!(core.executor.tasks(), 0);
}

#[test]
fn dropping_the_executor_drops_every_future_and_output() {
    let drops = Rc::new(Cell::new(0));
    let held = |n: usize| {
        (0..n)
            .map(|_| Dropped(Rc::clone(&drops)))
            .collect::<Vec<_>>()
    };
    let mut core = core();
    for guard in held(10) {
        drop(core.executor.spawn(async move {
            let _guard = guard;
            pending::<()>().await;
        }));
    }
    let outputs: Vec<_> = held(5)
        .into_iter()
        .map(|guard| core.executor.spawn(async move { guard }))
        .collect();
    core.run();
    assert_eq!(drops.get(), 0);
    drop(core);
    assert_eq!(
        drops.get(),
        15,
        "an output nobody took does not outlive its thread's core"
    );
    drop(outputs);
    assert_eq!(drops.get(), 15);
}

#[test]
fn the_budget_bounds_a_round() {
    let mut core = core();
    for _ in 0..10 {
        drop(core.executor.spawn(async {}));
    }
    let entered = core.executor.enter();
    assert_eq!(core.executor.run(4), 4);
    assert_eq!(core.executor.run(100), 6);
    assert!(!core.executor.has_ready());
    drop(entered);
    core.run();
}

#[test]
fn yielding_lets_the_others_go_first() {
    let mut core = core();
    let order = Rc::new(RefCell::new(Vec::new()));
    for name in ["a", "b"] {
        let order = Rc::clone(&order);
        drop(core.executor.spawn(async move {
            for turn in 0..2 {
                order.borrow_mut().push((name, turn));
                yield_now().await;
            }
        }));
    }
    core.run();
    assert_eq!(*order.borrow(), [("a", 0), ("b", 0), ("a", 1), ("b", 1)]);
}

#[test]
fn a_task_may_spawn_and_abort_itself_while_it_runs() {
    let mut core = core();
    let reached = Rc::new(Cell::new(0));
    let to = Rc::clone(&reached);
    let slot: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
    let own = Rc::clone(&slot);
    let task = core.executor.spawn(async move {
        drop(spawn(async {}));
        own.borrow()
            .as_ref()
            .expect("set before the first poll")
            .abort();
        to.set(1);
        yield_now().await;
        to.set(2);
    });
    *slot.borrow_mut() = Some(task);
    core.run();
    assert_eq!(reached.get(), 1, "aborted at its next await, not before");
    core.here(|| drop(slot.borrow_mut().take()));
    assert_eq!(core.executor.tasks(), 0);
}
