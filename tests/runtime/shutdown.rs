//! The orderly end: no new connections, those there are finish, what does not finish in time ends with FIN, what does not
//! even end in time is reset.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::support::*;
use janus::net::{TcpListener, TcpStream};
use janus::{BackendChoice, Handle, shutting_down};

in_every_layout!(
    what_is_under_way_is_finished,
    idle_connections_end_when_they_are_told,
    what_takes_too_long_is_ended_in_order,
    what_does_not_end_is_reset,
);

/// Longer than any test takes that does not wait for it.
const LONG: Duration = Duration::from_secs(600);

const CLIENTS: usize = 8;

/// For [`is_last`].
fn all() -> &'static AtomicUsize {
    Box::leak(Box::new(AtomicUsize::new(CLIENTS)))
}

/// Whether all clients have come so far.
fn is_last(left: &AtomicUsize) -> bool {
    left.fetch_sub(1, Ordering::Relaxed) == 1
}

fn server_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 80))
}

/// Answers a request of one byte with a hundred thousand, after a while, as often as there is one.
async fn slow_answers(stream: TcpStream) {
    while let Ok(1) = stream.read(&mut [0]).await {
        janus::time::sleep(Duration::from_millis(50)).await;
        if stream.write_all(&pattern(100_000, 1)).await.is_err() {
            return;
        }
    }
}

fn what_is_under_way_is_finished(case: Case) {
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let runtime = builder.build().unwrap();
    let handle = runtime.handle();
    let begin = Instant::now();
    let (server, _, _) = serve_on(runtime, 80, slow_answers);
    let (asked, asking) = channel();
    let told: &'static Handle = Box::leak(Box::new(handle.clone()));
    let client = std::thread::spawn(move || {
        let asked = std::sync::Mutex::new(asked);
        let asked: &'static _ = Box::leak(Box::new(asked));
        run_clients(far, 12, move |index| async move {
            let stream = TcpStream::connect(server_address()).await.unwrap();
            stream.write_all(&[1]).await.unwrap();
            asked.lock().unwrap().send(index).unwrap();
            let mut got = vec![0; 100_000];
            stream.read_exact(&mut got).await.unwrap();
            assert!(got == pattern(100_000, 1));
            if index == 0 {
                while !told.is_shutting_down() {
                    janus::time::sleep(Duration::from_millis(1)).await;
                }
                // Soon nobody listens any more, and those that are served still are.
                let refused = loop {
                    if let Err(refused) = TcpStream::connect(server_address()).await {
                        break refused;
                    }
                };
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            }
        });
    });
    for _ in 0..12 {
        asking.recv_timeout(PATIENCE).unwrap();
    }
    assert!(!handle.is_shutting_down());
    handle.shutdown(LONG);
    assert!(handle.is_shutting_down());
    client.join().unwrap();
    server.join().unwrap();
    assert!(begin.elapsed() < LONG);
}

fn idle_connections_end_when_they_are_told(case: Case) {
    /// Echoes until the peer ends, or the runtime will.
    async fn polite(stream: TcpStream) {
        let mut ends = std::pin::pin!(shutting_down());
        loop {
            let received = futures::future::select(ends.as_mut(), stream.recv()).await;
            match received {
                futures::future::Either::Right((Ok(Some(piece)), _)) => {
                    stream.write_all(&piece).await.unwrap();
                }
                _ => return,
            }
        }
    }
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let runtime = builder.build().unwrap();
    let handle: &'static Handle = Box::leak(Box::new(runtime.handle()));
    let (server, _, _) = serve_on(runtime, 80, polite);
    let left = all();
    run_clients(far, CLIENTS, move |_| async move {
        let stream = TcpStream::connect(server_address()).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        if is_last(left) {
            handle.shutdown(LONG);
        }
        // The server ends it, in order.
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    });
    server.join().unwrap();
}

fn what_takes_too_long_is_ended_in_order(case: Case) {
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .close_time(LONG)
        .address("192.0.2.1/24".parse().unwrap());
    let runtime = builder.build().unwrap();
    let handle: &'static Handle = Box::leak(Box::new(runtime.handle()));
    let (server, _, _) = serve_on(runtime, 80, echo);
    let left = all();
    run_clients(far, CLIENTS, move |_| async move {
        let stream = TcpStream::connect(server_address()).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        if is_last(left) {
            handle.shutdown(Duration::from_millis(20));
            // The first one decides.
            handle.shutdown(LONG);
        }
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    });
    server.join().unwrap();
}

fn what_does_not_end_is_reset(case: Case) {
    /// Writes more than the peer takes.
    async fn flood(stream: TcpStream) {
        while stream.write_all(&[7; 10_000]).await.is_ok() {}
    }
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .close_time(Duration::from_millis(50))
        .address("192.0.2.1/24".parse().unwrap());
    let (server, _, _) = serve(builder, 80, flood);
    let server: &'static std::sync::Mutex<Option<Running>> =
        Box::leak(Box::new(std::sync::Mutex::new(Some(server))));
    let left = all();
    run_clients(far, CLIENTS, move |_| async move {
        let stream = TcpStream::connect(server_address()).await.unwrap();
        // Until nothing more fits: then the server has something that it cannot send.
        while stream.info().unwrap().receive_window > 0 {
            janus::time::sleep(Duration::from_millis(1)).await;
        }
        if is_last(left) {
            let server = server.lock().unwrap().take().unwrap();
            std::thread::spawn(move || server.stop().unwrap());
        }
        let ready = stream.ready(janus::net::Interest::ERROR).await.unwrap();
        assert!(ready.is_error());
        let broken = stream.take_error().unwrap().unwrap();
        assert_eq!(broken.kind(), ErrorKind::ConnectionReset);
    });
}

/// The portal's doors close, those inside stay.
#[test]
fn the_portal_lets_nobody_in_any_more() {
    let runtime = ONE_COMBINED.builder().backend(BackendChoice::Portal);
    let runtime = runtime.build().unwrap();
    let handle = runtime.handle();
    let (server, address, _) = serve_on(runtime, 0, echo);
    let at = ("127.0.0.1", address.port());
    let mut inside = std::net::TcpStream::connect(at).unwrap();
    inside.set_read_timeout(Some(PATIENCE)).unwrap();
    inside.write_all(b"x").unwrap();
    inside.read_exact(&mut [0]).unwrap();
    handle.shutdown(LONG);
    let begin = Instant::now();
    while std::net::TcpStream::connect(at).is_ok() {
        assert!(begin.elapsed() < PATIENCE, "the door is still open");
    }
    inside.write_all(b"y").unwrap();
    inside.read_exact(&mut [0]).unwrap();
    drop(inside);
    server.join().unwrap();
}

/// Who was connected by the kernel before its door closed is served, wherever he is on the way inside.
#[test]
fn the_portal_resets_nobody_whom_it_has_let_in() {
    const VISITORS: usize = 16;
    const ANSWERS: usize = 300;
    /// One connection for each request, until none is to be had.
    fn visits(at: SocketAddr, answers: &AtomicUsize) -> Result<(), String> {
        loop {
            let mut stream = match std::net::TcpStream::connect(at) {
                Ok(stream) => stream,
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(()),
                Err(error) => return Err(format!("neither in nor refused: {error}")),
            };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let asked = stream.write_all(b"x");
            let answered = asked.and_then(|()| stream.read_exact(&mut [0]));
            answered.map_err(|error| format!("let in, and {error}"))?;
            answers.fetch_add(1, Ordering::Relaxed);
        }
    }
    let runtime = THREE_COMBINED.builder().backend(BackendChoice::Portal);
    let runtime = runtime.build().unwrap();
    let handle = runtime.handle();
    let (server, address, _) = serve_on(runtime, 0, echo);
    let at = SocketAddr::from(([127, 0, 0, 1], address.port()));
    let answers: &'static AtomicUsize = Box::leak(Box::default());
    let clients: Vec<_> = (0..VISITORS)
        .map(|_| std::thread::spawn(move || visits(at, answers)))
        .collect();
    let begin = Instant::now();
    while answers.load(Ordering::Relaxed) < ANSWERS {
        assert!(begin.elapsed() < PATIENCE, "it serves");
        std::thread::sleep(Duration::from_millis(1));
    }
    handle.shutdown(LONG);
    assert!(handle.is_shutting_down());
    for client in clients {
        assert_eq!(client.join().unwrap(), Ok(()));
    }
    server.join().unwrap();
}

#[test]
fn mains_may_end_meanwhile_and_nothing_can_be_bound() {
    let (near, far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap());
    let (ready, listens) = channel();
    let server = Running::start(builder.build().unwrap(), move || {
        let ready = ready.clone();
        async move {
            let listener = TcpListener::bind("0.0.0.0:80").await?;
            ready.send(())?;
            let (stream, _) = listener.accept().await?;
            janus::spawn(slow_answers(stream));
            janus::handle().unwrap().shutdown(LONG);
            let refused = TcpListener::bind("0.0.0.0:81").await.err().unwrap();
            assert!(refused.to_string().contains("shutting down"), "{refused}");
            shutting_down().await;
            janus::Result::<()>::Ok(())
        }
    });
    listens.recv_timeout(PATIENCE).expect("it listens");
    run_clients(far, 1, |_| async {
        let stream = TcpStream::connect(server_address()).await.unwrap();
        for _ in 0..2 {
            stream.write_all(&[1]).await.unwrap();
            let mut got = vec![0; 100_000];
            stream.read_exact(&mut got).await.unwrap();
        }
    });
    server.join().unwrap();
}
