//! A server's task is dropped after each of its polls in turn, that is at every await it can stand at: what it held is
//! closed, and nothing of it is left on the core.

use std::future::Future;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::support::*;
use janus::net::{TcpListener, TcpStream};
use janus::time::{interval, sleep, timeout};
use janus::{BackendChoice, JoinSet, spawn, spawn_blocking, spawn_on, yield_now};

in_every_layout!(
    a_task_dropped_at_any_await_leaves_nothing,
    a_connection_being_opened_may_be_dropped,
    a_bind_that_waits_may_be_dropped,
);

/// More than a connection holds on its way: writing it waits.
const BULK: usize = 1_000_000;

/// Waits for everything there is to wait for.
async fn handle(stream: TcpStream) -> std::io::Result<()> {
    let mut four = [0; 4];
    stream.peek(&mut four[..1]).await?;
    stream.read_exact(&mut four).await?;
    yield_now().await;
    sleep(Duration::from_micros(500)).await;
    let nothing = timeout(Duration::from_micros(500), stream.recv()).await;
    assert!(nothing.is_err(), "the client waits for us");
    let mut every = interval(Duration::from_micros(300));
    for _ in 0..2 {
        every.tick().await;
    }
    spawn(async { yield_now().await }).await?;
    let mut set = JoinSet::new();
    for turns in 0..3 {
        set.spawn(async move {
            for _ in 0..turns {
                yield_now().await;
            }
        });
    }
    while set.join_next().await.is_some() {}
    let own = janus::core_id().unwrap_or_default();
    let other = (own + 1) % janus::cores().unwrap_or(1);
    spawn_on(other, || async { yield_now().await }).await?;
    spawn_blocking(std::thread::yield_now).await?;
    stream.write_all(&vec![7; BULK]).await?;
    stream.shutdown(Shutdown::Write).await?;
    while let Some(piece) = stream.recv().await? {
        assert!(piece.iter().all(|byte| *byte == 9));
    }
    Ok(())
}

/// Polls a future so often, then drops it.
struct Dropped<F> {
    future: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future> Future for Dropped<F> {
    /// Whether it came to its end by itself.
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        if self.polls == 0 {
            return Poll::Ready(false);
        }
        self.polls -= 1;
        let ended = self.future.as_mut().poll(cx).is_ready();
        if !ended && self.polls == 0 {
            // Out of its poll, as `select!` and `abort` drop.
            cx.waker().wake_by_ref();
        }
        if ended {
            Poll::Ready(true)
        } else {
            Poll::Pending
        }
    }
}

/// What a core has that a task may leave behind.
fn left() -> (usize, usize) {
    let report = janus::report().expect("a core");
    (report.connections, report.tasks)
}

/// Waits until the core has no more than it had.
async fn settled(before: (usize, usize), polls: usize) {
    let begin = Instant::now();
    while left() > before || left().1 > before.1 {
        assert!(
            begin.elapsed() < PATIENCE / 2,
            "after {polls} polls {:?} is left of {before:?}",
            left()
        );
        sleep(Duration::from_millis(1)).await;
    }
}

/// One connection; reads whatever comes until the end.
fn client(port: u16) {
    let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", port)) else {
        return;
    };
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // Resets are expected: the server drops what it has.
    let _ = stream.write_all(b"four");
    let mut buffer = vec![0; 1 << 16];
    while let Ok(1..) = stream.read(&mut buffer) {}
    let _ = stream.write_all(&[9; 100]);
    let _ = stream.shutdown(Shutdown::Write);
    while let Ok(1..) = stream.read(&mut buffer) {}
}

fn a_task_dropped_at_any_await_leaves_nothing(case: Case) {
    let (ready, address) = channel();
    let runtime = case.builder().backend(BackendChoice::Portal).build();
    let server = Running::start(runtime.expect("a runtime"), move || {
        let ready = ready.clone();
        async move {
            if janus::core_id() != Some(0) {
                return std::future::pending().await;
            }
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            ready.send(Some(listener.local_addr()?.port()))?;
            let before = left();
            for polls in 0.. {
                let (stream, _) = listener.accept().await?;
                let future = Box::pin(handle(stream));
                let ended = spawn(Dropped { future, polls }).await?;
                settled(before, polls).await;
                if ended {
                    // How often it is polled depends on the machine; so many awaits cannot be ready at once.
                    assert!(polls > 9, "{polls} polls to its end");
                    break;
                }
                ready.send(None)?;
            }
            janus::handle().expect("a core").stop();
            janus::Result::<()>::Ok(())
        }
    });
    std::thread::spawn(move || {
        let mut port = 0;
        // One connection for each word of the server's, which says it when the one before is gone.
        while let Ok(word) = address.recv_timeout(2 * PATIENCE) {
            port = word.unwrap_or(port);
            client(port);
        }
    });
    server.join().expect("it ends well");
}

/// Nobody answers on the wire's other end: all of these stand in the middle of opening.
fn a_connection_being_opened_may_be_dropped(case: Case) {
    let (near, _far) = wire_for(case);
    let runtime = case.builder().backend(BackendChoice::wire(near)).build();
    let running = Running::start(runtime.expect("a runtime"), || async {
        let before = left();
        // The second poll would come when somebody answers.
        for polls in 0..2 {
            let mut opening = Vec::new();
            for port in 1..20 {
                let future = Box::pin(TcpStream::connect(("192.0.2.2", port)));
                opening.push(spawn(Dropped { future, polls }));
            }
            for handle in opening {
                assert!(!handle.await?, "nobody answers");
            }
            settled(before, polls).await;
        }
        janus::Result::<()>::Ok(())
    });
    running.join().expect("it ends well");
}

/// The port does not serve before every core has shown whether it binds; a bind dropped meanwhile gives it back.
fn a_bind_that_waits_may_be_dropped(case: Case) {
    let runtime = case.builder().backend(BackendChoice::Portal).build();
    let running = Running::start(runtime.expect("a runtime"), || async {
        for polls in 0..3 {
            let future = Box::pin(TcpListener::bind("127.0.0.1:0"));
            let _ended = Dropped { future, polls }.await;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        drop(listener);
        janus::Result::<()>::Ok(())
    });
    running.join().expect("it ends well");
}
