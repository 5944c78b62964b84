//! The policies in a running server: a core that is slow gets less of the connections, and a steady load is let be.
//! What they decide, and when, is shown in virtual time (`crates/janus-csb/tests/policy`); this is about the samples.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use janus::BackendChoice;
use janus::balance::{Balance, Policy};
use janus::net::TcpStream;
use support::*;

/// What serving a connection takes on the slow core.
const SLOW: Duration = Duration::from_millis(1);
const CLIENTS: usize = 24;

/// Core 0 works for a while on each connection.
async fn slow_on_one_core(stream: TcpStream) {
    while let Ok(Some(piece)) = stream.recv().await {
        if janus::core_id() == Some(0) {
            let begin = Instant::now();
            while begin.elapsed() < SLOW {
                std::hint::spin_loop();
            }
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
        .address("192.0.2.1/24")
        .balance(Policy::Service)
        .build()
        .unwrap();
    let balance = runtime.handle().balance();
    let (server, _, cores) = serve_on(runtime, 80, slow_on_one_core);
    let clients = std::thread::spawn(move || {
        run_clients(far, CLIENTS, move |_| short_connections(stop));
    });
    let changed = wait_for(&balance, PATIENCE / 2, |balance| {
        balance.report().updates > 0
    });
    let before: Vec<usize> = cores.try_iter().collect();
    std::thread::sleep(Duration::from_secs(1));
    let after: Vec<usize> = cores.try_iter().collect();
    stop.store(true, Ordering::Relaxed);
    clients.join().unwrap();
    let report = balance.report();
    server.stop().unwrap();
    let share = |accepted: &[usize]| {
        let slow = accepted.iter().filter(|&&core| core == 0).count();
        slow as f64 / accepted.len().max(1) as f64
    };
    println!(
        "{case:?}: core 0 had {:.3}, has {:.3} of the connections; {report:?}",
        share(&before),
        share(&after)
    );
    assert!(changed, "nothing was done about the slow core: {report:?}");
    assert!(before.len() > 100 && after.len() > 100);
    assert!(share(&after) < share(&before) * 0.6);
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
        .address("192.0.2.1/24")
        .balance(Policy::Queue)
        .build()
        .unwrap();
    let balance = runtime.handle().balance();
    let (server, ..) = serve_on(runtime, 80, echo);
    let clients = std::thread::spawn(move || run_clients(far, 4, |_| short_connections(&STOP)));
    let early = wait_for(&balance, Duration::from_secs(5), |balance| {
        balance.report().updates > 0
    });
    STOP.store(true, Ordering::Relaxed);
    clients.join().unwrap();
    let report = balance.report();
    server.stop().unwrap();
    assert!(!early && report.updates == 0, "{report:?}");
}
