//! An end that takes more than the default, which already ends in order at SIGTERM or Ctrl-C: the doors close, answers say
//! `connection: close`, what was begun is finished for 8 seconds (`shutdown_ms`). `examples/hello.rs` needs no line for that.
//!
//! What this server adds, for a balancer that looks at `/ready` now and then and must hear before the doors close:
//!
//! 1. told to end, it is not ready any more, and serves on as before for the time that its balancer takes to notice;
//! 2. then it shuts down within a time of its own, and streams that would never end by themselves end;
//! 3. when the last connection is gone it writes out what it holds back, here its counts;
//! 4. its exit code says how it went: 0, 1 for an error, 2 if requests were cut off, 143 for a second signal.
//!
//! ```sh
//! cargo run --release --example graceful -- 127.0.0.1:8080 5 20    # address, seconds until the doors close, and from then
//! curl http://127.0.0.1:8080/ready; curl http://127.0.0.1:8080/slow; curl -N http://127.0.0.1:8080/events
//! ```

use std::future::poll_fn;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use janus::net::{TcpListener, TcpStream};
use janus::signal::{Signal, SignalKind, signal};
use janus::time::{sleep, timeout};
use janus_http::{Request, Responder, Result, Sent};

/// Not to be sent anything new. Statics are the process's, while `serve` below runs once on each core.
static DRAINING: AtomicBool = AtomicBool::new(false);
/// Requests that are being answered.
static IN_HAND: AtomicU64 = AtomicU64::new(0);
/// Data that is only written at the end: how often each path was answered.
static ANSWERS: [(&str, AtomicU64); 4] = [
    ("/", AtomicU64::new(0)),
    ("/ready", AtomicU64::new(0)),
    ("/slow", AtomicU64::new(0)),
    ("/events", AtomicU64::new(0)),
];

/// Instead of `#[janus::main]`, as something is to be done when the runtime has ended.
fn main() -> ExitCode {
    let runtime = janus::Runtime::builder().build();
    let ended = runtime.map_err(janus::BoxError::from);
    let ended = ended.and_then(|runtime| runtime.run(serve));
    // No task runs any more, and every connection has ended: nothing comes behind this.
    for (path, answers) in &ANSWERS {
        println!("{path} {}", answers.load(Ordering::Relaxed));
    }
    let cut_off = IN_HAND.load(Ordering::Relaxed);
    match ended {
        Err(error) => {
            eprintln!("graceful: {error}");
            ExitCode::FAILURE
        }
        Ok(()) if cut_off > 0 => {
            eprintln!("graceful: {cut_off} requests were cut off");
            ExitCode::from(2)
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}

async fn serve() -> janus::Result<()> {
    let at = std::env::args().nth(1);
    let listener = TcpListener::bind(at.as_deref().unwrap_or("0.0.0.0:8080")).await?;
    // On one core, and before anybody can know that the server is there.
    if let Some(signals) = janus::once(ending_signals) {
        janus::spawn(end_when_told(signals?));
        println!("curl http://{}/slow", listener.reachable_at());
    }
    // Goes on while the runtime shuts down, for connections that the kernel had already accepted. Later there are no more, and it is
    // dropped with the other tasks.
    Ok(janus_http::serve_listener(listener, counted).await?)
}

async fn counted(
    request: Request<'_, TcpStream>,
    response: Responder<'_, TcpStream>,
) -> Result<Sent> {
    let path = request.path();
    IN_HAND.fetch_add(1, Ordering::Relaxed);
    let sent = answer(request, response).await;
    // Not reached by a task that is dropped at the end of the time.
    IN_HAND.fetch_sub(1, Ordering::Relaxed);
    if let Some((_, answers)) = ANSWERS.iter().find(|(known, _)| *known == path) {
        answers.fetch_add(u64::from(sent.is_ok()), Ordering::Relaxed);
    }
    sent
}

async fn answer(
    request: Request<'_, TcpStream>,
    response: Responder<'_, TcpStream>,
) -> Result<Sent> {
    match request.path() {
        "/ready" if DRAINING.load(Ordering::Relaxed) => {
            response.status(503).send("draining\n").await
        }
        "/ready" => response.ok().send("ready\n").await,
        // Finished, as long as that takes no longer than the deadline.
        "/slow" => {
            let seconds = request.query().and_then(|query| query.parse().ok());
            sleep(Duration::from_secs(seconds.unwrap_or(3))).await;
            response.ok().send("slow, and whole\n").await
        }
        // One event a second, until the runtime shuts down: else this connection alone would take all the time there is.
        "/events" => {
            let head = response.ok().header("content-type", "text/event-stream");
            let mut body = head.stream().await?;
            let second = Duration::from_secs(1);
            while timeout(second, janus::shutting_down()).await.is_err() {
                body.write(b"data: tick\n\n").await?;
                body.flush().await?;
            }
            body.write(b"data: the last\n\n").await?;
            body.finish().await
        }
        "/" => response.ok().send("try /ready, /slow, /events\n").await,
        _ => response.status(404).send("not here\n").await,
    }
}

/// Listening for a signal makes it the program's affair: the runtime does nothing about it any more, a second one included.
fn ending_signals() -> std::io::Result<[Signal; 2]> {
    let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
    Ok([signal(terminate)?, signal(interrupt)?])
}

async fn end_when_told(mut signals: [Signal; 2]) {
    either(&mut signals).await;
    DRAINING.store(true, Ordering::Relaxed);
    let (grace, deadline) = (seconds(2, 5.0), seconds(3, 20.0));
    eprintln!("graceful: not ready; the doors close in {grace:?}; again: at once");
    if timeout(grace, either(&mut signals)).await.is_err() {
        let runtime = janus::handle().expect("this is a task");
        runtime.shutdown(deadline);
        // Does not keep the runtime: it ends with its connections, and drops tasks that wait for something else.
        either(&mut signals).await;
    }
    std::process::exit(128 + SignalKind::terminate().as_raw_value())
}

async fn either(signals: &mut [Signal; 2]) {
    poll_fn(|cx| {
        let came = signals
            .iter_mut()
            .any(|signal| signal.poll_recv(cx).is_ready());
        if came { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The argument at this place, in seconds.
fn seconds(place: usize, default: f32) -> Duration {
    let argument = std::env::args().nth(place);
    let seconds = argument.and_then(|text| text.parse().ok());
    Duration::from_secs_f32(seconds.unwrap_or(default))
}
