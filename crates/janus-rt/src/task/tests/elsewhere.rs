//! Handles away from their core, and tasks that were sent to one.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::task::Wake;
use std::time::{Duration, Instant};

use super::*;
use crate::inbox::{Inbox, TaskRef};

const PATIENCE: Duration = Duration::from_secs(60);

/// Polls on this thread, which runs no core.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs `f` on another thread and waits for it.
fn on_a_thread<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(f).join().expect("the thread ends well"))
}

/// Runs the core until `reached`: others send to it meanwhile.
fn run_until(core: &mut Core1, mut reached: impl FnMut() -> bool) {
    let begin = Instant::now();
    loop {
        core.run();
        if reached() {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not come to that");
        std::thread::yield_now();
    }
}

/// A waker that rings a channel.
struct Ring(Mutex<std::sync::mpsc::Sender<()>>);

impl Wake for Ring {
    fn wake(self: Arc<Self>) {
        // There is no handle any more, so no report is needed.
        let _ = self.0.lock().expect("whole").send(());
    }
}

/// Awaits on a thread that runs no core.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let (ring, rung) = channel();
    let waker = Waker::from(Arc::new(Ring(Mutex::new(ring))));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut cx) {
            return output;
        }
        rung.recv_timeout(PATIENCE).expect("it is woken");
    }
}

#[test]
fn an_output_is_awaited_on_another_thread() {
    let mut core = core();
    for turns in [0, 1, 5] {
        let handle = core.executor.spawn(async move {
            for _ in 0..turns {
                yield_now().await;
            }
            String::from("from afar")
        });
        let waiting = std::thread::spawn(move || block_on(handle));
        run_until(&mut core, || waiting.is_finished());
        let got = waiting.join().expect("the thread ends well");
        assert_eq!(got.ok().as_deref(), Some("from afar"));
        assert_eq!(core.executor.tasks(), 0);
    }
}

#[test]
fn a_panic_and_an_abort_are_told_on_another_thread() {
    let mut core = core();
    let bad = core.executor.spawn(async { panic!("on purpose") });
    let long = core.executor.spawn(pending::<()>());
    let abort = long.abort_handle();
    let waiting = std::thread::spawn(move || {
        let bad = block_on(bad).map(|(): ()| ());
        abort.abort();
        (bad, block_on(long))
    });
    run_until(&mut core, || waiting.is_finished());
    let (bad, long) = waiting.join().expect("the thread ends well");
    assert!(bad.is_err_and(|error| error.is_panic()));
    assert!(long.is_err_and(|error| error.is_cancelled()));
    assert_eq!(core.executor.tasks(), 0);
}

#[test]
fn an_abort_of_a_handle_that_is_awaited_elsewhere_reaches_the_task() {
    let mut core = core();
    let (drops, told) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let held = Dropped(Rc::clone(&drops));
    let mut handle = core.executor.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    core.run();
    // As if this thread were another: no core is entered.
    assert!(poll_once(&mut handle).is_pending());
    core.run();
    assert_eq!(core.executor.tasks(), 2, "a second one waits for the first");
    handle.abort();
    core.run();
    assert_eq!(drops.get(), 1);
    if let Poll::Ready(Err(error)) = poll_once(&mut handle) {
        told.set(1);
        assert!(error.is_cancelled());
    }
    assert_eq!((told.get(), core.executor.tasks()), (1, 0));
}

#[test]
fn a_handle_dropped_elsewhere_lets_its_task_go_on_and_its_output_go() {
    let mut core = core();
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    let early = core.executor.spawn(async move {
        yield_now().await;
        count.fetch_add(1, Ordering::SeqCst);
    });
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(10, Ordering::SeqCst);
        }
    }
    let output = Counted(Arc::clone(&done));
    let late = core.executor.spawn(async move { output });
    on_a_thread(move || drop(early));
    core.run();
    assert_eq!((done.load(Ordering::SeqCst), core.executor.tasks()), (1, 1));
    on_a_thread(move || drop(late));
    assert_eq!(done.load(Ordering::SeqCst), 1, "not dropped over there");
    core.run();
    assert_eq!(
        (done.load(Ordering::SeqCst), core.executor.tasks()),
        (11, 0)
    );
}

#[test]
fn a_handle_of_a_core_that_has_ended_says_so_anywhere() {
    let mut core = core();
    let mut finished = core.executor.spawn(async { 1 });
    let mut unfinished = core.executor.spawn(async {
        pending::<()>().await;
        2
    });
    let abort = unfinished.abort_handle();
    core.run();
    // The one was polled away from its core before the end, the others after.
    let mut sent_for = core.executor.spawn(pending::<u8>());
    assert!(poll_once(&mut sent_for).is_pending());
    drop(core);
    abort.abort();
    assert!(abort.is_finished() && finished.is_finished() && unfinished.is_finished());
    for handle in [&mut finished, &mut unfinished] {
        let Poll::Ready(Err(error)) = poll_once(handle) else {
            panic!("its core has ended");
        };
        assert!(error.is_cancelled());
    }
    assert!(poll_once(&mut sent_for).is_ready());
}

/// Numbers of cores are used again; a handle means the one it is of.
#[test]
fn a_message_to_a_core_that_has_ended_reaches_no_other() {
    let Core1 {
        executor, reader, ..
    } = core();
    let inbox: Arc<Inbox> = Arc::clone(reader.inbox());
    let task = executor.spawn(pending::<()>());
    let abort = task.abort_handle();
    drop(executor);
    // Another core reads the same inbox, as if it had the number now.
    let identity = ShardIdentity::register(Arc::clone(&inbox)).expect("a free number");
    let mut next = Core1 {
        executor: Executor::new(identity, &Growth::Inline, Room::FULL).expect("memory"),
        reader,
        rung: Arc::default(),
    };
    let other = next.executor.spawn(pending::<()>());
    next.run();
    let stale: TaskRef = task.task().expect("a task of a core");
    inbox.abort(stale);
    inbox.detach(stale);
    next.run();
    assert!(!other.is_finished());
    assert_eq!(next.executor.tasks(), 1);
    abort.abort();
    drop(task);
    next.run();
    assert_eq!(next.executor.tasks(), 1);
}

#[test]
fn aborts_beyond_the_ring_are_kept_once_each() {
    let mut core = core();
    let tasks: Vec<_> = (0..3)
        .map(|_| core.executor.spawn(pending::<()>()))
        .collect();
    core.run();
    let aborts: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
    let rounds = crate::inbox::RING as usize;
    on_a_thread(|| {
        for _ in 0..rounds {
            aborts.iter().for_each(AbortHandle::abort);
        }
    });
    core.run();
    assert!(core.reader.is_empty());
    let entered = core.executor.enter();
    assert!(tasks.iter().all(JoinHandle::is_finished));
    drop(entered);
    // As many as there are tasks are in the spill at most.
    let spilled = core.reader.inbox().counters().spilled;
    assert!(spilled <= 3, "{spilled}");
}

/// The core as others see it.
fn cores(core: &Core1) -> Cores {
    Cores::new(vec![Arc::clone(core.reader.inbox())])
}

fn send<M, F>(core: &Core1, make: M) -> JoinHandle<F::Output>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future + 'static,
    F::Output: Send + 'static,
{
    cores(core).spawn_on(0, make)
}

#[test]
fn what_is_sent_to_a_core_is_made_and_runs_there() {
    let mut core = core();
    let here = std::thread::current().id();
    let cores = cores(&core);
    let handle = on_a_thread(|| {
        cores.spawn_on(0, move || {
            let made = std::thread::current().id();
            // Not `Send`: it is made where it stays.
            let kept = Rc::new(41);
            async move {
                yield_now().await;
                (made, std::thread::current().id(), *kept + 1)
            }
        })
    });
    core.run();
    let end = on_a_thread(|| block_on(handle));
    assert_eq!(end.ok(), Some((here, here, 42)));
    assert_eq!(core.executor.tasks(), 0);
}

#[test]
fn a_panic_in_what_was_sent_is_told_and_counted() {
    let mut core = core();
    let mut makes = send(&core, || -> std::future::Ready<()> { panic!("while made") });
    let mut polled = send(&core, || async { panic!("while polled") });
    core.run();
    for (handle, text) in [(&mut makes, "while made"), (&mut polled, "while polled")] {
        let Poll::Ready(Err(error)) = poll_once(handle) else {
            panic!("it has ended");
        };
        assert!(
            error.is_panic() && error.to_string().contains(text),
            "{error}"
        );
    }
    assert_eq!(
        (core.executor.tasks(), core.executor.counters().panicked),
        (0, 2)
    );
}

#[test]
fn what_was_sent_is_aborted_before_it_begins_and_while_it_waits() {
    let mut core = core();
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let mut early = send(&core, move || {
        count.fetch_add(1, Ordering::SeqCst);
        pending::<()>()
    });
    early.abort();
    core.run();
    assert!(poll_once(&mut early).is_ready());
    assert_eq!(begun.load(Ordering::SeqCst), 0);
    let mut late = send(&core, pending::<()>);
    core.run();
    assert!(!late.is_finished() && poll_once(&mut late).is_pending());
    late.abort_handle().abort();
    core.run();
    let Poll::Ready(Err(error)) = poll_once(&mut late) else {
        panic!("it was aborted");
    };
    assert!(error.is_cancelled() && !error.is_panic());
    assert_eq!(core.executor.tasks(), 0);
}

#[test]
fn what_is_sent_to_a_core_that_has_ended_is_told_so() {
    let mut before = core();
    let mut waiting = send(&before, || async {});
    let mut running = send(&before, pending::<()>);
    before.run();
    assert!(poll_once(&mut waiting).is_ready());
    let inbox = Arc::clone(before.reader.inbox());
    drop(before);
    assert!(poll_once(&mut running).is_ready());
    let mut after = Cores::new(vec![inbox]).spawn_on(0, || async {});
    let Poll::Ready(Err(error)) = poll_once(&mut after) else {
        panic!("there is nobody");
    };
    assert!(error.is_cancelled());
}

/// Where an unwanted output is dropped: on the core it came from.
#[test]
fn an_output_is_delivered_when_its_future_is_gone() {
    let mut core = core();
    let order = Arc::new(Mutex::new(Vec::new()));
    struct Says(&'static str, Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Says {
        fn drop(&mut self) {
            self.1.lock().expect("whole").push(self.0);
        }
    }
    let (kept, output) = (
        Says("future", Arc::clone(&order)),
        Says("output", Arc::clone(&order)),
    );
    let mut handle = send(&core, move || {
        let mut output = Some(output);
        poll_fn(move |_| {
            let _ = &kept;
            Poll::Ready(output.take())
        })
    });
    struct Told(Arc<Mutex<Vec<&'static str>>>);
    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.lock().expect("whole").push("told");
        }
    }
    let waker = Waker::from(Arc::new(Told(Arc::clone(&order))));
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut handle).poll(&mut cx).is_pending());
    core.run();
    assert_eq!(*order.lock().expect("whole"), ["future", "told"]);
    drop(poll_once(&mut handle));
    assert_eq!(*order.lock().expect("whole"), ["future", "told", "output"]);
}
