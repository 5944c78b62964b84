//! Connections at rest: what comes on one begins a task of its handler, on its core, and nothing else does.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::support::reports::Reports;
use crate::support::*;
use janus::net::{Handler, Next, RestLimits, ServedStream, TcpListener, TcpStream};
use janus::time::{now, sleep};
use janus::{BackendChoice, JoinSet, Runtime};

in_every_layout!(
    every_word_is_answered_and_none_keeps_a_task,
    a_drained_core_gives_its_rests_away,
    a_shutdown_ends_what_rests,
    a_stop_ends_what_rests,
    rests_end_in_time,
);

const SECOND: Duration = Duration::from_secs(1);
const CLIENTS: usize = 60;
const WORDS: usize = 12;

fn server_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 80))
}

/// A server whose connections rest.
fn resting_server(case: Case, end: janus_io::wire::End) -> (Running, Reports) {
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(end))
        .address("192.0.2.1/24".parse().unwrap())
        .build()
        .unwrap();
    let reports = Reports::default();
    let (ready, listens) = channel();
    let told = reports.clone();
    let server = Running::start(runtime, move || serve(told.clone(), ready.clone()));
    for _ in 0..case.cores {
        listens.recv_timeout(PATIENCE).expect("every core listens");
    }
    (server, reports)
}

async fn serve(reports: Reports, ready: Sender<()>) -> janus::Result {
    let listener = TcpListener::bind(("0.0.0.0", 80)).await?;
    janus::spawn(reports.keep());
    ready.send(())?;
    Ok(janus::net::serve(listener, echo_once).await?)
}

async fn say(stream: &TcpStream, word: &[u8]) {
    stream.write_all(word).await.unwrap();
    let mut got = vec![0; word.len()];
    stream.read_exact(&mut got).await.unwrap();
    assert!(got == word);
}

fn every_word_is_answered_and_none_keeps_a_task(case: Case) {
    let (near, far) = wire_for(case);
    let (server, reports) = resting_server(case, near);
    let told: &'static Reports = Box::leak(Box::new(reports));
    run_clients(far, 1, move |_| async move {
        let mut streams = Vec::new();
        for _ in 0..CLIENTS {
            streams.push(Rc::new(TcpStream::connect(server_address()).await.unwrap()));
        }
        let cores = case.cores;
        let look = || janus::spawn_blocking(move || told.fresh(cores));
        let before: usize = look().await.unwrap().iter().map(|core| core.tasks).sum();
        for word in 0..WORDS {
            let mut said = JoinSet::new();
            for (at, stream) in streams.iter().cloned().enumerate() {
                said.spawn(async move { say(&stream, &pattern(1 + 300 * word, at)).await });
            }
            said.join_all().await;
        }
        let cores = look().await.unwrap();
        let of_all = |read: fn(&janus::CoreReport) -> usize| cores.iter().map(read).sum::<usize>();
        assert_eq!(of_all(|core| core.resting), CLIENTS);
        assert_eq!(of_all(|core| core.tasks), before, "as many as with none");
        let begun = cores.iter().map(|core| core.tasks_spawned).sum::<u64>();
        assert!(begun >= (CLIENTS * WORDS) as u64, "{begun} tasks");
        for stream in streams {
            stream.shutdown(Shutdown::Write).await.unwrap();
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
        }
    });
    server.stop().unwrap();
}

/// Core after core is drained until it holds nothing, and restored, while words go on: each is answered, wherever its connection is.
fn a_drained_core_gives_its_rests_away(case: Case) {
    if case.cores == 1 {
        return;
    }
    let (near, far) = wire_for(case);
    let (server, reports) = resting_server(case, near);
    let told: &'static Reports = Box::leak(Box::new(reports));
    let balance: &'static _ = Box::leak(Box::new(server.handle().balance()));
    run_clients(far, 1, move |_| async move {
        let streams = kept().await;
        let cores = case.cores;
        let look = || janus::spawn_blocking(move || told.fresh(cores));
        for core in 0..cores {
            balance.drain(core).unwrap();
            let begun = now();
            for word in 0.. {
                for (at, stream) in streams.iter().enumerate() {
                    say(stream, &pattern(1 + 10 * word, at)).await;
                }
                let held = &look().await.unwrap()[core];
                if held.connections == 0 && held.in_time_wait == 0 && held.half_open == 0 {
                    break;
                }
                let waited = now().saturating_since(begun);
                assert!(waited < PATIENCE, "core {core} still holds {held:?}");
                sleep(Duration::from_millis(5)).await;
            }
            balance.restore(core).unwrap();
        }
        let held = look().await.unwrap();
        let resting = held.iter().map(|core| core.resting).sum::<usize>();
        assert_eq!(resting, CLIENTS);
        let moved = held.iter().map(|core| core.tcp.detached).sum::<u64>();
        assert!(moved >= CLIENTS as u64, "{moved} moved");
        drop(streams);
    });
    server.stop().unwrap();
}

/// Connected, answered, and open.
async fn kept() -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for at in 0..CLIENTS {
        let stream = TcpStream::connect(server_address()).await.unwrap();
        say(&stream, &pattern(10, at)).await;
        streams.push(stream);
    }
    streams
}

/// For a second a question that is under way is answered.
fn a_shutdown_ends_what_rests(case: Case) {
    let (near, far) = wire_for(case);
    let (server, _) = resting_server(case, near);
    let handle: &'static janus::Handle = Box::leak(Box::new(server.handle()));
    run_clients(far, 1, move |_| async move {
        let streams = kept().await;
        handle.shutdown(PATIENCE * 10);
        let start = now();
        say(&streams[0], b"late").await;
        for stream in streams {
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "in order");
        }
        assert!(now().saturating_since(start) >= SECOND / 2);
    });
    server.join().unwrap();
}

fn a_stop_ends_what_rests(case: Case) {
    let (near, far) = wire_for(case);
    let (server, _) = resting_server(case, near);
    let handle: &'static janus::Handle = Box::leak(Box::new(server.handle()));
    run_clients(far, 1, move |_| async move {
        let streams = kept().await;
        handle.stop();
        for stream in streams {
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "in order");
        }
    });
    server.join().unwrap();
}

fn rests_end_in_time(case: Case) {
    let (near, far) = wire_for(case);
    let server = case.builder().start_paused(true);
    let server = server.address("192.0.2.1/24".parse().unwrap());
    let server = server.backend(BackendChoice::wire(near)).build().unwrap();
    let client = ONE_COMBINED.builder().time_of(&server.handle());
    let client = client.address("192.0.2.2/24".parse().unwrap());
    let client = client.backend(BackendChoice::wire(far)).build().unwrap();
    let (ready, listens) = channel();
    let server = Running::start(server, move || limited(ready.clone()));
    for _ in 0..case.cores {
        listens.recv_timeout(PATIENCE).expect("every core listens");
    }
    let client = Running::start(client, move || async {
        let mut stays = JoinSet::new();
        for at in 0..CLIENTS {
            let start = now();
            let stream = loop {
                match TcpStream::connect(server_address()).await {
                    Ok(stream) => break stream,
                    // Not before somebody listens.
                    Err(_) => sleep(Duration::from_millis(1)).await,
                }
            };
            stays.spawn(async move {
                let words = at % 3;
                for word in 0..words {
                    sleep(10 * SECOND).await;
                    say(&stream, &pattern(word + 1, at)).await;
                }
                assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
                let most = if words == 0 {
                    20
                } else {
                    10 * words as u64 + 60
                };
                let lasted = now().saturating_since(start).as_secs_f64();
                let late = lasted - most as f64;
                assert!((-0.01..2.0).contains(&late), "{words}: {lasted} s");
            });
        }
        stays.join_all().await;
        janus::Result::<()>::Ok(())
    });
    client.join().unwrap();
    server.stop().unwrap();
}

async fn limited(ready: Sender<()>) -> janus::Result {
    let listener = TcpListener::bind(("0.0.0.0", 80)).await?;
    ready.send(())?;
    let handler = Handler::new(echo_once)?;
    handler.limit(RestLimits {
        first: Some(20 * SECOND),
        further: Some(60 * SECOND),
    });
    Ok(handler.serve(listener).await?)
}

/// A listener, and a stream from this core to it whose other end is accepted.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let client = TcpStream::connect(listener.reachable_at()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server)
}

fn one_core(main: impl AsyncFn() + Send + Sync + 'static) {
    let runtime = Runtime::builder().ignore_environment().cores(1);
    let main = std::sync::Arc::new(main);
    let main = move || {
        let main = main.clone();
        async move { main().await }
    };
    runtime.build().unwrap().run(main).unwrap();
}

#[test]
fn handlers_are_told_apart_and_carry_what_they_were_given() {
    one_core(async || {
        let handlers: Vec<Handler> = (0..64u16)
            .map(|number| {
                Handler::new(async move |stream: &ServedStream| {
                    let mut byte = [0];
                    if stream.read(&mut byte).await? == 0 {
                        return Ok(Next::Close);
                    }
                    let sum = stream.carried() + u16::from(byte[0]);
                    let answer = [number.to_be_bytes(), sum.to_be_bytes()].concat();
                    stream.write_all(&answer).await?;
                    Ok(Next::RestWith(sum))
                })
                .unwrap()
            })
            .collect();
        let full = Handler::new(echo_once).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::OutOfMemory);
        let mut clients = Vec::new();
        for handler in &handlers {
            let (client, server) = pair().await;
            handler.rest(server).unwrap();
            clients.push(client);
        }
        for round in 1..=3u16 {
            for (number, client) in clients.iter().enumerate() {
                client.write_all(&[200]).await.unwrap();
                let mut answer = [0; 4];
                client.read_exact(&mut answer).await.unwrap();
                let expected = [(number as u16).to_be_bytes(), (200 * round).to_be_bytes()];
                assert_eq!(answer, *expected.concat());
            }
        }
        // The program has no name of them any more, but connections have; with these they go.
        drop(handlers);
        assert!(Handler::new(echo_once).is_err());
        clients.truncate(63);
        while Handler::new(echo_once).is_err() {
            sleep(Duration::from_millis(1)).await;
        }
    });
}

/// What a handler has captured goes when nothing can come back to it.
#[test]
fn a_handler_that_nothing_comes_back_to_is_dropped() {
    one_core(async || {
        let captured = Rc::new(());
        let kept = captured.clone();
        let handler = Handler::new(async move |stream: &ServedStream| {
            let _ = &kept;
            echo_once(stream).await
        })
        .unwrap();
        let (client, server) = pair().await;
        handler.rest(server).unwrap();
        drop(handler);
        say(&client, b"still served").await;
        assert_eq!(Rc::strong_count(&captured), 2);
        drop(client);
        while Rc::strong_count(&captured) > 1 {
            sleep(Duration::from_millis(1)).await;
        }
        // One that was never used goes at once.
        let kept = captured.clone();
        let unused = Handler::new(async move |stream: &ServedStream| {
            let _ = &kept;
            echo_once(stream).await
        });
        drop(unused);
        assert_eq!(Rc::strong_count(&captured), 1);
    });
}

#[test]
fn a_panic_an_error_and_a_close_end_the_connection_alone() {
    one_core(async || {
        let handler = Handler::new(async |stream: &ServedStream| {
            let mut what = [0];
            stream.read(&mut what).await?;
            match what[0] {
                b'p' => panic!("a handler's panic, for a test"),
                b'e' => Err(ErrorKind::InvalidData.into()),
                b'c' => Ok(Next::Close),
                _ => {
                    stream.write_all(&what).await?;
                    Ok(Next::Rest)
                }
            }
        })
        .unwrap();
        let (other, served) = pair().await;
        handler.rest(served).unwrap();
        for what in [b"p", b"e", b"c"] {
            let (client, server) = pair().await;
            handler.rest(server).unwrap();
            client.write_all(what).await.unwrap();
            assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "{what:?}");
            say(&other, b"x").await;
        }
        assert_eq!(janus::report().unwrap().tasks_panicked, 1);
    });
}

#[test]
fn a_taken_stream_lives_on_without_its_handler() {
    one_core(async || {
        let taken = Rc::new(Cell::new(None));
        let place = taken.clone();
        let handler = Handler::new(async move |stream: &ServedStream| {
            place.set(stream.take());
            assert!(stream.take().is_none());
            // Of a connection that is somebody else's nothing is said.
            Ok(Next::Close)
        })
        .unwrap();
        let (client, server) = pair().await;
        handler.rest(server).unwrap();
        client.write_all(b"hello").await.unwrap();
        let stream = loop {
            match taken.take() {
                Some(stream) => break stream,
                None => janus::yield_now().await,
            }
        };
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        client.read_exact(&mut hello).await.unwrap();
        // It can rest again.
        handler.rest(stream).unwrap();
        client.write_all(b"again").await.unwrap();
        while taken.take().is_none() {
            janus::yield_now().await;
        }
    });
}

/// A handler that waits in the middle keeps its task, and is woken in it.
#[test]
fn what_comes_in_pieces_is_waited_for_in_a_task() {
    one_core(async || {
        let calls = Rc::new(Cell::new(0));
        let counted = calls.clone();
        let handler = Handler::new(async move |stream: &ServedStream| {
            counted.set(counted.get() + 1);
            let mut line = [0; 4];
            stream.read_exact(&mut line).await?;
            stream.write_all(&line).await?;
            Ok(Next::Rest)
        })
        .unwrap();
        let (client, server) = pair().await;
        handler.rest(server).unwrap();
        for _ in 0..10 {
            for piece in [b"ab", b"cd"] {
                client.write_all(piece).await.unwrap();
                sleep(Duration::from_millis(2)).await;
            }
            let mut line = [0; 4];
            client.read_exact(&mut line).await.unwrap();
            assert_eq!(&line, b"abcd");
        }
        assert_eq!(calls.get(), 10);
    });
}

#[test]
fn a_stream_of_another_core_is_refused() {
    let runtime = Runtime::builder().ignore_environment().cores(2);
    let main = || async {
        if janus::core_id() != Some(0) {
            return std::future::pending().await;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let client = TcpStream::connect(listener.reachable_at()).await?;
        let refused = janus::spawn_on(1, move || async move {
            let handler = Handler::new(echo_once)?;
            handler.rest(client)
        });
        let refused = refused.await?.unwrap_err();
        let inner = refused.get_ref().expect("a reason");
        assert!(inner.is::<janus::net::ForeignCore>());
        // It is closed, as any stream that is dropped.
        let (server, _) = listener.accept().await?;
        assert_eq!(server.read(&mut [0; 1]).await?, 0);
        janus::handle().unwrap().stop();
        janus::Result::<()>::Ok(())
    };
    runtime.build().unwrap().run(main).unwrap();
}
