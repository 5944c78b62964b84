//! How a runtime ends: when all mains have ended, at the first error or panic, when told.

mod support;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use janus::net::TcpListener;
use janus::{BackendChoice, BoxError, Runtime};
use support::*;

in_every_layout!(
    ends_when_all_mains_have_ended,
    ends_at_the_first_error,
    ends_at_the_first_panic,
    drains_what_was_written,
    refuses_a_late_core,
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

fn refuses_a_late_core(case: Case) {
    if case.cores == 1 {
        return;
    }
    let served = Arc::new(std::sync::Mutex::new(None));
    let result = portal(case).run(move || {
        let served = served.clone();
        async move {
            if janus::core_id() == Some(0) {
                let listener = TcpListener::bind("0.0.0.0:0").await?;
                *served.lock().unwrap() = Some(listener.local_addr()?.port());
                return std::future::pending::<std::io::Result<()>>().await;
            }
            // Waiting for something else than a bind is the sign.
            let port = std::future::poll_fn(|cx| {
                cx.waker().wake_by_ref();
                served
                    .lock()
                    .unwrap()
                    .map_or(std::task::Poll::Pending, std::task::Poll::Ready)
            });
            TcpListener::bind(("0.0.0.0", port.await)).await.map(drop)
        }
    });
    let error = result.unwrap_err();
    assert!(error.to_string().contains("came too late"), "{error}");
}
