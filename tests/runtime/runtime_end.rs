//! How a runtime ends: when all mains have ended, at the first error or panic, when told.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use janus::net::TcpListener;
use janus::{BackendChoice, BoxError, Runtime};

in_every_layout!(
    ends_when_all_mains_have_ended,
    ends_at_the_first_error,
    ends_at_the_first_panic,
    drains_what_was_written,
    shares_a_port_with_late_cores,
);

fn portal(case: Case) -> Runtime {
    case.builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap()
}

fn ends_when_all_mains_have_ended(case: Case) {
    let (mains, once) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (m, o) = (mains.clone(), once.clone());
    let run = portal(case).run(move || {
        let (mains, once) = (m.clone(), o.clone());
        async move {
            mains.fetch_add(1, Ordering::Relaxed);
            janus::once(|| once.fetch_add(1, Ordering::Relaxed));
        }
    });
    run.unwrap();
    assert_eq!(mains.load(Ordering::Relaxed), case.cores);
    assert_eq!(once.load(Ordering::Relaxed), 1);
}

fn ends_at_the_first_error(case: Case) {
    let result = portal(case).run(|| async {
        if janus::core_id() == Some(0) {
            return Err("that will not do");
        }
        std::future::pending().await
    });
    assert_eq!(result.unwrap_err().to_string(), "that will not do");
}

fn ends_at_the_first_panic(case: Case) {
    let result = portal(case).run(|| async {
        if janus::core_id() == Some(0) {
            panic!("this main gives up");
        }
        std::future::pending::<()>().await
    });
    let text = result.unwrap_err().to_string();
    assert!(
        text.contains("core 0") && text.contains("this main gives up"),
        "{text}"
    );
}

/// What a main wrote before it ended still arrives, and the connection ends in order.
fn drains_what_was_written(case: Case) {
    let (ready, address) = std::sync::mpsc::channel();
    let running = Running::start(portal(case), move || {
        let ready = ready.clone();
        async move {
            if janus::core_id() != Some(0) {
                return Ok(());
            }
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            ready.send(listener.local_addr()?.port())?;
            let (stream, _) = listener.accept().await?;
            stream.read_exact(&mut [0; 5]).await?;
            stream.write_all(&pattern(100_000, 1)).await?;
            Ok::<(), BoxError>(())
        }
    });
    let port = address.recv_timeout(PATIENCE).unwrap();
    let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"hello").unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert!(got == pattern(100_000, 1), "{} bytes", got.len());
    running.join().unwrap();
}

/// A port that serves on the first core is bound by the others afterwards: they get their share of what comes then.
fn shares_a_port_with_late_cores(case: Case) {
    let served = Arc::new(std::sync::Mutex::new(None));
    let (accepted, cores) = std::sync::mpsc::channel();
    let port_of = served.clone();
    let running = Running::start(portal(case), move || {
        let (served, accepted) = (served.clone(), accepted.clone());
        async move {
            let core = janus::core_id().unwrap();
            let listener = if core == 0 {
                let listener = TcpListener::bind("0.0.0.0:0").await?;
                *served.lock().unwrap() = Some(listener.local_addr()?.port());
                listener
            } else {
                // Waiting for something else than a bind is the sign that this core does not serve.
                let port = loop {
                    janus::time::sleep(Duration::from_millis(1)).await;
                    if let Some(port) = *served.lock().unwrap() {
                        break port;
                    }
                };
                janus::time::sleep(Duration::from_millis(5)).await;
                TcpListener::bind(("0.0.0.0", port)).await?
            };
            while let Ok(_accepted) = listener.accept().await {
                accepted.send(core)?;
            }
            janus::Result::<()>::Ok(())
        }
    });
    let begin = std::time::Instant::now();
    let mut missing: std::collections::HashSet<usize> = (0..case.cores).collect();
    while !missing.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{missing:?} accept nothing");
        let port = *port_of.lock().unwrap();
        if let Some(port) = port {
            // Refused while the portal's door is being opened.
            drop(std::net::TcpStream::connect(("127.0.0.1", port)));
        }
        while let Ok(core) = cores.recv_timeout(Duration::from_millis(5)) {
            missing.remove(&core);
        }
    }
    running.stop().unwrap();
}
