//! The policies in a running server: a core that is slow gets less of the connections, and a steady load is let be.
//! What they decide, and when, is shown in virtual time (`crates/janus-csb/tests/policy`); this is about the samples.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use janus::BackendChoice;
use janus::balance::{Balance, Policy};
use janus::net::TcpStream;

/// What serving a connection takes on the slow core: longer than the others take, however busy the machine is.
const SLOW: Duration = Duration::from_millis(50);
const CLIENTS: usize = 24;
/// Connections that are counted at a time. Of so many an even share is a third, give or take a tenth of that.
const COUNTED: usize = 200;

/// Core 0 is kept for a while by each connection. It sleeps: a slow core is not to make the others slow, who may share its
/// processor.
async fn slow_on_one_core(stream: TcpStream) {
    while let Ok(Some(piece)) = stream.recv().await {
        if janus::core_id() == Some(0) {
            std::thread::sleep(SLOW);
        }
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
}

/// One short connection after the other, until told to stop.
async fn short_connections(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let stream = TcpStream::connect(SocketAddr::from(([192, 0, 2, 1], 80)));
        let stream = stream.await.unwrap();
        stream.write_all(&[7]).await.unwrap();
        stream.read_exact(&mut [0]).await.unwrap();
    }
}

/// Waits until the report satisfies `enough`; false when it never does.
fn wait_for(balance: &Balance, patience: Duration, enough: impl Fn(&Balance) -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if enough(balance) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn a_slow_core_gets_less(case: Case, stop: &'static AtomicBool) {
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .balance(Policy::Service)
        .build()
        .unwrap();
    let balance = runtime.handle().balance();
    let (server, _, cores) = serve_on(runtime, 80, slow_on_one_core);
    let clients = std::thread::spawn(move || {
        run_clients(far, CLIENTS, move |_| short_connections(stop));
    });
    let changed = wait_for(&balance, PATIENCE, |balance| balance.report().updates > 0);
    // From now on, until it has a fifth of them or less instead of a third.
    cores.try_iter().for_each(drop);
    let (begin, mut shares) = (Instant::now(), Vec::new());
    while shares.last().is_none_or(|share| *share > 0.2) && begin.elapsed() < PATIENCE {
        let accepted = (0..COUNTED).map(|_| cores.recv_timeout(PATIENCE));
        let slow = accepted.filter(|core| *core == Ok(0)).count();
        shares.push(slow as f64 / COUNTED as f64);
    }
    stop.store(true, Ordering::Relaxed);
    clients.join().unwrap();
    let report = balance.report();
    server.stop().unwrap();
    println!("{case:?}: core 0 has {shares:.3?} of the connections; {report:?}");
    assert!(changed, "nothing was done about the slow core: {report:?}");
    let last = shares.last();
    assert!(last.is_some_and(|share| *share <= 0.2), "{report:?}");
}

#[test]
fn a_slow_core_gets_less_combined() {
    static STOP: AtomicBool = AtomicBool::new(false);
    a_slow_core_gets_less(THREE_COMBINED, &STOP);
}

#[test]
fn a_slow_core_gets_less_split() {
    static STOP: AtomicBool = AtomicBool::new(false);
    a_slow_core_gets_less(THREE_SPLIT, &STOP);
}

/// Few clients, no queues: the policy looks on.
#[test]
fn short_queues_are_let_be() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let case = THREE_COMBINED;
    let (near, far) = wire_for(case);
    let runtime = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .balance(Policy::Queue)
        .build()
        .unwrap();
    let balance = runtime.handle().balance();
    let (server, ..) = serve_on(runtime, 80, echo);
    let clients = std::thread::spawn(move || run_clients(far, 4, |_| short_connections(&STOP)));
    let early = wait_for(&balance, Duration::from_secs(3), |balance| {
        balance.report().updates > 0
    });
    STOP.store(true, Ordering::Relaxed);
    clients.join().unwrap();
    let report = balance.report();
    server.stop().unwrap();
    assert!(!early && report.updates == 0, "{report:?}");
}
