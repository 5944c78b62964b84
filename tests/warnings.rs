//! What a program is warned of, and what it is not: a task that keeps its core is named while it does, a large future when it
//! is spawned. And what the loops say of themselves.

#[path = "warnings/losses.rs"]
mod losses;
mod support;

use std::future::Future;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use janus::{BackendChoice, Warning, core_id, spawn, yield_now};
use support::*;

in_every_layout!(
    a_task_that_keeps_its_core_is_named_while_it_does,
    large_futures_are_told_of_once_for_each_type,
    who_panics_for_want_of_tokio_is_told_what_to_do,
    loops_say_what_they_did,
);

/// A runtime whose warnings come here.
fn heard<M, F>(
    case: Case,
    configure: impl FnOnce(janus::Builder) -> janus::Builder,
    main: M,
) -> (Running, Receiver<Warning>)
where
    M: Fn() -> F + Send + Sync + 'static,
    F: Future<Output: janus::MainResult> + 'static,
{
    let (warn, heard) = channel();
    let warn = std::sync::Mutex::new(warn);
    let builder = case.builder().backend(BackendChoice::Portal);
    let builder = configure(builder).on_warning(move |warning| {
        // The test may be over.
        let _ = warn.lock().expect("whole").send(warning.clone());
    });
    let runtime = builder.build().expect("a runtime");
    (Running::start(runtime, main), heard)
}

/// Blocks until the test lets it go on: it would never be named by who waits for its end.
async fn never_gives_way(go_on: Receiver<()>) {
    let _ = go_on.recv();
}

fn a_task_that_keeps_its_core_is_named_while_it_does(case: Case) {
    let last = case.cores - 1;
    let (go, wait) = channel();
    let wait = std::sync::Mutex::new(Some(wait));
    let (running, heard) = heard(
        case,
        |builder| builder.warn_blocked(Duration::from_millis(40)),
        move || {
            let wait = wait.lock().expect("whole");
            let wait = (core_id() == Some(last)).then_some(wait);
            let wait = wait.and_then(|mut wait| wait.take());
            async move {
                if let Some(wait) = wait {
                    spawn(never_gives_way(wait)).await?;
                }
                janus::Result::<()>::Ok(())
            }
        },
    );
    // Where all is slow another task may take as long.
    let named = loop {
        let warning = heard.recv_timeout(PATIENCE).expect("a warning");
        if warning.to_string().contains("never_gives_way") {
            break warning;
        }
    };
    let Warning::CoreBlocked { core, time, .. } = named else {
        panic!("{named}");
    };
    assert_eq!(core, last);
    assert!(time >= Duration::from_millis(40));
    go.send(()).expect("it still waits");
    running.join().expect("it ends well");
}

/// In tokio's words; with tokio itself it is tried in the tests of others' libraries.
async fn wants_a_reactor() {
    panic!("there is no reactor running, must be called from the context of a Tokio 1.x runtime");
}

fn who_panics_for_want_of_tokio_is_told_what_to_do(case: Case) {
    let main = || async {
        assert!(spawn(wants_a_reactor()).await.is_err());
        assert!(spawn(async { panic!("for another reason") }).await.is_err());
        janus::Result::<()>::Ok(())
    };
    let (running, heard) = heard(case, |builder| builder.warn_blocked(None), main);
    running.join().expect("it ends well");
    let told: Vec<String> = heard.try_iter().map(|w| w.to_string()).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("wants_a_reactor") && told[0].contains("tokio"));

    let main = || async { wants_a_reactor().await };
    let runtime = case.builder().backend(BackendChoice::Portal).build();
    let error = Running::start(runtime.unwrap(), main).join().unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no reactor running") && text.contains("\n  "),
        "{text}"
    );
}

// The argument and what it is moved to: twice the size.
async fn large(bytes: [u8; 3000]) {
    yield_now().await;
    black_box(bytes);
}

async fn larger(bytes: [u8; 5000]) {
    yield_now().await;
    black_box(bytes);
}

fn large_futures_are_told_of_once_for_each_type(case: Case) {
    let main = || async {
        for _ in 0..3 {
            spawn(large([0; 3000])).await?;
            spawn(larger([0; 5000])).await?;
        }
        janus::Result::<()>::Ok(())
    };
    let never = |builder: janus::Builder| builder.warn_blocked(None);
    for (from, expected) in [
        (None, vec![]),
        (Some(1 << 20), vec![]),
        (Some(8192), vec!["larger"]),
    ] {
        let configure = |builder| never(builder).warn_future_bytes(from);
        let (running, heard) = heard(case, configure, main);
        running.join().expect("it ends well");
        let told: Vec<String> = heard
            .try_iter()
            .map(|warning| warning.to_string())
            .collect();
        assert_eq!(told.len(), expected.len(), "from {from:?}: {told:?}");
        for (told, name) in told.iter().zip(expected) {
            assert!(told.contains(name), "{told}");
        }
    }
    let (running, heard) = heard(case, |b| never(b).warn_future_bytes(2048), main);
    running.join().expect("it ends well");
    let sizes = heard.try_iter().map(|warning| match warning {
        Warning::LargeFuture { bytes, .. } => bytes,
        other => panic!("{other}"),
    });
    let mut sizes: Vec<usize> = sizes.collect();
    sizes.sort();
    assert_eq!(sizes.len(), 2, "{sizes:?}");
    assert!(sizes[0] >= 3000 && sizes[1] >= 5000);
}

fn loops_say_what_they_did(case: Case) {
    let (running, _heard) = heard(
        case,
        |builder| builder,
        || async {
            let before = janus::report().expect("a core").turns;
            // Long enough that the core sleeps.
            while janus::report().expect("a core").turns.sleeps < before.sleeps + 3 {
                janus::time::sleep(Duration::from_millis(20)).await;
            }
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_millis(30) {
                yield_now().await;
            }
            // The turn must have ended.
            janus::time::sleep(Duration::from_millis(1)).await;
            let after = janus::report().expect("a core").turns;
            assert!(after.turns > before.turns && after.working_turns > before.working_turns);
            assert!(after.asleep > before.asleep, "{after:?}");
            assert!(
                after.busy - before.busy > Duration::from_millis(15),
                "{after:?}"
            );
            assert!(after.longest_turn > Duration::ZERO && after.longest_turn <= after.busy);
            let turns: u64 = after.batches.iter().sum();
            assert!(
                turns <= after.turns && turns + 1 >= after.turns,
                "{after:?}"
            );
        },
    );
    running.join().expect("it ends well");
}
