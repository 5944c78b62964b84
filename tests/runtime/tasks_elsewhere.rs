//! Tasks for other cores, calls that block, sets of tasks: in running servers, in every layout.

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::support::*;
use janus::net::{TcpListener, TcpStream};
use janus::time::sleep;
use janus::{
    BackendChoice, JoinSet, core_id, cores, move_to, spawn, spawn_blocking, spawn_movable,
    spawn_on, yield_now,
};

in_every_layout!(
    a_task_runs_on_the_core_it_is_sent_to,
    a_sent_task_is_begun_although_its_core_sleeps,
    a_blocking_call_leaves_the_core_to_others,
    tasks_are_sent_from_outside_and_before_the_start,
    at_the_end_everybody_is_told,
    a_task_goes_round_with_its_connection,
    a_task_that_cannot_move_goes_on,
);

fn run<M, F>(case: Case, main: M)
where
    M: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = janus::Result> + 'static,
{
    let builder = case.builder().backend(BackendChoice::Portal);
    let running = Running::start(builder.build().expect("a runtime"), main);
    running.join().expect("it ends well");
}

fn a_task_runs_on_the_core_it_is_sent_to(case: Case) {
    run(case, || async {
        let from = core_id();
        let mut set = JoinSet::new();
        for round in 0..50 {
            for core in 0..cores().expect("a core") {
                set.spawn_on(core, move || {
                    // Not `Send`: made where it stays.
                    let made = Rc::new((core_id(), round));
                    async move {
                        yield_now().await;
                        assert_eq!(core_id(), made.0);
                        (core, *made)
                    }
                });
            }
        }
        let mut seen = 0;
        while let Some(end) = set.join_next().await {
            let (sent_to, (ran_on, _)) = end?;
            assert_eq!(ran_on, Some(sent_to));
            assert_eq!(core_id(), from, "awaiting it moves nobody");
            seen += 1;
        }
        assert_eq!(seen, 50 * cores().expect("a core"));
        Ok(())
    });
}

/// Each message is answered by the next core.
fn a_task_goes_round_with_its_connection(case: Case) {
    const MESSAGES: usize = 50;
    run(case, || async {
        if core_id() != Some(0) {
            return Ok(());
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let client = TcpStream::connect(listener.reachable_at()).await?;
        let (stream, _) = listener.accept().await?;
        let cores = cores().expect("a core");
        let goes_round = spawn_movable(async move {
            let mut stream = stream;
            let mut sum = 0;
            for message in 0..MESSAGES {
                let mut said = [0; 100];
                stream.read_exact(&mut said).await?;
                // A timer that was armed elsewhere fires here.
                let mut sleeps = pin!(sleep(Duration::from_millis(2)));
                let waits = poll_fn(|cx| Poll::Ready(sleeps.as_mut().poll(cx).is_pending()));
                assert!(waits.await);
                let core = (message + 1) % cores;
                move_to(core).await?;
                assert_eq!(core_id(), Some(core));
                sleeps.await;
                stream = stream.adopt_here().await?;
                stream.write_all(&said).await?;
                sum += usize::from(said[0]);
            }
            Ok::<_, janus::BoxError>((sum, core_id()))
        });
        for message in 0..MESSAGES {
            let says = [message as u8; 100];
            client.write_all(&says).await?;
            let mut hears = [0; 100];
            client.read_exact(&mut hears).await?;
            assert_eq!(hears, says);
        }
        let end = goes_round.await?.map_err(|error| error.to_string())?;
        assert_eq!(end, (MESSAGES * (MESSAGES - 1) / 2, Some(MESSAGES % cores)));
        Ok(())
    });
}

fn a_task_that_cannot_move_goes_on(case: Case) {
    run(case, || async {
        let (here, cores) = (core_id().expect("a core"), cores().expect("a core"));
        let there = (here + 1) % cores;
        let kind = |error: std::io::Error| error.kind();
        // A main does not move, nor a task that was spawned otherwise.
        let fixed = spawn(move_to(there)).await?.map_err(kind);
        let moved = spawn_movable(async move {
            let nowhere = move_to(cores).await.map_err(|error| error.kind());
            // Given up in the poll in which it was asked for: it stays.
            let mut moves = Box::pin(move_to(there));
            let polled = poll_fn(|cx| Poll::Ready(moves.as_mut().poll(cx).is_pending())).await;
            drop(moves);
            yield_now().await;
            (nowhere, polled, core_id())
        });
        let (nowhere, polled, stayed) = moved.await?;
        assert_eq!(nowhere, Err(ErrorKind::InvalidInput));
        assert_eq!(stayed, Some(here));
        if cores > 1 {
            assert_eq!(fixed, Err(ErrorKind::Unsupported));
            assert!(polled);
        }
        // One that panics elsewhere, and one that is aborted there, are told of here.
        let panics = spawn_movable(async move {
            move_to(there).await?;
            panic!("as it should");
            #[expect(unreachable_code, reason = "for its type")]
            Ok::<(), std::io::Error>(())
        });
        assert!(panics.await.unwrap_err().is_panic());
        let waits = spawn_movable(async move {
            move_to(there).await?;
            std::future::pending::<std::io::Result<()>>().await
        });
        sleep(Duration::from_millis(5)).await;
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        Ok(())
    });
}

/// The last core has nothing to do at all; it is woken for this.
fn a_sent_task_is_begun_although_its_core_sleeps(case: Case) {
    run(case, || async {
        let last = cores().expect("a core") - 1;
        if core_id() != Some(0) {
            return Ok(());
        }
        for _ in 0..20 {
            janus::time::sleep(std::time::Duration::from_millis(2)).await;
            assert_eq!(spawn_on(last, || async { core_id() }).await?, Some(last));
        }
        Ok(())
    });
}

fn a_blocking_call_leaves_the_core_to_others(case: Case) {
    run(case, || async {
        let (go, wait) = std::sync::mpsc::channel::<u32>();
        // It blocks until a task of the same core lets it go on.
        let blocked = spawn_blocking(move || {
            assert_eq!(core_id(), None, "not a core's thread");
            (wait.recv(), thread::current().name().map(str::to_owned))
        });
        let told = spawn(async move {
            yield_now().await;
            go.send(7)
        });
        told.await??;
        let (got, name) = blocked.await?;
        assert_eq!(got, Ok(7));
        assert!(name.is_some_and(|name| name.starts_with("janus-blocking-")));
        // The thread counts the call behind its result.
        let begin = std::time::Instant::now();
        let report = || janus::report().expect("a core").blocking;
        while report().done == 0 {
            assert!(begin.elapsed() < PATIENCE, "{:?}", report());
            janus::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert!(report().threads >= 1, "{:?}", report());
        Ok(())
    });
}

fn tasks_are_sent_from_outside_and_before_the_start(case: Case) {
    let runtime = case.builder().backend(BackendChoice::Portal).build();
    let runtime = runtime.expect("a runtime");
    let handle = runtime.handle();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let send = |core| {
        let ran = ran.clone();
        handle.spawn_on(core, move || async move {
            ran.lock().expect("whole").push(core_id());
        })
    };
    // Nobody awaits them: they run all the same.
    (0..case.cores).for_each(|core| drop(send(core)));
    let server = Running::start(runtime, std::future::pending::<()>);
    let until = |count| {
        let begin = std::time::Instant::now();
        while ran.lock().expect("whole").len() < count {
            assert!(begin.elapsed() < PATIENCE, "{:?}", ran.lock());
            thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    until(case.cores);
    (0..case.cores).for_each(|core| drop(send(core)));
    until(2 * case.cores);
    server.stop().expect("it ends well");
    let late = send(0);
    assert!(late.is_finished(), "its core has ended");
    let mut ran = ran.lock().expect("whole").clone();
    ran.sort();
    let expected: Vec<_> = (0..case.cores).flat_map(|core| [Some(core); 2]).collect();
    assert_eq!(ran, expected);
}

fn at_the_end_everybody_is_told(case: Case) {
    struct Held(Arc<AtomicUsize>);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (begun, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::default());
    let runtime = case.builder().backend(BackendChoice::Portal).build();
    let runtime = runtime.expect("a runtime");
    let handle = runtime.handle();
    let sent: Vec<_> = (0..case.cores)
        .map(|core| {
            let (begun, held) = (begun.clone(), Held(Arc::clone(&dropped)));
            handle.spawn_on(core, move || async move {
                begun.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
                drop(held);
            })
        })
        .collect();
    let server = Running::start(runtime, move || {
        let begun = begun.clone();
        async move {
            while begun.load(Ordering::SeqCst) < case.cores {
                janus::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            janus::Result::<()>::Ok(())
        }
    });
    server.join().expect("it ends well");
    assert!(sent.iter().all(janus::JoinHandle::is_finished));
    assert_eq!(dropped.load(Ordering::SeqCst), case.cores);
    let refused = handle.spawn_blocking(|| ());
    assert!(refused.is_finished());
}
