//! What the executor costs, measured from inside a task of a running runtime, with its loop around it: an await of
//! something that is ready (`call`), letting the others go first (`yield`), waking a task that waits until it has been
//! polled (`wake`; `waker=task` is the task's own, one of a random order; `waker=thread` wakes it from another thread),
//! a task from its spawn to its end (`spawn`; `join` with its output awaited; `spawn_on` by the core's inbox; `spawn_blocking`
//! what it costs the core), a timer armed, disarmed, and fired until its task was polled; memory for a task. `tasks`
//! are alive at a time, timers likewise. Processor time of the core's own thread, so a busy machine disturbs it less.

mod support;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use janus::time::{Sleep, sleep, sleep_until};
use janus::{BackendChoice, JoinSet, Placement, Runtime, spawn, yield_now};
use support::Scale;
use support::report::{Report, Value};
use support::thread_time::thread_time;

/// What one operation cost in each run.
struct Figure {
    op: &'static str,
    tasks: usize,
    waker: Option<&'static str>,
    runs: Vec<f64>,
}

/// How much is done.
#[derive(Clone, Copy)]
struct Plan {
    /// Of all operations this one.
    only: Option<&'static str>,
    tasks: &'static [usize],
    runs: usize,
    /// Operations in a run, at least.
    ops: usize,
}

fn main() {
    let scale = Scale::get();
    // `cargo bench --bench runtime -- yield`: that alone.
    let only = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let plan = Plan {
        only: only.map(|word| &*word.leak()),
        tasks: scale.pick(
            &[1, 100],
            &[1, 1_000, 1_000_000],
            &[1, 1_000, 100_000, 1_000_000, 10_000_000],
        ),
        runs: scale.pick(1, 5, 9),
        ops: scale.pick(1_000, 1_000_000, 10_000_000),
    };
    let (figures, result) = channel();
    let figures = Mutex::new(figures);
    let runtime = Runtime::builder()
        .ignore_environment()
        .cores(1)
        .placement(Placement::Combined)
        .backend(BackendChoice::Portal)
        .build()
        .expect("a runtime of one core");
    runtime
        .run(move || {
            let figures = figures.lock().expect("whole").clone();
            async move { measure(plan, &figures).await }
        })
        .expect("the benchmark ends well");
    let mut report = Report::new("runtime");
    for figure in result {
        let mut params: Vec<(&str, Value)> =
            vec![("op", figure.op.into()), ("tasks", figure.tasks.into())];
        params.extend(figure.waker.map(|waker| ("waker", waker.into())));
        match figure.op {
            "bytes" => report.median("bytes_per_task", &figure.runs, "B", &params[1..]),
            _ => report.median("ns", &figure.runs, "ns", &params),
        }
    }
    report.finish();
}

async fn measure(plan: Plan, figures: &Sender<Figure>) {
    let send = |op, tasks, waker, runs| {
        let figure = Figure {
            op,
            tasks,
            waker,
            runs,
        };
        figures.send(figure).expect("the report waits");
    };
    let wants = |op| plan.only.is_none_or(|only| only == op);
    if wants("call") {
        send("call", 1, None, repeat(plan, || call(plan.ops)).await);
    }
    if wants("join") {
        send("join", 1, None, repeat(plan, || join(plan.ops / 10)).await);
    }
    if wants("spawn_on") {
        let sent = repeat(plan, || sending(plan.ops / 10)).await;
        send("spawn_on", CHUNK, None, sent);
    }
    if wants("spawn_blocking") {
        let called = repeat(plan, || calling(plan.ops / 100)).await;
        send("spawn_blocking", CHUNK, None, called);
    }
    for &tasks in plan.tasks {
        if wants("spawn") {
            let spawned = repeat(plan, || spawning(tasks, plan.ops)).await;
            send("spawn", tasks, None, spawned);
        }
        if wants("yield") {
            let yielded = repeat(plan, || yielding(tasks, plan.ops)).await;
            send("yield", tasks, None, yielded);
        }
        if wants("wake") {
            let waiting = Waiting::new(tasks).await;
            let local = repeat(plan, || waiting.wake_here(plan.ops)).await;
            send("wake", tasks, Some("task"), local);
            if tasks >= FEW {
                let foreign = repeat(plan, || waiting.wake_from_thread(plan.ops / 10)).await;
                send("wake", tasks, Some("thread"), foreign);
            }
            waiting.end().await;
        }
        if tasks < FEW {
            continue;
        }
        if wants("bytes") {
            send("bytes", tasks, None, vec![bytes(tasks).await]);
        }
        if wants("timer") {
            let fired = repeat(plan, || firing(tasks, plan.ops)).await;
            send("timer_fire", tasks, None, fired);
            let (mut inserted, mut cancelled) = (Vec::new(), Vec::new());
            for _ in 0..=plan.runs {
                let (insert, cancel) = timers(tasks, plan.ops).await;
                inserted.push(insert);
                cancelled.push(cancel);
            }
            send("timer_insert", tasks, None, inserted.split_off(1));
            send("timer_cancel", tasks, None, cancelled.split_off(1));
        }
    }
}

/// The runs after a first one that warms up.
async fn repeat<F: Future<Output = f64>>(plan: Plan, mut run: impl FnMut() -> F) -> Vec<f64> {
    run().await;
    let mut figures = Vec::with_capacity(plan.runs);
    for _ in 0..plan.runs {
        figures.push(run().await);
    }
    figures
}

fn each(since: Duration, ops: usize) -> f64 {
    (thread_time() - since).as_nanos() as f64 / ops as f64
}

async fn call(ops: usize) -> f64 {
    #[inline(never)]
    async fn next(n: u64) -> u64 {
        black_box(n) + 1
    }
    let start = thread_time();
    let mut n = 0;
    for _ in 0..ops {
        n = next(n).await;
    }
    assert_eq!(n, ops as u64);
    each(start, ops)
}

async fn join(ops: usize) -> f64 {
    let start = thread_time();
    for n in 0..ops {
        let got = spawn(async move { black_box(n) }).await;
        assert_eq!(got.ok(), Some(n));
    }
    each(start, ops)
}

/// Tasks sent to this very core by its inbox, and their outputs awaited: what both ways cost without the sleep of another.
async fn sending(ops: usize) -> f64 {
    let rounds = ops.div_ceil(CHUNK);
    let start = thread_time();
    for _ in 0..rounds {
        let mut set = JoinSet::new();
        for n in 0..CHUNK {
            set.spawn_on(0, move || async move { black_box(n) });
        }
        assert_eq!(set.join_all().await.len(), CHUNK);
    }
    each(start, rounds * CHUNK)
}

/// What a blocking call costs the core that asks; the other thread's time is its own.
async fn calling(ops: usize) -> f64 {
    let rounds = ops.div_ceil(CHUNK);
    let start = thread_time();
    for _ in 0..rounds {
        let mut set = JoinSet::new();
        for n in 0..CHUNK {
            set.spawn_blocking(move || black_box(n));
        }
        assert_eq!(set.join_all().await.len(), CHUNK);
    }
    each(start, rounds * CHUNK)
}

/// Memory made ready for so many tasks of the size of an echo.
async fn bytes(tasks: usize) -> f64 {
    let stop = Rc::new(Cell::new(false));
    let wakers: Rc<RefCell<Vec<Waker>>> = Rc::new(RefCell::new(Vec::with_capacity(tasks)));
    for _ in 0..tasks {
        let (stop, wakers) = (Rc::clone(&stop), Rc::clone(&wakers));
        let state = [0u64; 2];
        drop(spawn(poll_fn(move |cx| {
            if black_box(&state)[0] == 0 && !stop.get() {
                wakers.borrow_mut().push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })));
    }
    while wakers.borrow().len() < tasks {
        yield_now().await;
    }
    let held = janus::report().expect("this core").task_bytes;
    stop.set(true);
    let woken = wakers.take();
    woken.iter().for_each(Waker::wake_by_ref);
    while janus::report().expect("this core").tasks > 1 {
        yield_now().await;
    }
    held as f64 / tasks as f64
}

/// Timers that are due together: from the first that fires to the last task polled.
async fn firing(timers: usize, ops: usize) -> f64 {
    let rounds = ops.div_ceil(timers).min(ROUNDS_FIRING_MAX);
    let mut spent = Duration::ZERO;
    for _ in 0..rounds {
        let fired = Rc::new(Cell::new(0));
        let at = janus::time::now() + Duration::from_millis(2 + timers as u64 / 2_000);
        for _ in 0..timers {
            let fired = Rc::clone(&fired);
            drop(spawn(async move {
                sleep_until(at).await;
                fired.set(fired.get() + 1);
            }));
        }
        // This one is armed last, and wakes with the first.
        sleep_until(at).await;
        let start = thread_time();
        while fired.get() < timers {
            yield_now().await;
        }
        spent += thread_time() - start;
    }
    spent.as_nanos() as f64 / (rounds * timers) as f64
}

/// Each waits for its timers.
const ROUNDS_FIRING_MAX: usize = 20;

async fn spawning(tasks: usize, ops: usize) -> f64 {
    let rounds = ops.div_ceil(tasks);
    let ended = Rc::new(Cell::new(0));
    let start = thread_time();
    for round in 1..=rounds {
        for _ in 0..tasks {
            let ended = Rc::clone(&ended);
            drop(spawn(async move { ended.set(ended.get() + 1) }));
        }
        while ended.get() < round * tasks {
            yield_now().await;
        }
    }
    each(start, rounds * tasks)
}

async fn yielding(tasks: usize, ops: usize) -> f64 {
    let rounds = ops.div_ceil(tasks);
    let left = Rc::new(Cell::new(tasks));
    for _ in 0..tasks {
        let left = Rc::clone(&left);
        drop(spawn(async move {
            for _ in 0..rounds {
                yield_now().await;
            }
            left.set(left.get() - 1);
        }));
    }
    let start = thread_time();
    while left.get() > 0 {
        yield_now().await;
    }
    // This task yields beside the others: one more in each round.
    each(start, rounds * (tasks + 1))
}

/// Tasks that wait, and their wakers in a random order.
struct Waiting {
    wakers: Arc<Mutex<Vec<Waker>>>,
    polled: Rc<Cell<usize>>,
    stop: Rc<Cell<bool>>,
    tasks: usize,
}

/// Wakes between two turns of the waking task.
const CHUNK: usize = 64;

impl Waiting {
    async fn new(tasks: usize) -> Waiting {
        let wakers: Rc<RefCell<Vec<Waker>>> = Rc::default();
        let (polled, stop) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        for _ in 0..tasks {
            let (wakers, polled, stop) = (Rc::clone(&wakers), Rc::clone(&polled), Rc::clone(&stop));
            let mut first = true;
            drop(spawn(poll_fn(move |cx| {
                polled.set(polled.get() + 1);
                if std::mem::take(&mut first) {
                    wakers.borrow_mut().push(cx.waker().clone());
                }
                if stop.get() {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })));
        }
        while polled.get() < tasks {
            yield_now().await;
        }
        let mut wakers = wakers.take();
        shuffle(&mut wakers);
        let wakers = Arc::new(Mutex::new(wakers));
        Waiting {
            wakers,
            polled,
            stop,
            tasks,
        }
    }

    async fn wake_here(&self, ops: usize) -> f64 {
        let wakers = std::mem::take(&mut *self.wakers.lock().expect("whole"));
        let rounds = ops.div_ceil(self.tasks);
        let first = self.polled.get();
        let start = thread_time();
        for _ in 0..rounds {
            for chunk in wakers.chunks(CHUNK) {
                chunk.iter().for_each(Waker::wake_by_ref);
                yield_now().await;
            }
        }
        while self.polled.get() < first + rounds * self.tasks {
            yield_now().await;
        }
        let cost = each(start, rounds * self.tasks);
        *self.wakers.lock().expect("whole") = wakers;
        cost
    }

    /// What serving the wakes costs this core; the other thread's time is its own.
    async fn wake_from_thread(&self, ops: usize) -> f64 {
        let rounds = ops.div_ceil(self.tasks).min(ROUNDS_FOREIGN_MAX);
        let first = self.polled.get();
        let mut served = Duration::ZERO;
        for round in 0..rounds {
            for from in (0..self.tasks).step_by(CHUNK_FOREIGN) {
                let to = (from + CHUNK_FOREIGN).min(self.tasks);
                let wakers = Arc::clone(&self.wakers);
                // All of them wait here before they are served, so the other thread's work is not in the figure.
                let wake = move || {
                    wakers.lock().expect("whole")[from..to]
                        .iter()
                        .for_each(Waker::wake_by_ref)
                };
                std::thread::spawn(wake).join().expect("only wakes");
                let start = thread_time();
                while self.polled.get() < first + round * self.tasks + to {
                    yield_now().await;
                }
                served += thread_time() - start;
            }
        }
        served.as_nanos() as f64 / (rounds * self.tasks) as f64
    }

    async fn end(self) {
        self.stop.set(true);
        let last = self.polled.get() + self.tasks;
        for waker in self.wakers.lock().expect("whole").iter() {
            waker.wake_by_ref();
        }
        while self.polled.get() < last {
            yield_now().await;
        }
    }
}

/// Wakes that another thread sends in one go: fewer than an inbox holds before it wakes everybody instead.
const CHUNK_FOREIGN: usize = 1 << 16;
/// A thread is started for each.
const ROUNDS_FOREIGN_MAX: usize = 200;
/// With fewer at a time than this, reading the clock would be in the figure.
const FEW: usize = 100;

/// Fisher and Yates, with a generator that is the same each time.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

/// Arming and disarming, with `timers` of them waiting meanwhile.
async fn timers(timers: usize, ops: usize) -> (f64, f64) {
    let rounds = ops.div_ceil(timers).min(1_000_000);
    let mut sleeps: Vec<Sleep> = Vec::with_capacity(timers);
    let (mut insert, mut cancel) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        // From a second to a quarter of an hour, all over the wheel.
        sleeps.extend(
            (0..timers).map(|n| sleep(Duration::from_millis(1000 + (n as u64 * 7919) % 900_000))),
        );
        let start = thread_time();
        poll_fn(|cx| {
            for sleep in &mut sleeps {
                assert!(Pin::new(sleep).poll(cx).is_pending());
            }
            Poll::Ready(())
        })
        .await;
        let armed = thread_time();
        sleeps.clear();
        insert += armed - start;
        cancel += thread_time() - armed;
        yield_now().await;
    }
    let each = |time: Duration| time.as_nanos() as f64 / (rounds * timers) as f64;
    (each(insert), each(cancel))
}
