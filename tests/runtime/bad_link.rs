//! The link made a bad one by the settings: what is sent arrives all the same, every fault happens and is counted, and a
//! delay is one.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::*;
use janus::net::TcpStream;
use janus::{BackendChoice, FaultCounters, Faults};

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 80);
const CLIENTS: usize = 10;
const BYTES: usize = 60_000;

in_every_layout!(streams_get_through_everything_at_once);

fn streams_get_through_everything_at_once(case: Case) {
    let faults = Faults {
        seed: 21,
        loss: 10,
        duplicate: 10,
        reorder: 20,
        distance: 3,
        corrupt: 10,
        delay: Duration::from_millis(1),
        jitter: Duration::from_millis(1),
        rate: std::num::NonZeroU64::new(200_000_000),
        ..Faults::default()
    };
    println!("seed {}", faults.seed);
    let (near, far) = wire_for(case);
    let builder = case
        .builder()
        .backend(BackendChoice::wire(near))
        .address("192.0.2.1/24".parse().unwrap())
        .faults(faults);
    let runtime = builder.build().unwrap();
    let counters = runtime.handle().faults().expect("faults were asked for");
    let (server, _, _) = serve_on(runtime, SERVER.1, echo);
    run_clients(far, CLIENTS, |index| async move {
        let stream = TcpStream::connect(SocketAddr::from(SERVER)).await.unwrap();
        let sent = pattern(BYTES, index);
        let (mut reader, mut writer) = stream.into_split();
        let text = sent.clone();
        let writing = janus::spawn(async move { writer.write_all(&text).await });
        let mut got = vec![0; sent.len()];
        reader.read_exact(&mut got).await.unwrap();
        assert!(got == sent, "client {index}");
        writing.await.unwrap().unwrap();
    });
    server.stop().unwrap();
    let sums =
        |count: fn(&janus::WayCounters) -> u64| count(&counters.received) + count(&counters.sent);
    for (what, sum) in [
        ("lost", sums(|way| way.lost.get())),
        ("doubled", sums(|way| way.duplicated.get())),
        ("held back", sums(|way| way.reordered.get())),
        ("spoilt", sums(|way| way.corrupted.get())),
    ] {
        assert!(sum > 0, "nothing was {what}: {counters:?}");
    }
}

#[test]
fn without_a_word_of_it_there_is_none() {
    let (near, _far) = wire_for(ONE_COMBINED);
    let builder = ONE_COMBINED.builder().backend(BackendChoice::wire(near));
    assert!(builder.build().unwrap().handle().faults().is_none());
}

/// By a file, behind the portal: no privilege, and the kernel's own socket at the other end.
#[test]
fn a_delay_behind_the_portal_is_seen_by_the_kernels_client() {
    let file = std::env::temp_dir().join(format!("janus-bad-link-{}.toml", std::process::id()));
    let text = "[faults]\nloss = \"0.5%\"\ncorrupt = \"0.5%\"\ndelay_ms = 15\nrate_kbit = 100_000\nseed = 3\n";
    std::fs::write(&file, text).unwrap();
    let runtime = ONE_COMBINED
        .builder()
        .config_file(&file)
        .backend(BackendChoice::Portal)
        .build()
        .unwrap();
    let counters = runtime.handle().faults().expect("faults were asked for");
    let (server, address, _) = serve_on(runtime, 0, echo);
    let mut client = std::net::TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    for round in 0..3 {
        let begin = Instant::now();
        client.write_all(&[round]).unwrap();
        let mut got = [0];
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, [round]);
        let took = begin.elapsed();
        assert!(
            took >= Duration::from_millis(30),
            "there and back in {took:?}"
        );
    }
    let sent = pattern(400_000, 1);
    let mut writer = client.try_clone().unwrap();
    let text = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&text));
    let mut got = vec![0; sent.len()];
    client.read_exact(&mut got).unwrap();
    assert!(got == sent);
    writing.join().unwrap().unwrap();
    server.stop().unwrap();
    std::fs::remove_file(&file).unwrap();
    let FaultCounters { received, sent, .. } = &*counters;
    let lost = received.lost.get() + sent.lost.get();
    let spoilt = received.corrupted.get() + sent.corrupted.get();
    assert!(lost + spoilt > 0, "{counters:?}");
}
