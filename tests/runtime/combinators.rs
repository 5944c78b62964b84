//! Streams, timers, handles and sets under `select!`, `join!` and `FuturesUnordered`: these put wakers of their own between a
//! task and its futures, poll what was not woken, and drop what lost.

use std::future::Future;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use futures::future::{Either, FutureExt, join, select};
use futures::stream::{FuturesUnordered, StreamExt};
use janus::net::{TcpListener, TcpStream};
use janus::time::sleep;
use janus::{BackendChoice, JoinSet, spawn, spawn_blocking, spawn_on};

in_every_layout!(
    reads_that_lose_a_race_lose_no_byte,
    one_task_serves_many_connections,
    both_directions_in_one_task,
    handles_and_timers_race_and_join,
);

const CLIENTS: usize = 12;
const ROUNDS: usize = 8;

/// Kernel clients at once, each of which sends pieces with pauses and compares what comes back.
fn clients(address: SocketAddr) {
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let mut stream = std::net::TcpStream::connect(("127.0.0.1", address.port()))
                    .expect("it listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
                for round in 0..ROUNDS {
                    let sent = pattern(1 + client * 997 + round * 311, client);
                    stream.write_all(&sent).expect("it takes");
                    let mut got = vec![0; sent.len()];
                    stream.read_exact(&mut got).expect("it answers");
                    assert!(got == sent, "client {client}, round {round}");
                    // Time for the server to find nothing more, and wait.
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
    });
}

fn serve_clients<S, F>(case: Case, each: S)
where
    S: Fn(TcpStream) -> F + Send + Sync + Copy + 'static,
    F: Future<Output = ()> + 'static,
{
    let (server, address, _) = serve(case.builder().backend(BackendChoice::Portal), 0, each);
    clients(address);
    server.stop().expect("it ends well");
}

/// Reads that lost their race, of one layout's server.
type Lost = AtomicUsize;

/// A read races a short timer, again and again: most reads are dropped while they wait.
async fn echo_in_a_race(stream: TcpStream, lost: &Lost) {
    loop {
        let read = pin!(stream.recv());
        let tick = pin!(sleep(Duration::from_micros(300)));
        let won = select(read, tick).await;
        let Either::Left((got, _)) = won else {
            lost.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let Ok(Some(piece)) = got else { break };
        let mut write = pin!(stream.write_all(&piece).fuse());
        loop {
            let mut tick = pin!(sleep(Duration::from_micros(100)).fuse());
            futures::select! {
                written = write => match written {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = tick => {}
            }
        }
    }
}

/// The clients come again until the timer has won now and then: where the machine has much else to do, timer and bytes
/// may be there at once for a while.
fn reads_that_lose_a_race_lose_no_byte(case: Case) {
    let lost: &'static Lost = Box::leak(Box::default());
    let builder = case.builder().backend(BackendChoice::Portal);
    let (server, address, _) = serve(builder, 0, |stream| echo_in_a_race(stream, lost));
    let begin = Instant::now();
    while lost.load(Ordering::Relaxed) < CLIENTS {
        assert!(begin.elapsed() < PATIENCE, "the timer never wins");
        clients(address);
    }
    server.stop().expect("it ends well");
}

/// All connections of a core in one task, each polled by a waker of its own.
fn one_task_serves_many_connections(case: Case) {
    let (ready, address) = std::sync::mpsc::channel();
    let runtime = case.builder().backend(BackendChoice::Portal).build();
    let server = Running::start(runtime.expect("a runtime"), move || {
        let ready = ready.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:0").await?;
            ready.send(listener.local_addr()?)?;
            let mut serving = FuturesUnordered::new();
            loop {
                futures::select! {
                    accepted = pin!(listener.accept().fuse()) => serving.push(echo(accepted?.0)),
                    () = serving.select_next_some() => {}
                }
            }
            #[allow(unreachable_code, reason = "says what the main gives")]
            janus::Result::<()>::Ok(())
        }
    });
    let address = address.recv_timeout(PATIENCE).expect("it listens");
    clients(address);
    server.stop().expect("it ends well");
}

/// Reading and writing wait at once, under one task.
async fn both_ways(stream: TcpStream) {
    let (send, mut receive) = futures::channel::mpsc::unbounded();
    let reading = async {
        let send = send;
        while let Ok(Some(piece)) = stream.recv().await {
            if send.unbounded_send(piece).is_err() {
                return;
            }
        }
    };
    let writing = async {
        while let Some(piece) = receive.next().await {
            if stream.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    join(reading, writing).await;
}

fn both_directions_in_one_task(case: Case) {
    serve_clients(case, both_ways);
}

fn handles_and_timers_race_and_join(case: Case) {
    let runtime = case.builder().backend(BackendChoice::Portal).build();
    let main = || async {
        let cores = janus::cores().expect("a core");
        for round in 0..20u32 {
            let task = spawn(async move {
                sleep(Duration::from_micros(u64::from(round) * 50)).await;
                round
            });
            let call = spawn_blocking(move || round + 1);
            let sent = spawn_on(round as usize % cores, move || async move { round + 2 });
            let (task, call, sent) = futures::join!(task, call, sent);
            assert_eq!((task?, call?, sent?), (round, round + 1, round + 2));

            let mut set = JoinSet::new();
            for n in 0..10u32 {
                set.spawn(async move {
                    sleep(Duration::from_micros(u64::from(n) * 30)).await;
                    n
                });
            }
            let mut seen = 0;
            while !set.is_empty() {
                let next = pin!(set.join_next());
                // Who loses is dropped; the end it waited for comes with the next.
                let tick = pin!(sleep(Duration::from_micros(20)));
                if let Either::Left((Some(end), _)) = select(next, tick).await {
                    seen += end?;
                }
            }
            assert_eq!(seen, 45);
            let mut all: FuturesUnordered<_> = (0..200u32)
                .map(|n| async move { spawn(async move { n }).await })
                .collect();
            let mut sum = 0;
            while let Some(end) = all.next().await {
                sum += end?;
            }
            assert_eq!(sum, (0..200).sum::<u32>());
        }
        janus::Result::<()>::Ok(())
    };
    let running = Running::start(runtime.expect("a runtime"), main);
    running.join().expect("it ends well");
}
