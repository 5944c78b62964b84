//! The loop of one core panics (here: its queue does): its connections are lost, the others' are not; new ones are served
//! by the others; the runtime gives the error when it ends.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::fragile::{Fragile, NONE};
use crate::support::*;
use janus::net::TcpStream;
use janus::{BackendChoice, Builder};

fn client() -> Builder {
    ONE_COMBINED
        .builder()
        .address("192.0.2.2/24".parse().unwrap())
}

async fn exchange(stream: &TcpStream, round: usize) -> io::Result<()> {
    let sent = pattern(500, round);
    stream.write_all(&sent).await?;
    let mut got = vec![0; sent.len()];
    stream.read_exact(&mut got).await?;
    assert!(got == sent, "what comes back is what was sent");
    Ok(())
}

/// Whether an exchange fails; then by a reset.
async fn is_reset(stream: &TcpStream, round: usize) -> bool {
    let Err(error) = exchange(stream, round).await else {
        return false;
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    true
}

/// Connections made before the core falls, and after.
const CONNECTIONS: usize = 60;

#[test]
fn the_others_go_on_and_have_what_comes_then() {
    let (near, far) = wire_for(THREE_COMBINED);
    let breaks = Arc::new(AtomicUsize::new(NONE));
    let device = Fragile {
        inner: near,
        breaks: breaks.clone(),
    };
    let builder = THREE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(device)));
    let (server, address, cores) = serve(builder, 80, echo);
    let address = SocketAddr::from(([192, 0, 2, 1], address.port()));
    let lost = Arc::new(AtomicUsize::new(0));
    let (broke, ends) = (breaks.clone(), lost.clone());
    let client = client().backend(BackendChoice::wire(far)).build();
    let running = Running::start(client.expect("a client"), move || {
        let (broke, ends) = (broke.clone(), ends.clone());
        async move {
            let mut streams = Vec::new();
            for round in 0..CONNECTIONS {
                let stream = TcpStream::connect(address).await?;
                exchange(&stream, round).await?;
                streams.push(stream);
            }
            // By then all cores sleep.
            janus::time::sleep(Duration::from_millis(100)).await;
            broke.store(1, Ordering::Release);
            let begin = Instant::now();
            let mut are_gone = [false; CONNECTIONS];
            for round in (0..CONNECTIONS).cycle() {
                if broke.load(Ordering::Acquire) == NONE {
                    break;
                }
                // Something for every queue to receive: the core of one that is empty sleeps, and does not ask it.
                if !are_gone[round] {
                    are_gone[round] = is_reset(&streams[round], round).await;
                }
                assert!(begin.elapsed() < PATIENCE, "queue 1 is not asked");
            }
            for (round, stream) in streams.iter().enumerate() {
                // What the fallen core had is reset, not silent.
                are_gone[round] = are_gone[round] || is_reset(stream, round).await;
            }
            let gone = are_gone.iter().filter(|gone| **gone).count();
            ends.store(gone, Ordering::SeqCst);
            // Some are refused until the port has moved, which may take a while; then all are served, through all queues.
            let (mut served, begin) = (0, Instant::now());
            while served < CONNECTIONS {
                assert!(begin.elapsed() < PATIENCE, "{served} served");
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        exchange(&stream, served).await?;
                        served += 1;
                    }
                    // Refused or reset by the one that fell: its share has not moved yet.
                    Err(_) => {
                        served = 0;
                        janus::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            janus::Result::<()>::Ok(())
        }
    });
    running.join().expect("the client ends well");
    let lost = lost.load(Ordering::SeqCst);
    let accepted: Vec<usize> = cores.try_iter().collect();
    let before = &accepted[..CONNECTIONS];
    let of_fallen = before.iter().filter(|core| **core == 1).count();
    assert!(of_fallen > 0 && of_fallen < CONNECTIONS);
    assert_eq!(lost, of_fallen, "its own, and no others");
    let after = &accepted[accepted.len() - CONNECTIONS..];
    assert!(after.iter().all(|core| *core != 1), "{after:?}");
    let error = server.stop().expect_err("the end gives the error");
    assert!(
        error.to_string().contains("the loop of core 1 panicked"),
        "{error}"
    );
}

#[test]
fn the_last_core_ends_the_runtime() {
    let (near, _far) = wire_for(ONE_COMBINED);
    let breaks = Arc::new(AtomicUsize::new(0));
    let device = Fragile {
        inner: near,
        breaks,
    };
    let builder = ONE_COMBINED
        .builder()
        .backend(BackendChoice::Custom(Box::new(device)));
    let runtime = builder.build().expect("a runtime");
    let running = Running::start(runtime, std::future::pending::<()>);
    let error = running.join().expect_err("nobody is left");
    assert!(
        error.to_string().contains("the loop of core 0 panicked"),
        "{error}"
    );
}
