//! The cores' weights change every ten milliseconds while clients talk: no connection is lost, no byte is wrong, and the
//! changes really give living flows to other cores' shares.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::changing::Changing;
use crate::support::content::{self, content, hash, target};
use crate::support::*;
use janus::BackendChoice;
use janus::net::TcpStream;
use janus_http::Connection;

in_every_layout!(
    wire_echoes_under_updates,
    wire_answers_http_under_updates,
    portal_echoes_under_updates,
    portal_answers_http_under_updates,
    weights_are_kept,
    a_core_is_drained_and_restored,
    a_blocked_core_delays_updates_and_no_more,
);

fn wire_echoes_under_updates(case: Case) {
    const CLIENTS: usize = 60;
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .build()
        .unwrap();
    let changing = Changing::start(&runtime, case.cores);
    let (server, ..) = serve_on(runtime, 80, echo);
    let enough: &'static _ = Box::leak(Box::new(changing.enough(case)));
    run_clients(far, CLIENTS, move |index| async move {
        for connection in 0.. {
            if connection >= 4 && enough() {
                break;
            }
            let server = SocketAddr::from(([192, 0, 2, 1], 80));
            let stream = TcpStream::connect(server).await.unwrap();
            for round in 0..8 {
                let sent = pattern(1 + (index * 37 + round * 1000) % 4000, index + connection);
                stream.write_all(&sent).await.unwrap();
                let mut got = vec![0; sent.len()];
                stream.read_exact(&mut got).await.unwrap();
                assert!(got == sent, "client {index}, round {round}");
                let pause = (index * 7 + round * 13) % 30;
                janus::time::sleep(Duration::from_millis(pause as u64)).await;
            }
        }
    });
    changing.stop(case);
    server.stop().unwrap();
}

fn portal_echoes_under_updates(case: Case) {
    let runtime = case
        .builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap();
    let changing = Changing::start(&runtime, case.cores);
    let (server, address, _) = serve_on(runtime, 0, echo);
    let enough = changing.enough(case);
    let clients: Vec<_> = (0..40)
        .map(|client| {
            let enough = enough.clone();
            std::thread::spawn(move || {
                for connection in 0.. {
                    if connection >= 2 && enough() {
                        break;
                    }
                    let address = ("127.0.0.1", address.port());
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    for round in 0..10 {
                        let sent = pattern(1 + round * 211, client + connection);
                        stream.write_all(&sent).unwrap();
                        let mut got = vec![0; sent.len()];
                        stream.read_exact(&mut got).unwrap();
                        assert!(got == sent, "client {client}, round {round}");
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            })
        })
        .collect();
    let clients = clients.into_iter().map(JoinHandle::join);
    let ended: Vec<_> = clients.collect();
    changing.stop(case);
    server.stop().unwrap();
    assert!(ended.iter().all(Result::is_ok), "no client was let down");
}

/// Connections that ask for one content after the other, and new ones in between.
fn wire_answers_http_under_updates(case: Case) {
    const CLIENTS: usize = 40;
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .build()
        .unwrap();
    let changing = Changing::start(&runtime, case.cores);
    let (server, ..) = serve_on(runtime, 80, content::serve);
    let enough: &'static _ = Box::leak(Box::new(changing.enough(case)));
    run_clients(far, CLIENTS, move |client| async move {
        for connection in 0.. {
            if connection >= 3 && enough() {
                break;
            }
            let address = SocketAddr::from(([192, 0, 2, 1], 80));
            let mut server = Connection::connect(address).await.unwrap();
            for round in 0..6 {
                let (len, seed) = asked(client, connection, round);
                let mut response = server.get("janus", &target(len, seed)).await.unwrap();
                assert_eq!(response.status(), 200);
                let mut got = Vec::new();
                while let Some(piece) = response.next().await.unwrap() {
                    got.extend_from_slice(piece);
                }
                let right = hash(&got) == hash(&content(len, seed));
                assert!(right, "client {client}: {} of {len} bytes", got.len());
                let pause = (client * 7 + round * 13) % 30;
                janus::time::sleep(Duration::from_millis(pause as u64)).await;
            }
        }
    });
    changing.stop(case);
    server.stop().unwrap();
}

/// Which content a client asks for: from a few bytes to some dozen segments.
fn asked(client: usize, connection: usize, round: usize) -> (usize, u64) {
    let len = 1 + (client * 911 + connection * 7919 + round * 5077) % 30_000;
    (len, (client + connection) as u64)
}

/// Kernel sockets; a connection for every second request.
fn portal_answers_http_under_updates(case: Case) {
    let runtime = case
        .builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap();
    let changing = Changing::start(&runtime, case.cores);
    let (server, address, _) = serve_on(runtime, 0, content::serve);
    let enough = changing.enough(case);
    let clients: Vec<_> = (0..24)
        .map(|client| {
            let enough = enough.clone();
            std::thread::spawn(move || {
                for connection in 0.. {
                    if connection >= 4 && enough() {
                        break;
                    }
                    let address = ("127.0.0.1", address.port());
                    let mut stream = std::net::TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    let asks: Vec<_> = (0..2).map(|n| asked(client, connection, n)).collect();
                    for (at, (len, seed)) in asks.iter().enumerate() {
                        let end = if at == 1 { "close" } else { "keep-alive" };
                        let request = format!(
                            "GET {} HTTP/1.1\r\nhost: janus\r\nconnection: {end}\r\n\r\n",
                            target(*len, *seed)
                        );
                        stream.write_all(request.as_bytes()).unwrap();
                        std::thread::sleep(Duration::from_millis(30));
                    }
                    let mut got = Vec::new();
                    stream.read_to_end(&mut got).unwrap();
                    let bodies = bodies(&got);
                    let hashes: Vec<u64> = bodies.iter().map(|body| hash(body)).collect();
                    let expected = asks.iter().map(|(len, seed)| hash(&content(*len, *seed)));
                    assert_eq!(hashes, expected.collect::<Vec<u64>>(), "client {client}");
                }
            })
        })
        .collect();
    let ended: Vec<_> = clients.into_iter().map(JoinHandle::join).collect();
    changing.stop(case);
    server.stop().unwrap();
    assert!(ended.iter().all(Result::is_ok), "no client was let down");
}

/// The bodies of answers that follow one another.
fn bodies(mut answers: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !answers.is_empty() {
        let end = answers.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, rest) = answers.split_at(end.expect("a head with an end") + 4);
        let head = std::str::from_utf8(head).unwrap().to_lowercase();
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length = length.lines().next().and_then(|n| n.parse().ok());
        let (body, next) = rest.split_at(length.expect("a number"));
        found.push(body);
        answers = next;
    }
    found
}

/// A core without weight gets no new connection.
fn weights_are_kept(case: Case) {
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .build()
        .unwrap();
    let balance = runtime.handle().balance();
    assert!(balance.set_weights(&vec![0; case.cores]).is_err());
    assert!(balance.set_weights(&vec![1; case.cores + 1]).is_err());
    let (server, _, cores) = serve_on(runtime, 80, echo);
    let mut points = vec![0; case.cores];
    points[case.cores - 1] = 128;
    balance.set_weights(&points).unwrap();
    let begin = std::time::Instant::now();
    while balance.report().updates == 0 {
        assert!(begin.elapsed() < PATIENCE, "the update does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    run_clients(far, 50, |index| async move {
        let stream = TcpStream::connect(SocketAddr::from(([192, 0, 2, 1], 80)));
        let stream = stream.await.unwrap();
        stream.write_all(&[index as u8]).await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
    });
    server.stop().unwrap();
    let accepted: Vec<usize> = cores.iter().collect();
    assert_eq!(accepted, vec![case.cores - 1; 50]);
}

/// A core that is drained keeps what it has and gets nothing new, until it is restored.
fn a_core_is_drained_and_restored(case: Case) {
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .build()
        .unwrap();
    let balance = runtime.handle().balance();
    assert!(balance.drain(case.cores).is_err(), "no such core");
    if case.cores == 1 {
        assert!(balance.drain(0).is_err() && balance.drained().is_empty());
        return;
    }
    let (server, _, cores) = serve_on(runtime, 80, echo);
    // Twice: one that had begun before may be the first to end.
    let carried_out = |wish: &dyn Fn() -> std::io::Result<()>| {
        for _ in 0..2 {
            let (before, begin) = (balance.report().updates, std::time::Instant::now());
            wish().unwrap();
            while balance.report().updates == before {
                assert!(begin.elapsed() < PATIENCE, "the update does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    let last = case.cores - 1;
    let stage: &AtomicUsize = Box::leak(Box::default());
    let clients = std::thread::spawn(move || {
        run_clients(far, 60, move |index| async move {
            let open = || TcpStream::connect(SocketAddr::from(([192, 0, 2, 1], 80)));
            let stays = open().await.unwrap();
            stays.write_all(&[index as u8]).await.unwrap();
            stays.read_exact(&mut [0]).await.unwrap();
            for next in 1..=2 {
                while stage.load(Ordering::Relaxed) < next {
                    janus::time::sleep(Duration::from_millis(1)).await;
                }
                let new = open().await.unwrap();
                new.write_all(&[7]).await.unwrap();
                new.read_exact(&mut [0]).await.unwrap();
                stays.write_all(&[9]).await.unwrap();
                stays.read_exact(&mut [0]).await.unwrap();
            }
        });
    });
    let accepted = || -> Vec<usize> {
        let each = (0..60).map(|_| cores.recv_timeout(PATIENCE));
        each.map(Result::unwrap).collect()
    };
    assert!(accepted().contains(&last));
    carried_out(&|| balance.drain(last));
    assert_eq!(balance.drained(), [last]);
    for core in 0..last - 1 {
        balance.drain(core).unwrap();
    }
    assert!(balance.drain(last - 1).is_err(), "somebody must stay");
    for core in 0..last - 1 {
        balance.restore(core).unwrap();
    }
    // What weights say they say of the others.
    carried_out(&|| balance.set_weights(&vec![8; case.cores]));
    stage.store(1, Ordering::Relaxed);
    let new = accepted();
    assert!(!new.contains(&last), "it is drained: {new:?}");
    assert!(new.contains(&0) && balance.drained() == [last]);
    carried_out(&|| balance.restore(last));
    stage.store(2, Ordering::Relaxed);
    assert!(accepted().contains(&last), "it is restored");
    clients.join().unwrap();
    server.stop().unwrap();
}

/// A task that keeps its thread from the loop holds up an update; the others serve on, and when it lets go the update
/// is carried out.
fn a_blocked_core_delays_updates_and_no_more(case: Case) {
    /// How long the update is looked for in vain.
    const WATCHED: Duration = Duration::from_millis(200);
    let runtime = case
        .builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap();
    let balance = runtime.handle().balance();
    let (blocks, blocked) = std::sync::mpsc::channel();
    let (lets_go, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let waits: &'static _ = Box::leak(Box::new(waits));
    let server = Running::start(runtime, move || {
        let blocks = blocks.clone();
        async move {
            janus::time::sleep(Duration::from_millis(20)).await;
            if janus::core_id() == Some(0) {
                blocks.send(()).unwrap();
                let _ = waits.lock().unwrap().recv();
            }
            std::future::pending::<()>().await;
        }
    });
    blocked.recv_timeout(PATIENCE).unwrap();
    balance.set_weights(&vec![64; case.cores]).unwrap();
    std::thread::sleep(WATCHED);
    assert_eq!(balance.report().updates, 0, "it did not wait for the core");
    lets_go.send(()).unwrap();
    let begin = std::time::Instant::now();
    while balance.report().updates == 0 {
        assert!(begin.elapsed() < PATIENCE, "the update does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    // And a runtime ends with an update under way.
    balance.set_weights(&vec![32; case.cores]).unwrap();
    server.stop().unwrap();
}
