//! The cores' weights change every ten milliseconds while clients talk: no connection is lost, no byte is wrong, and the
//! changes really give living flows to other cores' shares.

mod support;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use janus::balance::{Balance, BalanceReport};
use janus::net::TcpStream;
use janus::{BackendChoice, Runtime};
use support::*;

in_every_layout!(
    wire_echoes_under_updates,
    portal_echoes_under_updates,
    weights_are_kept,
    a_blocked_core_delays_updates_and_no_more,
);

/// Between two changes.
const INTERVAL: Duration = Duration::from_millis(10);

/// Changes the weights until told to stop.
struct Changing {
    stop: Arc<AtomicBool>,
    balance: Balance,
    thread: JoinHandle<()>,
}

impl Changing {
    fn start(runtime: &Runtime, cores: usize) -> Changing {
        let stop = Arc::new(AtomicBool::new(false));
        let balance = runtime.handle().balance();
        let (stopped, changed) = (stop.clone(), balance.clone());
        let thread = std::thread::spawn(move || {
            for round in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // Each core in turn has a quarter of the others' share.
                let points = |core| if core == round % cores { 32 } else { 128 };
                let points: Vec<u16> = (0..cores).map(points).collect();
                changed.set_weights(&points).unwrap();
                std::thread::sleep(INTERVAL);
            }
        });
        Changing {
            stop,
            balance,
            thread,
        }
    }

    /// Stops, and says what the updates came to.
    fn stop(self, case: Case) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let report: BalanceReport = self.balance.report();
        println!("{case:?}: {report:?}");
        assert!(report.updates > 10, "{report:?}");
        assert!(report.held > 0, "{report:?}");
        if case.cores > 1 {
            assert!(report.diverged * 100 > report.held, "1 %: {report:?}");
        }
    }
}

fn wire_echoes_under_updates(case: Case) {
    const CLIENTS: usize = 100;
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24")
        .build()
        .unwrap();
    let changing = Changing::start(&runtime, case.cores);
    let (server, ..) = serve_on(runtime, 80, echo);
    run_clients(far, CLIENTS, |index| async move {
        for connection in 0..4 {
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
    let clients: Vec<_> = (0..40)
        .map(|client| {
            std::thread::spawn(move || {
                for connection in 0..2 {
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

/// A core without weight gets no new connection.
fn weights_are_kept(case: Case) {
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24")
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

/// A task that keeps its thread from the loop holds up an update; the others serve on, and when it lets go the update
/// is carried out.
fn a_blocked_core_delays_updates_and_no_more(case: Case) {
    const BLOCKED: Duration = Duration::from_millis(400);
    let runtime = case
        .builder()
        .backend(BackendChoice::Portal)
        .build()
        .unwrap();
    let balance = runtime.handle().balance();
    let (blocks, blocked) = std::sync::mpsc::channel();
    let server = Running::start(runtime, move || {
        let blocks = blocks.clone();
        async move {
            janus::time::sleep(Duration::from_millis(20)).await;
            if janus::core_id() == Some(0) {
                blocks.send(()).unwrap();
                std::thread::sleep(BLOCKED);
            }
            std::future::pending::<()>().await;
        }
    });
    blocked.recv_timeout(PATIENCE).unwrap();
    let begin = std::time::Instant::now();
    balance.set_weights(&vec![64; case.cores]).unwrap();
    while balance.report().updates == 0 {
        assert!(begin.elapsed() < PATIENCE, "the update does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = begin.elapsed();
    assert!(took > BLOCKED / 2, "{took:?}: it did not wait for the core");
    // And a runtime ends with an update under way.
    balance.set_weights(&vec![32; case.cores]).unwrap();
    server.stop().unwrap();
}
